"""Ends of plain calls, as the session tells them: one thread takes them in and tells each to what listens for it.

**Invariants.** A session tells each end once, so nothing else calls `RawGrid.await_ends`. No lock is held while a listener is
told.

A simulated session has no thread here: virtual time passes while the program waits, in `Ends.drive`.
"""

from __future__ import annotations

import threading
from typing import Protocol

from . import _gridloom
from ._errors import UsageError, WaitTimedOut
from ._results import Results
from ._unread import Unread

# How long the thread looks for ends at a time, and how long it stays when nothing is under way, seconds.
_SLICE = 0.1
_LINGER = 0.5
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
    """

    def __init__(self, raw: _gridloom.RawGrid) -> None:
        self._raw = raw
        self.simulated = raw.simulated
        self.results = Results(raw.simulated)
        self.unread = Unread()
        self._changed = threading.Condition()
        self._listeners: dict[int, Listener] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._closed = False

    def note(self, pending: _gridloom.RawPending, serial: int, listener: Listener) -> None:
        """Tell the listener of the end of that call, or that the session was closed."""
        with self._changed:
            closed = self._closed
            if not closed:
                self._listeners[serial] = listener
                if self._thread is None and not self._stopped and not self.simulated:
                    self._thread = threading.Thread(target=self._watch, name="gridloom-ends", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        if closed:
            listener._on_closed()
            return
        try:
            pending.note_end()
        except UsageError:  # its result was taken, and the listener knows; or the session was closed, and is about to say so
            pass

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
            thread.join()
        self.results.stop()

    def close(self) -> None:
        """Tell all that listen that the session was closed."""
        with self._changed:
            self._stopped = self._closed = True
            left = dict.fromkeys(self._listeners.values())
            self._listeners.clear()
        for listener in left:
            listener._on_closed()
        self.results.close()

    def forget(self) -> None:
        """In a forked child nothing of it works."""
        self._changed = threading.Condition()
        self._stopped = self._closed = True
        self._listeners.clear()
        self.results.forget()

    def _watch(self) -> None:
        """Wait for ends, as long as there is something to wait for."""
        while True:
            with self._changed:
                if not self._listeners and not self._stopped:
                    self._changed.wait_for(lambda: self._listeners or self._stopped, _LINGER)
                if not self._listeners or self._stopped:
                    self._thread = None
                    return
            try:
                ended = self._raw.await_ends(_SLICE)
            except WaitTimedOut:
                continue
            except UsageError:
                self.close()
                return
            self._tell(ended)

    def _tell(self, ended: list[int]) -> None:
        told: dict[Listener, list[int]] = {}
        with self._changed:
            for serial in ended:
                if (listener := self._listeners.pop(serial, None)) is not None:
                    told.setdefault(listener, []).append(serial)
        for listener, serials in told.items():
            listener._on_ends(serials)
