"""Sessions with a grid."""

from __future__ import annotations

import dataclasses
import operator
import os
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _gridloom, _html, _notebook, _progress
from ._any_function import AnyFunction
from ._ends import Ends
from ._errors import GridloomError, UnreadErrorWarning, UsageError
from ._facts import ServerInfo
from ._function import Function
from ._graph import Graph, results_for
from ._group import Group, Handle
from ._heuristic import MAP_TIMEOUT, Heuristic, mapping_of
from ._loops import Loops
from ._measured import Measured
from ._models import Models, models_of
from ._offered import offered_name
from ._open_grids import open_grids, openings
from ._pickles import OfSession
from ._plan import Plan
from ._retry import retry_of
from ._runner import Runner
from ._said import Said, listen
from ._shared import SharedData
from .run_code import STREAM

if TYPE_CHECKING:
    from types import TracebackType

    from ._bars import Watch
    from ._retry import RetryOn


_T = TypeVar("_T")

# So many servers are named where a grid is printed.
_NAMED_MAX = 4
# How long a display waits for what servers say, seconds.
_LOOK_SECONDS = 0.5


class Grid(AnyFunction, SharedData, Measured, OfSession):
    """A session with a grid, made by `local`, `connect` or `simulate`. It ends with its ``with`` block, or `close`."""

    _why = "a gridloom.Grid is a session of this process"
    _remedy = "open one by gridloom.connect() where it is used"

    def __init__(
        self,
        raw: _gridloom.RawGrid,
        hear: Callable[[Said], None] | None = None,
        *,
        progress: bool = False,
        folder: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        if hear is not None:
            listen(raw, hear)
        self._raw = raw
        self._ends = Ends(raw)
        self._current: ContextVar[Group | None] = ContextVar("gridloom group", default=None)
        self._closed = False
        # Whether this process is a forked child of the session's.
        self._forked = False
        # Of the functions that the program has given it.
        self._folder = folder
        self._loops = Loops(raw)
        self._runner: Runner | None = None
        self._making = threading.Lock()
        self._executors: weakref.WeakSet[Any] = weakref.WeakSet()
        # Bars that are moved now. Those of transfers are the session's.
        self._progress = progress
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._transfers = _progress.of_transfers(self) if progress and not raw.simulated else None
        # What servers do, for a display that follows it.
        self._loads: dict[str, tuple[int, int, int, int, int]] | None = None
        self._was_busy = False
        self._opened = next(openings)
        open_grids.add(self)

    def __enter__(self) -> Grid:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What an error has interrupted is expected not to have ended.
        self._close(tells_pending=error is None)

    def close(self) -> None:
        """End the session, and the processes of an embedded local grid. Handles and functions of it no longer work.

        Arrays that were fetched stay. Errors of calls that the program did not read, and calls of `run` that have not ended, are told
        by an `UnreadErrorWarning`.
        """
        self._close(tells_pending=True)

    def _close(self, *, tells_pending: bool) -> None:
        if not self._closed:
            self._closed = True
            open_grids.discard(self)
            for watch in [*self._watches, *([self._transfers] if self._transfers else [])]:
                watch.end()
            self._ends.stop()
            calls = self._ends.unread.take(False)
            if self._runner is not None:
                self._runner.close()
            unread = self._raw.take_unread(True)
            self._raw.close()
            self._ends.close()
            self._ends.settle()
            pending = self._ends.unread.take(True)
            if self._folder is not None:
                self._folder.cleanup()
            for told in (unread, calls, pending if tells_pending else None):
                _warn(told, 4)

    def function(
        self, name: str | Callable[..., Any], *, retries: int = 0, retry_on: RetryOn | None = None
    ) -> Function:
        """Find a function.

        Parameters
        ----------
        name : str or function
            ``module/function``, or ``function`` alone if only one module has it; or a function with types in its annotations,
            which the grid offers.
        retries : int, optional
            How often a call of it that has failed runs again at most, by itself or in a group: on another server, if one offers the
            function. Calls of objects' methods run once.
        retry_on : exception class or tuple of them, optional
            After which errors: what the function raises, by the names of these classes and of their subclasses that the program
            knows, and `Crashed`. By default after all of these. No call runs again that was cancelled, that exceeded its limit,
            or whose arguments do not fit.

        Returns
        -------
        Function
            It can be called.

        Raises
        ------
        UnknownFunctionError
            If no server offers it; the message lists names like it.
        UsageError
            If `retries` or `retry_on` cannot be meant.
        """
        name = name.name if isinstance(name, Function) else offered_name(name)
        retry = retry_of(f"function {name!r}", retries, retry_on)
        raw = self._raw.function(name)
        return Function(self, raw if retry is None else raw.retried(retry.times, retry.crashes, retry.raised))

    def functions(self) -> dict[str, str]:
        """List the functions that are offered.

        Returns
        -------
        dict of str to str
            Signatures by name, in order of name.
        """
        return dict(self._raw.functions())

    def initialize_module(self, module: str, /, *args: Any, **kwargs: Any) -> None:
        """Have a module's function ``Initialize`` run in each worker process before this session's first call of the module there.

        It runs again in a process that was started anew, and after calls of another program with arguments of its own. What the module's
        ``Globals`` have then lasts from call to call. Modules are those of interface descriptions in C, C++ and Fortran.

        Parameters
        ----------
        module : str
        *args, **kwargs
            As for a call of ``module/Initialize``. They go to all servers at once, as shared data that end with the session. It may be
            called again with others.

        Raises
        ------
        UnknownFunctionError
            If no server offers the module, or it has no ``Initialize``.
        ArgumentError
            If the arguments do not fit.
        UsageError
            If ``Initialize`` has results, or the grid is simulated.
        ConnectError
            If there is no agent.
        """
        self.function(f"{module}/Initialize")._raw.initialize_module(args, kwargs)

    def servers(self) -> list[ServerInfo]:
        """List the servers as known now.

        Returns
        -------
        list of ServerInfo
            In order of name.
        """
        fields = [field.name for field in dataclasses.fields(ServerInfo)]
        servers = []
        for server in self._raw.servers():
            server["functions"] = sorted(name for name in server["functions"] if not name.startswith(f"{STREAM}."))
            servers.append(ServerInfo(**{name: server[name] for name in fields}))
        return servers

    def group(
        self,
        heuristic: str | Plan | Heuristic = "auto",
        *,
        graph: Graph | None = None,
        inputs: Mapping[str, Handle] | None = None,
        strict: bool = False,
        regroup: int | str | None = None,
        map_timeout: float | None = MAP_TIMEOUT,
        progress: bool | None = None,
    ) -> Group:
        """Begin a group of calls: ``with grid.group() as group:``.

        Parameters
        ----------
        heuristic : str, Plan or function, optional
            How the calls are mapped: by a heuristic (``gridloom heuristics`` lists what there is); as a plan says that
            `Group.plan` or `Plan.load` gave; or by a function of your own, which takes a `Problem` and returns a server for each
            task, by number or name: in order of the tasks, or a dict by their numbers (or a pair: those, and the order of the tasks).
            It cannot launch groups of this grid.
        graph : Graph, optional
            The calls of the block as described beforehand. They are mapped now, and each runs as soon as it is made, where the plan has
            the described call that it fits; results can be looked at within the block. A call that fits none is mapped by itself, with
            a `DifferenceWarning`.
        inputs : dict of str to Handle, optional
            Inputs of the graph that are results already, so that the plan knows where they are.
        strict : bool, optional
            A call that fits no described one is not made and raises `DifferenceError`; so does the end of the block if a
            described call never came.
        regroup : int or "auto", optional
            The block is the body of a loop. At its end it is held back, to be mapped together with the next bodies (groups that are opened
            with the same `heuristic` and `regroup`): so many, or with ``"auto"`` one at first and twice as many each time,
            for as long as plans hold. A result that is asked for launches what is held back, and so does `Group.launch`.
        map_timeout : float or None, optional
            Seconds of real time that a function of your own may take to map, also in simulation; ``None`` for no limit. When they are
            past, `NotMapped` is raised, and the function goes on in vain in a daemonic thread.
        progress : bool, optional
            Whether a terminal or notebook shows how many calls have ended, from the end of the block on; by default as the session was
            opened. A simulated grid shows none.

        Returns
        -------
        Group
            Its block records calls.

        Raises
        ------
        InputError
            If there is no such heuristic, or it has no such parameter; if the graph's functions are not offered or do not fit.
        NotMapped
            If the graph cannot be mapped.
        UsageError
            If `graph` is no graph, `inputs` or `strict` are given without one, `inputs` are no handles by name, or
            `regroup` is given with a graph or a plan, or not as a number or "auto".
        """
        if regroup is not None:
            if graph is not None or inputs or strict:
                raise UsageError("a described group is mapped by itself: leave out regroup= or graph=")
            _warn(self._raw.take_unread(False))
            body = self._loops.of(heuristic, regroup, map_timeout).group()
            return Group(self, body, heuristic, held_back=True, progress=self._shows(progress))
        if graph is None:
            if inputs or strict:
                raise UsageError("inputs and strict are of a described group: give graph=, too")
            raw = self._raw.group(mapping_of(heuristic, map_timeout))
        elif not isinstance(graph, Graph):
            hint = "; gl.Graph.load(path) reads one from a file" if isinstance(graph, (str, os.PathLike)) else ""
            raise UsageError(f"graph is a gl.Graph, got {type(graph).__name__}{hint}")
        else:
            raw = self._raw.group_of(mapping_of(heuristic, map_timeout), graph._raw, strict, results_for(inputs))
        _warn(self._raw.take_unread(False))
        group = Group(self, raw, heuristic, progress=self._shows(progress))
        if graph is not None:
            group._told = 0
        return group

    def models(self, function: str | Function | None = None) -> Models:
        """Tell how long functions take, as far as that was measured: what plans are predicted by.

        Parameters
        ----------
        function : str or Function, optional
            Only this one, as for `Grid.function`.

        Returns
        -------
        Models
            One for each function and server, of those that have run or were calibrated.

        Raises
        ------
        UnknownFunctionError
            If no server offers the function.
        """
        if isinstance(function, str):
            function = self.function(function)
        self._raw.learn_models(_LOOK_SECONDS)
        return models_of(self._raw.servers(), None if function is None else function.name)

    def server_processes(self) -> list[int]:
        """List the processes of an embedded local grid's servers.

        Returns
        -------
        list of int
            Process identifiers in order of the servers' names; empty for other grids.
        """
        return self._raw.server_processes()

    def empty(self, shape: int | Iterable[int], dtype: npt.DTypeLike = np.float64, order: str = "C") -> npt.NDArray[Any]:
        """Make an array in shared memory, which goes to servers on this machine without a copy.

        Parameters
        ----------
        shape : int or tuple of int
            Extents.
        dtype : numpy.dtype, optional
            Any number type.
        order : {"C", "F"}, optional
            Memory order.

        Returns
        -------
        numpy.ndarray
            Its contents are arbitrary. Pass it, or a contiguous part of it; from then on, and until the results are
            there, it must not be changed: it is the one argument that is not copied, so servers of this machine would see
            the change, in the middle of a call or when the call is run again after a loss. This is not checked.

        Raises
        ------
        ArgumentError
            If it cannot be described.
        UsageError
            If there is no memory for it, or `shape` or `order` cannot be meant.
        """
        try:
            extents = [operator.index(extent) for extent in (shape if isinstance(shape, Iterable) else [shape])]
        except TypeError:
            raise UsageError(f"empty: shape is a number of elements or a tuple of extents, got {shape!r}") from None
        if min(extents, default=0) < 0:
            raise UsageError(f"empty: an extent is at least 0, got shape {shape!r}")
        if order not in ("C", "F"):
            raise UsageError(f"empty: order is 'C' or 'F', got {order!r}")
        return self._raw.empty(extents, np.dtype(dtype), order)

    def __repr__(self) -> str:
        if self._forked:
            return "<gridloom.Grid: of the process that forked this one>"
        if self._closed:
            return "<gridloom.Grid: closed>"
        names = [server["name"] for server in self._raw.servers()]
        kind = "simulated, " if self.simulated else ""
        servers = f"{len(names)} server{'' if len(names) == 1 else 's'}"
        named = ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")
        return f"<gridloom.Grid: {kind}{servers}{': ' if named else ''}{named}>"

    def _repr_html_(self) -> str:
        return _html.of_grid(self)

    def _show_now(self) -> tuple[str, bool]:
        changes = not (self._closed or self.simulated)
        try:
            # Other programs may have calls, too; but nobody asks servers for ever on their account.
            is_busy = changes and self._raw.under_way() > 0
            if is_busy or self._was_busy:
                self._loads = self._raw.loads(_LOOK_SECONDS)
            self._was_busy = is_busy
        except GridloomError:  # it was closed just now
            changes = False
        return _html.of_grid(self), changes

    def _ipython_display_(self) -> None:
        _notebook.show_live(self)


def _warn(unread: str | None, stack_level: int = 3) -> None:
    if unread is not None:
        warnings.warn(unread, UnreadErrorWarning, stacklevel=stack_level)
