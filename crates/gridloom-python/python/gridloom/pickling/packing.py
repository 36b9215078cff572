"""Serializes functions, arguments and results of the program for ``gridloom.run_code``."""

from __future__ import annotations

import inspect
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..common.session_objects import CannotPickle
from ..errors import (
    ArgumentError,
    CannotRun,
    RandomStateWarning,
    RemoteError,
    SignatureError,
    TaskError,
    TimedOut,
    text_of,
    with_fields,
)
from .buffers import Aside
from .by_value import dumps
from .protocol import ERROR, FUNCTION, RESULTS, STREAM, TASK, TOKEN_BYTES, VALUE, CannotImport, CannotLoad, OtherVersion
from .raised import RemoteTraceback, unpack_raised

# Functions of the grid that run the functions of programs.
_RUNNERS = (FUNCTION, f"{STREAM}.begin", f"{STREAM}.next", *(f"python/{TASK}{count}" for count in reversed(RESULTS)))
# A pickle without these opcodes calls no function: GLOBAL, INST, EXT1, EXT2, EXT4 and STACK_GLOBAL. Pickles longer than
# `_LOOKED_THROUGH_BYTES` are not searched.
_IMPORTS = frozenset(b"ci\x82\x83\x84\x93")
_LOOKED_THROUGH_BYTES = 256
# Descriptions of the arguments of `_RUNNERS` in errors.
_PARTS = {"setup": "its pickled initializer", "function": "the pickled function", "arguments": "its pickled arguments", "call": "it, pickled,"}

# Allocates memory for arguments; takes the size in bytes.
Room: TypeAlias = Callable[[int], npt.NDArray[np.uint8]]


def name_of(function: Any) -> str:
    """Name of a function, for errors."""
    inner = getattr(function, "func", function)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    module = getattr(inner, "__module__", None)
    return f"{module}:{name}" if module else name


def pack_function(function: Callable[..., Any], several: bool = False) -> bytes:
    """Pickle a function by module and name if its module can be imported, otherwise by value with everything that it uses.

    `several` is true if several calls share the pickle.
    """
    if not callable(function):
        raise ArgumentError(f"expected a function to run, got {type(function).__name__} {function!r}")
    return _packed(function, lambda: f"the function {name_of(function)}", lambda: _used(function), several=several)


def pack_setup(initializer: Callable[..., Any], initargs: tuple[Any, ...]) -> bytes:
    """Pickle an initializer of workers."""
    return os.urandom(TOKEN_BYTES) + _packed((initializer, initargs), lambda: f"the initializer {name_of(initializer)}", _none, several=True)


def pack_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], room: Room) -> npt.NDArray[np.uint8]:
    """Pickle the arguments of a call."""

    def parts() -> Iterator[tuple[str, Any]]:
        for number, value in enumerate(args, start=1):
            yield f"argument {number}", value
        for key, value in kwargs.items():
            yield f"argument '{key}'", value

    return packed_array((args, kwargs), lambda: f"an argument of {name}", parts, room)


def pack_chunk(name: str, calls: list[tuple[Any, ...]], room: Room) -> npt.NDArray[np.uint8]:
    """Pickle the arguments of several calls, by position."""

    def parts() -> Iterator[tuple[str, Any]]:
        for call, args in enumerate(calls, start=1):
            for number, value in enumerate(args, start=1):
                yield f"argument {number} of call {call} of the chunk", value

    return packed_array(calls, lambda: f"an argument of {name}", parts, room)


def packed_array(
    value: Any, what: Callable[[], str], parts: Callable[[], Iterator[tuple[str, Any]]], room: Room
) -> npt.NDArray[np.uint8]:
    """Pickle arguments. Large arrays are copied to memory that `room` allocates.

    If they cannot be pickled, the error describes them by `what`, and names the first part that cannot be pickled.
    """
    aside = Aside()
    return aside.join(_packed(value, what, parts, True, aside), room)


def _none() -> Iterator[tuple[str, Any]]:
    return iter(())


def _packed(
    value: Any,
    what: Callable[[], str],
    parts: Callable[[], Iterator[tuple[str, Any]]],
    fetches: bool = False,
    aside: Aside | None = None,
    several: bool = False,
) -> bytes:
    try:
        return dumps(value, fetches, aside, several)
    except (TaskError, RandomStateWarning):  # a handle could not be fetched, or the program turns warnings into errors
        raise
    except Exception as error:
        guilty = _first_unpicklable(parts(), fetches)
        where = "it" if guilty is None else f"{guilty[0]}, of type {type(guilty[1]).__qualname__},"
        remedy = "make it inside the function, or pass plain data from which the function makes it"
        reason = f"{type(error).__name__}: {text_of(error)}"
        if isinstance(error, CannotPickle):
            reason, remedy = error.why, error.remedy
        raise ArgumentError(f"{what()} cannot be sent: {where} cannot be pickled ({reason}): {remedy}") from error


def _first_unpicklable(parts: Iterator[tuple[str, Any]], fetches: bool) -> tuple[str, Any] | None:
    for what, value in parts:
        try:
            dumps(value, fetches)
        except Exception:
            return what, value
    return None


def _used(function: Any) -> Iterator[tuple[str, Any]]:
    """Objects that are pickled with a function."""
    inner = inspect.unwrap(function) if inspect.isfunction(function) else function
    if inspect.ismethod(inner):
        yield "its object", inner.__self__
        inner = inner.__func__
    if not inspect.isfunction(inner):
        return
    closed = inspect.getclosurevars(inner)
    for kind, values in (("variable", closed.nonlocals), ("global variable", closed.globals)):
        for key, value in values.items():
            yield f"its {kind} '{key}'", value
    for key, value in zip(inspect.signature(inner).parameters, inner.__defaults__ or ()):
        yield f"a default such as that of '{key}'", value


def runs_code(given: bytes) -> bool:
    """Whether `unpack` may run code of the program for these bytes."""
    return given[:1] != VALUE or len(given) > _LOOKED_THROUGH_BYTES or not _IMPORTS.isdisjoint(given[1:])


def is_raised(error: BaseException) -> bool:
    """Whether a function raised this error. Otherwise it is an error of Gridloom about the call. A function may raise errors of any class."""
    return isinstance(error.__cause__, RemoteTraceback)


def unpack(given: bytes, name: str, server: str = "") -> Any:
    """Return the value of a call, or raise the exception of its function."""
    body = memoryview(given)[1:]
    if given[:1] == VALUE:
        try:
            return pickle.loads(body)
        except OSError as error:
            why = f"it cannot be written to {tempfile.gettempdir()} on this machine: {error}; free some space, or set TMPDIR"
            raise named(SignatureError, f"the result of {name}: {why}", function=name, server="", why=why) from error
        except BaseException as error:  # Unpickling a value can raise SystemExit. No interrupt arrives here.
            raise named(
                SignatureError,
                f"the result of {name} cannot be unpickled here: {type(error).__name__}: {text_of(error)}; the program needs the modules "
                "of what the function returns",
                function=name,
                server="",
                why=text_of(error),
            ) from error
    assert given[:1] == ERROR, "run_code returns only values and errors"
    raise unpack_raised(body, name, server)


def renamed(error: BaseException, name: str) -> BaseException:
    """Replace the name of the function of the grid in an error by the name of the program's function."""
    if is_raised(error):
        return error
    text = text_of(error)
    runner = next((one for one in _RUNNERS if text.startswith(one)), FUNCTION)
    if isinstance(error, ArgumentError) and text.startswith(runner):
        for part, what in _PARTS.items():
            text = text.replace(f"{runner}: argument '{part}'", f"{name}: {what}")
        text = text.replace(f"{_PARTS['arguments']} takes", f"{_PARTS['arguments']} take")
        return named(ArgumentError, text)
    if isinstance(error, TimedOut):
        return named(TimedOut, text.replace(runner, name), **vars(error))
    runner = getattr(error, "function", "") or runner
    if not isinstance(error, TaskError) or runner not in _RUNNERS:
        return error
    fields = {**vars(error), "function": name}
    kind: type[BaseException] = type(error)
    message = text.replace(runner, name)
    server = fields.get("server", "")
    if isinstance(error, RemoteError):
        text = error.message
        if error.kind in (CannotLoad.__name__, CannotImport.__name__, OtherVersion.__name__):
            kind, message = CannotRun, f"{name} cannot run on server '{server}': {text}"
            fields = {"function": name, "server": server, "why": text}
        elif error.kind == "CannotReturn":
            why = f"its result cannot be pickled: {text}"
            kind, message = SignatureError, f"{name} on server '{server}': {why}"
            fields = {"function": name, "server": server, "why": why}
    return named(kind, message, **fields)


def named(class_: type[BaseException], text: str, /, **fields: Any) -> BaseException:
    """Create an error of Gridloom with attributes."""
    return with_fields(class_(text), **fields)
