"""Says that `mpi4py.futures` is not there."""

raise ImportError("gridloom mpirun does not support mpi4py.futures: start workers with gridloom.Executor")
