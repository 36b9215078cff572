"""What a terminal or a notebook shows: output of calls, progress bars, and objects as HTML."""

from .output import Output, progress

__all__ = [
    "Output",
    "progress",
]
