"""Dask as an engine: ``gridloom.connect("dask://scheduler:8786", functions=[...])`` runs groups on a Dask cluster that stays as it is.

Calls are sent to the scheduler in graphs of up to some thousand. They are pinned by ``workers``, so that Dask does not move them, and have priorities
in the order of the plan. Each function is stored on each worker that runs it, unpickled once. Large arguments are sent directly to their worker
(``scatter(direct=True)``), results from worker to worker. A pinned call without effect that reads a result causes its transfer before other inputs of its
reader exist. When a worker dies, calls whose results were not collected run again with new keys: a pinned call would wait forever.

A call may open a session with the same cluster and wait for the session's calls. It leaves the thread pool of its worker (``distributed.secede``).
While the session is open, no call of the worker waits for a call that must run alone.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from ..common.reported_wait import reported_wait
from ..errors import ConnectError, ServerLost, UsageError
from .cluster_model import PROBE_BYTES, check_versions, links_between, operations_per_second, worker_name
from .protocol import CONNECT_SECONDS, Measured, NotYet, ResultLost
from .worker_functions import by_value

# Arguments of at least this size are sent directly to their worker, not through the scheduler.
_SCATTERED_BYTES_MIN = 64 << 10
# Size of one graph. Dask warns from 10 MB on, and a message must fit into the scheduler's memory.
_GRAPH_TASKS_MAX = 5_000
_GRAPH_BYTES_MAX = 4 << 20
# How long sending an argument to a worker may take.
_SCATTER_SECONDS = 10
_GATHER_SECONDS = 5.0
# How long one step of the measurement of a worker may take: the worker may have left.
_PROBE_SECONDS = 30.0
# States of a worker that was asked to shut down.
_LEAVING = ("closing", "closing_gracefully", "closed")
# States of a future that do not change by themselves.
_FAILED = ("error", "cancelled")
_ENDED = ("finished", *_FAILED)
# How long other calls wait at first for a call that must run alone and has not started: the calls that it waits for may need the others. Calls
# that give up let the next ones wait twice as long, so that long calls cannot delay it again and again.
_TURN_SECONDS = 10.0
# Environment variable that is set in workers that run calls, and so in the processes that they start.
_IN_CALL = "GRIDLOOM_DASK_CALL"
# The rank of what calls need.
_FIRST = -(1 << 40)
# The caller of `connect`, seen from `check_versions`.
_PROGRAM = 7
# The release that is known to work.
_TRIED = "2026.8"


class _Sent:
    """A call that is sent with the next graph, or was sent."""

    __slots__ = ("deaths", "future", "gather_seconds", "key", "worker")

    def __init__(self, key: str, worker: str, deaths: int) -> None:
        self.key, self.worker, self.deaths = key, worker, deaths
        self.gather_seconds = _GATHER_SECONDS
        self.future: Any = None


class DaskEngine:
    """A Dask cluster, by its scheduler's address (``tcp://host:8786``) or an open ``distributed.Client``."""

    recovers = False
    start_hint = "a Dask worker is started by 'dask worker SCHEDULER'"

    def __init__(self, scheduler: Any, limit: float = CONNECT_SECONDS) -> None:
        try:
            import distributed  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise ImportError("gridloom.connect('dask://...') needs Dask's distributed: pip install distributed") from None
        self._is_own = isinstance(scheduler, str)
        # Calls of a nested session do not wait for calls outside of it, because those may wait for the session's calls.
        self._is_nested = _IN_CALL in os.environ
        if self._is_own:
            _check_address(scheduler)
            scheduler = _connected(distributed, scheduler, limit)
        self._client: Any = scheduler
        # Restores the turns of calls when the nested session closes.
        self._host = contextlib.ExitStack()
        if self._is_nested:
            self._host.enter_context(_without_turns())
        # Begins to record when tasks run.
        self._client.get_task_stream(count=1)
        # Addresses of workers by name, also of those that have left, and the names that stand for an address.
        self._address: dict[str, str] = {}
        self._name: dict[str, str] = {}
        # Connected workers, by address and folder: a worker that restarts at the same address is a new worker.
        self._there: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        # Workers that cannot run functions of this program.
        self._refused: set[str] = set()
        # Held while workers are looked up and named.
        self._naming = threading.Lock()
        # For each dead worker, the calls that it had and those that were running. Suspected calls report start and end under the worker's topic.
        self._died_with: dict[str, tuple[set[str], set[str]]] = {}
        self._topic = f"gridloom-{os.urandom(8).hex()}"
        self._requested: Any = None
        self._scattered: dict[tuple[int, str], tuple[Any, Any]] = {}
        # The next graph: tasks, their workers and priorities, by key.
        self._graph: dict[str, tuple[Any, str, int]] = {}
        self._graph_bytes = 0
        # Calls without futures so far, and all calls since the last launch: Dask must not forget a result before a later graph reads it.
        self._noted: list[_Sent] = []
        self._retained: list[_Sent] = []
        # Functions on their workers.
        self._functions: dict[tuple[Callable[..., Any], str], _Sent] = {}
        # Calls that prefetch results: of the last group, and of the group that is being submitted.
        self._references: list[_Sent] = []
        self._ahead: list[_Sent] = []

    def _info(self) -> dict[str, Any]:
        why: Exception | str = "its connection is lost"
        try:
            if (there := self._client.scheduler_info(n_workers=-1).get("workers")) is not None:
                return dict(there)
        except (OSError, asyncio.TimeoutError) as error:
            why = error
        raise self._gone(why)

    def _gone(self, why: Exception | str) -> ServerLost:
        address = self._client.scheduler.address if self._client.scheduler else "its address"
        return ServerLost(f"the Dask scheduler at {address} answers no more: {why}; when it is back, connect anew")

    def _check_versions(self, joined: set[str]) -> None:
        """Refuse workers of another Python, which cannot read the code of functions, and warn of versions that were not tried."""
        versions = self._client.get_versions()
        versions["workers"] = {place: about for place, about in versions["workers"].items() if place in joined}
        places = {"this program": versions["client"], "the Dask scheduler": versions["scheduler"]}
        places |= {f"the Dask worker at {place}": about for place, about in versions["workers"].items()}
        check_versions("distributed", _TRIED, {place: str(about["packages"]["distributed"]) for place, about in places.items()}, _PROGRAM)
        python = {place: ".".join(str(about["host"]["python"]).split(".")[:2]) for place, about in versions["workers"].items()}
        ours = ".".join(str(versions["client"]["host"]["python"]).split(".")[:2])
        if others := {place: one for place, one in python.items() if one != ours}:
            place, one = min(others.items())
            self._refused |= {self._name[place.removeprefix("the Dask worker at ")] for place in others}
            raise ConnectError(
                f"the Dask worker at {place} has Python {one}, and this program {ours}, which it cannot run functions of: run the program "
                f"with Python {one}, or the workers with {ours}"
            )

    def workers(self) -> list[str]:
        """Names of the workers that are there now."""
        return self._names(self._info())

    def _names(self, there: dict[str, Any]) -> list[str]:
        with self._naming:
            before, self._there = self._there, {}
            for address, about in sorted(there.items()):
                identity = address, str(about.get("local_directory", ""))
                if (name := before.get(identity)) is None:
                    name = worker_name(len(self._address), str(about.get("name", "")), self._taken)
                    self._name[address], self._address[name] = name, address
                self._there[identity] = name
            if there:
                self._requested = None
            return [name for name in self._there.values() if name not in self._refused]

    def request_worker(self) -> None:
        """Submit a task that any worker can run."""
        # The worker may have left after it ran the call, or the cluster was restarted.
        if self._requested is None or self._requested.status in _ENDED:
            self._requested = self._client.submit(int, 0, pure=False)

    def probe(self, known: Measured | None = None) -> Measured:
        """Measure workers and links."""
        there = self._info()
        names = self._names(there)
        slots = {name: there[self._address[name]]["nthreads"] for name in names}
        speed, client, data, latency = {}, {}, np.zeros(PROBE_BYTES, np.uint8), []
        joined = [name for name in names if known is None or name not in known.slots]
        if joined:
            self._check_versions({self._address[name] for name in joined})
        try:
            with self._telling(_PROBE_SECONDS):
                for name in joined:
                    where = [self._address[name]]
                    self._ran_on(where, int, 0)
                    begun = time.perf_counter()
                    self._ran_on(where, int, 0)
                    latency.append(time.perf_counter() - begun)
                    speed[name] = float(self._ran_on(where, by_value(operations_per_second)))
                    begun = time.perf_counter()
                    self._client.scatter(data, workers=where, direct=True, hash=False, timeout=_PROBE_SECONDS)
                    client[name] = PROBE_BYTES / max(time.perf_counter() - begun, 1e-6)
                if known is not None:
                    speed |= {name: known.speed[name] for name in names if name in known.speed}
                    client |= {name: known.client_bytes_per_s[name] for name in names if name in known.client_bytes_per_s}
                quick = min(latency, default=0.0)
                hosts = {name: self._address[name].rpartition("//")[2].rpartition(":")[0] for name in names}

                def between(one: str, other: str) -> float:
                    with contextlib.suppress(asyncio.TimeoutError):
                        return self._between(one, other, quick)
                    # One of them runs a long call.
                    return min(client[one], client[other])

                links = links_between(hosts, known, between)
        except NotYet as error:
            raise ResultLost(f"a worker left while it was measured: {error}") from error
        return Measured(slots, speed, client, links, quick / 4 if known is None else known.latency_seconds)

    def _ran_on(self, where: list[str], function: Callable[..., Any], *args: Any) -> Any:
        return self._client.submit(function, *args, workers=where, pure=False).result(timeout=_PROBE_SECONDS)

    def _between(self, source: str, target: str, latency: float) -> float:
        """Bytes per second of a new datum from one worker to another."""
        data = self._client.submit(np.zeros, PROBE_BYTES, np.uint8, workers=[self._address[source]], pure=False)
        from distributed import wait  # type: ignore[import-not-found, import-untyped, unused-ignore]

        with self._client.as_current():
            wait(data, timeout=_PROBE_SECONDS)  # type: ignore[no-untyped-call, unused-ignore]
        begun = time.perf_counter()
        self._ran_on([self._address[target]], len, data)
        return PROBE_BYTES / max(time.perf_counter() - begun - latency, 1e-4)

    def dumps(self, body: Callable[..., Any]) -> bytes:
        """Pickle a function for the workers."""
        return bytes(cloudpickle.dumps(body))

    def submit(self, key: str, body: Callable[..., Any], args: list[Any], worker: str, rank: int, deaths: int) -> Any:
        """Have a call run on that worker."""
        if (body, worker) not in self._functions:
            # Before all calls that need it.
            pickled = self.dumps(_in_turn(body))
            self._functions[body, worker] = self._note(f"gridloom-{os.urandom(8).hex()}", (pickle.loads, pickled), worker, _FIRST)
        report = (f"{self._topic}-{worker}", key) if deaths else None
        return self._note(key, (_apply(), self._functions[body, worker], report, deaths > 1, self._is_nested, *args), worker, rank, deaths)

    def _note(self, key: str, what: tuple[Any, ...], worker: str, rank: int, deaths: int = 0) -> _Sent:
        """Put a call into the next graph: a function and its arguments."""
        from dask._task_spec import Task  # type: ignore[import-not-found, import-untyped, unused-ignore]

        if self._client.status == "closed":
            raise self._gone("the session has ended")
        where = self._address[worker]
        function, *args = what
        passed = [self._passed(one, where) for one in args]
        if len(self._graph) >= _GRAPH_TASKS_MAX or self._graph_bytes >= _GRAPH_BYTES_MAX:
            self._send()
        self._graph[key] = Task(key, function, *passed), where, -rank
        self._graph_bytes += sum(map(_size, passed))
        sent = _Sent(key, worker, deaths)
        self._noted.append(sent)
        self._retained.append(sent)
        return sent

    def _passed(self, value: Any, where: str) -> Any:
        from dask._task_spec import TaskRef  # type: ignore[import-not-found, import-untyped, unused-ignore]

        if isinstance(value, _Sent):
            return TaskRef(value.key)
        if _size(value) < _SCATTERED_BYTES_MIN:
            return value
        if (id(value), where) not in self._scattered:
            # Calls that have all that they need do not wait for this argument.
            self._send()
            try:
                there = self._client.scatter(value, workers=[where], direct=True, hash=False, timeout=_SCATTER_SECONDS)
            except (OSError, asyncio.TimeoutError) as error:
                raise ResultLost(f"an argument could not be sent to the worker at {where}: {error}") from error
            self._scattered[id(value), where] = value, there
        return TaskRef(self._scattered[id(value), where][1].key)

    def _send(self) -> None:
        """Send the graph that has been made."""
        from dask._expr import LLGExpr  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from dask.base import annotate  # type: ignore[import-not-found, import-untyped, unused-ignore]

        graph, noted = self._graph, self._noted
        if not graph:
            return
        self._graph, self._graph_bytes, self._noted = {}, 0, []
        # Without a token of ours, Dask would look through all arguments for one.
        tasks, token = {key: task for key, (task, _, _) in graph.items()}, os.urandom(16).hex()
        expression = LLGExpr(tasks, _determ_token=token)  # type: ignore[no-untyped-call, unused-ignore]
        workers, priority = {key: [where] for key, (_, where, _) in graph.items()}, {key: first for key, (_, _, first) in graph.items()}
        # Methods of dicts, which the scheduler can unpickle without code of ours. `workers=` of `get` takes no function.
        with annotate(workers=workers.__getitem__, priority=priority.__getitem__):
            futures = self._client.get(expression, [one.key for one in noted], sync=False)
        for one, future in zip(noted, futures):
            one.future = future

    def prefetch(self, key: str, result: Any, worker: str, rank: int) -> None:
        """Have a result sent to a worker as soon as it is made."""
        self._ahead.append(self._note(f"{key}-{os.urandom(4).hex()}", (id, result), worker, rank))

    def launch(self) -> None:
        """Send the submitted calls, and forget which arguments were sent and which results were prefetched for earlier groups."""
        self._send()
        self._scattered.clear()
        self._retained.clear()
        self._references, self._ahead = self._ahead, []

    def discard(self) -> None:
        """Forget calls that were not sent, and data and functions on workers for calls: some may be lost."""
        for held in (self._scattered, self._functions, self._graph, self._noted, self._retained, self._ahead):
            held.clear()
        self._graph_bytes = 0

    def wait(self, results: list[Any], timeout: float) -> int | None:
        """Wait for the end of calls."""
        from distributed import wait  # type: ignore[import-not-found, import-untyped, unused-ignore]

        def failed() -> int | None:
            return next((place for place, one in enumerate(results) if one.future.status in _FAILED), None)

        with self._telling(timeout):
            if failed() is None and (pending := [one.future for one in results if one.future.status not in _ENDED]):
                try:
                    with self._client.as_current():
                        wait(pending, timeout=timeout)  # type: ignore[no-untyped-call, unused-ignore]
                except asyncio.TimeoutError:
                    if failed() is None:
                        raise
        return failed()

    def collect(self, result: Any, timeout: float) -> Any:
        """Wait for a result and bring it here."""
        from distributed import KilledWorker  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self.wait([result], timeout)
        if result.future.status == "error" and not isinstance(error := result.future.exception(), KilledWorker):
            # That of the function, which may be of a class that waiting raises, too.
            raise error.with_traceback(result.future.traceback())
        # A result that only a dead worker has would be waited for forever. A large one takes its time: the next try gets twice as long.
        seconds, result.gather_seconds = result.gather_seconds, 2 * result.gather_seconds
        found = self._gathered([result], seconds)
        if not found:
            raise ResultLost(f"the result of call {result.key} is not known to Dask any more")
        return found[0]

    def _gathered(self, results: list[Any], seconds: float) -> list[Any]:
        """Fetch results, except those that are lost in the meantime."""
        futures = [one.future for one in results]
        # Unlike `result`, this leaves no task in Dask's loop that fails when the future is cancelled. `gather` has no timeout.
        with self._telling(seconds):
            return list(self._client.sync(self._client._gather, futures, errors="skip", callback_timeout=seconds))

    def collect_ended(self, results: list[Any]) -> dict[int, Any]:
        """Fetch the results of calls that have ended well, together."""
        places = [place for place, one in enumerate(results) if one.future is not None and one.future.status == "finished"]
        if not places:
            return {}
        found = self._gathered([results[place] for place in places], _GATHER_SECONDS)
        return dict(zip(places, found)) if len(found) == len(places) else {}

    def has_ended(self, result: Any) -> bool:
        """Whether a call has ended."""
        if result.future is None or result.future.status in ("cancelled", "lost") or self._was_given_up(result):
            raise ResultLost(f"call {result.key} is not known to Dask")
        return result.future.status in _ENDED

    def _was_given_up(self, result: _Sent) -> bool:
        """Whether Dask gave up the call because too many workers were lost."""
        from distributed import KilledWorker  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return result.future.status == "error" and isinstance(result.future.exception(), KilledWorker)

    def has_died(self, result: _Sent) -> bool:
        """Whether the worker of the call died while the call was running or may have been running."""
        if result.worker not in self._died_with:
            events = self._events(f"{self._topic}-{result.worker}")
            began, ended = ({str(event["key"]) for event in events if event["has_ended"] is has_ended} for has_ended in (False, True))
            self._died_with[result.worker] = self._had(result.worker), began - ended
        had, ran = self._died_with[result.worker]
        return result.key in had and (not result.deaths or result.key in ran)

    def _had(self, worker: str) -> set[str]:
        """The calls that a worker had when it died; empty if it was asked to shut down."""
        had: set[str] = set()
        is_leaving = False
        for event in self._events(self._address[worker]):
            action = event.get("action")
            if action == "add-worker":
                is_leaving = False
            elif action in ("close-worker", "retired") or action == "worker-status-change" and event.get("status") in _LEAVING:
                is_leaving = True
            elif action == "remove-worker":
                is_expected = is_leaving or event.get("expected")
                had = set() if is_expected else set(map(str, event.get("processing-tasks", ())))
        return had

    def _events(self, topic: str) -> list[dict[str, Any]]:
        try:
            return [event for _, event in self._client.get_events(topic) or () if isinstance(event, dict)]
        except (OSError, asyncio.TimeoutError) as error:
            raise self._gone(error) from error

    @contextlib.contextmanager
    def _telling(self, seconds: float) -> Iterator[None]:
        """Raise Dask's errors as those of an engine, and errors of functions as they are."""
        from distributed import KilledWorker  # type: ignore[import-not-found, import-untyped, unused-ignore]

        try:
            yield
        except asyncio.TimeoutError:  # before Python 3.11 a class of its own
            raise NotYet(f"no result within {seconds} s") from None
        except (concurrent.futures.CancelledError, asyncio.CancelledError, KilledWorker) as error:  # also if the scheduler is gone
            raise ResultLost(str(error)) from error

    def times(self, keys: Iterable[str]) -> dict[str, tuple[float, float, str]]:
        """When calls ran."""
        wanted, names, found = set(keys), self._name, {}
        for one in self._client.get_task_stream(count=100_000):
            spans = [span for span in one["startstops"] if span["action"] == "compute"]
            if one["key"] in wanted and spans:
                found[one["key"]] = spans[0]["start"], spans[-1]["stop"], names.get(one["worker"], one["worker"])
        return found

    def close(self) -> None:
        """End the connection, unless the client was given."""
        self.discard()
        self._references.clear()
        if self._is_own:
            self._client.close()
        self._host.close()


def _size(value: Any) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else len(value) if isinstance(value, (bytes, str)) else 0


def _apply() -> Callable[..., Any]:
    """Calls its first argument with the others: it is there with any Dask."""
    from toolz import apply  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return apply  # type: ignore[no-any-return]


def _check_address(address: str) -> None:
    """Reject an invalid address, which Dask would detect only while its client runs."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"connect: expected dask://HOST:PORT, the address of a Dask scheduler, got 'dask://{address.removeprefix('tcp://')}'")


def _connected(distributed: Any, address: str, limit: float) -> Any:
    """Return a client of the scheduler at this address."""

    class Client(distributed.Client):  # type: ignore[misc, unused-ignore]
        """A client whose time limit includes the handshake, for which Dask waits without limit."""

        def start(self, **options: Any) -> None:
            try:
                super().start(**options)
            except BaseException:
                # The garbage collector would close it, possibly while another client starts: Dask would then wait for a lock
                # that the same thread holds.
                with contextlib.suppress(Exception):
                    self.close()
                self.status = "closed"
                self._loop_runner.stop()
                raise

        async def _start(self, timeout: Any = None, **options: Any) -> Any:
            try:
                return await asyncio.wait_for(super()._start(timeout=timeout, **options), limit)
            except asyncio.TimeoutError:
                raise OSError("a program accepts connections there, but does not answer") from None

    try:
        with reported_wait(f"the Dask scheduler at {address}", limit):
            return Client(address, timeout=limit, set_as_default=False)
    except Exception as error:  # another program's answer may lead to any error
        raise ConnectError(
            f"no Dask scheduler answers at {address} within {limit:g} s: {error}; check the address and the scheduler's log, or wait "
            "longer: gridloom.connect(..., timeout=SECONDS)"
        ) from error


@contextlib.contextmanager
def _without_turns() -> Iterator[None]:
    """Leave the thread pool of the Dask worker, and let none of its calls wait for a call that must run alone."""
    from distributed import get_worker, secede  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        calls = vars(get_worker())["gridloom_turns"]  # type: ignore[no-untyped-call, unused-ignore]
    except (ValueError, KeyError):  # a process that a call has started
        yield
        return
    with contextlib.suppress(AttributeError, KeyError):  # the thread is not, or no longer, in the pool
        secede()  # type: ignore[no-untyped-call, unused-ignore]

    def change(by: int) -> None:
        with calls["changed"]:
            calls["sessions"] += by
            calls["changed"].notify_all()

    change(1)
    try:
        yield
    finally:
        change(-1)


def _in_turn(body: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function for workers. If `report` is set, it reports its start and end; if `is_alone`, no other call runs beside it in the process.

    A nested call does not wait for its turn, and no call waits while a call of the worker has an open session.
    """

    def run(report: tuple[str, str] | None, is_alone: bool, is_nested: bool, *args: Any) -> Any:
        import contextlib
        import os
        import threading

        from distributed import get_worker
        from distributed.utils import sync

        worker = get_worker()

        def tell(has_ended: bool) -> None:
            # The scheduler has received the event when this returns, so the event outlives the process.
            if report is not None:
                topic, key = report
                sync(worker.loop, worker.scheduler.log_event, topic=topic, msg={"key": key, "has_ended": has_ended})

        os.environ[_IN_CALL] = "1"
        is_alone = is_alone and not is_nested
        calls = vars(worker).setdefault("gridloom_turns", {"changed": threading.Condition(), **dict.fromkeys(("running", "waiting", "alone", "sessions"), 0), "patience": _TURN_SECONDS})
        with calls["changed"]:
            if is_alone:
                calls["waiting"] += 1
                calls["changed"].wait_for(lambda: calls["sessions"] or not calls["running"])
                calls["waiting"] -= 1
                calls["patience"] = _TURN_SECONDS
            elif not is_nested:
                patience = calls["patience"]
                if not calls["changed"].wait_for(lambda: calls["sessions"] or not (calls["waiting"] or calls["alone"]), patience):
                    calls["patience"] = max(calls["patience"], 2 * patience)
                calls["changed"].wait_for(lambda: calls["sessions"] or not calls["alone"])
            calls["running"] += 1
            calls["alone"] += is_alone
        try:
            tell(False)
            try:
                return body(*args)
            finally:
                # The next call may end the process before the scheduler has the result.
                if is_alone:
                    with contextlib.suppress(OSError):
                        tell(True)
        finally:
            with calls["changed"]:
                calls["running"] -= 1
                calls["alone"] -= is_alone
                calls["changed"].notify_all()

    return run
