"""Requests, which a rank can wait for, and their operations."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .buffers import Block
from .constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from .errors import ERR_REQUEST, SUCCESS, Exception, unsupported
from .matching import Envelope, Posted
from .rank import Rank, current
from .status import Status


class Operation:
    """An operation in progress; `done` is true once it is complete."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.done = False
        self.error: BaseException | None = None
        self.status = Status()

    def result(self) -> Any:
        """Return the result of the lower-case calls."""
        return None

    def cancel(self) -> None:
        """Cancel the operation, if that is possible."""

    def finished(self) -> None:
        """Mark it as complete."""
        self.done = True

    def __str__(self) -> str:
        return self.what


class Receive(Operation):
    """A receive into a block, or a receive of an object."""

    def __init__(self, rank: Rank, context: int, source: int, tag: int, block: Block | None, what: str) -> None:
        super().__init__(what)
        self._rank = rank
        self._context = context
        self._block = block
        self._data: Any = None
        self._posted: Posted | None = None
        envelope = rank.matching.take(context, source, tag)
        if envelope is None:
            self._posted = Posted(source, tag, self.take)
            rank.matching.post(context, self._posted)
        else:
            self.take(envelope)

    def take(self, envelope: Envelope) -> None:
        """Process the received message."""
        self.status.source, self.status.tag, self.status.size = envelope.source, envelope.tag, len(envelope.data)
        if self._block is None:
            self._data = envelope.data
        else:
            try:
                self._block.unpack(envelope.data)
            except BaseException as error:
                self.error = error
                self.status.error = getattr(error, "error_code", SUCCESS)
        # The two refer to each other, and would only be freed by the garbage collector.
        self._posted = self._block = None
        self.done = True

    def result(self) -> Any:
        # An empty message stands for no object.
        return pickle.loads(self._data) if self._data else None

    def cancel(self) -> None:
        if self._posted is not None and self._rank.matching.cancel(self._context, self._posted):
            self._posted = self._block = None
            self.status.cancelled = self.done = True


class Done(Operation):
    """An operation that is complete at once: a send whose data were copied, or any operation with PROC_NULL."""

    def __init__(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> None:
        super().__init__("nothing")
        self.status.source, self.status.tag = source, tag
        self.done = True


class Both(Operation):
    """A send and a receive, complete when both are. The result is that of the receive."""

    def __init__(self, receive: Operation, send: Operation) -> None:
        self._receive, self._send = receive, send

    done = property(lambda self: self._receive.done and self._send.done)
    error = property(lambda self: self._receive.error)
    status = property(lambda self: self._receive.status)

    def result(self) -> Any:
        return self._receive.result()

    def __str__(self) -> str:
        return str(self._receive if self._send.done else self._send)


class Request:
    """A request. It is false once it is complete."""

    def __init__(self, request: Request | None = None) -> None:
        self._operation: Operation | None = None if request is None else request._operation

    @classmethod
    def of(cls, operation: Operation) -> Any:
        """Create the request of an operation."""
        made = cls()
        made._operation = operation
        return made

    # Prequest overrides these.

    def _is_null(self) -> bool:
        return self._operation is None

    def _end(self, status: Status | None) -> Any:
        """Take the result of a completed operation."""
        operation, self._operation = self._operation, None
        if operation is None:
            if status is not None:
                status.take(Status())
            return None
        if status is not None:
            status.take(operation.status)
        if operation.error is not None:
            raise operation.error
        return operation.result()

    def _is_over(self) -> bool:
        return self._operation is None or self._operation.done

    def _is_over_soon(self) -> bool:
        """Whether it is complete. If it was not, the other ranks run first."""
        if not self._is_over():
            current().give_way()
        return self._is_over()

    def Wait(self, status: Status | None = None) -> bool:
        """Wait until it is complete."""
        self.wait(status)
        return True

    def wait(self, status: Status | None = None) -> Any:
        """Wait until it is complete, and return the received object."""
        if not self._is_over():
            current().wait_until(self._is_over, self._operation)
        return self._end(status)

    def Test(self, status: Status | None = None) -> bool:
        """Whether it is complete."""
        return self.test(status)[0]

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Return whether it is complete, and the received object."""
        return (True, self._end(status)) if self._is_over_soon() else (False, None)

    def Get_status(self, status: Status | None = None) -> bool:
        """Whether it is complete. The request remains valid."""
        is_over = self._is_over_soon()
        if is_over and status is not None:
            status.take(Status() if self._operation is None else self._operation.status)
        return is_over

    get_status = Get_status

    def Cancel(self) -> None:
        """Cancel a receive that no message has matched."""
        if self._operation is None:
            raise Exception(ERR_REQUEST, "it is REQUEST_NULL")
        self._operation.cancel()

    cancel = Cancel

    def Free(self) -> None:
        """Free the request. The operation continues."""
        if self._is_null():
            raise Exception(ERR_REQUEST, "it is REQUEST_NULL")
        self._operation = None

    free = Free

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Wait until one is complete, and return its index."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Wait until one is complete, and return its index and the received object."""
        active = [request for request in requests if request._operation is not None]
        if active:
            current().wait_until(lambda: any(request._is_over() for request in active), f"one of {len(active)} requests")
        return cls._any(requests, status)

    @classmethod
    def _any(cls, requests: Sequence[Request], status: Status | None) -> tuple[int, Any]:
        for number, request in enumerate(requests):
            if request._operation is not None and request._is_over():
                return number, request._end(status)
        if status is not None:
            status.take(Status())
        return UNDEFINED, None

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Return the index of a completed request, and whether there is one."""
        number, is_over, _ = cls.testany(requests, status)
        return number, is_over

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, Any]:
        """Return the index of a completed request, whether there is one, and the received object."""
        active = [request for request in requests if request._operation is not None]
        if active and not any(request._is_over() for request in active):
            current().give_way()
        if active and not any(request._is_over() for request in active):
            return UNDEFINED, False, None
        number, result = cls._any(requests, status)
        return number, True, result

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        """Wait until all are complete."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[Any]:
        """Wait until all are complete, and return the received objects."""
        open_ones = [request for request in requests if not request._is_over()]
        if open_ones:
            current().wait_until(lambda: all(request._is_over() for request in open_ones), _several(open_ones))
        return [request._end(status) for request, status in zip(requests, _filled(statuses, len(requests)), strict=True)]

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        """Whether all are complete."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> tuple[bool, list[Any] | None]:
        """Return whether all are complete, and the received objects."""
        if not all(request._is_over() for request in requests):
            current().give_way()
        if not all(request._is_over() for request in requests):
            return False, None
        return True, cls.waitall(requests, statuses)

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[int] | None:
        """Wait until some are complete, and return their indices."""
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def waitsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> tuple[list[int] | None, list[Any] | None]:
        """Wait until some are complete, and return their indices and the received objects."""
        active = [request for request in requests if request._operation is not None]
        if active:
            current().wait_until(lambda: any(request._is_over() for request in active), f"some of {len(active)} requests")
        return cls._some(requests, statuses)

    @classmethod
    def _some(cls, requests: Sequence[Request], statuses: list[Status] | None) -> tuple[list[int] | None, list[Any] | None]:
        if all(request._operation is None for request in requests):
            return None, None
        numbers = [n for n, request in enumerate(requests) if request._operation is not None and request._is_over()]
        each = zip(numbers, _filled(statuses, len(numbers)), strict=True)
        return numbers, [requests[number]._end(status) for number, status in each]

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[int] | None:
        """Return the indices of the completed requests."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def testsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> tuple[list[int] | None, list[Any] | None]:
        """Return the indices of the completed requests, and the received objects."""
        active = [request for request in requests if request._operation is not None]
        if active and not any(request._is_over() for request in active):
            current().give_way()
        return cls._some(requests, statuses)

    @classmethod
    def _status_of(cls, requests: Sequence[Request]) -> list[Status]:
        return [Status() if request._operation is None else request._operation.status for request in requests]

    @classmethod
    def Get_status_all(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        """Whether all are complete. The requests remain valid."""
        if not all(request._is_over() for request in requests):
            current().give_way()
        is_over = all(request._is_over() for request in requests)
        if is_over:
            for status, found in zip(_filled(statuses, len(requests)), cls._status_of(requests), strict=True):
                if status is not None:
                    status.take(found)
        return is_over

    get_status_all = Get_status_all

    @classmethod
    def Get_status_any(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Whether one is complete. The request remains valid."""
        active = [number for number, request in enumerate(requests) if request._operation is not None]
        over = [number for number in active if requests[number]._is_over_soon()]
        if over and status is not None:
            status.take(cls._status_of(requests)[over[0]])
        elif not active and status is not None:
            status.take(Status())
        return (over[0] if over else UNDEFINED), bool(over) or not active

    get_status_any = Get_status_any

    @classmethod
    def Get_status_some(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[int] | None:
        """Return the indices of the completed requests. The requests remain valid."""
        active = [number for number, request in enumerate(requests) if request._operation is not None]
        if not active:
            return None
        over = [number for number in active if requests[number]._is_over_soon()]
        for status, number in zip(_filled(statuses, len(over)), over, strict=True):
            if status is not None:
                status.take(cls._status_of(requests)[number])
        return over

    get_status_some = Get_status_some

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self._operation is other._operation and self._is_null() == other._is_null()

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        return not self._is_null()

    def __reduce__(self) -> Any:
        if self:
            raise ValueError("a request cannot be pickled")
        return type(self), ()

    def __getattr__(self, name: str) -> Any:
        if name in ("toint", "fromint", "py2f", "f2py", "handle", "fromhandle"):
            raise unsupported(f"MPI.Request.{name}", "there are no handles of C")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _several(requests: Sequence[Request]) -> str:
    return f"{len(requests)} requests, first {requests[0]._operation}"


def _filled(statuses: list[Status] | None, count: int) -> Iterable[Status | None]:
    if statuses is None:
        return [None] * count
    statuses.extend(Status() for _ in range(count - len(statuses)))
    return statuses[:count]


class Prequest(Request):
    """A persistent request, which `Start` can start many times."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__(request)
        self._begin: Callable[[], Operation] | None = getattr(request, "_begin", None)

    @classmethod
    def made(cls, begin: Callable[[], Operation]) -> Prequest:
        """Create a request that is started by this function."""
        made = cls()
        made._begin = begin
        return made

    def _is_null(self) -> bool:
        return self._begin is None

    def Start(self) -> None:
        """Start the request."""
        if self._begin is None or self._operation is not None:
            raise Exception(ERR_REQUEST, "it is under way" if self._begin else "it is REQUEST_NULL")
        self._operation = self._begin()

    @classmethod
    def Startall(cls, requests: Sequence[Prequest]) -> None:
        """Start several requests."""
        for request in requests:
            request.Start()

    def Free(self) -> None:
        """Become REQUEST_NULL."""
        super().Free()
        self._begin = None

    free = Free


class Grequest(Request):
    """A request that the program itself completes."""

    @classmethod
    def Start(cls, query_fn: Any = None, free_fn: Any = None, cancel_fn: Any = None, args: Any = (), kwargs: Any = None) -> Grequest:
        """Create a request."""
        made = cls()
        made._operation = _Generalized(query_fn, free_fn, cancel_fn, args or (), kwargs or {})
        made._own = made._operation
        return made

    _own: Operation

    def Complete(self) -> None:
        """Mark it as complete."""
        self._own.finished()

    complete = Complete


class _Generalized(Operation):
    def __init__(self, query_fn: Any, free_fn: Any, cancel_fn: Any, args: Any, kwargs: Any) -> None:
        super().__init__("a request that the program completes")
        self._functions = query_fn, free_fn, cancel_fn
        self._arguments = args, kwargs

    def result(self) -> Any:
        query, free, _ = self._functions
        args, kwargs = self._arguments
        if query is not None:
            query(self.status, *args, **kwargs)
        if free is not None:
            free(*args, **kwargs)

    def cancel(self) -> None:
        if self._functions[2] is not None:
            self._functions[2](self.done, *self._arguments[0], **self._arguments[1])
