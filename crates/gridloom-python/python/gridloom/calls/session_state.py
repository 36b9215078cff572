"""State of a session that its functions, groups and other parts share."""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import Any, Protocol

from .. import _gridloom
from ..display.bars import Watch
from .completion import Completions


class Recorder(Protocol):
    """A group whose block is open: it records calls instead of running them."""

    def _record(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a function, and return handles of its results."""


class SessionState:
    """The parts of a session know this and not the session itself.

    Parameters
    ----------
    raw : RawGrid
        The session of the extension module.

    Attributes
    ----------
    completions : Completions
        Completions of the session's calls.
    current : contextvars.ContextVar
        The group whose block this thread has entered.
    is_closed, is_forked : bool
        Whether the session was closed, and whether this process is a forked child of the session's.
    watches : weakref.WeakSet of Watch
        Progress bars of the session that are drawn now.
    """

    def __init__(self, raw: _gridloom.RawGrid) -> None:
        self.raw = raw
        self.completions = Completions(raw)
        self.current: ContextVar[Recorder | None] = ContextVar("gridloom group", default=None)
        self.is_closed = False
        self.is_forked = False
        self.watches: weakref.WeakSet[Watch] = weakref.WeakSet()

    def reset_after_fork(self) -> None:
        """Mark the session as closed: in a forked child nothing of it works."""
        self.is_closed = self.is_forked = True
        self.completions.reset_after_fork()


class HasSession(Protocol):
    """A `Grid`."""

    _session: SessionState
