"""Errors that the program has not read: a warning lists them when the session is closed, as `asyncio` does for tasks."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ..errors import Cancelled, text_of

# Errors that are listed, the others are counted; and the length at which a line is cut.
_LINES_MAX = 10
_LINE_CHARACTERS_MAX = 300


class Reporter(Protocol):
    """A future whose error may be left unread."""

    def _report_unread(self, is_over: bool) -> bool:
        """Report the error, if there is one that was not read; false if the call is still running. No call runs once the session is over."""


class UnreadErrors:
    """Unread errors of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._first: list[str] = []
        self._followed: weakref.WeakSet[Reporter] = weakref.WeakSet()

    def follow(self, future: Reporter) -> None:
        """Ask the future when the session is closed, if it still exists then."""
        with self._lock:
            self._followed.add(future)

    def report(self, error: BaseException | None, name: str = "") -> None:
        """Note the error of a function that nothing can read any more."""
        if error is None or isinstance(error, Cancelled):
            return
        first, more, _ = text_of(error).partition("\n")
        line = f"{type(error).__name__}: {first}" if name in first else f"{name}: {type(error).__name__}: {first}"
        line = line[:_LINE_CHARACTERS_MAX] + (" ..." if more or len(line) > _LINE_CHARACTERS_MAX else "")
        with self._lock:
            self._count += 1
            if len(self._first) < _LINES_MAX and line not in self._first:
                self._first.append(line)

    def take(self, is_over: bool) -> str | None:
        """Text of the warning, before or after the session is over; ``None`` if there is nothing to warn of."""
        with self._lock:
            followed = list(self._followed)
        for future in followed:
            if future._report_unread(is_over):
                with self._lock:
                    self._followed.discard(future)
        with self._lock:
            count, first, self._count, self._first = self._count, self._first, 0, []
        if count == 0:
            return None
        calls = f"{count} call{'' if count == 1 else 's'}"
        why = "had not ended when the grid was closed; get() and gridloom.wait wait for them" if is_over else "failed, and nobody read why"
        lines = [f"{calls} {why}", *first]
        if count > len(first):
            lines.append(f"and {count - len(first)} more")
        return "\n  ".join(lines)
