"""Sessions that are open: they are closed when the program ends, and abandoned in a forked child."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol

from .. import _gridloom


class Ending(Protocol):
    """An executor that uses a session."""

    def _end(self, *, aborts: bool) -> None:
        """Wait for its calls, or abort them."""


class Open(Protocol):
    """A session that is open: a `Grid`."""

    def close(self) -> None:
        """End the session."""

    @property
    def _executors(self) -> Iterable[Ending]: ...

    def _reset_after_fork(self) -> None:
        """Abandon the session in a forked child."""


open_grids: weakref.WeakSet[Open] = weakref.WeakSet()
openings = itertools.count()
"""Numbers of sessions in the order in which they are opened."""


@atexit.register
def _close_all() -> None:
    is_interrupted = _is_interrupted()
    for grid in list(open_grids):
        # Executors wait for their calls first, as those of Python do. Ctrl-C aborts the calls instead.
        for executor in list(grid._executors):
            try:
                executor._end(aborts=is_interrupted)
            except KeyboardInterrupt:
                is_interrupted = True
        grid.close()


def _is_interrupted() -> bool:
    """Whether Ctrl-C has ended the program, or Python's wait for the program's threads. A prompt continues after it."""
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt) and not hasattr(sys, "ps1"):
        return True
    # Python waits for all of these first, and reports to nobody that this was interrupted.
    return any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate())


def _forked() -> None:
    """In a forked child no session works: its threads and its connections are the parent's."""
    _gridloom.forked()
    for grid in list(open_grids):
        grid._reset_after_fork()
    open_grids.clear()


os.register_at_fork(after_in_child=_forked)
