"""Ends of plain calls, as the session tells them: one thread takes them in and tells each to what listens for it.

**Invariants.** A session tells each end once, so nothing else calls `RawGrid.await_ends`. No lock is held while a listener is
told. The thread runs no code of the program, which might wait or take long: other threads do (`callbacks`, `loads`). No error ends it.

A simulated session has no thread here: virtual time passes while the program waits, in `Ends.drive`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from . import _gridloom
from ._conditions import Condition
from ._crew import Crew, InnerThread, attempt, begin, join
from ._errors import UsageError, WaitTimedOut
from ._results import Results
from ._unread import Unread

# How long the thread looks for ends at a time, and how long it stays when nothing is under way, seconds.
_SLICE = 0.1
_LINGER = 0.5
# Threads that unpickle results.
_LOADS_MAX = 8
# How long the end of a session waits for callbacks that may wait for it, seconds.
_SETTLE = 1.0
# When results of a simulated group are looked for: after so many virtual seconds at first, and each time later by that factor.
_LOOK_AFTER = 1e-4
_LOOK_LATER = 1.02


class Listener(Protocol):
    """What is told of ends."""

    def _on_ends(self, serials: list[int]) -> None:
        """Calls of these serial numbers have ended."""

    def _on_closed(self) -> None:
        """The session is closed, and tells no more ends."""


class Ends:
    """Ends of one session.

    Attributes
    ----------
    simulated : bool
        Whether the session is.
    results : Results
        Results of groups that are waited for.
    unread : Unread
        Errors of calls that the program does not read.
    callbacks, loads : Crew
        What calls callbacks of the program, one after another, and what unpickles results.
    looks : list of weak references to methods
        Are called from time to time while calls are under way.
    """

    def __init__(self, raw: _gridloom.RawGrid) -> None:
        self._raw = raw
        self.simulated = raw.simulated
        self.results = Results(raw.simulated)
        self.unread = Unread()
        self.callbacks = Crew("gridloom-callbacks", 1)
        self.loads = Crew("gridloom-loads", _LOADS_MAX, InnerThread)
        self.looks: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._changed = Condition()
        self._listeners: dict[int, Listener] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._closed = False

    def note(self, pending: _gridloom.RawPending | _gridloom.RawBegun, serial: int, listener: Listener) -> bool:
        """Tell the listener of the end of that call, or that the session was closed; false if it is closed already."""
        with self._changed:
            if self._closed:
                return False
            self._listeners[serial] = listener
            self._staff()
            self._changed.notify_all()
        try:
            pending.note_end()
        except UsageError:  # its result was taken, and the listener knows; or the session was closed, and is about to say so
            pass
        return True

    def drop(self, serial: int) -> None:
        """Tell nothing of that call."""
        with self._changed:
            self._listeners.pop(serial, None)

    def now(self) -> float:
        """The session's clock, seconds."""
        return self._raw.now()

    def drive(self, limit: float | None) -> None:
        """Wait, in a simulated session, until an end was told.

        Parameters
        ----------
        limit : float or None
            How long at most, virtual seconds.

        Raises
        ------
        WaitTimedOut
            If nothing has ended by then.
        UsageError
            If the session is closed.
        """
        if limit is None and not self._listeners and self.results.await_only():
            return
        deadline = None if limit is None else self._raw.now() + limit
        step = _LOOK_AFTER
        while not self.results.look():
            left = float("inf") if deadline is None else max(deadline - self._raw.now(), 0.0)
            try:
                self._tell(self._raw.await_ends(min(step, left) if self.results else left))
                return
            except WaitTimedOut:
                if left <= step and not self.results.look():
                    raise
            step *= _LOOK_LATER

    def stop(self) -> None:
        """End the thread: the session is about to be closed."""
        with self._changed:
            self._stopped = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            join(thread)
        self.loads.settle(_SETTLE)
        self.callbacks.settle(_SETTLE)
        self.results.stop()

    def close(self) -> None:
        """Tell all that listen that the session was closed."""
        with self._changed:
            self._stopped = self._closed = True
            left = dict.fromkeys(self._listeners.values())
            self._listeners.clear()
        for listener in left:
            attempt(listener._on_closed)
        self.results.close()

    def settle(self) -> None:
        """Wait until all callbacks were called."""
        self.loads.settle(None)
        self.callbacks.settle(None)

    def forget(self) -> None:
        """In a forked child nothing of it works."""
        self._changed = Condition()
        self._stopped = self._closed = True
        self._listeners.clear()
        self.callbacks.forget()
        self.loads.forget()
        self.results.forget()

    def _staff(self) -> None:
        """Have a thread. An interrupt may have come between making and starting it."""
        if self._stopped or self.simulated or (self._thread is not None and self._thread.ident is not None):
            return
        self._thread = InnerThread(target=self._watch, name="gridloom-ends", daemon=True)
        begin(self._thread)

    def _watch(self) -> None:
        """Wait for ends, as long as there is something to wait for."""
        while True:
            with self._changed:
                if not self._listeners and not self._stopped:
                    self._changed.wait_for(lambda: self._listeners or self._stopped, _LINGER)
                if not self._listeners or self._stopped:
                    self._thread = None
                    return
            ended = []
            try:
                ended = self._raw.await_ends(_SLICE)
            except WaitTimedOut:
                pass
            except UsageError:
                self.close()
                return
            self._tell(ended)
            for weak in self.looks:
                if (look := weak()) is not None:
                    attempt(look)
                    # Held no longer than it takes: this may be the last reference.
                    del look

    def _tell(self, ended: list[int]) -> None:
        told: dict[Listener, list[int]] = {}
        with self._changed:
            for serial in ended:
                if (listener := self._listeners.pop(serial, None)) is not None:
                    told.setdefault(listener, []).append(serial)
        for listener, serials in told.items():
            attempt(functools.partial(listener._on_ends, serials))
