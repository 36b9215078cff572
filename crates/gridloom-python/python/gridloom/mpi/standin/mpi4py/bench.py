"""Says that `mpi4py.bench` is not there."""

raise ImportError("gridloom mpirun does not support mpi4py.bench: it has no benchmarks")
