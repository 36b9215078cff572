"""Prefetch window of a map: how far its calls run ahead of the results that the program takes.

**Invariants.** The bytes of arguments that wait and of results that are here stay below `WINDOW_BYTES`, except for the next `least` calls
to be taken and for calls that were running when the limit was passed. So the call that the program waits for is never delayed.
"""

from __future__ import annotations

import collections
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

WINDOW_BYTES = 256 << 20


class MapCall(Protocol):
    """A call of a map: a `Call`."""

    number: int
    attempts: int
    arguments: npt.NDArray[np.uint8]

    @property
    def future(self) -> Any: ...


class PrefetchWindow:
    """Window of one map. The lock of the runner guards it.

    Parameters
    ----------
    least : int
        Number of calls that are never delayed, from the next one on.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._bytes = 0
        # Number of the next call that is submitted, and of the next one whose result is taken.
        self._next = 0
        self._taken = 0
        self._delayed: collections.deque[MapCall] = collections.deque()

    @property
    def is_full(self) -> bool:
        """Whether only calls are submitted whose results are taken soon."""
        return self._bytes > WINDOW_BYTES

    def add(self, call: MapCall) -> None:
        """Count the next call, which was submitted."""
        call.number = self._next
        self._next += 1
        self._count(call.future._bytes, call.arguments.nbytes)
        call.future._bytes = call.arguments.nbytes

    def complete(self, call: MapCall, result_bytes: int) -> None:
        """Count the result of a call instead of its arguments."""
        self._count(call.future._bytes, result_bytes)
        call.future._bytes = result_bytes

    def take(self, size_bytes: int) -> None:
        """Count the next result as taken by the program."""
        self._count(size_bytes, 0)
        self._taken += 1

    def delays(self, call: MapCall) -> bool:
        """Whether a call must not be sent yet."""
        return self.is_full and call.attempts == 0 and call.number >= self._taken + self._least

    def delay(self, call: MapCall) -> None:
        """Keep a call until `released` returns it."""
        self._delayed.append(call)

    def released(self) -> list[MapCall]:
        """Remove the delayed calls that may be sent now; they are returned in order."""
        released = []
        while self._delayed and not self.delays(self._delayed[0]):
            released.append(self._delayed.popleft())
        return released

    def _count(self, before: int, now: int) -> None:
        self._bytes += now - before
