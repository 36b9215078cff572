"""A call of any function: the parts that are sent, and its state in the program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _gridloom
from ..errors import UsageError
from .future import RunFuture
from .prefetch import PrefetchWindow
from .retry import Retry


@dataclasses.dataclass(eq=False)
class Call:
    """A call: the parts that are sent, the future of the result, and the state."""

    future: RunFuture[Any]
    name: str
    setup: bytes
    function: bytes
    arguments: npt.NDArray[np.uint8]
    # Sees an error before the future does; if it returns none, it completes the future itself.
    failed: Callable[[Call, BaseException], BaseException | None]
    # Time limit over all attempts, from when the call is first sent, seconds; and when it expires, by the session's clock.
    limit: float | None = None
    deadline: float | None = None
    # The prefetch window of its map, and its number there.
    window: PrefetchWindow | None = None
    number: int = 0
    # Orders the waiting calls of this user at a server; the default of the session if None.
    priority: int | None = None
    # The server that runs it, if it is fixed.
    only: str | None = None
    # When it runs again, how often it has failed, and where.
    retry: Retry | None = None
    failures: int = 0
    failed_on: set[str] = dataclasses.field(default_factory=set)
    # Servers that lack a module that it needs.
    lacking: set[str] = dataclasses.field(default_factory=set)
    # The last attempt, its serial number, and that of the first one: later attempts may put the same names again.
    pending: _gridloom.RawPending | None = None
    serial: int = -1
    first_serial: int | None = None
    # The error of the future if the call is cancelled before it is sent.
    failure: BaseException | None = None

    @property
    def is_repeated(self) -> bool:
        """Whether this is not the first attempt."""
        return self.serial != self.first_serial

    def is_sent(self) -> bool:
        """Whether it was sent to a server."""
        try:
            return self.pending is not None and self.pending.sent_at() is not None
        except UsageError:  # the session is closed
            return True

    def cancel_unsent(self) -> bool:
        """Cancel it if it was not sent to a server; whether it is cancelled."""
        return self.pending is not None and _quietly(self.pending.cancel_unsent)

    def stop(self) -> None:
        """Cancel it, also where it runs."""
        if self.pending is not None:
            _quietly(self.pending.cancel)


def _quietly(cancel: Callable[[], bool | None]) -> bool:
    try:
        return bool(cancel())
    except UsageError:  # its result was taken, or the session is closed
        return False
