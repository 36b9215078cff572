"""The names of ``mpi4py.MPI``."""

from __future__ import annotations

import pickle as _pickle
import socket
from typing import Any, NoReturn

from .._gridloom import __version__ as _version
from . import constants, datatype, errors, layout, op
from .buffers import BOTTOM, BUFFER_AUTOMATIC, IN_PLACE, memory_of
from .comm import COMM_NULL, COMM_SELF, COMM_WORLD, ERRORS_RETURN, Comm, Intercomm, Intracomm
from .datatype import Datatype
from .errors import Exception, unsupported
from .group import Errhandler, Group, Info
from .op import Op
from .point import MESSAGE_NO_PROC, MESSAGE_NULL, Message
from .rank import current
from .request import Grequest, Prequest, Request
from .status import Status
from .topology import Cartcomm, Compute_dims, Distgraphcomm, Graphcomm, Topocomm

__all__ = [
    "BOTTOM", "BUFFER_AUTOMATIC", "IN_PLACE", "Cartcomm", "Comm", "Compute_dims", "Datatype", "Distgraphcomm", "Errhandler", "Exception",
    "Graphcomm", "Grequest", "Group", "Info", "Intercomm", "Intracomm", "MESSAGE_NO_PROC", "MESSAGE_NULL", "Message", "Op", "Prequest",
    "Request", "Status", "Topocomm",
]  # fmt: skip

globals().update({name: value for name, value in vars(constants).items() if name.isupper()})
globals().update({name: number for number, name in enumerate(errors.NAMES)})
globals().update(datatype.BY_NAME)
globals().update(op.BY_NAME)
__all__ += [*(name for name in vars(constants) if name.isupper()), *datatype.BY_NAME, *op.BY_NAME]
__all__ += errors.NAMES
_typedict = layout.BY_CODE

REQUEST_NULL = Request()
GROUP_NULL = Group()
GROUP_EMPTY = Group.of(())
INFO_NULL = Info()
INFO_ENV = Info.Create()
ERRHANDLER_NULL = Errhandler()
ERRORS_ARE_FATAL = Errhandler.named("ERRORS_ARE_FATAL")
ERRORS_ABORT = Errhandler.named("ERRORS_ABORT")
memory = buffer = memoryview


class Pickle:
    """Serialization of objects. It always uses `pickle`; a program cannot change that."""

    PROTOCOL = _pickle.HIGHEST_PROTOCOL

    def dumps(self, obj: Any) -> bytes:
        """Serialize an object."""
        return _pickle.dumps(obj, self.PROTOCOL)

    def loads(self, data: Any) -> Any:
        """Deserialize an object."""
        return _pickle.loads(data)


pickle = Pickle()


def Init() -> None:
    """Do nothing: a rank is initialized when it starts."""


def Init_thread(required: int = constants.THREAD_MULTIPLE) -> int:
    """Return the provided level of thread support."""
    return constants.THREAD_FUNNELED


def Finalize() -> None:
    """Do nothing: a rank ends with its program."""


def Is_initialized() -> bool:
    """Whether calls are allowed."""
    return True


def Is_finalized() -> bool:
    """Whether calls are no longer allowed."""
    return False


def Is_thread_main() -> bool:
    """Whether this thread may make calls."""
    try:
        current()
    except RuntimeError:
        return False
    return True


def Query_thread() -> int:
    """Return the level of thread support: only the thread that runs the program may make calls."""
    return constants.THREAD_FUNNELED


def Get_version() -> tuple[int, int]:
    """Return the version of the standard."""
    return constants.VERSION, constants.SUBVERSION


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Return the name and version of the implementation."""
    major, minor, patch = (int(part) for part in _version.split("-")[0].split(".")[:3])
    return "Gridloom", (major, minor, patch)


def Get_library_version() -> str:
    """Return the name and version of the implementation."""
    return f"Gridloom {_version}"


def Get_processor_name() -> str:
    """Return the name of the host; in simulation, the name of this machine."""
    return socket.gethostname()


def Wtime() -> float:
    """Return the time in seconds; virtual time in simulation."""
    return current().now()


def Wtick() -> float:
    """Return the resolution of `Wtime`, seconds."""
    return 1e-9


def Get_error_class(errorcode: int) -> int:
    """Return the class of an error code."""
    return errorcode


def Get_error_string(errorcode: int) -> str:
    """Return the text of an error code."""
    return str(Exception(errorcode))


def Attach_buffer(buf: Any) -> None:
    """Do nothing: data of sends are always copied."""


def Detach_buffer() -> None:
    """Do nothing."""


def Alloc_mem(size: int, info: Any = None) -> Any:
    """Allocate memory of that many bytes."""
    return memoryview(bytearray(size))


def Free_mem(mem: Any) -> None:
    """Do nothing: memory is freed when nothing refers to it."""


def Pcontrol(level: int) -> None:
    """Do nothing."""


def Get_address(location: Any) -> int:
    """Return the address of a buffer."""
    return int(memory_of(location, False)[0].ctypes.data)


class Unsupported:
    """An unsupported part of MPI: each use raises an error."""

    def __init__(self, name: str, why: str) -> None:
        self._message = f"MPI.{name}", why

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise unsupported(*self._message)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unsupported(f"{self._message[0]}.{name}", self._message[1])

    def __bool__(self) -> bool:
        return False


_UNSUPPORTED = {
    "Win": "one-sided communication", "File": "parallel files", "Session": "sessions", "Open_port": "connections of programs",
    "Close_port": "connections of programs", "Publish_name": "connections of programs", "Lookup_name": "connections of programs",
    "Unpublish_name": "connections of programs", "Register_datarep": "parallel files", "Add_error_class": "error classes of one's own",
    "Add_error_code": "error classes of one's own", "Add_error_string": "error classes of one's own", "WIN_NULL": "one-sided communication",
    "FILE_NULL": "parallel files", "SESSION_NULL": "sessions",
}  # fmt: skip
globals().update({name: Unsupported(name, why) for name, why in _UNSUPPORTED.items()})
__all__ += [
    "Attach_buffer", "Detach_buffer", "COMM_NULL", "COMM_SELF", "COMM_WORLD", "ERRHANDLER_NULL", "ERRORS_ABORT", "ERRORS_ARE_FATAL",
    "ERRORS_RETURN", "GROUP_EMPTY", "GROUP_NULL", "INFO_ENV", "INFO_NULL", "REQUEST_NULL", "memory", "buffer", "Pickle", "pickle",
    "Init", "Init_thread", "Finalize", "Is_initialized", "Is_finalized", "Is_thread_main", "Query_thread", "Get_version", "get_vendor",
    "Get_library_version", "Get_processor_name", "Wtime", "Wtick", "Get_error_class", "Get_error_string", "Alloc_mem", "Free_mem",
    "Pcontrol", "Get_address", "_typedict", *_UNSUPPORTED,
]  # fmt: skip
