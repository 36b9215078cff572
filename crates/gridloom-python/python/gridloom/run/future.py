"""Futures of calls of any function: what `Grid.run` and executors give."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ._called_back import CalledBack
from ._completed import awaited
from ._errors import Cancelled
from ._waits import waiting

if TYPE_CHECKING:
    from ._runner import Runner
    from ._unread import Unread

_T = TypeVar("_T")


class RunFuture(CalledBack[_T]):
    """A call of any function under way: a future as of ``concurrent.futures``, which can be awaited too.

    It can be cancelled until it is sent to a server, and ended by `abort` while it runs.
    """

    _why = "a gridloom.RunFuture is a call of this process"
    _remedy = "wait for the result, and pass its .get()"

    _runner: Runner | None = None
    _aborted = False
    # What tells an error that the program does not read, whether it has, and the function's name for that.
    _unread: Unread | None = None
    _is_read = False
    _name = ""
    # Of a map: bytes of its arguments, and once it has ended those of its result.
    _bytes = 0

    def __init__(self) -> None:
        super().__init__()
        self._prepare()

    def result(self, timeout: float | None = None) -> _T:
        """Wait for the result, as a future of ``concurrent.futures``; `get` is the same."""
        try:
            if self.done():
                return super().result()
            with waiting():
                return super().result(timeout)
        except concurrent.futures.TimeoutError as error:
            raise self._timed_out(timeout, error) from error.__cause__
        finally:
            self._is_read = self._is_read or self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, and give the error of a call that failed."""
        try:
            with waiting():
                return super().exception(timeout)
        except concurrent.futures.TimeoutError as error:
            raise self._timed_out(timeout, error) from error.__cause__
        finally:
            self._is_read = self._is_read or self.done()

    def _timed_out(self, timeout: float | None, error: BaseException) -> BaseException:
        """The error of a wait that has lasted too long, with a text; that of a function stays as it is."""
        if self.done():
            return error
        return concurrent.futures.TimeoutError(
            f"{self._name or 'the call'} has not ended within {timeout} s; it goes on: get() waits again, abort() ends it"
        )

    def _begin(self) -> bool:
        """Have it run, unless it was cancelled; whether it runs."""
        with self._condition:
            if self._state in ("PENDING", "CANCELLED"):
                return self.set_running_or_notify_cancel()
            return self._state == "RUNNING"

    def set_exception(self, exception: BaseException | None) -> None:
        """Take in the error; only Gridloom calls it."""
        if self._unread is not None:
            self._unread.follow(self)
        super().set_exception(exception)

    def _tell_unread(self, is_over: bool = False) -> bool:
        is_read, self._is_read = self._is_read, True
        if self._unread is not None and not is_read:
            self._unread.tell(self._exception, self._name)
        return True

    def __del__(self) -> None:
        self._tell_unread()

    def get(self, timeout: float | None = None) -> _T:
        """Wait for the result, as `result`.

        Parameters
        ----------
        timeout : float, optional
            How long to wait at most, seconds. The call goes on after that, and a later `get` works.

        Returns
        -------
        object
            What the function returned.

        Raises
        ------
        Exception
            What the function raised; its cause has the traceback on the server.
        TimeoutError
            If it has not ended after `timeout` seconds.
        CancelledError
            If it was cancelled.
        """
        return self.result(timeout)

    def cancelled(self) -> bool:
        """Tell whether the call has ended by being cancelled, also by `abort`."""
        return super().cancelled() or isinstance(self._exception, Cancelled)

    def cancel(self) -> bool:
        """Cancel the call if it was not sent to a server yet.

        Returns
        -------
        bool
            Whether it is cancelled.
        """
        cancelled = super().cancel()
        if cancelled and self._runner is not None:
            self._runner.drop(self)
        return cancelled

    def abort(self) -> None:
        """End the call also where it runs, by ending its worker process; an ended call keeps its result.

        Raises
        ------
        UsageError
            If the session is closed.
        """
        if self._runner is not None:
            self._runner.abort([self])

    def __await__(self) -> Generator[Any, None, _T]:
        return awaited(self).__await__()
