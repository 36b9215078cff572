"""Functions and modules of the program that ``gridloom.local`` and ``simulate`` offer."""

import os
import subprocess
import sys
import tempfile

import functions as module
import gridloom as gl
import numpy as np
import pytest

PROGRAM = """
import gridloom as gl
import numpy as np
from numpy.typing import NDArray

FACTOR = 3.0

def square(x: float) -> float:
    return FACTOR * x * x

@gl.function(work="n")
def scaled(x: gl.Array[NDArray[np.float64], "n"]) -> gl.Array[NDArray[np.float64], "n"]:
    return square(2.0) * x

with gl.local(servers=1, functions=[square, scaled]) as grid:
    print(grid.function("square")(3.0), grid.function("program/scaled").signature, grid.function("scaled")(np.ones(2)))
    print(hasattr(square, "__gridloom__"), square(1.0))
    print(grid.function(square)(1.0), grid.function(scaled).name, grid.function(grid.function("square")).name)
"""


def test_functions_of_the_main_module(program, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = [sys.executable, "program.py"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout.splitlines() == [
        "27.0 program/scaled(x: float64[n]; n: int64) -> out0: float64[n] [12. 12.]",
        "False 3.0",
        "3.0 program/scaled program/square",
    ], done.stderr
    assert not list(tmp_path.glob("gridloom-functions-*")), "the folder goes with the grid"


def test_modules_and_their_functions(program):
    with gl.local(servers=1, functions=[module]) as grid:
        np.testing.assert_array_equal(grid.function("tests/halve")(np.ones(2))[0], [0.5, 0.5])
    with gl.local(servers=1, functions=[module.halve]) as grid:
        np.testing.assert_array_equal(grid.function("tests/halve")(np.ones(2))[0], [0.5, 0.5])
        assert "tests/matmul" not in grid.functions()


def test_a_simulated_grid_takes_them(platform):
    def cube(x: float) -> float:
        return x**3

    with gl.simulate(platform, functions=[cube], execute=True) as grid:
        assert grid.function("test_offered/cube")(2.0) == 8.0


def no_annotation(x):
    return x


def test_what_names_no_function_is_reported(grid):
    for wrong, error, says in (
        ("other/halve", gl.UnknownName, "no server offers function 'other/halve'; did you mean tests/halve"),
        (module, gl.UsageError, "function: expected a name such as 'linalg/dgemm', or a declared function, got module"),
        (no_annotation, gl.InputError, r"parameter 'x' has no annotation; .* grid.run\(no_annotation, ...\)"),
        (len, gl.ArgumentError, "function: builtins:len is no function written in Python: run it by grid.run"),
    ):
        with pytest.raises(error, match=says):
            grid.function(wrong)


def test_a_grid_names_its_servers(grid, platform):
    assert repr(grid) == f"<gridloom.Grid: 2 servers: server-1, server-2; started {grid.started}>"
    with gl.simulate(platform) as simulated:
        assert repr(simulated) == "<gridloom.Grid: simulated, 3 servers: s0, s1, s2>"
    assert repr(simulated) == "<gridloom.Grid: closed>"


@pytest.mark.parametrize(
    ("functions", "error", "says"),
    [
        ([no_annotation], gl.InputError, r"no_annotation: parameter 'x' has no annotation; .* grid.run\(no_annotation, ...\)"),
        ([len], gl.ArgumentError, "builtins:len is no function written in Python: run it by grid.run"),
        ([3], gl.UsageError, "expected a path, a module or a function, got int 3"),
        ([sys], gl.UsageError, "module 'sys' has no Python file"),
        ([sys.modules["__main__"]], gl.UsageError, "the main module would run again on servers"),
        (no_annotation, gl.UsageError, r"expected a list of paths, modules and functions, .*; write \[...\]"),
        (module, gl.UsageError, "expected a list of paths, modules and functions"),
        ("functions.py", gl.UsageError, "expected a list of paths, modules and functions, got the path"),
    ],
)
def test_what_cannot_be_offered_is_reported(functions, error, says, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(error, match=says):
        gl.local(servers=1, functions=functions)
    assert not list(tmp_path.iterdir())
