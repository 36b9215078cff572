"""Completions of plain calls: one thread receives them from the session and notifies the listener of each call.

**Invariants.** The session reports each completion once, so nothing else calls `RawGrid.await_ends`. No lock is held while a listener is
notified. The thread runs no code of the program, which might wait or take long: other threads do (`callbacks`, `unpickling`). No error ends
the thread.

A simulated session has no thread here: virtual time passes while the program waits, in `Completions.drive`.
"""

from __future__ import annotations

import functools
import threading
from typing import Protocol

from .. import _gridloom
from ..common.condition import Condition
from ..common.thread_pool import InnerThread, ThreadPool, attempt, join, start
from ..errors import TimedOut, UsageError
from .result_waits import ResultWaits
from .unread_errors import UnreadErrors

# How long the thread waits for completions at a time, and how long it stays when no call is running, seconds.
_SLICE_SECONDS = 0.1
_IDLE_SECONDS = 0.5
# Threads that unpickle results.
_UNPICKLING_THREADS_MAX = 8
# How long closing a session waits for callbacks that may wait for the session itself, seconds.
_SETTLE_SECONDS = 1.0
# When a simulated session looks for results of groups: after this virtual time at first, then each time later by the factor.
_POLL_SECONDS = 1e-4
_POLL_FACTOR = 1.02


class Listener(Protocol):
    """Receives completions."""

    def _on_ends(self, serials: list[int]) -> None:
        """Calls of these serial numbers have ended."""

    def _on_closed(self) -> None:
        """The session is closed and reports no more completions."""


class Completions:
    """Completions of the calls of one session.

    Attributes
    ----------
    simulated : bool
        Whether the session is simulated.
    results : ResultWaits
        Results of groups that something waits for.
    unread : UnreadErrors
        Errors of calls that the program does not read.
    callbacks, unpickling : ThreadPool
        Threads for callbacks of the program, one after another, and for unpickling results.
    """

    def __init__(self, raw: _gridloom.RawGrid) -> None:
        self._raw = raw
        self.simulated = raw.simulated
        self.results = ResultWaits(raw.simulated)
        self.unread = UnreadErrors()
        self.callbacks = ThreadPool("gridloom-callbacks", 1)
        self.unpickling = ThreadPool("gridloom-loads", _UNPICKLING_THREADS_MAX, InnerThread)
        self._changed = Condition()
        self._listeners: dict[int, Listener] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._closed = False

    def subscribe(self, pending: _gridloom.RawPending | _gridloom.RawPendingNames, serial: int, listener: Listener) -> bool:
        """Notify the listener when that call ends or the session is closed; false if it is closed already."""
        with self._changed:
            if self._closed:
                return False
            self._listeners[serial] = listener
            self._ensure_thread()
            self._changed.notify_all()
        try:
            pending.note_end()
        except UsageError:  # its result was taken, and the listener knows; or the session was closed, and is about to say so
            pass
        return True

    def unsubscribe(self, serial: int) -> None:
        """Notify nobody of that call."""
        with self._changed:
            self._listeners.pop(serial, None)

    def now(self) -> float:
        """The session's clock, seconds."""
        return self._raw.now()

    def drive(self, limit: float | None) -> None:
        """Let virtual time pass in a simulated session until a call has ended.

        Parameters
        ----------
        limit : float or None
            How long at most, virtual seconds.

        Raises
        ------
        TimedOut
            If nothing has ended by then.
        UsageError
            If the session is closed.
        """
        if limit is None and not self._listeners and self.results.await_only():
            return
        deadline = None if limit is None else self._raw.now() + limit
        step = _POLL_SECONDS
        while not self.results.poll():
            left = float("inf") if deadline is None else max(deadline - self._raw.now(), 0.0)
            try:
                self._notify(self._raw.await_ends(min(step, left) if self.results else left))
                return
            except TimedOut:
                if left <= step and not self.results.poll():
                    raise
            step *= _POLL_FACTOR

    def stop(self) -> None:
        """End the thread: the session is about to be closed."""
        with self._changed:
            self._stopped = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            join(thread)
        self.unpickling.settle(_SETTLE_SECONDS)
        self.callbacks.settle(_SETTLE_SECONDS)
        self.results.stop()

    def close(self) -> None:
        """Notify all listeners that the session was closed."""
        with self._changed:
            self._stopped = self._closed = True
            left = dict.fromkeys(self._listeners.values())
            self._listeners.clear()
        for listener in left:
            attempt(listener._on_closed)
        self.results.close()

    def settle(self) -> None:
        """Wait until all callbacks have run."""
        self.unpickling.settle(None)
        self.callbacks.settle(None)

    def reset_after_fork(self) -> None:
        """Drop everything: in a forked child nothing of it works."""
        self._changed = Condition()
        self._stopped = self._closed = True
        self._listeners.clear()
        self.callbacks.reset()
        self.unpickling.reset()
        self.results.reset_after_fork()

    def _ensure_thread(self) -> None:
        """Have a thread. An interrupt may have arrived between making and starting it."""
        if self._stopped or self.simulated or (self._thread is not None and self._thread.ident is not None):
            return
        self._thread = InnerThread(target=self._watch, name="gridloom-ends", daemon=True)
        start(self._thread)

    def _watch(self) -> None:
        """Receive completions for as long as a call is running."""
        while True:
            with self._changed:
                if not self._listeners and not self._stopped:
                    self._changed.wait_for(lambda: self._listeners or self._stopped, _IDLE_SECONDS)
                if not self._listeners or self._stopped:
                    self._thread = None
                    return
            ended = []
            try:
                ended = self._raw.await_ends(_SLICE_SECONDS)
            except TimedOut:
                pass
            except UsageError:
                self.close()
                return
            self._notify(ended)

    def _notify(self, ended: list[int]) -> None:
        by_listener: dict[Listener, list[int]] = {}
        with self._changed:
            for serial in ended:
                if (listener := self._listeners.pop(serial, None)) is not None:
                    by_listener.setdefault(listener, []).append(serial)
        for listener, serials in by_listener.items():
            attempt(functools.partial(listener._on_ends, serials))
