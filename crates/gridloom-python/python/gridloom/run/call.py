"""A call of any function, as it waits in the program and runs on servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _gridloom
from ._run_future import RunFuture

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._lead import Lead
    from ._retry import Retry


@dataclasses.dataclass(eq=False)
class Call:
    """What is sent, and what tells its end."""

    future: RunFuture[Any]
    name: str
    setup: bytes
    function: bytes
    arguments: npt.NDArray[np.uint8]
    # Looks at an error before the future has it; without one, it gives the future its end itself.
    failed: Callable[[Call, BaseException], BaseException | None]
    sent: float = 0.0
    # How long it may take from when it is first sent, seconds, and until when that is.
    limit: float | None = None
    deadline: float | None = None
    # The map that it is of, and its number there.
    lead: Lead | None = None
    number: int = 0
    # The server that has to run it, if one has to.
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
    # The call of the grid, once it was sent, and the serial of the first of them: those after it may put again what it has put.
    pending: _gridloom.RawPending | None = None
    serial: int = -1
    first_serial: int | None = None
