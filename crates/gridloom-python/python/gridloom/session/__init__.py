"""Sessions with a grid, and its shared data."""

from .grid import Grid
from .opening import connect, local, simulate
from .shared_data import SharedName, SharedValue

__all__ = [
    "Grid",
    "SharedName",
    "SharedValue",
    "connect",
    "local",
    "simulate",
]
