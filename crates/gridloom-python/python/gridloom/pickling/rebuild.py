"""Rebuilds functions of a program in another process. Pickles of `by_value` call the functions of this module.

**Invariants.** Functions that share their global variables in the program share them here. A change of a
global variable by a function persists until the program sends a new value of the variable. Code of another version of Python is not run.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import copyreg
import dataclasses
import functools
import linecache
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

from ..errors import text_of
from .main_module import make_main

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
    main : module or None
        The worker's module ``__main__`` while functions of the program run, if these are the variables of the program's main module.
    """

    values: dict[str, Any]
    digests: dict[str, bytes | None] = dataclasses.field(default_factory=dict)
    changes: int = 0
    main: types.ModuleType | None = None

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

    def use_main(self) -> None:
        """Use the main module of the program as that of this process."""
        for namespace, _ in self.changes:
            if namespace.main is not None:
                sys.modules["__main__"] = namespace.main

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
    made = Rebuilt(value, [(space, space.changes) for key in _used if (space := _namespaces.get(key)) is not None])
    made.use_main()
    return made


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
    namespace = _namespace(key, base)
    if source is not None:
        _show(code.co_filename, *source)
    return types.FunctionType(code, namespace.values, None, None, cells)


def _namespace(key: str, base: dict[str, Any]) -> Namespace:
    """The global variables with this key; a new namespace starts with the variables in `base`."""
    namespace = _namespaces.get(key)
    if namespace is None:
        values = {"__builtins__": __builtins__, **base}
        # A namespace of `exec` can also have the name `__main__`; only that of the module is used.
        main = make_main(values) if key.endswith(":__main__:") else None
        namespace = _namespaces[key] = Namespace(values if main is None else vars(main), main=main)
        if main is not None:  # unpickling may import it
            sys.modules["__main__"] = main
        if len(_namespaces) > _NAMESPACES_MAX:
            _namespaces.popitem(last=False)[1].changes = -1
    _namespaces.move_to_end(key)
    _used.add(key)
    return namespace


def _add_to_main(namespace: Namespace, value: Any) -> None:
    """Add a function or class to the main module under its name, unless the program has sent a variable of that name."""
    name = value.__qualname__
    if namespace.main is not None and value.__module__ == "__main__" and name.isidentifier() and name not in namespace.digests:
        namespace.values[name] = value


def set_class(class_: type, state: tuple[str, dict[str, Any], Any]) -> None:
    """Set the attributes of a class of the program's main module."""
    key, base, attributes = state
    cloudpickle.cloudpickle._class_setstate(class_, attributes)
    _add_to_main(_namespace(key, base), class_)


def set_returned_class(class_: type, attributes: Any) -> None:
    """Set the attributes of a class that a function returned, unless it is the program's own."""
    found: Any = sys.modules["__main__"]
    for part in class_.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not class_:
        cloudpickle.cloudpickle._class_setstate(class_, attributes)


def set_function(function: types.FunctionType, state: tuple[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Set the global variables and attributes of a function."""
    key, (attributes, slots) = state
    for name, value in slots["__globals__"].items():
        # Unpickling may call functions that use the variable.
        _namespaces[key].values.setdefault(name, value)
        _received[key, name] = value
    slots["__globals__"] = {}
    cloudpickle.cloudpickle._function_setstate(function, (attributes, slots))
    _add_to_main(_namespaces[key], function)


def same(value: Any) -> Any:
    """Return a value that replaces another object in a pickle."""
    return value


# Attributes of an exception: those in its dictionary, and those in slots or in the structure of a built-in class.
_Attributes: TypeAlias = tuple[dict[str, Any], dict[str, Any]]

# Not in Python 3.10.
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())
# Flag of classes that are created at run time; built-in classes do not have it.
_HEAP_TYPE = 1 << 9


def attributes_of(error: BaseException) -> _Attributes:
    slots = getattr(copyreg, "_slotnames")(type(error))
    return vars(error), {name: getattr(error, name) for name in slots if hasattr(error, name)}


def built_in_class(kind: type[BaseException]) -> type[BaseException]:
    """Return the class if it is built into Python, otherwise its nearest built-in base class."""
    return next(one for one in kind.__mro__ if _is_built_in(one))


def built_in_attributes(error: BaseException) -> dict[str, Any]:
    """Attributes that built-in classes store in their structure, such as ``errno`` of an `OSError`."""
    found = {}
    for one in type(error).__mro__:
        if one in (BaseException, object) or not _is_built_in(one) or issubclass(one, _GROUP):
            continue
        for name, member in vars(one).items():
            # As in Python's own pickles, `obj` of an `AttributeError` is left out.
            if isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)) and name != "obj":
                with contextlib.suppress(Exception):  # unset
                    found[name] = getattr(error, name)
    return {name: value for name, value in found.items() if value is not None}


def _is_built_in(kind: type) -> bool:
    return not kind.__flags__ & _HEAP_TYPE


def reduce_exception(error: BaseException) -> Any:
    """Reduce an exception for a pickle: to a call of its constructor, or to its parts if the constructor takes other arguments than `args`.

    Return ``NotImplemented`` if the class defines its own reduction, or if Python's default is sufficient.
    """
    kind: Any = type(error)
    names = ("__reduce__", "__reduce_ex__", "__setstate__")
    owners = [next(one for one in kind.__mro__ if name in vars(one)) for name in names]
    if _is_built_in(kind) and kind.__reduce__ is not BaseException.__reduce__:
        return NotImplemented
    if not all(map(_is_built_in, owners)) or kind in copyreg.dispatch_table:
        return NotImplemented
    own, slots = attributes_of(error)
    # A constructor may set the attributes of the built-in class, so only the others are compared.
    is_constructed = _is_made_by_constructor(error, (own, slots))
    slots = {**built_in_attributes(error), **slots}
    if is_constructed and not own and not slots:
        return NotImplemented
    return make_exception, (kind, error.args, is_constructed), (own, slots), None, None, set_attributes


def _is_made_by_constructor(error: BaseException, attributes: _Attributes) -> bool:
    """Whether the constructor, called with `args`, makes an equal exception."""
    try:
        made = type(error)(*error.args)
        set_attributes(made, attributes)
        return type(made) is type(error) and text_of(made) == text_of(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a constructor may call exit()
        return False


def make_exception(kind: type[BaseException], args: tuple[Any, ...], is_constructed: bool) -> BaseException:
    """Create an exception without its attributes; `set_attributes` sets them."""
    if is_constructed:
        return kind(*args)
    made: BaseException = _built_in_new(kind)(kind, *args)
    BaseException.__setattr__(made, "args", args)
    return made


def make_group(form: tuple[Any, str, _Attributes], errors: Iterable[BaseException]) -> Any:
    """Create an exception group from its class, message and attributes, without calling its constructor."""
    kind, message, attributes = form
    made = _built_in_new(kind)(kind, message, list(errors))
    set_attributes(made, attributes)
    return made


def set_attributes(error: BaseException, attributes: _Attributes) -> None:
    """Set attributes, even of an immutable exception such as a frozen data class."""
    vars(error).update(attributes[0])
    for name, value in attributes[1].items():
        BaseException.__setattr__(error, name, value)


def _built_in_new(kind: type[BaseException]) -> Any:
    """The ``__new__`` of the nearest base class that is not written in Python."""
    return getattr(built_in_class(kind), "__new__")


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
