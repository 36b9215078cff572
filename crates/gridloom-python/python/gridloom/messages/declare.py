"""Message types of processes, declared by dataclasses and NumPy's structured types.

A class is turned into the C declarations that a C program would have (`message_declaration`), from which the layout of its
messages follows; the same declarations come of the corresponding Rust type. What corresponds to what is in
``docs/processes.md``.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import typing
from typing import TYPE_CHECKING, Annotated, Any, Callable, TypeVar

import numpy as np

from .. import _gridloom
from ..ctypes import NUMPY_TYPES
from ..errors import InputError
from ..functions.declare import Array
from .compiler import ATTRIBUTE, NAME, Compiler, Info, by_module

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda function: function


_Class = TypeVar("_Class", bound=type)


@typing.overload
def message(cls: np.dtype[Any], /, *, name: str) -> type[Any]: ...


@typing.overload
@dataclass_transform()
def message(cls: _Class, /, *, name: str | None = None) -> _Class: ...


@typing.overload
@dataclass_transform()
def message(cls: None = None, /, *, name: str | None = None) -> Callable[[_Class], _Class]: ...


def message(cls: Any = None, /, *, name: str | None = None) -> Any:
    """Make a class the type of a message: a dataclass whose objects processes send.

    Parameters
    ----------
    cls : type or numpy.dtype
        A class with annotated fields, made a dataclass unless it is one; or a structured element type, of which a class
        is made.
    name : str, optional
        The type's name for receivers, by default that of the class.

    Returns
    -------
    type
        The class.

    Raises
    ------
    InputError
        If an annotation has no counterpart in C; the message says which and what to write instead. Where annotations
        name classes that do not exist yet, this comes when the first message is sent or waited for.

    Notes
    -----
    Fields are ``int`` (int64), ``float``, ``bool``, ``complex``, ``str``, ``bytes``, NumPy's scalar types, ``gl.c_int`` and
    the like, enums, `Array`, ``list[...]``, ``tuple[T, T, ...]``, other dataclasses (part of the message), ``T | None`` and
    `Ref` (references, kept as such: what was one object is one object at the receiver, in cycles too), and unions of
    dataclasses. A received object is made without its ``__init__``; arrays in it show the message's memory, and can be
    written.

    Examples
    --------
    >>> @message
    ... class Block:
    ...     row: int
    ...     data: Array["float64", "m", "n"]
    >>> print(message_declaration(Block), end="")
    struct Block {
        size_t m;
        size_t n;
        int64_t row;
        double *data GRIDLOOM_LENGTH(m*n);
    };
    """
    if isinstance(cls, np.dtype):
        if name is None:
            raise InputError("message: a structured type has no name; give one: message(dtype, name=...)")
        return _from_dtype(cls, name, sys._getframe(1).f_globals.get("__name__", ""))

    def mark(cls: Any) -> Any:
        if not isinstance(cls, type):
            raise InputError(f"gridloom.message marks classes and structured types, got {cls!r}")
        if issubclass(cls, enum.Enum):
            raise InputError(f"{cls!r} is part of messages as it is; put @gridloom.message before dataclasses only")
        if "__dataclass_fields__" not in cls.__dict__:
            own_eq = "__eq__" in cls.__dict__
            cls = dataclasses.dataclass(eq=False)(cls)
            if not own_eq:
                cls.__eq__ = _equal
                cls.__hash__ = None
        return _register(cls, name or cls.__name__)

    return mark if cls is None else mark(cls)


def message_declaration(cls: type) -> str:
    """Show a message type as C programs declare it.

    Parameters
    ----------
    cls : type
        A class made by `message`.

    Returns
    -------
    str
        C declarations, with the annotations of ``gridloom_layout.h``.
    """
    return type_of(cls).declaration


def message_dtype(cls: type) -> np.dtype[Any]:
    """Return the structured element type of a message class without pointers, as an array of it has it on this machine.

    Parameters
    ----------
    cls : type
        A class made by `message`, of numbers, arrays of fixed shape and other such classes.

    Returns
    -------
    numpy.dtype
        With the offsets of C on this machine.

    Raises
    ------
    InputError
        If a field is none of these.
    """
    return Compiler(cls).dtype(cls)


def type_of(cls: type) -> _gridloom.RawMessageType:
    """Compile a message class, once."""
    info = cls.__dict__.get(ATTRIBUTE) if isinstance(cls, type) else None
    if not isinstance(info, Info):
        raise InputError(f"{cls!r} is no message type; put @gridloom.message before its class")
    try:
        return _compiled(cls, info)
    except NameError as error:
        raise InputError(f"message '{info.name}': an annotation cannot be understood: {error}") from None


def _compiled(cls: type, info: Info) -> _gridloom.RawMessageType:
    if info.compiled is None:
        info.compiled = Compiler(cls).compile()
    return info.compiled


def _register(cls: type, name: str) -> type:
    if not NAME.match(name):
        raise InputError(f"message {name!r}: the name of a message is one of C: letters, digits and _")
    info = Info(name)
    setattr(cls, ATTRIBUTE, info)
    by_module.setdefault(cls.__module__, {})[cls.__name__] = cls
    try:
        _compiled(cls, info)
    except NameError:
        # A class that an annotation names is defined later.
        pass
    return cls


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    for field in dataclasses.fields(self):
        one, two = getattr(self, field.name), getattr(other, field.name)
        if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
            if not np.array_equal(one, two):
                return False
        elif one is not two and one != two:
            return False
    return True


def _from_dtype(dtype: np.dtype[Any], name: str, module: str) -> type:
    if dtype.names is None or dtype.fields is None:
        raise InputError(f"message '{name}': expected a structured type, got {dtype}")
    fields: list[tuple[str, Any]] = []
    for field in dtype.names:
        inner = dtype.fields[field][0]
        base, shape = inner.subdtype or (inner, ())
        where = f"message '{name}': field '{field}'"
        element: Any = _from_dtype(base, f"{name}_{field}", module) if base.names else _native(base, where)
        fields.append((field, Array.__class_getitem__((element, *shape)) if shape else element))
    cls = dataclasses.make_dataclass(name, fields, eq=False)
    cls.__module__ = module
    cls.__eq__ = _equal  # type: ignore[assignment, method-assign]
    cls.__hash__ = None  # type: ignore[assignment]
    setattr(cls, ATTRIBUTE, Info(name))
    compiler = Compiler(cls)
    plain = dtype.newbyteorder("=")
    if compiler.dtype(cls) != plain:
        getattr(cls, ATTRIBUTE).packed = True
        if compiler.dtype(cls) != plain:
            raise InputError(
                f"message '{name}': {dtype} is laid out as no struct of C, with or without padding; "
                "use numpy.dtype(..., align=True)"
            )
    type_of(cls)
    return cls


def _native(base: np.dtype[Any], where: str) -> Any:
    if base.newbyteorder("=").type is np.bytes_ and base.itemsize > 0:
        return Annotated[bytes, base.itemsize]
    if base.name not in NUMPY_TYPES and base.name not in ("complex64", "complex128"):
        raise InputError(f"{where}: {base} has no counterpart in C")
    return base.type
