"""Results of a function for many items, in order: `Grid.map` and `Executor.map` return them.

**Invariants.** `buffersize`, if given, bounds the number of submitted calls whose results were not taken, and `prefetch` bounds the bytes of
their arguments and results. An error ends the iterator after the results of the items before it, also an error of the iterable or of an item
that cannot be sent. An iterator that has ended cancels the calls that were not sent. One that has timed out or was interrupted ends the
others, too, and raises whenever a result is asked for.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

from ..calls.waits import end_of, quick
from ..display.bars import Bar, are_shown
from ..errors import ArgumentError, Cancelled, TimedOut
from ..pickling.packing import Room, named, pack_call, pack_chunk
from .future import RunFuture
from .prefetch import PrefetchWindow

_T = TypeVar("_T")

_NO_ITEM = object()


class MapResults(Generic[_T]):
    """Results in order: an iterator, also for ``async for``."""

    def __init__(
        self,
        submit: Callable[[Any, PrefetchWindow | None], RunFuture[Any]],
        items: Iterable[Any],
        buffersize: int | None,
        least: int,
        timeout: float | None,
        chunked: bool,
        bar: Bar | None = None,
    ) -> None:
        self._bar = bar
        self._futures: collections.deque[RunFuture[Any]] = collections.deque()
        self._window = None if buffersize is None else PrefetchWindow(least)
        self._submit = submit
        self._items = iter(items)
        self._buffersize, self._least = buffersize, least
        self._limit = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._chunked = chunked
        # Results of a chunk that were not taken, the last one first.
        self._rest: list[_T] = []
        # Once it has timed out or was interrupted: the error, as results are missing.
        self._broken: Callable[[], BaseException] | None = None
        try:
            self._submit_ahead(0)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        if not self._rest:
            if not self._futures:
                raise self._end() or StopIteration
            try:
                self._take(self._first().result(self._seconds_left()))
            except StopIteration as error:
                self.close()
                raise RuntimeError("a call of the map raised StopIteration") from error
            except BaseException as error:
                if self._fail(error):
                    raise self._late() from None
                raise
        return self._rest.pop()

    def __aiter__(self) -> AsyncIterator[_T]:
        return self

    async def __anext__(self) -> _T:
        if not self._rest:
            if not self._futures:
                raise self._end() or StopAsyncIteration
            try:
                self._take(await self._await_first())
            except asyncio.CancelledError:
                # The wait was cancelled, not the call: the next one waits for it again.
                raise
            except StopAsyncIteration as error:
                self.close()
                raise RuntimeError("a call of the map raised StopAsyncIteration") from error
            except BaseException as error:
                self._fail(error)
                raise
        return self._rest.pop()

    def close(self) -> None:
        """End it: calls that were not sent are cancelled."""
        self._rest.clear()
        # A generator that nothing else holds ends, too.
        self._items = iter(())
        while self._futures:
            self._futures.popleft().cancel()
        self._end_bar()

    def _fail(self, error: BaseException) -> bool:
        """End it after an error; whether it is that the time is over. Then calls that hang would keep their slots.

        After an interrupt, nothing waits for its calls any more.
        """
        late = [future for future in self._futures if not future.done()]
        is_limit = isinstance(error, (TimeoutError, concurrent.futures.TimeoutError))
        is_late = is_limit and bool(late) and late[0] is self._futures[0]
        if is_late:
            self._broken = self._late
        elif isinstance(error, KeyboardInterrupt):
            self._broken = _interrupted
        self.close()
        runner = next((future._runner for future in late), None)
        if runner is not None and self._broken is not None:
            runner.abort(late)
        return is_late

    def _end(self) -> BaseException | None:
        """Close the bar at the end; the error, if results are missing."""
        self._end_bar()
        return None if self._broken is None else self._broken()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()

    async def aclose(self) -> None:
        """End it, as `close`."""
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter ends, and has taken apart what this needs
            pass

    def _submit_ahead(self, taken: int) -> None:
        """Submit calls while there is room, if `taken` results are about to be taken."""
        while self._buffersize is None or len(self._futures) - taken < self._buffersize:
            if self._window is not None and self._window.is_full and len(self._futures) - taken >= self._least:
                return
            try:
                items = next(self._items, _NO_ITEM)
            except Exception as error:
                if self._buffersize is None:  # as executors of Python do
                    raise
                self._futures.append(_failed(error))
                self._items = iter(())
                return
            if items is _NO_ITEM:
                return
            future = self._submit(items, self._window)
            self._futures.append(future)
            if future._runner is None:  # it was not sent, and its error will be the last that the iterator gives
                self._items = iter(())

    def _first(self) -> RunFuture[Any]:
        """The first call, once others were submitted in its place."""
        if self._buffersize is not None:
            self._submit_ahead(1)
        return self._futures[0]

    async def _await_first(self) -> Any:
        first = self._first()
        await end_of(first, self._seconds_left())
        if not first.done():
            raise self._late()
        return first.result()

    def _late(self) -> TimedOut:
        error = TimedOut(f"a result of the map was not there within {self._limit} s; all its calls are ended")
        error.limit_seconds = self._limit
        return error

    def _take(self, result: Any) -> None:
        future = self._futures.popleft()
        if self._window is not None and future._runner is not None:
            future._runner.taken(self._window, future)
        self._rest = result[::-1] if self._chunked else [result]

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)


def mapped(
    pack: Callable[[bool], tuple[bytes, str]],
    iterables: tuple[Iterable[Any], ...],
    *,
    timeout: float | None,
    chunksize: int,
    buffersize: int | None,
    submit: Callable[..., RunFuture[Any]],
    room: Room,
    least: int = 1,
    progress: bool = False,
) -> MapResults[Any]:
    """Results of a function for each group of items of the iterables, in order. `pack` is called with true if several calls may get the function."""
    if chunksize < 1:
        raise ValueError(f"chunksize must be >= 1, got {chunksize}")
    function, name = pack(_length(iterables) != 1)
    calls = zip(*iterables)
    bar = Bar(name.rpartition(":")[2], "calls", _length(iterables)) if progress and are_shown() else None

    def call(args: Any, window: PrefetchWindow | None) -> RunFuture[Any]:
        try:
            packed = pack_call(name, args, {}, room) if chunksize == 1 else pack_chunk(name, args, room)
        except ArgumentError as error:
            return _failed(error)
        return submit(function, name, packed, window=window)

    if chunksize == 1:
        return MapResults(_counted(call, bar, lambda args: 1), calls, buffersize, least, timeout, False, bar)
    return MapResults(_counted(call, bar, len), _chunks(calls, chunksize), buffersize, least, timeout, True, bar)


def _chunks(calls: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Calls in chunks. An iterable that fails does so after the chunk that it had begun."""
    chunk = []
    try:
        for call in calls:
            chunk.append(call)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _failed(error: Exception) -> RunFuture[Any]:
    """A call that was not sent."""
    future: RunFuture[Any] = RunFuture()
    future.set_exception(error)
    return future


def _interrupted() -> BaseException:
    return named(Cancelled, "the map was interrupted, and its calls were ended; make it again for the results that are missing")


def _length(iterables: tuple[Iterable[Any], ...]) -> int | None:
    """How many calls there will be, if the iterables know it."""
    lengths = [len(one) for one in iterables if isinstance(one, Sized)]
    return min(lengths) if lengths and len(lengths) == len(iterables) else None


def _counted(
    submit: Callable[[Any, PrefetchWindow | None], RunFuture[Any]], bar: Bar | None, count: Callable[[Any], int]
) -> Callable[[Any, PrefetchWindow | None], RunFuture[Any]]:
    """Submit, and move the bar when the call has ended."""
    if bar is None:
        return submit

    def counted(items: Any, window: PrefetchWindow | None) -> RunFuture[Any]:
        calls, future = count(items), submit(items, window)
        future.add_done_callback(quick(lambda ended: None if ended.cancelled() else bar.advance(calls)))
        return future

    return counted
