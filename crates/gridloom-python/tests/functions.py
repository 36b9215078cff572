"""Functions that the tests offer."""

import os
import signal
import sys
import time

import gridloom as gl
import numpy as np

gl_module = "tests"


def _echo(dtype, order=None):
    def echo(a):
        return a

    extra = () if order is None else (order,)
    echo.__annotations__ = {"a": gl.Array[(dtype, "m", "n", *extra)], "return": gl.Array[(dtype, "m", "n", *extra)]}
    return echo


DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 longdouble complex64 complex128 "
    "clongdouble"
).split()
for _dtype in DTYPES:
    globals()[f"echo_{_dtype}"] = gl.function(name=f"echo_{_dtype}")(_echo(_dtype))
    globals()[f"echo_f_{_dtype}"] = gl.function(name=f"echo_f_{_dtype}")(_echo(_dtype, gl.F))


@gl.function
def echo0(a: gl.Array["float64"]) -> gl.Array["float64"]:
    return a


@gl.function
def scalars(
    i: int, x: float, z: complex, t: bool, s: str, b: bytes, f: np.float32, u: np.uint8
) -> tuple[int, float, complex, bool, str, bytes, np.float32, np.uint8]:
    return i, x, z, t, s, b, f, u


@gl.function(work="2*m*n*k")
def matmul(a: gl.Array["float64", "m", "k"], b: gl.Array["float64", "k", "n"]) -> gl.Array["float64", "m", "n"]:
    """c := a b"""
    return a @ b


@gl.function
def statistics(x: gl.Array["float64", "n"]) -> tuple[gl.Out["mean", float], gl.Out["ends", gl.Array["float64", 2]]]:
    return float(x.mean()), np.array([x[0], x[-1]])


@gl.function
def inner(x: gl.Array["float64", "n"], n: int) -> gl.Array["float64", "n-2"]:
    return x[1:-1]


@gl.function
def halve(x: gl.Array["float64", "n"]) -> tuple[gl.Array["float64", "n"], float]:
    y = x / 2
    return y, float(np.abs(y).max())


@gl.function
def flags(x: gl.Array["float64", "n"]) -> str:
    return f"{x.flags.writeable} {x.ctypes.data % 64} {x.dtype.isnative}"


@gl.function
def write(x: gl.Array["float64", "n"]) -> None:
    x[0] = 1


@gl.function
def nothing() -> None:
    pass


@gl.function
def fail(message: str) -> None:
    raise ValueError(message)


@gl.function
def wrong_shape(n: int) -> gl.Array["float64", "n"]:
    return np.zeros(n + 1)


@gl.function
def wrong_dtype(n: int) -> gl.Array["float64", "n"]:
    return np.zeros(n, dtype="float32")


@gl.function
def wrong_count() -> tuple[float, float]:
    return (1.0,)


@gl.function
def wrong_scalar() -> int:
    return 2.5


@gl.function
def leave() -> None:
    sys.exit(3)


@gl.function
def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@gl.function
def server() -> int:
    """Process of the server."""
    return os.getppid()


@gl.function
def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@gl.function
def hold(x: gl.Array["float64", "n"], gate: str) -> gl.Array["float64", "n"]:
    """Tell that it runs, by its server's process in the file; then wait until there is one named `.open` too."""
    try:
        with open(gate, "x") as file:
            file.write(str(os.getppid()))
    except FileExistsError:
        pass
    while not os.path.exists(gate + ".open"):
        time.sleep(0.001)
    return x + 1
