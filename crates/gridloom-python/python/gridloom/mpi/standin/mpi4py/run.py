"""Says that `mpi4py.run` is not there."""

raise ImportError("gridloom mpirun does not support mpi4py.run: gridloom mpirun by itself ends all ranks when one raises an exception")
