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

from . import chares, ctypes, errors, models, plans, processes
from ._gridloom import __version__
from .adapters import Executor, dask
from .calls import Function, Future, as_completed, wait
from .common.executable import blas_library
from .display import progress
from .errors import (
    ArgumentError,
    Cancelled,
    CannotRun,
    ConnectError,
    ConnectionClosed,
    ConnectWarning,
    Crashed,
    DataLost,
    DifferenceError,
    DifferenceWarning,
    GridloomError,
    InputError,
    LimitExceeded,
    NameExists,
    NotPermitted,
    NotRun,
    OutOfMemory,
    ProcessEnded,
    ProcessError,
    QuotaExceeded,
    RandomStateWarning,
    RemoteError,
    ServerLost,
    SignatureError,
    StalledError,
    TaskError,
    TimedOut,
    UnknownName,
    UnreadErrorWarning,
    UsageError,
)
from .functions import C, F, File, function, program
from .groups import Graph, Group, Handle
from .messages import message
from .plans import Plan
from .processes import Process, process, run_processes
from .session import Grid, connect, local, simulate

if TYPE_CHECKING:
    # To static type checkers Array[NDArray[np.float64], "m"] is then the array, and Out[float, "mean"] the number.
    from typing import Annotated as Array
    from typing import Annotated as Out
else:
    from .functions import Array, Out

__all__ = [
    "ArgumentError",
    "Array",
    "C",
    "Cancelled",
    "CannotRun",
    "ConnectError",
    "ConnectWarning",
    "ConnectionClosed",
    "Crashed",
    "DataLost",
    "DifferenceError",
    "DifferenceWarning",
    "Executor",
    "F",
    "File",
    "Function",
    "Future",
    "Graph",
    "Grid",
    "GridloomError",
    "Group",
    "Handle",
    "InputError",
    "LimitExceeded",
    "NameExists",
    "NotPermitted",
    "NotRun",
    "Out",
    "OutOfMemory",
    "Plan",
    "Process",
    "ProcessEnded",
    "ProcessError",
    "QuotaExceeded",
    "RandomStateWarning",
    "RemoteError",
    "ServerLost",
    "SignatureError",
    "StalledError",
    "TaskError",
    "TimedOut",
    "UnknownName",
    "UnreadErrorWarning",
    "UsageError",
    "__version__",
    "as_completed",
    "blas_library",
    "chares",
    "connect",
    "ctypes",
    "dask",
    "errors",
    "function",
    "local",
    "message",
    "models",
    "plans",
    "process",
    "processes",
    "program",
    "progress",
    "run_processes",
    "simulate",
    "wait",
]
