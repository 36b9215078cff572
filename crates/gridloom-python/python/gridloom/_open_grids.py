"""Grids that are open: they are closed when the program ends, and given up in a forked child."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING

from . import _gridloom

if TYPE_CHECKING:
    from ._grid import Grid

open_grids: weakref.WeakSet[Grid] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for grid in list(open_grids):
        # As executors of Python do, theirs end their calls first.
        for executor in list(grid._executors):
            executor.shutdown()
        grid.close()


def _forked() -> None:
    """In a forked child no session works: its threads and its connections are the parent's."""
    _gridloom.forked()
    for grid in list(open_grids):
        grid._closed = True
        grid._ends.forget()
        if grid._runner is not None:
            grid._runner.forget()
    open_grids.clear()


os.register_at_fork(after_in_child=_forked)
