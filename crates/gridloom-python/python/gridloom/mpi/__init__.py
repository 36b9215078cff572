"""Programs of mpi4py on ranks that are chares: ``gridloom mpirun -n 64 program.py``, or ``python -m gridloom.mpi -n 64 program.py``.

The import ``mpi4py`` of a program finds the replacement in this package.

===============================  ==========================================================================
file                             contents
===============================  ==========================================================================
`launch`, `private`              the run of an element's ranks; modules of which each rank has its own
`rank`, `matching`               a rank's stack; its messages
`state`, `comm`, `point`         communicators; sends, receives and probes
`collectives`, `plans`           collective operations on bytes; how each call packs and unpacks
`topology`                       grids and graphs
`layout`, `buffers`              positions of the bytes of an item; memory of messages
`datatype`, `op`                 types of items; reductions
`request`, `status`              operations in progress; status of a receive
`group`, `errors`, `constants`   groups, hints, error classes, numbers
`api`, `standin`                 the names of ``mpi4py.MPI``, and the package that replaces ``mpi4py``
===============================  ==========================================================================
"""
