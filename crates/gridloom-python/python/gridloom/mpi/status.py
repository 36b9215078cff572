"""The status of a received message."""

from __future__ import annotations

from typing import Any

from .constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from .datatype import BY_NAME, Datatype
from .errors import SUCCESS


class Status:
    """Source, tag and length of a message."""

    def __init__(self, status: Status | None = None) -> None:
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.error = SUCCESS
        #: Length, bytes.
        self.size = 0
        self.cancelled = False
        if status is not None:
            self.take(status)

    def take(self, other: Status) -> None:
        """Copy the fields of another status."""
        self.__dict__.update(other.__dict__)

    def Get_source(self) -> int:
        """Return the sender's rank."""
        return self.source

    def Set_source(self, source: int) -> None:
        """Change the sender's rank."""
        self.source = source

    def Get_tag(self) -> int:
        """Return the tag."""
        return self.tag

    def Set_tag(self, tag: int) -> None:
        """Change the tag."""
        self.tag = tag

    def Get_error(self) -> int:
        """Return the error code."""
        return self.error

    def Set_error(self, error: int) -> None:
        """Change the error code."""
        self.error = error

    def Get_count(self, datatype: Datatype = BY_NAME["BYTE"]) -> int:
        """Return the number of items; UNDEFINED if it is not an integer."""
        size = datatype.Get_size()
        if size == 0:
            return 0 if self.size == 0 else UNDEFINED
        return UNDEFINED if self.size % size else self.size // size

    def Get_elements(self, datatype: Datatype) -> int:
        """Return the number of basic items."""
        base = datatype.base.itemsize if datatype.base is not None else 1
        return self.size // base

    def Set_elements(self, datatype: Datatype, count: int) -> None:
        """Change the number of items."""
        self.size = count * datatype.Get_size()

    def Is_cancelled(self) -> bool:
        """Whether the request was cancelled."""
        return self.cancelled

    def Set_cancelled(self, flag: bool) -> None:
        """Change whether the request was cancelled."""
        self.cancelled = bool(flag)

    count = property(Get_count)

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, Status) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return _made, (dict(self.__dict__),)


def _made(fields: dict[str, Any]) -> Status:
    status = Status()
    status.__dict__.update(fields)
    return status
