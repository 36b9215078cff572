"""Servers with little room: a group whose largest call fits into the store ends, and few descriptors mean few calls at a time."""

import json
import subprocess
import sys
from pathlib import Path

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
PROGRAM = Path(gl.__file__).parent / "bin" / "gridloom"


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


def test_evicted_results_that_are_read_again_are_fetched(grid):
    step, add = grid.function("small/step"), grid.function("small/add")
    with grid.group("round-robin"):
        made = [step(np.full(MEBIBYTE // 8, float(number))) for number in range(12)]
        sums = [add(made[number], made[-1 - number]) for number in range(6)]
        total = sums[0]
        for term in sums[1:]:
            total = add(total, term)
    assert total.get()[0] == sum(number + 1.0 for number in range(12))
    assert [one.get()[0] for one in made] == [number + 1.0 for number in range(12)]


def test_a_call_that_never_fits_reports_it(grid):
    add = grid.function("small/add")
    with grid.group("heft"):
        total = add(np.zeros(MEBIBYTE // 2), np.zeros(MEBIBYTE // 2))
    with pytest.raises(gl.NotRun, match="largest store"):
        total.get()


@pytest.mark.parametrize("way", [(), ("--no-shared-memory",)], ids=["shared", "tcp"])
def test_few_descriptors_mean_fewer_calls_at_a_time(program, way):
    """Each large datum takes one, and so does each result that the program keeps in shared memory."""
    functions = Path(__file__).parent / "functions.py"
    command = [PROGRAM, "serve", functions, "--no-agent", "--slots", "4", "--models", "none", "--python", sys.executable, *way]
    limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *command, "--json", "--quiet", "--until-stdin-closes"]
    with subprocess.Popen(limited, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        with gl.connect(servers=[json.loads(server.stdout.readline())["address"]]) as grid:
            halve = grid.function("tests/halve")
            calls = [halve.submit(np.full(30_000, float(n))) for n in range(200)]
            assert [call.get()[0][0] for call in calls] == [n / 2 for n in range(200)]
        server.stdin.close()


def test_slots_without_descriptors_for_them_are_refused(program):
    command = [PROGRAM, "serve", "--no-functions", "--no-agent", "--slots", "16"]
    limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *command]
    ended = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "16 slots need at least 147 descriptors, but the limit of this process is 64: raise the limit" in ended.stderr
