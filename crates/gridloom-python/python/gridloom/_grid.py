"""Sessions with a grid."""

from __future__ import annotations

import dataclasses
import functools
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
from ._calibration import Calibration, CalibrationCall, calibrate
from ._checks import seconds
from ._ends import Ends
from ._errors import GridloomError, UnknownFunctionError, UnreadErrorWarning, UsageError
from ._facts import Link, ServerInfo, Simulation, Traffic, link_of
from ._function import Function
from ._graph import Graph, results_for
from ._group import Group, Handle
from ._heuristic import MAP_TIMEOUT, Heuristic, mapping_of
from ._loops import Loops
from ._map import MapResults, mapped
from ._models import Models, models_of
from ._offered import offered_name
from ._open_grids import open_grids, openings
from ._options import Options
from ._packing import name_of, pack_call, pack_function
from ._pickles import OfSession
from ._plan import Plan
from ._retry import retry_of
from ._run_future import RunFuture
from ._runner import Runner
from ._said import Said, listen
from ._shared import SharedData
from ._stream import Stream
from .run_code import STREAM

if TYPE_CHECKING:
    from types import TracebackType

    from ._bars import Watch
    from ._retry import Retry, RetryOn


_T = TypeVar("_T")

# Calls that `Grid.map` submits ahead.
_LEAD_MIN = 64
# So many servers are named where a grid is printed.
_NAMED_MAX = 4
# How long a display waits for what servers say, seconds.
_LOOK_SECONDS = 0.5


class Grid(SharedData, OfSession):
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

    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> RunFuture[_T]:
        """Have any Python function run on a server, without waiting.

        The function goes by module and name if its module can be imported; a function of the program itself, a lambda and a closure
        go with all that they use. A grid of `local` takes it; another one has to say so by ``gridloom serve --run-code``.

        Parameters
        ----------
        function : function
            Any function, or another object that can be called.
        *args, **kwargs : object
            Its arguments: whatever can be pickled. They are pickled now, and may change afterwards. In the place of a handle goes its
            value, which is waited for.

        Returns
        -------
        RunFuture
            The call under way: a future as of ``concurrent.futures``. The call runs again elsewhere if its server is lost.

        Raises
        ------
        ArgumentError
            If the function or an argument cannot be pickled.
        UnknownFunctionError
            If no server runs functions that programs send.
        TaskError
            If a handle has no value.
        UsageError
            If the session is closed or simulated.

        Notes
        -----
        It is not recorded in the block of a group. Servers that run such functions run whatever code the program sends; and the
        program unpickles what they give, so that it trusts them as they trust it.
        """
        return self._run(function, args, kwargs, None, None)

    def options(self, *, retries: int = 0, retry_on: RetryOn | None = None, timeout: float | None = None) -> Options:
        """Say on what terms functions run: ``grid.options(retries=3).run(f, x)``.

        Parameters
        ----------
        retries : int, optional
            How often a call that has failed runs again at most: on another server, if there is one.
        retry_on : exception class or tuple of them, optional
            After which errors: what the function raises, and `Crashed`. By default after all of these.
        timeout : float, optional
            Time limit of the call, seconds, from when it is sent to a server: for all its runs together. A call that takes longer is
            ended, with its worker process, and raises `DeadlineExceeded`.

        Returns
        -------
        Options
            Its `run` takes a function and arguments, as that of the grid.

        Raises
        ------
        UsageError
            If `retries`, `retry_on` or `timeout` cannot be meant.
        """
        return Options(self, retry_of("options", retries, retry_on), seconds("options: timeout", timeout))

    def _run(
        self,
        function: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retry: Retry | None,
        limit: float | None,
    ) -> RunFuture[_T]:
        name = name_of(function)
        future: RunFuture[_T] = RunFuture()
        future._unread, future._name = self._ends.unread, name
        runner = self._any()
        arguments = pack_call(name, args, kwargs, runner.room)
        return runner.submit(pack_function(function), name, arguments, future=future, retry=retry, limit=limit)

    def map(
        self,
        function: Callable[..., _T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        lead: int | None = None,
        retries: int = 0,
        retry_on: RetryOn | None = None,
        progress: bool | None = None,
    ) -> MapResults[_T]:
        """Run any Python function on each item of an iterable, or on the items of several side by side.

        Parameters
        ----------
        function : function
            Any function, as `run` takes it.
        *iterables : iterable
            Its arguments, one of each iterable for a call. They may be endless.
        timeout : float, optional
            Seconds from now in which the results have to be there. After that, the calls are ended, also those under way.
        chunksize : int, optional
            Calls that are sent together; more than 1 pays for calls of less than a millisecond.
        lead : int, optional
            Calls, or chunks, of which the result was not taken yet, that are submitted: at least 1, by default four for each slot of the
            servers, and no fewer than 64. Beyond 256 MiB of arguments and results, no more than two for each slot.
        retries : int, optional
            How often a call, or a chunk, that has failed runs again at most: on another server, if there is one.
        retry_on : exception class or tuple of them, optional
            After which errors: what the function raises, and `Crashed`. By default after all of these.
        progress : bool, optional
            Whether a terminal or notebook shows how many calls have ended; by default as the session was opened.

        Returns
        -------
        MapResults
            The results in order: an iterator, also for ``async for``. When it is closed, or an error ends it, calls that were
            not sent are cancelled.

        Raises
        ------
        ArgumentError
            If the function cannot be pickled; by the iterator, an argument.
        Exception
            By the iterator: what the function raised.
        TimeoutError
            By the iterator: a result was not there in time.
        UnknownFunctionError
            If no server runs functions that programs send.
        ValueError
            If `chunksize` or `lead` is less than 1.
        """
        runner = self._any()
        if lead is None:
            lead = max(4 * runner.slots, _LEAD_MIN)
        if lead < 1:
            raise ValueError(f"lead must be >= 1, got {lead}")
        return mapped(
            lambda: (pack_function(function), name_of(function)),
            iterables,
            timeout=timeout,
            chunksize=chunksize,
            lead=lead,
            least=2 * runner.slots,
            room=runner.room,
            submit=functools.partial(runner.submit, retry=retry_of("map", retries, retry_on)),
            progress=self._shows(progress),
        )

    def _shows(self, progress: bool | None) -> bool:
        return not self.simulated and (self._progress if progress is None else _progress.wanted(progress))

    def stream(
        self, function: Callable[..., Iterable[_T]], /, *args: Any, lead: int = 16, timeout: float | None = None, **kwargs: Any
    ) -> Stream[_T]:
        """Have a function with ``yield`` run on a server, and take its values as they come.

        Parameters
        ----------
        function : function
            A generator function, or one that returns an iterable, as `run` takes it.
        *args, **kwargs : object
            Its arguments, pickled now.
        lead : int, optional
            So many values at most are made before they are taken.
        timeout : float, optional
            How long to wait for each value, seconds.

        Returns
        -------
        Stream
            The values in order: an iterator, also for ``async for``. The function ends with `close`, also in a ``with`` block, and
            when nothing holds the stream any more.

        Raises
        ------
        ArgumentError
            If the function or an argument cannot be pickled.
        UnknownFunctionError
            If no server runs functions that programs send.
        UsageError
            If the session is closed or simulated.
        ValueError
            If `lead` is less than 1.
        Exception
            By the iterator: what the function raised; `ServerLost` and `Crashed`, as a stream does not begin again;
            `WaitTimedOut`, after which the next value can be waited for again.

        Notes
        -----
        It has a process of its own on the server with the fewest of them, which takes a slot while it makes a value.
        """
        runner = self._any()
        try:
            return Stream(self._raw, self._ends, runner.room, function, args, kwargs, lead, timeout)
        except UnknownFunctionError:
            raise runner.no_server() from None

    def _any(self) -> Runner:
        """What sends calls of any function."""
        if self._runner is None:
            with self._making:
                self._runner = self._runner or Runner(self._raw, self._ends)
        return self._runner

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

    def calibrate(
        self,
        function: str | Function,
        *,
        sizes: Mapping[str, int | tuple[int, int]] | None = None,
        values: Mapping[str, Any] | None = None,
        make: Callable[[dict[str, int]], Mapping[str, Any]] | None = None,
        error: float = 0.05,
        budget: float = 60.0,
        servers: Iterable[str] = (),
        progress: Callable[[CalibrationCall], object] | None = None,
    ) -> list[Calibration]:
        """Measure a function on its servers, until predictions of its time are as exact as asked for.

        Each server is measured only while it has nothing else to do; servers of one host take turns. What is measured is learned like
        any call: shared with the agent, and kept with the server's models. It ends with the last server, or with an exception
        of `progress` (or Ctrl-C: then after the call under way).

        Parameters
        ----------
        function : str or Function
            What is measured, as for `Grid.function`.
        sizes : dict of str to int or (int, int), optional
            Size arguments: ranges with both ends, which grow together, or fixed values. Others range from 16 to what fits the memory.
        values : dict of str to number, str, bytes or numpy.ndarray, optional
            Other arguments. A text has to be given; a number that is not is 1, and arrays are random.
        make : function, optional
            Makes all arguments, by name, from the sizes by name, instead of random ones; `sizes` then has the ranges that it takes, under
            any names. It is called from another thread.
        error : float, optional
            How far predictions within the range may be off, as a part of the time.
        budget : float, optional
            Time for each server, seconds. A call that is predicted to take more than a tenth of it is not made.
        servers : list of str, optional
            Names of the servers; all that offer the function if empty.
        progress : function, optional
            Is shown each call that was measured. It is called from another thread.

        Returns
        -------
        list of Calibration
            For each server how exactly the time is known, in order of name. One on which a call failed says so by `Calibration.failed`.

        Raises
        ------
        UnknownFunctionError
            If no server offers the function.
        UsageError
            If a server, a size or another argument is not known, a range, the error or the budget is none, or no arguments can be made.
        """
        name = function.name if isinstance(function, Function) else function
        return calibrate(self._raw, name, sizes or {}, values or {}, error, budget, servers, make, progress)

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

    def links(self) -> list[Link]:
        """Tell what the agent knows of the links between hosts, and of those to and from clients.

        Returns
        -------
        list of Link
            One for each direction that was measured. Servers measure links when they register, and transfers correct what is known.
        """
        return [link_of(told) for told in self._raw.links()]

    def traffic(self) -> Traffic:
        """Tell how many bytes were moved since the session began.

        Returns
        -------
        Traffic
            Over the client's links, between servers, and by pair.
        """
        return Traffic(**self._raw.traffic())

    def now(self) -> float:
        """Read the session's clock.

        Returns
        -------
        float
            Seconds: since 1970 for real, virtual in simulation.
        """
        return self._raw.now()

    def advance(self, seconds: float) -> None:
        """Let virtual time pass at the client, as if it computed for so long. Nothing happens on a real grid.

        Parameters
        ----------
        seconds : float
            How long, seconds.
        """
        self._raw.advance(seconds)

    def compute(self, work: float) -> None:
        """Let virtual time pass at the client, as if it computed so much on its host. Nothing happens on a real grid.

        Parameters
        ----------
        work : float
            How much, floating-point operations.
        """
        self._raw.compute(work)

    @property
    def simulated(self) -> bool:
        """Whether the grid is simulated."""
        return self._raw.simulated

    def simulation(self) -> Simulation | None:
        """Report on a simulated run so far.

        Returns
        -------
        Simulation or None
            ``None`` for a real grid.
        """
        record = self._raw.simulation()
        if record is None:
            return None
        record["groups"] = [tuple(group) for group in record["groups"]]
        return Simulation(**record)

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
