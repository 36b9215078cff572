"""How entry methods of chares wait: for messages of mailboxes and channels, and for values of futures.

An ``async def`` entry method is a coroutine, driven by the element's scheduler without an event loop. It yields a `Wait` of its
chare. The awaited message resumes it, as part of the entry method of that message.

**Invariant:** a coroutine is resumed only within an entry method of its own chare, so everything that it sends and contributes
is attributed to that chare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from types import CoroutineType
from typing import Any, Protocol, overload

from .._gridloom import RawEntry, RawTarget, chare_entry
from ..errors import UsageError

#: Waits of this process that suspend a coroutine, in the order in which they began.
_waiting: dict[Wait, None] = {}
#: Largest number of waits that an error names.
_LISTED_MAX = 8


class Waiter(Protocol):
    """The part of `Chare` that waits use."""

    element: int
    index: tuple[int, ...]
    array: RawTarget
    _waits: int

    @property
    def this(self) -> RawTarget: ...
    def _made_replies(self) -> Replies: ...


class Wait:
    """One ``await`` of a coroutine."""

    __slots__ = ("_chare", "_coroutine", "_is_ready", "_value", "_what", "prefix")

    def __init__(self, chare: Waiter, what: str, prefix: tuple[Any, ...] = ()) -> None:
        self._chare = chare
        self._what = what
        # First arguments of the message that it waits for.
        self.prefix = prefix
        self._coroutine: CoroutineType[Any, Any, Any] | None = None
        self._is_ready = False
        self._value: Any = None

    @property
    def element(self) -> int:
        """Number of the processing element of its chare."""
        return self._chare.element

    def ready(self, value: Any) -> Wait:
        """Set the value; a waiting coroutine is resumed."""
        self._is_ready, self._value = True, value
        if self._coroutine is not None:
            coroutine, self._coroutine = self._coroutine, None
            self._chare._waits -= 1
            del _waiting[self]
            drive(self._chare, coroutine)
        return self

    def hold(self, chare: Waiter, coroutine: CoroutineType[Any, Any, Any]) -> bool:
        """Suspend a coroutine until this wait is over. Returns false if the coroutine may not wait for it."""
        if self._chare is not chare or self._coroutine is not None:
            return False
        self._coroutine = coroutine
        chare._waits += 1
        _waiting[self] = None
        return True

    def __await__(self) -> Generator[Wait, None, Any]:
        if not self._is_ready:
            yield self
        return self._value

    def __str__(self) -> str:
        method = "?" if self._coroutine is None else self._coroutine.__name__
        index = self._chare.index
        where = f"({index[0]})" if len(index) == 1 else str(index)
        first = f"({', '.join(map(repr, self.prefix))})" if self.prefix else ""
        return f"{type(self._chare).__name__}{where}.{method} waits for {self._what}{first}"

    def __reduce__(self) -> tuple[Any, ...]:
        raise UsageError(f"{self}: a chare whose entry method waits cannot be pickled, and so stays on its element")


def begin(chare: Waiter, outcome: Any) -> None:
    """Run the coroutine that an entry method has returned, if any."""
    if isinstance(outcome, CoroutineType):
        drive(chare, outcome)


def drive(chare: Waiter, coroutine: CoroutineType[Any, Any, Any]) -> None:
    """Run a coroutine until it waits or ends."""
    try:
        wait = coroutine.send(None)
    except StopIteration:
        return
    if not (isinstance(wait, Wait) and wait.hold(chare, coroutine)):
        name = coroutine.__name__
        coroutine.close()
        raise UsageError(
            f"{type(chare).__name__}.{name} awaits {wait!r}; an entry method can await only mailboxes, futures, channels and "
            "reductions of its own chare, and each of them only once at a time"
        )


def waiting_methods() -> str:
    """Describe the entry methods of this process that wait, and what they wait for. Empty if none waits."""
    waiting = [str(wait) for wait in _waiting]
    more = [f"and {len(waiting) - _LISTED_MAX} more"] if len(waiting) > _LISTED_MAX else []
    return "; ".join(waiting[:_LISTED_MAX] + more)


def forget(element: int | None = None) -> None:
    """Drop the coroutines of a program that has ended, or of an element that restarts."""
    for wait in [wait for wait in _waiting if element is None or wait.element == element]:
        del _waiting[wait]


class Box:
    """The messages of one chare's mailbox: ``await self.name.receive(...)``."""

    def __init__(self, chare: Waiter, name: str) -> None:
        self._chare = chare
        self._name = name
        self._messages: deque[tuple[Any, ...]] = deque()
        self._waits: list[Wait] = []

    def __call__(self, *message: Any) -> None:
        """Accept a message. Called by the scheduler."""
        for at, wait in enumerate(self._waits):
            count = len(wait.prefix)
            if message[:count] == wait.prefix:
                del self._waits[at]
                wait.ready(_unpacked(message[count:]))
                return
        self._messages.append(message)

    def receive(self, *first: Any) -> Wait:
        """Wait for the earliest message whose first arguments are these.

        Parameters
        ----------
        *first : object
            For example a step or a tag. Without arguments, any message is received.

        Returns
        -------
        awaitable
            The message's other arguments: ``None`` if there are none, the argument itself if there is one, else a tuple.
        """
        count = len(first)
        wait = Wait(self._chare, self._name, first)
        for at, message in enumerate(self._messages):
            if message[:count] == first:
                del self._messages[at]
                return wait.ready(_unpacked(message[count:]))
        self._waits.append(wait)
        return wait


def _unpacked(arguments: tuple[Any, ...]) -> Any:
    return None if not arguments else arguments[0] if len(arguments) == 1 else arguments


class Mailbox:
    """An entry method without a body: its messages are kept until the chare receives them.

    >>> from gridloom import chares
    >>> class Adder(chares.Chare):
    ...     number = chares.Mailbox()
    ...     async def add(self, steps):
    ...         chares.exit([await self.number.receive(step) for step in range(steps)])
    >>> def program(job):
    ...     adder = job.array(Adder, 1)[0]
    ...     adder.add(2)
    ...     adder.number(1, "second")
    ...     adder.number(0, "first")
    >>> chares.run(program).value
    ['first', 'second']
    """

    _name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, chare: None, owner: type) -> Mailbox: ...

    @overload
    def __get__(self, chare: Waiter, owner: type) -> Box: ...

    def __get__(self, chare: Waiter | None, owner: type) -> Mailbox | Box:
        if chare is None:
            return self
        # Later look-ups find the box in the instance's dictionary, and do not call this method.
        box = chare.__dict__[self._name] = Box(chare, self._name)
        return box


class Future:
    """A value that is sent later: its chare awaits it, any chare sends it. `Chare.future` makes one.

    A future can be used as a callback, for example of `Chare.contribute`. It can be sent to other elements as an argument of a message.
    """

    def __init__(self, target: RawTarget, number: int, wait: Wait | None = None) -> None:
        self._target = target
        self._number = number
        self._wait = wait

    @property
    def entry(self) -> RawEntry:
        """The callback that sends the value."""
        return chare_entry(self._target, "_reply", self._number)

    def send(self, value: Any = None) -> None:
        """Send the value, from any chare, once."""
        self.entry(self._number, value)

    def __await__(self) -> Generator[Wait, None, Any]:
        if self._wait is None:
            raise UsageError("this future is another chare's: only the chare that made it can await it")
        return self._wait.__await__()

    def __reduce__(self) -> tuple[Any, ...]:
        return Future, (self._target, self._number)


class Replies:
    """The futures and channels of one chare."""

    def __init__(self, chare: Waiter) -> None:
        self._chare = chare
        self._waits: dict[int, Wait] = {}
        self._own = 0
        self._shared = 0
        self._pipes: dict[Any, Pipe] = {}
        # Number of channels that this chare has created to each other chare.
        self.channels: dict[Any, int] = {}

    def future(self) -> Future:
        self._own += 1
        return self._made(self._chare.this, 2 * self._own, f"future {self._own}")

    def shared(self) -> Future:
        """Make a future whose value is sent to all chares of the array. All of them must make the same number of such futures."""
        self._shared += 1
        return self._made(self._chare.array, 2 * self._shared + 1, f"reduction {self._shared}")

    def _made(self, target: RawTarget, number: int, what: str) -> Future:
        wait = self._waits[number] = Wait(self._chare, what)
        return Future(target, number, wait)

    def put(self, number: int, value: Any) -> None:
        wait = self._waits.pop(number, None)
        if wait is None:
            raise UsageError(f"future {number // 2} of {type(self._chare).__name__}{self._chare.index} got a second value")
        wait.ready(value)

    def pipe(self, key: Any) -> Pipe:
        if key not in self._pipes:
            self._pipes[key] = Pipe(self._chare, f"channel to {key[1]}")
        return self._pipes[key]


class Pipe:
    """One end of a channel: its messages in the order in which they were sent."""

    def __init__(self, chare: Waiter, what: str) -> None:
        self.box = Box(chare, what)
        self._next = 0
        self._early: dict[int, tuple[Any, ...]] = {}

    def put(self, number: int, message: tuple[Any, ...]) -> None:
        self._early[number] = message
        while self._next in self._early:
            message = self._early.pop(self._next)
            self._next += 1
            self.box(*message)


class Channel:
    """A channel between two chares. Each of them creates its own end. Messages are received in the order in which they were sent.

    Parameters
    ----------
    chare : Chare
        This chare: ``self``.
    other : Target
        The other chare. The first channel that this chare creates to the other is connected to the first that the other creates to
        this one, and so on.
    """

    def __init__(self, chare: Waiter, other: RawTarget) -> None:
        array, index, is_section = other.__reduce__()[1]
        if index is None or is_section:
            raise UsageError("a channel joins two chares: give one, such as self.array[1]")
        replies = chare._made_replies()
        number = replies.channels[array, index] = replies.channels.get((array, index), -1) + 1
        self._pipe = replies.pipe((array, index, number))
        own_array, own_index, _ = chare.this.__reduce__()[1]
        self._key = (own_array, own_index, number)
        self._entry = chare_entry(other, "_channel")
        self._sent = 0

    def send(self, *message: Any) -> None:
        """Send one or several objects, as one message. Never waits."""
        self._entry(self._key, self._sent, message)
        self._sent += 1

    def receive(self) -> Wait:
        """Wait for the next message.

        Returns
        -------
        awaitable
            The message: a tuple if it has several objects.
        """
        return self._pipe.box.receive()
