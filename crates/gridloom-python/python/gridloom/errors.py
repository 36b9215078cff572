"""What can go wrong. One class for each variant of the errors that Gridloom has in Rust."""

from __future__ import annotations

import concurrent.futures
from typing import Any


class GridloomError(Exception):
    """Base class of all errors of Gridloom."""


class ArgumentError(GridloomError, TypeError, ValueError):
    """A call does not fit its function's signature. Nothing was sent.

    The message names the function, the argument, what was expected and what was passed.
    """


class UnknownFunctionError(GridloomError, KeyError):
    """No server offers a function of that name.

    Attributes
    ----------
    name : str
        The name asked for.
    """

    name: str

    def __str__(self) -> str:
        # KeyError shows the representation of its argument; this is a sentence.
        return str(self.args[0]) if self.args else ""


class ConnectError(GridloomError, ConnectionError):
    """The grid cannot be reached or started."""


class UsageError(GridloomError):
    """The session is used in a way that it does not offer, for example after it was closed."""


class WrongNumber(UsageError, ValueError):
    """A number that cannot be meant, such as a port above 65535 or a time that never ends."""


class InputError(GridloomError, ValueError):
    """An interface description, a platform or a Python module cannot be used."""


class ProcessError(GridloomError):
    """A process that talks by messages cannot do what it was to do."""


class ChareError(GridloomError):
    """A program of message-driven objects (chares) cannot go on: an element is lost, or the program can never end."""


class TimedOut(ProcessError, TimeoutError):
    """No message of that type came in time."""


class ConnectionClosed(ProcessError, ConnectionError):
    """The connection between two processes is closed."""


class CannotConnect(ProcessError, ConnectionError):
    """No such host, or no process listens there."""


class RemoteFailure(ProcessError):
    """The handler of another process failed for a message of this one."""


class WrongMessage(ProcessError, ValueError):
    """A typed message cannot be sent, since its values do not fit its class, or what came is no such message.

    The message names the type, the field, what it is and what was expected.

    Attributes
    ----------
    kind : str
        Name of the message's type.
    """

    kind: str


class ProcessEnded(ProcessError):
    """The process has to end: it was killed, or nothing can happen any more. Let it pass."""


class Discarded(GridloomError):
    """The call was recorded, but never ran: the block of its group raised, or the group was discarded.

    What the block raised is its cause (``__cause__``).

    Attributes
    ----------
    function, why : str
        The function, and what became of the group.
    """

    function: str
    why: str


class DifferenceError(GridloomError):
    """In a group with ``strict=True``: a call is not as it was described, and was not made; or a described call never came.

    The former is raised by the call, the latter at the end of the group's block: of several calls that never came it tells of the first,
    and `Group.differences` of all.

    Attributes
    ----------
    call : int or None
        Which of the group's calls it is, counted from 1; ``None`` of one that never came.
    function : str
        The function that was called; of a call that never came the one that was described.
    described : str or None
        Name of the described call that was expected in its place, or that never came; ``None`` if nothing was described there.
    why : str
        What differs, in words: the argument, what it is and what was described; or that the call never came.
    """

    call: int | None
    function: str
    described: str | None
    why: str


class DifferenceWarning(RuntimeWarning):
    """A call is not as it was described, and is mapped by itself; or a described call never came.

    The first difference of a group is told when it is seen, the others together at the end of its block.
    `Group.differences` has all.
    """


class SharedDataError(GridloomError):
    """Shared data were not put, found or deleted."""


class NameExists(SharedDataError, ValueError):
    """Shared data of that name exist, or are being put.

    Attributes
    ----------
    name : str
    """

    name: str


class UnknownName(SharedDataError, KeyError):
    """Nobody has put shared data of that name.

    Attributes
    ----------
    name : str
    near : list of str
        Names that look like it.
    """

    name: str
    near: list[str]

    def __str__(self) -> str:
        # KeyError shows the representation of its argument; this is a sentence.
        return str(self.args[0]) if self.args else ""


class SharedDataLost(SharedDataError):
    """All servers that had the data are gone.

    Attributes
    ----------
    name : str
    """

    name: str


class NoRoomToShare(SharedDataError, MemoryError):
    """No server has room for the data.

    Attributes
    ----------
    name : str
    size_bytes : int
    """

    name: str
    size_bytes: int


class UnreadErrorWarning(RuntimeWarning):
    """Calls failed, and the program did not read why.

    A failure of a plain call is read by `get`, `result` or `exception` of its future; one in a group by `Handle.get` of a result of its
    group, or by `Group.wait` or `Group.report`. A call of `Grid.run` that has not ended when its session ends has failed by that.
    """


class UnreachableWarning(RuntimeWarning):
    """A server that `connect` was given cannot be used, and others can."""


class UntriedVersionWarning(RuntimeWarning):
    """A cluster of Dask or Ray has a version that this version of Gridloom was not tried with, or another one than the program."""


class WaitTimedOut(GridloomError, TimeoutError):
    """What was waited for did not come in time. Nothing is cancelled: waiting again works.

    Attributes
    ----------
    limit_seconds : float
        The limit of the wait, seconds.
    """

    limit_seconds: float


class StalledError(GridloomError):
    """A simulation stands still: nothing is left that could happen.

    Attributes
    ----------
    seconds : float
        Virtual time, seconds.
    """

    seconds: float


class TaskError(GridloomError):
    """A call gave no result."""


class Crashed(TaskError):
    """The worker process died under the function. The server lives on.

    Attributes
    ----------
    function, server, how : str
        The function, the server, and the signal or exit status in words.
    """

    function: str
    server: str
    how: str


class RemoteError(TaskError):
    """The function raised an exception.

    Attributes
    ----------
    function, server : str
        The function and the server.
    kind, message, traceback : str
        Class, text and traceback of the exception, as on the server.
    """

    function: str
    server: str
    kind: str
    message: str
    traceback: str
    # Names of its class and of those above it, where they are known.
    _classes: tuple[str, ...] = ()


class WrongResult(TaskError):
    """A Python function returned something else than its signature says.

    Attributes
    ----------
    function, server, why : str
        The function, the server, and what was expected and got.
    """

    function: str
    server: str
    why: str


class CannotRun(TaskError):
    """The server lacks what the function needs, such as a library or a module.

    Attributes
    ----------
    function, server, why : str
        The function, the server, and what is missing.
    """

    function: str
    server: str
    why: str


class StoreFull(TaskError):
    """A task needs more room than the server's store has.

    Attributes
    ----------
    function, server : str
        The function and the server.
    needed_bytes, held_bytes, limit_bytes : int
        What the task needs, what cannot be given up now, and the bound.
    """

    function: str
    server: str
    needed_bytes: int
    held_bytes: int
    limit_bytes: int


class Cancelled(TaskError, concurrent.futures.CancelledError):
    """The call was cancelled."""


class DeadlineExceeded(TaskError, TimeoutError):
    """The call exceeded its time limit.

    Attributes
    ----------
    limit_seconds : float
        The limit, seconds.
    """

    limit_seconds: float


class ServerLost(TaskError):
    """The server was lost, and no other could take over.

    Attributes
    ----------
    function, server, why : str
        The function, the server, and how the loss was noticed.
    """

    function: str
    server: str
    why: str


class DatumLost(TaskError):
    """A result is gone and cannot be computed again.

    Attributes
    ----------
    why : str
        How it was lost.
    """

    why: str


class OutOfMemory(TaskError, MemoryError):
    """A server, or this program, has no memory for an argument or a result.

    Attributes
    ----------
    place, why : str
        Where ("in this program", "on server 'x'"), and what the system says.
    """

    place: str
    why: str


class DependencyFailed(TaskError):
    """A task that the call depends on failed.

    Attributes
    ----------
    why : str
        The error of that task.
    """

    why: str


class NotMapped(TaskError):
    """The group could not be mapped.

    Attributes
    ----------
    why : str
        What stands against it.
    """

    why: str


class AgentLost(TaskError):
    """The agent cannot be reached.

    Attributes
    ----------
    address, why : str
        Where it was, and how the loss was noticed.
    """

    address: str
    why: str


class Refused(TaskError):
    """The call does not fit the signature that the server has.

    Attributes
    ----------
    function, server, why : str
        The function, the server, and what was expected and got.
    """

    function: str
    server: str
    why: str


def _make(kind: str, message: str, fields: dict[str, Any]) -> GridloomError:
    """Make the exception of a Rust error: called by the extension module."""
    found = globals().get(kind, GridloomError)
    error: GridloomError = found(message)
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def text_of(error: BaseException) -> str:
    """Text of any exception, also of one that cannot make it."""
    try:
        return str(error)
    except BaseException as failed:
        return f"its text cannot be made: {type(failed).__name__}"
