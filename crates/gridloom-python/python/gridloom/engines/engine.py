"""Groups on a cluster of another system, which stays as it is: an engine runs the calls as our plan says.

A simulated grid with the hosts and links of the cluster, as they were measured, is the model: it checks arguments, maps each group, and knows
where results lie. The engine runs the functions themselves, each call on the worker that the model chose.

The seam is `Engine`; each engine is one file.
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
from typing import Any, Protocol

from . import _gridloom
from ._command import program
from ._engine_parts import body_of, conversions_of, part_of, platform, told
from ._errors import ServerLost, UsageError, WaitTimedOut
from ._function import Function
from ._grid import Grid
from ._group import Group, Handle
from ._heuristic import Heuristic, mapping_of
from ._offered import _signature_of, files_of, offered_name, undeclared
from ._plan import Plan, TaskRecord

# What a call gets beside a name is checked by the model; results of at least so many bytes are sent before all inputs of a call exist.
_PREFETCHED_BYTES_MIN = 1 << 20
# How often it is looked whether workers are lost, seconds.
_LOOKS_SECONDS = 1.0
# How often calls run again, as workers are lost.
_GENERATIONS_MAX = 10
# So many calls are waited for at a time: what an engine does anew at each look is bounded.
_WAITED_MAX = 1_000


@dataclasses.dataclass(frozen=True)
class Measured:
    """A cluster as it was measured."""

    # By worker: calls that it runs at a time, and the speed of one in operations per second.
    slots: dict[str, int]
    speed: dict[str, float]
    # Bytes per second from the client to each worker, and between any two workers, which stand in the order of their names.
    client_bytes_per_s: dict[str, float]
    direct_bytes_per_s: dict[tuple[str, str], float]
    latency_seconds: float


class NotYet(Exception):
    """A result has not come so far."""


class ResultLost(Exception):
    """A result, or data that its call reads, went with a worker."""


class Engine(Protocol):
    """A system that runs functions on workers that it is told."""

    recovers: bool
    """Whether calls and results that are lost with a worker are made again by the engine itself, on another one."""

    def workers(self) -> list[str]:
        """Names of the workers that are there now."""

    def probe(self) -> Measured:
        """Measure workers and links."""

    def dumps(self, body: Callable[..., Any]) -> bytes:
        """Pickle a function for the workers."""

    def submit(self, key: str, body: Callable[..., Any], args: list[Any], worker: str, rank: int) -> Any:
        """Have a call run on that worker, those of lower rank first; gives what stands for its result in `args` of others.

        It is sent at the latest by `launch`: many calls go in one message. `ResultLost` if the worker is not reached. One thread at a time
        submits, launches and discards.
        """

    def prefetch(self, key: str, result: Any, worker: str, rank: int) -> None:
        """Have a result sent to a worker as soon as it is made."""

    def launch(self) -> None:
        """Send what was submitted, and forget which arguments were sent: all calls of a group have been submitted."""

    def discard(self) -> None:
        """Forget what was submitted and not sent, and what lies on workers for calls: submission has failed, or a worker was lost."""

    def wait(self, results: list[Any], timeout: float) -> int | None:
        """Wait for the end of launched calls: none, or the place of one that failed, though others go on.

        `NotYet` after so many seconds, or `ResultLost`.
        """

    def collect(self, result: Any, timeout: float) -> Any:
        """Wait for a result and bring it here: `NotYet` after so many seconds, `ResultLost`, or the function's own exception."""

    def times(self, keys: Iterable[str]) -> dict[str, tuple[float, float, str]]:
        """When calls ran, seconds of the workers' clocks, and on which worker."""

    def close(self) -> None:
        """End the connection; the cluster goes on."""


class _Call:
    """A call, with what is needed to run it again."""

    def __init__(self, grid: EngineGrid, name: str, args: dict[str, Any], outputs: int) -> None:
        self.grid, self.name, self.args, self.outputs = grid, name, args, outputs
        self.worker, self.rank = "", 0
        # Of its results that are arrays, as far as they are known.
        self.shapes: list[tuple[int, ...] | None] = []
        self.key = ""
        self.result: Any = None
        # In which generation of workers it was submitted.
        self.generation = -1

    def submitted(self) -> Any:
        """What stands for its result, after it was sent, again if workers were lost since."""
        # What it reads goes first: a chain may be longer than Python's stack.
        waiting = [self]
        while waiting:
            call = waiting[-1]
            handles = (one for one in call.args.values() if isinstance(one, EngineHandle))
            before = [one._made_by for one in handles if one._made_by.generation != self.grid._generation]
            if call.generation == self.grid._generation:
                waiting.pop()
            elif before:
                waiting += before
            else:
                call._submit()
        return self.result

    def _submit(self) -> None:
        engine, worker = self.grid._engine, self.grid._alive(self.worker)
        args: list[Any] = [self.shapes]
        for value in self.args.values():
            if not isinstance(value, EngineHandle):
                args.append(value)
                continue
            made_at, part = self.grid._alive(value._made_by.worker), f"{value._made_by.key}-{value._number}"
            read, ahead = value._made_by.result, f"{part}-to-{worker}"
            if value._made_by.outputs > 1:
                if part not in self.grid._parts:
                    key = f"{part}-for-{next(self.grid._numbers)}"
                    self.grid._parts[part] = engine.submit(key, part_of(value._number), [read], made_at, self.rank)
                read = self.grid._parts[part]
            if made_at != worker and value._size_bytes() >= _PREFETCHED_BYTES_MIN and len(self.args) > 1 and ahead not in self.grid._ahead:
                self.grid._ahead.add(ahead)
                engine.prefetch(ahead, read, worker, self.rank)
            args.append(read)
        self.key = f"gridloom-{os.urandom(4).hex()}-{self.name.replace('/', '-')}-{next(self.grid._numbers)}"
        self.result = engine.submit(self.key, self.grid._sent[self.name], args, worker, self.rank)
        self.generation = self.grid._generation
        self.grid._unsent.append(self)


class EngineHandle(Handle):
    """A result on a worker of the engine."""

    def __init__(self, modelled: Handle, call: _Call, number: int) -> None:
        super().__init__(modelled._raw, modelled._group, modelled._name, modelled._call)
        self._made_by, self._number = call, number
        self._here: list[Any] = []

    def _fetch(self, limit: float | None) -> Any:
        if not self._here:
            value = self._made_by.grid._collect(self._made_by, limit)
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
    """A group's course on an engine.

    Attributes
    ----------
    predicted_seconds, measured_seconds : float
        Makespan: of the plan, and from the first call's start to the last one's end as the engine tells.
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

    _grid: EngineGrid

    def _record(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        modelled = super()._record(function, args, kwargs)
        parameters = inspect.signature(self._grid._bodies[function.name]).parameters
        given = dict(zip(parameters, args), **{name: value for name, value in kwargs.items() if name in parameters})
        handles = () if modelled is None else modelled if isinstance(modelled, tuple) else (modelled,)
        converted = self._grid._conversions[function.name]
        passed = {name: one if isinstance(one := given[name], EngineHandle) else converted[name](one) for name in parameters}
        call = _Call(self._grid, function.name, passed, len(handles))
        call.shapes = [None if one.shape is None else tuple(one.shape) for one in handles]
        self._made().append(call)
        made = tuple(EngineHandle(one, call, number) for number, one in enumerate(handles))
        return made[0] if len(made) == 1 else made or None

    def _made(self) -> list[_Call]:
        return self.__dict__.setdefault("_engine_calls", [])  # type: ignore[no-any-return]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        super().__exit__(kind, error, traceback)
        if kind is not None:
            return
        super().wait()
        self._modelled = super().report()
        # In order of their numbers, calls stand as they were recorded.
        records = sorted(self._modelled.tasks, key=lambda one: int(one.task))
        for call, record in zip(self._made(), records, strict=True):
            call.worker = record.server
        order = sorted(range(len(records)), key=lambda number: records[number].start_seconds)
        for rank, number in enumerate(order):
            self._made()[number].rank = rank
        self._grid._submit(self._made()[number] for number in order)

    def wait(self) -> None:
        """Wait for all calls; the first exception of one is raised."""
        self._grid._wait(self._made())

    def report(self) -> EngineReport:  # type: ignore[override]
        """Tell what was predicted and what the engine measured, after the end of all calls.

        Returns
        -------
        EngineReport
            Times are those of the engine's workers.
        """
        self.wait()
        calls = {call.key: call for call in self._made()}
        times = self._grid._engine.times(calls)
        begun = min((start for start, _, _ in times.values()), default=0.0)
        tasks = [TaskRecord(key, calls[key].name, worker, start - begun, end - begun, None) for key, (start, end, worker) in times.items()]
        measured = max((one.end_seconds for one in tasks), default=0.0)
        return EngineReport(self._modelled.predicted_seconds, measured, tasks, {key: call.worker for key, call in calls.items()})


class EngineFunction(Function):
    """A function that an engine runs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: now and by itself, or, inside the block of a group, record the call."""
        group = self._grid._current.get()
        if group is not None:
            return group._record(self, args, kwargs)
        with self._grid.group() as alone:
            made = alone._record(self, args, kwargs)
        if made is None:
            return alone.wait()
        return tuple(one.get() for one in made) if isinstance(made, tuple) else made.get()

    def on(self, server: str) -> EngineFunction:
        """Give the same function on that worker and no other."""
        return EngineFunction(self._grid, self._raw.on(server), server)

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Is not there: record the call in a group, which does not wait either."""
        raise UsageError(f"{self.name}: calls of an engine are recorded in groups: with grid.group(): handle = function(...)")


class EngineGrid(Grid):
    """A session with a cluster of another system: functions and groups, as of a grid."""

    def __init__(self, engine: Engine, measured: Measured, functions: Iterable[Callable[..., Any]]) -> None:
        bodies = list(functions)
        if not bodies or not all(isinstance(body, types.FunctionType) for body in bodies):
            raise UsageError(
                "an engine runs functions of the program that have types in their annotations, and needs them at the beginning: "
                f"gridloom.connect(..., functions=[f, g]); got {bodies!r}"
            )
        self._bodies = {offered_name(body): undeclared(body) for body in bodies if isinstance(body, types.FunctionType)}
        # As workers run them.
        signatures = [_signature_of(body) for body in bodies]
        self._sent = {one.name: body_of(engine.dumps(self._bodies[one.name]), one) for one in signatures}
        self._conversions = {one.name: conversions_of(one) for one in signatures}
        files, made = files_of(bodies)
        with tempfile.TemporaryDirectory(prefix="gridloom-engine-") as folder:
            path = Path(folder, "cluster.toml")
            path.write_text(platform(measured))
            raw = _gridloom.simulate(
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
        super().__init__(raw, folder=made)
        self._engine, self.measured = engine, measured
        self._generation, self._workers = 0, engine.workers()
        self._numbers = itertools.count()
        # Held by the thread that submits calls, or looks for lost workers.
        self._submitting = threading.RLock()
        # Of what is being submitted: calls, single ones of several results, and results that are sent ahead, once to each worker.
        self._unsent: list[_Call] = []
        self._parts: dict[str, Any] = {}
        self._ahead: set[str] = set()

    def function(
        self,
        name: str | Callable[..., Any],
        *,
        retries: int = 0,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
    ) -> Function:
        """Find a function of the program that was named when the session began."""
        if retries or retry_on:
            raise UsageError("calls of an engine are not tried again: have the function itself try again")
        found = super().function(offered_name(name))
        return EngineFunction(self, found._raw)

    def group(self, heuristic: str | Plan | Heuristic = "auto", **options: Any) -> Group:
        """Begin a group of calls, as `Grid.group`: with a heuristic, and no other options."""
        if given := [name for name, value in options.items() if value]:
            raise UsageError(f"a group on an engine has no option '{given[0]}': it is recorded, mapped as a whole and run")
        return EngineGroup(self, self._raw.group(mapping_of(heuristic)), heuristic)

    def _close(self, *, tells_pending: bool) -> None:
        if not self._closed:
            self._engine.close()
        super()._close(tells_pending=tells_pending)

    def _alive(self, worker: str) -> str:
        """That worker, or one in its place if it is lost."""
        if worker in self._workers:
            return worker
        known = sorted(self.measured.slots)
        return sorted(self._workers)[known.index(worker) % len(self._workers)]

    def _submit(self, calls: Iterable[_Call]) -> list[Any]:
        """What stands for the results of calls, after they were sent, again if workers were lost since."""
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
            # They are submitted anew when their results are asked for.
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
                    # Those before it may go on.
                    self._collect(calls.pop(failed), None)
                    results.pop(failed)

    def _failed(self, results: list[Any], done: int, looks: int) -> int | None:
        """Wait for the next calls: none, or the place of one that failed, which may be behind them."""
        try:
            failed = self._engine.wait(results[done : done + _WAITED_MAX], _LOOKS_SECONDS)
            return None if failed is None else done + failed
        except NotYet:
            behind = range(done + _WAITED_MAX, len(results), _WAITED_MAX)
            # Others at each look: what is asked of an engine is bounded.
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
                    raise WaitTimedOut(
                        f"no result of {call.name} within {limit} s; it goes on, and a later get() finds what it gives"
                    ) from None
                self._look(False)
            except RuntimeError as error:
                if (known := told(error, call.worker)) is not None:
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
        """If workers or a result are lost, what was not collected runs again on the workers that are left."""
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


_ABSENT = "run map stream put get find begin_put begin_get begin_wait delete empty object options models links traffic".split()


def _absent(name: str) -> Callable[..., Any]:
    def refuse(self: EngineGrid, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            f"Grid.{name} is not there on an engine, which runs groups of declared functions: use a grid of gridloom servers for it"
        )

    refuse.__doc__ = "Is not there on an engine."
    return refuse


for _one in _ABSENT:
    if hasattr(Grid, _one):
        setattr(EngineGrid, _one, _absent(_one))
