"""Plans: shown, drawn, explained, saved, edited."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from collections.abc import Callable
from typing import Any

from .. import _gridloom
from ..common.checks import checked_path
from ..common.file_writing import write_text
from ..common.session_objects import from_text
from ..display import html
from ..errors import GridloomError, InputError, UsageError


@dataclasses.dataclass(frozen=True)
class TaskRecord:
    """A task in a plan or in a measured run.

    Attributes
    ----------
    task, function, server : str
        Its name, its function, and its server (empty if it never got to one).
    start_seconds, end_seconds : float
        Seconds from the start of the plan.
    error : str or None
        Why it gave no result.
    """

    task: str
    function: str
    server: str
    start_seconds: float
    end_seconds: float
    error: str | None


@dataclasses.dataclass(frozen=True)
class TransferRecord:
    """A transfer in a plan or in a measured run.

    Attributes
    ----------
    datum, source, target : str
        The datum, its sender and its receiver.
    size_bytes : int
        Bytes moved.
    start_seconds, end_seconds : float
        Seconds from the start of the plan.
    """

    datum: str
    source: str
    target: str
    size_bytes: int
    start_seconds: float
    end_seconds: float


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A task on one of the servers, all others being where they are, scheduled again in the same order.

    Attributes
    ----------
    server : str
        The server.
    inputs_seconds, start_seconds, end_seconds : float
        Arrival of the last input, and start and end of the task, seconds from the start of the plan.
    last_input : str
        Name of that input; empty if there is none.
    makespan_seconds : float
        Makespan of the plan, seconds.
    deciding_part : str
        The largest difference from the task's own server (for that server: what takes longest): ``"inputs"``,
        ``"slots"`` or ``"run"``; or ``"behind"``, if the makespan differs because of later tasks, and not because of the end of
        this one.
    cannot : str or None
        Why the server cannot run it; times are 0 then.
    """

    server: str
    inputs_seconds: float
    last_input: str
    start_seconds: float
    end_seconds: float
    makespan_seconds: float
    deciding_part: str
    cannot: str | None


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why a task of a plan is on its server. ``str()`` returns it as text.

    Attributes
    ----------
    task : int
        Its number.
    function, server : str
        Its function and its server.
    is_critical : bool
        Whether the makespan depends on it.
    alternatives : list of Alternative
        Its server, then the other servers in order of the makespan that they would cause; at the end servers that cannot
        run it.
    """

    task: int
    function: str
    server: str
    is_critical: bool
    alternatives: list[Alternative]
    _text: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return self._text

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain dictionaries, lists, texts and numbers, as in JSON.

        Returns
        -------
        dict
            Values by name of attribute.
        """
        copy = dataclasses.asdict(self)
        del copy["_text"]
        return copy


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the chain of tasks and transfers that the makespan hangs on.

    Attributes
    ----------
    what : str
        A task or a transfer, in words.
    task : int or None
        Its number, if it is a task.
    start_seconds, end_seconds : float
        Seconds from the start of the plan.
    waits_for_slot : bool
        Whether it waits for the step before only because that has its slot.
    """

    what: str
    task: int | None
    start_seconds: float
    end_seconds: float
    waits_for_slot: bool


@dataclasses.dataclass(frozen=True)
class ClientMemory:
    """The memory that the client needs for the values of a group: its arguments, and the results that return to it.

    Attributes
    ----------
    needed_bytes : int
        Largest number of bytes that it needs at a time with the plan.
    call_by_call_bytes : int
        Largest number of bytes that it would need at a time if the calls were made one by one and all their results were returned.
    available_bytes : int or None
        Bytes that it could use when the plan was made: the memory of its simulated host, or the memory available to its process;
        ``None`` if they are not known.
    """

    needed_bytes: int
    call_by_call_bytes: int
    available_bytes: int | None

    @property
    def is_exceeded(self) -> bool:
        """Whether the client needs more than it can use."""
        return self.available_bytes is not None and self.needed_bytes > self.available_bytes


@dataclasses.dataclass(frozen=True)
class Plan:
    """Predictions for a group before its first task starts. ``str()`` returns them as text.

    ``grid.group(plan)`` runs it: the group must make the same calls in the same order. Tasks are numbered from 0 in that order.

    Attributes
    ----------
    heuristic : str
        The heuristic that mapped it; ``"given"`` of a plan that was edited or given to a group.
    makespan_seconds : float
        Predicted makespan, seconds, return of the results to the client included; ``nan`` for an edited plan that does not contain
        its problem. Then there are no transfers, and times of tasks only define their order.
    lower_bound_seconds : float
        No plan can take less by the same models, seconds.
    map_seconds : float
        Seconds from the request for the plan to its arrival.
    not_measured : list of str
        Inputs of the prediction that were guessed, as they were not measured when the plan was made: ``"function on server"``, and
        ``"link sender -> receiver"``.
    client_bytes, server_bytes : int
        Bytes over the client's links, and between servers.
    client_memory_bytes : int or None
        Memory that the client could use when the plan was made, bytes; ``None`` if it is not known, or the plan is one of a `Report`.
    tasks : list of TaskRecord
        Tasks with predicted times.
    transfers : list of TransferRecord
        Transfers with predicted times.
    hash : str
        Fingerprint of what goes where, times apart: 16 hexadecimal digits. The same for the same calls mapped onto servers
        of the same names in the same way, for real and in simulation.
    """

    heuristic: str
    makespan_seconds: float
    lower_bound_seconds: float
    map_seconds: float
    not_measured: list[str]
    client_bytes: int
    server_bytes: int
    client_memory_bytes: int | None
    tasks: list[TaskRecord]
    transfers: list[TransferRecord]
    hash: str
    _raw: _gridloom.RawPlan = dataclasses.field(repr=False, compare=False)

    def __str__(self) -> str:
        return str(self._raw).rstrip("\n")

    def _repr_html_(self) -> str:
        try:
            drawing: str | GridloomError = self._raw.gantt("plan.svg")
        except GridloomError as error:
            drawing = error
        return html.of_plan(self, drawing)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Plan:
        """Read a plan that was saved, and perhaps edited: of each task its ``server`` and its ``order``.

        Parameters
        ----------
        path : path
            File to read.

        Returns
        -------
        Plan
            If it was edited, its times are predicted again; they are not known if the file does not have its ``problem``.

        Raises
        ------
        InputError
            If it cannot be read, is no plan, or was edited into one that cannot be run.
        """
        return plan_of(_gridloom.RawPlan.load(checked_path("path", path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, JSON, a task a line.

        Parameters
        ----------
        path : path
            File to write.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_text(path, self._raw.file())

    def move(self, task: int, server: str) -> Plan:
        """Put a task on another server.

        Parameters
        ----------
        task : int
            Its number.
        server : str
            The server's name.

        Returns
        -------
        Plan
            Another plan, whose times are predicted again; they are not known if this is a plan of a `Report`.

        Raises
        ------
        InputError
            If there is no such task or server, or the server cannot run it.
        """
        return plan_of(self._raw.moved(self._number(task), server))

    def gantt(self, path: str | os.PathLike[str]) -> None:
        """Draw it: a row for each slot of a server, a row for each link. Tasks that the makespan hangs on have a dark edge.

        Parameters
        ----------
        path : path
            File to write, SVG: its name ends in ``.svg``, or has no ending.

        Raises
        ------
        OSError
            If it cannot be written.
        UsageError
            If its name has another ending, or the plan's times are not known.
        """
        write_text(path, self._raw.gantt(checked_path("path", path)))

    def explain(self, task: int) -> Explanation:
        """Explain why a task is on its server: the effect of each other server on the task and on the makespan.

        Parameters
        ----------
        task : int
            Its number.

        Returns
        -------
        Explanation
            ``print`` it, or look at its alternatives.

        Raises
        ------
        InputError
            If there is no such task.
        UsageError
            If it is a plan of a `Report`, which does not contain its problem.
        """
        record, text = self._raw.explain(self._number(task))
        alternatives = [Alternative(**alternative) for alternative in record.pop("alternatives")]
        return Explanation(alternatives=alternatives, _text=text.rstrip("\n"), **record)

    def client_memory(self) -> ClientMemory:
        """Return the memory that the client needs for the values of the group, beside that of plain GridRPC.

        Returns
        -------
        ClientMemory
            Bytes with this plan, and if the calls were made one by one.

        Raises
        ------
        UsageError
            If it is a plan of a `Report`, which does not contain its problem.
        """
        memory = memory_of(self)
        if memory is None:
            raise UsageError("the basis of this plan is not known: use a plan that was returned by the group's plan()")
        return memory

    def critical_path(self) -> list[Step]:
        """Return the critical path, which determines the makespan.

        Returns
        -------
        list of Step
            Tasks and transfers, each of which starts when the one before ends.

        Raises
        ------
        UsageError
            If it is a plan of a `Report`, which does not contain its problem.
        """
        return [Step(**step) for step in self._raw.critical_path()]

    def __reduce__(self) -> tuple[Callable[[str], Plan], tuple[str]]:
        return _unpickled, (self._raw.file(),)

    def _number(self, task: int) -> int:
        count = len(self.tasks)
        try:
            number = operator.index(task)
        except TypeError:
            raise InputError(f"{task!r} is no number of a task; the plan has {count}, counted from 0") from None
        if not 0 <= number < count:
            raise InputError(f"the plan has no task {number}; it has {count}, and they are counted from 0")
        return number


def memory_of(plan: Plan) -> ClientMemory | None:
    """Return the memory that the client needs; ``None`` if the basis of the plan is not known."""
    memory = plan._raw.client_memory()
    return None if memory is None else ClientMemory(**memory)


def transfer_of(record: dict[str, Any]) -> TransferRecord:
    rest = {name: value for name, value in record.items() if name not in ("from", "to")}
    return TransferRecord(source=record["from"], target=record["to"], **rest)


def _unpickled(file: str) -> Plan:
    return plan_of(from_text(_gridloom.RawPlan.load, file))


def plan_of(raw: _gridloom.RawPlan) -> Plan:
    record = raw.record()
    if record["makespan_seconds"] is None:
        record["makespan_seconds"] = math.nan
    tasks = [TaskRecord(**task) for task in record["tasks"]]
    transfers = [transfer_of(transfer) for transfer in record["transfers"]]
    return Plan(**{**record, "tasks": tasks, "transfers": transfers, "_raw": raw})
