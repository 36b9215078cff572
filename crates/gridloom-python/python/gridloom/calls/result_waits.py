"""Threads that wait for results of groups while the program does something else. The session reports no completions of these results.

**Invariants.** No lock is held while a callback runs. Up to `_THREADS_MAX` results have a thread each, which wakes as soon as the result is
there. With more results the threads take turns, and a callback may run a little late.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any, Protocol

from ..common.condition import Condition
from ..common.thread_pool import join, start
from ..errors import TimedOut

_THREADS_MAX = 64
# How long a thread waits for one result while others have no thread, and while all have one, seconds.
_TURN_SECONDS = 0.02
_SLICE_SECONDS = 0.1
# How long a thread stays when there is nothing to wait for, seconds.
_IDLE_SECONDS = 0.5


class Result(Protocol):
    """A result that can be fetched: a `Handle`."""

    _ended: bool

    def _fetch(self, limit: float | None) -> Any:
        """Wait for the value, for at most `limit` seconds, and return it."""


class ResultWaits:
    """Results of one session's groups that something waits for."""

    def __init__(self, simulated: bool) -> None:
        self._simulated = simulated
        self._changed = Condition()
        self._callbacks: dict[Result, list[Callable[[], None]]] = {}
        # Results that no thread waits for now.
        self._queue: collections.deque[Result] = collections.deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._stopped = False
        self._closed = False

    def __bool__(self) -> bool:
        """Whether there is a result to wait for."""
        return bool(self._callbacks)

    def subscribe(self, result: Result, callback: Callable[[], None]) -> None:
        """Call a function once the result is here, or once it is known that there will be none."""
        with self._changed:
            is_over = result._ended or self._closed
            if not is_over:
                callbacks = self._callbacks.setdefault(result, [])
                callbacks.append(callback)
                if len(callbacks) == 1:
                    self._queue.append(result)
                    self._ensure_thread()
        if is_over:
            callback()

    def unsubscribe(self, result: Result, callback: Callable[[], None]) -> None:
        """Do not call the function."""
        with self._changed:
            callbacks = self._callbacks.get(result, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._callbacks.pop(result, None)

    def await_only(self) -> bool:
        """Wait for the result of a simulated session if there is just one; whether there was."""
        with self._changed:
            results = list(self._callbacks)
        if len(results) != 1:
            return False
        _has_ended(results[0], None)
        self._notify(results[0])
        return True

    def poll(self) -> bool:
        """Call the callbacks of the results of a simulated session that are here; whether there were any."""
        with self._changed:
            results = list(self._callbacks)
            self._queue.clear()
        found = [result for result in results if _has_ended(result, 0.0)]
        for result in found:
            self._notify(result)
        return bool(found)

    def stop(self) -> None:
        """End the threads: the session is about to be closed."""
        with self._changed:
            self._stopped = True
            self._queue.clear()
            threads = list(self._threads)
            self._changed.notify_all()
        for thread in threads:
            if thread is not threading.current_thread():
                join(thread)

    def close(self) -> None:
        """Call all callbacks: the session was closed."""
        with self._changed:
            self._stopped = self._closed = True
            results = list(self._callbacks)
        for result in results:
            self._notify(result)

    def reset_after_fork(self) -> None:
        """Drop everything: in a forked child nothing of it works."""
        self._changed = Condition()
        self._stopped = self._closed = True
        self._callbacks.clear()
        self._queue.clear()
        self._threads.clear()

    def _ensure_thread(self) -> None:
        """Have threads for the results in the queue."""
        if self._simulated or self._stopped:
            return
        if self._idle < len(self._queue) and len(self._threads) < _THREADS_MAX:
            thread = threading.Thread(target=self._work, name="gridloom-results", daemon=True)
            self._threads.add(thread)
            try:
                start(thread)
            except BaseException:  # an interrupt, say: it may not have begun
                self._threads.discard(thread)
                raise
        self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._queue or self._stopped, _IDLE_SECONDS)
                self._idle -= 1
                if not self._queue or self._stopped:
                    self._threads.discard(threading.current_thread())
                    return
                turn = [self._queue.popleft()]
            self._wait(turn.pop())

    def _wait(self, result: Result) -> None:
        """Wait for a result, for one turn. A function of its own, so that an idle thread holds no reference to a result."""
        with self._changed:
            if result not in self._callbacks:
                return
            limit = _TURN_SECONDS if self._queue else _SLICE_SECONDS
        if _has_ended(result, limit):
            self._notify(result)
            return
        with self._changed:
            if result in self._callbacks:
                self._queue.append(result)

    def _notify(self, result: Result) -> None:
        with self._changed:
            callbacks = self._callbacks.pop(result, [])
        for callback in callbacks:
            callback()


def _has_ended(result: Result, limit: float | None) -> bool:
    """Whether a result is here within `limit` seconds, or it is known by then that there is none."""
    try:
        result._fetch(limit)
    except TimedOut as error:
        return not error.is_wait
    except Exception:  # the program's own `get` raises it
        pass
    return True
