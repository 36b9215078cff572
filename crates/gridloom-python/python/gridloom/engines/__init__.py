"""Groups of calls on clusters of Dask and Ray, which stay as they are."""

from .cluster import EngineReport
from .protocol import Engine

__all__ = [
    "Engine",
    "EngineReport",
]
