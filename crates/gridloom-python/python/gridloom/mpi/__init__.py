"""Programs of mpi4py on ranks that are chares: ``gridloom mpirun -n 64 program.py``, or ``python -m gridloom.mpi -n 64 program.py``.

A program imports ``mpi4py`` as ever, and finds this package's in its place.

===============================  ==========================================================================
file                             what it holds
===============================  ==========================================================================
`launch`, `private`              the run of an element's ranks; modules of which each rank has its own
`rank`, `matching`               a rank's stack; its messages
`state`, `comm`, `point`         communicators; sends, receives and probes
`collectives`, `plans`           collective operations on bytes; what each call packs and unpacks
`topology`                       grids and graphs
`layout`, `buffers`              where the bytes of an item are; memory of messages
`datatype`, `op`                 what the items of messages are; reductions
`request`, `status`              what a rank waits for; status of a receive
`group`, `errors`, `constants`   groups, hints, error classes, numbers
`api`, `standin`                 the names of ``mpi4py.MPI``, and the package that takes its place
===============================  ==========================================================================
"""
