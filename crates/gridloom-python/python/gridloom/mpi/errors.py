"""Error classes of MPI, and the exception that carries one."""

from __future__ import annotations

#: Name and text of each error class, in the order of their codes.
_CLASSES = {
    "SUCCESS": "no error",
    "ERR_BUFFER": "invalid buffer",
    "ERR_COUNT": "invalid count",
    "ERR_TYPE": "invalid datatype",
    "ERR_TAG": "invalid tag",
    "ERR_COMM": "invalid communicator",
    "ERR_RANK": "invalid rank",
    "ERR_ROOT": "invalid root",
    "ERR_GROUP": "invalid group",
    "ERR_OP": "invalid operation",
    "ERR_TOPOLOGY": "invalid topology",
    "ERR_DIMS": "invalid dimensions",
    "ERR_ARG": "invalid argument",
    "ERR_UNKNOWN": "unknown error",
    "ERR_TRUNCATE": "message longer than the receive buffer",
    "ERR_OTHER": "other error",
    "ERR_INTERN": "internal error",
    "ERR_IN_STATUS": "error code in status",
    "ERR_PENDING": "pending request",
    "ERR_REQUEST": "invalid request",
    "ERR_KEYVAL": "invalid key",
    "ERR_INFO": "invalid info object",
    "ERR_INFO_KEY": "invalid info key",
    "ERR_INFO_VALUE": "invalid info value",
    "ERR_INFO_NOKEY": "no such info key",
    "ERR_NO_MEM": "no memory",
    "ERR_NAME": "invalid name",
    "ERR_PORT": "invalid port",
    "ERR_SERVICE": "invalid service",
    "ERR_SPAWN": "processes cannot be spawned",
    "ERR_UNSUPPORTED_OPERATION": "operation that gridloom mpirun does not support",
    **{
        f"ERR_{name}": f"class {name}, which nothing here raises"
        for name in (
            "ABI ERRHANDLER SESSION WIN FILE PROC_ABORTED BASE SIZE DISP ASSERT LOCKTYPE RMA_CONFLICT RMA_SYNC RMA_RANGE RMA_ATTACH "
            "RMA_SHARED RMA_FLAVOR BAD_FILE NO_SUCH_FILE FILE_EXISTS FILE_IN_USE AMODE ACCESS READ_ONLY NO_SPACE QUOTA NOT_SAME IO "
            "UNSUPPORTED_DATAREP CONVERSION DUP_DATAREP VALUE_TOO_LARGE REVOKED PROC_FAILED PROC_FAILED_PENDING"
        ).split()
    },
    "ERR_LASTCODE": "last code",
}
NAMES = list(_CLASSES)
TEXTS = list(_CLASSES.values())

(
    SUCCESS, ERR_BUFFER, ERR_COUNT, ERR_TYPE, ERR_TAG, ERR_COMM, ERR_RANK, ERR_ROOT, ERR_GROUP, ERR_OP, ERR_TOPOLOGY, ERR_DIMS,
    ERR_ARG, ERR_UNKNOWN, ERR_TRUNCATE, ERR_OTHER, ERR_INTERN, ERR_IN_STATUS, ERR_PENDING, ERR_REQUEST, ERR_KEYVAL, ERR_INFO,
    ERR_INFO_KEY, ERR_INFO_VALUE, ERR_INFO_NOKEY, ERR_NO_MEM, ERR_NAME, ERR_PORT, ERR_SERVICE, ERR_SPAWN,
    ERR_UNSUPPORTED_OPERATION, *_, ERR_LASTCODE,
) = range(len(NAMES))  # fmt: skip


class Exception(RuntimeError):  # noqa: A001
    """An MPI call failed; `error_class` is one of the ``ERR_`` constants.

    Parameters
    ----------
    ierr : int, optional
        The error class.
    about : str, optional
        The mistake, and the accepted values.
    """

    def __init__(self, ierr: int = SUCCESS, about: str = "") -> None:
        super().__init__(ierr)
        self.error_code = self.error_class = ierr
        self._about = about

    @property
    def error_string(self) -> str:
        """Return the text of the class with a description of the mistake."""
        known = 0 <= self.error_code < len(NAMES)
        text = f"{NAMES[self.error_code]}: {TEXTS[self.error_code]}" if known else f"error {self.error_code}"
        return f"{text}: {self._about}" if self._about else text

    def Get_error_code(self) -> int:
        """Return the error code."""
        return self.error_code

    def Get_error_class(self) -> int:
        """Return the error class."""
        return self.error_class

    def Get_error_string(self) -> str:
        """Return the text."""
        return self.error_string

    def __str__(self) -> str:
        return self.error_string

    def __int__(self) -> int:
        return self.error_code

    def __bool__(self) -> bool:
        return self.error_code != SUCCESS

    def __hash__(self) -> int:
        return hash(self.error_code)

    def __eq__(self, other: object) -> bool:
        return int(other) == self.error_code if isinstance(other, (int, Exception)) else NotImplemented


def unsupported(name: str, why: str = "") -> NotImplementedError:
    """Create the error for an unsupported part of MPI, by its name."""
    return NotImplementedError(f"gridloom mpirun does not support {name}{': ' + why if why else ''}")
