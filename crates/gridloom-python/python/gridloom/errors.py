"""Exceptions and warnings.

::

    GridloomError
    ├── UsageError            the program's mistakes
    │   ├── ArgumentError     also TypeError and ValueError
    │   ├── InputError        also ValueError
    │   └── DifferenceError
    ├── UnknownName           also KeyError
    ├── NameExists            also ValueError
    ├── ConnectError          also ConnectionError
    │   └── ConnectionClosed
    ├── TimedOut              also TimeoutError
    ├── StalledError
    ├── ProcessError
    │   └── ProcessEnded
    └── TaskError             a call, or a put or get of shared data, failed
        ├── Cancelled         also concurrent.futures.CancelledError
        ├── CannotRun
        ├── Crashed
        ├── DataLost
        ├── LimitExceeded
        ├── NotPermitted      also PermissionError
        ├── NotRun
        ├── OutOfMemory       also MemoryError
        ├── QuotaExceeded
        ├── RemoteError
        ├── ServerLost
        └── SignatureError
    RuntimeWarning
    ├── ConnectWarning
    ├── DifferenceWarning
    ├── RandomStateWarning
    └── UnreadErrorWarning
"""

from __future__ import annotations

import concurrent.futures
import sys
from typing import Any, TypeVar

__all__ = [
    "ArgumentError",
    "Cancelled",
    "CannotRun",
    "ConnectError",
    "ConnectWarning",
    "ConnectionClosed",
    "Crashed",
    "DataLost",
    "DifferenceError",
    "DifferenceWarning",
    "GridloomError",
    "InputError",
    "LimitExceeded",
    "NameExists",
    "NotPermitted",
    "NotRun",
    "OutOfMemory",
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
]

_E = TypeVar("_E", bound=BaseException)

if sys.version_info >= (3, 11):
    _TimeoutError = TimeoutError
else:

    class _TimeoutError(TimeoutError, concurrent.futures.TimeoutError):
        """Both are one class from Python 3.11 on."""



class GridloomError(Exception):
    """Base class of all errors of Gridloom."""


class UsageError(GridloomError):
    """The program uses the library in a way that it does not offer, for example a session after it was closed."""


class ArgumentError(UsageError, TypeError, ValueError):
    """An argument does not fit: the function's signature, the range of a number, or the class of a message. Nothing was sent.

    The message names the function, the argument, what was expected and what was passed. It is raised, too, if a received message does not fit
    its class.

    Attributes
    ----------
    kind : str
        Name of the message's type; empty if the error is not of a message.
    """

    kind: str = ""


class InputError(UsageError, ValueError):
    """An interface description, a platform, a configuration or a Python module cannot be used."""


class DifferenceError(UsageError):
    """In a group with ``strict=True``: a call is not as it was described, and was not made; or a described call was never made.

    The former is raised by the call, the latter at the end of the group's block: for the first of the missing calls, and `Group.differences`
    lists all.

    Attributes
    ----------
    call : int or None
        Number of the call in the group, counted from 1; ``None`` of a missing call.
    function : str
        The function that was called; of a missing call the one that was described.
    described : str or None
        Name of the described call that was expected in its place, or that is missing; ``None`` if nothing was described there.
    why : str
        The difference in words: the argument, its value and what was described; or that the call is missing.
    """

    call: int | None
    function: str
    described: str | None
    why: str


class UnknownName(GridloomError, KeyError):
    """No server offers a function of that name, or nobody has put shared data of that name.

    Attributes
    ----------
    name : str
        The name.
    what : {"function", "shared data"}
        What has no such name.
    near : list of str
        Names of shared data that look like it.
    """

    name: str
    what: str = "function"
    near: list[str]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.near = []

    def __str__(self) -> str:
        # KeyError shows the representation of its argument; this is a sentence.
        return str(self.args[0]) if self.args else ""


class NameExists(GridloomError, ValueError):
    """Shared data of that name exist, or are being put.

    Attributes
    ----------
    name : str
        The name.
    """

    name: str


class ConnectError(GridloomError, ConnectionError):
    """A grid or a process cannot be reached or started, or the connection to the agent was lost.

    Attributes
    ----------
    peer : {"grid", "process", "agent"}
        What cannot be reached: the grid when a session begins, a process that was to be connected to, or the agent of a running session.
    address, why : str
        Address of a lost agent, and how the loss was noticed; otherwise empty.
    """

    peer: str = "grid"
    address: str = ""
    why: str = ""


class ConnectionClosed(ConnectError):
    """The connection between two processes is closed."""


class TimedOut(GridloomError, _TimeoutError):
    """A time limit has passed.

    Attributes
    ----------
    operation : {"wait", "call", "message"}
        What took too long. After a wait nothing is cancelled, and waiting again works. A call was ended. A process has received no message
        of that type.
    limit_seconds : float or None
        The limit, seconds; ``None`` for a message.
    """

    operation: str = "wait"
    limit_seconds: float | None = None

    @property
    def is_wait(self) -> bool:
        """Whether only a wait has ended, and not the call."""
        return self.operation == "wait"


class StalledError(GridloomError):
    """A simulation stands still: nothing is left that could happen.

    Attributes
    ----------
    seconds : float
        Virtual time, seconds.
    """

    seconds: float


class ProcessError(GridloomError):
    """A process, or a program of message-driven objects (chares), cannot go on: for example, an element is lost."""


class ProcessEnded(ProcessError):
    """The process has to end: it was killed, or nothing can happen any more. Do not catch it."""


class TaskError(GridloomError):
    """A call gave no result, or a put or get of shared data failed.

    Attributes
    ----------
    function, server, why : str
        The function, the server, and the reason in words, each empty if it is not known.
    """

    function: str = ""
    server: str = ""
    why: str = ""


class Cancelled(TaskError, concurrent.futures.CancelledError):
    """The call was cancelled."""


class CannotRun(TaskError):
    """The server lacks what the function needs, such as a library or a module; `why` names it."""


class Crashed(TaskError):
    """The worker process died under the function. The server lives on.

    Attributes
    ----------
    how : str
        The signal or exit status in words.
    """

    how: str = ""


class DataLost(TaskError):
    """All copies of data are gone: of a result that cannot be computed again, or of shared data.

    Attributes
    ----------
    name : str or None
        Name of the shared data; ``None`` for a result.
    """

    name: str | None = None


class LimitExceeded(TaskError):
    """The call exceeded a limit of its server, and its worker was ended. The memory of a worker has an error of its own, `OutOfMemory`.

    Attributes
    ----------
    resource : {"processes", "time"}
        What the server limits (``gridloom serve --worker-processes``, ``--worker-time``).
    limit : float or None
        The limit: a number of processes, or seconds.
    used : int or None
        Number of processes; ``None`` for a time.
    """

    resource: str = "time"
    limit: float | None = None
    used: int | None = None


class NotPermitted(TaskError, PermissionError):
    """The user may not call the function, or may not replace or delete shared data of another user.

    Attributes
    ----------
    name, owner : str or None
        Name and owner of the shared data.
    """

    name: str | None = None
    owner: str | None = None


class NotRun(TaskError):
    """The call never ran.

    Attributes
    ----------
    reason : {"discarded", "dependency", "mapping"}
        The block of its group raised (which is the cause, ``__cause__``) or the group was discarded; a call that it depends on failed; or its
        group could not be mapped. `why` has the details.
    """

    reason: str = "discarded"


class OutOfMemory(TaskError, MemoryError):
    """There is no room for data.

    Attributes
    ----------
    resource : {"memory", "worker", "store", "shared data"}
        The exhausted resource: memory of a server or of this program, the memory limit of a worker (``worker_memory``), the store of a
        server, or the space that servers reserve for shared data.
    place : str
        Where memory was missing: "in this program", "on server 'x'".
    name : str or None
        Name of the shared data.
    needed_bytes, held_bytes, limit_bytes : int or None
        Size of the data or of the worker's memory, bytes of the store that cannot be freed now, and the limit of the store or worker;
        ``None`` if unknown.
    """

    resource: str = "memory"
    place: str = ""
    name: str | None = None
    needed_bytes: int | None = None
    held_bytes: int | None = None
    limit_bytes: int | None = None


class QuotaExceeded(TaskError):
    """The call exceeds a quota that the rules of the grid set for its user, or durable data exceed that of their owner.

    The message names the quota and what to do. Calls of :meth:`~gridloom.Grid.map` wait in the program
    instead if too many calls of the user wait at the server.
    """


class RemoteError(TaskError):
    """The function raised an exception, or the handler of another process failed for a message of this one.

    It replaces an exception under `Grid.run` that cannot be pickled. It is then also an instance of the nearest built-in base class, such as `OSError`.

    Attributes
    ----------
    kind, message, traceback : str
        Class, text and traceback of the exception, as on the server; empty for a handler.
    """

    kind: str = ""
    message: str = ""
    traceback: str = ""
    # Names of its class and of the classes above it, where they are known.
    _classes: tuple[str, ...] = ()


class ServerLost(TaskError):
    """The server was lost, and no other could take over; `why` states how the loss was noticed."""


class SignatureError(TaskError):
    """Values do not fit a signature on the server; `why` states the expected and the received values.

    Attributes
    ----------
    part : {"arguments", "result"}
        The arguments do not fit the signature that the server has, or a Python function returned a result that does not fit its own.
    """

    part: str = "result"


class ServerFault(Exception):
    """Base of the exceptions that a function raises because its server lacks something that all calls of the function need.

    The calls run on other servers, and the server withdraws the function for a while.
    """


class ConnectWarning(RuntimeWarning):
    """A server that `connect` was given cannot be used, and others can; or the version of a cluster of Dask or Ray was not tested."""


class DifferenceWarning(RuntimeWarning):
    """A call is not as it was described, and is mapped by itself; or a described call was never made.

    The first difference of a group is reported when it is noticed, the others together at the end of its block.
    `Group.differences` lists all.
    """


class RandomStateWarning(RuntimeWarning):
    """A random generator of the program is sent to several calls. Each call gets a copy, so all calls draw the same numbers."""


class UnreadErrorWarning(RuntimeWarning):
    """Calls failed, and the program did not read why.

    A failure of a plain call is read by `get`, `result` or `exception` of its future; one in a group by `Handle.get` of a result of its
    group, or by `Group.wait` or `Group.report`. A call of `Grid.run` that has not ended when its session ends has failed by that.
    """


# Classes and attributes for the variants of Rust's errors that are not named like a class.
_VARIANTS: dict[str, tuple[type[GridloomError], dict[str, Any]]] = {
    "AgentLost": (ConnectError, {"peer": "agent"}),
    "CannotConnect": (ConnectError, {"peer": "process"}),
    "ChareError": (ProcessError, {}),
    "ConnectionClosed": (ConnectionClosed, {"peer": "process"}),
    "DatumLost": (DataLost, {}),
    "DeadlineExceeded": (TimedOut, {"operation": "call"}),
    "DependencyFailed": (NotRun, {"reason": "dependency"}),
    "Discarded": (NotRun, {"reason": "discarded"}),
    "MemoryExceeded": (OutOfMemory, {"resource": "worker"}),
    "NoRoomToShare": (OutOfMemory, {"resource": "shared data"}),
    "NotMapped": (NotRun, {"reason": "mapping"}),
    "ProcessesExceeded": (LimitExceeded, {"resource": "processes"}),
    "Refused": (SignatureError, {"part": "arguments"}),
    "RemoteFailure": (RemoteError, {}),
    "SharedDataError": (TaskError, {}),
    "SharedDataLost": (DataLost, {}),
    "StoreFull": (OutOfMemory, {"resource": "store"}),
    "TimeExceeded": (LimitExceeded, {"resource": "time"}),
    "TimedOut": (TimedOut, {"operation": "message"}),
    "UnknownFunctionError": (UnknownName, {"what": "function"}),
    "UnknownName": (UnknownName, {"what": "shared data"}),
    "WaitTimedOut": (TimedOut, {"operation": "wait"}),
    "WrongMessage": (ArgumentError, {}),
    "WrongNumber": (ArgumentError, {}),
    "WrongResult": (SignatureError, {"part": "result"}),
}


def of_variant(variant: str, message: str, fields: dict[str, Any]) -> GridloomError:
    """Make the exception for a variant of Rust's errors: the extension module calls this.

    Parameters
    ----------
    variant : str
        Name of the variant.
    message : str
        Text of the error.
    fields : dict
        Fields of the variant, which become attributes.

    Returns
    -------
    GridloomError
        The exception.
    """
    kind, attributes = _VARIANTS.get(variant) or (globals().get(variant, GridloomError), {})
    if "size_bytes" in fields:
        fields = {"needed_bytes": fields["size_bytes"], **{name: value for name, value in fields.items() if name != "size_bytes"}}
    return with_fields(kind(message), **attributes, **fields)


def with_fields(error: _E, **fields: Any) -> _E:
    """Set attributes of an exception, and return it."""
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def text_of(error: BaseException) -> str:
    """Text of any exception, also of one whose ``__str__`` fails."""
    try:
        return str(error)
    except BaseException as failed:
        return f"its text cannot be made: {type(failed).__name__}"
