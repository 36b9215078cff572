"""Layouts: the positions of the bytes of an item. Also the registry of datatypes by their codes, which `datatype` fills."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import ERR_TYPE, Exception

Offsets = NDArray[np.int64]
_L = TypeVar("_L", bound="Layout")


class Layout:
    """Layout of an item of a buffer: the part of `Datatype` that buffers need."""

    def __init__(self) -> None:
        #: NumPy type of its parts; ``None`` if they have different types.
        self.base: np.dtype[Any] | None = None
        #: Positions of its bytes in an item, in the order in which they are sent.
        self.offsets: Offsets = np.zeros(0, np.int64)
        self._lb = 0
        self._extent = 0
        #: Whether items are contiguous.
        self.is_contiguous = False
        self.name = "MPI_DATATYPE_NULL"

    @classmethod
    def _made(cls: type[_L], base: np.dtype[Any] | None, offsets: Offsets, lb: int, extent: int, name: str = "") -> _L:
        made = cls()
        made.base, made.offsets, made.name = base, offsets, name
        made._bound(lb, extent)
        return made

    def _bound(self, lb: int, extent: int) -> None:
        count = len(self.offsets)
        self._lb, self._extent = lb, extent
        self.is_contiguous = lb == 0 and extent == count and bool((self.offsets == np.arange(count)).all())

    @classmethod
    def basic(cls: type[_L], name: str, char: Any) -> _L:
        """Create the layout of a predefined datatype."""
        base = np.dtype(char)
        return cls._made(base, np.arange(base.itemsize), 0, base.itemsize, name)

    @property
    def is_null(self) -> bool:
        return self._extent == 0 and len(self.offsets) == 0 and self.base is None

    @property
    def is_predefined(self) -> bool:
        return self.name.startswith("MPI_")

    is_named = is_predefined

    def _checked(self: _L) -> _L:
        if self.is_null:
            raise Exception(ERR_TYPE, "it is DATATYPE_NULL")
        return self

    def Get_size(self) -> int:
        """Return the number of bytes that are sent."""
        return len(self._checked().offsets)

    def Get_extent(self) -> tuple[int, int]:
        """Return the lower bound and the extent, in bytes."""
        self._checked()
        return self._lb, self._extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Return the first byte and the span, in bytes."""
        if len(self.offsets) == 0:
            return 0, 0
        first = int(self.offsets.min())
        return first, int(self.offsets.max()) + 1 - first

    size = property(Get_size)
    extent = property(lambda self: self.Get_extent()[1])
    lb = property(lambda self: self.Get_extent()[0])
    ub = property(lambda self: sum(self.Get_extent()))
    true_lb = property(lambda self: self.Get_true_extent()[0])
    true_extent = property(lambda self: self.Get_true_extent()[1])


#: Datatypes by characters and strings of NumPy and of the buffer protocol.
BY_CODE: dict[str, Any] = {}


def datatype_of(given: Any) -> Any:
    """Find a datatype by its code, or by the format of a buffer."""
    if isinstance(given, Layout):
        return given
    code = given[1:] if given[:1] in "@<=" else given
    if code not in BY_CODE:
        raise KeyError(f"cannot map {given!r} to MPI datatype")
    return BY_CODE[code]
