"""Heuristics of the user's own: Python functions from a problem to a server for each task."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..common.checks import checked_text, seconds
from ..errors import UsageError
from .plan import Plan

if TYPE_CHECKING:
    from .. import _gridloom


@dataclasses.dataclass(frozen=True)
class ProblemTask:
    """A call to be mapped.

    Attributes
    ----------
    number : int
        Its number: from 0, in order of the calls. A task has a larger number than those whose results it reads.
    function : str
        What it calls.
    work_flops : float or None
        Floating-point operations, if its signature tells.
    inputs, outputs : tuple of int
        Numbers of the data that it reads and makes.
    seconds : tuple of float
        How long it is predicted to run, by server, seconds; infinite where it cannot.
    """

    number: int
    function: str
    work_flops: float | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class ProblemServer:
    """A server that tasks can be mapped to.

    Attributes
    ----------
    name : str
        Its name.
    slots : int
        Tasks of the group that it runs at a time.
    busy_seconds : tuple of float
        Seconds until each slot is free of what other groups were promised.
    memory_bytes : int
        Bound on its store.
    """

    name: str
    slots: int
    busy_seconds: tuple[float, ...]
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class ProblemDatum:
    """An array or number that tasks make or read.

    Attributes
    ----------
    size_bytes : int
        Its size.
    producer : int or None
        The task that makes it; None if it is there before.
    readers : int
        How many tasks read it.
    wanted : bool
        Whether it must be transferred to the client.
    held_by : tuple of int
        Places that hold it before the group runs: numbers of servers, or `Problem.client`.
    """

    size_bytes: int
    producer: int | None
    readers: int
    wanted: bool
    held_by: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A group and a grid as known now, for a heuristic to read.

    Attributes
    ----------
    tasks : tuple of ProblemTask
        The calls.
    servers : tuple of ProblemServer
        In order of name. A server is named by its number here, or its name.
    data : tuple of ProblemDatum
        By number.
    client : int
        The place of the client in `link_seconds`: one past the last server.
    """

    tasks: tuple[ProblemTask, ...]
    servers: tuple[ProblemServer, ...]
    data: tuple[ProblemDatum, ...]
    _links: tuple[tuple[tuple[float, float], ...], ...] = dataclasses.field(repr=False)

    @property
    def client(self) -> int:  # noqa: D102
        return len(self.servers)

    def link_seconds(self, source: int, target: int, size_bytes: int) -> float:
        """Predict how long a datum takes from one place to another.

        Parameters
        ----------
        source, target : int
            Places: numbers of servers, or `client`.
        size_bytes : int
            Size of the datum.

        Returns
        -------
        float
            Seconds: 0 to itself, infinite if the two cannot talk (data then go through the client).
        """
        latency_seconds, bandwidth = self._links[source][target]
        return latency_seconds + size_bytes / bandwidth


_Servers: TypeAlias = "Sequence[int | str] | Mapping[int, int | str]"

#: A function from a problem to the server (number or name) of each task, in their order or by the task's number, or to those and
#: the order in which the tasks are to run.
Heuristic: TypeAlias = Callable[[Problem], "_Servers | tuple[_Servers, Sequence[int]]"]


#: Seconds that a function may take to map a group.
MAP_TIMEOUT = 30.0


def mapping_of(heuristic: str | Plan | Heuristic, map_timeout: float | None = MAP_TIMEOUT) -> _gridloom._Mapping:
    """The form in which the extension module takes a heuristic, a plan or a function."""
    if isinstance(heuristic, str):
        return checked_text("the heuristic", heuristic)
    if isinstance(heuristic, Plan):
        return heuristic._raw
    if callable(heuristic):
        name = getattr(heuristic, "__name__", type(heuristic).__name__)
        return (name, functools.partial(_begin, name, heuristic), seconds("map_timeout", map_timeout))
    raise UsageError(f"a group is mapped by the name of a heuristic, a Plan or a function, not by {type(heuristic).__name__}")


def _begin(name: str, heuristic: Heuristic, question: _gridloom.RawQuestion) -> None:
    """Call the heuristic in a daemonic thread: it cannot be ended from outside, and must not keep the program from ending."""
    threading.Thread(target=_answer, args=(heuristic, question), name=f"heuristic {name}", daemon=True).start()


def _answer(heuristic: Heuristic, question: _gridloom.RawQuestion) -> None:
    question.begin()
    try:
        answer = _asked(heuristic, question.problem)
    except BaseException as error:
        question.failed(error)
    else:
        question.answer(answer)


def _asked(heuristic: Heuristic, described: dict[str, Any]) -> str | tuple[list[int], list[int] | None]:
    """The place of each task and their order, or a text about what is wrong with the result of the heuristic."""
    problem = _problem(described)
    returned: Any = heuristic(problem)
    order: Any = None
    if isinstance(returned, tuple) and len(returned) == 2 and not isinstance(returned[0], (str, int, np.integer)):
        returned, order = returned
    if isinstance(returned, Mapping):
        lacking = [task.number for task in problem.tasks if task.number not in returned]
        if lacking:
            return f"a dict without task {lacking[0]}; a dict has the server of each task by its number"
        if len(returned) > len(problem.tasks):
            return f"a dict of {len(returned)} servers for {len(problem.tasks)} tasks"
        returned = [returned[task.number] for task in problem.tasks]
    if isinstance(returned, (str, Set)) or not hasattr(returned, "__len__") or not hasattr(returned, "__iter__"):
        return f"{_short(returned)}, not a server for each task, in their order"
    returned = list(returned)
    if len(returned) != len(problem.tasks):
        return f"{len(returned)} servers for {len(problem.tasks)} tasks"
    places = {server.name: place for place, server in enumerate(problem.servers)}
    chosen = []
    for task, server in zip(problem.tasks, returned):
        place = server
        if isinstance(server, str):
            if server not in places:
                return f"{server!r} for task {task.number}, and there is no server of that name"
            place = places[server]
        if isinstance(place, (bool, np.bool_)) or not isinstance(place, (int, np.integer)):
            return f"{_short(server)} for task {task.number}, which is no name and no number of a server"
        if not 0 <= place < len(places):
            return f"{place} for task {task.number}; servers are numbered from 0 to {len(places) - 1}"
        chosen.append(int(place))
    if order is None:
        return chosen, None
    if isinstance(order, (Mapping, Set)):
        return f"{_short(order)} for the order, which is no list of tasks' numbers"
    try:
        order = [operator.index(task) for task in order]
    except TypeError:
        return f"{_short(order)} for the order, which is no list of tasks' numbers"
    if wrong := [task for task in order if not 0 <= task < len(chosen)]:
        return f"task {wrong[0]} in the order; tasks are numbered from 0 to {len(chosen) - 1}"
    return chosen, order


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _problem(record: dict[str, Any]) -> Problem:
    def number(value: float | None) -> float:
        return math.inf if value is None else value

    tasks = tuple(
        ProblemTask(
            place, task["function"], task["work_flops"], tuple(task["inputs"]), tuple(task["outputs"]),
            tuple(number(seconds) for seconds in task["seconds"]),
        )
        for place, task in enumerate(record["tasks"])
    )
    servers = tuple(ProblemServer(**{**server, "busy_seconds": tuple(server["busy_seconds"])}) for server in record["servers"])
    data = tuple(ProblemDatum(**{**datum, "held_by": tuple(datum["held_by"])}) for datum in record["data"])
    links = tuple(tuple((number(latency), number(bandwidth)) for latency, bandwidth in row) for row in record["links"])
    return Problem(tasks, servers, data, links)
