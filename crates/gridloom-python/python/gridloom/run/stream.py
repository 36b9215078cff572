"""Values that a function yields on a server: `Grid.stream` returns them one by one.

**Invariants.** The function runs on an object of the grid, a process of its own. At most `buffersize` values that were not taken are
requested, so that the function runs ahead by no more. The object ends with the last value, an error, or `close`.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar

from .. import _gridloom
from ..calls.call_future import CallFuture
from ..calls.completion import Completions
from ..calls.waits import end_of
from ..common.checks import seconds
from ..common.session_objects import OfSession
from ..errors import GridloomError, TimedOut
from ..pickling.packing import Room, name_of, pack_call, pack_function, renamed, unpack
from ..pickling.protocol import END, STREAM

_T = TypeVar("_T")

# Given after the last value, in place of one.
_ENDED = object()


class Stream(OfSession, Generic[_T]):
    """Values that a function yields on a server: an iterator, also for ``async for``; `close` ends the function."""

    _why = "a gridloom.Stream is a function that runs for this process"
    _remedy = "pass its values"

    def __init__(
        self,
        raw: _gridloom.RawGrid,
        completions: Completions,
        room: Room,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        buffersize: int,
        timeout: float | None,
    ) -> None:
        self._object: _gridloom.RawObject | None = None
        self._begun: CallFuture | None = None
        self._asked: collections.deque[CallFuture] = collections.deque()
        if buffersize < 1:
            raise ValueError(f"buffersize must be >= 1, got {buffersize}")
        self._name, self._buffersize, self._completions = name_of(function), buffersize, completions
        self._limit = seconds("timeout", timeout)
        begun = (pack_function(function), pack_call(self._name, args, kwargs, room))
        self._object = raw.object(STREAM)
        try:
            self._next = self._object.method("next")
            self._begun = CallFuture(self._object.method("begin").submit(begun, {}, None, self._name), completions, None)
            self._ask()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        if self._object is None:
            raise StopIteration
        try:
            self._asked[0].get(self._limit)
        except Exception as error:  # raised again by `_take`
            if isinstance(error, TimedOut) and error.is_wait and not self._asked[0].done():
                raise self._timed_out() from None
        value = self._take()
        if value is _ENDED:
            raise StopIteration
        return value  # type: ignore[no-any-return]

    def __aiter__(self) -> AsyncIterator[_T]:
        return self

    async def __anext__(self) -> _T:
        if self._object is None:
            raise StopAsyncIteration
        first = self._asked[0]
        await end_of(first, self._limit)
        if not first.done():
            raise self._timed_out()
        value = self._take()
        if value is _ENDED:
            raise StopAsyncIteration
        return value  # type: ignore[no-any-return]

    def __enter__(self) -> Stream[_T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the function where it is, by ending its process; values that were not taken are lost."""
        with contextlib.suppress(GridloomError):  # the session may be closed
            while self._asked:
                self._asked.pop().cancel()
            if self._begun is not None:
                self._begun.cancel()
            if self._object is not None:
                self._object.end()
        self._object = None

    async def aclose(self) -> None:
        """End it, as `close`."""
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter ends, and has taken apart what this needs
            pass

    def _ask(self) -> None:
        while len(self._asked) < self._buffersize:
            self._asked.append(CallFuture(self._next.submit((), {}, None, self._name), self._completions, None))

    def _take(self) -> Any:
        """The value of the first call, which has ended, once the next one is asked for; `_ENDED` after the last one."""
        try:
            given = self._asked.popleft().get()
            if given != END:
                value = unpack(given, self._name)
                self._ask()
                return value
            assert self._begun is not None, "a value was asked for"
            self._begun.get()  # what could not be loaded gives no values
        except Exception as error:
            raise self._failed(error) from error.__cause__
        self._asked.clear()
        self.close()
        return _ENDED

    def _failed(self, error: Exception) -> BaseException:
        """The error for the program, after which there are no more values."""
        assert self._begun is not None, "a value was asked for"
        try:
            self._begun.get(0)
        except Exception as cause:  # the function or an argument could not be loaded
            if not (isinstance(cause, TimedOut) and cause.is_wait):
                error = cause
        self.close()
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            error = RuntimeError(f"{self._name} raised {type(error).__name__}")
        return renamed(error, self._name).with_traceback(None)

    def _timed_out(self) -> TimedOut:
        error = TimedOut(f"no value of {self._name} was there within {self._limit} s; a later one may come")
        error.limit_seconds = self._limit
        return error
