"""Says that `mpi4py.util` is not there."""

raise ImportError("gridloom mpirun does not support mpi4py.util: it has no helpers")
