"""A group whose largest call fits into the store of a server ends, however much its data are together."""

import gridloom as gl
import numpy as np
import pytest

FUNCTIONS = """
import gridloom as gl

@gl.function
def step(x: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    return x + 1

@gl.function
def add(x: gl.Array["float64", "n"], y: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    return x + y
"""
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    module = tmp_path_factory.mktemp("small") / "small.py"
    module.write_text(FUNCTIONS)
    with gl.local(servers=1, memory=8 * MEBIBYTE, functions=[module]) as grid:
        yield grid


@pytest.mark.parametrize("heuristic", ["auto", "heft", "mct", "round-robin", "greedy", "min-min"])
def test_chains_with_more_results_than_the_store_holds(grid, heuristic):
    step = grid.function("small/step")
    with grid.group(heuristic):
        chains = []
        for number in range(10):
            x = np.full(MEBIBYTE // 8, float(number))
            for _ in range(3):
                x = step(x)
            chains.append(x)
    assert [chain.get()[0] for chain in chains] == [number + 3.0 for number in range(10)]


def test_results_that_are_read_again_come_back(grid):
    step, add = grid.function("small/step"), grid.function("small/add")
    with grid.group("round-robin"):
        made = [step(np.full(MEBIBYTE // 8, float(number))) for number in range(12)]
        sums = [add(made[number], made[-1 - number]) for number in range(6)]
        total = sums[0]
        for term in sums[1:]:
            total = add(total, term)
    assert total.get()[0] == sum(number + 1.0 for number in range(12))
    assert [one.get()[0] for one in made] == [number + 1.0 for number in range(12)]


def test_a_call_that_never_fits_says_so(grid):
    add = grid.function("small/add")
    with grid.group("heft"):
        total = add(np.zeros(MEBIBYTE // 2), np.zeros(MEBIBYTE // 2))
    with pytest.raises(gl.NotMapped, match="largest store"):
        total.get()
