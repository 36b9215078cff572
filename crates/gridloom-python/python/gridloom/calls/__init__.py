"""Calls of functions that servers offer, their futures, and waits for them."""

from .function import Function
from .future import Future
from .waits import Completed, DoneAndNotDone, as_completed, wait

__all__ = [
    "Completed",
    "DoneAndNotDone",
    "Function",
    "Future",
    "as_completed",
    "wait",
]
