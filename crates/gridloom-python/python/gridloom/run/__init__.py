"""Any Python function on servers: calls, maps and streams."""

from .map import MapResults
from .options import Options
from .stream import Stream

__all__ = [
    "MapResults",
    "Options",
    "Stream",
]
