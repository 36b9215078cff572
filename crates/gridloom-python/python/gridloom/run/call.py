"""A call of any function, while it waits in the program and while it runs on servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _gridloom
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
    # When it was sent last, seconds of the monotonic clock.
    sent: float = 0.0
    # Time limit from when the call is first sent, seconds, and its end.
    limit: float | None = None
    deadline: float | None = None
    # The prefetch window of its map, and its number there.
    window: PrefetchWindow | None = None
    number: int = 0
    # The server that must run it, if one must.
    only: str | None = None
    # When it runs again, how often it has failed, and where.
    retry: Retry | None = None
    failures: int = 0
    failed_on: set[str] = dataclasses.field(default_factory=set)
    # Servers that lack a module that it needs.
    lacking: set[str] = dataclasses.field(default_factory=set)
    # The server that it is bound to, if it is, and how often it was sent.
    bound_to: str | None = None
    attempts: int = 0
    # The call on the grid once it was sent, and the serial number of the first attempt: later attempts may put the same names again.
    pending: _gridloom.RawPending | None = None
    serial: int = -1
    first_serial: int | None = None
