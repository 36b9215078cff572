"""Functions that call others: they give up their slots while they wait."""

import asyncio
import concurrent.futures
import time

import gridloom as gl
import numpy as np
import pytest

FUNCTIONS = """
import os
import gridloom as gl

@gl.function
def tree(depth: int) -> int:
    if depth == 0:
        return 1
    with gl.connect() as grid:
        below = [grid.function("nested/tree").submit(depth - 1) for _ in range(2)]
        return 1 + sum(call.get() for call in below)

@gl.function
def chain(depth: int) -> int:
    if depth == 0:
        return 0
    with gl.connect() as grid:
        return 1 + grid.function("nested/chain")(depth - 1)

@gl.function
def product(n: int) -> float:
    with gl.connect() as grid:
        square = grid.function("nested/square")
        with grid.group("heft"):
            parts = [square(float(i)) for i in range(n)]
        return sum(part.get() for part in parts)

@gl.function
def square(x: float) -> float:
    return x * x

@gl.function
def fails_below(x: float) -> float:
    with gl.connect() as grid:
        return grid.function("nested/fails")(x)

@gl.function
def fails(x: float) -> float:
    raise ValueError(f"{x} is not wanted")

@gl.function
def pid() -> int:
    return os.getpid()
"""


class Meetings:
    """Where calls say what they do, and wait for what others have said: files."""

    def __init__(self, folder):
        self.folder = folder

    def say(self, what):
        (self.folder / what).touch()

    def hear(self, what):
        while not (self.folder / what).exists():
            time.sleep(0.001)


@pytest.fixture(scope="module")
def nested(program, tmp_path_factory):
    module = tmp_path_factory.mktemp("nested") / "nested.py"
    module.write_text(FUNCTIONS)
    with gl.local(servers=2, slots=1, functions=[module]) as grid:
        yield grid


def test_a_tree_of_calls_ends_on_two_servers_of_one_slot(nested):
    assert nested.function("nested/tree")(5) == 63


def test_a_chain_is_deeper_than_there_are_slots(nested):
    assert nested.function("nested/chain")(12) == 12


def test_many_calls_that_call_end(nested):
    chain = nested.function("nested/chain")
    assert [call.get() for call in [chain.submit(1) for _ in range(10)]] == [1] * 10


def test_a_function_maps_a_group(nested):
    assert nested.function("nested/product")(6) == float(np.sum(np.arange(6.0) ** 2))


def test_an_error_below_comes_up(nested):
    with pytest.raises(gl.RemoteError, match="3.0 is not wanted"):
        nested.function("nested/fails_below")(3.0)
    assert nested.function("nested/chain")(2) == 2


def test_functions_find_their_grid_whatever_the_user_has_chosen(program, tmp_path, monkeypatch):
    monkeypatch.setenv("GRIDLOOM_GRID", "another")
    module = tmp_path / "nested.py"
    module.write_text(FUNCTIONS)
    with gl.local(servers=1, functions=[module]) as grid:
        assert grid.function("nested/chain")(1) == 1


def test_slots_are_whole_afterwards(nested):
    """Each server runs one call at a time again, in a worker that is there."""
    pids = {call.get() for call in [nested.function("nested/pid").submit() for _ in range(40)]}
    assert len(pids) <= 4


def inner(x):
    return x + 1


def compute_beside(meetings):
    """Makes a call, and computes until the program has seen that nothing else runs."""
    with gl.connect() as grid:
        call = grid.run(inner, 1)
        meetings.say("computes")
        meetings.hear("goes on")
        return call.get()


WAITS = {
    "get": lambda grid: grid.run(inner, 1).get(),
    "exception": lambda grid: grid.run(inner, 1).exception() or 2,
    "await": lambda grid: asyncio.run(awaited(grid)),
    "map": lambda grid: list(grid.map(inner, [1]))[0],
    "wait": lambda grid: gl.wait([grid.run(inner, 1)]).done.pop().get(),
    "as_completed": lambda grid: next(gl.as_completed([grid.run(inner, 1)])).get(),
    "wait of the standard library": lambda grid: concurrent.futures.wait([grid.run(inner, 1)]).done.pop().get(),
    "as_completed of the standard library": lambda grid: next(concurrent.futures.as_completed([grid.run(inner, 1)])).get(),
    "executor": lambda grid: ended(grid),
    "stream": lambda grid: next(grid.stream(map, inner, [1])),
}


async def awaited(grid):
    return await grid.run(inner, 1)


def ended(grid):
    with gl.Executor(grid=grid) as executor:
        call = executor.submit(inner, 1)
    return call.get()


def wait_by(kind):
    with gl.connect() as grid:
        return WAITS[kind](grid)


@pytest.mark.parametrize("kind", WAITS)
def test_each_kind_of_wait_releases_the_slot(program, kind):
    with gl.local(servers=1) as grid:
        assert grid.run(wait_by, kind).get(60) == 2


def test_a_function_keeps_its_slot_while_it_computes_beside_a_call(program, tmp_path):
    meetings = Meetings(tmp_path)
    with gl.local(servers=1) as grid:
        outer = grid.run(compute_beside, meetings)
        meetings.hear("computes")
        other = grid.run(inner, 2)
        # Neither the call of the function nor this one begins.
        with pytest.raises(TimeoutError):
            other.get(0.5)
        assert not outer.done()
        meetings.say("goes on")
        assert outer.get(60) == 2 and other.get(60) == 3
