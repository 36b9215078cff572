"""How a session begins: with an embedded grid, a running one, or a simulated one."""

from __future__ import annotations

import json
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import _gridloom
from ..common.checks import checked_environment, checked_path, checked_text, seconds, size, whole
from ..common.executable import blas_library, program
from ..common.interpreter import interpreter_options
from ..display.output import NO_LOG_VARIABLE, Logs, listener
from ..display.progress_bars import wanted
from ..engines.cluster import EngineCluster
from ..engines.protocol import CONNECT_SECONDS, Engine, Measured
from ..errors import ConnectWarning, UsageError
from ..functions.offer import Offer, files_of, search_path
from ..pickling.protocol import ARGUMENTS_VARIABLE, PATH_VARIABLE
from .grid import Grid

_Path = str | os.PathLike[str]
# Linux refuses to start a program with a variable of 128 KiB or more.
_VARIABLE_BYTES_MAX = 100_000

_DASK, _RAY = "dask://", "ray://"
_DEFAULT_ADDRESS = "127.0.0.1:7711"


def local(
    servers: int = 4,
    *,
    sites: int = 1,
    latency: str | float | None = None,
    bandwidth: str | float | None = None,
    functions: Iterable[Offer] = (),
    libraries: Iterable[_Path] = (),
    slots: int = 1,
    plain: int = 0,
    memory: int | str | None = None,
    worker_memory: int | str | None = None,
    shared_memory: bool = True,
    environment: Mapping[str, str] | None = None,
    run_code: bool = True,
    logs: Logs = True,
    progress: bool = False,
) -> Grid:
    """Start an embedded grid on this machine and connect to it: an agent and servers, each a process.

    Parameters
    ----------
    servers : int, optional
        How many.
    sites : int, optional
        Over how many sites they are divided, in order: with two, the first half is in the first one, and so are the program and the agent.
        Servers of different sites share no memory. Sites have addresses of their own: ``127.0.0.1``, ``127.0.0.2`` and so on. Under
        ``gridloom simulate`` and ``gridloom testbed`` the links of the platform hold instead.
    latency : str or float, optional
        Additional one-way latency between two sites: a text with a unit, such as ``"16ms"``, or seconds; at most 2 s.
    bandwidth : str or float, optional
        What each process sends to another site leaves at that rate, such as ``"10MB/s"`` or ``"100Mbps"``, or bytes per second; at least
        100 kB/s.
    functions : iterable of path, module or function, optional
        Functions that the servers offer: interface descriptions (``.idl``), Python modules or their files (``.py``), and functions of the program with
        types in their annotations. Linear algebra (``linalg/...``) is always there.
    libraries : iterable of path, optional
        Shared libraries with the functions that the interface descriptions declare.
    slots : int, optional
        Calls that each server runs at a time.
    plain : int, optional
        How many of them talk to the client only, and keep nothing between calls.
    memory : int or str, optional
        Limit of the data in the store of each server: arguments, results and shared data. A size with a unit, such as ``"8GiB"`` or
        ``"500MB"``, or a number of bytes. Memory that functions allocate is not included.
    worker_memory : int or str, optional
        Limit of the memory of each worker and the processes that its functions start, without the store; a size like `memory`. A worker that
        exceeds the limit is killed, and its call fails with `OutOfMemory`. Simulated workers have no limit.
    shared_memory : bool, optional
        Whether arrays go through shared memory, else over TCP.
    environment : dict of str to str, optional
        Variables added to the servers' environment.
    run_code : bool, optional
        Whether the servers run any Python function that the program sends, by `Grid.run`; simulated ones do not. They find the
        program's modules.
    logs : bool, "plain" or callable, optional
        Output of Python functions, with warnings, lines of `logging`, and progress by `gridloom.progress`: ``True``
        shows it here while the program waits for results, with the function and the server before each line; ``"plain"`` prints it
        without labels, for programs whose output is read by other programs; ``False`` shows nothing, and no output of C code either; a
        function gets each piece as an `Output`.
    progress : bool, optional
        Whether a terminal or notebook shows how far groups and maps are, and values that take long on the network.

    Returns
    -------
    Grid
        The session. The processes end with it, however the program ends.

    Raises
    ------
    ConnectError
        If a process cannot be started, or a function cannot be offered; its own message is on the standard error.
    InputError
        If the annotations of a function are no signature.
    UsageError
        If a number is out of its range, or `functions`, `logs` or `progress` cannot be meant; if there is a `latency` or `bandwidth`,
        and one site.

    Examples
    --------
    >>> import numpy as np
    >>> with local(servers=2) as grid:                        # doctest: +SKIP
    ...     grid.function("linalg/dnrm2")(np.array([3.0, 4.0]))
    5.0
    """
    on_output, shows = listener(logs), wanted(progress)
    variables = checked_environment("environment", environment)
    filters = [f"{name}={value}" for name, value in (("rate", bandwidth), ("delay", latency)) if value is not None]
    files, folder = files_of(functions)
    raw = _gridloom.local(
        servers=whole("servers", servers, 1),
        sites=whole("sites", sites, 1),
        filters=[checked_text("bandwidth, latency", one) for one in filters],
        slots=whole("slots", slots, 1),
        plain=whole("plain", plain, 0),
        functions=files,
        run_code=run_code,
        libraries=_paths("libraries", libraries),
        memory_bytes=size("memory", memory),
        worker_memory_bytes=size("worker_memory", worker_memory),
        shared_memory=shared_memory,
        blas=_blas(),
        python=sys.executable or None,
        python_options=interpreter_options() if sys.executable else [],
        program=program(),
        environment=[
            (PATH_VARIABLE, os.pathsep.join(search_path())),
            *_arguments(),
            (NO_LOG_VARIABLE, "1"),
            *variables.items(),
        ],
        silent=on_output is None,
    )
    return Grid(raw, on_output, progress=shows, folder=folder)


def _arguments() -> list[tuple[str, str]]:
    """The variable with the program's arguments; only its name if there are too many, such as thousands of files."""
    text = json.dumps(sys.argv)
    return [(ARGUMENTS_VARIABLE, text if len(text) < _VARIABLE_BYTES_MAX else json.dumps(sys.argv[:1]))]


def connect(
    address: str | Any | None = None,
    *,
    servers: Iterable[str] | None = None,
    functions: Iterable[Callable[..., Any]] = (),
    logs: Logs = True,
    progress: bool = False,
    timeout: float | None = None,
) -> Grid:
    """Connect to a grid: to its agent, or to servers without one. In a simulated process: to that of its simulation.

    Parameters
    ----------
    address : str, distributed.Client or the module ray, optional
        The agent, ``host:port``; by default the value of the environment variable ``GRIDLOOM_AGENT``, else
        ``127.0.0.1:7711``. Several addresses, separated by ``+``, are tried in order: those of the agent in several networks, or those of the
        agent and its standby. ``dask://host:8786``, or an open client of Dask, is a Dask cluster, which stays as it is and runs `functions`.
        ``ray://host:10001`` is a Ray cluster; so is the module ``ray``, or the result of ``ray.init``, if this process has a session of Ray.
    servers : iterable of str, optional
        Servers, ``host:port`` each, instead of an agent: the session learns from them what they offer and how fast they
        are, and maps by itself. By default, if neither is given and ``GRIDLOOM_AGENT`` is not set, those that
        ``GRIDLOOM_SERVERS`` names, with commas between. Sessions do not know of each other's groups then. Servers that
        cannot be used are named in a `ConnectWarning`; they are used as soon as they answer.
    functions : iterable of function, optional
        Functions of the program with types in their annotations that a cluster of Dask or Ray is to run; servers of a grid offer their own.
    logs : bool, "plain" or callable, optional
        Output and progress of functions, as in `local`. With ``False`` the output goes to the log of the server.
    progress : bool, optional
        Whether bars are shown, as in `local`.
    timeout : float, optional
        Time limit for the answer of the agent, the servers or the cluster, in seconds; 15 by default. After 5 s without an answer, a line on
        the standard error, or in the log, reports the wait.

    Returns
    -------
    Grid
        The session.

    Raises
    ------
    ConnectError
        If the agent, or each of the servers, cannot be reached, refuses, or does not answer in time: the message says why.
    UsageError
        If an agent and servers are given, or no server; functions for a grid, or none for a cluster of Dask or Ray.
    ImportError
        If the address is that of a Dask or Ray cluster, and Dask's ``distributed``, or Ray and its client, cannot be imported.
    """
    if isinstance(address, str):
        checked_text("connect: the address", address)
    limit = seconds("connect: timeout", CONNECT_SECONDS if timeout is None else timeout) or 0.0
    if address is not None and (not isinstance(address, str) or address.startswith((_DASK, _RAY))):
        if servers is not None:
            raise UsageError("connect: a cluster of Dask or Ray, or servers, not both")
        return connect_engine(_engine_of(address, limit), functions)
    if list(functions):
        raise UsageError("connect: functions are for a cluster of Dask or Ray; servers of a grid offer theirs: gridloom serve functions.py")
    if address is not None and servers is not None:
        raise UsageError("connect: an address of an agent or servers, not both")
    on_output, shows = listener(logs), wanted(progress)
    named = os.environ.get("GRIDLOOM_SERVERS")
    if address is None and servers is None and named and not os.environ.get("GRIDLOOM_AGENT"):
        servers = (server.strip() for server in named.split(","))
    if isinstance(servers, str):
        raise UsageError(f"connect: servers is a list of addresses, got {servers!r}")
    if servers is not None:
        addresses = [checked_text("connect: a server", str(server)) for server in servers]
        grid = Grid(_gridloom.connect_servers(addresses, limit), on_output, progress=shows)
        for server, why in grid._raw.unreachable():
            warnings.warn(f"going on without the server at {server}: {why}", ConnectWarning, stacklevel=2)
        return grid
    agent = address or os.environ.get("GRIDLOOM_AGENT") or _DEFAULT_ADDRESS
    return Grid(_gridloom.connect(agent, limit), on_output, progress=shows)


def connect_engine(engine: Engine, functions: Iterable[Callable[..., Any]], measured: Measured | None = None) -> Grid:
    """Open a session on an engine, which is closed with the session.

    Parameters
    ----------
    engine : Engine
        The engine.
    functions : iterable of function
        Functions of the program with types in their annotations.
    measured : Measured, optional
        The cluster as it was measured; by default the engine measures it now.

    Returns
    -------
    Grid
        The session.
    """
    try:
        cluster = EngineCluster(engine, measured, functions)
        return Grid(cluster.raw, folder=cluster.folder, cluster=cluster)
    except BaseException:
        engine.close()
        raise


def simulate(
    platform: _Path,
    *,
    functions: Iterable[Offer] = (),
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
        ``numpy.broadcast_to(0.0, shape)`` describes an array of any size.
    seed : int, optional
        Seed of the random numbers.
    network : str, optional
        Network model by name.
    deployment : path, optional
        Deployment file: the host of each role. By default the hosts' properties say it.

    Returns
    -------
    Grid
        The session.

    Raises
    ------
    InputError
        If the platform or the functions cannot be used.
    UsageError
        If the seed is negative or not whole.
    """
    files, folder = files_of(functions)
    raw = _gridloom.simulate(
        platform=checked_path("platform", platform),
        deployment=None if deployment is None else checked_path("deployment", deployment),
        functions=files,
        libraries=_paths("libraries", libraries),
        execute=execute,
        seed=whole("seed", seed, 0, 2**64 - 1),
        network=None if network is None else checked_text("network", network),
        blas=_blas(),
        python=sys.executable or None,
        python_options=interpreter_options() if sys.executable else [],
        program=program(),
    )
    return Grid(raw, folder=folder)


def _engine_of(cluster: Any, limit: float) -> Engine:
    """The engine of a cluster, by its address or something open."""
    if isinstance(cluster, str):
        system = cluster.partition(":")[0]
    else:
        system = (cluster.__name__ if isinstance(cluster, types.ModuleType) else type(cluster).__module__).partition(".")[0]
    if system == "ray":
        from ..engines.ray import RayEngine

        return RayEngine(cluster, limit)
    if system in ("dask", "distributed"):
        from ..engines.dask import DaskEngine

        return DaskEngine(f"tcp://{cluster.removeprefix(_DASK)}" if isinstance(cluster, str) else cluster, limit)
    raise UsageError(f"connect: expected an address, an open distributed.Client, or ray, got {type(cluster).__name__} {cluster!r:.80}")


def _blas() -> str | None:
    if os.environ.get("GRIDLOOM_BLAS"):
        return None
    library = blas_library()
    return None if library is None else os.fspath(library)


def _paths(name: str, paths: Iterable[_Path]) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        raise UsageError(f"{name}: expected a list of paths, got the path {os.fspath(paths)!r}")
    return [checked_path(name, one) for one in paths]
