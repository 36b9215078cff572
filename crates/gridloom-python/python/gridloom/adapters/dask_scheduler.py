"""A scheduler for Dask: ``dask.compute(..., scheduler=gridloom.dask)`` runs its graphs as groups of calls.

A task of the graph is a call of ``python/task…``, which gets the pickled task and the results of others as they are on the servers. An
exception is such a result, too: tasks that read it pass it on, so that the program gets the original exception.

Dask does not know how long tasks take and how large their results are. Each call reports both; the next plan uses the measurements of tasks of
the same name in this session, as Dask's own scheduler does.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ..calls.function import Function
from ..errors import TaskError, UnknownName, UsageError
from ..groups.group import Group
from ..groups.handle import Handle
from ..pickling.packing import packed_array, renamed, unpack
from ..pickling.protocol import RESULTS, TASK
from ..plans.heuristic import Heuristic
from ..plans.plan import Plan
from ..session.grid import Grid
from ..session.open_grids import open_grids
from .dask_graph import TOGETHER, Graph, Task, flat, name_of, nested, together

# Estimates for a task before one of its name has run: seconds, and bytes of the result in addition to its inputs.
_SECONDS = 0.05
_BYTES = 1 << 10
# The unit of work: operations of a processor of 1 Gflop/s.
_OPERATIONS_PER_SECOND = 1e9
# Data of a graph up to this size are sent with the tasks that read them.
_WITHIN_BYTES_MAX = 32 << 10
# How many tasks of one name report their time.
_ASKED_MAX = 3
# Weight of the newest measurement in the mean.
_NEWEST_WEIGHT = 0.5
# Largest number of tasks of a group: mapping takes longer for more, and nothing runs before.
_GROUP_TASKS_MAX = 5_000
_NOT_KEPT = ("resources",)

_known: weakref.WeakKeyDictionary[Grid, dict[str, tuple[float, float]]] = weakref.WeakKeyDictionary()


def dask(
    dsk: Any, keys: Any, *, grid: Grid | None = None, heuristic: str | Plan | Heuristic = "auto", progress: bool | None = None, **_: Any
) -> Any:
    """Run a graph of Dask on the open grid: ``dask.compute(x, scheduler=gridloom.dask)``.

    Parameters
    ----------
    dsk : mapping or dask expression
        The graph.
    keys : key, or nested lists of them
        Keys of the requested results.
    grid : Grid, optional
        The grid; by default the one that is open, or was opened last. As the following ones, it may be an argument of ``dask.compute``.
    heuristic : str, Plan or function, optional
        How calls are mapped, as for `Grid.group`.
    progress : bool, optional
        Whether a terminal or notebook shows how many tasks have ended, as for `Grid.group`.

    Returns
    -------
    object or nested tuples of them
        The values of `keys`.

    Raises
    ------
    ImportError
        If Dask 2025.4 or later cannot be imported.
    UsageError
        If no grid is open, or a task is to run on workers that the grid does not have.
    UnknownName
        If no server runs functions that programs send.
    ArgumentError
        If a task cannot be pickled.
    TaskError
        If a task failed. An exception of a task's function is raised as it is.

    Notes
    -----
    The annotations ``workers``, ``allow_other_workers``, ``priority`` and ``retries`` of ``dask.annotate`` are kept. ``priority`` gives the order
    in which tasks are recorded; plans order tasks by what depends on them, and then so. Dask's callbacks are not called.

    Examples
    --------
    >>> import dask.array                                            # doctest: +SKIP
    >>> with gridloom.local(servers=4):                              # doctest: +SKIP
    ...     dask.array.ones((4000, 4000)).sum().compute(scheduler=gridloom.dask)
    16000000.0
    """
    graph = Graph(dsk, list(flat(keys)))
    values = _Run(graph, _the_open() if grid is None else grid).values(heuristic, progress) if graph.order else {}
    values.update((key, graph.data[key]) for key in graph.wanted if key in graph.data)
    return nested(keys, lambda key: values[graph.target(key)])


@dataclasses.dataclass
class _Result:
    """The result of a task, and its expected size."""

    handle: Handle
    size_bytes: float


class _Run:
    """One graph on one grid."""

    def __init__(self, graph: Graph, grid: Grid) -> None:
        self._graph = graph
        self._grid = grid
        self._known = _known.setdefault(grid, {})
        self._functions: dict[tuple[int, str | None], Function] = {}
        self._results: dict[Any, _Result] = {}
        # Measurements that some tasks report, by name.
        self._asked: dict[str, list[Handle]] = {}
        self._servers: set[str] | None = None
        self._small: dict[Any, bool] = {}
        self._pinned = itertools.count()

    def values(self, heuristic: str | Plan | Heuristic, progress: bool | None) -> dict[Any, Any]:
        """Run the graph, and return the requested values."""
        graph = self._graph
        left = collections.Counter(read for names in graph.reads.values() for read in set(names.values()))
        groups: list[Group] = []
        try:
            for begin in range(0, len(graph.order), _GROUP_TASKS_MAX):
                with self._grid.group(heuristic, progress=progress) as group:
                    groups.append(group)
                    for key in graph.order[begin : begin + _GROUP_TASKS_MAX]:
                        self._record(key)
                        for read in set(graph.reads[key].values()):
                            left[read] -= 1
                            # Results that no task reads any more are released.
                            if not left[read] and read not in graph.wanted:
                                self._results.pop(read, None)
            values = self._fetched()
            self._learn()
            return values
        except BaseException:
            for group in groups:
                group.cancel()
            raise

    def _record(self, key: Any) -> None:
        """Record the call of a task."""
        graph = self._graph
        notes = graph.annotations.get(key, {})
        within, names = {}, {}
        for name, read in graph.reads[key].items():
            if read in graph.data and self._is_small(read):
                within[name] = graph.data[read]
            else:
                names[name] = read
        for read in names.values():
            if read not in self._results:
                self._results[read] = self._call(read, Task(graph.node(read), (), {}, 0, 0), [])
        results, depth = [self._results[read] for read in names.values()], 0
        while len(results) > RESULTS[-1]:
            parts = [results[at : at + RESULTS[-1]] for at in range(0, len(results), RESULTS[-1])]
            results = [self._call(TOGETHER, together, part) for part in parts]
            depth += 1
        task = Task(graph.node(key), tuple(names), within, int(notes.get("retries", 0)), depth)
        self._results[key] = self._call(key, task, results, self._server(notes))

    def _call(self, key: Any, body: Callable[..., Any], results: list[_Result], server: str | None = None) -> _Result:
        name = name_of(key)
        call = packed_array(body, lambda: f"the task {name}", lambda: iter(()), self._grid._any_function.runner.room)
        read_bytes = sum(one.size_bytes for one in results)
        seconds, size_bytes = self._known.get(name, (_SECONDS, _BYTES + read_bytes + call.nbytes))
        function, count = self._function(len(results), server)
        handles = [one.handle for one in results] + [b""] * (count - len(results))
        handle, about = function(seconds * _OPERATIONS_PER_SECOND, int(size_bytes), call, *handles)
        asked = self._asked.setdefault(name, [])
        if len(asked) < _ASKED_MAX:
            asked.append(about)
        return _Result(handle, size_bytes)

    def _function(self, results: int, server: str | None) -> tuple[Function, int]:
        """The function that takes at least that number of results, and the number that it takes."""
        count = next(count for count in RESULTS if results <= count)
        found = self._functions.get((count, server))
        if found is None:
            try:
                found = self._grid.function(f"python/{TASK}{count}")
            except UnknownName:
                raise self._grid._any_function.runner.no_server() from None
            found = found if server is None else found.on(server)
            self._functions[count, server] = found
        return found, count

    def _server(self, notes: Mapping[str, Any]) -> str | None:
        """The server on which a task is to run: of several, each in turn."""
        for name in _NOT_KEPT:
            if name in notes:
                warnings.warn(f"the annotation '{name}' of Dask is not kept: servers of Gridloom have none", UserWarning, stacklevel=7)
        workers = notes.get("workers")
        if workers is None:
            return None
        given = [workers] if isinstance(workers, str) else list(workers)
        if self._servers is None:
            self._servers = {one.name for one in self._grid.servers()}
        known = [one for one in given if one in self._servers]
        if known:
            return known[next(self._pinned) % len(known)]
        if notes.get("allow_other_workers"):
            return None
        raise UsageError(
            f"a task is to run on workers={workers!r}, and the grid has none of these; it has {', '.join(sorted(self._servers))}: name "
            "some of these, or allow others by allow_other_workers=True"
        )

    def _is_small(self, key: Any) -> bool:
        """Whether a value goes with the tasks that read it."""
        if key not in self._small:
            from dask.sizeof import sizeof  # type: ignore[import-not-found, import-untyped, unused-ignore]

            self._small[key] = sizeof(self._graph.data[key]) <= _WITHIN_BYTES_MAX
        return self._small[key]

    def _fetched(self) -> dict[Any, Any]:
        """The requested values."""
        results = {key: self._results[key] for key in self._graph.order if key in self._graph.wanted}
        for one in results.values():
            one.handle.prefetch()
        values = {}
        for key, one in results.items():
            name = name_of(key)
            try:
                given = one.handle.get()
            except TaskError as error:
                raise renamed(error, name) from None
            values[key] = unpack(given, name)
        return values

    def _learn(self) -> None:
        """Update the mean times and sizes of tasks."""
        for name, asked in self._asked.items():
            measured = [about.get() for about in asked]
            seconds, size_bytes = (sum(one[at] for one in measured) / len(measured) for at in range(2))
            before = self._known.get(name, (seconds, size_bytes))
            self._known[name] = (
                float(_NEWEST_WEIGHT * seconds + (1 - _NEWEST_WEIGHT) * before[0]),
                float(_NEWEST_WEIGHT * size_bytes + (1 - _NEWEST_WEIGHT) * before[1]),
            )


def _the_open() -> Grid:
    """The open grid; of several, the one that was opened last."""
    found = [grid for grid in open_grids if isinstance(grid, Grid) and not grid._session.is_closed]
    if not found:
        raise UsageError("no grid is open: open one by gridloom.local() or gridloom.connect() before Dask computes")
    return max(found, key=lambda grid: grid._number)
