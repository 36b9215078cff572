"""Calls of any function: those that wait in the program, and those under way on servers.

**Invariants.** A call waits here, where it can be cancelled, until a server has a slot for it. No lock is held while a future is
given its end, since that runs callbacks of the program.

As many calls are sent as the servers have slots; where calls are short, a few ahead. The session chooses their servers, and moves
what has not begun to a server that is idle: it knows what else keeps the servers busy. Only a call that has failed on a server is
bound to another.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _gridloom
from ._completed import awaited
from ._errors import Cancelled, InputError, RemoteError, ServerLost, UnknownFunctionError, UsageError
from ._packing import RemoteTraceback, named, renamed, unpack
from ._pickles import OfSession
from .run_code import FUNCTION, CannotImport, OtherVersion

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ._ends import Ends
    from ._retry import Retry
    from ._unread import Unread

_T = TypeVar("_T")

# How long it is believed how many slots the servers have, seconds.
_SLOTS_KNOWN = 1.0
# So many calls for each slot are sent ahead if calls take less than so many seconds, and one has ended so many seconds ago at most:
# the way to the server and back then takes no time from them, and few can come to wait behind a long one.
_AHEAD_MAX = 2
_AHEAD_SECONDS = 0.002
_AHEAD_AFTER_SECONDS = 0.01
# How often a call is bound to a server, as its servers are lost.
_ATTEMPTS_MAX = 5
# So many calls that wait for a certain server are passed over for one that can run anywhere.
_PASSED_MAX = 64
# A new mean of a call's time counts so much.
_NEWS = 0.2


class RunFuture(OfSession, concurrent.futures.Future[_T]):
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

    def result(self, timeout: float | None = None) -> _T:
        """Wait for the result, as a future of ``concurrent.futures``; `get` is the same."""
        try:
            return super().result(timeout)
        finally:
            self._is_read = self._is_read or self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, and give the error of a call that failed."""
        try:
            return super().exception(timeout)
        finally:
            self._is_read = self._is_read or self.done()

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


@dataclasses.dataclass
class Call:
    """What is sent, and what tells its end."""

    future: RunFuture[Any]
    name: str
    setup: bytes
    function: bytes
    arguments: npt.NDArray[np.uint8]
    # Looks at an error before the future has it.
    failed: Callable[[BaseException], BaseException]
    sent: float = 0.0
    # When it runs again, how often it has failed, and where.
    retry: Retry | None = None
    failures: int = 0
    failed_on: set[str] = dataclasses.field(default_factory=set)
    # Servers that lack a module that it needs.
    lacking: set[str] = dataclasses.field(default_factory=set)
    # The server that it is bound to, if it is, and how often it was sent.
    bound_to: str | None = None
    attempts: int = 0
    pending: _gridloom.RawPending | None = None


class Runner:
    """Sends the calls of one session to the servers that take them, as slots become free."""

    def __init__(self, raw: _gridloom.RawGrid, ends: Ends) -> None:
        if raw.simulated:
            raise UsageError("a simulated grid runs no functions of the program: use gridloom.local or connect")
        self._raw = raw
        self._ends = ends
        try:
            self._function = raw.function(FUNCTION)
        except UnknownFunctionError as error:
            told = "no server of this grid runs functions that programs send: start one with 'gridloom serve --run-code'"
            unknown = UnknownFunctionError(told)
            unknown.name = error.name
            raise unknown from None
        self._lock = threading.RLock()
        self._waiting: collections.OrderedDict[concurrent.futures.Future[Any], Call] = collections.OrderedDict()
        self._under_way: dict[int, Call] = {}
        self._closed = False
        # Slots by server, and calls under way that are bound to it.
        self._servers: dict[str, int] = {}
        self._servers_at = -float("inf")
        self._bound: collections.Counter[str] = collections.Counter()
        self._mean_seconds = 1.0
        self._ended_at = -float("inf")

    @property
    def slots(self) -> int:
        """Calls that the servers run at a time."""
        now = time.monotonic()
        if now - self._servers_at > _SLOTS_KNOWN:
            servers = self._raw.servers()
            self._servers = {one["name"]: one["slots"] for one in servers if FUNCTION in one["functions"]}
            self._servers_at = now
        # A server that is about to come back counts.
        return max(1, sum(self._servers.values()))

    def submit(
        self,
        function: bytes,
        name: str,
        arguments: npt.NDArray[np.uint8],
        setup: bytes = b"",
        failed: Callable[[BaseException], BaseException] = lambda error: error,
        future: RunFuture[Any] | None = None,
        retry: Retry | None = None,
    ) -> RunFuture[Any]:
        """Have a call run; the future, if it is given, gets its end."""
        future = future or RunFuture()
        future._runner = self
        with self._lock:
            if self._closed:
                raise UsageError("the grid is closed; open another with gridloom.local or connect")
            self._waiting[future] = Call(future, name, setup, function, arguments, failed, retry=retry)
        self._send()
        return future

    def drop(self, future: RunFuture[Any]) -> None:
        """A cancelled call is not sent."""
        with self._lock:
            call = self._waiting.pop(future, None)
        if call is not None:
            future.set_running_or_notify_cancel()

    def abort(self, futures: Iterable[RunFuture[Any]]) -> None:
        """Cancel calls, also those under way: the worker processes that run them end."""
        aborted = set(futures)
        for future in aborted:
            future._aborted = True
            future.cancel()
        self.fail(aborted, _cancelled())
        with self._lock:
            under_way = [call.pending for call in self._under_way.values() if call.future in aborted]
        for pending in under_way:
            _stop(pending)

    def fail(self, futures: Iterable[concurrent.futures.Future[Any]], error: BaseException) -> None:
        """Fail those of these calls that were not sent."""
        with self._lock:
            found = [self._waiting.pop(future, None) for future in futures]
        for call in found:
            if call is not None and (call.attempts > 0 or call.future.set_running_or_notify_cancel()):
                call.future.set_exception(error)

    def close(self) -> None:
        """Fail what has not ended: the session is about to be closed, or was."""
        with self._lock:
            self._closed = True
            left = [*self._under_way.values(), *self._waiting.values()]
            waited = set(self._waiting)
            self._under_way.clear()
            self._waiting.clear()
        for call in left:
            if call.future not in waited or call.attempts > 0 or call.future.set_running_or_notify_cancel():
                _end(call, error=UsageError(f"the grid was closed before {call.name} had ended"))

    def forget(self) -> None:
        """In a forked child nothing of it works."""
        self._lock = threading.RLock()
        self._closed = True
        self._waiting.clear()
        self._under_way.clear()

    def _send(self) -> None:
        """Send calls as far as there is room for them."""
        while True:
            with self._lock:
                if not self._waiting or self._closed:
                    return
                call = self._next()
                if call is None:
                    return
                future = call.future
                del self._waiting[future]
                # A place is taken, so that another thread does not send too many.
                place = -id(call)
                self._take(place, call)
            # One that is sent again runs already.
            if call.attempts == 0 and not future.set_running_or_notify_cancel():
                self._forget(place)
                continue
            try:
                pending = self._on(call.bound_to).submit((call.setup, call.function, call.arguments), {}, None, call.name)
                serial = pending.serial()
            except Exception as error:
                if self._forget(place) is not None:
                    _end(call, error=error)
                continue
            call.pending, call.sent = pending, time.monotonic()
            call.attempts += 1
            with self._lock:
                if self._under_way.pop(place, None) is None:  # closed meanwhile
                    return
                self._under_way[serial] = call
            self._ends.note(pending, serial, self)
            if call.future._aborted:
                _stop(pending)

    def _next(self) -> Call | None:
        """The first call that can be sent now."""
        room = self._room()
        for call in itertools.islice(self._waiting.values(), _PASSED_MAX + 1):
            call.bound_to = self._server_for(call)
            if call.bound_to is None:
                return call if room > 0 else None
            if self._bound[call.bound_to] < self._servers[call.bound_to]:
                return call
        return None

    def _room(self) -> int:
        """How many calls may be sent now that are bound to no server."""
        is_short = self._mean_seconds < _AHEAD_SECONDS and time.monotonic() < self._ended_at + _AHEAD_AFTER_SECONDS
        at_most = self.slots * (1 + _AHEAD_MAX if is_short else 1)
        return at_most - len(self._under_way) + self._bound.total()

    def _server_for(self, call: Call) -> str | None:
        """The server that a call is bound to which has failed: one where it has not, rather than one that has its modules only."""
        if not call.lacking and not call.failed_on:
            return None
        able = self._servers.keys() - call.lacking
        others = able - call.failed_on or able
        return min(others, key=lambda name: (self._bound[name] / self._servers[name], name), default=None)

    def _on(self, server: str | None) -> _gridloom.RawFunction:
        """The function on that server; where it has left the grid, or none is given, on any."""
        if server is not None:
            try:
                return self._function.on(server)
            except InputError:
                pass
        return self._function

    def _take(self, place: int, call: Call) -> None:
        """Count a call among those under way."""
        self._under_way[place] = call
        if call.bound_to is not None:
            self._bound[call.bound_to] += 1

    def _forget(self, serial: int) -> Call | None:
        """Take a call out of those under way."""
        with self._lock:
            call = self._under_way.pop(serial, None)
            if call is not None and call.bound_to is not None:
                self._bound[call.bound_to] -= 1
        return call

    def _failed(self, call: Call, server: str | None, error: BaseException) -> None:
        """Have a call that failed run again: on its terms, or where a module may be that its server lacks."""
        if server is not None and _is_module_missing(error):
            call.lacking.add(server)
            if self._servers.keys() - call.lacking:
                self._again(call)
                return
        if isinstance(error, ServerLost) and call.bound_to is not None and call.attempts - call.failures < _ATTEMPTS_MAX:
            call.failed_on.add(call.bound_to)
            self._again(call)
            return
        if call.retry is None or call.failures >= call.retry.times or not call.retry.covers(error):
            _end(call, error=error)
            return
        call.failures += 1
        if server is not None:
            call.failed_on.add(server)
        self._again(call)

    def _again(self, call: Call) -> None:
        """Send a call anew, before others."""
        with self._lock:
            is_aborted = call.future._aborted
            if not is_aborted:
                self._waiting[call.future] = call
                self._waiting.move_to_end(call.future, last=False)
        if is_aborted:
            _end(call, error=_cancelled())
        else:
            self._send()

    def _on_ends(self, serials: list[int]) -> None:
        now = time.monotonic()
        calls = [call for serial in serials if (call := self._forget(serial)) is not None]
        for call in calls:
            self._mean_seconds += _NEWS * (now - call.sent - self._mean_seconds)
        self._ended_at = now
        self._send()
        while calls:
            self._collect(calls.pop(0))

    def _on_closed(self) -> None:
        self.close()

    def _collect(self, call: Call) -> None:
        """Give an ended call's future its end."""
        assert call.pending is not None, "it was sent"
        server = call.pending.server()
        try:
            value = unpack(call.pending.result(None), call.name, server or "")
        except BaseException as error:
            self._failed(call, server, error)
        else:
            _end(call, value)


def _is_module_missing(error: BaseException) -> bool:
    """Whether the server lacks a module that the call needs, or its version of Python."""
    if isinstance(error, RemoteError):
        return error.kind in (CannotImport.__name__, OtherVersion.__name__)
    return isinstance(error, ModuleNotFoundError) and isinstance(error.__cause__, RemoteTraceback)


def _stop(pending: _gridloom.RawPending | None) -> None:
    """End a call that runs, if it was sent."""
    if pending is not None:
        try:
            pending.cancel()
        except UsageError:  # its result was taken
            pass


def _cancelled() -> BaseException:
    return named(Cancelled, "the call was cancelled")


def _end(call: Call, value: Any = None, error: BaseException | None = None) -> None:
    if error is None:
        call.future.set_result(value)
        return
    error = call.failed(renamed(error, call.name))
    # The traceback is that of the thread, of no use to the program, and holds the call.
    call.future.set_exception(error.with_traceback(None))
