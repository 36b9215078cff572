"""Groups on a cluster of another system, which stays as it is: an engine runs the calls as our plan says.

A simulated grid with the measured hosts and links of the cluster is the model: it checks arguments, maps each group, and knows where results
are stored. The engine runs the functions themselves, each call on the worker that the model chose.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import os
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import _gridloom
from ..calls.function import Function
from ..calls.session_state import SessionState
from ..common.executable import program
from ..errors import ServerLost, TimedOut, UsageError
from ..functions.offer import files_of, offered_name, signature_of, undeclared
from ..groups.group import Group
from ..groups.handle import Handle
from ..plans.heuristic import Heuristic, mapping_of
from ..plans.plan import Plan, TaskRecord
from ..run.retry import RetryOn
from .cluster_model import platform
from .protocol import Engine, Measured, NotYet, ResultLost
from .worker_functions import body_of, conversions_of, error_of, part_of

# Results of at least this size are sent to their reader before all inputs of the call exist.
_PREFETCHED_BYTES_MIN = 1 << 20
# How often it is looked whether workers are lost, seconds.
_LOOKS_SECONDS = 1.0
# How often calls run again, as workers are lost.
_GENERATIONS_MAX = 10
# How many calls are waited for at a time, which bounds the work of an engine for each poll.
_WAITED_MAX = 1_000


class _Call:
    """A call, with all data to run it again."""

    def __init__(self, cluster: EngineCluster, name: str, args: dict[str, Any], outputs: int) -> None:
        self.cluster, self.name, self.args, self.outputs = cluster, name, args, outputs
        self.worker, self.rank = "", 0
        # Shapes of its results that are arrays, as far as they are known.
        self.shapes: list[tuple[int, ...] | None] = []
        self.key = ""
        self.result: Any = None
        # In which generation of workers it was submitted.
        self.generation = -1

    def submitted(self) -> Any:
        """Reference to its result, after it was sent, again if workers were lost since."""
        # Calls whose results it reads are sent first, in a loop: a chain may be longer than Python's stack.
        waiting = [self]
        while waiting:
            call = waiting[-1]
            handles = (one for one in call.args.values() if isinstance(one, EngineHandle))
            before = [one._made_by for one in handles if one._made_by.generation != self.cluster._generation]
            if call.generation == self.cluster._generation:
                waiting.pop()
            elif before:
                waiting += before
            else:
                call._submit()
        return self.result

    def _submit(self) -> None:
        engine, worker = self.cluster._engine, self.cluster._alive(self.worker)
        args: list[Any] = [self.shapes]
        for value in self.args.values():
            if not isinstance(value, EngineHandle):
                args.append(value)
                continue
            made_at, part = self.cluster._alive(value._made_by.worker), f"{value._made_by.key}-{value._number}"
            read, ahead = value._made_by.result, f"{part}-to-{worker}"
            if value._made_by.outputs > 1:
                if part not in self.cluster._parts:
                    key = f"{part}-for-{next(self.cluster._numbers)}"
                    self.cluster._parts[part] = engine.submit(key, part_of(value._number), [read], made_at, self.rank)
                read = self.cluster._parts[part]
            if made_at != worker and value._size_bytes() >= _PREFETCHED_BYTES_MIN and len(self.args) > 1 and ahead not in self.cluster._ahead:
                self.cluster._ahead.add(ahead)
                engine.prefetch(ahead, read, worker, self.rank)
            args.append(read)
        self.key = f"gridloom-{os.urandom(4).hex()}-{self.name.replace('/', '-')}-{next(self.cluster._numbers)}"
        self.result = engine.submit(self.key, self.cluster._sent[self.name], args, worker, self.rank)
        self.generation = self.cluster._generation
        self.cluster._unsent.append(self)


class EngineHandle(Handle):
    """A result on a worker of the engine."""

    def __init__(self, modelled: Handle, call: _Call, number: int) -> None:
        super().__init__(modelled._raw, modelled._group, modelled._name, modelled._call)
        self._made_by, self._number = call, number
        self._here: list[Any] = []

    def _fetch(self, limit: float | None) -> Any:
        if not self._here:
            value = self._made_by.cluster._collect(self._made_by, limit)
            self._here.append(value[self._number] if self._made_by.outputs > 1 else value)
        self._ended, self._end = True, "fetched"
        return self._here[0]

    def prefetch(self) -> None:
        """Does nothing: the engine brings results when they are asked for."""

    def _size_bytes(self) -> int:
        size = 8
        for extent in self.shape if self._raw.kind == "array" and self.shape else ():
            size *= extent
        return size


@dataclasses.dataclass(frozen=True)
class EngineReport:
    """Report of a group on an engine.

    Attributes
    ----------
    predicted_seconds, measured_seconds : float
        Makespan: of the plan, and from the first call's start to the last one's end on the engine's clocks.
    tasks : list of TaskRecord
        Calls as they ran.
    planned : dict of str to str
        The worker of the plan for each task.
    """

    predicted_seconds: float
    measured_seconds: float
    tasks: list[TaskRecord]
    planned: dict[str, str]

    def __str__(self) -> str:
        away = sum(one.server != self.planned[one.task] for one in self.tasks)
        moved = f", {away} not where the plan has them" if away else ""
        servers = len({one.server for one in self.tasks})
        return (
            f"{len(self.tasks)} calls on {servers} workers{moved}\n"
            f"makespan: predicted {self.predicted_seconds:.4g} s, measured {self.measured_seconds:.4g} s"
        )


class EngineGroup(Group):
    """A group of calls that run on an engine."""

    def __init__(self, cluster: EngineCluster, raw: _gridloom.RawGroup, heuristic: str | Plan | Heuristic) -> None:
        super().__init__(cluster.session, raw, heuristic)
        self._cluster = cluster
        self._engine_calls: list[_Call] = []

    def _record(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        modelled = super()._record(function, args, kwargs)
        parameters = inspect.signature(self._cluster._bodies[function.name]).parameters
        given = dict(zip(parameters, args), **{name: value for name, value in kwargs.items() if name in parameters})
        handles = () if modelled is None else modelled if isinstance(modelled, tuple) else (modelled,)
        converted = self._cluster._conversions[function.name]
        passed = {name: one if isinstance(one := given[name], EngineHandle) else converted[name](one) for name in parameters}
        call = _Call(self._cluster, function.name, passed, len(handles))
        call.shapes = [None if one.shape is None else tuple(one.shape) for one in handles]
        self._engine_calls.append(call)
        made = tuple(EngineHandle(one, call, number) for number, one in enumerate(handles))
        return made[0] if len(made) == 1 else made or None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        super().__exit__(kind, error, traceback)
        if kind is not None:
            return
        super().wait()
        self._modelled = super().report()
        # The order of their numbers is the order in which calls were recorded.
        records = sorted(self._modelled.tasks, key=lambda one: int(one.task))
        for call, record in zip(self._engine_calls, records, strict=True):
            call.worker = record.server
        order = sorted(range(len(records)), key=lambda number: records[number].start_seconds)
        for rank, number in enumerate(order):
            self._engine_calls[number].rank = rank
        self._cluster._submit(self._engine_calls[number] for number in order)

    def wait(self) -> None:
        """Wait for all calls; the first exception of one is raised."""
        self._cluster._wait(self._engine_calls)

    def report(self) -> EngineReport:  # type: ignore[override]
        """Return predictions and measurements of the engine, after the end of all calls.

        Returns
        -------
        EngineReport
            Times are those of the engine's workers.
        """
        self.wait()
        calls = {call.key: call for call in self._engine_calls}
        times = self._cluster._engine.times(calls)
        begun = min((start for start, _, _ in times.values()), default=0.0)
        tasks = [TaskRecord(key, calls[key].name, worker, start - begun, end - begun, None) for key, (start, end, worker) in times.items()]
        measured = max((one.end_seconds for one in tasks), default=0.0)
        return EngineReport(self._modelled.predicted_seconds, measured, tasks, {key: call.worker for key, call in calls.items()})


class EngineFunction(Function):
    """A function that an engine runs."""

    def __init__(self, cluster: EngineCluster, raw: _gridloom.RawFunction, server: str | None = None) -> None:
        super().__init__(cluster.session, raw, server)
        self._cluster = cluster

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: now and by itself, or, inside the block of a group, record the call."""
        group = self._session.current.get()
        if group is not None:
            return group._record(self, args, kwargs)
        with self._cluster.group("auto") as alone:
            made = alone._record(self, args, kwargs)
        if made is None:
            return alone.wait()
        return tuple(one.get() for one in made) if isinstance(made, tuple) else made.get()

    def on(self, server: str) -> EngineFunction:
        """Return the same function on that worker and no other."""
        return EngineFunction(self._cluster, self._raw.on(server), server)

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Is not there: record the call in a group, which does not wait either."""
        raise UsageError(f"{self.name}: calls of an engine are recorded in groups: with grid.group(): handle = function(...)")


class EngineCluster:
    """A cluster of another system, on which an engine runs groups of functions of the program.

    Attributes
    ----------
    raw : RawGrid
        The simulated grid that is the model of the cluster.
    session : SessionState
        State of the session.
    folder : tempfile.TemporaryDirectory or None
        Files of the functions for the model.
    measured : Measured
        The cluster as it was measured.
    """

    def __init__(self, engine: Engine, measured: Measured, functions: Iterable[Callable[..., Any]]) -> None:
        bodies = list(functions)
        if not bodies or not all(isinstance(body, types.FunctionType) for body in bodies):
            raise UsageError(
                "an engine runs functions of the program that have types in their annotations, and needs them at the beginning: "
                f"gridloom.connect(..., functions=[f, g]); got {bodies!r}"
            )
        self._bodies = {offered_name(body): undeclared(body) for body in bodies if isinstance(body, types.FunctionType)}
        # The functions in the form in which workers run them.
        signatures = [signature_of(body) for body in bodies]
        self._sent = {one.name: body_of(engine.dumps(self._bodies[one.name]), one) for one in signatures}
        self._conversions = {one.name: conversions_of(one) for one in signatures}
        files, self.folder = files_of(bodies)
        with tempfile.TemporaryDirectory(prefix="gridloom-engine-") as folder:
            path = Path(folder, "cluster.toml")
            path.write_text(platform(measured))
            self.raw = _gridloom.simulate(
                platform=os.fspath(path),
                deployment=None,
                functions=files,
                libraries=[],
                execute=False,
                seed=0,
                network=None,
                blas=None,
                python=sys.executable or None,
                program=program(),
            )
        self.session = SessionState(self.raw)
        self._engine, self.measured = engine, measured
        self._generation, self._workers = 0, engine.workers()
        self._numbers = itertools.count()
        # Held by the thread that submits calls, or looks for lost workers.
        self._submitting = threading.RLock()
        # For the calls that are being submitted: calls not sent yet, parts of several results, and results that are prefetched.
        self._unsent: list[_Call] = []
        self._parts: dict[str, Any] = {}
        self._ahead: set[str] = set()

    def function(self, name: str | Callable[..., Any], *, retries: int = 0, retry_on: RetryOn | None = None) -> EngineFunction:
        """Find a function of the program that was named when the session began."""
        if retries or retry_on:
            raise UsageError("calls of an engine are not tried again: have the function itself try again")
        return EngineFunction(self, self.raw.function(offered_name(name)))

    def group(self, heuristic: str | Plan | Heuristic, map_timeout: float | None = None) -> EngineGroup:
        """Make a group of calls; `map_timeout` is in seconds."""
        return EngineGroup(self, self.raw.group(mapping_of(heuristic, map_timeout)), heuristic)

    def close(self) -> None:
        """End the connection to the cluster."""
        self._engine.close()

    def _alive(self, worker: str) -> str:
        """That worker, or one in its place if it is lost."""
        if worker in self._workers:
            return worker
        known = sorted(self.measured.slots)
        return sorted(self._workers)[known.index(worker) % len(self._workers)]

    def _submit(self, calls: Iterable[_Call]) -> list[Any]:
        """References to the results of calls, after they were sent, again if workers were lost since."""
        wanted = list(calls)
        while True:
            generation = self._generation
            try:
                with self._submitting:
                    return self._sent_together(wanted)
            except ResultLost as error:
                self._lost(wanted[0].name, error, generation)

    def _sent_together(self, calls: list[_Call]) -> list[Any]:
        try:
            results = [call.submitted() for call in calls]
            if self._unsent:
                self._engine.launch()
            return results
        except BaseException:
            # They are submitted again when their results are asked for.
            for call in self._unsent:
                call.generation = -1
            self._engine.discard()
            raise
        finally:
            self._unsent.clear()
            self._parts.clear()
            self._ahead.clear()

    def _wait(self, calls: list[_Call]) -> None:
        """Wait for calls; the first exception of one is raised."""
        calls, done, generation, looks = list(calls), 0, -1, 0
        results: list[Any] = []
        while done < len(calls):
            if generation != self._generation:
                done, generation, results = 0, self._generation, self._submit(calls)
            try:
                failed = self._failed(results, done, looks)
            except NotYet:
                looks += 1
                self._look(False)
            except ResultLost as error:
                self._lost("a group of calls", error, generation)
            else:
                if failed is None:
                    done += _WAITED_MAX
                else:
                    # Calls before it may still run.
                    self._collect(calls.pop(failed), None)
                    results.pop(failed)

    def _failed(self, results: list[Any], done: int, looks: int) -> int | None:
        """Wait for the next calls: none, or the place of one that failed, which may be behind them."""
        try:
            failed = self._engine.wait(results[done : done + _WAITED_MAX], _LOOKS_SECONDS)
            return None if failed is None else done + failed
        except NotYet:
            behind = range(done + _WAITED_MAX, len(results), _WAITED_MAX)
            # Different ones at each poll, which bounds the work of the engine.
            if behind:
                first = behind[looks % len(behind)]
                with contextlib.suppress(NotYet):
                    if (failed := self._engine.wait(results[first : first + _WAITED_MAX], 0)) is not None:
                        return first + failed
            raise

    def _collect(self, call: _Call, limit: float | None) -> Any:
        until = None if limit is None else time.monotonic() + limit
        while True:
            generation = self._generation
            try:
                return self._engine.collect(self._submit([call])[0], _LOOKS_SECONDS)
            except NotYet:
                if until is not None and time.monotonic() > until:
                    raise TimedOut(
                        f"no result of {call.name} within {limit} s; the call is still running, call get() again"
                    ) from None
                self._look(False)
            except RuntimeError as error:
                if (known := error_of(error, call.worker)) is not None:
                    raise known from error
                raise
            except ResultLost as error:
                self._lost(call.name, error, generation)

    def _lost(self, name: str, error: ResultLost, generation: int) -> None:
        """A result of calls that were submitted in that generation is lost."""
        with self._submitting:
            # Else another thread has seen to it.
            if generation != self._generation:
                return
            if self._generation >= _GENERATIONS_MAX:
                raise ServerLost(f"{name}: a result was lost {_GENERATIONS_MAX} times: {error}") from error
            self._look(True)

    def _look(self, is_lost: bool) -> None:
        """If workers or a result are lost, run calls whose results were not collected again on the remaining workers."""
        with self._submitting:
            self._look_alone(is_lost)

    def _look_alone(self, is_lost: bool) -> None:
        now = [one for one in self._engine.workers() if one in self._workers]
        if not now:
            raise ServerLost(f"the cluster has lost all workers that it had: {', '.join(self._workers)}")
        if is_lost or len(now) < len(self._workers):
            self._workers = now
            if is_lost or not self._engine.recovers:
                self._generation += 1
                self._engine.discard()
