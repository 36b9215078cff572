"""Python functions that servers offer: their signatures, from annotations."""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, TypeAlias, TypeVar

import numpy as np

from .. import _gridloom
from ..common.checks import surrogate
from ..common.encodable import encodable
from ..common.type_aliases import resolved
from ..errors import InputError
from ..pickling.protocol import SIGNATURE_ATTRIBUTE, STREAM

C = "C"
"""Row-major order."""
F = "F"
"""Column-major (Fortran) order."""

_Callable = TypeVar("_Callable", bound=Callable[..., Any])

# A size in bytes, or a mapping that also states how the data are kept.
Put: TypeAlias = str | Mapping[str, Any]

_EXPECTED = (
    'expected names and sizes in bytes, such as {"part/{i}": "8*n"}, and of what is put also '
    '{"sum": {"size": "8", "replicas": 2, "durable": True, "method": "swarm"}}'
)
_PYTHON_TYPES: dict[Any, str] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    complex: "complex128",
    str: "str",
    bytes: "bytes",
}
_NUMBERS = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 longdouble complex64 complex128 "
    "clongdouble"
).split()


class Array:
    """Annotation of an array parameter, result, or field of a message: ``Array[dtype, *extents]``.

    Parameters
    ----------
    dtype : str, numpy type or array type
        Element type, such as ``"float64"`` or ``numpy.float32``, or the type of the array:
        ``numpy.typing.NDArray[numpy.float64]``. In a message also ``gl.c_int`` and the like, and a message class without
        references, which makes an array of structs.
    *extents : str or int
        One for each dimension: a name, which means the same number wherever it is used in the signature, a number,
        or an expression over names and integer parameters such as ``"n-1"``. In a message, a name is that of an integer
        field, or, if there is none, of a size that follows from the arrays.
    order : `C` or `F`, optional
        As last item: the memory order in which the function wants the array. By default it takes either, and a result is
        row-major.

    Notes
    -----
    Static type checkers take it for ``typing.Annotated``: they know an array where `dtype` is the type of one, and refuse a text
    in its place. ``Annotated[numpy.ndarray, Array["float64", "m", "k"]]`` means the same.

    Examples
    --------
    >>> Array["float64", "m", "n-1", F]
    gridloom.Array['float64', 'm', 'n-1', F]
    >>> Array[np.ndarray[Any, np.dtype[np.int32]], 3]
    gridloom.Array['int32', '3']
    """

    dtype: str
    element: Any
    extents: tuple[str, ...]
    order: str

    def __new__(cls, *_: object) -> Array:
        raise TypeError("gridloom.Array is an annotation: write Array[dtype, *extents]")

    def __class_getitem__(cls, items: Any) -> Any:
        items = items if isinstance(items, tuple) else (items,)
        order = "any"
        if len(items) > 1 and items[-1] in (C, F) and isinstance(items[-1], str):
            *items, order = items
        element = _element_of(items[0])
        dtype = _element(element)
        if dtype is None and _is_record(element):
            dtype = ""
        if dtype is None:
            raise TypeError(
                f"Array[...]: the first item is an element type, one of {', '.join(_NUMBERS)}, or NDArray[...] of one; "
                f"got {items[0]!r}"
            )
        for extent in items[1:]:
            if isinstance(extent, bool) or not isinstance(extent, (str, int, np.integer)) or extent == "":
                raise TypeError(f"Array[...]: an extent is a name, an expression or a number; got {extent!r}")
            if not isinstance(extent, str) and extent < 0:
                raise TypeError(f"Array[...]: an extent is at least 0; got {extent!r}. One that may be anything is a name, as 'n'")
        return _ArrayMeta(
            "Array",
            (Array,),
            {
                "dtype": dtype,
                "element": element,
                "extents": tuple(str(extent) for extent in items[1:]),
                "order": order,
            },
        )


class _ArrayMeta(type):
    """Makes each form of `Array` a class of its own, which every place for annotations accepts."""

    def __repr__(cls) -> str:
        form: Any = cls
        element = getattr(form.element, "__name__", str(form.element))
        items = [repr(form.dtype) if form.dtype else element, *(repr(extent) for extent in form.extents)]
        return f"gridloom.Array[{', '.join(items + ([form.order] if form.order != 'any' else []))}]"


class Out:
    """Annotation that names a result: ``Out[annotation, name]``. Unnamed results are ``out0``, ``out1``, …

    ``Out[name, annotation]`` means the same, but static type checkers refuse it: they take `Out` for ``typing.Annotated``.

    Examples
    --------
    >>> Out[float, "residual"]
    gridloom.Out[<class 'float'>, 'residual']
    """

    name: str
    inner: Any

    def __new__(cls, *_: object) -> Out:
        raise TypeError("gridloom.Out is an annotation: write Out[annotation, name]")

    def __class_getitem__(cls, items: Any) -> Any:
        if not isinstance(items, tuple) or len(items) != 2 or not any(isinstance(item, str) for item in items):
            raise TypeError(f"Out[...]: expected an annotation and a name, got {items!r}")
        name, inner = items if isinstance(items[0], str) else reversed(items)
        return _OutMeta("Out", (Out,), {"name": name, "inner": inner})


class _OutMeta(type):
    def __repr__(cls) -> str:
        form: Any = cls
        return f"gridloom.Out[{form.inner!r}, {form.name!r}]"


@typing.overload
def function(body: _Callable, /) -> _Callable: ...


@typing.overload
def function(
    body: None = None,
    /,
    *,
    name: str | None = None,
    module: str | None = None,
    work: str | None = None,
    gets: Mapping[str, str] | None = None,
    puts: Mapping[str, Put] | None = None,
    replaces: Mapping[str, Put] | None = None,
    sizes: Mapping[str, str] | None = None,
) -> Callable[[_Callable], _Callable]: ...


def function(
    body: Any = None,
    /,
    *,
    name: str | None = None,
    module: str | None = None,
    work: str | None = None,
    gets: Mapping[str, str] | None = None,
    puts: Mapping[str, Put] | None = None,
    replaces: Mapping[str, Put] | None = None,
    sizes: Mapping[str, str] | None = None,
) -> Any:
    """Mark a function of a module as one that ``gridloom serve`` offers.

    It stays an ordinary function of its module. Arguments arrive as NumPy arrays that map the server's memory and cannot
    be written; they show the call's data while the call runs, so a function copies what it keeps longer.

    Parameters
    ----------
    name : str, optional
        Name of the function on the grid, by default its own.
    module : str, optional
        Name before the slash, by default the module's variable ``gl_module``, else the stem of its file.
    work : str, optional
        Work of one call in floating-point operations: an expression over integer and real parameters and extents, such
        as ``"2*m*n*k"``. Plans predict the time of a call from it.
    gets, puts, replaces : mapping, optional
        Names of shared data that a call gets, puts, or puts with ``replace=True``, each with its size in bytes: an expression over
        integer parameters and extents, such as ``"8*n"``. A name may have such expressions and ``str`` parameters in braces:
        ``"part/{i}"``. Plans are made with them, and they move in simulation. Of what is put, the size may be a mapping that also says
        how it is kept, and by which method it gets to its readers:
        ``puts={"sum": {"size": "8", "replicas": 2, "durable": True, "method": "swarm"}}``.
    sizes : mapping, optional
        Of results that are ``str`` or ``bytes``: the size in bytes that each is likely to have, an expression as `work`, such as
        ``{"out0": "2*text"}``. Without it, plans count with 0 bytes, and in simulation the result is empty. In both expressions a
        parameter that is ``str`` or ``bytes`` stands for its size in bytes.

    Returns
    -------
    callable
        The function, unchanged.

    Raises
    ------
    InputError
        If the annotations are no signature, or the function has what cannot be offered: a parameter with a default, keyword-only,
        ``*args`` or ``**kwargs``; ``async def``; ``yield``. The message says where and why, and what to write instead.

    Notes
    -----
    Every parameter and result has an annotation: `Array`, ``bool``, ``int`` (int64), ``float`` (float64), ``complex``
    (complex128), ``str``, ``bytes``, or a NumPy scalar type such as ``numpy.float32``. Several results are a ``tuple``
    of annotations, no result is ``None``.

    Examples
    --------
    >>> @function(module="demo", work="2*m*n*k")
    ... def matmul(a: Array["float64", "m", "k"], b: Array["float64", "k", "n"]) -> Array["float64", "m", "n"]:
    ...     return a @ b
    >>> matmul.__name__
    'matmul'
    """

    def mark(body: Any) -> Any:
        setattr(body, SIGNATURE_ATTRIBUTE, _signature(body, name, module, work, {"gets": gets, "puts": puts, "replaces": replaces}, sizes))
        return body

    return mark if body is None else mark(body)


def _signature(
    body: Any,
    name: str | None,
    module: str | None,
    work: str | None,
    shared: Mapping[str, Mapping[str, str] | Mapping[str, Put] | None],
    sizes: Mapping[str, str] | None,
) -> _gridloom.RawSignature:
    code = getattr(body, "__code__", None)
    if not isinstance(body, types.FunctionType) or code is None:
        raise InputError(f"gridloom.function marks functions, got {body!r}")
    place = f"{code.co_filename}:{code.co_firstlineno}: {body.__qualname__}"
    for what, given in (("name", name), ("module", module)):
        if given is not None and (not isinstance(given, str) or not given):
            raise InputError(f"{place}: {what} is a name, got {given!r}; leave it out for the function's own")
    module = module or body.__globals__.get("gl_module") or _stem(body)
    if f"{module}/{name or body.__name__}".startswith(f"{STREAM}.") and not body.__module__.startswith("gridloom."):
        raise InputError(f"{place}: names that begin with '{STREAM}.' are reserved for Gridloom; use another name or module")
    try:
        annotations = typing.get_type_hints(body, include_extras=True)
    except Exception as error:
        raise InputError(f"{place}: annotations: {error}") from None
    if why := _cannot_run(body):
        raise InputError(f"{place}: {why}")
    inputs = []
    for parameter in inspect.signature(body).parameters.values():
        if why := _cannot_offer(parameter):
            raise InputError(f"{place}: parameter '{parameter.name}' {why}")
        if parameter.name not in annotations:
            raise InputError(f"{place}: parameter '{parameter.name}' has no annotation")
        inputs.append(_declared(place, f"parameter '{parameter.name}'", parameter.name, annotations[parameter.name]))
    if "return" not in annotations:
        raise InputError(f"{place}: the result has no annotation; write '-> None' if there is none")
    outputs = []
    for number, annotation in enumerate(map(resolved, _results(annotations["return"]))):
        given = f"out{number}"
        if isinstance(annotation, type) and issubclass(annotation, Out):
            given, annotation = annotation.name, annotation.inner
        outputs.append(_declared(place, f"result '{given}'", given, annotation))
    uses = []
    for does, names in shared.items():
        uses += _uses(place, does, names)
    about = encodable((inspect.getdoc(body) or "").partition("\n")[0], None)
    try:
        return _gridloom.build_signature(f"{module}/{name or body.__name__}", inputs, outputs, work, uses, sizes_of(place, sizes), about)
    except UnicodeEncodeError as wrong:
        raise InputError(f"{place}: {surrogate(wrong)}") from None
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def sizes_of(place: str, sizes: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Likely sizes of results, by name."""
    if sizes is not None and not isinstance(sizes, Mapping):
        raise InputError(f"{place}: sizes={sizes!r}: expected names of results and sizes in bytes, such as {{'out': '2*n'}}")
    for name, size in (sizes or {}).items():
        if not (isinstance(name, str) and isinstance(size, str)):
            raise InputError(f"{place}: sizes={sizes!r}: expected names of results and sizes in bytes, such as {{'out': '2*n'}}")
    return list((sizes or {}).items())


def _uses(place: str, does: str, names: Mapping[str, Any] | None) -> list[tuple[str, str, str, int, bool, str]]:
    """Names of shared data with their sizes, replicas, whether they are durable, and their methods."""
    uses = []
    if names is not None and not isinstance(names, Mapping):
        raise InputError(f"{place}: {does}={names!r}: {_EXPECTED}")
    for given, options in (names or {}).items():
        size, replicas, durable, method = options, 1, False, "auto"
        if isinstance(options, Mapping) and does != "gets":
            if unknown := set(options) - {"size", "replicas", "durable", "method"}:
                raise InputError(f"{place}: {does}={names!r}: unknown key {min(map(repr, unknown))}; {_EXPECTED}")
            size, replicas, durable = options.get("size"), options.get("replicas", 1), options.get("durable", False)
            method = options.get("method", "auto")
        is_whole = isinstance(replicas, int) and not isinstance(replicas, bool) and 0 <= replicas < 1 << 16
        is_text = all(isinstance(one, str) for one in (given, size, method))
        if not (is_text and is_whole and isinstance(durable, bool)):
            raise InputError(f"{place}: {does}={names!r}: {_EXPECTED}")
        uses.append((does, given, size, replicas, durable, method))
    return uses


def _cannot_run(body: types.FunctionType) -> str | None:
    """Why a worker cannot get a result by calling a function, and the remedy; ``None`` if it can."""
    if inspect.iscoroutinefunction(body):
        return (
            "an 'async def' function gives a coroutine, and a worker has no event loop to run it; write 'def', and call "
            "asyncio.run() in it where it awaits"
        )
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        return (
            "a function with 'yield' gives a generator, which cannot be sent; return an array or a tuple of results, or run it "
            "by grid.stream"
        )
    return None


def _cannot_offer(parameter: inspect.Parameter) -> str | None:
    """Why a parameter does not fit a signature, and the remedy. Signatures have names and types of a fixed number of inputs."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"stands for any number of arguments ('*{parameter.name}'); write one parameter for each, or pass an array"
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"stands for arguments of any name ('**{parameter.name}'); write one parameter for each"
    if parameter.kind is parameter.KEYWORD_ONLY:
        return (
            "is keyword-only, and callers on the grid may pass every argument by position; write it before the '*', or remove "
            "the '*'"
        )
    if parameter.default is not parameter.empty:
        return (
            f"has the default {reprlib.repr(parameter.default)}, which callers on the grid would not get: they learn names and types "
            "only, and pass every argument; remove the default"
        )
    return None


def _stem(body: types.FunctionType) -> str:
    file = body.__globals__.get("__file__")
    return Path(file).stem if file else (body.__module__ or "functions").rpartition(".")[2].strip("_")


def _results(annotation: Any) -> tuple[Any, ...]:
    annotation = resolved(annotation)
    if annotation is None or annotation is type(None):
        return ()
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)
    return (annotation,)


def _declared(place: str, what: str, name: str, annotation: Any) -> tuple[str, str, list[str] | None, str]:
    annotation = resolved(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        forms = [extra for extra in annotation.__metadata__ if isinstance(extra, type) and issubclass(extra, Array)]
        annotation = forms[0] if forms else resolved(annotation.__origin__)
    if isinstance(annotation, type) and issubclass(annotation, Array) and annotation is not Array:
        if not annotation.dtype:
            raise InputError(
                f"{place}: {what}: arrays of structs are for messages, not for functions; got {annotation!r}{_remedy(annotation)}"
            )
        return name, annotation.dtype, list(annotation.extents), annotation.order
    base = _PYTHON_TYPES.get(annotation) if isinstance(annotation, type) else None
    if base is None and isinstance(annotation, type) and issubclass(annotation, np.generic):
        base = _element(annotation)
    if base is None:
        raise InputError(
            f"{place}: {what}: expected gridloom.Array[...], bool, int, float, complex, str, bytes or a NumPy scalar "
            f"type, got {annotation!r}{_remedy(annotation)}"
        )
    return name, base, None, "any"


def _remedy(annotation: Any) -> str:
    """Hint about the annotation to write instead."""
    kind = typing.get_origin(annotation) or annotation
    if kind is np.ndarray:
        element = _element_of(annotation)
        dtype = f"numpy.{_element(element)}" if element is not annotation and _element(element) else "numpy.float64"
        return f"; say its extents, which arguments are checked against: gridloom.Array[NDArray[{dtype}], 'n'], or [..., 'm', 'n']"
    return "; grid.run takes any function as it is, with all values that can be pickled"


def _is_record(element: Any) -> bool:
    """Whether only a message can have such elements: structs, integers of C, characters."""
    if typing.get_origin(element) is typing.Annotated:
        return True
    return dataclasses.is_dataclass(element) or isinstance(element, np.dtype) and element.names is not None


def _element_of(item: Any) -> Any:
    """The element type of an array type such as ``NDArray[np.float64]``; anything else as it is."""
    item = resolved(item)
    if typing.get_origin(item) is not np.ndarray:
        return item
    dtype = typing.get_args(typing.get_args(item)[-1])
    return dtype[0] if dtype else item


def _element(dtype: Any) -> str | None:
    if isinstance(dtype, str) and dtype in _NUMBERS:
        return dtype
    try:
        found = np.dtype(dtype)
    except TypeError:
        return None
    for name in _NUMBERS:
        if found == np.dtype(name):
            return name
    return None
