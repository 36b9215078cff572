"""Calls of any function: sent through the session, repeated after errors, and completed.

**Invariants.** No lock is held while a future is completed, since that may run callbacks of the program. Whatever happens to a call, its
future ends. An interrupt may come between any two steps of `submit`: then the call is cancelled.

The session keeps the queue. It sends as many calls as the servers have free slots, and chooses the servers; until then, a call can be
cancelled or held back. This module decides only whether a failed call runs again: the errors of functions are pickled exceptions, which only
the program can read.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _gridloom
from ..calls.completion import Completions
from ..common.thread_pool import attempt
from ..errors import Cancelled, InputError, RemoteError, UnknownName, UsageError
from ..pickling.packing import is_raised, named, renamed, runs_code, unpack
from ..pickling.protocol import FUNCTION, CannotImport, OtherVersion
from .call import Call
from .future import RunFuture
from .prefetch import PrefetchWindow
from .retry import Retry

# How long the number of the servers' slots is taken from the cache, seconds.
_SLOTS_SECONDS = 1.0
# How many lost servers an error names.
_NAMED_MAX = 8


class Runner:
    """Sends the calls of one session to the servers that take them."""

    def __init__(self, raw: _gridloom.RawGrid, completions: Completions) -> None:
        if raw.simulated:
            raise UsageError(
                "a simulated grid cannot run functions that the program sends, as by Grid.run: give the function types in its "
                "annotations and offer it by functions=[...] of gridloom.local or simulate, or run the program without a simulation"
            )
        self._raw = raw
        self._completions = completions
        # Servers that have run such functions.
        self._known: set[str] = set()
        try:
            self._function = raw.function(FUNCTION)
        except UnknownName:
            raise self.no_server() from None
        # Its calls wait in the session until a server has a free slot.
        self._deferred = self._function.deferred(False, [], [])
        self._lock = threading.RLock()
        # Calls that have not ended, by the serial number of their last attempt.
        self._calls: dict[int, Call] = {}
        self._closed = False
        self._forked = False
        # Slots by server.
        self._servers: dict[str, int] = {}
        self._servers_at = -float("inf")
        self._note_servers()

    def room(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory for arguments that is sent without a copy."""
        return self._raw.empty([size_bytes], np.dtype(np.uint8), "C")

    @property
    def slots(self) -> int:
        """Number of calls that the servers run at a time."""
        if time.monotonic() - self._servers_at > _SLOTS_SECONDS:
            self._note_servers()
        # At least one: a lost server may return.
        return max(1, sum(self._servers.values()))

    def _note_servers(self) -> None:
        self._servers = {one["name"]: one["slots"] for one in self._raw.servers() if FUNCTION in one["functions"]}
        self._known.update(self._servers)
        self._servers_at = time.monotonic()

    def no_server(self) -> UnknownName:
        """The error if no server runs functions that programs send; it names those that did."""
        left = [one["name"] for one in self._raw.servers()]
        lost = sorted(self._known.difference(left))
        those = "all servers were lost" if not left else "those that did were lost"
        named = ", ".join(lost[:_NAMED_MAX]) + (f" and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else "")
        error = UnknownName(
            f"no server of this grid runs functions that programs send{f' any more; {those}: {named}' if lost else ''}: start one "
            "with 'gridloom serve --run-code', a testbed with 'gridloom testbed run --run-code', or open a grid by gridloom.local"
        )
        error.name = FUNCTION
        return error

    def submit(
        self,
        function: bytes,
        name: str,
        arguments: npt.NDArray[np.uint8],
        setup: bytes = b"",
        failed: Callable[[Call, BaseException], BaseException | None] = lambda call, error: error,
        future: RunFuture[Any] | None = None,
        retry: Retry | None = None,
        limit: float | None = None,
        window: PrefetchWindow | None = None,
        only: str | None = None,
        priority: int | None = None,
    ) -> RunFuture[Any]:
        """Submit a call; the future gets its result. A call for a certain server (`only`) goes before others."""
        future = future or RunFuture()
        future._runner, future._callback_pool = self, self._completions.callbacks
        call = Call(future, name, setup, function, arguments, failed, limit, retry=retry, window=window, only=only, priority=priority)
        if future.cancelled():  # before it was submitted
            future._begin()
            return future
        try:
            error = self._send(call)
        except BaseException:  # an interrupt, say: nothing gets the future
            self._remove(call)
            call.stop()
            raise
        if error is not None:
            _end(call, error=self._shown_error(error))
        return future

    def drop(self, future: RunFuture[Any]) -> None:
        """Forget a cancelled call."""
        if (call := _call_of(future)) is not None:
            self._remove(call)
        future._begin()

    def abort(self, futures: Iterable[RunFuture[Any]]) -> None:
        """Cancel calls, also running ones: their worker processes end."""
        for future in dict.fromkeys(futures):
            future._aborted = True
            call = _call_of(future)
            if not future.cancel() and call is not None:
                call.stop()

    def fail(self, futures: Iterable[RunFuture[Any]], error: BaseException) -> None:
        """Fail those of the calls that were not sent."""
        for future in futures:
            if (call := _call_of(future)) is None:
                continue
            call.failure = error
            if call.cancel_unsent():
                self._remove(call)
                _end(call, error=error)
            else:
                call.failure = None

    def close(self) -> None:
        """Fail all calls that have not ended: the session is about to be closed, or was."""
        with self._lock:
            self._closed = True
            left = list(self._calls.values())
            self._calls.clear()
        for call in left:
            _end(call, error=UsageError(f"the grid was closed before {call.name} had ended"))

    def reset_after_fork(self) -> None:
        """Drop all calls: in a forked child nothing of it works."""
        self._lock = threading.RLock()
        self._closed = self._forked = True
        self._calls.clear()

    def _no_session(self) -> UsageError:
        if self._forked:
            return UsageError("the grid belongs to the process that forked this one; open another here")
        return UsageError("the grid is closed; open another with gridloom.local or connect")

    def taken(self, window: PrefetchWindow, future: RunFuture[Any]) -> None:
        """Note that the program has taken the next result of a map."""
        with self._lock:
            window.take(future._bytes)
            self._hold_back(window)

    def _hold_back(self, window: PrefetchWindow) -> None:
        """Hold back calls of a map that would run too far ahead of the program, and no longer those that would not."""
        if (held := window.held()) is not None and not self._closed:
            self._raw.hold_back(*held)

    def _remove(self, call: Call) -> None:
        with self._lock:
            if self._calls.get(call.serial) is call:
                del self._calls[call.serial]
                self._completions.unsubscribe(call.serial)
        call.future._submitted = None

    def _send(self, call: Call) -> Exception | None:
        """Submit a call, for the first time or again. Return the error if it cannot be sent."""
        with self._lock:
            if self._closed:
                raise self._no_session()
            try:
                function, limit = self._deferred, call.limit
                if call.only is not None or call.first_serial is not None:
                    function = self._on(call.only).deferred(True, sorted(call.failed_on), sorted(call.lacking))
                if call.deadline is not None:
                    limit = max(call.deadline - self._raw.now(), 0.0)
                arguments = (call.setup, call.function, call.arguments)
                call.pending = function.submit(arguments, {}, limit, call.name, call.first_serial, call.priority)
                call.serial = call.pending.serial()
            except Exception as error:
                return error
            if call.first_serial is None:
                call.first_serial = call.serial
                if call.window is not None:
                    call.window.add(call)
            self._calls[call.serial] = call
            call.future._submitted = call
            if not self._completions.subscribe(call.pending, call.serial, self):
                del self._calls[call.serial]
                raise self._no_session()
        if call.future._aborted or call.future.cancelled():  # meanwhile
            call.stop()
        return None

    def _on(self, server: str | None) -> _gridloom.RawFunction:
        """The function on that server, or on any if the server has left the grid or is ``None``."""
        if server is not None:
            try:
                return self._function.on(server)
            except InputError:
                pass
        return self._function

    def _failed(self, call: Call, server: str | None, error: BaseException) -> None:
        """Send a failed call again if its options request it, or if another server may have a module that this one lacks."""
        if server is not None and _is_module_missing(error):
            call.lacking.add(server)
            if self.slots and self._servers.keys() - call.lacking:
                self._resend(call)
                return
        if call.retry is None or call.failures >= call.retry.times or not call.retry.covers(error):
            _end(call, error=self._shown_error(error))
            return
        call.failures += 1
        if server is not None:
            call.failed_on.add(server)
        self._resend(call)

    def _shown_error(self, error: BaseException) -> BaseException:
        """The error for the program, which does not know the function that runs its own."""
        return self.no_server() if isinstance(error, UnknownName) and error.name == FUNCTION else error

    def _resend(self, call: Call) -> None:
        """Send a call again, before others."""
        call.future._begin()
        if call.future._aborted:
            _end(call, error=_cancelled())
            return
        try:
            error = self._send(call)
        except UsageError:
            error = UsageError(f"the grid was closed before {call.name} had ended")
        if error is not None:
            _end(call, error=self._shown_error(error))

    def _on_ends(self, serials: list[int]) -> None:
        with self._lock:
            calls = [call for serial in serials if (call := self._calls.pop(serial, None)) is not None]
        for call in calls:
            attempt(functools.partial(self._collect, call))

    def _on_closed(self) -> None:
        self.close()

    def _collect(self, call: Call) -> None:
        """Complete the future of an ended call, in another thread if that may run code of the program."""
        assert call.pending is not None, "it was sent"
        server = given = failed = None
        try:
            server = call.pending.server()
            if server is not None:
                self._known.add(server)
            if call.limit is not None and call.deadline is None:
                sent_at = call.pending.sent_at()
                call.deadline = None if sent_at is None else sent_at + call.limit
            given = call.pending.result(None)
        except BaseException as error:
            failed = error
        if call.window is not None:
            with self._lock:
                call.window.complete(call, len(given or b""))
                self._hold_back(call.window)
        finish = functools.partial(self._finish, call, server, given, failed)
        if given is not None and runs_code(given):
            self._completions.unpickling.run(finish)
        else:
            finish()

    def _finish(self, call: Call, server: str | None, given: bytes | None, failed: BaseException | None) -> None:
        try:
            if given is not None:
                try:
                    value = unpack(given, call.name, server or "")
                except BaseException as error:
                    failed = error
            if failed is None:
                _end(call, value)
            elif call.failure is not None and isinstance(failed, Cancelled) and not is_raised(failed):
                _end(call, error=call.failure)
            else:
                self._failed(call, server, failed)
        except BaseException as error:  # raised by the error object itself when it is inspected
            if not call.future.done():
                call.future.set_exception(error)
            raise


def _call_of(future: RunFuture[Any]) -> Call | None:
    """The call of a future until it has ended."""
    return future._submitted if isinstance(future._submitted, Call) else None


def _is_module_missing(error: BaseException) -> bool:
    """Whether the server lacks a module that the call needs, or its version of Python."""
    if is_raised(error):
        return isinstance(error, ModuleNotFoundError)
    return isinstance(error, RemoteError) and error.kind in (CannotImport.__name__, OtherVersion.__name__)


def _cancelled() -> BaseException:
    return named(Cancelled, "the call was cancelled")


def _end(call: Call, value: Any = None, error: BaseException | None = None) -> None:
    """Complete the future of a call, unless it was cancelled or has ended."""
    call.future._submitted = None
    if not call.future._begin():
        return
    if error is None:
        call.future.set_result(value)
        return
    shown = call.failed(call, renamed(error, call.name)) if error is not call.failure else error
    if shown is not None:
        # The traceback is that of this thread: useless to the program, and it keeps the call alive.
        call.future.set_exception(BaseException.with_traceback(shown, None))
