"""Results of groups that are waited for beside the program. The session tells no ends of them, so that threads wait.

**Invariants.** No lock is held while a callback is called. Up to `_THREADS_MAX` results, each has a thread, which the end wakes.
The threads take turns with more, so that one is told a little late.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._conditions import Condition
from ._crew import begin, join
from ._errors import WaitTimedOut

if TYPE_CHECKING:
    from ._group import Handle

_THREADS_MAX = 64
# How long a thread waits for one result while others have no thread, and while all have one, seconds.
_TURN = 0.02
_SLICE = 0.1
# How long a thread stays when there is nothing to wait for, seconds.
_LINGER = 0.5


class Results:
    """Results of one session's groups."""

    def __init__(self, simulated: bool) -> None:
        self._simulated = simulated
        self._changed = Condition()
        self._callbacks: dict[Handle, list[Callable[[], None]]] = {}
        # Those that no thread waits for now.
        self._queue: collections.deque[Handle] = collections.deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._stopped = False
        self._closed = False

    def __bool__(self) -> bool:
        """Whether there is a result to wait for."""
        return bool(self._callbacks)

    def note(self, handle: Handle, callback: Callable[[], None]) -> None:
        """Have a function called once the result is here, or it is known that there is none."""
        with self._changed:
            told = handle._ended or self._closed
            if not told:
                callbacks = self._callbacks.setdefault(handle, [])
                callbacks.append(callback)
                if len(callbacks) == 1:
                    self._queue.append(handle)
                    self._staff()
        if told:
            callback()

    def drop(self, handle: Handle, callback: Callable[[], None]) -> None:
        """Do not call it."""
        with self._changed:
            callbacks = self._callbacks.get(handle, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._callbacks.pop(handle, None)

    def await_only(self) -> bool:
        """Wait for the result of a simulated session; whether there was just one."""
        with self._changed:
            handles = list(self._callbacks)
        if len(handles) != 1:
            return False
        _ended(handles[0], None)
        self._tell(handles[0])
        return True

    def look(self) -> bool:
        """Tell of the results of a simulated session that are here; whether there were any."""
        with self._changed:
            handles = list(self._callbacks)
            self._queue.clear()
        found = [handle for handle in handles if _ended(handle, 0.0)]
        for handle in found:
            self._tell(handle)
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
        """Tell all: the session was closed."""
        with self._changed:
            self._stopped = self._closed = True
            handles = list(self._callbacks)
        for handle in handles:
            self._tell(handle)

    def forget(self) -> None:
        """In a forked child nothing of it works."""
        self._changed = Condition()
        self._stopped = self._closed = True
        self._callbacks.clear()
        self._queue.clear()
        self._threads.clear()

    def _staff(self) -> None:
        """Have threads for what is in the queue."""
        if self._simulated or self._stopped:
            return
        if self._idle < len(self._queue) and len(self._threads) < _THREADS_MAX:
            thread = threading.Thread(target=self._work, name="gridloom-results", daemon=True)
            self._threads.add(thread)
            try:
                begin(thread)
            except BaseException:  # an interrupt, say: it may not have begun
                self._threads.discard(thread)
                raise
        self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._queue or self._stopped, _LINGER)
                self._idle -= 1
                if not self._queue or self._stopped:
                    self._threads.discard(threading.current_thread())
                    return
                turn = [self._queue.popleft()]
            self._wait(turn.pop())

    def _wait(self, handle: Handle) -> None:
        """Wait for a result, for one turn. A function of its own, so that an idle thread holds no handle."""
        with self._changed:
            if handle not in self._callbacks:
                return
            limit = _TURN if self._queue else _SLICE
        if _ended(handle, limit):
            self._tell(handle)
            return
        with self._changed:
            if handle in self._callbacks:
                self._queue.append(handle)

    def _tell(self, handle: Handle) -> None:
        with self._changed:
            callbacks = self._callbacks.pop(handle, [])
        for callback in callbacks:
            callback()


def _ended(handle: Handle, limit: float | None) -> bool:
    """Whether a result is here within so many seconds, or it is known by then that there is none."""
    try:
        handle._fetch(limit)
    except WaitTimedOut:
        return False
    except Exception:  # the program's own `get` raises it
        pass
    return True
