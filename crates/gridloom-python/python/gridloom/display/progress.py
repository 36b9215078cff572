"""Bars of what a session does: calls of groups, and large values on their way. They look, and wait for nothing."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from ._bars import Bar, Watch, are_shown
from ._errors import GridloomError, UsageError

if TYPE_CHECKING:
    from . import _gridloom
    from ._grid import Grid
    from ._group import Group

# A transfer is long after so many seconds.
_LONG_SECONDS = 0.5


def wanted(progress: object) -> bool:
    """Whether a program wants bars."""
    if not isinstance(progress, bool):
        raise UsageError(f"progress is {progress!r}; expected True or False")
    return progress


def of_group(group: Group) -> Watch | None:
    """Show how many calls of a group have ended. The program need not hold the group."""
    bar = Bar("group", "calls")

    def look() -> bool:
        try:
            calls, ended, failed, is_over = group._come()
        except GridloomError:
            return True
        bar.move(ended, calls, f"{failed} failed" if failed else "")
        return is_over

    return Watch(look, bar.close) if are_shown() else None


def of_result(raw: _gridloom.RawHandle, name: str) -> Watch | None:
    """Show how much of a result has come here, from when it is on its way."""
    bar, way = Bar(name, "B"), _Way()

    def look() -> bool:
        try:
            come = raw.moving()
        except GridloomError:  # the session is closed
            return True
        way.look(bar, {} if come is None else {0: come})
        return False

    return Watch(look, bar.close) if are_shown() else None


def of_transfers(grid: Grid) -> Watch | None:
    """Show what a session sends and receives, if that takes long, until it is closed or nothing holds it."""
    ways, watched = {True: _Long("sending"), False: _Long("receiving")}, weakref.ref(grid)

    def look() -> bool:
        one = watched()
        try:
            moving = [] if one is None else one._raw.moving()
        except GridloomError:  # the session is closed
            return True
        for is_sent, way in ways.items():
            way.look({number: (done, size) for number, sent, done, size in moving if sent == is_sent})
        return one is None

    def close() -> None:
        for way in ways.values():
            way.look({})

    return Watch(look, close) if are_shown() else None


class _Way:
    """Values that go one way, one after the other or at once: together they are one bar."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def look(self, bar: Bar, moving: dict[int, tuple[int, int]]) -> None:
        """Move the bar. What moves no more has come."""
        self._sizes |= {number: size for number, (_, size) in moving.items()}
        if self._sizes:
            total = sum(self._sizes.values())
            bar.move(total - sum(size - done for done, size in moving.values()), total)


class _Long:
    """A way with a bar that appears late, and ends when nothing moves."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._begun: tuple[float, Bar, _Way] | None = None
        self._is_shown = False

    def look(self, moving: dict[int, tuple[int, int]]) -> None:
        """Show what moves."""
        if moving and self._begun is None:
            self._begun = time.monotonic(), Bar(self._label, "B"), _Way()
        if self._begun is None:
            return
        began, bar, way = self._begun
        self._is_shown = self._is_shown or time.monotonic() - began >= _LONG_SECONDS
        if self._is_shown:
            way.look(bar, moving)
        if not moving:
            bar.close()
            self._begun, self._is_shown = None, False
