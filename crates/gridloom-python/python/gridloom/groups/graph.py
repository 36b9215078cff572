"""Graphs of calls that are described before the calls are made."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _gridloom
from ..calls.function import Function
from ..calls.session_state import HasSession
from ..common.checks import checked_path
from ..common.file_writing import write_text
from ..common.session_objects import from_text
from ..errors import InputError, UsageError
from ..plans.heuristic import MAP_TIMEOUT, Heuristic, mapping_of
from ..plans.plan import Plan, plan_of
from .handle import Handle


@dataclasses.dataclass(frozen=True)
class GraphNode:
    """An input of a described graph, or a result of one of its calls.

    Attributes
    ----------
    name : str
        An input's name, a call's if it has one result, or ``call.parameter``.
    """

    name: str

    def __getitem__(self, parameter: str) -> GraphNode:
        """One of several results of a call, by the name of the parameter."""
        return GraphNode(f"{self.name}.{parameter}")


class Graph:
    """The calls of a group, described beforehand: for programs whose control flow depends on results.

    ``with grid.group(graph=graph):`` maps it at once, and each call of the block then runs as soon as it is made, where
    the plan has the described call that it is.

    >>> graph = gl.Graph()                                              # doctest: +SKIP
    >>> a = graph.input("a", shape=(1000, 1000))                        # doctest: +SKIP
    >>> square = graph.call(matmul, a, a, name="square")                # doctest: +SKIP
    >>> cube = graph.call(matmul, square, a, name="cube")               # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._raw = _gridloom.RawGraph()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read one that was saved, or written by hand.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        Graph
            It can be added to.

        Raises
        ------
        InputError
            If it is no graph: the message says where and why.
        """
        graph = cls()
        graph._raw = _gridloom.RawGraph.load(checked_path("path", path))
        return graph

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, JSON.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_text(path, self._raw.json())

    def input(
        self,
        name: str,
        like: npt.ArrayLike | Handle | bytes | None = None,
        *,
        shape: int | tuple[int, ...] | None = None,
        dtype: npt.DTypeLike = np.float64,
        order: str = "C",
    ) -> GraphNode:
        """Describe a datum that exists before.

        Parameters
        ----------
        name : str
            Its name, which has no ``.``.
        like : array, Handle, str or bytes, optional
            A value of the same size.
        shape : int or tuple of int, optional
            Extents of an array, if there is nothing that it is like.
        dtype : numpy.dtype, optional
            Element type of that array.
        order : {"C", "F"}, optional
            Memory order of that array.

        Returns
        -------
        GraphNode
            To be passed to `call`.

        Raises
        ------
        InputError
            If the name is taken, or the size is none.
        UsageError
            If neither a shape is given nor what it is like, or both.
        """
        if (like is None) == (shape is None):
            raise UsageError(f"input {name!r}: give its shape=, or a value that it is like")
        described: dict[str, Any] = {"name": name}
        if isinstance(like, (str, bytes)):
            size = len(like.encode() if isinstance(like, str) else like)
            described |= {"type": "text" if isinstance(like, str) else "bytes", "size_bytes": size}
        else:
            if like is not None:
                value = like if isinstance(like, Handle) else np.asarray(like)
                shape, dtype = value.shape, value.dtype
                if isinstance(value, np.ndarray) and value.flags.f_contiguous and not value.flags.c_contiguous:
                    order = "F"
            if order not in ("C", "F"):
                raise UsageError(f"input {name!r}: order is 'C' or 'F', got {order!r}")
            extents = shape if isinstance(shape, tuple) else (shape,)
            name_of = {"g": "longdouble", "G": "clongdouble"}
            described["type"] = name_of.get(np.dtype(dtype).char, np.dtype(dtype).name)
            if extents:
                described["shape"] = [extent.item() if isinstance(extent, np.integer) else extent for extent in extents]
            if order == "F":
                described["order"] = order
        _describe(self._raw.input, described)
        return GraphNode(name)

    def call(self, function: Function | str, *args: Any, name: str | None = None, optional: bool = False, **kwargs: Any) -> Any:
        """Describe a call. Calls are expected in the order of the data, and where that leaves it open, in any.

        Parameters
        ----------
        function : Function or str
            A function of a grid, or its name. Calls of a function of `Function.on` are expected on that server.
        *args, **kwargs : GraphNode, number or str
            Arguments of the call, with inputs and results of the graph in place of data. Numbers matter for the
            sizes and the work that follow from them; other values may differ when the call is made.
        name : str, optional
            Its name in reports and files.
        optional : bool, optional
            Whether the call may be missing without a difference.

        Returns
        -------
        GraphNode, tuple of them, or None
            Its results. Of a function by name it is one node; of several results take ``node["parameter"]``.

        Raises
        ------
        InputError
            If the name is taken or an argument is not of this graph. Whether the arguments fit the function is seen when the
            graph is mapped.
        """
        of = function.name if isinstance(function, Function) else function
        if name is None:
            name = f"{of.rsplit('/', 1)[-1]}-{len(self) + 1}".replace(".", "-")
        described: dict[str, Any] = {"name": name, "function": of, "args": [_argument(name, arg) for arg in args]}
        if kwargs:
            described["named"] = {parameter: _argument(name, arg) for parameter, arg in kwargs.items()}
        if optional:
            described["optional"] = True
        if isinstance(function, Function) and function.server is not None:
            described["on"] = function.server
        results = function._raw.results() if isinstance(function, Function) else [""]
        _describe(self._raw.call, described)
        node = GraphNode(name)
        if len(results) > 1:
            return tuple(node[parameter] for parameter in results)
        return node if results else None

    def want(self, *results: GraphNode) -> None:
        """Declare that the program will fetch results that other calls read too, so that the plan includes these transfers.

        Parameters
        ----------
        *results : GraphNode
            Results that no call reads are wanted anyway.

        Raises
        ------
        InputError
            If one is no call's. The graph is then as it was.
        UsageError
            If one is no result of `call` at all.
        """
        self._raw.want([_node("want", result) for result in results])

    def remove(self, node: GraphNode | str) -> None:
        """Take back an input or a call that no call reads, such as one that turns out not to fit its function.

        Parameters
        ----------
        node : GraphNode or str
            The input, a result of the call, or the name of either.

        Raises
        ------
        InputError
            If it is not of this graph, or a call reads it: that has to be removed first.
        UsageError
            If it is nothing of that kind.
        """
        name = node if isinstance(node, str) else _node("remove", node).split(".", 1)[0]
        self._raw.remove(name)

    def plan(self, grid: HasSession, heuristic: str | Plan | Heuristic = "auto", *, map_timeout: float | None = MAP_TIMEOUT) -> Plan:
        """Return the plan that the agent makes for the graph; nothing is run.

        Parameters
        ----------
        grid : Grid
            The grid.
        heuristic : str, Plan or function, optional
            As `Grid.group` takes it.
        map_timeout : float or None, optional
            Seconds of real time that a function of your own may take to map; ``None`` for no limit.

        Returns
        -------
        Plan
            It can be printed, drawn, explained, saved, edited, and given to `Grid.group` with the graph.

        Raises
        ------
        InputError
            If a function is not offered, or a call does not fit its function.
        NotRun
            If it cannot be mapped.
        """
        return plan_of(grid._session.raw.plan_of(self._raw, mapping_of(heuristic, map_timeout)))

    @property
    def calls(self) -> list[str]:
        """Names of the calls, in order."""
        return self._raw.calls()

    def __len__(self) -> int:
        """Number of calls."""
        return len(self._raw.calls())

    def __repr__(self) -> str:
        return f"<gridloom.Graph: {len(self)} calls>"

    def __reduce__(self) -> tuple[Callable[[str], Graph], tuple[str]]:
        return _unpickled, (self._raw.json(),)


def _unpickled(file: str) -> Graph:
    return from_text(Graph.load, file)


def _node(what: str, node: Any) -> str:
    """The name of an input or result of a graph."""
    if isinstance(node, GraphNode):
        return node.name
    given = f"the text {node!r}" if isinstance(node, str) else type(node).__name__
    hint = "; pass each by itself, as *results" if isinstance(node, (tuple, list)) else ""
    raise UsageError(f"{what}() takes a result of graph.input(...) or graph.call(...), not {given}{hint}")


def _argument(call: str, arg: Any) -> Any:
    if isinstance(arg, GraphNode):
        return arg.name
    if isinstance(arg, str):
        return {"text": arg}
    value = arg.item() if isinstance(arg, np.generic) else arg
    if isinstance(value, (bool, int, float)):
        return value
    raise UsageError(
        f"call {call!r}: a described argument is an input or a result of the graph, a number or a text, not {type(arg).__name__}; "
        "describe data with graph.input(...), and a complex number by its real part"
    )


def _describe(add: Callable[[dict[str, Any]], None], described: dict[str, Any]) -> None:
    """Add an input or a call."""
    try:
        add(described)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(f"{described['name']!r} cannot be described: {error}") from None


def results_for(inputs: Mapping[str, Handle] | None) -> list[tuple[str, _gridloom.RawHandle]]:
    """Inputs of a graph that are results already."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise UsageError(f"inputs is a dict of handles by the names of the graph's inputs, got {type(inputs).__name__}")
    for name, handle in (inputs or {}).items():
        if not isinstance(name, str):
            raise UsageError(f"inputs is a dict by the names of the graph's inputs; {name!r} is no name")
        if not isinstance(handle, Handle):
            raise UsageError(
                f"inputs[{name!r}] is {type(handle).__name__}; only handles, results of calls of a group, are named "
                "there: pass other values to the calls, as the graph describes them"
            )
    return [(name, handle._raw) for name, handle in (inputs or {}).items()]
