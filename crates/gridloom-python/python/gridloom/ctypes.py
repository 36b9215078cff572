"""Annotations by which fields of messages choose their type in C, and what C's types are in NumPy."""

from __future__ import annotations

import dataclasses
from typing import Annotated, TypeVar

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class CType:
    """In ``Annotated[int, CType("unsigned long")]``: the integer type that the field has in C.

    Parameters
    ----------
    name : str
        C's name. Its size is that of the machine: a receiver whose machine has another one converts.
    """

    name: str


@dataclasses.dataclass(frozen=True)
class Named:
    """In ``Annotated[Circle | Polygon, Named("Shape")]``: the name that a union has in C and Rust.

    Parameters
    ----------
    name : str
        Without it, the names of its classes joined by ``_or_``.
    """

    name: str


class Reference:
    """Marks a pointer that is never null."""


c_char = Annotated[int, CType("char")]
"""A character code, 0 to 255."""
c_short = Annotated[int, CType("short")]
"""An integer of C's type ``short``; so are the others named so."""
c_ushort = Annotated[int, CType("unsigned short")]
c_int = Annotated[int, CType("int")]
c_uint = Annotated[int, CType("unsigned int")]
c_long = Annotated[int, CType("long")]
c_ulong = Annotated[int, CType("unsigned long")]
c_longlong = Annotated[int, CType("long long")]
c_ulonglong = Annotated[int, CType("unsigned long long")]
c_size_t = Annotated[int, CType("size_t")]
Ref = Annotated[_T, Reference()]
"""``Ref[T]``: a reference to an object that others may refer to as well; ``T | None`` is one that may be absent."""

C_CODES = {
    "char": "B", "short": "h", "unsigned short": "H", "int": "i", "unsigned int": "I", "long": "l", "unsigned long": "L",
    "long long": "q", "unsigned long long": "Q", "size_t": "N",
}  # fmt: skip
NUMPY_TYPES = {
    "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float32": "float", "float64": "double",
    "bool": "bool",
}  # fmt: skip
