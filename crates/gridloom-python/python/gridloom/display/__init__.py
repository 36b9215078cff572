"""Display in terminals and notebooks: output of calls, progress bars, and objects as HTML."""

from .output import Output, progress

__all__ = [
    "Output",
    "progress",
]
