"""Errors that nothing can be done with, and callbacks that fail or wait, harm no other call of the session."""

import sys
import threading
import warnings

import gridloom as gl
import numpy as np
import pytest
from gridloom.calls.unread_errors import UnreadErrors
from sent_functions import twice

X = np.ones(3)
# What unpickling a result waits for, in this program.
may_load = threading.Event()


class Bad(Exception):
    def __str__(self):
        raise ValueError("no text")


class Worse(Exception):
    def __str__(self):
        raise SystemExit(3)


class Odd(Exception):
    def with_traceback(self, _):
        raise ValueError("no traceback")

    def __eq__(self, _):
        raise ValueError("equal to nothing")


def raise_it(error, *arguments):
    raise error(*arguments)


def wait_here():
    return may_load.wait(60)


class Slow:
    def __reduce__(self):
        return wait_here, ()


def slow():
    return Slow()


@pytest.mark.parametrize("error", [Bad, Worse, Odd, gl.RemoteError, gl.ServerLost, gl.ArgumentError, gl.Crashed])
def test_an_error_of_any_class_is_raised_and_the_next_call_ends(grid, error):
    failed = grid.run(raise_it, error, *(["mine"] if issubclass(error, gl.GridloomError) else []))
    assert type(failed.exception(60)) is error
    retried = grid.options(retries=1).run(raise_it, error)
    assert type(retried.exception(60)) is error
    assert grid.run(twice, 2).get(60) == 4


def test_an_executor_raises_an_error_of_gridloom_that_a_function_raised(grid):
    with gl.Executor(grid=grid) as executor:
        assert type(executor.submit(raise_it, gl.RemoteError, "mine").exception(60)) is gl.RemoteError
        assert executor.submit(twice, 2).result(60) == 4


@pytest.mark.parametrize("error", [Bad, Worse])
def test_an_unread_error_without_a_text_is_reported(program, error):
    unread = UnreadErrors()
    unread.report(error(), "f")
    assert "its text cannot be made" in unread.take(True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with gl.local(servers=1) as grid:
            call = grid.run(raise_it, error)
            gl.wait([call], timeout=60)
            del call
    assert "its text cannot be made" in str(told[0].message)


@pytest.mark.parametrize("kind", ["any function", "with types"])
def test_a_callback_may_end_as_it_likes(grid, kind, caplog):
    called, end = threading.Event(), threading.Event()
    held = grid.run(twice, 1) if kind == "any function" else grid.function("tests/halve").submit(X)
    held.add_done_callback(lambda _: end.wait(60))
    held.add_done_callback(lambda _: sys.exit(3))
    held.add_done_callback(lambda _: called.set())
    end.set()
    assert called.wait(60)
    assert grid.run(twice, 2).get(60) == 4
    assert set(gl.as_completed([grid.run(twice, 2)], timeout=60))


@pytest.mark.parametrize("kind", ["any function", "with types"])
def test_a_callback_may_wait_for_a_call(grid, kind):
    got, told = [], threading.Event()

    def follow(_):
        got.append(grid.run(twice, 2).get(60))
        got.append(grid.function("tests/halve").submit(X).result(60)[1])
        told.set()

    call = grid.run(twice, 1) if kind == "any function" else grid.function("tests/halve").submit(X)
    call.add_done_callback(follow)
    assert told.wait(60) and got == [4, 0.5]


def test_callbacks_are_called_one_after_another(grid):
    busy, overlaps, left = [], [], threading.Semaphore(0)

    def note(_):
        overlaps.extend(busy)
        busy.append(1)
        busy.pop()
        left.release()

    for n in range(200):
        grid.run(twice, n).add_done_callback(note)
    assert all(left.acquire(timeout=60) for _ in range(200)) and not overlaps


def test_a_session_that_is_closed_ends_the_wait_of_a_callback(program, gate):
    errors, waits = [], threading.Event()

    def follow(_):
        held = grid.run(wait_here)
        waits.set()
        errors.append(held.exception(60))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with gl.local(servers=1) as grid:
            grid.run(twice, 1).add_done_callback(follow)
            assert waits.wait(60)
    assert [type(error) for error in errors] == [gl.UsageError]


def test_a_result_that_takes_long_to_unpickle_holds_up_no_other_call(grid):
    may_load.clear()
    held = grid.run(slow)
    try:
        assert [grid.run(twice, n).get(60) for n in range(20)] == list(range(0, 40, 2))
        assert grid.run(list, (1, "c")).get(60) == [1, "c"]
        assert not held.done()
    finally:
        may_load.set()
    assert held.get(60) is True
