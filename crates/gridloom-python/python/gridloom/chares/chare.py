"""Chares and their arrays, entry methods, and the run of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .. import _gridloom
from .._gridloom import RawEntry as Entry
from .._gridloom import RawTarget as Target
from ..errors import ProcessError, UsageError
from . import migration as _migration
from .waiting import Future, Mailbox, Replies, forget, waiting_methods

#: Index of a chare in its array: an integer, or 1 to 6 of them.
Index: TypeAlias = "int | tuple[int, ...]"


def exit(value: Any = None) -> None:  # noqa: A001
    """End the program on all elements.

    Messages that wait are dropped. As a callback, it ends the program with the result.

    Parameters
    ----------
    value : object, optional
        Result of `run` on every element; it is pickled.
    """
    _gridloom.chare_exit(value)


Callback: TypeAlias = "Entry | Future | Callable[[Any], None]"


def _entry(callback: Callback) -> Entry | None:
    if callback is exit:
        return None
    if isinstance(callback, Future):
        return callback.entry
    if not isinstance(callback, Entry):
        raise UsageError(f"a callback is an entry method such as proxy[0].done, a future, or chares.exit; got {callback!r}")
    return callback


def when_quiet(callback: Callback) -> None:
    """Call back at quiescence: once no message waits or is in transit, on any element.

    Parameters
    ----------
    callback : entry method, or `exit`
        Called without arguments.
    """
    _gridloom.chare_when_quiet(_entry(callback))


def checkpoint(callback: Callback) -> None:
    """At quiescence, save all chares, and then call back.

    ``gridloom chares run --checkpoint DIR`` sets the folder; without it nothing is saved, and the callback is called nevertheless. A program that is
    restarted from the checkpoint (``--restart DIR``) gets the same callback. No entry method may wait then, and all arrays must be movable.

    Parameters
    ----------
    callback : entry method, or `exit`
        Called without arguments.
    """
    _gridloom.chare_checkpoint(_entry(callback))


def resize(elements: int) -> None:
    """From the next checkpoint on, continue with another number of processing elements: further ones join, or the last ones leave.

    The callback of that `checkpoint` comes among them, and all chares are where their placements put them on so many. The last number counts.
    With ``gridloom chares run`` on one machine the number can change, also without ``--checkpoint``. In simulation there can be as many as the
    deployment has.

    Parameters
    ----------
    elements : int
        At least 1. With a number that cannot be the program ends with an error.
    """
    if elements < 0:
        raise UsageError(f"resize({elements}): a number of processing elements, at least 1")
    _gridloom.chare_resize(elements)


def compute(flops: float) -> None:
    """Charge the work of this entry method for the time that it takes in simulation; without a charge, its time here counts.

    Parameters
    ----------
    flops : float
        Floating-point operations.
    """
    _gridloom.chare_compute(flops)


def now() -> float:
    """Return the time at which this entry method began, seconds: since 1970, or since the beginning in simulation."""
    return _gridloom.chare_now()


class Chare:
    """A message-driven object: derive from it. A method is an entry method unless its name begins with ``_``.

    An entry method runs with no other of its element beside it, and must not block. One that is ``async def`` waits by ``await``, while
    others run: for messages of a `Mailbox` or a `Channel`, for a `Future`, for a reduction (`all_reduce`). Within an element its arguments are
    the sender's objects, which the sender must not change afterwards; from another element they are received as pickles.
    """

    #: The own index: a tuple.
    index: tuple[int, ...]
    #: All chares of the own array: ``array[i, j].method(...)`` sends to one, ``array.method(...)`` to all.
    array: Target
    #: The processing element, and how many there are.
    element: int
    elements: int
    _replies: Replies | None = None
    #: How many of its entry methods wait.
    _waits: int = 0

    @property
    def this(self) -> Target:
        """This chare, for messages to itself."""
        return self.array[self.index]

    def contribute(
        self, value: Any = None, reducer: str | Reducer = "barrier", callback: Callback = exit, *, ordered: bool = False
    ) -> None:
        """Take part in the array's next reduction: each chare contributes once to each, all of them in the same order.

        Parameters
        ----------
        value : number, sequence of numbers, or for ``"gather"`` and a `Reducer` any object, optional
            What is combined, element by element. It is pickled to be gathered, and for a reducer of the program.
        reducer : {"barrier", "sum", "min", "max", "gather"} or Reducer, optional
            How.
        callback : entry method, or `exit`, optional
            Where the result goes: a number, an array if there are several, a list in the order of the indices for ``"gather"``. That of a
            barrier is called without arguments.
        ordered : bool, optional
            Whether to combine in the order of the indices, so that a sum of floats has the same bits for any placement.
        """
        how = reducer.number if isinstance(reducer, Reducer) else reducer
        _gridloom.chare_contribute(value, how, _entry(callback), ordered)

    def all_reduce(self, value: Any = None, reducer: str | Reducer = "barrier", *, ordered: bool = False) -> Future:
        """Contribute as `contribute` does; each chare of the array gets the result.

        Returns
        -------
        Future
            Of the result, or of ``None`` for a barrier.
        """
        future = self._made_replies().shared()
        self.contribute(value, reducer, future, ordered=ordered)
        return future

    def migrate_to(self, element: int) -> None:
        """Move to another element once this entry method has returned. Messages find the chare there, each once.

        Its state is pickled: what ``__getstate__`` gives (and ``__setstate__`` takes), else its attributes. A chare whose entry method waits
        cannot move, nor can one of a group.

        Parameters
        ----------
        element : int
            Number of a processing element, from 0 to below `elements`.
        """
        _gridloom.chare_migrate(element)

    def future(self) -> Future:
        """Make a future, for this chare to await and for any chare to send its value."""
        return self._made_replies().future()

    def _made_replies(self) -> Replies:
        if self._replies is None:
            self._replies = Replies(self)
        return self._replies

    def _reply(self, number: int, value: Any = None) -> None:
        self._made_replies().put(number, value)

    def _channel(self, key: Any, number: int, message: tuple[Any, ...]) -> None:
        self._made_replies().pipe(key).put(number, message)


class Job:
    """One element of a program, while its arrays are named. Every element names the same ones, in the same order."""

    def __init__(self, raw: _gridloom.RawJob) -> None:
        self._raw = raw

    @property
    def element(self) -> int:
        """Number of this processing element."""
        return self._raw.element

    @property
    def elements(self) -> int:
        """How many processing elements there are."""
        return self._raw.elements

    @property
    def sites(self) -> tuple[int, ...]:
        """The site of each element, as a number. A placement of the program's own may look at it."""
        return tuple(self._raw.sites)

    def reducer(self, function: Callable[[Any, Any], Any]) -> Reducer:
        """Make a reducer of the program's own known, for `Chare.contribute` and `Chare.all_reduce`.

        Parameters
        ----------
        function : callable
            Makes one value of two, and does nothing else. It has to be associative, and commutative unless contributions are ``ordered``. An
            exception ends the program with it.

        Returns
        -------
        Reducer
            The same on every element, if all make theirs in the same order.

        Examples
        --------
        >>> from gridloom import chares
        >>> class Word(chares.Chare):
        ...     def begin(self, longest):
        ...         self.contribute("ab" * self.index[0], longest, chares.exit)
        >>> def program(job):
        ...     longest = job.reducer(lambda one, other: max(one, other, key=len))
        ...     job.array(Word, 4).begin(longest)
        >>> chares.run(program).value
        'ababab'
        """
        return Reducer(self._raw.reducer(function))

    def array(
        self,
        cls: type[Chare],
        shape: int | tuple[int, ...] | None = None,
        args: tuple[Any, ...] = (),
        *,
        placement: str | ByCommunication | Callable[[tuple[int, ...], int], int] = "blocks",
        indices: Iterable[Index] | None = None,
        movable: bool = True,
    ) -> Target:
        """Name an array of chares.

        Parameters
        ----------
        cls : subclass of Chare
            Their class.
        shape : int or tuple of up to 6 ints, optional
            How many there are in each dimension.
        args : tuple, optional
            Arguments of its ``__init__``.
        placement : {"blocks", "round-robin", "by-site"}, ByCommunication or callable, optional
            Element on which each begins: ``placement(index, elements)`` returns the number of an element.
        indices : iterable of indices, optional
            Instead of a shape: the indices of a sparse array.
        movable : bool, optional
            Whether they can move to other elements.

        Returns
        -------
        Target
            All its chares.
        """
        if (shape is None) == (indices is None):
            raise UsageError("an array has a shape or indices, one of them")
        if not (isinstance(cls, type) and issubclass(cls, Chare)):
            raise UsageError(f"{cls!r} is no class derived from gridloom.chares.Chare")
        inherited = set(dir(Chare))
        members = ((name, getattr(cls, name)) for name in sorted(dir(cls)) if name not in inherited)
        methods = [name for name, member in members if callable(member) or isinstance(member, Mailbox)]

        def empty(array: Target, index: tuple[int, ...]) -> Chare:
            chare = cls.__new__(cls)
            chare.index, chare.array, chare.element, chare.elements = index, array, self.element, self.elements
            return chare

        def make(array: Target, index: tuple[int, ...]) -> Chare:
            chare = empty(array, index)
            chare.__init__(*args)  # type: ignore[misc]
            return chare

        def arrive(array: Target, index: tuple[int, ...], state: bytes) -> Chare:
            chare = empty(array, index)
            _migration.unpack(chare, state)
            chare.element = self.element
            return chare

        packing = (_migration.pack, arrive) if movable else None
        given = list(indices) if indices is not None else (shape,) if isinstance(shape, int) else shape
        return self._raw.array(cls.__name__, methods, given, indices is not None, placement, make, packing)

    def balance(self, name: str) -> None:
        """Have a load balancer move chares to other elements, whenever that pays.

        A chare moves when none of its entry methods waits. ``gridloom chares run --balance NAME`` chooses another balancer.

        Parameters
        ----------
        name : {"none", "greedy", "refine", "hierarchical", "grid-aware"}
            Every element names the same one.
        """
        self._raw.balance(name)

    def mailbox_bytes(self, limit: int) -> None:
        """Limit the bytes of messages from other elements that wait at an element.

        Past it messages wait at their own element. Chares that have more than the limit (64 MiB at most) wait there for one element are run no
        further until some have gone. Other chares run meanwhile.

        Parameters
        ----------
        limit : int, bytes, from 1 on
            Of pickled messages; 256 MiB if the program does not say. Every element names the same one.
        """
        self._raw.mailbox_bytes(limit)

    def group(self, cls: type[Chare], args: tuple[Any, ...] = ()) -> Target:
        """Name an array with one chare on each element; its index is the element's number.

        Parameters
        ----------
        cls : subclass of Chare
            Their class.
        args : tuple, optional
            Arguments of its ``__init__``.
        """
        return self.array(cls, self.elements, args, placement="round-robin", movable=False)


@dataclass(frozen=True)
class Reducer:
    """A reducer of the program's own: `Job.reducer` makes one. It can be sent in messages."""

    number: int


@dataclass(frozen=True)
class ByCommunication:
    """A placement by what the chares of an array send one another.

    Few bytes go between sites, then few between elements. Inside a site the chares that send to other sites are spread evenly:
    ``array[index].is_at_border`` tells them, so that a program can have messages for them run first, by ``with_priority``. Each element gets
    as many chares as any other, to within one. Source: recursive bisection with C. M. Fiduccia and R. M. Mattheyses' refinement (DAC 1982).

    >>> from gridloom import chares
    >>> ring = chares.ByCommunication([(at, (at + 1) % 8, 1000) for at in range(8)])
    """

    #: Pairs of indices, in either order, and the bytes that go between the two in a step. Every element states the same.
    edges: Iterable[tuple[Index, Index, int]]


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    #: Argument of `exit`, or the result of the reduction that ended the program.
    value: Any
    #: Whether this is the first element, so that one of them prints. In simulation it is.
    is_first: bool
    #: How many chares the load balancer moved. The first element knows.
    moved: int = 0


def run(program: Callable[[Job], None]) -> Ended:
    """Run a program of chares: its element, under ``gridloom chares run``; all elements, in simulation; else the only one.

    Parameters
    ----------
    program : callable
        Called with a `Job` on every element. It names the arrays, and sends the first messages.

    Returns
    -------
    Ended
        When a chare has ended the program.

    Raises
    ------
    SystemExit
        On an element without which the program goes on (`resize`), so that its process ends.
    ProcessError
        If an element is lost, or the program can never end.
    Exception
        Exception of an entry method on this element.
    """
    called: set[int] = set()

    def make(raw: _gridloom.RawJob) -> None:
        # An element makes its arrays again after another one was lost, or among another number of them.
        if raw.element in called:
            forget(raw.element)
        called.add(raw.element)
        program(Job(raw))

    try:
        value, is_first, moved, has_left = _gridloom.run_chares(make)
    except ProcessError as error:
        if "can never end" in str(error) and (waiting := waiting_methods()):
            raise ProcessError(f"{error}; here {waiting}") from None
        raise
    finally:
        forget()
    if has_left:
        raise SystemExit(0)
    return Ended(value, is_first, moved)
