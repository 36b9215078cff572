"""Groups on a cluster of another system, which stays unchanged: an engine runs the calls by Gridloom's plan.

A simulated grid with the measured hosts and links of the cluster is the model: it checks arguments, maps each group, and knows where results
are stored. The engine runs the functions themselves, each call on the worker that the model chose. When workers have joined or left, the next
group gets a new model.
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
import warnings
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .. import _gridloom
from ..calls.function import Function
from ..calls.session_state import SessionState
from ..common.executable import program
from ..errors import ConnectError, ConnectWarning, Crashed, ServerLost, TimedOut, UsageError, with_fields
from ..functions.offer import files_of, offered_name, signature_of, undeclared
from ..groups.group import Group
from ..groups.handle import Handle
from ..plans.heuristic import Heuristic, mapping_of
from ..plans.plan import Plan, TaskRecord
from ..run.retry import RetryOn
from .cluster_model import Workers, platform
from .protocol import CallCrashed, Engine, Measured, NotYet, ResultLost
from .worker_functions import body_of, conversions_of, error_of, part_of

# Results of at least this size are sent to their reader before all inputs of the call exist.
_PREFETCHED_BYTES_MIN = 1 << 20
# Interval of the checks for lost workers, seconds, and the pause before the next check if no worker is left.
_LOOKS_SECONDS = 1.0
_NONE_SECONDS = 0.1
# Maximum number of times in a row that the result of a call may be lost, and of workers that may die while it runs.
_LOSSES_MAX = 10
_DEATHS_MAX = 3
# How many calls are waited for or collected at a time, which bounds the work of an engine for each poll.
_WAITED_MAX = 1_000
# Results up to this size are collected together, up to that many bytes at a time.
_TOGETHER_BYTES_MAX = 64 << 10
_COLLECTED_BYTES_MAX = 16 << 20


class _Call:
    """A call, with all data to run it again."""

    def __init__(self, cluster: EngineCluster, name: str, args: dict[str, Any], outputs: int) -> None:
        self.cluster, self.name, self.args, self.outputs = cluster, name, args, outputs
        self.worker, self.rank = "", 0
        # Shapes of its results that are arrays, as far as they are known.
        self.shapes: list[tuple[int, ...] | None] = []
        self.key = ""
        self.result: Any = None
        # The worker to which it was submitted, and the last generation of workers in which the submission was known to be valid.
        self.at, self.generation = "", -1
        # Number of its submissions; the calls whose results it reads, each with its number of submissions at that time.
        self.attempt = 0
        self.read: list[tuple[_Call, int]] = []
        # Number of workers that died while it may have been running; its error if it is not submitted again.
        self.deaths = 0
        self.error: Crashed | None = None
        # Whether its results were collected; results that were collected together with those of other calls; its index in its group; the group.
        self.is_collected = False
        self.value: list[Any] = []
        self.place = 0
        self.group: list[weakref.ref[_Call]] = []
        # Size of its results, if they are numbers and arrays.
        self.size_bytes: int | None = None

    def submitted(self) -> Any:
        """Submit the call if needed, and again if it was lost; return the reference to its result."""
        # Calls whose results it reads are sent first, in a loop: a chain may be longer than Python's stack.
        waiting, generation = [self], self.cluster._generation
        while waiting:
            call = waiting[-1]
            if call.error is not None or call.generation == generation:
                waiting.pop()
                continue
            has_ended, read = call._has_ended(), call._inputs()
            if has_ended:
                call.generation = generation
            elif before := [one for one in read if one.error is None and one.generation != generation]:
                waiting += before
            elif (failed := next((one.error for one in read if one.error is not None), None)) is not None:
                call.error = failed
            elif has_ended is not None and all(one.attempt == attempt for one, attempt in call.read):
                call.generation = generation
            else:
                call._submit_again()
        return self.result

    def lose(self) -> None:
        """Mark the call as lost, so that it is submitted again whatever state the engine reports."""
        self.result, self.generation = None, -1

    def _has_ended(self) -> bool | None:
        """Whether the call has ended; ``None`` if it is lost or was not submitted."""
        engine = self.cluster._engine
        if self.result is None or not (engine.recovers or self.at in self.cluster._workers):
            return None
        with contextlib.suppress(ResultLost):
            return engine.has_ended(self.result)
        return None

    def _inputs(self) -> list[_Call]:
        return [one._made_by for one in self.args.values() if isinstance(one, EngineHandle)]

    def _submit_again(self) -> None:
        if self.result is not None and self.at not in self.cluster._workers and not self.cluster._engine.recovers:
            self.deaths += self.cluster._engine.has_died(self.result)
            # Without a result, the same death is not counted again.
            self.result = None
        if self.deaths >= _DEATHS_MAX:
            self.error = self._crashed(f"{self.deaths} times")
        else:
            self._submit()

    def _submit(self) -> None:
        engine, worker = self.cluster._engine, self.cluster._alive(self.worker)
        args: list[Any] = [self.shapes]
        for value in self.args.values():
            if not isinstance(value, EngineHandle):
                args.append(value)
                continue
            made_at, part = value._made_by.at, f"{value._made_by.key}-{value._number}"
            read, ahead = value._made_by.result, f"{part}-to-{worker}"
            if value._made_by.outputs > 1:
                if part not in self.cluster._parts:
                    key = f"{part}-for-{next(self.cluster._numbers)}"
                    self.cluster._parts[part] = engine.submit(key, part_of(value._number), [read], made_at, self.rank, 0)
                read = self.cluster._parts[part]
            if made_at != worker and value._size_bytes() >= _PREFETCHED_BYTES_MIN and len(self.args) > 1 and ahead not in self.cluster._ahead:
                self.cluster._ahead.add(ahead)
                engine.prefetch(ahead, read, worker, self.rank)
            args.append(read)
        self.key = f"gridloom-{os.urandom(4).hex()}-{self.name.replace('/', '-')}-{next(self.cluster._numbers)}"
        self.result = engine.submit(self.key, self.cluster._sent[self.name], args, worker, self.rank, self.deaths)
        self.generation, self.at = self.cluster._generation, worker
        self.attempt, self.read = self.attempt + 1, [(one, one.attempt) for one in self._inputs()]
        self.cluster._unsent.append(self)

    def group_calls(self) -> list[_Call]:
        """This call, and the other calls of its group whose results were not collected."""
        others = (reference() for reference in self.group)
        return [self, *(one for one in others if one is not None and one is not self and not one.is_collected)]

    def _crashed(self, why: str) -> Crashed:
        text = f"{self.name} on {self.at}: its worker process ended while it ran, {why}"
        return with_fields(Crashed(text), function=self.name, server=self.at, how=why)


class EngineHandle(Handle):
    """A result on a worker of the engine."""

    def __init__(self, modelled: Handle, call: _Call, number: int) -> None:
        super().__init__(modelled._raw, modelled._group, modelled._name, modelled._call)
        self._made_by, self._number = call, number
        self._here: list[Any] = []

    def _fetch(self, limit: float | None) -> Any:
        if not self._here:
            value = self._made_by.cluster._collect(self._made_by, limit)
            self._made_by.value.clear()
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
        self._model = cluster._model
        self._model.groups.add(self)
        super().__init__(self._model.session, raw, heuristic)
        self._cluster = cluster
        self._engine_calls: list[_Call] = []
        self._references: list[weakref.ref[_Call]] = []

    def _record(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = {name: self._model.value(one) for name, one in kwargs.items()}
        modelled = super()._record(self._model.function(function), tuple(self._model.value(one) for one in args), known)
        parameters = inspect.signature(self._cluster._bodies[function.name]).parameters
        given = dict(zip(parameters, args), **{name: value for name, value in kwargs.items() if name in parameters})
        handles = () if modelled is None else modelled if isinstance(modelled, tuple) else (modelled,)
        converted = self._cluster._conversions[function.name]
        passed = {name: one if isinstance(one := given[name], EngineHandle) else converted[name](one) for name in parameters}
        call = _Call(self._cluster, function.name, passed, len(handles))
        call.shapes = [None if one.shape is None else tuple(one.shape) for one in handles]
        self._engine_calls.append(call)
        call.group, call.place = self._references, len(self._references)
        call.group.append(weakref.ref(call))
        made = tuple(EngineHandle(one, call, number) for number, one in enumerate(handles))
        if all(one._raw.kind in ("number", "array") for one in made):
            call.size_bytes = sum(one._size_bytes() for one in made)
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
        cluster = self._cluster
        cluster._follow()
        return EngineFunction(cluster, cluster._model.raw.function(self.name).on(server), server)

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Is not there: record the call in a group, which does not wait either."""
        raise UsageError(f"{self.name}: calls of an engine are recorded in groups: with grid.group(): handle = function(...)")


class _Model:
    """The simulated grid that stands for the cluster.

    Parameters
    ----------
    measured : Measured
        The cluster as it was measured.
    files : list of str
        Definitions of the functions.
    before : _Model or None
        The model until now: the session's state continues.
    """

    def __init__(self, measured: Measured, files: list[str], before: _Model | None) -> None:
        with tempfile.TemporaryDirectory(prefix="gridloom-engine-") as folder:
            path = Path(folder, "cluster.toml")
            path.write_text(platform(measured), encoding="utf-8")
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
                python_options=[],
                program=program(),
            )
        self.measured = measured
        self.session = SessionState(self.raw)
        # Groups that this model has mapped, as long as the program uses them or their results.
        self.groups: weakref.WeakSet[EngineGroup] = weakref.WeakSet()
        if before is not None:
            self.session.current = before.session.current
        self._functions: dict[tuple[str, str | None], Function] = {}

    def function(self, function: Function) -> Function:
        """The same function in this model."""
        key = function.name, function.server
        if key not in self._functions:
            raw = self.raw.function(function.name)
            self._functions[key] = Function(self.session, raw if function.server is None else raw.on(function.server), function.server)
        return self._functions[key]

    def close(self) -> None:
        """Close the session of the model."""
        self.session.is_closed = True
        self.session.completions.stop()
        self.raw.close()

    def value(self, value: Any) -> Any:
        """An argument in this model: for a result of another model, a value of the same type and shape."""
        if not isinstance(value, EngineHandle) or value._group is not None and getattr(value._group, "_model", None) is self:
            return value
        if value._raw.kind in ("number", "array"):
            made = np.zeros(value.shape or (), np.dtype(value._raw.type_string))
            return made if value._raw.kind == "array" else made[()]
        return "" if value._raw.kind == "str" else b""


class EngineCluster:
    """A cluster of another system, on which an engine runs groups of functions of the program.

    Attributes
    ----------
    raw : RawGrid
        The simulated grid that was the model of the cluster when the session began.
    session : SessionState
        State of the session.
    folder : tempfile.TemporaryDirectory or None
        Files of the functions for the model.
    """

    def __init__(self, engine: Engine, measured: Measured | None, functions: Iterable[Callable[..., Any]]) -> None:
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
        self._files, self.folder = files_of(bodies)
        self._engine = engine
        self._there = Workers(engine)
        if measured is None:
            try:
                # A worker that was started on demand may already have ended.
                while measured is None or not measured.slots:
                    self._there.wait("the cluster has no workers")
                    measured = engine.probe()
            except (ServerLost, ResultLost) as error:
                raise ConnectError(str(error)) from error
        # The last model is the current one. Earlier groups need the others; the session uses the state of the first.
        self._models = [_Model(measured, self._files, None)]
        self.raw, self.session = self._model.raw, self._model.session
        self._generation, self._workers = 0, list(measured.slots)
        # Workers by the order in which they were first seen, and the time of the last check.
        self._places: dict[str, int] = {}
        self._note_workers(self._workers)
        self._looked = time.monotonic()
        self._numbers = itertools.count()
        # The first lock is held while calls are submitted or workers are checked, the second one while new workers are measured.
        self._submitting = threading.RLock()
        self._following = threading.Lock()
        # For the calls that are being submitted: calls not sent yet, parts of several results, and results that are prefetched.
        self._unsent: list[_Call] = []
        self._parts: dict[str, Any] = {}
        self._ahead: set[str] = set()

    def function(self, name: str | Callable[..., Any], *, retries: int = 0, retry_on: RetryOn | None = None) -> EngineFunction:
        """Find a function of the program that was named when the session began."""
        if retries or retry_on:
            raise UsageError("calls of an engine are not tried again: have the function itself try again")
        return EngineFunction(self, self._model.raw.function(offered_name(name)))

    def group(self, heuristic: str | Plan | Heuristic, map_timeout: float | None = None) -> EngineGroup:
        """Make a group of calls; `map_timeout` is in seconds."""
        self._follow()
        with self._submitting:
            return EngineGroup(self, self._model.raw.group(mapping_of(heuristic, map_timeout)), heuristic)

    def close(self) -> None:
        """End the connection to the cluster."""
        with self._submitting:
            self._close_models(self._models)
        self._engine.close()

    def _close_models(self, models: list[_Model]) -> None:
        """Close models, except that of the session's state, which is closed with the session."""
        for model in models:
            if model.session is not self.session:
                model.close()

    @property
    def _model(self) -> _Model:
        return self._models[-1]

    @property
    def measured(self) -> Measured:
        """The cluster as it was measured last."""
        return self._model.measured

    def _note_workers(self, workers: Iterable[str]) -> None:
        for one in workers:
            self._places.setdefault(one, len(self._places))

    def _follow(self) -> None:
        """Make a new model if workers have joined or left."""
        with self._following:
            if time.monotonic() - self._looked < _LOOKS_SECONDS and set(self._workers) == set(self.measured.slots):
                return
            self._look(False)
            if set(self._workers) == set(self.measured.slots):
                return
            try:
                # Measuring takes seconds; other threads submit and collect meanwhile.
                measured = self._engine.probe(self.measured)
            except ResultLost:
                # Workers may join and leave, so the next group checks again.
                return
            except ConnectError as error:
                # Those that joined cannot be used, and are not named any more.
                warnings.warn(str(error), ConnectWarning, stacklevel=4)
                return
            if not measured.slots:
                return
            model = _Model(measured, self._files, self._model)
            with self._submitting:
                unused = [one for one in self._models if not one.groups]
                self._models = [*(one for one in self._models if one.groups), model]
                self._close_models(unused)

    def _alive(self, worker: str) -> str:
        """That worker, or one in its place if it is lost."""
        if worker in self._workers:
            return worker
        return sorted(self._workers)[self._places.get(worker, 0) % len(self._workers)]

    def _submit(self, calls: Iterable[_Call]) -> list[Any]:
        """References to the results of calls, after they were sent, again if workers were lost since."""
        wanted, losses = list(calls), 0
        while True:
            generation = self._generation
            try:
                with self._submitting:
                    return self._sent_together(wanted)
            except ResultLost as error:
                losses = self._lost(wanted[0].name, [], error, generation, losses)

    def _sent_together(self, calls: list[_Call]) -> list[Any]:
        try:
            results = [call.submitted() for call in calls]
            if self._unsent:
                self._engine.launch()
            return results
        except BaseException:
            # They are submitted again when their results are asked for.
            for call in self._unsent:
                call.lose()
            self._engine.discard()
            raise
        finally:
            self._unsent.clear()
            self._parts.clear()
            self._ahead.clear()

    def _wait(self, calls: list[_Call]) -> None:
        """Wait for calls; the first exception of one is raised."""
        calls, done, generation, looks, losses = list(calls), 0, -1, 0, 0
        results: list[Any] = []
        while done < len(calls):
            if generation != self._generation:
                done, generation, results = 0, self._generation, self._submit(calls)
                if (crashed := next((one.error for one in calls if one.error is not None), None)) is not None:
                    raise crashed
            try:
                failed = self._failed(results, done, looks)
            except NotYet:
                looks += 1
                self._look(False)
            except ResultLost as error:
                # First only the calls that the engine reports as lost; if that does not help, all of them.
                losses = self._lost("a group of calls", calls if losses else [], error, generation, losses)
            else:
                if failed is None:
                    done += _WAITED_MAX
                    losses = 0
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
        if call.value:
            return call.value[0]
        until, losses = None if limit is None else time.monotonic() + limit, 0

        def check_limit() -> None:
            if until is not None and time.monotonic() > until:
                raise TimedOut(f"no result of {call.name} within {limit} s; the call is still running, call get() again") from None

        while True:
            generation = self._generation
            try:
                # Lost calls of its group are submitted, too, so that they run at the same time.
                result = self._submit([call] if call.generation == generation else call.group_calls())[0]
                if call.error is not None:
                    raise call.error
                seconds = _LOOKS_SECONDS if until is None else min(max(until - time.monotonic(), 0.0), _LOOKS_SECONDS)
                value = self._engine.collect(result, seconds)
                call.is_collected = True
                self._collect_others(call)
                return value
            except NotYet:
                # The check does not depend on the limit: a program may call get() again and again with a short one.
                if time.monotonic() - self._looked >= _LOOKS_SECONDS:
                    self._look(False)
                check_limit()
            except RuntimeError as error:
                if (known := error_of(error, call.worker)) is not None:
                    raise known from error
                raise
            except CallCrashed as error:
                raise call._crashed(str(error)) from error
            except ResultLost as error:
                check_limit()
                losses = self._lost(call.name, [call], error, generation, losses)

    def _collect_others(self, call: _Call) -> None:
        """Collect small results of the same group that are there: one message for each is slow."""
        if call.size_bytes is None or call.size_bytes > _TOGETHER_BYTES_MAX:
            return
        together: list[_Call] = []
        size = 0
        for reference in itertools.islice(call.group, call.place + 1, None):
            other = reference()
            if other is None or other.value or other.size_bytes is None or other.size_bytes > _TOGETHER_BYTES_MAX:
                continue
            if other.generation != self._generation or other.is_collected:
                continue
            size += other.size_bytes
            if size > _COLLECTED_BYTES_MAX or len(together) >= _WAITED_MAX:
                break
            together.append(other)
        if together:
            with contextlib.suppress(NotYet, ResultLost, CallCrashed):
                for place, value in self._engine.collect_ended([one.result for one in together]).items():
                    together[place].value.append(value)
                    together[place].is_collected = True

    def _lost(self, name: str, calls: list[_Call], error: ResultLost, generation: int, losses: int) -> int:
        """Submit calls again because a result of `generation` was lost. Takes and returns the number of losses in a row."""
        with self._submitting:
            # Otherwise another thread has already handled the loss.
            if generation == self._generation:
                if losses >= _LOSSES_MAX:
                    raise ServerLost(f"{name}: a result was lost {losses} times: {error}") from error
                # The engine may not report the result that is lost. From the second loss on, all inputs are therefore computed again.
                for call in _with_inputs(calls) if losses else calls:
                    call.lose()
                self._look(True)
            return losses + (generation != self._generation)

    def _look(self, is_lost: bool) -> None:
        """Update the list of workers. If workers or a result are lost, the lost calls run again when they are next waited for."""
        with self._submitting:
            if now := self._there.names(f"the cluster has lost all workers that it had: {', '.join(self._workers)}"):
                left = set(self._workers) - set(now)
                self._workers, self._looked = now, time.monotonic()
                self._note_workers(now)
                if is_lost or left and not self._engine.recovers:
                    self._generation += 1
                    self._engine.discard()
                return
        time.sleep(_NONE_SECONDS)


def _with_inputs(calls: list[_Call]) -> set[_Call]:
    """The calls, and all calls on whose results they depend."""
    found, waiting = set(calls), list(calls)
    while waiting:
        before = set(waiting.pop()._inputs()) - found
        found |= before
        waiting += before
    return found
