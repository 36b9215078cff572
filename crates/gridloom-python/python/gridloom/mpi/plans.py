"""Collective calls of a communicator: how each of them packs, exchanges and unpacks its data.

A plan is a generator of `collectives`; `upper` and `lower` turn it into methods. Buffers have the notation of mpi4py (see its tutorial,
"Collective communication").
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from . import collectives
from .buffers import Block, Blocks, equal, is_in_place, of_datatypes, simple, vector
from .collectives import Exchange, Steps, Task
from .constants import PROC_NULL, ROOT
from .errors import ERR_ROOT, Exception
from .op import BY_NAME, Op, of_pickles
from .point import dumped
from .request import Prequest, Request

SUM = BY_NAME["SUM"]
Reader = Callable[[Any, bool, int], Blocks]


def _root(on: Exchange, root: int) -> None:
    if not (0 <= root < on.size or (on.is_inter and root in (ROOT, PROC_NULL))):
        raise Exception(ERR_ROOT, f"{root}: the communicator has {on.size} ranks")


def barrier(on: Exchange) -> Steps:
    """Wait until all ranks have entered."""
    yield from collectives.barrier(on)


def bcast(on: Exchange, buf: Any, root: int = 0) -> Steps:
    """Copy the root's buffer to all."""
    _root(on, root)
    if on.is_inter and root == PROC_NULL:
        return
    sends = on.sends(root)
    block = simple(buf, not sends)
    data = yield from collectives.bcast(on, block.pack() if sends else None, root)
    if not sends:
        block.unpack(data)


def _gather(reader: Reader) -> Callable[..., Steps]:
    def gather(on: Exchange, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps:
        """Concatenate the buffers of all ranks at the root."""
        _root(on, root)
        to = reader(recvbuf, True, on.size) if on.sends(root) else None
        item = None
        if to is not None and not on.is_inter and is_in_place(sendbuf):
            item = to.each[on.me].pack()
        elif not on.is_inter or root >= 0:
            item = simple(sendbuf, False).pack()
        items = yield from collectives.gather(on, item, root)
        if to is not None:
            to.unpack(items)

    return gather


def _scatter(reader: Reader) -> Callable[..., Steps]:
    def scatter(on: Exchange, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps:
        """Scatter blocks of the root's buffer."""
        _root(on, root)
        items = reader(sendbuf, False, on.size).pack() if on.sends(root) else None
        gets = root >= 0 if on.is_inter else not (on.me == root and is_in_place(recvbuf))
        to = simple(recvbuf, True) if gets else None
        data = yield from collectives.scatter(on, items, root)
        if to is not None:
            to.unpack(data)

    return scatter


def _allgather(reader: Reader) -> Callable[..., Steps]:
    def allgather(on: Exchange, sendbuf: Any, recvbuf: Any) -> Steps:
        """Concatenate the buffers of all ranks at all ranks."""
        to = reader(recvbuf, True, on.size)
        item = to.each[on.me].pack() if is_in_place(sendbuf) else simple(sendbuf, False).pack()
        to.unpack((yield from collectives.allgather(on, item)))

    return allgather


def _alltoall(reader: Reader) -> Callable[..., Steps]:
    def alltoall(on: Exchange, sendbuf: Any, recvbuf: Any) -> Steps:
        """Exchange a block between each pair of ranks."""
        to = reader(recvbuf, True, on.size)
        items = to.pack() if is_in_place(sendbuf) else reader(sendbuf, False, on.size).pack()
        to.unpack((yield from collectives.alltoall(on, items)))

    return alltoall


def _operands(sendbuf: Any, recvbuf: Any) -> tuple[Block, Block]:
    to = simple(recvbuf, True)
    own = to if is_in_place(sendbuf) else simple(sendbuf, False)
    if own.count != to.count:
        raise ValueError(f"mismatch in send count {own.count} and receive count {to.count}")
    if own.datatype != to.datatype:
        raise ValueError("mismatch in send and receive MPI datatypes")
    return own, to


def reduce(on: Exchange, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> Steps:
    """Combine the buffers of all ranks at the root."""
    _root(on, root)
    if on.is_inter:
        own = simple(recvbuf, True) if root == ROOT else simple(sendbuf, False) if root >= 0 else None
        to = own if root == ROOT else None
    elif on.me == root:
        own, to = _operands(sendbuf, recvbuf)
    else:
        own, to = simple(sendbuf, False), None
    if own is None:
        return
    data = yield from collectives.reduce(on, own.pack(), op.combines(own), root)
    if to is not None:
        to.unpack(data)


def allreduce(on: Exchange, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Steps:
    """Combine the buffers of all ranks at all ranks."""
    own, to = _operands(sendbuf, recvbuf)
    to.unpack((yield from collectives.allreduce(on, own.pack(), op.combines(own))))


def reduce_scatter_block(on: Exchange, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Steps:
    """Combine the buffers of all ranks, and scatter blocks of equal length."""
    if is_in_place(sendbuf):
        whole = simple(recvbuf, False)
        to = simple(recvbuf, True, 0, on.own_size)
    else:
        whole, to = simple(sendbuf, False), simple(recvbuf, True)
    sizes = [to.count * (to.datatype.size if to.count else 0)] * on.own_size
    data = whole.pack()
    if sum(sizes) != len(data):
        raise ValueError(f"mismatch in send count {whole.count} and receive count {to.count}*{on.own_size}")
    to.unpack((yield from collectives.reduce_scatter(on, data, sizes, op.combines(whole))))


def reduce_scatter(on: Exchange, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Op = SUM) -> Steps:
    """Combine the buffers of all ranks, and scatter blocks."""
    to = simple(recvbuf, True)
    whole = to if is_in_place(sendbuf) else simple(sendbuf, False)
    if recvcounts is not None:
        counts = [int(count) for count in recvcounts]
    elif is_in_place(sendbuf):
        counts = [to.count // on.own_size + (to.count % on.own_size > at) for at in range(on.own_size)]
    else:
        counts = yield from collectives.allgather(on.local, to.count)
    if len(counts) != on.own_size:
        raise ValueError(f"expecting {on.own_size} items, got {len(counts)}")
    if sum(counts) != whole.count:
        raise ValueError(f"mismatch in send count {whole.count} and sum(counts) {sum(counts)}")
    if not is_in_place(sendbuf) and counts[on.me] != to.count:
        raise ValueError(f"mismatch in receive count {to.count} and recvcounts[{on.me}] {counts[on.me]}")
    size = whole.datatype.size if whole.count else 0
    data = yield from collectives.reduce_scatter(on, whole.pack(), [count * size for count in counts], op.combines(whole))
    to.unpack(data)


def scan(on: Exchange, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Steps:
    """Combine the buffers of the ranks up to this one."""
    own, to = _operands(sendbuf, recvbuf)
    to.unpack((yield from collectives.scan(on, own.pack(), op.combines(own))))


def exscan(on: Exchange, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Steps:
    """Combine the buffers of the ranks before this one."""
    own, to = _operands(sendbuf, recvbuf)
    data = yield from collectives.exscan(on, own.pack(), op.combines(own))
    if data is not None:
        to.unpack(data)


gather, gatherv = _gather(equal), _gather(vector)
scatter, scatterv = _scatter(equal), _scatter(vector)
allgather, allgatherv = _allgather(equal), _allgather(vector)
alltoall, alltoallv, alltoallw = _alltoall(equal), _alltoall(vector), _alltoall(of_datatypes)


# Objects.


def bcast_object(on: Exchange, obj: Any, root: int = 0) -> Steps:
    """Broadcast the root's object."""
    _root(on, root)
    sends = on.sends(root)
    data = yield from collectives.bcast(on, dumped(obj) if sends else None, root)
    return pickle.loads(data) if data is not None and (not on.is_inter or root >= 0) else None


def gather_objects(on: Exchange, sendobj: Any, root: int = 0) -> Steps:
    """Gather a list of all objects at the root."""
    _root(on, root)
    gives = not on.is_inter or root >= 0
    items = yield from collectives.gather(on, dumped(sendobj) if gives else None, root)
    return None if items is None else [pickle.loads(item) for item in items]


def _dumped(objects: Any, count: int) -> list[bytes]:
    objects = list(objects) if objects is not None else [None] * count
    if len(objects) != count:
        raise ValueError(f"expecting {count} items, got {len(objects)}")
    return [dumped(one) for one in objects]


def scatter_objects(on: Exchange, sendobj: Any, root: int = 0) -> Steps:
    """Scatter the root's objects, one to each rank."""
    _root(on, root)
    items = _dumped(sendobj, on.size) if on.sends(root) else None
    data = yield from collectives.scatter(on, items, root)
    return None if data is None else pickle.loads(data)


def allgather_objects(on: Exchange, sendobj: Any) -> Steps:
    """Gather a list of all objects at all ranks."""
    return [pickle.loads(item) for item in (yield from collectives.allgather(on, dumped(sendobj)))]


def alltoall_objects(on: Exchange, sendobj: Any) -> Steps:
    """Exchange one object between each pair of ranks."""
    return [pickle.loads(item) for item in (yield from collectives.alltoall(on, _dumped(sendobj, on.size)))]


def reduce_objects(on: Exchange, sendobj: Any, op: Any = SUM, root: int = 0) -> Steps:
    """Combine all objects at the root."""
    _root(on, root)
    data = yield from collectives.reduce(on, dumped(sendobj), of_pickles(op), root)
    return None if data is None else pickle.loads(data)


def allreduce_objects(on: Exchange, sendobj: Any, op: Any = SUM) -> Steps:
    """Combine all objects at all ranks."""
    return pickle.loads((yield from collectives.allreduce(on, dumped(sendobj), of_pickles(op))))


def scan_objects(on: Exchange, sendobj: Any, op: Any = SUM) -> Steps:
    """Combine the objects of the ranks up to this one."""
    return pickle.loads((yield from collectives.scan(on, dumped(sendobj), of_pickles(op))))


def exscan_objects(on: Exchange, sendobj: Any, op: Any = SUM) -> Steps:
    """Combine the objects of the ranks before this one."""
    data = yield from collectives.exscan(on, dumped(sendobj), of_pickles(op))
    return None if data is None else pickle.loads(data)


# From plans to methods.


def _task(comm: Any, plan: Callable[..., Steps], arguments: Any, named: Any) -> Task:
    on = Exchange(comm._state)
    return Task(f"{plan.__name__}{comm._named()}", plan(on, *arguments, **named))


def lower(plan: Callable[..., Steps]) -> Callable[..., Any]:
    """Create the method that waits, and returns the result of the plan."""

    def call(comm: Any, *arguments: Any, **named: Any) -> Any:
        return Request.of(_task(comm, plan, arguments, named)).wait()

    return _described(call, plan)


def upper(plan: Callable[..., Steps]) -> tuple[Callable[..., None], Callable[..., Request], Callable[..., Prequest]]:
    """Create three methods: one that waits, one that returns a request, and one that returns a persistent request."""

    def begin(comm: Any, *arguments: Any, **named: Any) -> Request:
        made: Request = Request.of(_task(comm, plan, arguments, named))
        return made

    def persistent(comm: Any, *arguments: Any, **named: Any) -> Prequest:
        named.pop("info", None)
        return Prequest.made(lambda: _task(comm, plan, arguments, named))

    return lower(plan), _described(begin, plan), _described(persistent, plan)


def _described(method: Callable[..., Any], plan: Callable[..., Steps]) -> Callable[..., Any]:
    method.__doc__ = plan.__doc__
    return method
