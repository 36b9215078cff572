"""Prefetch window of a map: how far its calls run ahead of the results that the program takes.

**Invariants.** The bytes of arguments that wait and of results that are here stay below `WINDOW_BYTES`, except for the next `least` calls
to be taken and for calls that were running when the limit was passed. So the call that the program waits for is never held back.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

WINDOW_BYTES = 256 << 20


class MapCall(Protocol):
    """A call of a map: a `Call`."""

    number: int
    serial: int
    arguments: npt.NDArray[np.uint8]

    @property
    def future(self) -> Any: ...

    @property
    def is_repeated(self) -> bool: ...


class PrefetchWindow:
    """Window of one map. The lock of the runner guards it.

    Parameters
    ----------
    least : int
        Number of calls that are never held back, from the next one on.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._bytes = 0
        # Number of the next call that is submitted, and of the next one whose result is taken.
        self._next = 0
        self._taken = 0
        # Calls that have not ended, by number.
        self._calls: dict[int, MapCall] = {}
        # Number from which on calls are delayed, if any are.
        self._held_from: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether only calls are submitted whose results are taken soon."""
        return self._bytes > WINDOW_BYTES

    def add(self, call: MapCall) -> None:
        """Count the next call, which was submitted."""
        call.number = self._next
        self._next += 1
        self._calls[call.number] = call
        self._count(call.future._bytes, call.arguments.nbytes)
        call.future._bytes = call.arguments.nbytes

    def complete(self, call: MapCall, result_bytes: int) -> None:
        """Count the result of a call instead of its arguments."""
        self._calls.pop(call.number, None)
        self._count(call.future._bytes, result_bytes)
        call.future._bytes = result_bytes

    def take(self, size_bytes: int) -> None:
        """Count the next result as taken by the program."""
        self._count(size_bytes, 0)
        self._taken += 1

    def held(self) -> tuple[list[int], bool] | None:
        """Serial numbers of calls, and whether they must be delayed from now on, or no longer; ``None`` if nothing has changed."""
        before, now = self._held_from, self._taken + self._least if self.is_full else None
        if before == now:
            return None
        self._held_from = now
        if before is None or (now is not None and now < before):
            assert now is not None, "both are None above"
            return self._serials(now, before), True
        return self._serials(before, now), False

    def _serials(self, first: int, end: int | None) -> list[int]:
        """Serial numbers of the first attempts of calls in that range of numbers."""
        calls = (call for number, call in self._calls.items() if first <= number and (end is None or number < end))
        return [call.serial for call in calls if not call.is_repeated]

    def _count(self, before: int, now: int) -> None:
        self._bytes += now - before
