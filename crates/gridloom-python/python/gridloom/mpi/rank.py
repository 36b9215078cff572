"""A rank: a chare with a stack of its own. The program runs and blocks on this stack, while other ranks of the element run.

The stack is a greenlet. A call that has to wait switches to the element's scheduler, and the awaited message switches back. Ranks of one
element share its thread, and their messages reach the scheduler like those of other chares.
"""

from __future__ import annotations

import itertools
import os
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from .. import chares
from .matching import Envelope, Matching
from .private import Modules


class Stack(greenlet):
    """The stack of a rank."""

    rank: Rank


def current() -> Rank:
    """Return the rank whose stack this code runs on."""
    try:
        return getcurrent().rank  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        raise RuntimeError(
            "MPI calls are made by the thread of a rank: this is another thread, an operation of a reduction, or no program of "
            "gridloom mpirun"
        ) from None


class Program:
    """The program that all ranks run, and the number of ranks.

    Parameters
    ----------
    run : function
        Runs the program with the modules of a rank, and returns its exit status.
    modules : function
        Creates the modules of a rank.
    communicators : function
        Creates the communicators of the calling rank, by name.
    size : int
        Number of ranks.
    """

    def __init__(
        self, run: Callable[[Modules], int], modules: Callable[[], Modules], communicators: Callable[[], dict[str, Any]], size: int
    ) -> None:
        self.run = run
        self.modules = modules
        self.communicators = communicators
        self.size = size
        #: The ranks of this process, by number.
        self.ranks: dict[int, Rank] = {}


class Rank(chares.Chare):
    """One rank of the world."""

    def __init__(self, program: Program) -> None:
        self.number = self.index[0]
        self.size = program.size
        self.matching = Matching(self._matched)
        self.modules = program.modules()
        self.result: int | None = None
        #: Communicators and other objects of this rank, by name.
        self.own: dict[str, Any] = {}
        self.waits_for: Any = None
        self._program = program
        self._is_ready: Callable[[], bool] | None = None
        self._tickets = itertools.count()
        self._unaccepted: dict[int, Callable[[], None]] = {}
        self._stack = Stack(self._main)
        self._stack.rank = self
        self._clock = (0.0, 0.0)
        program.ranks[self.number] = self

    # Entry methods: the scheduler calls them.

    def begin(self) -> None:
        """Run the program until it waits."""
        self._run()

    def arrive(self, context: int, source: int, tag: int, data: Any, ticket: tuple[int, int] | None) -> None:
        """Receive a message."""
        self.matching.arrive(context, Envelope(source, tag, data, ticket))
        self._go_on()

    def accepted(self, ticket: int) -> None:
        """Resume a send that waited until another rank had matched its message."""
        self._unaccepted.pop(ticket)()
        self._go_on()

    def resume(self) -> None:
        """Continue after `give_way`."""
        self._run()

    def _go_on(self) -> None:
        if self._is_ready is not None and self._is_ready():
            self._is_ready = None
            self._run()

    def _run(self) -> None:
        self.modules.enter()
        self._clock = (chares.now(), time.perf_counter())
        self._stack.switch()

    def _main(self) -> None:
        self.own = self._program.communicators()
        try:
            code = self._program.run(self.modules)
        except GreenletExit:
            # The program has ended; this stack is dropped.
            return
        except BaseException as error:
            text = "".join(traceback.format_exception(type(error), error, _of_program(error.__traceback__)))
            os.write(2, f"rank {self.number}:\n{text}".encode())
            self.abort(1)
        self.result = code
        self.contribute(code, "max", chares.exit)

    # Called by the rank's own code, on its stack.

    def send(self, to: int, context: int, source: int, tag: int, data: Any, on_accepted: Callable[[], None] | None = None) -> None:
        """Send to a rank of the world; `source` is the sender's rank in the communicator. Never waits."""
        ticket = None
        if on_accepted is not None:
            ticket = (self.number, next(self._tickets))
            self._unaccepted[ticket[1]] = on_accepted
        if to == self.number:
            self.matching.arrive(context, Envelope(source, tag, data, ticket))
        else:
            self.array[to].arrive(context, source, tag, data, ticket)
            other = self._program.ranks.get(to)
            if (other is None or other.element != self.element) and getcurrent() is self._stack:
                # The scheduler sends the message on its next turn. It must not wait for the next computation of this rank.
                self.give_way()

    def wait_until(self, is_ready: Callable[[], bool], what: Any) -> None:
        """Let other ranks run until the condition holds. `what` describes it in errors."""
        if is_ready():
            return
        if getcurrent() is not self._stack:
            current()
        self.waits_for, self._is_ready = what, is_ready
        self._to_scheduler()
        self.waits_for = None

    def give_way(self) -> None:
        """Let the other ranks run and the connections be served once."""
        self.this.resume()
        self._to_scheduler()

    def abort(self, code: int) -> None:
        """End the program on all elements; does not return."""
        chares.exit(code)
        while True:
            self._to_scheduler()

    def now(self) -> float:
        """Return the time, seconds."""
        began, counter = self._clock
        return began + time.perf_counter() - counter

    def _to_scheduler(self) -> None:
        scheduler = self._stack.parent
        assert scheduler is not None, "a stack that runs has one"
        scheduler.switch()

    def _matched(self, envelope: Envelope) -> None:
        if envelope.ticket is not None:
            rank, ticket = envelope.ticket
            (self.this if rank == self.number else self.array[rank]).accepted(ticket)


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Remove the frames of this package above the program."""
    own = os.path.dirname(__file__)
    while trace is not None and trace.tb_next is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == own:
        trace = trace.tb_next
    return trace
