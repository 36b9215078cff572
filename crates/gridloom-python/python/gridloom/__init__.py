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

from ._c_types import (
    CType,
    Named,
    Ref,
    c_char,
    c_int,
    c_long,
    c_longlong,
    c_short,
    c_size_t,
    c_uint,
    c_ulong,
    c_ulonglong,
    c_ushort,
)
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
    UsageError,
    WrongMessage,
    WrongResult,
)
from ._function import Function, Future
from ._grid import Grid, ServerInfo, Simulation, Traffic
from ._gridloom import __version__
from ._group import Group, Handle, Plan, Report, TaskRecord, TransferRecord
from ._message import message, message_declaration, message_dtype
from ._sessions import blas_library, connect, local, simulate
from .process import Peer, Process, ProcessRun, process, run_processes

__all__ = [
    "AgentLost",
    "ArgumentError",
    "Array",
    "C",
    "CType",
    "Cancelled",
    "CannotConnect",
    "CannotRun",
    "ConnectError",
    "ConnectionClosed",
    "Crashed",
    "DatumLost",
    "DeadlineExceeded",
    "DependencyFailed",
    "F",
    "Function",
    "Future",
    "Grid",
    "GridloomError",
    "Group",
    "Handle",
    "InputError",
    "Named",
    "NotMapped",
    "Out",
    "Peer",
    "Plan",
    "Process",
    "ProcessEnded",
    "ProcessError",
    "ProcessRun",
    "Ref",
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
    "UsageError",
    "WrongMessage",
    "WrongResult",
    "__version__",
    "blas_library",
    "c_char",
    "c_int",
    "c_long",
    "c_longlong",
    "c_short",
    "c_size_t",
    "c_uint",
    "c_ulong",
    "c_ulonglong",
    "c_ushort",
    "connect",
    "function",
    "local",
    "message",
    "message_declaration",
    "message_dtype",
    "process",
    "run_processes",
    "simulate",
]
