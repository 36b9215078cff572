"""Waits for futures and handles: ``gridloom.as_completed``, ``gridloom.wait``, and ``await``.

**Invariants.** No wait polls. A real grid never blocks an event loop.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import Any, Generic, NamedTuple, Protocol, TypeGuard, TypeVar

from ..common.checks import seconds
from ..common.condition import Condition
from ..errors import Cancelled, TimedOut, UsageError
from .completion import Completions
from .worker_slot import waiting

_F = TypeVar("_F")
_C = TypeVar("_C", bound=Callable[..., object])


def quick(callback: _C) -> _C:
    """Mark a callback of Gridloom's own, which never waits: it is called at once."""
    setattr(callback, "_is_quick", True)
    return callback


class Running(Protocol):
    """A `Future` or a `Handle`."""

    @property
    def _completions(self) -> Completions: ...

    def get(self) -> Any: ...

    def _when_ended(self, callback: Callable[[], None]) -> None:
        """Call a function, in any thread, once it has ended: now if it has."""

    def _drop(self, callback: Callable[[], None]) -> None:
        """Do not call it."""


def as_completed(futures: Iterable[_F], timeout: float | None = None) -> Completed[_F]:
    """Yield each of these calls as soon as it has ended, like ``concurrent.futures.as_completed``.

    Parameters
    ----------
    futures : iterable of Future or Handle
        Running calls: of `Function.submit`, in groups, of `Grid.run` and of executors, also those of ``concurrent.futures``.
        A call that is listed twice is yielded once.
    timeout : float, optional
        Seconds from now in which all have to end; virtual ones on a simulated grid.

    Returns
    -------
    Completed
        For a ``for`` loop, or an ``async for`` loop.

    Raises
    ------
    TimedOut
        By the iterator: a kind of ``TimeoutError``. The calls keep running.
    UsageError
        If something else is given, or calls of a simulated grid with others.

    Notes
    -----
    The result of a handle has ended when it is here. What its group has recorded is launched for that, as by `Handle.get`.
    """
    return Completed(futures, timeout)


class Completed(Generic[_F]):
    """Iterator of `as_completed` over calls as they end, also for ``async for``."""

    def __init__(self, futures: Iterable[_F], timeout: float | None = None) -> None:
        self._left: dict[_F, Callable[..., None]] = {}
        self._limit = seconds("timeout", timeout)
        self._ended: collections.deque[_F] = collections.deque()
        self._changed = Condition()
        self._loops: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()
        every = dict.fromkeys(futures)
        self._number = len(every)
        self._simulated = _simulated(every)
        self._deadline = None if self._limit is None else self._now() + self._limit
        for future in every:
            notify = self._left[future] = _notifier(weakref.ref(self), future)
            if _is_plain(future):
                future.add_done_callback(notify)
            else:
                _running(future)._when_ended(notify)

    def __iter__(self) -> Iterator[_F]:
        return self

    def __next__(self) -> _F:
        if self._simulated is not None:
            return self._drive(self._simulated)
        with self._changed:
            if not self._left:
                raise StopIteration
            if not self._ended:
                with waiting():
                    self._changed.wait_for(lambda: self._ended, self._seconds_left())
            if not self._ended:
                raise self._timed_out()
            return self._take()

    def __aiter__(self) -> AsyncIterator[_F]:
        return self

    async def __anext__(self) -> _F:
        if self._simulated is not None:
            try:
                return self._drive(self._simulated)
            except StopIteration:
                raise StopAsyncIteration from None
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if not self._left:
                    raise StopAsyncIteration
                if self._ended:
                    return self._take()
                left = self._seconds_left()
                if left == 0.0:
                    raise self._timed_out()
                woken: asyncio.Future[None] = loop.create_future()
                self._loops.add((loop, woken))
            try:
                with waiting():
                    await asyncio.wait([woken], timeout=left)
            finally:
                with self._changed:
                    self._loops.discard((loop, woken))

    def __del__(self) -> None:
        for future, notify in self._left.items():
            if not _is_plain(future):
                _running(future)._drop(notify)

    def _drive(self, completions: Completions) -> _F:
        """The next one of a simulated grid, for which virtual time passes."""
        if not self._left:
            raise StopIteration
        while not self._ended:
            try:
                completions.drive(self._seconds_left())
            except TimedOut:
                raise self._timed_out() from None
        return self._take()

    def _take(self) -> _F:
        future = self._ended.popleft()
        del self._left[future]
        return future

    def _take_all(self) -> list[_F]:
        with self._changed:
            return [self._take() for _ in range(len(self._ended))]

    def _add(self, future: _F) -> None:
        with self._changed:
            self._ended.append(future)
            self._changed.notify()
            loops = list(self._loops)
            self._loops.clear()
        for loop, woken in loops:
            _wake(loop, woken)

    def _now(self) -> float:
        return time.monotonic() if self._simulated is None else self._simulated.now()

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - self._now(), 0.0)

    def _timed_out(self) -> TimedOut:
        error = TimedOut(f"{len(self._left)} of {self._number} calls have not ended within {self._limit} s; they are still running")
        error.limit_seconds = self._limit
        return error


class DoneAndNotDone(NamedTuple):
    """Result of `wait`.

    Attributes
    ----------
    done : set
        Calls that have ended or were cancelled.
    not_done : set
        The others.
    """

    done: set[Any]
    not_done: set[Any]


def wait(futures: Iterable[Any], timeout: float | None = None, return_when: str = ALL_COMPLETED) -> DoneAndNotDone:
    """Wait for calls, like ``concurrent.futures.wait``.

    Parameters
    ----------
    futures : iterable of Future or Handle
        As for `as_completed`.
    timeout : float, optional
        How long to wait at most, seconds; virtual ones on a simulated grid.
    return_when : str, optional
        One of the names of ``concurrent.futures``: ``ALL_COMPLETED``, ``FIRST_COMPLETED``, or ``FIRST_EXCEPTION``, which is when
        a call has failed that was not cancelled, or all have ended.

    Returns
    -------
    DoneAndNotDone
        A named tuple of two sets, `done` and `not_done`.

    Raises
    ------
    UsageError
        If `return_when` is none of these, or as by `as_completed`.

    Notes
    -----
    It raises no error of a call: read the results. A failed call of a group counts as read.
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise UsageError(f"return_when is ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION, got {return_when!r}")
    every = set(futures)
    completed = Completed(every, timeout)
    done = set()
    try:
        for future in completed:
            done.add(future)
            if return_when == FIRST_COMPLETED or (return_when == FIRST_EXCEPTION and _has_failed(future)):
                break
    except TimedOut:
        pass
    done.update(completed._take_all())
    return DoneAndNotDone(done, every - done)


async def awaited(future: Any) -> Any:
    """Await a future or a handle; a future whose wait is cancelled is cancelled too, as those of asyncio are."""
    if not _is_plain(future) and _running(future)._completions.simulated:
        return future.get()
    try:
        await end_of(future)
    except asyncio.CancelledError:
        if (abort := getattr(future, "abort", None) or getattr(future, "cancel", None)) is not None:
            abort()
        raise
    try:
        return future.get()
    except Cancelled:  # the call was; it is not the wait that was cancelled
        raise
    except concurrent.futures.CancelledError:
        raise asyncio.CancelledError from None


async def end_of(future: Any, timeout: float | None = None) -> None:
    """Wait for the end of a future or a handle of a real grid, for at most `timeout` seconds."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    @quick
    def notify(*_: Any) -> None:
        _wake(loop, ended)

    plain = _is_plain(future)
    (future.add_done_callback if plain else future._when_ended)(notify)
    try:
        with waiting():
            await asyncio.wait([ended], timeout=timeout)
    finally:
        if not plain:
            future._drop(notify)


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    def notify() -> None:
        if not woken.done():
            woken.set_result(None)

    try:
        loop.call_soon_threadsafe(notify)
    except RuntimeError:  # the loop is closed, and nothing waits in it
        pass


def _notifier(completed: weakref.ref[Completed[_F]], future: _F) -> Callable[..., None]:
    @quick
    def notify(*_: Any) -> None:
        if (waits := completed()) is not None:
            waits._add(future)

    return notify


def _simulated(futures: Iterable[Any]) -> Completions | None:
    """Ends of the simulated session that all these are of; ``None`` if they are of real ones."""
    found = {None if _is_plain(one) else _running(one)._completions for one in futures}
    simulated = [one for one in found if one is not None and one.simulated]
    if simulated and len(found) > 1:
        raise UsageError("calls of a simulated grid are waited for without those of other grids: their time is another")
    return simulated[0] if simulated else None


def _running(future: Any) -> Running:
    if not hasattr(future, "_when_ended"):
        raise UsageError(f"expected gl.Future, gl.Handle or a future of concurrent.futures, got {type(future).__name__}")
    running: Running = future
    return running


def _is_plain(future: Any) -> TypeGuard[concurrent.futures.Future[Any]]:
    """Whether it is a future of the standard library alone, or of `Grid.run`: neither needs a session to notify its end."""
    return isinstance(future, concurrent.futures.Future) and not hasattr(future, "_when_ended")


def _has_failed(future: Any) -> bool:
    try:
        future.result() if _is_plain(future) else future.get()
    except concurrent.futures.CancelledError:
        return False
    except Exception:
        return True
    return False
