"""Remote procedure calls for scientific computing: groups of calls mapped together onto servers and links.

>>> import gridloom as gl                                    # doctest: +SKIP
>>> with gl.local(servers=4) as grid:                        # doctest: +SKIP
...     dgemm = grid.function("linalg/dgemm")
...     with grid.group() as group:          # calls are recorded, then mapped together
...         ab = dgemm(a, b)
...         cd = dgemm(c, d)
...         abcd = dgemm(ab, cd)             # ab and cd never visit the client
...     print(abcd.get())
...     print(group.report())
"""

from typing import TYPE_CHECKING

from . import chares
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
from ._calibration import Calibration, CalibrationCall, CalibrationJump, CalibrationPoint
from ._command import blas_library
from ._completed import Completed, Waited, as_completed, wait
from ._dask import dask
from ._define import C, F, function
from ._engine import EngineReport
from ._errors import (
    AgentLost,
    ArgumentError,
    Cancelled,
    CannotConnect,
    CannotRun,
    ChareError,
    ConnectError,
    ConnectionClosed,
    Crashed,
    DatumLost,
    DeadlineExceeded,
    DependencyFailed,
    DifferenceError,
    DifferenceWarning,
    Discarded,
    GridloomError,
    InputError,
    NameExists,
    NoRoomToShare,
    NotMapped,
    OutOfMemory,
    ProcessEnded,
    ProcessError,
    Refused,
    RemoteError,
    RemoteFailure,
    ServerLost,
    SharedDataError,
    SharedDataLost,
    StalledError,
    StoreFull,
    TaskError,
    TimedOut,
    UnknownFunctionError,
    UnknownName,
    UnreachableWarning,
    UnreadErrorWarning,
    UntriedVersionWarning,
    UsageError,
    WaitTimedOut,
    WrongMessage,
    WrongNumber,
    WrongResult,
)
from ._executor import Executor, register_joblib
from ._facts import Link, ServerInfo, Simulation, Traffic
from ._file import File
from ._function import Function, Future
from ._graph import Graph, GraphNode
from ._grid import Grid
from ._gridloom import __version__
from ._group import Group, Handle
from ._heuristic import Problem, ProblemDatum, ProblemServer, ProblemTask
from ._map import MapResults
from ._message import message, message_declaration, message_dtype
from ._models import Model, ModelPoint, Models
from ._options import Options
from ._plan import Alternative, Explanation, Plan, Step, TaskRecord, TransferRecord
from ._process_run import ProcessRun, process, read_settings, run_processes
from ._program import program
from ._program_run import ProgramFailed
from ._report import Difference, Report
from ._run_future import RunFuture
from ._said import Said, progress
from ._sessions import connect, local, simulate
from ._shared import SharedName, SharedValue
from ._stream import Stream
from .process import Peer, Process

if TYPE_CHECKING:
    # To static type checkers Array[NDArray[np.float64], "m"] is then the array, and Out[float, "mean"] the number.
    from typing import Annotated as Array
    from typing import Annotated as Out
else:
    from ._define import Array, Out

__all__ = [
    "AgentLost",
    "Alternative",
    "ArgumentError",
    "Array",
    "C",
    "CType",
    "Calibration",
    "CalibrationCall",
    "CalibrationJump",
    "CalibrationPoint",
    "Cancelled",
    "ChareError",
    "CannotConnect",
    "CannotRun",
    "Completed",
    "ConnectError",
    "ConnectionClosed",
    "Crashed",
    "DatumLost",
    "DeadlineExceeded",
    "DependencyFailed",
    "Difference",
    "DifferenceError",
    "DifferenceWarning",
    "Discarded",
    "EngineReport",
    "Executor",
    "Explanation",
    "F",
    "File",
    "Function",
    "Future",
    "Graph",
    "GraphNode",
    "Grid",
    "GridloomError",
    "Group",
    "Handle",
    "InputError",
    "Link",
    "MapResults",
    "Model",
    "ModelPoint",
    "Models",
    "NameExists",
    "Named",
    "NoRoomToShare",
    "NotMapped",
    "Options",
    "Out",
    "OutOfMemory",
    "Peer",
    "Plan",
    "Problem",
    "ProblemDatum",
    "ProblemServer",
    "ProblemTask",
    "Process",
    "ProcessEnded",
    "ProcessError",
    "ProcessRun",
    "ProgramFailed",
    "Ref",
    "Refused",
    "RemoteError",
    "RemoteFailure",
    "Report",
    "RunFuture",
    "Said",
    "ServerInfo",
    "ServerLost",
    "SharedDataError",
    "SharedDataLost",
    "SharedName",
    "SharedValue",
    "Simulation",
    "StalledError",
    "Step",
    "StoreFull",
    "Stream",
    "TaskError",
    "TaskRecord",
    "TimedOut",
    "Traffic",
    "TransferRecord",
    "UnknownFunctionError",
    "UnknownName",
    "UnreachableWarning",
    "UntriedVersionWarning",
    "UnreadErrorWarning",
    "UsageError",
    "WaitTimedOut",
    "Waited",
    "WrongMessage",
    "WrongNumber",
    "WrongResult",
    "__version__",
    "as_completed",
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
    "chares",
    "connect",
    "dask",
    "function",
    "local",
    "message",
    "message_declaration",
    "message_dtype",
    "process",
    "program",
    "progress",
    "read_settings",
    "register_joblib",
    "run_processes",
    "simulate",
    "wait",
]
