"""Pickles objects with functions and classes of the program. Functions and classes that cannot be imported are pickled by value, as in cloudpickle.

In addition to cloudpickle, such functions share their global variables after unpickling (`rebuild`), decorators of ``functools`` are supported,
and code contains its source lines and the version of Python that compiled it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import linecache
import os
import pickle
import random
import sys
import types
import typing
from typing import Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

from ..common.session_objects import CannotPickle
from . import random_state, rebuild
from .buffers import Aside
from .module_versions import trailer
from .protocol import SIGNATURE_ATTRIBUTE

_CACHED = type(functools.lru_cache(lambda: None))
_MAKE_CLASS, _SET_CLASS = cloudpickle.cloudpickle._make_skeleton_class, cloudpickle.cloudpickle._class_setstate
# Attributes of a module that cloudpickle pickles with each function.
_MODULE_ATTRIBUTES = ("__package__", "__name__", "__path__", "__file__")
_DISPATCHING: types.CodeType = getattr(functools.singledispatch(lambda _: None), "__code__")
# Longer functions are sent without their source lines.
_LINES_MAX = 1000

# Identifier of this program. A forked child gets another one.
_token = os.urandom(16).hex()


def _renew() -> None:
    global _token
    _token = os.urandom(16).hex()


os.register_at_fork(after_in_child=_renew)


def dumps(value: Any, fetches: bool = False, aside: Aside | None = None, several: bool = False) -> bytes:
    """Pickle an object for a process that runs functions of the program. With `fetches`, handles are replaced by their values.

    `several` is true if several calls get the pickle: a random generator in it then draws the same numbers in each call, which is reported.
    """
    made = io.BytesIO()
    pickler = Pickler(made, fetches=fetches, aside=aside)
    pickler.dump(value)
    if pickler.modules:
        made.write(trailer(pickler.modules))
    if pickler.generators:
        random_state.note_sent(pickler.generators, several)
    return made.getvalue()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    """Pickles for processes that run functions of the program.

    Parameters
    ----------
    file : binary file
        Receives the pickle.
    shares : bool
        Whether functions share their global variables after unpickling. They do not in results, which the program itself unpickles.
    fetches : bool
        Whether a handle is replaced by its value. Otherwise handles are refused.
    aside : Aside, optional
        Stores large arrays.

    Attributes
    ----------
    modules : set of str
        Modules of functions and classes that are pickled by name.
    generators : list of object
        Random generators that are pickled with their states.
    """

    def __init__(self, file: Any, shares: bool = True, fetches: bool = False, aside: Aside | None = None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, aside and aside.keep)
        self._shares, self._fetches = shares, fetches
        self.modules: set[str] = set()
        self.generators: list[Any] = []

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is types.FunctionType:
            reduced = super().reducer_override(value)
            if reduced is not NotImplemented:
                return self._function(value, reduced)
            self._note_module(value)
            return reduced
        if kind is types.CodeType:
            return rebuild.make_code, (sys.version_info[:2], _shown_file(value), self.dispatch_table[kind](value)[1])
        if kind is _CACHED and not _is_importable(value):
            limits = value.cache_parameters()
            state = value.__wrapped__, _own_attributes(value)
            return rebuild.make_cached, (limits["maxsize"], limits["typed"]), state, None, None, rebuild.set_cached
        if kind is functools.singledispatchmethod:
            setter = rebuild.set_dispatching_method
            return rebuild.make_dispatching_method, (), value.dispatcher, None, None, setter
        if kind is functools.cached_property:
            return rebuild.make_cached_property, (value.func, value.attrname)
        if getattr(kind, "_stands_for_value", False):
            if not self._fetches:
                raise CannotPickle(value._why, value._remedy)
            return rebuild.same, (value.get(),)
        if isinstance(value, BaseException):
            return rebuild.reduce_exception(value)
        if (named := random_state.name_in_module(value)) is not None:
            return getattr, named
        if kind is random.SystemRandom:
            return kind, ()
        if random_state.is_generator(value):
            self.generators.append(value)
        reduced = super().reducer_override(value)
        if isinstance(value, type):
            if reduced is NotImplemented:
                self._note_module(value)
                return reduced
            if reduced[0] is _MAKE_CLASS and "__slots__" in vars(value):
                reduced = _with_slots(value, reduced)
            return self._class_of_main(reduced) if value.__module__ == "__main__" and reduced[-1] is _SET_CLASS else reduced
        return reduced

    def _class_of_main(self, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        """Reduce a class of the program: in a worker, it becomes a variable of the main module; in the program, the own class is unchanged."""
        make, made, state, *others, _ = reduced
        if not self._shares:
            return make, made, state, *others, rebuild.set_returned_class
        main = vars(sys.modules["__main__"])
        base = {name: main[name] for name in _MODULE_ATTRIBUTES if name in main}
        return make, made, (_key_of(main), base, state), *others, rebuild.set_class

    def _note_module(self, value: Any) -> None:
        if value.__module__ is not None:
            self.modules.add(value.__module__)

    def _function(self, function: types.FunctionType, reduced: tuple[Any, ...]) -> Any:
        """Pickle a function by value: the parts that cloudpickle pickles, and the key of its global variables."""
        if function.__code__ is _DISPATCHING and hasattr(function, "registry"):
            state = list(function.registry.items()), _own_attributes(function)
            return rebuild.make_dispatching, (), state, None, None, rebuild.set_dispatching
        make, (code, base, _, _, cells), (attributes, slots), *rest = reduced
        # The signature of a declared function is needed only where it is declared.
        attributes.pop(SIGNATURE_ATTRIBUTE, None)
        if not self._shares:
            return make, reduced[1], (attributes, slots), *rest
        key = _key_of(function.__globals__)
        made = key, code, base, cells, _source_of(function)
        return rebuild.make_function, made, (key, (attributes, slots)), None, None, rebuild.set_function


def _with_slots(class_: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add the slots of a class to its pickle, since cloudpickle omits them."""
    make, (constructor, name, bases, values, *rest), (attributes, others), *setters = reduced
    if typing.NamedTuple in bases:  # a NamedTuple rejects slots
        return reduced
    slots = tuple(key for key, member in vars(class_).items() if _is_slot(class_, key, member))
    attributes = {key: value for key, value in attributes.items() if key not in slots}
    if not isinstance(class_.__dict__["__slots__"], (str, tuple, list, dict)):  # such as an exhausted iterator
        attributes["__slots__"] = slots
    return make, (constructor, name, bases, {**values, "__slots__": slots}, *rest), (attributes, others), *setters


def _is_slot(class_: type, key: str, member: Any) -> bool:
    # A dataclass with slots is a copy of its class. In Python 3.11.2, the copy has a descriptor of the original class.
    if getattr(member, "__objclass__", None) is not class_:
        return False
    if isinstance(member, types.GetSetDescriptorType):
        return key in ("__dict__", "__weakref__")
    return isinstance(member, types.MemberDescriptorType) and member.__name__ == key


class _Digester(Pickler):
    """Pickles a value without the global variables of functions, to detect whether the value has changed."""

    def persistent_id(self, value: Any) -> Any:
        # A class that has not changed is the same object. Whether equal strings are one object is arbitrary, because Python
        # interns some of them.
        return hash(value) if type(value) is str else id(value) if isinstance(value, type) else None

    def _function(self, function: types.FunctionType, reduced: tuple[Any, ...]) -> Any:
        if function.__code__ is _DISPATCHING:
            return super()._function(function, reduced)
        state = function.__defaults__, function.__kwdefaults__, function.__closure__, function.__dict__
        return str, (function.__qualname__, function.__code__), state


def digest(value: Any) -> bytes | None:
    """Digest that identifies a value in this process; ``None`` if the value cannot be pickled."""
    made = hashlib.blake2b(digest_size=16)
    try:
        _Digester(types.SimpleNamespace(write=made.update)).dump(value)
    except Exception:
        return None
    return made.digest()


def _own_attributes(wrapper: Any) -> dict[str, Any]:
    """Attributes of a wrapped function that ``functools`` does not set."""
    known = {"__wrapped__", "registry", "dispatch", "register", "_clear_cache", "cache_parameters", SIGNATURE_ATTRIBUTE}
    return {name: value for name, value in vars(wrapper).items() if name not in known}


def _is_importable(value: Any) -> bool:
    """Whether a wrapped function can be imported by its module and name, and is not registered to be pickled by value."""
    module = value.__module__ or "__main__"
    by_value = cloudpickle.list_registry_pickle_by_value()
    parents = {module.rsplit(".", dots)[0] for dots in range(module.count(".") + 1)}
    if module == "__main__" or parents & set(by_value):
        return False
    found: Any = sys.modules.get(module)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _key_of(variables: dict[str, Any]) -> str:
    """Key of the global variables of a function, valid as long as they exist."""
    if (known := rebuild.key_of(variables)) is not None:
        return known
    name = variables.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    number = "" if module is not None and vars(module) is variables else id(variables)
    return f"{_token}:{name}:{number}"


def _source_of(function: types.FunctionType) -> tuple[int, list[str]] | None:
    """Source lines of a function, and the number of the first line, if they are known."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    first = code.co_firstlineno
    last = _last_line(code)
    if not 1 <= first <= last <= len(lines) or last - first >= _LINES_MAX:
        return None
    return first, lines[first - 1 : last]


def _shown_file(code: types.CodeType) -> str:
    """File name that tracebacks show; for a notebook, the cell."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    cell = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(code.co_filename)
    return code.co_filename if cell is None else f"<{cell[0]} {cell[1]}>"


def _last_line(code: types.CodeType) -> int:
    own = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    return max([own, *(_last_line(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))])
