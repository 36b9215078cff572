"""Grids that are open: they are closed when the program ends, and given up in a forked child."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING

from . import _gridloom

if TYPE_CHECKING:
    from ._grid import Grid

open_grids: weakref.WeakSet[Grid] = weakref.WeakSet()
openings = itertools.count()
"""Numbers of grids in the order in which they are opened."""


@atexit.register
def _close_all() -> None:
    is_interrupted = _is_interrupted()
    for grid in list(open_grids):
        # As executors of Python do, theirs wait for their calls first. Ctrl-C ends these instead.
        for executor in list(grid._executors):
            try:
                executor._end(aborts=is_interrupted)
            except KeyboardInterrupt:
                is_interrupted = True
        grid.close()


def _is_interrupted() -> bool:
    """Whether Ctrl-C has ended the program, or Python's wait for the program's threads. A prompt goes on after it."""
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt) and not hasattr(sys, "ps1"):
        return True
    # Python waits for all of these first, and tells nobody that this was interrupted.
    return any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate())


def _forked() -> None:
    """In a forked child no session works: its threads and its connections are the parent's."""
    _gridloom.forked()
    for grid in list(open_grids):
        grid._closed = grid._forked = True
        grid._ends.forget()
        if grid._runner is not None:
            grid._runner.forget()
    open_grids.clear()


os.register_at_fork(after_in_child=_forked)
