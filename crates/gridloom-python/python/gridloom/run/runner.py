"""Sends calls of any function: a queue in the program, and the calls that run on servers.

**Invariants.** A call waits in the queue, where it can be cancelled, until a server has a slot for it. No lock is held while a future is
completed, since that may run callbacks of the program. Whatever happens to a call, its future ends.

An interrupt may come between any two steps and must not leave a slot taken. A call takes a slot while it is among the running ones: it is
put there once it is sent and its completion will be reported, and only then leaves the queue. `_next` repairs what an interrupted step left
behind.

As many calls are sent as the servers have slots; a few more where calls are short; and one more for each call that waits for results of
others. The session chooses the servers, and moves calls that have not begun to an idle server: it knows the other load of the servers. Only
a call that has failed on a server is bound to another one.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _gridloom
from ..calls.completion import Completions
from ..common.thread_pool import attempt
from ..errors import Cancelled, InputError, RemoteError, ServerLost, UnknownName, UsageError
from ..pickling.packing import is_raised, named, renamed, runs_code, unpack
from ..pickling.protocol import FUNCTION, CannotImport, OtherVersion
from .call import Call
from .future import RunFuture
from .prefetch import PrefetchWindow
from .retry import Retry

# How long the number of the servers' slots is taken from the cache, seconds.
_SLOTS_SECONDS = 1.0
# Calls per slot that are sent ahead if calls take less than `_AHEAD_SECONDS` and one has ended within `_AHEAD_AFTER_SECONDS`: this hides
# the latency of the network, and few calls can get stuck behind a long one.
_AHEAD_MAX = 2
_AHEAD_SECONDS = 0.002
_AHEAD_AFTER_SECONDS = 0.01
# How often a call is bound to another server when its servers are lost.
_ATTEMPTS_MAX = 5
# How many calls that wait for a certain server are passed over for one that can run anywhere.
_PASSED_MAX = 64
# How many lost servers an error names.
_NAMED_MAX = 8
# Weight of the newest call in the mean time of calls.
_NEWEST_WEIGHT = 0.2


class Runner:
    """Sends the calls of one session to the servers that take them, as slots become free."""

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
        self._lock = threading.RLock()
        self._waiting: collections.OrderedDict[concurrent.futures.Future[Any], Call] = collections.OrderedDict()
        # Calls of maps that run too far ahead of the program: they wait, too.
        self._delayed: dict[concurrent.futures.Future[Any], Call] = {}
        # Running calls by serial number: those that any server runs, and those that are bound to one.
        self._free: dict[int, Call] = {}
        self._bound: dict[int, Call] = {}
        self._closed = False
        self._forked = False
        # Slots by server.
        self._servers: dict[str, int] = {}
        self._servers_at = -float("inf")
        # Serial numbers of running calls that wait for others and take no slots.
        self._paused: set[int] = set()
        self._mean_seconds = 1.0
        self._ended_at = -float("inf")
        # Weak, so that a session ends with its last reference.
        completions.periodic.append(weakref.WeakMethod(self._poll))

    def room(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory for arguments that is sent without a copy."""
        return self._raw.empty([size_bytes], np.dtype(np.uint8), "C")

    @property
    def slots(self) -> int:
        """Number of calls that the servers run at a time."""
        now = time.monotonic()
        if now - self._servers_at > _SLOTS_SECONDS:
            servers = self._raw.servers()
            self._servers = {one["name"]: one["slots"] for one in servers if FUNCTION in one["functions"]}
            self._known.update(self._servers)
            self._servers_at = now
        # At least one: a lost server may return.
        return max(1, sum(self._servers.values()))

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
    ) -> RunFuture[Any]:
        """Queue a call; the future gets its result. A call for a certain server (`only`) goes before others."""
        future = future or RunFuture()
        future._runner, future._callback_pool = self, self._completions.callbacks
        call = Call(future, name, setup, function, arguments, failed, retry=retry, limit=limit, window=window, only=only)
        try:
            with self._lock:
                if self._closed:
                    raise self._no_session()
                if window is not None:
                    window.add(call)
                self._waiting[future] = call
                if only is not None:
                    self._waiting.move_to_end(future, last=False)
            self._send()
        except BaseException:  # an interrupt, say: nothing gets the future
            self._withdraw(call)
            raise
        return future

    def drop(self, future: RunFuture[Any]) -> None:
        """Do not send a cancelled call."""
        if self._take_out(future) is not None:
            future._begin()

    def abort(self, futures: Iterable[RunFuture[Any]]) -> None:
        """Cancel calls, also running ones: their worker processes end."""
        aborted = set(futures)
        for future in aborted:
            future._aborted = True
            future.cancel()
        self.fail(aborted, _cancelled())
        with self._lock:
            under_way = [call.pending for call in self._under_way() if call.future in aborted]
        for pending in under_way:
            _stop(pending)

    def fail(self, futures: Iterable[concurrent.futures.Future[Any]], error: BaseException) -> None:
        """Fail those of the calls that were not sent."""
        for call in [self._take_out(future) for future in futures]:
            if call is not None and not self._is_over(call) and call.future._begin():
                call.future.set_exception(error)

    def close(self) -> None:
        """Fail all calls that have not ended: the session is about to be closed, or was."""
        with self._lock:
            self._closed = True
            left = [*self._under_way(), *self._waiting.values(), *self._delayed.values()]
            self._clear()
        for call in dict.fromkeys(left):
            if call.future._begin():
                _end(call, error=UsageError(f"the grid was closed before {call.name} had ended"))

    def reset_after_fork(self) -> None:
        """Drop all calls: in a forked child nothing of it works."""
        self._lock = threading.RLock()
        self._closed = self._forked = True
        self._clear()

    def _no_session(self) -> UsageError:
        if self._forked:
            return UsageError("the grid belongs to the process that forked this one; open another here")
        return UsageError("the grid is closed; open another with gridloom.local or connect")

    def taken(self, window: PrefetchWindow, future: RunFuture[Any]) -> None:
        """Note that the program has taken the next result of a map."""
        with self._lock:
            window.take(future._bytes)
            is_free = self._release(window)
        if is_free:
            self._send()

    def _release(self, window: PrefetchWindow) -> bool:
        """Put delayed calls of a map into the queue; whether there are any."""
        released = window.released()
        for one in reversed(released):
            if (call := self._delayed.pop(one.future, None)) is not None:
                self._waiting[call.future] = call
                self._waiting.move_to_end(call.future, last=False)
        return bool(released)

    def _clear(self) -> None:
        self._waiting.clear()
        self._delayed.clear()
        self._free.clear()
        self._bound.clear()

    def _take_out(self, future: concurrent.futures.Future[Any]) -> Call | None:
        """Remove a call from the queue."""
        with self._lock:
            return self._waiting.pop(future, None) or self._delayed.pop(future, None)

    def _withdraw(self, call: Call) -> None:
        with self._lock:
            self._take_out(call.future)
            if self._is_under_way(call):
                _stop(call.pending)

    def _under_way(self) -> Iterable[Call]:
        return itertools.chain(self._free.values(), self._bound.values())

    def _send(self) -> None:
        """Send calls while there is room."""
        while True:
            failed = None
            with self._lock:
                call = None if self._closed else self._next()
                if call is None:
                    return
                try:
                    self._send_one(call)
                except Exception as error:
                    self._waiting.pop(call.future, None)
                    failed = error
            if failed is not None:
                _end(call, error=self._shown_error(failed))
            elif call.future._aborted:
                _stop(call.pending)

    def _send_one(self, call: Call) -> None:
        """Send a call, unless it was cancelled. After an interrupt it is either queued or running."""
        # The future of a call that is sent again is running already.
        if not call.future._begin():
            self._waiting.pop(call.future, None)
            return
        pending = None
        try:
            now = time.monotonic()
            if call.limit is not None and call.deadline is None:
                call.deadline = now + call.limit
            left = None if call.deadline is None else max(call.deadline - now, 0.0)
            arguments = (call.setup, call.function, call.arguments)
            pending = self._on(call.bound_to).submit(arguments, {}, left, call.name, call.first_serial)
            call.pending, call.serial, call.sent = pending, pending.serial(), now
            if call.first_serial is None:
                call.first_serial = call.serial
            if not self._completions.subscribe(pending, call.serial, self):
                raise self._no_session()
            call.attempts += 1
            (self._free if call.bound_to is None else self._bound)[call.serial] = call
            self._waiting.pop(call.future, None)
        except BaseException:
            if not self._is_under_way(call):
                self._completions.unsubscribe(call.serial)
                _stop(pending)
            raise

    def _next(self) -> Call | None:
        """The first call of the queue that can be sent now."""
        while self._waiting:
            first = next(iter(self._waiting.values()))
            if first.window is not None and first.window.delays(first):
                first.window.delay(first)
                self._delayed[first.future] = first
            elif not self._is_over(first):
                break
            self._waiting.popitem(last=False)
        if not self._waiting:
            return None
        room = self._room()
        for call in itertools.islice(self._waiting.values(), _PASSED_MAX + 1):
            if self._is_over(call) or (call.window is not None and call.window.delays(call)):
                continue
            call.bound_to = self._server_for(call)
            if call.bound_to is None:
                return call if room > 0 else None
            if self._bound_to(call.bound_to) < self._servers[call.bound_to]:
                return call
        return None

    def _is_over(self, call: Call) -> bool:
        """Whether a call is still queued only because an interrupt came after it was sent."""
        return self._is_under_way(call) or (call.future.done() and not call.future.cancelled())

    def _is_under_way(self, call: Call) -> bool:
        return call.serial in self._free or call.serial in self._bound

    def _bound_to(self, server: str) -> int:
        return sum(call.bound_to == server and serial not in self._paused for serial, call in self._bound.items())

    def _room(self) -> int:
        """Number of calls that may be sent now without being bound to a server."""
        is_short = self._mean_seconds < _AHEAD_SECONDS and time.monotonic() < self._ended_at + _AHEAD_AFTER_SECONDS
        return self.slots * (1 + _AHEAD_MAX if is_short else 1) - len(self._free.keys() - self._paused)

    def _server_for(self, call: Call) -> str | None:
        """The server for a call that has failed: preferably one where it has not failed, at least one with its modules."""
        if call.only is not None:
            return call.only if call.only in self._servers else None
        if not call.lacking and not call.failed_on:
            return None
        able = self._servers.keys() - call.lacking
        others = able - call.failed_on or able
        return min(others, key=lambda name: (self._bound_to(name) / self._servers[name], name), default=None)

    def _on(self, server: str | None) -> _gridloom.RawFunction:
        """The function on that server, or on any if the server has left the grid or is ``None``."""
        if server is not None:
            try:
                return self._function.on(server)
            except InputError:
                pass
        return self._function

    def _remove(self, serial: int) -> Call | None:
        """Remove a call from the running ones."""
        with self._lock:
            return self._free.pop(serial, None) or self._bound.pop(serial, None)

    def _failed(self, call: Call, server: str | None, error: BaseException) -> None:
        """Send a failed call again if its options say so, or if another server may have a module that this one lacks."""
        if server is not None and _is_module_missing(error):
            call.lacking.add(server)
            if self._servers.keys() - call.lacking:
                self._resend(call)
                return
        is_lost = isinstance(error, ServerLost) and not is_raised(error)
        if is_lost and call.bound_to is not None and call.attempts - call.failures < _ATTEMPTS_MAX:
            call.failed_on.add(call.bound_to)
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
        with self._lock:
            is_closed, is_aborted = self._closed, call.future._aborted
            if not is_closed and not is_aborted:
                self._waiting[call.future] = call
                self._waiting.move_to_end(call.future, last=False)
        if is_closed:
            _end(call, error=UsageError(f"the grid was closed before {call.name} had ended"))
        elif is_aborted:
            _end(call, error=_cancelled())
        else:
            self._send()

    def _poll(self) -> None:
        """From time to time: send queued calls if a server was added, or if running calls wait for others."""
        if not self._waiting and not self._paused:
            return
        before = self._paused
        self._paused = set(self._raw.paused())
        if self._waiting and (self._paused - before or time.monotonic() - self._servers_at > _SLOTS_SECONDS):
            self._send()

    def _on_ends(self, serials: list[int]) -> None:
        now = time.monotonic()
        calls = [call for serial in serials if (call := self._remove(serial)) is not None]
        for call in calls:
            self._mean_seconds += _NEWEST_WEIGHT * (now - call.sent - self._mean_seconds)
        self._ended_at = now
        try:
            self._send()
        finally:
            while calls:
                attempt(functools.partial(self._collect, calls.pop(0)))

    def _on_closed(self) -> None:
        self.close()

    def _collect(self, call: Call) -> None:
        """Complete the future of an ended call, in another thread if that may run code of the program."""
        assert call.pending is not None, "it was sent"
        server = given = failed = None
        try:
            server = call.pending.server()
            given = call.pending.result(None)
        except BaseException as error:
            failed = error
        if call.window is not None:
            self._count(call.window, call, len(given or b""))
        finish = functools.partial(self._finish, call, server, given, failed)
        if given is not None and runs_code(given):
            self._completions.unpickling.run(finish)
        else:
            finish()

    def _count(self, window: PrefetchWindow, call: Call, result_bytes: int) -> None:
        with self._lock:
            window.complete(call, result_bytes)
            is_free = self._release(window)
        if is_free:
            self._send()

    def _finish(self, call: Call, server: str | None, given: bytes | None, failed: BaseException | None) -> None:
        try:
            if given is not None:
                try:
                    value = unpack(given, call.name, server or "")
                except BaseException as error:
                    failed = error
            if failed is None:
                _end(call, value)
            else:
                self._failed(call, server, failed)
        except BaseException as error:  # raised by the error object itself when it is inspected
            if not call.future.done():
                call.future.set_exception(error)
            raise


def _is_module_missing(error: BaseException) -> bool:
    """Whether the server lacks a module that the call needs, or its version of Python."""
    if is_raised(error):
        return isinstance(error, ModuleNotFoundError)
    return isinstance(error, RemoteError) and error.kind in (CannotImport.__name__, OtherVersion.__name__)


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
    shown = call.failed(call, renamed(error, call.name))
    if shown is not None:
        # The traceback is that of this thread: useless to the program, and it keeps the call alive.
        call.future.set_exception(BaseException.with_traceback(shown, None))
