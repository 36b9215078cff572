"""The functions by which a server runs Python functions that programs send: ``gridloom serve --run-code`` offers them.

A call has the pickled function and its arguments, and returns the pickled result. Only these functions unpickle them, in a
worker process. The client's side is `pickling.packing`; `pickling.protocol` is the contract of both.

A stream is an object of the grid, and so a process of its own: `begin` gets the function, each `next` returns one value.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import io
import json
import logging
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from .errors import text_of
from .functions.declare import Array, Out, function
from .functions.program_run import scratch_folder
from .pickling.buffers import copied, split
from .pickling.by_value import Pickler, digest, dumps
from .pickling.main_module import enable
from .pickling.module_versions import digests_in, drop_outdated, note_imports, warn_of_others
from .pickling.protocol import (
    ARGUMENTS_VARIABLE,
    END,
    ERROR,
    PATH_VARIABLE,
    RESULTS,
    TASK,
    TOKEN_BYTES,
    VALUE,
    CannotImport,
    CannotLoad,
    OtherVersion,
)
from .pickling.raised import pack_raised
from .pickling.rebuild import OtherPython, Rebuilt, forget_namespaces, rebuild
from .worker.modules import end_fork, format_traceback, loaded_modules
from .worker.reuse import is_reusable

gl_module = "python"

# A program calls few functions in turn.
_FUNCTIONS_MAX = 16

_functions: collections.OrderedDict[bytes, Rebuilt] = collections.OrderedDict()
_set_up: dict[bytes, BaseException | None] = {}
# Values that this process returns if it is a stream.
_values: Iterator[Any] = iter(())

if (_scratch := scratch_folder()) is not None:
    enable(_scratch / "main", dumps)
if ARGUMENTS_VARIABLE in os.environ:
    sys.argv = json.loads(os.environ.pop(ARGUMENTS_VARIABLE))
sys.path += [path for path in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if path and path not in sys.path]


class CannotReturn(Exception):
    """The result cannot be pickled."""


class CannotSetUp(Exception):
    """The executor's initializer raised an exception."""


@function
def run(setup: bytes, function: bytes, arguments: Annotated[np.ndarray[Any, Any], Array["uint8", "n"]]) -> bytes:
    """runs a Python function that the program sends; all are pickled"""
    process = os.getpid()
    try:
        if setup:
            _initialize(setup)
        called = _loaded(function)
        actual = _unpickled(arguments.data, "an argument").value
        if setup:
            # Modules that were imported again have not been set up.
            _initialize(setup)
        with _SameFolder():
            value = _apply(called, actual)
    except (CannotLoad, CannotSetUp):
        raise
    except Exception as error:
        if os.getpid() != process:
            end_fork(error)
        return _packed_error(error)
    return _packed_result(value)


def _of_results(count: int) -> Callable[..., Any]:
    """A function that runs a task of a graph on up to `count` results of others; empty bytes are passed for unused ones."""

    def task(work: float, likely: int, call: npt.NDArray[np.uint8], *results: bytes) -> tuple[bytes, npt.NDArray[np.float64]]:
        return _on_results(call, [one for one in results if one])

    numbers, about = Array.__class_getitem__(("uint8", "n")), Array.__class_getitem__(("float64", 2))
    inputs = {"work": float, "likely": int, "call": numbers, **{f"r{number}": bytes for number in range(count)}}
    outputs = Out.__class_getitem__((bytes, "result")), Out.__class_getitem__((about, "about"))
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    setattr(task, "__signature__", inspect.Signature([inspect.Parameter(name, kind) for name in inputs]))
    task.__annotations__ = {**inputs, "return": types.GenericAlias(tuple, outputs)}
    task.__doc__ = "runs a task that the program sends on results of others; all are pickled"
    return function(name=f"{TASK}{count}", work="work", sizes={"result": "likely"})(task)


task_1, task_4, task_16, task_64 = (_of_results(count) for count in RESULTS)


def _on_results(call: npt.NDArray[np.uint8], results: list[bytes]) -> tuple[bytes, npt.NDArray[np.float64]]:
    """The pickled result, its time in seconds and its size in bytes. An exception among the results is passed on."""
    failed = next((one for one in results if one[:1] == ERROR), None)
    if failed is not None:
        return failed, np.zeros(2)
    process = os.getpid()
    begun = time.perf_counter()
    try:
        called = _unpickled(call.data, "the task").value
        values = [_unpickled(memoryview(one)[1:], "a result of another task").value for one in results]
        with _SameFolder():
            given = _packed_result(_value(called(*values)))
    except (CannotLoad, CannotReturn):
        raise
    except Exception as error:
        if os.getpid() != process:
            end_fork(error)
        given = _packed_error(error)
    return given, np.array([time.perf_counter() - begun, len(given)])


@function(name="stream._initialize")
def stream_initialize() -> None:
    """is called by the server"""


@function(name="stream._finalize")
def stream_finalize() -> None:
    """is called by the server"""


@function(name="stream.begin")
def stream_begin(function: bytes, arguments: Annotated[np.ndarray[Any, Any], Array["uint8", "n"]]) -> None:
    """gets the function that gives values one by one, and its arguments; all are pickled"""
    global _values
    called, (args, kwargs) = _loaded(function), _unpickled(arguments.data, "an argument").value
    _values = _iterated(called, args, kwargs)


@function(name="stream.next")
def stream_next() -> bytes:
    """gives the next value, pickled"""
    process = os.getpid()
    try:
        value = next(_values, _values)
    except Exception as error:
        if os.getpid() != process:
            end_fork(error)
        return _packed_error(error)
    return END if value is _values else _packed_result(value)


def _iterated(called: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Values of the function, one by one. Errors of the function are raised with the first value."""
    found = _value(called(*args, **kwargs))
    if inspect.isasyncgen(found):
        yield from _awaited(found)
        return
    try:
        values = iter(found)
    except TypeError:
        explanation = f"a stream takes a function with 'yield', or one that returns an iterable; this one returned {type(found).__name__}"
        raise TypeError(explanation) from None
    yield from values


def _awaited(values: Any) -> Iterator[Any]:
    """Values of an ``async def`` with ``yield``, in a loop of its own."""
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                value = loop.run_until_complete(anext(values))
            except StopAsyncIteration:
                return
            yield value
    finally:
        loop.run_until_complete(values.aclose())
        loop.close()


def _packed_result(value: Any) -> bytes:
    made = io.BytesIO()
    made.write(VALUE)
    try:
        Pickler(made, shares=False).dump(value)
    except Exception as error:
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise CannotReturn(f"{type(value).__qualname__}: it gives values one by one, which grid.stream takes") from error
        raise CannotReturn(f"{type(value).__qualname__}: {type(error).__name__}: {text_of(error)}; return plain data instead") from error
    return made.getvalue()


def _apply(called: Any, actual: Any) -> Any:
    """One call, or a chunk of them: a list of arguments by position."""
    if isinstance(actual, list):
        return [_value(called(*args)) for args in actual]
    args, kwargs = actual
    return _value(called(*args, **kwargs))


def _value(given: Any) -> Any:
    """Result of a function; the coroutine of an ``async def`` is run."""
    return asyncio.run(given) if inspect.iscoroutine(given) else given


class _SameFolder:
    """Restores the working folder after a call, because the next call may belong to another function.

    This is not a `contextlib.contextmanager`: those set the traceback of an exception, which fails for frozen data classes.
    """

    def __enter__(self) -> None:
        self._folder = _folder()

    def __exit__(self, *_: object) -> None:
        if self._folder is not None and _folder() != self._folder:
            with contextlib.suppress(OSError):
                os.chdir(self._folder)


def _folder() -> str | None:
    """The working directory, unless it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _initialize(setup: bytes) -> None:
    """Run the initializer of an executor, once in this process."""
    token = setup[:TOKEN_BYTES]
    if token not in _set_up:
        initializer, initargs = _unpickled(setup[TOKEN_BYTES:], "the initializer").value
        process = os.getpid()
        try:
            initializer(*initargs)
        except BaseException as error:  # SystemExit, too
            if os.getpid() != process:
                end_fork(error)
            # ProcessPoolExecutor logs the same.
            logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
            _set_up[token] = error
        else:
            _set_up[token] = None
    if (failed := _set_up[token]) is not None:
        raise CannotSetUp(f"{type(failed).__qualname__}: {text_of(failed)}") from failed


def _loaded(pickled: bytes) -> Any:
    """The function, unpickled again for each call, unless it keeps no state of a call and the program's variables have the same values."""
    found = _functions.get(pickled)
    if found is None or not found.is_current:
        found = _unpickled(pickled, "the function")
        if not is_reusable(found.value):
            return found.value
        _functions[pickled] = found
        if len(_functions) > _FUNCTIONS_MAX:
            _functions.popitem(last=False)
    else:
        found.use_main()
    _functions.move_to_end(pickled)
    return found.value


def _unpickled(given: bytes | memoryview, what: str) -> Rebuilt:
    pickled, arrays = split(memoryview(given))
    digests = digests_in(pickled)
    if digests and drop_outdated(digests, loaded_modules()):
        # Objects of the earlier modules are dropped, too.
        forget_namespaces()
        _functions.clear()
        _set_up.clear()
    try:
        made = rebuild(pickled, copied(arrays), digest)
    except ModuleNotFoundError as error:
        raise CannotImport(
            f"{what} needs the module '{error.name}', which the server cannot import ({sys.executable}): install it there, "
            f"define the function in the program itself, or send the module along by "
            f"cloudpickle.register_pickle_by_value({error.name})"
        ) from error
    except OSError as error:
        raise CannotLoad(
            f"{what} cannot be written to {tempfile.gettempdir()} on the server's machine: {error}; free some space, or set TMPDIR for the server"
        ) from error
    except OtherPython as error:
        raise OtherVersion(f"{what} cannot be unpickled there: {error}") from None
    except Exception as error:
        raise CannotLoad(
            f"{what} cannot be unpickled there: {type(error).__name__}: {text_of(error)}; the server needs the same modules, in the "
            "same versions, as the program"
        ) from error
    note_imports()
    if digests:
        warn_of_others(digests)
    return made


def _packed_error(error: Exception) -> bytes:
    """An exception of the function."""
    return ERROR + pack_raised(error, lambda one: format_traceback(one, one.__traceback__))
