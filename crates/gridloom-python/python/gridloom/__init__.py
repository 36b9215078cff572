"""Remote procedure calls for scientific computing: groups of calls mapped together onto servers and links.

>>> import gridloom as gl                                    # doctest: +SKIP
>>> with gl.local(servers=4) as grid:                        # doctest: +SKIP
...     dgemm = grid.function("linalg/dgemm")
...     with grid.group("heft") as group:    # calls are recorded, then mapped together
...         ab = dgemm(a, b)
...         cd = dgemm(c, d)
...         abcd = dgemm(ab, cd)             # ab and cd never visit the client
...     print(abcd.get())
...     print(group.report())
"""

from ._define import Array, C, F, Out, function
from ._errors import (
    AgentLost,
    ArgumentError,
    Cancelled,
    CannotConnect,
    CannotRun,
    ConnectError,
    ConnectionClosed,
    Crashed,
    DatumLost,
    DeadlineExceeded,
    DependencyFailed,
    Discarded,
    GridloomError,
    InputError,
    NotMapped,
    ProcessEnded,
    ProcessError,
    Refused,
    RemoteError,
    RemoteFailure,
    ServerLost,
    StalledError,
    StoreFull,
    TaskError,
    TimedOut,
    UnknownFunctionError,
    UnreadErrorWarning,
    UsageError,
    WaitTimedOut,
    WrongResult,
)
from ._function import Function, Future
from ._grid import Grid, ServerInfo, Simulation, Traffic
from ._gridloom import __version__
from ._group import Group, Handle, Plan, Report, TaskRecord, TransferRecord
from ._sessions import blas_library, connect, local, simulate
from .process import Peer, Process, ProcessRun, process, run_processes

__all__ = [
    "AgentLost",
    "ArgumentError",
    "Array",
    "C",
    "Cancelled",
    "CannotConnect",
    "CannotRun",
    "ConnectError",
    "ConnectionClosed",
    "Crashed",
    "DatumLost",
    "DeadlineExceeded",
    "DependencyFailed",
    "Discarded",
    "F",
    "Function",
    "Future",
    "Grid",
    "GridloomError",
    "Group",
    "Handle",
    "InputError",
    "NotMapped",
    "Out",
    "Peer",
    "Plan",
    "Process",
    "ProcessEnded",
    "ProcessError",
    "ProcessRun",
    "Refused",
    "RemoteError",
    "RemoteFailure",
    "Report",
    "ServerInfo",
    "ServerLost",
    "Simulation",
    "StalledError",
    "StoreFull",
    "TaskError",
    "TaskRecord",
    "TimedOut",
    "Traffic",
    "TransferRecord",
    "UnknownFunctionError",
    "UnreadErrorWarning",
    "UsageError",
    "WaitTimedOut",
    "WrongResult",
    "__version__",
    "blas_library",
    "connect",
    "function",
    "local",
    "process",
    "run_processes",
    "simulate",
]
