"""Calls of any function: those that wait in the program, and those under way on servers.

**Invariants.** A call waits here, where it can be cancelled, until a server has a slot for it. No lock is held while a future is
given its end, since that may run callbacks of the program. Whatever happens to a call, its future ends.

An interrupt may come between any two steps, and leaves no slot taken. A call takes one for as long as it stands among those under way: it is
put there once it is sent and the session is to tell its end. Only then it waits no more. What is left of an interrupted step is mended by
`_next`.

As many calls are sent as the servers have slots; where calls are short, a few ahead; and one more for each that waits for what others
make. The session chooses their servers, and moves
what has not begun to a server that is idle: it knows what else keeps the servers busy. Only a call that has failed on a server is
bound to another.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _gridloom
from ._call import Call
from ._crew import attempt
from ._errors import Cancelled, InputError, RemoteError, ServerLost, UnknownFunctionError, UsageError
from ._packing import is_raised, named, renamed, runs_code, unpack
from ._run_future import RunFuture
from .run_code import FUNCTION, CannotImport, OtherVersion

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._ends import Ends
    from ._lead import Lead
    from ._retry import Retry

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
# So many servers that were lost are named.
_NAMED_MAX = 8
# A new mean of a call's time counts so much.
_NEWS = 0.2


class Runner:
    """Sends the calls of one session to the servers that take them, as slots become free."""

    def __init__(self, raw: _gridloom.RawGrid, ends: Ends) -> None:
        if raw.simulated:
            raise UsageError(
                "a simulated grid cannot run functions that the program sends, as by Grid.run: give the function types in its "
                "annotations and offer it by functions=[...] of gridloom.local or simulate, or run the program without a simulation"
            )
        self._raw = raw
        self._ends = ends
        # Servers that have run such functions.
        self._known: set[str] = set()
        try:
            self._function = raw.function(FUNCTION)
        except UnknownFunctionError:
            raise self.no_server() from None
        self._lock = threading.RLock()
        self._waiting: collections.OrderedDict[concurrent.futures.Future[Any], Call] = collections.OrderedDict()
        # Calls under way by number: those that any server runs, and those that are bound to one.
        self._free: dict[int, Call] = {}
        # Calls of maps that run too far ahead of what the program takes: they wait, too.
        self._held_back: dict[concurrent.futures.Future[Any], Call] = {}
        self._bound: dict[int, Call] = {}
        self._closed = False
        self._forked = False
        # Slots by server.
        self._servers: dict[str, int] = {}
        self._servers_at = -float("inf")
        # Calls under way that wait for others and take no slots, by number.
        self._paused: set[int] = set()
        self._mean_seconds = 1.0
        self._ended_at = -float("inf")
        # Weakly: a session that nothing holds any more ends at once.
        ends.looks.append(weakref.WeakMethod(self._look))

    def room(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory for arguments, from which they go out without a copy."""
        return self._raw.empty([size_bytes], np.dtype(np.uint8), "C")

    @property
    def slots(self) -> int:
        """Calls that the servers run at a time."""
        now = time.monotonic()
        if now - self._servers_at > _SLOTS_KNOWN:
            servers = self._raw.servers()
            self._servers = {one["name"]: one["slots"] for one in servers if FUNCTION in one["functions"]}
            self._known.update(self._servers)
            self._servers_at = now
        # A server that is about to come back counts.
        return max(1, sum(self._servers.values()))

    def no_server(self) -> UnknownFunctionError:
        """The error where no server runs functions that programs send: it names those that did."""
        left = [one["name"] for one in self._raw.servers()]
        lost = sorted(self._known.difference(left))
        those = "all servers were lost" if not left else "those that did were lost"
        named = ", ".join(lost[:_NAMED_MAX]) + (f" and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else "")
        error = UnknownFunctionError(
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
        lead: Lead | None = None,
        only: str | None = None,
    ) -> RunFuture[Any]:
        """Have a call run; the future, if it is given, gets its end. One for a certain server goes before others."""
        future = future or RunFuture()
        future._runner, future._crew = self, self._ends.callbacks
        call = Call(future, name, setup, function, arguments, failed, retry=retry, limit=limit, lead=lead, only=only)
        try:
            with self._lock:
                if self._closed:
                    raise self._no_session()
                if lead is not None:
                    lead.add(call)
                self._waiting[future] = call
                if only is not None:
                    self._waiting.move_to_end(future, last=False)
            self._send()
        except BaseException:  # an interrupt, say: nothing gets the future
            self._withdraw(call)
            raise
        return future

    def drop(self, future: RunFuture[Any]) -> None:
        """A cancelled call is not sent."""
        if self._take_out(future) is not None:
            future._begin()

    def abort(self, futures: Iterable[RunFuture[Any]]) -> None:
        """Cancel calls, also those under way: the worker processes that run them end."""
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
        """Fail those of these calls that were not sent."""
        for call in [self._take_out(future) for future in futures]:
            if call is not None and not self._is_over(call) and call.future._begin():
                call.future.set_exception(error)

    def close(self) -> None:
        """Fail what has not ended: the session is about to be closed, or was."""
        with self._lock:
            self._closed = True
            left = [*self._under_way(), *self._waiting.values(), *self._held_back.values()]
            self._clear()
        for call in dict.fromkeys(left):
            if call.future._begin():
                _end(call, error=UsageError(f"the grid was closed before {call.name} had ended"))

    def forget(self) -> None:
        """In a forked child nothing of it works."""
        self._lock = threading.RLock()
        self._closed = self._forked = True
        self._clear()

    def _no_session(self) -> UsageError:
        if self._forked:
            return UsageError("the grid belongs to the process that forked this one; open another here")
        return UsageError("the grid is closed; open another with gridloom.local or connect")

    def taken(self, lead: Lead, future: RunFuture[Any]) -> None:
        """The program has taken the next result of a map."""
        with self._lock:
            lead.take(future._bytes)
            is_free = self._free_lead(lead)
        if is_free:
            self._send()

    def _free_lead(self, lead: Lead) -> bool:
        """Have the calls of a map wait for servers that were held back; whether there are any."""
        freed = lead.freed()
        for call in reversed(freed):
            if self._held_back.pop(call.future, None) is not None:
                self._waiting[call.future] = call
                self._waiting.move_to_end(call.future, last=False)
        return bool(freed)

    def _clear(self) -> None:
        self._waiting.clear()
        self._held_back.clear()
        self._free.clear()
        self._bound.clear()

    def _take_out(self, future: concurrent.futures.Future[Any]) -> Call | None:
        """Take a call out of those that wait."""
        with self._lock:
            return self._waiting.pop(future, None) or self._held_back.pop(future, None)

    def _withdraw(self, call: Call) -> None:
        with self._lock:
            self._take_out(call.future)
            if self._is_under_way(call):
                _stop(call.pending)

    def _under_way(self) -> Iterable[Call]:
        return itertools.chain(self._free.values(), self._bound.values())

    def _send(self) -> None:
        """Send calls as far as there is room for them."""
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
                _end(call, error=self._told(failed))
            elif call.future._aborted:
                _stop(call.pending)

    def _send_one(self, call: Call) -> None:
        """Send a call, unless it was cancelled. An interrupt leaves it waiting, or under way."""
        # One that is sent again runs already.
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
            if not self._ends.note(pending, call.serial, self):
                raise self._no_session()
            call.attempts += 1
            (self._free if call.bound_to is None else self._bound)[call.serial] = call
            self._waiting.pop(call.future, None)
        except BaseException:
            if not self._is_under_way(call):
                self._ends.drop(call.serial)
                _stop(pending)
            raise

    def _next(self) -> Call | None:
        """The first call that can be sent now."""
        while self._waiting:
            first = next(iter(self._waiting.values()))
            if first.lead is not None and first.lead.holds(first):
                first.lead.hold_back(first)
                self._held_back[first.future] = first
            elif not self._is_over(first):
                break
            self._waiting.popitem(last=False)
        if not self._waiting:
            return None
        room = self._room()
        for call in itertools.islice(self._waiting.values(), _PASSED_MAX + 1):
            if self._is_over(call) or (call.lead is not None and call.lead.holds(call)):
                continue
            call.bound_to = self._server_for(call)
            if call.bound_to is None:
                return call if room > 0 else None
            if self._bound_to(call.bound_to) < self._servers[call.bound_to]:
                return call
        return None

    def _is_over(self, call: Call) -> bool:
        """Whether a call waits only because an interrupt came after it was sent."""
        return self._is_under_way(call) or (call.future.done() and not call.future.cancelled())

    def _is_under_way(self, call: Call) -> bool:
        return call.serial in self._free or call.serial in self._bound

    def _bound_to(self, server: str) -> int:
        return sum(call.bound_to == server and serial not in self._paused for serial, call in self._bound.items())

    def _room(self) -> int:
        """How many calls may be sent now that are bound to no server."""
        is_short = self._mean_seconds < _AHEAD_SECONDS and time.monotonic() < self._ended_at + _AHEAD_AFTER_SECONDS
        return self.slots * (1 + _AHEAD_MAX if is_short else 1) - len(self._free.keys() - self._paused)

    def _server_for(self, call: Call) -> str | None:
        """The server that a call is bound to which has failed: one where it has not, rather than one that has its modules only."""
        if call.only is not None:
            return call.only if call.only in self._servers else None
        if not call.lacking and not call.failed_on:
            return None
        able = self._servers.keys() - call.lacking
        others = able - call.failed_on or able
        return min(others, key=lambda name: (self._bound_to(name) / self._servers[name], name), default=None)

    def _on(self, server: str | None) -> _gridloom.RawFunction:
        """The function on that server; where it has left the grid, or none is given, on any."""
        if server is not None:
            try:
                return self._function.on(server)
            except InputError:
                pass
        return self._function

    def _forget(self, serial: int) -> Call | None:
        """Take a call out of those under way."""
        with self._lock:
            return self._free.pop(serial, None) or self._bound.pop(serial, None)

    def _failed(self, call: Call, server: str | None, error: BaseException) -> None:
        """Have a call that failed run again: on its terms, or where a module may be that its server lacks."""
        if server is not None and _is_module_missing(error):
            call.lacking.add(server)
            if self._servers.keys() - call.lacking:
                self._again(call)
                return
        is_lost = isinstance(error, ServerLost) and not is_raised(error)
        if is_lost and call.bound_to is not None and call.attempts - call.failures < _ATTEMPTS_MAX:
            call.failed_on.add(call.bound_to)
            self._again(call)
            return
        if call.retry is None or call.failures >= call.retry.times or not call.retry.covers(error):
            _end(call, error=self._told(error))
            return
        call.failures += 1
        if server is not None:
            call.failed_on.add(server)
        self._again(call)

    def _told(self, error: BaseException) -> BaseException:
        """What the program gets: it knows nothing of the function that runs its own."""
        return self.no_server() if isinstance(error, UnknownFunctionError) and error.name == FUNCTION else error

    def _again(self, call: Call) -> None:
        """Send a call anew, before others."""
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

    def _look(self) -> None:
        """Where calls wait, look from time to time whether a server has come, and whether calls under way wait for others."""
        if not self._waiting and not self._paused:
            return
        before = self._paused
        self._paused = set(self._raw.paused())
        if self._waiting and (self._paused - before or time.monotonic() - self._servers_at > _SLOTS_KNOWN):
            self._send()

    def _on_ends(self, serials: list[int]) -> None:
        now = time.monotonic()
        calls = [call for serial in serials if (call := self._forget(serial)) is not None]
        for call in calls:
            self._mean_seconds += _NEWS * (now - call.sent - self._mean_seconds)
        self._ended_at = now
        try:
            self._send()
        finally:
            while calls:
                attempt(functools.partial(self._collect, calls.pop(0)))

    def _on_closed(self) -> None:
        self.close()

    def _collect(self, call: Call) -> None:
        """Give an ended call's future its end. Where code of the program may run for that, another thread does it."""
        assert call.pending is not None, "it was sent"
        server = given = failed = None
        try:
            server = call.pending.server()
            given = call.pending.result(None)
        except BaseException as error:
            failed = error
        if call.lead is not None:
            self._count(call.lead, call, len(given or b""))
        finish = functools.partial(self._finish, call, server, given, failed)
        if given is not None and runs_code(given):
            self._ends.loads.run(finish)
        else:
            finish()

    def _count(self, lead: Lead, call: Call, result_bytes: int) -> None:
        with self._lock:
            lead.end(call, result_bytes)
            is_free = self._free_lead(lead)
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
        except BaseException as error:  # of an error that is made such that looking at it fails
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
    told = call.failed(call, renamed(error, call.name))
    if told is not None:
        # The traceback is that of the thread, of no use to the program, and holds the call.
        call.future.set_exception(BaseException.with_traceback(told, None))
