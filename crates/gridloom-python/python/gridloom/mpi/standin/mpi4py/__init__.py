"""Gridloom's package in the place of mpi4py, for programs that ``gridloom mpirun`` runs."""

from types import SimpleNamespace

from gridloom import __version__

__all__ = ["MPI"]
__version__ = f"4.1.0+gridloom.{__version__}"

#: Kept for programs that set it; nothing depends on it.
rc = SimpleNamespace(
    initialize=True, threads=True, thread_level="multiple", finalize=None, fast_reduce=True, recv_mprobe=True, irecv_bufsz=32768, errors="exception"
)
