"""Progress bars of calls of groups and of large transfers. They poll, and wait for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..errors import GridloomError, UsageError
from .bars import Bar, Watch, are_shown

# Transfers get a bar after this time.
_LONG_SECONDS = 0.5


def wanted(progress: object) -> bool:
    """Whether a program wants bars."""
    if not isinstance(progress, bool):
        raise UsageError(f"progress is {progress!r}; expected True or False")
    return progress


def of_group(counts: Callable[[], tuple[int, int, int, bool]]) -> Watch | None:
    """Show how many calls of a group have ended.

    Parameters
    ----------
    counts : function
        Returns how many calls there are, have ended and have failed, and whether all have ended.
    """
    bar = Bar("group", "calls")

    def look() -> bool:
        try:
            calls, ended, failed, is_over = counts()
        except GridloomError:
            return True
        bar.move(ended, calls, f"{failed} failed" if failed else "")
        return is_over

    return Watch(look, bar.close) if are_shown() else None


def of_result(received: Callable[[], tuple[int, int] | None], name: str) -> Watch | None:
    """Show how much of a result was received.

    Parameters
    ----------
    received : function
        Returns how many bytes were received, and of how many; ``None`` while none is sent.
    name : str
        Label of the bar.
    """
    bar, transfers = Bar(name, "B"), _Transfers()

    def look() -> bool:
        try:
            moving = received()
        except GridloomError:  # the session is closed
            return True
        transfers.look(bar, {} if moving is None else {0: moving})
        return False

    return Watch(look, bar.close) if are_shown() else None


def of_transfers(moving: Callable[[], list[tuple[int, bool, int, int]] | None]) -> Watch | None:
    """Show what a session sends and receives, if that takes long, until it is closed.

    Parameters
    ----------
    moving : function
        Returns for each transfer its number, whether it is sent, how many bytes were moved, and of how many; ``None`` once the session
        exists no more.
    """
    bars = {True: _LateBar("sending"), False: _LateBar("receiving")}

    def look() -> bool:
        try:
            found = moving()
        except GridloomError:  # the session is closed
            return True
        for is_sent, bar in bars.items():
            bar.look({number: (done, size) for number, sent, done, size in found or () if sent == is_sent})
        return found is None

    def close() -> None:
        for bar in bars.values():
            bar.look({})

    return Watch(look, close) if are_shown() else None


class _Transfers:
    """Transfers in one direction, one after another or at once, which share one bar."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def look(self, bar: Bar, moving: dict[int, tuple[int, int]]) -> None:
        """Move the bar. A transfer that is not in `moving` any more is complete."""
        self._sizes |= {number: size for number, (_, size) in moving.items()}
        if self._sizes:
            total = sum(self._sizes.values())
            bar.move(total - sum(size - done for done, size in moving.values()), total)


class _LateBar:
    """A bar of transfers that appears late, and ends with the last transfer."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._begun: tuple[float, Bar, _Transfers] | None = None
        self._is_shown = False

    def look(self, moving: dict[int, tuple[int, int]]) -> None:
        """Show these transfers."""
        if moving and self._begun is None:
            self._begun = time.monotonic(), Bar(self._label, "B"), _Transfers()
        if self._begun is None:
            return
        began, bar, transfers = self._begun
        self._is_shown = self._is_shown or time.monotonic() - began >= _LONG_SECONDS
        if self._is_shown:
            transfers.look(bar, moving)
        if not moving:
            bar.close()
            self._begun, self._is_shown = None, False
