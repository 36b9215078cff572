"""Failed calls of which the program has not read the error: told when their session ends, as `asyncio` tells those of tasks."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ._errors import Cancelled, text_of

# Errors that are told; the others are counted. Of a longer one the rest is left out.
_LINES_MAX = 10
_LINE_CHARACTERS_MAX = 300


class Unreadable(Protocol):
    """A future whose error may be left unread."""

    def _tell_unread(self, is_over: bool) -> bool:
        """Tell the error, if there is one that was not read; false for a call that goes on. Nothing goes on if the session is over."""


class Unread:
    """Of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._first: list[str] = []
        self._followed: weakref.WeakSet[Unreadable] = weakref.WeakSet()

    def follow(self, future: Unreadable) -> None:
        """Look at it when the session ends, if something holds it then."""
        with self._lock:
            self._followed.add(future)

    def tell(self, error: BaseException | None, name: str = "") -> None:
        """An error of a function that nothing can read any more."""
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
        """What is to be said at the end, before and after the session is over; ``None`` for nothing."""
        with self._lock:
            followed = list(self._followed)
        for future in followed:
            if future._tell_unread(is_over):
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
