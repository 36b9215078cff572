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
from ._gridloom import __version__
from .adapters.dask import dask
from .adapters.executor import Executor, register_joblib
from .calls.function import Function
from .calls.future import Future
from .calls.wait import Completed, DoneAndNotDone, as_completed, wait
from .common.executable import blas_library
from .ctypes import (
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
from .display.output import Output, progress
from .engines.cluster import EngineReport
from .errors import (
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
from .functions.declare import C, F, function
from .functions.file import File
from .functions.program import program
from .functions.program_run import ProgramFailed
from .groups.graph import Graph, GraphNode
from .groups.group import Group
from .groups.handle import Handle
from .messages.message import message, message_declaration, message_dtype
from .models.calibration import Calibration, CalibrationCall, CalibrationJump, CalibrationPoint
from .models.models import Model, ModelPoint, Models
from .models.server_info import Link, ServerInfo, Simulation, Traffic
from .plans.heuristic import Problem, ProblemDatum, ProblemServer, ProblemTask
from .plans.plan import Alternative, Explanation, Plan, Step, TaskRecord, TransferRecord
from .plans.report import Difference, Report
from .processes.process import Peer, Process
from .processes.run import ProcessRun, process, read_settings, run_processes
from .run.future import RunFuture
from .run.map import MapResults
from .run.options import Options
from .run.stream import Stream
from .session.grid import Grid
from .session.opening import connect, local, simulate
from .session.shared_data import SharedName, SharedValue

if TYPE_CHECKING:
    # To static type checkers Array[NDArray[np.float64], "m"] is then the array, and Out[float, "mean"] the number.
    from typing import Annotated as Array
    from typing import Annotated as Out
else:
    from .functions.declare import Array, Out

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
    "Output",
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
    "DoneAndNotDone",
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
