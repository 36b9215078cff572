"""Futures of calls of any function, as `Grid.run` and executors return them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from ..calls.future import Future
from ..calls.unread_errors import UnreadErrors
from ..calls.worker_slot import waiting
from ..errors import Cancelled, TimedOut
from .prefetch import PrefetchWindow

_T = TypeVar("_T")


class SubmittedCall(Protocol):
    """The call of a future: a `Call`."""

    def is_sent(self) -> bool:
        """Whether it was sent to a server."""

    def cancel_unsent(self) -> bool:
        """Cancel it if it was not sent to a server; whether it is cancelled."""


class Sender(Protocol):
    """Sends the call of a future: a `Runner`."""

    def drop(self, future: RunFuture[Any]) -> None:
        """Forget a cancelled call."""

    def abort(self, futures: Iterable[RunFuture[Any]]) -> None:
        """Cancel calls, also those that run."""

    def taken(self, window: PrefetchWindow, future: RunFuture[Any]) -> None:
        """Note that the program has taken the next result of a map."""


class RunFuture(Future[_T]):
    """A running call of any function. It can be cancelled until it is sent to a server, and ended by `abort` while it runs."""

    _runner: Sender | None = None
    # The call until it has ended.
    _submitted: SubmittedCall | None = None
    _aborted = False
    # Where an error that the program does not read is reported, whether it was read, and the name of the function for the report.
    _unread: UnreadErrors | None = None
    _is_read = False
    _name = ""
    # In a map: bytes of the arguments, or of the result once the call has ended.
    _bytes = 0

    def __init__(self) -> None:
        super().__init__()
        self._prepare()

    def result(self, timeout: float | None = None) -> _T:
        """Wait for the result, as `get`."""
        try:
            if self.done():
                return super().result()
            with waiting():
                return super().result(timeout)
        except concurrent.futures.TimeoutError as error:
            raise self._timed_out(timeout, error) from error.__cause__
        except concurrent.futures.CancelledError as error:
            raise self._cancelled_error(error) from error.__cause__
        finally:
            self._is_read = self._is_read or self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the call, and return its error, or ``None`` if it has not failed."""
        try:
            with waiting():
                return super().exception(timeout)
        except concurrent.futures.TimeoutError as error:
            raise self._timed_out(timeout, error) from error.__cause__
        except concurrent.futures.CancelledError as error:
            raise self._cancelled_error(error) from error.__cause__
        finally:
            self._is_read = self._is_read or self.done()

    def _cancelled_error(self, error: BaseException) -> BaseException:
        """The error of a cancelled call; a CancelledError of the function stays as it is."""
        return Cancelled("the call was cancelled") if super().cancelled() else error

    def _timed_out(self, timeout: float | None, error: BaseException) -> BaseException:
        """The error of a wait that has timed out, with a message; a TimeoutError of the function stays as it is."""
        if self.done():
            return error
        late = TimedOut(f"{self._name or 'the call'} has not ended within {timeout} s; it is still running: get() waits again, abort() ends it")
        late.limit_seconds = timeout
        return late

    def _begin(self) -> bool:
        """Set it running, unless it was cancelled; whether it runs."""
        with self._condition:
            if self._state in ("PENDING", "CANCELLED"):
                runs = self.set_running_or_notify_cancel()
            else:
                runs = self._state == "RUNNING"
        return runs

    def set_exception(self, exception: BaseException | None) -> None:
        """Take in the error; only Gridloom calls it."""
        if self._unread is not None:
            self._unread.follow(self)
        super().set_exception(exception)

    def _report_unread(self, is_over: bool = False) -> bool:
        is_read, self._is_read = self._is_read, True
        if self._unread is not None and not is_read:
            self._unread.report(self._exception, self._name)
        return True

    def __del__(self) -> None:
        self._report_unread()

    def cancelled(self) -> bool:
        """Whether the call was cancelled, also by `abort`."""
        return super().cancelled() or isinstance(self._exception, Cancelled)

    def cancel(self) -> bool:
        """Cancel the call if it was not sent to a server yet.

        Returns
        -------
        bool
            Whether it is cancelled.
        """
        call, is_unsent = self._submitted, False
        if call is not None and self._state == "PENDING":
            is_unsent = call.cancel_unsent()
            if not is_unsent:
                self._begin()
        # The end of a call that was cancelled before it was sent may have been noticed already.
        cancelled = super().cancel() or is_unsent
        if cancelled and self._runner is not None:
            self._runner.drop(self)
        return cancelled

    def running(self) -> bool:
        """Whether the call was sent to a server and has not ended."""
        call = self._submitted
        if call is not None and self._state == "PENDING" and call.is_sent():
            self._begin()
        return super().running()

    def abort(self) -> None:
        """End the call also where it runs, by ending its worker process; an ended call keeps its result.

        Raises
        ------
        UsageError
            If the session is closed.
        """
        if self._runner is not None:
            self._runner.abort([self])
