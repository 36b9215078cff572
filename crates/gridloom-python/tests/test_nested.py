"""Functions that call others: they give up their slots while they wait."""

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


def test_slots_are_whole_afterwards(nested):
    """Each server runs one call at a time again, in a worker that is there."""
    pids = {call.get() for call in [nested.function("nested/pid").submit() for _ in range(40)]}
    assert len(pids) <= 4
