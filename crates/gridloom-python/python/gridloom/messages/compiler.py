"""Message classes as C declarations, and for each field how Python's value is put there (``src/message/shape.rs``)."""

from __future__ import annotations

import dataclasses
import enum
import keyword
import re
import sys
import types
import typing
from typing import Annotated, Any, Callable

import numpy as np

from .. import _gridloom
from ..common.type_aliases import resolved
from ..ctypes import C_CODES, NUMPY_TYPES, CType, Named, Reference
from ..errors import InputError
from ..functions.declare import Array

ATTRIBUTE = "__gridloom_message__"
#: Message classes by module and name, for annotations that name them before they exist.
by_module: dict[str, dict[str, type]] = {}

_PLAIN: dict[Any, str] = {int: "int64_t", float: "double", bool: "bool"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclasses.dataclass
class Info:
    """A class as a type of message."""

    name: str
    compiled: _gridloom.RawMessageType | None = None
    packed: bool = False

    def __getstate__(self) -> dict[str, Any]:
        # Each process makes its own layout.
        return {**vars(self), "compiled": None}


@dataclasses.dataclass(frozen=True)
class _C:
    """A type of C: a word, an array of `count`, or a pointer."""

    word: str = ""
    of: _C | None = None
    count: int | None = None

    def declare(self, name: str) -> str:
        if self.of is None:
            return f"{self.word} {name}"
        if self.count is not None:
            return self.of.declare(f"{name}[{self.count}]")
        return self.of.declare(f"(*{name})" if self.of.count is not None else f"*{name}")


_Spec = tuple[Any, ...]


@dataclasses.dataclass
class _Field:
    """A field in C, and how Python's value is put there."""

    c: _C
    spec: _Spec
    length: str = ""
    #: Sizes that stand before it, and those that stand first in the struct.
    before: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


class Compiler:
    """C declarations of a class and of all that it is made of."""

    def __init__(self, root: type) -> None:
        self.root = root
        self.texts: list[str] = []
        self.forward: list[str] = []
        self.shapes: list[tuple[Any, ...]] = []
        self.known: dict[str, Any] = {}
        self.open: list[type] = []
        self.later: list[Callable[[], object]] = []

    def compile(self) -> _gridloom.RawMessageType:
        self.struct(self.root, "")
        while self.later:
            self.later.pop(0)()
        name = info_of(self.root, "").name
        try:
            return _gridloom.RawMessageType(name, "\n".join(self.texts), self.shapes)
        except InputError as error:
            raise InputError(f"message '{name}': {error}") from None

    def struct(self, cls: type, where: str) -> str:
        """Declare a class that stands inside another by value."""
        info = info_of(cls, where)
        if cls in self.open:
            raise InputError(f"{where}: it contains itself; write '{cls.__name__} | None' for a reference")
        if not self.claim(info.name, cls, where):
            return info.name
        self.open.append(cls)
        hints = hints_of(cls)
        fields = dataclasses.fields(cls)
        names = {field.name for field in fields}
        made = [
            (
                field.name,
                self.field(hints[field.name], field.name, hints, names, f"message '{info.name}': field '{field.name}'"),
            )
            for field in fields
        ]
        lines = [f"size_t {size};" for size in dict.fromkeys(size for _, field in made for size in field.first)]
        for name, field in made:
            lines += [f"size_t {size};" for size in field.before]
            length = f" GRIDLOOM_LENGTH({field.length})" if field.length else ""
            lines.append(f"{field.c.declare(name)}{length};")
        packed = "GRIDLOOM_PACKED " if info.packed else ""
        self.texts.append(f"struct {packed}{info.name} {{ {' '.join(lines or ['uint8_t unused;'])} }};")
        self.shapes.append(("struct", info.name, cls, [(name, field.spec) for name, field in made]))
        self.open.pop()
        return info.name

    def claim(self, name: str, what: Any, where: str) -> bool:
        """Whether something is met for the first time."""
        known = self.known.setdefault(name, what)
        if known is not what and known != what:
            raise InputError(
                f"{where}: {what!r} and {known!r} have one name, '{name}', in C; rename one with message(name=...)"
            )
        if name in [shape[1] for shape in self.shapes] or (isinstance(what, type) and what in self.open):
            return False
        return True

    def target(self, cls: type, where: str) -> str:
        """Declare a class that pointers lead to; when, does not matter."""
        self.later.append(lambda: self.struct(cls, where))
        return info_of(cls, where).name

    def field(self, annotation: Any, name: str, hints: dict[str, Any], names: set[str], where: str) -> _Field:
        """Declare a field of a struct."""
        if not NAME.match(name) or keyword.iskeyword(name):
            raise InputError(f"{where}: the name of a field is one of C: letters, digits and _")
        if annotation is bytes:
            return _Field(_C(of=_C("uint8_t")), ("bytes",), f"{name}_length", (f"{name}_length",))
        if typing.get_origin(annotation) is list:
            (element,) = typing.get_args(annotation)
            made = self.value(element, where, behind=True)
            return _Field(_C(of=made.c), ("list", made.spec), f"{name}_length", (f"{name}_length",))
        form = _array_form(annotation)
        if form is not None:
            return self.array(form, hints, names, where)
        return self.value(annotation, where)

    def array(self, form: Any, hints: dict[str, Any], names: set[str], where: str) -> _Field:
        """Declare an array: inside the struct if its shape is fixed, else behind a pointer."""
        if form.order == "F":
            raise InputError(f"{where}: arrays of messages are row-major; leave F out")
        c, dtype = self.element(form.element, where)
        if form.extents and all(extent.isdecimal() for extent in form.extents):
            for extent in reversed(form.extents):
                if int(extent) == 0:
                    raise InputError(f"{where}: a fixed extent is at least 1")
                c = _C(of=c, count=int(extent))
            return _Field(c, ("array", dtype, [int(extent) for extent in form.extents]))
        if not form.extents:
            raise InputError(f'{where}: an array has at least one extent; write Array[dtype, "n"], or a scalar type')
        first = []
        for extent in form.extents:
            if NAME.match(extent) and extent not in names:
                first.append(extent)
            elif extent in names and not _is_integer(hints[extent]):
                raise InputError(f"{where}: its extent '{extent}' is a field that is no integer")
        simple = [extent if NAME.match(extent) or extent.isdecimal() else f"({extent})" for extent in form.extents]
        extents = [int(extent) if extent.isdecimal() else (extent, extent in first) for extent in form.extents]
        return _Field(_C(of=c), ("array", dtype, extents), " * ".join(simple), (), tuple(first))

    def element(self, element: Any, where: str) -> tuple[_C, np.dtype[Any]]:
        """An element of an array, in C and in NumPy."""
        if isinstance(element, np.dtype) and element.names:
            raise InputError(
                f'{where}: a structured type has no name; make a class of it: Row = message(dtype, name="Row")'
            )
        if _is_dataclass(element):
            return _C(f"struct {self.struct(element, where)}"), self.dtype(element, where)
        marked = _c_type(element)
        if marked is not None:
            return _C(marked), np.dtype(C_CODES[marked])
        if typing.get_origin(element) is Annotated and typing.get_args(element)[0] is bytes:
            count = typing.get_args(element)[1]
            return _C(of=_C("char"), count=count), np.dtype(f"S{count}")
        found = np.dtype(element).newbyteorder("=")
        if found.kind == "c" and found.itemsize in (8, 16):
            return _C(of=_C("float" if found.itemsize == 8 else "double"), count=2), found
        if found.name not in NUMPY_TYPES:
            raise InputError(f"{where}: elements of type {found} have no counterpart in C")
        return _C(NUMPY_TYPES[found.name]), found

    def value(self, annotation: Any, where: str, behind: bool = False) -> _Field:
        """Declare what needs no length: a field, an element of a list, what a pointer leads to."""
        annotation = resolved(annotation)
        if annotation in _PLAIN:
            return _Field(_C(_PLAIN[annotation]), ("plain",))
        if annotation is complex:
            return _Field(_C(of=_C("double"), count=2), ("complex",))
        if annotation is str:
            return _Field(_C(of=_C("char")), ("text", False))
        if isinstance(annotation, type) and issubclass(annotation, np.generic):
            c, dtype = self.element(annotation, where)
            return _Field(c, ("complex" if dtype.kind == "c" else "plain", annotation))
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return self.enum(annotation, where)
        if _is_dataclass(annotation):
            name = (self.target if behind else self.struct)(annotation, where)
            return _Field(_C(f"struct {name}"), ("struct", name))
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            return self.annotated(arguments[0], arguments[1:], annotation, where, behind)
        if origin in (typing.Union, types.UnionType):
            return self.either(arguments, None, where, behind)
        if origin is tuple:
            if len(set(arguments)) != 1 or Ellipsis in arguments:
                raise InputError(
                    f"{where}: a tuple has so many elements of one type, as tuple[float, float]; use a dataclass"
                )
            made = self.value(arguments[0], where, behind)
            return _Field(_C(of=made.c, count=len(arguments)), ("tuple", made.spec))
        form = _array_form(annotation)
        if form is not None and all(extent.isdecimal() for extent in form.extents):
            return self.array(form, {}, set(), where)
        remedy = ""
        if annotation is bytes or origin is list or form is not None:
            remedy = "; it has a length, so make it a field of a dataclass of its own"
        elif isinstance(annotation, type) and issubclass(annotation, np.ndarray) or origin is np.ndarray:
            remedy = "; write gridloom.Array[dtype, *extents], or Annotated[numpy.ndarray, Array[...]]"
        elif annotation in (list, tuple, typing.List, typing.Tuple):
            remedy = "; say of what it is a list, as list[int]"
        elif annotation is dict or origin is dict:
            remedy = "; use a list of dataclasses"
        raise InputError(f"{where}: {_show(annotation)} has no counterpart in C{remedy}")

    def annotated(self, inner: Any, extras: tuple[Any, ...], annotation: Any, where: str, behind: bool) -> _Field:
        for extra in extras:
            if isinstance(extra, CType):
                if extra.name not in C_CODES:
                    raise InputError(f"{where}: CType({extra.name!r}) is none of {', '.join(C_CODES)}")
                return _Field(_C(extra.name), ("plain",))
            if isinstance(extra, type) and issubclass(extra, np.generic) and inner in (int, float, bool):
                return _Field(self.element(extra, where)[0], ("plain",))
            if isinstance(extra, Reference):
                return self.pointer(inner, False, where)
            if isinstance(extra, Named):
                return self.either(typing.get_args(inner), extra.name, where, behind)
            if isinstance(extra, int) and inner is bytes:
                return _Field(_C(of=_C("char"), count=extra), ("characters",))
        form = _array_form(annotation)
        if form is not None:
            if all(extent.isdecimal() for extent in form.extents):
                return self.array(form, {}, set(), where)
            raise InputError(f"{where}: {form!r} has a length, so make it a field of a dataclass of its own")
        return self.value(inner, where, behind)

    def either(self, arguments: tuple[Any, ...], name: str | None, where: str, behind: bool) -> _Field:
        """A union of classes, or something that may be absent."""
        classes = [resolved(argument) for argument in arguments if argument is not type(None)]
        if len(classes) < len(arguments):
            if len(classes) == 1:
                return self.pointer(classes[0], True, where)
            union = self.union(classes, name, where, True)
            return _Field(_C(of=_C(f"struct {union}")), ("pointer", True, ("union", union)))
        union = self.union(classes, name, where, behind)
        return _Field(_C(f"struct {union}"), ("union", union))

    def pointer(self, annotation: Any, optional: bool, where: str) -> _Field:
        annotation = resolved(annotation)
        if annotation is str:
            return _Field(_C(of=_C("char")), ("text", optional))
        made = self.value(annotation, where, behind=True)
        if made.c.word == "char":
            raise InputError(f"{where}: a reference to one char looks like a string in C; use int")
        return _Field(_C(of=made.c), ("pointer", optional, made.spec))

    def union(self, classes: list[Any], name: str | None, where: str, behind: bool) -> str:
        for cls in classes:
            if not _is_dataclass(cls):
                raise InputError(f"{where}: a union is of dataclasses (and None), got {_show(cls)}")
        names = [info_of(cls, where).name for cls in classes]
        name = name or "_or_".join(names)

        def declare() -> None:
            if not self.claim(name, tuple(classes), where):
                return
            cases, inner, shape = [], [], []
            for tag, (cls, own) in enumerate(zip(classes, names)):
                has_body = bool(dataclasses.fields(cls))
                shape.append((cls, tag, own if has_body else None))
                if has_body:
                    self.struct(cls, where)
                    inner.append(f"struct {name}_{own} {{ struct {own} value0; }};")
                    cases.append(f"struct {name}_{own} {own} GRIDLOOM_CASE({name}_{own}_tag);")
            if not cases:
                raise InputError(f"{where}: none of {', '.join(names)} has a field; use an enum")
            tags = ", ".join(f"{name}_{own}_tag = {tag}" for tag, own in enumerate(names))
            self.texts += [f"enum {name}_tag {{ {tags} }};", *inner, f"union {name}_body {{ {' '.join(cases)} }};"]
            self.texts.append(f"struct {name} {{ enum {name}_tag tag; union {name}_body body GRIDLOOM_TAG(tag); }};")
            self.shapes.append(("union", name, shape))

        if behind:
            self.later.append(declare)
        else:
            declare()
        return name

    def enum(self, cls: type[enum.Enum], where: str) -> _Field:
        if issubclass(cls, enum.Flag):
            raise InputError(f"{where}: combinations of the flags of {cls.__name__} are not constants; use int")
        members = list(cls)
        values = [member.value for member in members]
        if not all(isinstance(value, int) for value in values):
            values = list(range(len(members)))
        if not members:
            raise InputError(f"{where}: {cls.__name__} has no member")
        name = cls.__name__
        if self.known.setdefault(name, cls) is not cls:
            raise InputError(f"{where}: {cls!r} and {self.known[name]!r} have one name, '{name}', in C; rename one")
        constants = ", ".join(f"{name}_{member.name} = {value}" for member, value in zip(members, values))
        text = f"enum {name} {{ {constants} }};"
        if text not in self.texts:
            self.texts.append(text)
        return _Field(_C(f"enum {name}"), ("enum", cls, list(zip(values, members))))

    def dtype(self, cls: type, where: str = "") -> np.dtype[Any]:
        """NumPy's type of a class without pointers."""
        info = info_of(cls, where)
        parts: list[Any] = []
        hints = hints_of(cls)
        for field in dataclasses.fields(cls):
            at = f"message '{info.name}': field '{field.name}'"
            annotation = hints[field.name]
            form = _array_form(annotation)
            marked = _c_type(annotation)
            if form is not None and all(extent.isdecimal() for extent in form.extents):
                base = (
                    self.dtype(form.element, at) if _is_dataclass(form.element) else self.element(form.element, at)[1]
                )
                parts.append((field.name, base, tuple(int(extent) for extent in form.extents)))
            elif _is_dataclass(annotation):
                parts.append((field.name, self.dtype(annotation, at)))
            elif marked is not None:
                parts.append((field.name, np.dtype(C_CODES[marked])))
            elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
                parts.append((field.name, np.dtype("i")))
            elif (
                annotation in (int, float, bool, complex)
                or isinstance(annotation, type)
                and issubclass(annotation, np.generic)
            ):
                parts.append((field.name, np.dtype(annotation)))
            elif typing.get_origin(annotation) is Annotated and len(typing.get_args(annotation)) == 2:
                inner, extra = typing.get_args(annotation)
                if inner is bytes and isinstance(extra, int):
                    parts.append((field.name, np.dtype(f"S{extra}")))
                elif isinstance(extra, type) and issubclass(extra, np.generic):
                    parts.append((field.name, np.dtype(extra)))
                else:
                    raise InputError(f"{at}: {_show(annotation)} has no place in an array; use list[{cls.__name__}]")
            else:
                raise InputError(f"{at}: {_show(annotation)} has no place in an array; use list[{cls.__name__}]")
        if not parts:
            raise InputError(f"message '{info.name}': an array of a class without fields is its length")
        return np.dtype(parts, align=not info.packed)


def info_of(cls: type, where: str) -> Info:
    info = cls.__dict__.get(ATTRIBUTE)
    if isinstance(info, Info):
        return info
    # A plain dataclass is a part of messages, and none itself.
    name = cls.__name__
    if not NAME.match(name):
        raise InputError(f"{where}: the name of {cls!r} is none of C: letters, digits and _")
    return Info(name)


def hints_of(cls: type) -> dict[str, Any]:
    """Annotations by field. Names are looked up in the class's module, then among message classes made in its functions."""
    known = {**by_module.get(cls.__module__, {}), **vars(sys.modules.get(cls.__module__, types)), cls.__name__: cls}
    hints = typing.get_type_hints(cls, localns=known, include_extras=True)
    return {name: resolved(annotation) for name, annotation in hints.items()}


def _is_dataclass(annotation: Any) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _array_form(annotation: Any) -> Any:
    if typing.get_origin(annotation) is Annotated:
        forms = [extra for extra in annotation.__metadata__ if isinstance(extra, type) and issubclass(extra, Array)]
        return forms[0] if forms else None
    return (
        annotation
        if isinstance(annotation, type) and issubclass(annotation, Array) and annotation is not Array
        else None
    )


def _c_type(annotation: Any) -> str | None:
    if typing.get_origin(annotation) is not Annotated:
        return None
    return next((extra.name for extra in annotation.__metadata__ if isinstance(extra, CType)), None)


def _is_integer(annotation: Any) -> bool:
    if typing.get_origin(annotation) is Annotated:
        inner, extra = typing.get_args(annotation)[:2]
        return isinstance(extra, CType) or inner is int and isinstance(extra, type) and issubclass(extra, np.integer)
    return annotation is int or isinstance(annotation, type) and issubclass(annotation, np.integer)


def _show(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)
