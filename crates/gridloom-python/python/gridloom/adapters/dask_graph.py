"""Graphs of Dask: read in the program, and their tasks as servers run them. Only `gridloom.dask` and workers import it."""

from __future__ import annotations

import collections
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import UsageError

TOGETHER = object()
"""In place of the key of a task that only puts results together."""


class Task:
    """A task as it is sent: it takes the results of others in order."""

    __slots__ = ("depth", "keys", "node", "retries", "within")

    def __init__(self, node: Any, keys: tuple[Any, ...], within: dict[Any, Any], retries: int, depth: int) -> None:
        self.node = node
        # Names in the task of its inputs, and values of inputs that are sent with it.
        self.keys = keys
        self.within = within
        self.retries = retries
        # Many inputs are passed as nested tuples: the number of levels.
        self.depth = depth

    def __call__(self, *results: Any) -> Any:
        for _ in range(self.depth):
            results = tuple(itertools.chain.from_iterable(results))
        values = {**self.within, **dict(zip(self.keys, results))}
        for _ in range(self.retries):
            try:
                return self.node(values)
            except Exception:
                continue
        return self.node(values)


def together(*results: Any) -> tuple[Any, ...]:
    """Results in one, on a server."""
    return results


class Graph:
    """A graph of Dask, as far as `keys` need it: aliases resolved, data apart from tasks, tasks in the order in which they are recorded."""

    def __init__(self, dsk: Any, keys: list[Any]) -> None:
        spec, order_of = parts_of_dask()
        annotations: Mapping[str, Mapping[Any, Any]] = getattr(dsk, "__dask_annotations__", dict)()
        nodes = spec.convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        self._nodes, self._alias = nodes, spec.Alias
        # Values that are no result of a task, by key.
        self.data: dict[Any, Any] = {}
        # Inputs of each task, by the names that they have there.
        self.reads: dict[Any, dict[Any, Any]] = {}
        self.annotations = _by_task(annotations)
        # Keys of the requested results.
        self.wanted = {self.target(key) for key in keys}
        left = list(self.wanted)
        while left:
            key = left.pop()
            if key in self.data or key in self.reads:
                continue
            node = nodes[key]
            if isinstance(node, spec.DataNode):
                self.data[key] = node.value
                continue
            self.reads[key] = {name: self.target(name) for name in node.dependencies}
            left += self.reads[key].values()
        ranks = order_of({key: nodes[key] for key in (*self.reads, *self.data)} | self._aliases()) if self.reads else {}
        self.order = list(self._ordered(ranks))

    def node(self, key: Any) -> Any:
        """The task of that key."""
        return self._nodes[key]

    def target(self, key: Any) -> Any:
        """The key that an alias refers to."""
        seen = set()
        while isinstance(node := self._nodes[key], self._alias) and node.target != key:
            if key in seen:
                raise UsageError(f"the graph's key {key!r} is an alias of itself")
            seen.add(key)
            key = node.target
        return key

    def _aliases(self) -> dict[Any, Any]:
        """Aliases that tasks read, with the keys that they refer to."""
        found = {}
        for names in self.reads.values():
            for name in names:
                while isinstance(node := self._nodes[name], self._alias):
                    found[name], name = node, node.target
        return found

    def _ordered(self, ranks: Mapping[Any, int]) -> Iterator[Any]:
        """Tasks after those that they read: by priority, and then as Dask orders them."""
        missing = {key: {read for read in names.values() if read in self.reads} for key, names in self.reads.items()}
        readers = collections.defaultdict(list)
        for key, reads in missing.items():
            for read in reads:
                readers[read].append(key)

        def rank(key: Any) -> tuple[float, int, Any]:
            return -float(self.annotations.get(key, {}).get("priority", 0)), ranks[key], key

        ready = [rank(key) for key, reads in missing.items() if not reads]
        heapq.heapify(ready)
        while ready:
            key = heapq.heappop(ready)[2]
            yield key
            for reader in readers[key]:
                missing[reader].discard(key)
                if not missing[reader]:
                    heapq.heappush(ready, rank(reader))


def flat(keys: Any) -> Iterator[Any]:
    """Keys in nested lists."""
    if isinstance(keys, list):
        for one in keys:
            yield from flat(one)
    else:
        yield keys


def nested(keys: Any, value_of: Callable[[Any], Any]) -> Any:
    """Values in the place of keys; lists become tuples, as with Dask's own schedulers."""
    return tuple(nested(one, value_of) for one in keys) if isinstance(keys, list) else value_of(keys)


def name_of(key: Any) -> str:
    """The name of a task, which it shares with others of its kind."""
    if key is TOGETHER:
        return "together"
    from dask.utils import key_split  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return str(key_split(key))


def _by_task(annotations: Mapping[str, Mapping[Any, Any]]) -> dict[Any, dict[str, Any]]:
    """Annotations by the key of the task."""
    found: dict[Any, dict[str, Any]] = collections.defaultdict(dict)
    for name, values in annotations.items():
        for key, value in values.items():
            found[key][name] = value
    return dict(found)


def parts_of_dask() -> tuple[Any, Any]:
    """What Dask knows of tasks, and its order of them."""
    remedy = "install it where the program runs, and where servers run its tasks: pip install 'dask>=2025.4'"
    try:
        import dask  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise ImportError(f"gridloom.dask needs Dask 2025.4 or later, which cannot be imported: {remedy}") from None
    try:
        from dask import _task_spec
        from dask.order import order  # type: ignore[import-not-found, import-untyped, unused-ignore]

        _task_spec.convert_legacy_graph, _task_spec.DataNode, _task_spec.Alias
    except (ImportError, AttributeError):
        raise ImportError(f"gridloom.dask needs Dask 2025.4 or later, got {getattr(dask, '__version__', 'another')}: {remedy}") from None
    return _task_spec, order
