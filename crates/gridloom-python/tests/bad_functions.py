"""Functions that spoil something, as `bad/...`, and what the tests of them share. Each harms its own call at most: the caller gets a
named error, and the slot takes the next call.
"""

import sys
import time
from pathlib import Path

DECLARED = '''
import os
import pickle
import time

import gridloom as gl
import numpy as np


@gl.function
def hang() -> None:
    while True:
        time.sleep(0.01)


@gl.function
def fails(characters: int) -> None:
    raise ValueError("x" * characters)


@gl.function
def forks(x: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    child = os.fork()
    if child == 0:
        return 0 * x
    os.waitpid(child, 0)
    return x + 1


@gl.function
def zeros(n: int) -> gl.Array["float64", "n"]:
    return np.zeros(n)


@gl.function
def doubles(x: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    return 2 * x


@gl.function
def in_place(x: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    x *= 2
    return x


@gl.function
def four(pickled: bytes) -> gl.Array["float64", 4]:
    return pickle.loads(pickled)


@gl.function
def none(pickled: bytes) -> gl.Array["float64", 0, 3]:
    return pickle.loads(pickled)


@gl.function
def integer(pickled: bytes) -> int:
    return pickle.loads(pickled)


@gl.function
def number(pickled: bytes) -> float:
    return pickle.loads(pickled)


@gl.function
def byte(pickled: bytes) -> np.uint8:
    return pickle.loads(pickled)


@gl.function
def text(pickled: bytes) -> str:
    return pickle.loads(pickled)


@gl.function
def length(text: str) -> int:
    return len(text)


@gl.function
def single(pickled: bytes) -> np.float32:
    return pickle.loads(pickled)


@gl.function
def pair(pickled: bytes) -> tuple[int, float]:
    return pickle.loads(pickled)
'''


def is_free(grid):
    return grid.run(abs, -42).get(60) == 42


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_in(thread, function):
    """Whether a thread is in that function."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


def wait_until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)
