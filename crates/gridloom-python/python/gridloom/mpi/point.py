"""Messages from one rank to another: sends, receives and probes of a communicator."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

from .buffers import Block, simple
from .constants import ANY_SOURCE, ANY_TAG, PROC_NULL, TAG_MAX
from .errors import ERR_COMM, ERR_RANK, ERR_TAG, Exception, unsupported
from .matching import Envelope
from .rank import Rank, current
from .request import Both, Done, Operation, Prequest, Receive, Request
from .state import State
from .status import Status


class PointToPoint:
    """The sends and receives of a communicator."""

    _own: State | None
    _predefined: str | None = None

    @property
    def _state(self) -> State:
        state = self._found()
        if state is None:
            raise Exception(ERR_COMM, "it is COMM_NULL")
        return state

    def _found(self) -> State | None:
        if self._predefined is None:
            return self._own
        return current().own[self._predefined]  # type: ignore[no-any-return]

    def _peers(self) -> tuple[int, ...]:
        state = self._state
        return state.group if state.remote is None else state.remote

    def _checked(self, rank: int, tag: int, is_receive: bool) -> None:
        count = len(self._peers())
        if not (0 <= rank < count or rank == PROC_NULL or (is_receive and rank == ANY_SOURCE)):
            raise Exception(ERR_RANK, f"{rank}: the communicator has {count} ranks")
        if not (0 <= tag <= TAG_MAX or (is_receive and tag == ANY_TAG)):
            raise Exception(ERR_TAG, f"{tag}: from 0 to {TAG_MAX}")

    def _send(self, data: Callable[[], bytes], dest: int, tag: int, is_synchronous: bool = False) -> Operation:
        self._checked(dest, tag, False)
        if dest == PROC_NULL:
            return Done()
        state, rank = self._state, current()
        to = self._peers()[dest]
        if is_synchronous:
            operation = Operation(f"a synchronous send to rank {dest}, tag {tag}{self._named()}")
            rank.send(to, state.context, state.rank, tag, data(), operation.finished)
            return operation
        rank.send(to, state.context, state.rank, tag, data())
        return Done()

    def _named(self) -> str:
        name = self._state.name
        return f" on {name}" if name else ""

    def _receive(self, block: Callable[[], Block | None], source: int, tag: int) -> Operation:
        self._checked(source, tag, True)
        if source == PROC_NULL:
            return Done(PROC_NULL, ANY_TAG)
        what = f"recv(source={_shown(source)}, tag={_shown(tag)}){self._named()}"
        return Receive(current(), self._state.context, source, tag, block(), what)

    def _waited(self, operation: Operation, status: Status | None = None) -> Any:
        return Request.of(operation).wait(status)

    # Buffers.

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer; return when the buffer may be changed."""
        self._waited(self._send(lambda: simple(buf, False, dest).pack(), dest, tag))

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer; return when its receive has begun."""
        self._waited(self._send(lambda: simple(buf, False, dest).pack(), dest, tag, True))

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Send a buffer; return a request."""
        return self._request(self._send(lambda: simple(buf, False, dest).pack(), dest, tag))

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Send a buffer; return a request that completes when its receive has begun."""
        return self._request(self._send(lambda: simple(buf, False, dest).pack(), dest, tag, True))

    def _request(self, operation: Operation) -> Request:
        made: Request = Request.of(operation)
        return made

    # Data are always copied, so buffered sends are the same as normal ones.
    Bsend = Rsend = Send
    Ibsend = Irsend = Isend

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        """Receive into a buffer."""
        self._waited(self._receive(lambda: simple(buf, True, source), source, tag), status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Receive into a buffer; return a request."""
        return self._request(self._receive(lambda: simple(buf, True, source), source, tag))

    def Sendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE, recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:  # fmt: skip
        """Send a buffer and receive into another."""
        self._waited(self._both(sendbuf, dest, sendtag, recvbuf, source, recvtag), status)

    def Isendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE, recvtag: int = ANY_TAG
    ) -> Request:
        """Send a buffer and receive into another; return a request."""
        return self._request(self._both(sendbuf, dest, sendtag, recvbuf, source, recvtag))

    def _both(self, sendbuf: Any, dest: int, sendtag: int, recvbuf: Any, source: int, recvtag: int) -> Operation:
        receive = self._receive(lambda: simple(recvbuf, True, source), source, recvtag)
        return Both(receive, self._send(lambda: simple(sendbuf, False, dest).pack(), dest, sendtag))

    def Sendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG, status: Status | None = None
    ) -> None:
        """Send a buffer, and receive into it."""
        self._waited(self._replaced(buf, dest, sendtag, source, recvtag), status)

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG
    ) -> Request:
        """Send a buffer, and receive into it; return a request."""
        return self._request(self._replaced(buf, dest, sendtag, source, recvtag))

    def _replaced(self, buf: Any, dest: int, sendtag: int, source: int, recvtag: int) -> Operation:
        data = simple(buf, False, dest).pack()
        return Both(self._receive(lambda: simple(buf, True, source), source, recvtag), self._send(lambda: data, dest, sendtag))

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Create a persistent request that sends a buffer."""
        return Prequest.made(lambda: self._send(lambda: simple(buf, False, dest).pack(), dest, tag))

    def Ssend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Create a persistent request that sends a buffer, and completes when its receive has begun."""
        return Prequest.made(lambda: self._send(lambda: simple(buf, False, dest).pack(), dest, tag, True))

    Bsend_init = Rsend_init = Send_init

    def Recv_init(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        """Create a persistent request that receives into a buffer."""
        return Prequest.made(lambda: self._receive(lambda: simple(buf, True, source), source, tag))

    def Psend_init(self, *_: Any, **__: Any) -> Prequest:
        """Not supported."""
        raise unsupported("MPI.Comm.Psend_init", "partitioned messages")

    def Precv_init(self, *_: Any, **__: Any) -> Prequest:
        """Not supported."""
        raise unsupported("MPI.Comm.Precv_init", "partitioned messages")

    # Objects.

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Pickle an object and send it."""
        self._waited(self._send(lambda: dumped(obj), dest, tag))

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object; return when its receive has begun."""
        self._waited(self._send(lambda: dumped(obj), dest, tag, True))

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Send an object; return a request."""
        return self._request(self._send(lambda: dumped(obj), dest, tag))

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Send an object; return a request that completes when its receive has begun."""
        return self._request(self._send(lambda: dumped(obj), dest, tag, True))

    bsend, ibsend = send, isend

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receive an object; `buf` is not used."""
        if buf is not None:
            warnings.warn("the 'buf' argument is deprecated", stacklevel=2)
        return self._waited(self._receive(lambda: None, source, tag), status)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Receive an object; return a request."""
        return self._request(self._receive(lambda: None, source, tag))

    def sendrecv(
        self, sendobj: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE, recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:  # fmt: skip
        """Send an object and receive another."""
        receive = self._receive(lambda: None, source, recvtag)
        return self._waited(Both(receive, self._send(lambda: dumped(sendobj), dest, sendtag)), status)

    # Probes.

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Wait for a message without receiving it."""
        self._probed(source, tag, status, False)
        return True

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Whether a matching message has arrived."""
        return self._iprobed(source, tag, status, False) is not None

    def Mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        """Wait for a message, and remove it from the queue for a later receive."""
        return self._probed(source, tag, status, True)

    def Improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message | None:
        """Remove a message from the queue for a later receive, if there is one."""
        return self._iprobed(source, tag, status, True)

    probe, iprobe, mprobe, improbe = Probe, Iprobe, Mprobe, Improbe

    def _probed(self, source: int, tag: int, status: Status | None, takes: bool) -> Message:
        self._checked(source, tag, True)
        if source == PROC_NULL:
            return self._no_message(status)
        rank, context = current(), self._state.context
        found = lambda: rank.matching.find(context, source, tag) is not None  # noqa: E731
        rank.wait_until(found, f"probe(source={_shown(source)}, tag={_shown(tag)}){self._named()}")
        return self._of_message(rank, source, tag, status, takes)

    def _iprobed(self, source: int, tag: int, status: Status | None, takes: bool) -> Message | None:
        self._checked(source, tag, True)
        if source == PROC_NULL:
            return self._no_message(status)
        rank, context = current(), self._state.context
        if rank.matching.find(context, source, tag) is None:
            rank.give_way()
        if rank.matching.find(context, source, tag) is None:
            if status is not None:
                status.take(Status())
            return None
        return self._of_message(rank, source, tag, status, takes)

    def _no_message(self, status: Status | None) -> Message:
        if status is not None:
            status.take(Done(PROC_NULL, ANY_TAG).status)
        return Message(MESSAGE_NO_PROC)

    def _of_message(self, rank: Rank, source: int, tag: int, status: Status | None, takes: bool) -> Message:
        context = self._state.context
        envelope = rank.matching.take(context, source, tag) if takes else rank.matching.find(context, source, tag)
        assert envelope is not None, "it was just there"
        if status is not None:
            status.take(Taken(envelope, None).status)
        return Message.of(envelope)


class Taken(Receive):
    """The receive of a message that a probe has removed from the queue."""

    def __init__(self, envelope: Envelope, block: Block | None) -> None:
        Operation.__init__(self, "a matched message")
        self._block, self._data, self._posted = block, None, None
        self.take(envelope)


class Message:
    """A message that a probe has removed from the queue. It has not been received yet."""

    def __init__(self, message: Message | None = None) -> None:
        self._envelope: Envelope | None = None if message is None else message._envelope
        self._is_no_proc: bool = message is not None and message._is_no_proc

    @classmethod
    def of(cls, envelope: Envelope) -> Message:
        """Create it from a received envelope."""
        made = cls()
        made._envelope = envelope
        return made

    @classmethod
    def Probe(cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        """Wait for a message, and remove it from the queue."""
        found: Message = comm.Mprobe(source, tag, status)
        return found

    @classmethod
    def Iprobe(cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message | None:
        """Remove a message from the queue, if there is one."""
        found: Message | None = comm.Improbe(source, tag, status)
        return found

    probe, iprobe = Probe, Iprobe

    def _operation(self, buf: Any, is_object: bool) -> Operation:
        if self._is_no_proc:
            if self is not MESSAGE_NO_PROC:
                self._is_no_proc = False
            return Done(PROC_NULL, ANY_TAG)
        envelope, self._envelope = self._envelope, None
        if envelope is None:
            raise Exception(ERR_COMM, "it is MESSAGE_NULL")
        return Taken(envelope, None if is_object else simple(buf, True))

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Receive the message into a buffer."""
        Request.of(self._operation(buf, False)).wait(status)

    def Irecv(self, buf: Any) -> Request:
        """Receive the message into a buffer; return a request."""
        made: Request = Request.of(self._operation(buf, False))
        return made

    def recv(self, status: Status | None = None) -> Any:
        """Receive the object."""
        return Request.of(self._operation(None, True)).wait(status)

    def irecv(self) -> Request:
        """Receive the object; return a request."""
        made: Request = Request.of(self._operation(None, True))
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._envelope is other._envelope and self._is_no_proc == other._is_no_proc

    def __hash__(self) -> int:
        return id(self._envelope)

    def __bool__(self) -> bool:
        return self._envelope is not None or self._is_no_proc

    def __reduce__(self) -> Any:
        if self._envelope is not None:
            raise ValueError("a message cannot be pickled")
        name = "MESSAGE_NO_PROC" if self._is_no_proc else "MESSAGE_NULL"
        return name if self in (MESSAGE_NULL, MESSAGE_NO_PROC) and self is globals()[name] else (_constant, (name,))


def _constant(name: str) -> Message:
    return Message(globals()[name])


MESSAGE_NULL = Message()
MESSAGE_NO_PROC = Message()
MESSAGE_NO_PROC._is_no_proc = True


def dumped(obj: Any) -> bytes:
    """Pickle an object."""
    return pickle.dumps(obj, -1)


def _shown(number: int) -> str:
    return "any" if number == ANY_SOURCE else str(number)
