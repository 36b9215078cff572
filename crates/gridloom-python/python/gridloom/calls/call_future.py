"""Futures of calls of declared functions, and of puts, gets and waits of shared names."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from .. import _gridloom
from ..common.checks import seconds
from ..common.condition import Condition
from ..errors import Cancelled, TimedOut, UsageError
from .completion import Completions
from .future import Future
from .worker_slot import waiters


class CallFuture(Future[Any]):
    """A running call of a declared function, or a running put, get or wait of a shared name."""

    def __init__(self, raw: _gridloom.RawPending | _gridloom.RawPendingNames, completions: Completions, name: str | None) -> None:
        self._raw = raw
        self._completions, self._callback_pool = completions, completions.callbacks
        # The number under which the session reports the end, and functions to call then; none once they were called.
        self._watch = threading.RLock()
        self._serial: int | None = None
        self._callbacks: list[Callable[[], None]] | None = []
        self._ended = False
        # Without a name it is a part of something that reports errors itself.
        self._name, self._is_read = name, name is None
        self._value: Any = None
        self._error: BaseException | None = None
        if name is not None:
            completions.unread.follow(self)

    # The state that the standard library reads under the condition is kept from its first use on. Most calls end before.
    _made = False
    _standard: threading.Condition
    _state = "RUNNING"
    _result = None
    _exception = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        with self._watch:
            if self._made:
                return self._standard
            if self._completions.simulated:
                raise UsageError(
                    "a call of a simulated grid is waited for by gridloom.wait and as_completed: its time is virtual"
                )
            self._standard = Condition()
            self._waiters: list[Any] = waiters()
            self._done_callbacks: list[Any] = []
            self._made = True
        self._when_ended(self._keep_end)
        return self._standard

    def _keep_end(self) -> None:
        self._fetch(None)
        if self._error is None:
            self.set_result(self._value)
        else:
            self.set_exception(self._error)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result, as `get`."""
        self._fetch(seconds("timeout", timeout))
        self._is_read = True
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the call, and return its error, or ``None`` if it has not failed."""
        self._fetch(seconds("timeout", timeout))
        self._is_read = True
        return self._error

    def _fetch(self, timeout: float | None) -> None:
        # No lock: an interrupt could leave it locked. Each thread that asks gets the same results.
        if not self._ended:
            try:
                self._value = self._raw.result(timeout)
            except Exception as error:
                if isinstance(error, TimedOut) and error.is_wait:
                    raise _timed_out(timeout) from None
                with self._watch:
                    self._error = self._error or error
            self._ended = True
        self._notify()

    def done(self) -> bool:
        """Whether the call has ended, in any way."""
        return self._ended or self._raw.done()

    def running(self) -> bool:
        """Whether the call has not ended."""
        return not self.done()

    def cancelled(self) -> bool:
        """Whether the call was cancelled."""
        if self.done():
            self._fetch(None)
        return isinstance(self._error, Cancelled)

    def cancel(self) -> bool:
        """Cancel the call, also where it runs; `get` then raises `Cancelled`, unless it ended before.

        Returns
        -------
        bool
            Whether it is cancelled.
        """
        if not self._ended:
            self._raw.cancel()
            # The session ends it at once, without waiting for the server.
            self._fetch(None)
        return self.cancelled()

    def abort(self) -> None:
        """End the call, as `cancel`."""
        self.cancel()

    def _report_unread(self, is_over: bool = False) -> bool:
        if self._is_read:
            return True
        if is_over and not self._ended:
            self._error = self._error or UsageError(f"the grid was closed before {self._name} had ended")
        elif not self.done():
            return False
        else:
            self._fetch(None)
        self._is_read = True
        self._completions.unread.report(self._error, str(self._name))
        return True

    def __del__(self) -> None:
        # At the end of the interpreter or of the session nothing is left to report to.
        with contextlib.suppress(Exception):
            self._report_unread()

    def _when_ended(self, callback: Callable[[], None]) -> None:
        with self._watch:
            is_over = self._callbacks is None
            first = self._serial is None
            if self._callbacks is not None:
                self._callbacks.append(callback)
                if first:
                    try:
                        self._serial = self._raw.serial()
                    except UsageError:  # `get` has just taken the result, or the session is closed
                        pass
        if is_over:
            callback()
        elif self._serial is None:
            self._notify()
        elif first and not self._completions.subscribe(self._raw, self._serial, self):
            self._notify()

    def _drop(self, callback: Callable[[], None]) -> None:
        with self._watch:
            if self._callbacks is not None and callback in self._callbacks:
                self._callbacks.remove(callback)
            serial = self._serial
            if self._callbacks or serial is None:
                return
            self._serial = None
        self._completions.unsubscribe(serial)

    def _on_ends(self, serials: list[int]) -> None:
        self._notify()

    def _on_closed(self) -> None:
        self._notify()

    def _notify(self) -> None:
        """Call the functions that wait for the end."""
        with self._watch:
            callbacks, self._callbacks = self._callbacks, None
            serial, self._serial = self._serial, None
        if serial is not None:
            self._completions.unsubscribe(serial)
        for callback in callbacks or ():
            callback()

    def __repr__(self) -> str:
        return f"<gridloom.Future: {'ended' if self._ended or self._callbacks is None else 'under way'}>"


def _timed_out(limit: float | None) -> TimedOut:
    error = TimedOut(f"no result within {limit} s; the call is still running, call get() again")
    error.limit_seconds = limit
    return error
