"""`Grid`: a session with a grid.

The session consists of parts: functions of the program (`AnyFunction`), shared data (`SharedData`), measurements (`Measurements`), and on a
cluster of Dask or Ray the engine (`Cluster`). `Grid` is what a program sees of them.
"""

from __future__ import annotations

import dataclasses
import datetime
import operator
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .. import _gridloom
from ..calls.function import Function
from ..calls.future import Future
from ..calls.session_state import SessionState
from ..common.checks import checked_priority, whole
from ..common.checks import seconds as checked_seconds
from ..common.session_objects import OfSession
from ..display import notebook
from ..display import progress_bars as bars
from ..display.html import Load, of_error, of_grid
from ..display.output import Output, listen
from ..errors import GridloomError, UnreadErrorWarning, UsageError
from ..functions.offer import offered_name
from ..groups.graph import Graph, results_for
from ..groups.group import Group
from ..groups.handle import Handle
from ..groups.loops import Loops
from ..models.calibration import Calibration, CalibrationCall
from ..models.measurements import Measurements
from ..models.models import Models
from ..models.server_info import Link, ServerInfo, Simulation, Traffic
from ..models.usage import Usage
from ..pickling.protocol import STREAM
from ..plans.heuristic import MAP_TIMEOUT, Heuristic, mapping_of
from ..plans.plan import Plan
from ..run.any_function import AnyFunction
from ..run.map import MapResults
from ..run.options import Options
from ..run.retry import RetryOn, retry_of
from ..run.stream import Stream
from .cluster import Cluster, NotOnCluster
from .open_grids import Ending, open_grids, openings
from .shared_data import SharedData, SharedName, SharedValue

_T = TypeVar("_T")

# How many servers are named where a grid is printed.
_NAMED_MAX = 4
# How long a display waits for the loads of servers, seconds.
_LOADS_SECONDS = 0.5


class Grid(OfSession):
    """A session with a grid, made by `local`, `connect` or `simulate`. It ends with its ``with`` block, or `close`."""

    _why = "a gridloom.Grid is a session of this process"
    _remedy = "open one by gridloom.connect() where it is used"

    def __init__(
        self,
        raw: _gridloom.RawGrid,
        on_output: Callable[[Output], None] | None = None,
        *,
        progress: bool = False,
        folder: tempfile.TemporaryDirectory[str] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        if on_output is not None:
            listen(raw, on_output)
        self._raw = raw
        self._session = SessionState(raw) if cluster is None else cluster.session
        self._cluster = cluster
        self._any_function = AnyFunction(self._session) if cluster is None else NotOnCluster()
        self._shared = SharedData(self._session) if cluster is None else NotOnCluster()
        self._measurements = Measurements(raw) if cluster is None else NotOnCluster()
        # Files of functions that the program has handed to the grid.
        self._folder = folder
        self._loops = Loops(raw)
        self._executors: weakref.WeakSet[Ending] = weakref.WeakSet()
        self._progress = progress
        self._transfers = bars.of_transfers(_transfers_of(self)) if progress and not raw.simulated else None
        # Loads of the servers, for a display that is updated.
        self._loads: dict[str, Load] | None = None
        self._was_busy = False
        self._number = next(openings)
        open_grids.add(self)

    def __enter__(self) -> Grid:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error, calls that have not ended are expected.
        self._close(warns_of_pending=error is None)

    def close(self) -> None:
        """End the session, and the processes of an embedded local grid. Handles and functions of it no longer work.

        Arrays that were fetched stay. An `UnreadErrorWarning` lists errors of calls that the program did not read, and calls of `run` that
        have not ended.
        """
        self._close(warns_of_pending=True)

    def _close(self, *, warns_of_pending: bool) -> None:
        if self._session.is_closed:
            return
        self._session.is_closed = True
        if self._cluster is not None:
            self._cluster.close()
        open_grids.discard(self)
        for watch in [*self._session.watches, *([self._transfers] if self._transfers else [])]:
            watch.end()
        completions = self._session.completions
        completions.stop()
        calls = completions.unread.take(False)
        if isinstance(self._any_function, AnyFunction):
            self._any_function.close()
        groups = self._raw.take_unread(True)
        self._raw.close()
        completions.close()
        completions.settle()
        pending = completions.unread.take(True)
        if self._folder is not None:
            self._folder.cleanup()
        for text in (groups, calls, pending if warns_of_pending else None):
            _warn(text, 4)

    def _reset_after_fork(self) -> None:
        self._session.reset_after_fork()
        if isinstance(self._any_function, AnyFunction):
            self._any_function.reset_after_fork()

    # Functions.

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
        UnknownName
            If no server offers it; the message lists names like it.
        UsageError
            If `retries` or `retry_on` cannot be meant.
        """
        if self._cluster is not None:
            return self._cluster.function(name, retries=retries, retry_on=retry_on)
        name = name.name if isinstance(name, Function) else offered_name(name)
        retry = retry_of(f"function {name!r}", retries, retry_on)
        raw = self._raw.function(name)
        return Function(self._session, raw if retry is None else raw.retried(retry.times, retry.crashes, retry.raised))

    @property
    def priority(self) -> int | None:
        """The priority of the calls that the session makes from now on, as by `Function.with_priority`; it can be set.

        ``None``, the default, is 0 in a program and, in a function, the priority of the running call. Functions, groups and options may have another.
        """
        return self._raw.priority()

    @priority.setter
    def priority(self, priority: int | None) -> None:
        if self._cluster is not None:
            raise UsageError("calls on an engine have no priority: remove it, or call functions of a grid of Gridloom")
        self._raw.set_priority(None if priority is None else checked_priority("priority", priority))

    def functions(self) -> dict[str, str]:
        """List the functions that are offered.

        Returns
        -------
        dict of str to str
            Signatures by name, in order of name.
        """
        return dict(self._raw.functions())

    def initialize_module(self, module: str, /, *args: Any, **kwargs: Any) -> None:
        """Run a module's function ``Initialize`` in each worker process before this session's first call of the module there.

        It runs again in a restarted process, and after calls of another program with arguments of its own. Values in the module's
        ``Globals`` then last from call to call. Modules are those of interface descriptions in C, C++ and Fortran.

        Parameters
        ----------
        module : str
        *args, **kwargs
            Arguments of ``module/Initialize``. They are sent to all servers at once, as shared data that end with the session. The method
            may be called again with others.

        Raises
        ------
        UnknownName
            If no server offers the module, or it has no ``Initialize``.
        ArgumentError
            If the arguments do not fit.
        UsageError
            If ``Initialize`` has results, or the grid is simulated.
        ConnectError
            If there is no agent.
        """
        self.function(f"{module}/Initialize")._raw.initialize_module(args, kwargs)

    @property
    def started(self) -> str | None:
        """Summary of the servers that `local` has started, and of the processors and memory that it found. ``print(grid)`` also shows it.

        ``None`` if the session has started no servers.
        """
        return self._raw.started

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
            server["plain"] = server.pop("stateless")
            server["functions"] = sorted(name for name in server["functions"] if not name.startswith(f"{STREAM}."))
            servers.append(ServerInfo(**{name: server[name] for name in fields}))
        return servers

    # Groups.

    def group(
        self,
        heuristic: str | Plan | Heuristic = "auto",
        *,
        graph: Graph | None = None,
        inputs: Mapping[str, Handle] | None = None,
        strict: bool = False,
        regroup: int | str | None = None,
        map_timeout: float | None = MAP_TIMEOUT,
        priority: int | None = None,
        progress: bool | None = None,
    ) -> Group:
        """Begin a group of calls: ``with grid.group() as group:``.

        Parameters
        ----------
        heuristic : str, Plan or function, optional
            How the calls are mapped: by a heuristic (``gridloom heuristics`` lists them); by a plan of
            `Group.plan` or `Plan.load`; or by a function of your own, which takes a `Problem` and returns a server for each
            task, by number or name: in order of the tasks, or a dict by their numbers (or a pair: those, and the order of the tasks).
            It cannot launch groups of this grid.
        graph : Graph, optional
            The calls of the block as described beforehand. They are mapped now, and each runs as soon as it is made, where the plan has
            the described call that it fits; results can be read within the block. A call that fits none is mapped by itself, with
            a `DifferenceWarning`.
        inputs : dict of str to Handle, optional
            Inputs of the graph that are results already, so that the plan knows where they are.
        strict : bool, optional
            Whether a call that fits no described one is not made and raises `DifferenceError`, and so does the end of the block if a
            described call is missing.
        regroup : int or "auto", optional
            Number of groups that are mapped together, if the block is the body of a loop: the end of the block delays its calls until that
            many groups were opened with the same `heuristic` and `regroup`. ``"auto"`` begins with one and doubles the number each time,
            while plans hold. Reading a result launches the delayed calls, and so does `Group.launch`.
        map_timeout : float or None, optional
            Seconds of real time that a function of your own may take to map, also in simulation; ``None`` for no limit. After that
            `NotRun` is raised, and the result of the function, which runs on in a daemonic thread, is ignored.
        priority : int, optional
            The priority of its calls at servers, as by `Function.with_priority`, except those of functions with a priority of their own.
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
        NotRun
            If the graph cannot be mapped.
        UsageError
            If `graph` is no graph, `inputs` or `strict` are given without one, `inputs` are no handles by name, or
            `regroup` is given with a graph or a plan, or not as a number or "auto".
        """
        shows = self._shows(progress)
        if self._cluster is not None:
            options = {"graph": graph, "inputs": inputs, "strict": strict, "regroup": regroup, "priority": priority}
            if given := [name for name, value in options.items() if value]:
                raise UsageError(f"a group on an engine has no option '{given[0]}': it is recorded, mapped as a whole and run")
            return self._cluster.group(heuristic, map_timeout)
        if regroup is not None:
            if graph is not None or inputs or strict:
                raise UsageError("a described group is mapped by itself: leave out regroup= or graph=")
            _warn(self._raw.take_unread(False))
            body = self._loops.of(heuristic, regroup, map_timeout).group()
            if priority is not None:
                body.set_priority(checked_priority("group: priority", priority))
            return Group(self._session, body, heuristic, delayed=True, progress=shows)
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
        if priority is not None:
            raw.set_priority(checked_priority("group: priority", priority))
        return Group(self._session, raw, heuristic, is_described=graph is not None, progress=shows)

    def _shows(self, progress: bool | None) -> bool:
        return not self._raw.simulated and (self._progress if progress is None else bars.wanted(progress))

    # Any function.

    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run any Python function on a server, without waiting.

        The function is sent by module and name if its module can be imported; a function of the program itself, a lambda and a closure
        are sent with all objects that they use. Grids of `local` run such functions; other servers need ``gridloom serve --run-code``.

        Parameters
        ----------
        function : function
            Any function, or another object that can be called.
        *args, **kwargs : object
            Its arguments: whatever can be pickled. They are pickled now, and may change afterwards. A handle is
            replaced by its value, which is waited for.

        Returns
        -------
        Future
            The running call. The call runs again elsewhere if its server is lost.

        Raises
        ------
        ArgumentError
            If the function or an argument cannot be pickled.
        UnknownName
            If no server runs functions that programs send.
        TaskError
            If the call of a handle failed.
        UsageError
            If the session is closed or simulated.

        Notes
        -----
        It is not recorded in the block of a group. Servers that run such functions run any code that the program sends, and the
        program unpickles their results: both must trust each other.
        """
        return self._any_function.run(function, args, kwargs)

    def options(
        self,
        *,
        retries: int = 0,
        retry_on: RetryOn | None = None,
        timeout: float | None = None,
        priority: int | None = None,
    ) -> Options:
        """Return options for calls of any function: ``grid.options(retries=3).run(f, x)``.

        Parameters
        ----------
        retries : int, optional
            How often a call that has failed runs again at most: on another server, if there is one.
        retry_on : exception class or tuple of them, optional
            After which errors: what the function raises, and `Crashed`. By default after all of these.
        timeout : float, optional
            Time limit of the call, seconds, from when it is sent to a server, for all its runs together. A call that takes longer is
            ended with its worker process, and raises `TimedOut`.
        priority : int, optional
            Among the waiting calls of this user, those with the lowest number start first, as by `Function.with_priority`; by default that of
            the session.

        Returns
        -------
        Options
            Its `run` takes a function and arguments, as that of the grid.

        Raises
        ------
        UsageError
            If `retries`, `retry_on`, `timeout` or `priority` cannot be meant.
        """
        retry = retry_of("options", retries, retry_on)
        limit = checked_seconds("options: timeout", timeout)
        if not isinstance(self._any_function, AnyFunction):
            raise self._any_function.error("options")
        number = None if priority is None else checked_priority("options: priority", priority)
        return Options(self._any_function, retry, limit, number)

    def map(
        self,
        function: Callable[..., _T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        retries: int = 0,
        retry_on: RetryOn | None = None,
        priority: int | None = None,
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
            Seconds from now within which all results must be there. After that, all calls are ended, also running ones.
        chunksize : int, optional
            Calls that are sent together; more than 1 pays for calls of less than a millisecond.
        buffersize : int, optional
            Number of submitted calls, or chunks, whose results were not taken yet: at least 1, by default four for each slot of the
            servers, and no fewer than 64. Beyond 256 MiB of arguments and results, no more than two for each slot.
        retries : int, optional
            How often a call, or a chunk, that has failed runs again at most: on another server, if there is one.
        retry_on : exception class or tuple of them, optional
            After which errors: what the function raises, and `Crashed`. By default after all of these.
        priority : int, optional
            Among the waiting calls of this user, those with the lowest number start first, as by `Function.with_priority`; by default that of
            the session.
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
        UnknownName
            If no server runs functions that programs send.
        ValueError
            If `chunksize` or `buffersize` is less than 1.
        """
        return self._any_function.map(
            function,
            iterables,
            timeout=timeout,
            chunksize=chunksize,
            buffersize=buffersize,
            retry=retry_of("map", retries, retry_on),
            priority=None if priority is None else checked_priority("map: priority", priority),
            progress=self._shows(progress),
        )

    def stream(
        self, function: Callable[..., Iterable[_T]], /, *args: Any, buffersize: int = 16, timeout: float | None = None, **kwargs: Any
    ) -> Stream[_T]:
        """Run a function with ``yield`` on a server, and iterate over its values.

        Parameters
        ----------
        function : function
            A generator function, or one that returns an iterable, as `run` takes it.
        *args, **kwargs : object
            Its arguments, pickled now.
        buffersize : int, optional
            Largest number of values that are computed before they are taken.
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
        UnknownName
            If no server runs functions that programs send.
        UsageError
            If the session is closed or simulated.
        ValueError
            If `buffersize` is less than 1.
        Exception
            By the iterator: what the function raised; `ServerLost` and `Crashed`, as a stream does not begin again;
            `TimedOut`, after which the next value can be waited for again.

        Notes
        -----
        It has a process of its own on the server with the fewest of them, which takes a slot while it makes a value.
        """
        return self._any_function.stream(function, args, kwargs, buffersize, timeout)

    # Shared data. A name that is none is an `ArgumentError`, and without an agent there is a `ConnectError`.

    def put(
        self,
        name: str,
        value: npt.ArrayLike | str | bytes | os.PathLike[str],
        /,
        *,
        replace: bool = False,
        replicas: int = 1,
        durable: bool = False,
        method: str = "auto",
    ) -> None:
        """Put a value on a server under a name. When this returns, every program of the user finds it.

        It stays there until it is deleted, whatever becomes of this program. Values never change: with `replace` the name gets a new
        version, and programs that have found the old one keep it.

        Parameters
        ----------
        name : str
            1 to 1,024 bytes without control characters.
        value : array, number, str, bytes, path or handle
            An array of numbers, a number, a text or bytes; the bytes of the file that a `pathlib.Path` leads to; or the result of a
            call (a `Handle`), which goes straight from its server to the one that keeps it. Other objects as the bytes that
            ``pickle.dumps`` makes of them; unpickle only what programs that you trust have put.
        replace : bool, optional
            Whether a name that exists gets a new version.
        replicas : int, optional
            How many servers keep it, 1 to 16, on different hosts if there are as many. The value survives the loss of all but one of
            them; for one that is lost, another gets it. The put ends when all of them have it.
        durable : bool, optional
            Whether its servers keep it also when they end: on servers that have a folder for that (``gridloom serve --durable DIR``). The
            put ends when it is on their disks.
        method : str, optional
            How it is transferred to the servers that read it: ``"direct"`` from servers that have it, ``"tree"`` also from servers that are
            receiving it, ``"swarm"`` in two slices at a time, each from another server, ``"storage"`` through a folder that servers share
            (``gridloom serve --storage DIR``), or ``"auto"``: the one of the first three that takes the least time, as predicted.

        Raises
        ------
        NameExists
            If the name exists and `replace` is not given, or a call that runs again puts another value.
        OutOfMemory
            If too few servers have room: shared data take at most half of what a server stores. With `durable`, if too few servers have
            a folder for such data.
        ArgumentError
            If `name` or `value` is none, or there is no such method.

        Examples
        --------
        >>> with gl.local() as grid:                             # doctest: +SKIP
        ...     grid.put("mesh", np.arange(6.0))
        ...     grid.get("mesh").sum()
        15.0
        """
        self._shared.put(name, value, replace=replace, replicas=replicas, durable=durable, method=method)

    def begin_put(
        self,
        name: str,
        value: npt.ArrayLike | str | bytes | os.PathLike[str],
        /,
        *,
        replace: bool = False,
        replicas: int = 1,
        durable: bool = False,
        method: str = "auto",
    ) -> Future[Any]:
        """Begin a `put` without waiting. Several can run at once.

        An array is copied before this returns, but for one of `Grid.empty`: do not write to that one before the put has ended.

        Parameters
        ----------
        name, value, replace, replicas, durable, method
            Parameters of `put`.

        Returns
        -------
        Future
            Its result is ``None``, and its errors are those of `put`. It can be awaited. Without a reference to it the put continues. After
            a late `Future.cancel` the name may exist nevertheless.

        Raises
        ------
        ArgumentError
            If `value` is none, or `name` is no text.

        Examples
        --------
        >>> puts = [grid.begin_put(f"part/{i}", part) for i, part in enumerate(parts)]     # doctest: +SKIP
        >>> gl.wait(puts)                                        # doctest: +SKIP
        """
        return self._shared.begin_put(name, value, replace=replace, replicas=replicas, durable=durable, method=method)

    def get(self, name: str, /, *, rows: slice | None = None, timeout: float | None = None) -> Any:
        """Get the value of a name. Waits until a program has put it.

        Parameters
        ----------
        name : str
        rows : slice, optional
            Which rows of an array (along its first axis), or which of some bytes. Only these move. The array must lie in memory row
            by row, and the slice has no step.
        timeout : float, optional
            How long to wait for it to be put, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        numpy.ndarray, number, str or bytes
            As it was put.

        Raises
        ------
        UnknownName
            If nobody has put it in that time. The error has names that look like it.
        DataLost
            If all servers that had it are gone, and nobody has put it again in that time.
        UsageError
            If `rows` are given and it is a number or a text, or lies column by column.

        Examples
        --------
        >>> grid.get("mesh", rows=slice(100, 200)).shape         # doctest: +SKIP
        (100, 3)
        """
        return self._shared.get(name, rows=rows, timeout=timeout)

    def begin_get(self, name: str, /, *, timeout: float | None = None) -> Future[Any]:
        """Begin a `get` without waiting. The value is transferred as soon as a program has put the name.

        In a function the value is transferred for the function alone; with `get` it is stored on the function's server.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long to wait for the name to be put, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        Future
            Its result is the value, and its errors are those of `get`. It can be awaited. The get ends with the last reference to it.

        Examples
        --------
        >>> mesh, load = grid.begin_get("mesh"), grid.begin_get("load")                    # doctest: +SKIP
        >>> solve(mesh.get(), load.get())                        # doctest: +SKIP
        >>> async def read():
        ...     return await asyncio.gather(grid.begin_get("mesh"), grid.begin_get("load"))
        """
        return self._shared.begin_get(name, timeout=timeout)

    def wait(self, name: str, /, *, timeout: float | None = None) -> None:
        """Wait until a program has put a name. Nothing moves.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long at most, seconds; 0 for not at all. Without it, for ever.

        Raises
        ------
        UnknownName
            If nobody has put it in that time. The error has names that look like it.
        DataLost
            If all servers that had it are gone, and nobody has put it again in that time.
        """
        self._shared.wait(name, timeout=timeout)

    def begin_wait(self, name: str, /, *, timeout: float | None = None) -> Future[Any]:
        """Begin a `wait` for a name. Nothing moves.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long to wait for the name at most, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        Future
            Its result is ``None``, and its errors are those of `wait`. It can be awaited. The wait ends with the last reference to it.
        """
        return self._shared.begin_wait(name, timeout=timeout)

    def find(self, name: str, /, *, timeout: float | None = None) -> SharedValue:
        """Find the current version of a name, as an argument of calls. Waits until a program has put it, as `get` does.

        The value stays on its servers: the program gets its description. Only in a function that runs on a server it is copied to that
        server, for all functions there.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long to wait for it to be put, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        SharedValue
            The version that was found, also after the name has another one or was deleted.

        Raises
        ------
        UnknownName
            If nobody has put it in that time. The error has names that look like it.
        DataLost
            If all servers that had it are gone, and nobody has put it again in that time.

        Examples
        --------
        >>> mesh = grid.find("mesh")                             # doctest: +SKIP
        >>> with grid.group():                                   # doctest: +SKIP
        ...     parts = [solve(mesh, step) for step in range(8)]
        """
        return self._shared.find(name, timeout=timeout)

    def place(self, name: str, /, servers: str | Iterable[str] | None = None) -> None:
        """Take copies of a name's current version to servers, before calls read it there.

        The servers get it from one another, so it takes little longer than one transfer. The copies stay as long as there is room.

        Parameters
        ----------
        name : str
        servers : str or iterable of str, optional
            The name of a server, or names of several. Without it, all servers that are not plain; none of an empty list.

        Raises
        ------
        UnknownName
            If nobody has put it.
        UsageError
            If there is no such server, or it is plain.
        DataLost
            If all servers that had it are gone.
        TaskError
            If a server has no room, or is lost.
        """
        self._shared.place(name, servers)

    def exists(self, name: str, /) -> bool:
        """Whether a program has put that name, and a server still has it. This asks the agent alone, and moves no data.

        Parameters
        ----------
        name : str

        Returns
        -------
        bool
        """
        return self._shared.exists(name)

    def delete(self, name: str, /) -> None:
        """Delete a name. Its bytes are freed when no program has a `SharedValue` of it any more.

        Parameters
        ----------
        name : str

        Raises
        ------
        UnknownName
            If it does not exist.
        """
        self._shared.delete(name)

    def share(self, name: str, users: str | Iterable[str], /) -> None:
        """Share a name with users and groups of the grid, and with no others: they find and read it as ``~OWNER/NAME``, and its later versions.

        Data that a user has found before stay readable for that user's programs.

        Parameters
        ----------
        name : str
        users : str or iterable of str
            Names of users, as `gridloom keys list` shows them; ``"*"`` is everybody. ``"group:climate"`` is a group of the grid's rules: those who
            belong to it now can read the name. An empty list shares with nobody.

        Raises
        ------
        ArgumentError
            If the rules of the grid do not define a group.
        UnknownName
            If the name does not exist.
        NotPermitted
            If it belongs to another user.

        Examples
        --------
        >>> grid.share("mesh", ["bert", "group:climate"])        # doctest: +SKIP
        """
        self._shared.share(name, users)

    def names(self, prefix: str = "") -> list[SharedName]:
        """List the names that begin with `prefix`: the user's own in order, then those of others that the user may read.

        Parameters
        ----------
        prefix : str, optional
            All names without it.

        Returns
        -------
        list of SharedName

        Examples
        --------
        >>> [one.name for one in grid.names("run/")]             # doctest: +SKIP
        ['run/1', 'run/2']
        """
        return self._shared.names(prefix)

    def empty(self, shape: int | Iterable[int], dtype: npt.DTypeLike = np.float64, order: str = "C") -> npt.NDArray[Any]:
        """Make an array in shared memory, which servers on this machine use without a copy.

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
        if self._cluster is not None:
            raise NotOnCluster().error("empty")
        try:
            extents = [operator.index(extent) for extent in (shape if isinstance(shape, Iterable) else [shape])]
        except TypeError:
            raise UsageError(f"empty: shape is a number of elements or a tuple of extents, got {shape!r}") from None
        if min(extents, default=0) < 0:
            raise UsageError(f"empty: an extent is at least 0, got shape {shape!r}")
        if order not in ("C", "F"):
            raise UsageError(f"empty: order is 'C' or 'F', got {order!r}")
        return self._raw.empty(extents, np.dtype(dtype), order)

    # Measurements.

    def models(self, function: str | Function | None = None) -> Models:
        """Return measured times of functions, by which plans are predicted.

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
        UnknownName
            If no server offers the function.
        """
        if isinstance(function, str):
            function = self.function(function)
        return self._measurements.models(None if function is None else function.name)

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

        Each server is measured only while it is idle; servers of one host take turns. The measurements are used like those of
        any call: they are sent to the agent, and kept in the server's models. The method ends with the last server, or with an exception
        of `progress` (or Ctrl-C: then after the running call).

        Parameters
        ----------
        function : str or Function
            The function, as for `Grid.function`.
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
            For each server the accuracy of the model, in order of name. `Calibration.failed` is set where a call failed.

        Raises
        ------
        UnknownName
            If no server offers the function.
        UsageError
            If a server, a size or another argument is not known, a range, the error or the budget is none, or no arguments can be made.
        """
        return self._measurements.calibrate(
            function.name if isinstance(function, Function) else function,
            sizes=sizes,
            values=values,
            make=make,
            error=error,
            budget=budget,
            servers=servers,
            progress=progress,
        )

    def links(self) -> list[Link]:
        """List the agent's measurements of links between hosts, and of links to and from clients.

        Returns
        -------
        list of Link
            One for each direction that was measured. Servers measure links when they register, and transfers update the values.
        """
        return self._measurements.links()

    def traffic(self) -> Traffic:
        """Return the number of bytes that were moved since the session began.

        Returns
        -------
        Traffic
            Over the client's links, between servers, and by pair.
        """
        return self._measurements.traffic()

    def usage(
        self, since: str | datetime.date | None = None, until: str | datetime.date | None = None, *, user: str | None = None
    ) -> Usage:
        """Return what users have used of the grid, by day. Administrators see all users, others only themselves.

        Servers report every ten seconds, so the last calls may be missing.

        Parameters
        ----------
        since, until : str or datetime.date, optional
            First and last day, in UTC, such as ``"2026-11-29"``; by default all that the agent has.
        user : str, optional
            Only this user.

        Returns
        -------
        Usage

        Raises
        ------
        UsageError
            If the grid has no agent, or this user may not see the usage of the other one.

        Examples
        --------
        >>> sum(day.succeeded for day in grid.usage(since="2026-11-01").days)    # doctest: +SKIP
        1204
        """
        return self._measurements.usage(since, until, user)

    # The clock, and what processes run.

    def now(self) -> float:
        """Read the session's clock.

        Returns
        -------
        float
            Seconds: since 1970 for real, virtual in simulation.
        """
        return self._raw.now()

    def advance(self, seconds: float) -> None:
        """Let virtual time pass at the client, as if it computed for that time. Nothing happens on a real grid.

        Parameters
        ----------
        seconds : float
            How long, seconds.
        """
        self._raw.advance(seconds)

    def compute(self, work: float, accessed_bytes: int = 0) -> None:
        """Let virtual time pass at the client, as if it computed on its host. Nothing happens on a real grid.

        Parameters
        ----------
        work : float
            Number of floating-point operations.
        accessed_bytes : int
            Bytes of the program's memory that the computation accesses once. On a host that pages (``swap`` in the platform), the
            share of them that is not in memory makes it longer.

        Raises
        ------
        UsageError
            If the bytes are not an integer from 0 to 2**63 - 1.
        """
        self._raw.compute(work, whole("accessed_bytes", accessed_bytes, 0, 2**63 - 1))

    def hold_memory(self, size_bytes: int) -> None:
        """State how many bytes the program itself holds in memory, besides the values of its calls.

        They count on a simulated host that pages (``swap`` in the platform), until the program states another number. Nothing happens on other
        hosts and on a real grid.

        Parameters
        ----------
        size_bytes : int
            Number of bytes.

        Raises
        ------
        UsageError
            If the number is not an integer from 0 to 2**63 - 1.
        """
        self._raw.hold_memory(whole("size_bytes", size_bytes, 0, 2**63 - 1))

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

    # How it is shown.

    def __repr__(self) -> str:
        if self._session.is_forked:
            return "<gridloom.Grid: of the process that forked this one>"
        if self._session.is_closed:
            return "<gridloom.Grid: closed>"
        names = [server["name"] for server in self._raw.servers()]
        kind = "simulated, " if self.simulated else ""
        servers = f"{len(names)} server{'' if len(names) == 1 else 's'}"
        named = ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")
        started = "" if self.started is None else f"; started {self.started}"
        return f"<gridloom.Grid: {kind}{servers}{': ' if named else ''}{named}{started}>"

    def _repr_html_(self) -> str:
        if self._session.is_closed:
            return of_grid("closed", None, None, None)
        kind = "simulated" if self.simulated else "real"
        try:
            return of_grid(kind, self.servers(), self._loads, self.started)
        except GridloomError as error:
            return of_error("Grid", kind, error)

    def _show_now(self) -> tuple[str, bool]:
        changes = not (self._session.is_closed or self.simulated)
        try:
            # Other programs may have calls, too; but a display does not ask servers for ever because of them.
            is_busy = changes and self._raw.under_way() > 0
            if is_busy or self._was_busy:
                self._loads = self._raw.loads(_LOADS_SECONDS)
            self._was_busy = is_busy
        except GridloomError:  # it was closed just now
            changes = False
        return self._repr_html_(), changes

    def _ipython_display_(self) -> None:
        notebook.show_live(self)


def _transfers_of(grid: Grid) -> Callable[[], list[tuple[int, bool, int, int]] | None]:
    """Transfers of a session, for a bar that does not keep the session alive."""
    weak = weakref.ref(grid)

    def moving() -> list[tuple[int, bool, int, int]] | None:
        one = weak()
        return None if one is None else one._raw.moving()

    return moving


def _warn(unread: str | None, stack_level: int = 3) -> None:
    if unread is not None:
        warnings.warn(unread, UnreadErrorWarning, stacklevel=stack_level)
