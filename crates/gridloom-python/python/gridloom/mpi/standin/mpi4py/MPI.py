"""The names of MPI for programs of ``gridloom mpirun``."""

from gridloom.mpi import api as _api
from gridloom.mpi.api import *  # noqa: F403

_typedict = _api._typedict
