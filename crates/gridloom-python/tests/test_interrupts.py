"""Ctrl-C, wherever it comes, leaves calls and sessions whole.

Python looks for interrupts after calls and at jumps back. One is raised at each such place in turn.
"""

import dis
import os
import sys
import threading

import gridloom as gl
import numpy as np
import pytest
from gridloom.common import thread_pool
from sent_functions import twice

_LOOKS = ("CALL", "JUMP_BACKWARD")
_FOLDERS = (os.path.dirname(gl.__file__), os.path.dirname(os.__file__) + "/concurrent", os.path.dirname(os.__file__) + "/threading.py")
X = np.ones(4)
# An interrupt may arrive while an object is deleted: Python then warns and continues.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interrupted(KeyboardInterrupt):
    pass


class Interrupts:
    """Interrupts the code in its ``with`` block at the place with this number; `places` is the number of places before it."""

    def __init__(self, number):
        self.number, self.places = number, 0

    def __enter__(self):
        self.tracer = self._call
        sys.settrace(self.tracer)
        return self

    def __exit__(self, kind, *_):
        sys.settrace(None)
        return kind is Interrupted

    def _call(self, frame, *_):
        code, before = frame.f_code, None
        if not code.co_filename.startswith(_FOLDERS):
            return None

        def step(frame, event, _):
            nonlocal before
            if event == "opcode":
                at, before = before, frame.f_lasti
                self._pass(code, at)
            return step

        frame.f_trace_opcodes = True
        return step

    def _pass(self, code, at):
        if at is not None and dis.opname[code.co_code[at]].startswith(_LOOKS):
            self.places += 1
            if self.places == self.number:
                # Python ends the tracing then.
                raise Interrupted(f"{code.co_filename}, {code.co_name}, after {at}")


def each(what):
    """Interrupt a function at each place in turn; what is to be checked is done after each `yield`."""
    number = 1
    while True:
        with Interrupts(number) as interrupts:
            what()
        yield number
        if interrupts.places < number:
            assert number > 10, "there are places"
            return
        number += 1


def test_a_call_of_any_function(program):
    with gl.local(servers=1) as grid:
        assert grid.run(twice, 1).get() == 2
        for place in each(lambda: grid.run(twice, 1).get(60)):
            assert grid.run(twice, 2).get(20) == 4, place


def test_calls_that_wait(program):
    """More than there are slots, so that some are sent by the thread that takes in ends."""
    with gl.local(servers=1) as grid:
        assert grid.run(twice, 1).get() == 2
        for place in each(lambda: [call.cancel() for call in [grid.run(twice, 1) for _ in range(3)]]):
            assert grid.run(twice, 2).get(20) == 4, place


def test_a_map(program):
    with gl.local(servers=1) as grid:
        assert grid.run(twice, 1).get() == 2
        for place in each(lambda: list(grid.map(twice, range(2)))):
            assert grid.run(twice, 2).get(20) == 4, place


@pytest.mark.parametrize("waits", [False, True], ids=["get", "result with a callback"])
def test_a_call_with_types(program, waits):
    """Its results are there afterwards, too."""
    with gl.local(servers=1) as grid:
        norm = grid.function("linalg/dnrm2")
        assert norm(X) == 2
        call = None

        def get():
            nonlocal call
            call = norm.submit(X)
            if waits:
                call.add_done_callback(lambda _: None)
            call.get()

        for place in each(get):
            assert call is None or call.get(20) == 2, place
            call = None


def test_an_interrupt_while_a_thread_is_started_is_not_hidden():
    """As where it comes when Python's own condition has not got its lock back."""

    class Thread(threading.Thread):
        def start(self):
            try:
                raise KeyboardInterrupt
            finally:
                threading.Lock().release()

    with pytest.raises(KeyboardInterrupt):
        thread_pool.start(Thread())
    pool = thread_pool.ThreadPool("test", 1, Thread)
    with pytest.raises(KeyboardInterrupt):
        pool.run(print)
    # None is taken for one that runs.
    pool._kind, done = threading.Thread, threading.Event()
    pool.run(done.set)
    assert done.wait(60)
