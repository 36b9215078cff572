"""Functions, and calls of them under way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from . import _gridloom
from ._called_back import CalledBack
from ._checks import seconds
from ._completed import awaited
from ._conditions import Condition
from ._errors import Cancelled, UsageError, WaitTimedOut
from ._pickles import OfSession
from ._waits import waiters

if TYPE_CHECKING:
    from ._ends import Ends
    from ._grid import Grid


class Future(CalledBack[Any]):
    """A plain call under way, or a put, get or wait of a shared name: a future as of ``concurrent.futures``.

    It can be awaited; a wait that is cancelled cancels what it stands for.
    """

    _why = "a gridloom.Future is a call of this process"
    _remedy = "wait for the result, and pass its .get()"

    def __init__(self, raw: _gridloom.RawPending | _gridloom.RawBegun, ends: Ends, name: str | None) -> None:
        self._raw = raw
        self._ends, self._crew = ends, ends.callbacks
        # Of what waits for its end: the number of the call there, and functions to be called; none once they were.
        self._watch = threading.RLock()
        self._serial: int | None = None
        self._callbacks: list[Callable[[], None]] | None = []
        self._ended = False
        # Without a name, it is a part of something that tells errors itself.
        self._name, self._is_read = name, name is None
        self._value: Any = None
        self._error: BaseException | None = None
        if name is not None:
            ends.unread.follow(self)

    # What the standard library looks at under the condition is kept up to date from when it first does. Most calls end before.
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
            if self._ends.simulated:
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

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the call's results.

        Parameters
        ----------
        timeout : float, optional
            How long to wait at most, seconds. The call goes on after that, and a later `get` works.

        Returns
        -------
        numpy.ndarray, number, str, bytes, tuple of them, or None
            As the function's signature says; the same objects every time.

        Raises
        ------
        TaskError
            If the call failed, was cancelled, or exceeded its own time limit.
        WaitTimedOut
            If it has not ended after `timeout` seconds.
        UsageError
            If `timeout` is no time: negative or no number.
        """
        self._fetch(seconds("timeout", timeout))
        self._is_read = True
        if self._error is not None:
            raise self._error
        return self._value

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call's results, as `get`."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, and give the error of a call that failed."""
        self._fetch(seconds("timeout", timeout))
        self._is_read = True
        return self._error

    def _fetch(self, timeout: float | None) -> None:
        # No lock: an interrupt could leave it taken. Each thread that asks gets the same results.
        if not self._ended:
            try:
                self._value = self._raw.result(timeout)
            except WaitTimedOut:
                raise _timed_out(timeout) from None
            except Exception as error:
                with self._watch:
                    self._error = self._error or error
            self._ended = True
        self._tell()

    def done(self) -> bool:
        """Tell whether the call has ended, however it did."""
        return self._ended or self._raw.done()

    def running(self) -> bool:
        """Tell whether the call has not ended."""
        return not self.done()

    def cancelled(self) -> bool:
        """Tell whether the call has ended by being cancelled."""
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

    def _tell_unread(self, is_over: bool = False) -> bool:
        if self._is_read:
            return True
        if is_over and not self._ended:
            self._error = self._error or UsageError(f"the grid was closed before {self._name} had ended")
        elif not self.done():
            return False
        else:
            self._fetch(None)
        self._is_read = True
        self._ends.unread.tell(self._error, str(self._name))
        return True

    def __del__(self) -> None:
        # At the end of the interpreter, or of the session, there is nothing to tell it.
        with contextlib.suppress(Exception):
            self._tell_unread()

    def __await__(self) -> Generator[Any, None, Any]:
        return awaited(self).__await__()

    def _when_ended(self, callback: Callable[[], None]) -> None:
        with self._watch:
            told = self._callbacks is None
            first = self._serial is None
            if self._callbacks is not None:
                self._callbacks.append(callback)
                if first:
                    try:
                        self._serial = self._raw.serial()
                    except UsageError:  # `get` has just taken the result, or the session is closed
                        pass
        if told:
            callback()
        elif self._serial is None:
            self._tell()
        elif first and not self._ends.note(self._raw, self._serial, self):
            self._tell()

    def _drop(self, callback: Callable[[], None]) -> None:
        with self._watch:
            if self._callbacks is not None and callback in self._callbacks:
                self._callbacks.remove(callback)
            serial = self._serial
            if self._callbacks or serial is None:
                return
            self._serial = None
        self._ends.drop(serial)

    def _on_ends(self, serials: list[int]) -> None:
        self._tell()

    def _on_closed(self) -> None:
        self._tell()

    def _tell(self) -> None:
        """Tell what waits that it has ended."""
        with self._watch:
            callbacks, self._callbacks = self._callbacks, None
            serial, self._serial = self._serial, None
        if serial is not None:
            self._ends.drop(serial)
        for callback in callbacks or ():
            callback()

    def __repr__(self) -> str:
        return f"<gridloom.Future: {'ended' if self._ended or self._callbacks is None else 'under way'}>"


def _timed_out(limit: float | None) -> WaitTimedOut:
    error = WaitTimedOut(f"no result within {limit} s; it goes on, and a later get() finds what it gives")
    error.limit_seconds = limit if limit is not None else 0.0
    return error


class Function(OfSession):
    """A function that servers of the grid offer. ``help()`` of it shows its signature.

    Attributes
    ----------
    name : str
        ``module/function``.
    signature : str
        What it takes and gives; after a semicolon, sizes that follow from its arrays.
    server : str or None
        The server that runs all its calls, of a function that `on` gave.
    """

    _why = "a gridloom.Function is of a session of this process"
    _remedy = "open a session by gridloom.connect() where it is called, and find it there by its name"

    def __init__(self, grid: Grid, raw: _gridloom.RawFunction, server: str | None = None) -> None:
        self._grid = grid
        self._raw = raw
        self.server = server
        self.name: str = raw.name
        self.signature: str = raw.signature
        self.__name__ = self.name
        sizes = "After the semicolon stand sizes that follow from the arrays: they can be left out." if ";" in raw.signature else ""
        self.__doc__ = "\n\n".join(filter(None, [raw.signature, raw.about, sizes]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: now and by itself, or, inside the block of a group, record the call.

        Parameters
        ----------
        *args, **kwargs : numpy.ndarray, number, str, bytes or Handle
            ``timeout`` is the time limit of a call that is made now, seconds, as for `submit`, unless the function has an
            argument of that name. By position come all inputs, or all but the sizes that follow from arrays. Arrays have exactly the element
            type, the number of dimensions and the extents of the signature; byte order is free. Numbers convert if they
            keep their value; Python's ``float`` is rounded to the parameter's precision.

        Returns
        -------
        numpy.ndarray, number, str, bytes, tuple of them, or None
            The results; `Handle` in their places inside the block of a group.

        Raises
        ------
        ArgumentError
            If the arguments do not fit; nothing was sent then.
        TaskError
            If the call failed, or exceeded its time limit.
        UsageError
            If a recorded call is given a time limit (its handle's `get` takes one), or `timeout` is no time.
        """
        timeout = None
        if "timeout" in kwargs and not self._raw.takes("timeout"):
            timeout = seconds("timeout", kwargs.pop("timeout"))
        group = self._grid._current.get()
        if group is not None:
            if timeout is not None:
                raise UsageError(
                    f"{self.name}: a recorded call has no time limit of its own; give one to its handle: get(timeout=...)"
                )
            return group._record(self, args, kwargs)
        pending = self._raw.submit(args, kwargs, timeout)
        try:
            return pending.result(None)
        except KeyboardInterrupt:
            pending.cancel()
            raise

    def on(self, server: str) -> Function:
        """Give the same function on that server and no other: a call, by itself or in a group, fails if the server is lost.

        Parameters
        ----------
        server : str
            Its name, as `Grid.servers` has it.

        Returns
        -------
        Function
            To be called as this one.

        Raises
        ------
        InputError
            If there is no such server, or it does not offer the function.
        """
        return Function(self._grid, self._raw.on(server), server)

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Future:
        """Call it now, by itself, without waiting. It is not recorded, even inside the block of a group.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        timeout : float, optional
            Time limit of the call, seconds.

        Returns
        -------
        Future
            The call under way.

        Raises
        ------
        ArgumentError
            If the arguments do not fit; nothing was sent then.
        UsageError
            If `timeout` is no time: negative or no number.
        """
        return Future(self._raw.submit(args, kwargs, seconds("timeout", timeout)), self._grid._ends, self.name)

    def __repr__(self) -> str:
        return f"<gridloom.Function {self.signature}>"
