"""Collective operations on items (bytes), within a communicator and between the two groups of an inter-communicator.

An operation is a generator: it sends without waiting, and yields each message that it waits for. So it never blocks a stack, and the same
code implements the blocking, the non-blocking and the persistent call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from .constants import ROOT
from .matching import Envelope, Posted
from .rank import current
from .request import Operation
from .state import State

#: Yielded by a generator that waits for a message: its context, source and tag.
Wanted: TypeAlias = "tuple[int, int, int]"
Steps: TypeAlias = Generator[Wanted, Any, Any]
Combine: TypeAlias = Callable[[bytes, bytes], bytes]


class Exchange:
    """One collective call on a communicator, seen by one of its ranks."""

    def __init__(self, state: State) -> None:
        self._rank = current()
        self._state = state
        self._peers = state.group if state.remote is None else state.remote
        self._tag = state.calls
        state.calls += 1
        self.me = state.rank
        #: Ranks of the own group, and of the group that receives the messages.
        self.own_size = len(state.group)
        self.size = len(self._peers)
        self.is_inter = state.remote is not None
        self.topology = state.topology
        self.local = Exchange(state.local) if state.local is not None else self

    def send(self, to: int, item: Any) -> None:
        """Send an item to a rank of the communicator, or of the other group."""
        self._rank.send(self._peers[to], self._state.context + 1, self.me, self._tag, item)

    def of(self, source: int) -> Wanted:
        """Return the condition to wait for: the next item of that rank."""
        return self._state.context + 1, source, self._tag

    def sends(self, root: int) -> bool:
        """Whether this rank sends as the root."""
        return root == (ROOT if self.is_inter else self.me)


class Task(Operation):
    """A running collective operation."""

    def __init__(self, what: str, steps: Steps) -> None:
        super().__init__(what)
        self._rank = current()
        self._steps = steps
        self._value: Any = None
        self._source: int | None = None
        self._go_on(None)
        if self.error is not None:
            raise self.error

    def _go_on(self, item: Any) -> None:
        matching = self._rank.matching
        while True:
            try:
                context, source, tag = self._steps.send(item)
            except StopIteration as end:
                self._value, self.done = end.value, True
                return
            except BaseException as error:
                self.error, self.done = error, True
                return
            envelope = matching.take(context, source, tag)
            if envelope is None:
                self._source = source
                matching.post(context, Posted(source, tag, self._on_match))
                return
            item = envelope.data

    def _on_match(self, envelope: Envelope) -> None:
        # The generator may run functions of the program.
        self._rank.modules.enter()
        self._go_on(envelope.data)

    def result(self) -> Any:
        return self._value

    def __str__(self) -> str:
        return f"{self.what}, for rank {self._source}"


def barrier(on: Exchange) -> Steps:
    """Wait until all ranks have entered."""
    if on.is_inter:
        yield from allgather(on, b"")
        return
    step = 1
    while step < on.size:
        on.send((on.me + step) % on.size, b"")
        yield on.of((on.me - step) % on.size)
        step *= 2


def bcast(on: Exchange, item: Any, root: int) -> Steps:
    """Broadcast the root's item."""
    if on.is_inter:
        if root == ROOT:
            for to in range(on.size):
                on.send(to, item)
        elif root >= 0:
            item = yield on.of(root)
        return item
    # A binomial tree.
    place = (on.me - root) % on.size
    step = 1
    while step < on.size and not place & step:
        step *= 2
    if place:
        item = yield on.of((place - step + root) % on.size)
    while step > 1:
        step //= 2
        if place + step < on.size:
            on.send((place + step + root) % on.size, item)
    return item


def gather(on: Exchange, item: Any, root: int) -> Steps:
    """Gather all items at the root."""
    if on.sends(root):
        items = []
        for source in range(on.size):
            items.append(item if source == on.me and not on.is_inter else (yield on.of(source)))
        return items
    if root >= 0:
        on.send(root, item)
    return None


def scatter(on: Exchange, items: Any, root: int) -> Steps:
    """Scatter the root's items, one to each rank."""
    if on.sends(root):
        for to in range(on.size):
            if on.is_inter or to != on.me:
                on.send(to, items[to])
        return None if on.is_inter else items[on.me]
    return (yield on.of(root)) if root >= 0 else None


def allgather(on: Exchange, item: Any) -> Steps:
    """Gather the items of all ranks, or of the other group, at all ranks."""
    if on.is_inter:
        return (yield from alltoall(on, [item] * on.size))
    # The doubling algorithm of J. Bruck et al., IEEE Transactions on Parallel and Distributed Systems 8 (11), 1997.
    items, step = [item], 1
    while step < on.size:
        count = min(step, on.size - step)
        on.send((on.me - step) % on.size, tuple(items[:count]))
        items.extend((yield on.of((on.me + step) % on.size)))
        step *= 2
    return [items[(at - on.me) % on.size] for at in range(on.size)]


def alltoall(on: Exchange, items: Any) -> Steps:
    """Exchange one item between each pair of ranks."""
    received: list[Any] = [None] * on.size
    for away in range(on.size):
        to = (on.me + away) % on.size
        if to == on.me and not on.is_inter:
            received[to] = items[to]
        else:
            on.send(to, items[to])
    for away in range(on.size):
        source = (on.me - away) % on.size
        if source != on.me or on.is_inter:
            received[source] = yield on.of(source)
    return received


def reduce(on: Exchange, item: bytes, combine: Combine, root: int) -> Steps:
    """Reduce all items to the root, in the order of the ranks."""
    if on.is_inter:
        if root == ROOT:
            return (yield on.of(0))
        if root >= 0:
            combined = yield from reduce(on.local, item, combine, 0)
            if on.me == 0:
                on.send(root, combined)
        return None
    # A binomial tree to rank 0: each rank combines the result of its own interval of ranks with that of the next interval.
    step = 1
    while step < on.size and not on.me & step:
        if on.me + step < on.size:
            item = combine(item, (yield on.of(on.me + step)))
        step *= 2
    if on.me:
        on.send(on.me - step, item)
    if root == 0:
        return item if on.me == 0 else None
    if on.me == 0:
        on.send(root, item)
    return (yield on.of(0)) if on.me == root else None


def allreduce(on: Exchange, item: bytes, combine: Combine) -> Steps:
    """Reduce the items of all ranks, or of the other group, and send the result to all ranks."""
    combined = yield from reduce(on.local, item, combine, 0)
    if on.is_inter and on.me == 0:
        on.send(0, combined)
        combined = yield on.of(0)
    return (yield from bcast(on.local, combined, 0))


def reduce_scatter(on: Exchange, data: bytes, sizes: list[int], combine: Combine) -> Steps:
    """Reduce all items, and scatter parts of the given sizes, in bytes, to the ranks."""
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    parts = [(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    if on.is_inter:
        combined = yield from reduce(on.local, data, combine, 0)
        if on.me == 0:
            on.send(0, combined)
            combined = yield on.of(0)
        items = [combined[first:last] for first, last in parts] if on.me == 0 else None
        return (yield from scatter(on.local, items, 0))
    received = yield from alltoall(on, [data[first:last] for first, last in parts])
    combined = received[0]
    for item in received[1:]:
        combined = combine(combined, item)
    return combined


def scan(on: Exchange, item: bytes, combine: Combine) -> Steps:
    """Inclusive scan: each rank gets the reduction of the items of all ranks up to itself."""
    step = 1
    while step < on.size:
        if on.me + step < on.size:
            on.send(on.me + step, item)
        if on.me >= step:
            item = combine((yield on.of(on.me - step)), item)
        step *= 2
    return item


def exscan(on: Exchange, item: bytes, combine: Combine) -> Steps:
    """Exclusive scan: each rank but the first gets the reduction of the items of all ranks before it."""
    combined = yield from scan(on, item, combine)
    if on.me + 1 < on.size:
        on.send(on.me + 1, combined)
    return (yield on.of(on.me - 1)) if on.me else None


def neighbours(on: Exchange, items: list[Any], destinations: list[int], sources: list[int], is_grid: bool) -> Steps:
    """Send an item to each destination, and return the items of the sources. In a grid, an item that is sent upwards is received from below."""
    for at, (to, item) in enumerate(zip(destinations, items, strict=True)):
        if to >= 0:
            on.send(to, (at ^ 1 if is_grid else None, item))
    received: list[Any] = [None] * len(sources)
    for at, source in enumerate(sources):
        if source >= 0:
            place, item = yield on.of(source)
            received[at if place is None else place] = item
    return received
