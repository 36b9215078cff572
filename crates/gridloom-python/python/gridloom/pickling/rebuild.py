"""Rebuilds functions of a program in another process. Pickles of `by_value` call the functions of this module.

**Invariants.** Functions that share their global variables in the program share them here. A change of a
global variable by a function persists until the program sends a new value of the variable. Code of another version of Python is not run.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import linecache
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

# A worker serves few programs, with few files each.
_NAMESPACES_MAX = 64
_FILES_MAX = 256


# Number of the first line, and the lines.
_Lines: TypeAlias = tuple[int, list[str]]


class OtherPython(Exception):
    """The code was compiled by another version of Python than this one."""


@dataclasses.dataclass
class Namespace:
    """Global variables of functions of one program.

    Attributes
    ----------
    values : dict of str to object
        The variables.
    digests : dict of str to bytes or None
        Digests of the values that the program sent; ``None`` for a value that cannot be pickled again.
    changes : int
        Number of times that the program has sent a new value; -1 once no new function gets the variables.
    """

    values: dict[str, Any]
    digests: dict[str, bytes | None] = dataclasses.field(default_factory=dict)
    changes: int = 0

    def put(self, name: str, value: Any, digest: bytes | None) -> None:
        """Store a value that the program has sent, with its digest."""
        is_known = name in self.digests
        if is_known and digest is not None and self.digests[name] == digest and name in self.values:
            return
        self.changes += is_known and digest is not None
        self.values[name], self.digests[name] = value, digest


_namespaces: collections.OrderedDict[str, Namespace] = collections.OrderedDict()
# Values of global variables of the current pickle, by key and name. They may refer to each other, so they are compared when
# all are there.
_received: dict[tuple[str, str], Any] = {}
# The keys.
_used: set[str] = set()


@dataclasses.dataclass
class Rebuilt:
    """An unpickled object, and the global variables that it uses."""

    value: Any
    changes: list[tuple[Namespace, int]]

    @property
    def is_current(self) -> bool:
        """Whether the program has sent no new values of its variables since."""
        return all(namespace.changes == changes for namespace, changes in self.changes)


def rebuild(pickled: bytes | memoryview, arrays: Iterable[Any], digest: Callable[[Any], bytes | None]) -> Rebuilt:
    """Unpickle an object of `by_value`. Arrays outside the pickle are used without a copy.

    `digest` returns the digest of a value, or ``None`` if the value cannot be pickled.
    """
    _received.clear()
    _used.clear()
    value = pickle.loads(pickled, buffers=arrays)
    for (key, name), variable in _received.items():
        _namespaces[key].put(name, variable, digest(variable))
    _received.clear()
    return Rebuilt(value, [(space, space.changes) for key in _used if (space := _namespaces.get(key)) is not None])


def forget_namespaces() -> None:
    """Drop all global variables: functions that are unpickled later do not share the variables of earlier ones."""
    while _namespaces:
        _namespaces.popitem()[1].changes = -1


def key_of(variables: dict[str, Any]) -> str | None:
    """Key of these global variables, if they belong to a program in another process."""
    return next((key for key, namespace in _namespaces.items() if namespace.values is variables), None)


def make_code(version: tuple[int, int], filename: str, args: tuple[Any, ...]) -> types.CodeType:
    """Create the code that a program compiled from that file. In another version of Python it would crash the process."""
    here = sys.version_info[:2]
    if version != here:
        theirs, ours = (".".join(map(str, one)) for one in (version, here))
        raise OtherPython(
            f"its code is of Python {theirs}, and Python {ours} is here ({sys.executable}): run both with one version, as by "
            f"'gridloom serve --run-code --python python{theirs}', or put the function into a module that both can import"
        )
    # cloudpickle omits the name of the file.
    return types.CodeType(*args).replace(co_filename=filename)


def make_function(
    key: str, code: types.CodeType, base: dict[str, Any], cells: tuple[Any, ...] | None, source: _Lines | None
) -> types.FunctionType:
    """Create a function that shares global variables with other functions of its program; `set_function` completes it."""
    namespace = _namespaces.get(key)
    if namespace is None:
        namespace = _namespaces[key] = Namespace({"__builtins__": __builtins__, **base})
        if len(_namespaces) > _NAMESPACES_MAX:
            _namespaces.popitem(last=False)[1].changes = -1
    _namespaces.move_to_end(key)
    _used.add(key)
    if source is not None:
        _show(code.co_filename, *source)
    return types.FunctionType(code, namespace.values, None, None, cells)


def set_function(function: types.FunctionType, state: tuple[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Set the global variables and attributes of a function."""
    key, (attributes, slots) = state
    for name, value in slots["__globals__"].items():
        # Unpickling may call functions that use the variable.
        _namespaces[key].values.setdefault(name, value)
        _received[key, name] = value
    slots["__globals__"] = {}
    cloudpickle.cloudpickle._function_setstate(function, (attributes, slots))


def same(value: Any) -> Any:
    """Return a value that replaces another object in a pickle."""
    return value


class Parts:
    """An exception that is rebuilt from its parts without calling its constructor."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        return make_exception, (type(self._error), self._error.args, vars(self._error))


def make_exception(kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    made = kind.__new__(kind, *args)
    made.args = args
    vars(made).update(attributes)
    return made


def make_cached(maxsize: int | None, typed: bool) -> Any:
    """Create a function under ``functools.lru_cache`` with an empty cache; `set_cached` sets the function."""
    inner: list[Callable[..., Any]] = []
    cached = functools.lru_cache(maxsize, typed)(lambda *args, **kwargs: inner[0](*args, **kwargs))
    cached.__dict__["_inner"] = inner
    return cached


def set_cached(cached: Any, state: tuple[Callable[..., Any], dict[str, Any]]) -> None:
    function, attributes = state
    cached.__dict__.pop("_inner").append(function)
    functools.update_wrapper(cached, function)
    cached.__dict__.update(attributes)


def make_dispatching() -> Any:
    """Create a function under ``functools.singledispatch``; `set_dispatching` sets its functions."""
    return functools.singledispatch(lambda *args: None)


def set_dispatching(dispatching: Any, state: tuple[list[tuple[type, Callable[..., Any]]], dict[str, Any]]) -> None:
    functions, attributes = state
    for kind, function in functions:
        dispatching.register(kind, function)
    functools.update_wrapper(dispatching, dispatching.registry[object])
    dispatching.__dict__.update(attributes)


def make_dispatching_method() -> Any:
    """Create a method under ``functools.singledispatchmethod``; `set_dispatching_method` sets its functions."""
    return functools.singledispatchmethod(lambda *args: None)


def set_dispatching_method(method: Any, dispatching: Any) -> None:
    method.dispatcher, method.func = dispatching, dispatching.registry[object]


def make_cached_property(function: Callable[[Any], Any], name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _show(filename: str, first: int, lines: list[str]) -> None:
    """Register source lines of a file of the program for tracebacks, because the file may not exist here."""
    known = linecache.getlines(filename)
    if known[first - 1 : first - 1 + len(lines)] == lines:
        return
    entry = linecache.cache.get(filename)
    # An entry without a time contains lines that were registered here before.
    known = known if entry is not None and len(entry) > 1 and entry[1] is None else []
    made = [*known, *["\n"] * (first - 1 + len(lines) - len(known))]
    made[first - 1 : first - 1 + len(lines)] = lines
    linecache.cache[filename] = (sum(map(len, made)), None, made, filename)
    _shown[filename] = None
    if len(_shown) > _FILES_MAX:
        linecache.cache.pop(_shown.popitem(last=False)[0], None)


_shown: collections.OrderedDict[str, None] = collections.OrderedDict()
