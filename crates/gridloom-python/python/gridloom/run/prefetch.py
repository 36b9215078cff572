"""How far the calls of a map run ahead of the results that the program takes.

**Invariants.** The bytes of arguments that wait and of results that are here stay below `LEAD_BYTES`, but for the calls next to be
taken, as many as `least`, and those that were under way when it was passed. So the call that the program waits for is never held back.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._call import Call

LEAD_BYTES = 256 << 20


class Lead:
    """Of one map. The lock of the runner guards it."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._bytes = 0
        # Numbers of the next call that is submitted, and of the next one of which the result is taken.
        self._next = 0
        self._taken = 0
        self._held_back: collections.deque[Call] = collections.deque()

    @property
    def is_full(self) -> bool:
        """Whether only calls are to be submitted that are soon taken."""
        return self._bytes > LEAD_BYTES

    def add(self, call: Call) -> None:
        """A call was submitted, the next one."""
        call.number = self._next
        self._next += 1
        self._count(call.future._bytes, call.arguments.nbytes)
        call.future._bytes = call.arguments.nbytes

    def end(self, call: Call, result_bytes: int) -> None:
        """It has ended, and its result is here."""
        self._count(call.future._bytes, result_bytes)
        call.future._bytes = result_bytes

    def take(self, size_bytes: int) -> None:
        """The program has taken the next result."""
        self._count(size_bytes, 0)
        self._taken += 1

    def holds(self, call: Call) -> bool:
        """Whether a call must not be sent yet."""
        return self.is_full and call.attempts == 0 and call.number >= self._taken + self._least

    def hold_back(self, call: Call) -> None:
        """Keep it until `freed` gives it."""
        self._held_back.append(call)

    def freed(self) -> list[Call]:
        """Calls that were held back and may be sent now, in order."""
        freed = []
        while self._held_back and not self.holds(self._held_back[0]):
            freed.append(self._held_back.popleft())
        return freed

    def _count(self, before: int, now: int) -> None:
        self._bytes += now - before
