"""After which errors a call runs again."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from ..common.checks import whole
from ..errors import (
    Cancelled,
    CannotRun,
    ConnectError,
    Crashed,
    DataLost,
    NotPermitted,
    NotRun,
    OutOfMemory,
    RemoteError,
    ServerLost,
    SignatureError,
    TaskError,
    TimedOut,
    UsageError,
)
from ..pickling.protocol import class_names

RetryOn: TypeAlias = "type[BaseException] | tuple[type[BaseException], ...]"

# Errors that a further run would not change, or after which calls run again anyway.
_NOT_REPEATED = (Cancelled, CannotRun, DataLost, NotPermitted, NotRun, OutOfMemory, ServerLost, SignatureError, TimedOut)
_RETRIES_MAX = 1000


@dataclasses.dataclass(frozen=True)
class Retry:
    """How often a call runs again, and after which errors."""

    times: int
    classes: tuple[type[BaseException], ...]

    @property
    def crashes(self) -> bool:
        """Whether it does after a crash of its worker process."""
        return issubclass(Crashed, self.classes)

    @property
    def raised(self) -> list[str] | None:
        """Names of the classes of exceptions after which it does; ``None`` for all."""
        if issubclass(RemoteError, self.classes):
            return None
        names: set[str] = set()
        left = [one for one in self.classes if not issubclass(one, TaskError)]
        while left:
            one = left.pop()
            names.add(one.__name__)
            left.extend(one.__subclasses__())
        return sorted(names)

    def covers(self, error: BaseException) -> bool:
        """Whether a call runs again after that error, which any function of a program raised."""
        if isinstance(error, _NOT_REPEATED) or (isinstance(error, ConnectError) and error.peer == "agent"):
            return False
        if isinstance(error, self.classes) or not isinstance(error, RemoteError):
            return isinstance(error, self.classes)
        # The exception itself could not be unpickled here.
        names = class_names(*self.classes) if error._classes else self.raised or []
        return not {*(error._classes or (error.kind,))}.isdisjoint(names)


def retry_of(what: str, retries: int, retry_on: Any) -> Retry | None:
    """Check the options of a program; ``None`` if its calls run once."""
    times = whole(f"{what}: retries", retries, 0, _RETRIES_MAX)
    if times == 0:
        if retry_on is not None:
            raise UsageError(f"{what}: retry_on names the errors; give retries=, the number of retries, too")
        return None
    if retry_on is None:
        return Retry(times, (Exception,))
    classes = tuple(retry_on) if isinstance(retry_on, (tuple, list, set, frozenset)) else (retry_on,)
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, BaseException):
            raise UsageError(f"{what}: retry_on is an exception class or several, got {one!r}")
        if issubclass(one, _NOT_REPEATED):
            raise UsageError(f"{what}: no call runs again after {one.__name__}, as it would fail again, or does so by itself")
    if not classes:
        raise UsageError(f"{what}: retry_on names no exception class")
    return Retry(times, classes)
