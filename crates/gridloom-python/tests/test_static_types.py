"""A program of a user under ``mypy --strict``."""

import pytest
from static_types import mypy

pytest.importorskip("mypy", reason="mypy is not installed")

PROGRAM = '''
from typing import Annotated

import gridloom as gl
import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@gl.function(work="2*m*n*k")
def matmul(a: gl.Array[Doubles, "m", "k"], b: gl.Array[Doubles, "k", "n", gl.F]) -> gl.Array[Doubles, "m", "n"]:
    return a @ b


@gl.function
def ends(x: gl.Array[Doubles, "n"]) -> tuple[gl.Out[float, "mean"], gl.Out[gl.Array[Doubles, 2], "ends"]]:
    return float(x.mean()), np.array([x[0], x[-1]])


@gl.function
def shifted(x: Annotated[Doubles, gl.Array["float64", "n"]], lag: int) -> gl.Array[NDArray[np.float64], "n-lag"]:
    return x[lag:] - x[:-lag]


@gl.message
class Block:
    row: gl.ctypes.c_int
    data: gl.Array[Doubles, "m"]


def square(x: int) -> int:
    return x * x


def main() -> None:
    with gl.local(servers=2) as grid:
        dgemm = grid.function("linalg/dgemm")
        with grid.group() as group:
            handle = dgemm(np.eye(2), np.eye(2))
        print(handle.get(), group.report().measured_seconds)
        first: int = grid.run(square, 7).get()
        rest: list[int] = list(grid.map(square, range(9)))
        with gl.Executor(grid=grid) as executor:
            last: int = executor.submit(square, 3).result()
    mean, both = ends(np.ones(3))
    block = Block(row=first, data=both)
    print(rest, last, mean + 1.0, block.data.shape, matmul(both, both))
'''


def checked(tmp_path, text):
    (tmp_path / "program.py").write_text(text)
    return mypy("program.py", tmp_path).stdout


def test_mypy_is_content_with_a_program(tmp_path):
    said = checked(tmp_path, PROGRAM)
    assert said.startswith("Success"), said


def test_mypy_sees_arrays_and_results(tmp_path):
    wrong = PROGRAM + "\n\ndef wrong(x: gl.Array[Doubles, 'n']) -> str:\n    return ends(x)[0]\n\n\nmatmul('a', 'b')\n"
    said = checked(tmp_path, wrong).splitlines()
    assert 'got "float", expected "str"' in said[0], said
    assert 'Argument 1 to "matmul" has incompatible type "str"; expected "ndarray' in said[1], said
    assert said[-1].startswith("Found 3 errors"), said
