"""Annotations that specify the C type of a message field, and the C types of NumPy's types."""

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
        The type's name in C. Its size depends on the machine: a receiver on a machine with another size converts the value.
    """

    name: str


@dataclasses.dataclass(frozen=True)
class Named:
    """In ``Annotated[Circle | Polygon, Named("Shape")]``: the name that a union has in C and Rust.

    Parameters
    ----------
    name : str
        The name. A union without this annotation is named by its classes, joined by ``_or_``.
    """

    name: str


class Reference:
    """Marks a pointer that is never null."""


c_char = Annotated[int, CType("char")]
"""A character code, 0 to 255."""
c_short = Annotated[int, CType("short")]
"""An integer of C's type ``short``. The following annotations do the same for the other integer types."""
c_ushort = Annotated[int, CType("unsigned short")]
c_int = Annotated[int, CType("int")]
c_uint = Annotated[int, CType("unsigned int")]
c_long = Annotated[int, CType("long")]
c_ulong = Annotated[int, CType("unsigned long")]
c_longlong = Annotated[int, CType("long long")]
c_ulonglong = Annotated[int, CType("unsigned long long")]
c_size_t = Annotated[int, CType("size_t")]
Ref = Annotated[_T, Reference()]
"""``Ref[T]``: a reference to an object, to which other fields may refer, too. ``T | None`` is a reference that may be null."""

C_CODES = {
    "char": "B", "short": "h", "unsigned short": "H", "int": "i", "unsigned int": "I", "long": "l", "unsigned long": "L",
    "long long": "q", "unsigned long long": "Q", "size_t": "N",
}  # fmt: skip
NUMPY_TYPES = {
    "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float32": "float", "float64": "double",
    "bool": "bool",
}  # fmt: skip
