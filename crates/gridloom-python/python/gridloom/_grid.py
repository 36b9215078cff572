"""Sessions with a grid, functions, and calls under way."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import shutil
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _gridloom
from ._errors import UsageError
from ._group import Group

if TYPE_CHECKING:
    from types import TracebackType

_Path = str | os.PathLike[str]

_DEFAULT_ADDRESS = "127.0.0.1:7711"
_open_grids: weakref.WeakSet[Grid]


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    """A server as the session knows it.

    Attributes
    ----------
    name, address : str
        Its name, and where it can be dialled.
    slots : int
        Tasks that it runs at a time.
    plain : bool
        Whether it talks to clients only.
    memory_bytes : int
        Bound on its store.
    speed_flops : float or None
        Measured speed of one slot, floating-point operations per second; ``None`` before it was measured.
    functions : list of str
        Names of the functions that it offers.
    """

    name: str
    address: str
    slots: int
    plain: bool
    memory_bytes: int
    speed_flops: float | None
    functions: list[str]


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Bytes moved since the session began.

    Attributes
    ----------
    client_bytes : int
        Over links of the client, both ways.
    server_bytes : int
        Between servers.
    by_link : dict of str to int
        By pair of names, ``"sender -> receiver"``.
    """

    client_bytes: int
    server_bytes: int
    by_link: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What a simulated run has to report.

    Attributes
    ----------
    seconds : float
        Virtual time, seconds.
    trace_hash : str
        Sums up everything that happened, in order: equal for equal programs, platforms and seeds.
    bytes_by_link : dict of str to float
        Bytes of data over each link of the platform.
    bytes_by_pair : dict of str to int
        Bytes of data by pair of names, ``"sender -> receiver"``.
    groups : list of (str, float, float)
        Groups in order: heuristic, predicted and simulated makespan in seconds.
    """

    seconds: float
    trace_hash: str
    bytes_by_link: dict[str, float]
    bytes_by_pair: dict[str, int]
    groups: list[tuple[str, float, float]]


class Future:
    """A plain call under way."""

    def __init__(self, raw: _gridloom.RawPending) -> None:
        self._raw = raw
        self._lock = threading.Lock()
        self._ended = False
        self._value: Any = None
        self._error: BaseException | None = None

    def get(self) -> Any:
        """Wait for the call's results.

        Returns
        -------
        numpy.ndarray, number, str, bytes, tuple of them, or None
            As the function's signature says; the same objects every time.

        Raises
        ------
        TaskError
            If the call failed, was cancelled, or exceeded its time limit.
        """
        with self._lock:
            if not self._ended:
                try:
                    self._value = self._raw.result()
                except KeyboardInterrupt:
                    raise
                except Exception as error:
                    self._error = error
                self._ended = True
        if self._error is not None:
            raise self._error
        return self._value

    def done(self) -> bool:
        """Tell whether the call has ended, however it did."""
        return self._ended or self._raw.done()

    def cancel(self) -> None:
        """Ask for the call to be cancelled; `get` then raises `Cancelled`, unless it ended before."""
        if not self._ended:
            self._raw.cancel()

    def __repr__(self) -> str:
        return f"<gridloom.Future: {'ended' if self._ended else 'under way'}>"


class Function:
    """A function that servers of the grid offer. ``help()`` of it shows its signature.

    Attributes
    ----------
    name : str
        ``module/function``.
    signature : str
        What it takes and gives.
    """

    def __init__(self, grid: Grid, raw: _gridloom.RawFunction) -> None:
        self._grid = grid
        self._raw = raw
        self.name: str = raw.name
        self.signature: str = raw.signature
        self.__name__ = self.name
        self.__doc__ = f"{raw.signature}\n\n{raw.about}".rstrip()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: now and by itself, or, inside the block of a group, record the call.

        Parameters
        ----------
        *args, **kwargs : numpy.ndarray, number, str, bytes or Handle
            By position come all inputs, or all but the sizes that follow from arrays. Arrays have exactly the element
            type, the number of dimensions and the extents of the signature; byte order is free. Numbers convert if they
            keep their value; Python's ``float`` is rounded to the parameter's precision.

        Returns
        -------
        numpy.ndarray, number, str, bytes, tuple of them, or None
            The results; `Handle` in their places inside the block of a group.

        Raises
        ------
        ArgumentError
            If the arguments do not fit; nothing was sent then.
        TaskError
            If the call failed.
        """
        group = self._grid._current.get()
        if group is not None:
            return group._record(self, args, kwargs)
        pending = self._raw.submit(args, kwargs, None)
        try:
            return pending.result()
        except KeyboardInterrupt:
            pending.cancel()
            raise

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Future:
        """Call it now, by itself, without waiting. It is not recorded, even inside the block of a group.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        timeout : float, optional
            Time limit of the call, seconds.

        Returns
        -------
        Future
            The call under way.

        Raises
        ------
        ArgumentError
            If the arguments do not fit; nothing was sent then.
        """
        return Future(self._raw.submit(args, kwargs, timeout))

    def __repr__(self) -> str:
        return f"<gridloom.Function {self.signature}>"


class Grid:
    """A session with a grid, made by `local`, `connect` or `simulate`. It ends with its ``with`` block, or `close`."""

    def __init__(self, raw: _gridloom.RawGrid) -> None:
        self._raw = raw
        self._current: ContextVar[Group | None] = ContextVar("gridloom group", default=None)
        self._closed = False
        _open_grids.add(self)

    def __enter__(self) -> Grid:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session, and the processes of an embedded local grid. Handles and functions of it no longer work.

        Arrays that were fetched stay.
        """
        if not self._closed:
            self._closed = True
            _open_grids.discard(self)
            self._raw.close()

    def function(self, name: str) -> Function:
        """Find a function.

        Parameters
        ----------
        name : str
            ``module/function``, or ``function`` alone if only one module has it.

        Returns
        -------
        Function
            It can be called.

        Raises
        ------
        UnknownFunctionError
            If no server offers it; the message lists names like it.
        """
        return Function(self, self._raw.function(name))

    def functions(self) -> dict[str, str]:
        """List the functions that are offered.

        Returns
        -------
        dict of str to str
            Signatures by name, in order of name.
        """
        return dict(self._raw.functions())

    def servers(self) -> list[ServerInfo]:
        """List the servers as known now.

        Returns
        -------
        list of ServerInfo
            In order of name.
        """
        fields = [field.name for field in dataclasses.fields(ServerInfo)]
        servers = []
        for server in json.loads(self._raw.servers()):
            server["functions"] = sorted(server["functions"])
            servers.append(ServerInfo(**{name: server[name] for name in fields}))
        return servers

    def group(self, heuristic: str = "heft") -> Group:
        """Begin a group of calls: ``with grid.group() as group:``.

        Parameters
        ----------
        heuristic : str, optional
            How the calls are mapped; ``gridloom heuristics`` lists what there is.

        Returns
        -------
        Group
            Its block records calls.
        """
        return Group(self, self._raw.group(heuristic))

    def traffic(self) -> Traffic:
        """Tell how many bytes were moved since the session began.

        Returns
        -------
        Traffic
            Over the client's links, between servers, and by pair.
        """
        return Traffic(**json.loads(self._raw.traffic()))

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
        text = self._raw.simulation()
        if text is None:
            return None
        record = json.loads(text)
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
            there, it must not be changed.

        Raises
        ------
        ArgumentError
            If it cannot be described.
        UsageError
            If there is no memory for it.
        """
        extents = [shape] if isinstance(shape, (int, np.integer)) else list(shape)
        if order not in ("C", "F"):
            raise UsageError(f"empty: order is 'C' or 'F', got {order!r}")
        return self._raw.empty([int(extent) for extent in extents], np.dtype(dtype), order)

    def __repr__(self) -> str:
        kind = "closed" if self._closed else "simulated" if self.simulated else "real"
        return f"<gridloom.Grid: {kind}>"


_open_grids = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for grid in list(_open_grids):
        grid.close()


def local(
    servers: int = 4,
    *,
    functions: Iterable[_Path] = (),
    libraries: Iterable[_Path] = (),
    slots: int = 1,
    plain: int = 0,
    memory: int | None = None,
    shared_memory: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Grid:
    """Start an embedded grid on this machine and connect to it: an agent and servers, each a process.

    Parameters
    ----------
    servers : int, optional
        How many.
    functions : iterable of path, optional
        What they offer: interface descriptions (``.idl``) and Python modules (``.py``). Linear algebra (``linalg/...``)
        is always there.
    libraries : iterable of path, optional
        Shared libraries with the functions that the interface descriptions declare.
    slots : int, optional
        Calls that each server runs at a time.
    plain : int, optional
        How many of them talk to the client only.
    memory : int, optional
        Bound on the data that each server holds, bytes.
    shared_memory : bool, optional
        Whether arrays go through shared memory, else over TCP.
    environment : dict of str to str, optional
        Variables added to the servers' environment.

    Returns
    -------
    Grid
        The session. The processes end with it, however the program ends.

    Raises
    ------
    ConnectError
        If a process cannot be started, or a function cannot be offered; its own message is on the standard error.

    Examples
    --------
    >>> import numpy as np
    >>> with local(servers=2) as grid:                        # doctest: +SKIP
    ...     grid.function("linalg/dnrm2")(np.array([3.0, 4.0]))
    5.0
    """
    raw = _gridloom.local(
        servers=servers,
        slots=slots,
        plain=plain,
        functions=_paths("functions", functions),
        libraries=_paths("libraries", libraries),
        memory_bytes=memory,
        shared_memory=shared_memory,
        blas=_blas(),
        python=sys.executable or None,
        program=_program(),
        environment=list((environment or {}).items()),
        executes=_executes(),
    )
    return Grid(raw)


def connect(address: str | None = None) -> Grid:
    """Connect to the agent of a grid.

    Parameters
    ----------
    address : str, optional
        ``host:port``; by default what the environment variable ``GRIDLOOM_AGENT`` says, else ``127.0.0.1:7711``.

    Returns
    -------
    Grid
        The session.

    Raises
    ------
    ConnectError
        If the agent cannot be reached, refuses, or does not answer.
    """
    return Grid(_gridloom.connect(address or os.environ.get("GRIDLOOM_AGENT") or _DEFAULT_ADDRESS, _executes()))


def simulate(
    platform: _Path,
    *,
    functions: Iterable[_Path] = (),
    libraries: Iterable[_Path] = (),
    execute: bool = False,
    seed: int = 0,
    network: str | None = None,
    deployment: _Path | None = None,
) -> Grid:
    """Simulate a grid on a described platform, in virtual time.

    Parameters
    ----------
    platform : path
        Platform file, SimGrid's XML or TOML.
    functions, libraries : iterable of path, optional
        As for `local`.
    execute : bool, optional
        Run the functions too, so that results are real. Otherwise they are zeros, and arguments are described, not read:
        ``numpy.broadcast_to(0.0, shape)`` stands for an array of any size.
    seed : int, optional
        For what is drawn at random.
    network : str, optional
        Network model by name.
    deployment : path, optional
        Who plays which part; by default the hosts' properties say it.

    Returns
    -------
    Grid
        The session.

    Raises
    ------
    InputError
        If the platform or the functions cannot be used.
    """
    raw = _gridloom.simulate(
        platform=os.fspath(platform),
        deployment=None if deployment is None else os.fspath(deployment),
        functions=_paths("functions", functions),
        libraries=_paths("libraries", libraries),
        execute=execute,
        seed=seed,
        network=network,
        blas=_blas(),
        python=sys.executable or None,
        program=_program(),
    )
    return Grid(raw)


def blas_library() -> Path | None:
    """Find the BLAS library of the package ``scipy-openblas32``.

    Returns
    -------
    pathlib.Path or None
        The library; ``None`` if the package is not installed.
    """
    try:
        import scipy_openblas32  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    library = Path(scipy_openblas32.get_lib_dir()) / "libscipy_openblas.so"
    return library if library.is_file() else None


def _blas() -> str | None:
    if os.environ.get("GRIDLOOM_BLAS"):
        return None
    library = blas_library()
    return None if library is None else os.fspath(library)


def _program() -> str | None:
    named = os.environ.get("GRIDLOOM_PROGRAM")
    packaged = Path(__file__).parent / "bin" / "gridloom"
    if packaged.is_file():
        return os.fspath(packaged)
    return named or shutil.which("gridloom")


def _executes() -> bool:
    """Whether ``gridloom simulate``, if this runs under it, runs the functions too."""
    try:
        return bool(json.loads(os.environ["GRIDLOOM_SIMULATE"]).get("execute", False))
    except (KeyError, ValueError, AttributeError):
        return False


def _paths(name: str, paths: Iterable[_Path]) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        raise UsageError(f"{name}: expected a list of paths, got the path {os.fspath(paths)!r}")
    return [os.fspath(path) for path in paths]
