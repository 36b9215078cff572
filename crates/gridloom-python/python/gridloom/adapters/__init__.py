"""Gridloom behind other interfaces: `concurrent.futures`, joblib and Dask; that of Parsl is `gridloom.adapters.parsl`."""

from .dask_scheduler import dask
from .executor import Executor, register_joblib

__all__ = [
    "Executor",
    "dask",
    "register_joblib",
]
