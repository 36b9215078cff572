"""The functions that experiments/alternatives.py runs on servers of Gridloom and on workers of Dask and Ray: the same bodies for all.

Hosts of the testbed are emulated: a call computes with the processors of this machine, and then waits until as much time has passed as
its operations take on a host of that speed. The kernels of Hydropad and of the protein search are the examples' own, called by ctypes.
"""

import ctypes
import pathlib
import socket
import time

import gridloom as gl
import numpy as np
from numpy.typing import NDArray

LIBRARIES = pathlib.Path(__file__).resolve().parents[1] / "target" / "experiments"
#: Speed of each host, in Gflop/s.
SPEEDS = {"s0": 1.0, "s1": 1.5, "s2": 2.0, "s3": 3.0}
#: Words of three residues, numbers of a hit, and hits of each query.
WORDS, FIELDS, LIMIT = 8000, 6, 50
#: Largest number of results that a task of a recorded workflow reads.
READS_MAX = 45

Numbers = gl.Array[NDArray[np.float64], "n"]
Matrix = gl.Array[NDArray[np.float64], "n", "n"]
Mesh = gl.Array[NDArray[np.float64], "n", "n", "n"]
State = gl.Array[NDArray[np.float64], "5", "n", "n", "n"]
Particles = gl.Array[NDArray[np.float64], "6", "p"]
libraries = {}


def library(name):
    """The kernels that alternatives.py has compiled."""
    if name not in libraries:
        libraries[name] = ctypes.CDLL(str(LIBRARIES / f"lib{name}.so"))
    return libraries[name]


def passed(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def wait_for(begun, work_flops):
    """Wait until a call that began at this time has taken as long as on its emulated host."""
    end = begun + work_flops / (SPEEDS[socket.gethostname()] * 1e9)
    time.sleep(max(end - time.perf_counter(), 0.0))


@gl.function(work="1", module="alternatives")
def nothing(x: float) -> float:
    return x


# ---- The chain of matrices


@gl.function(work="2*n*n*n", module="alternatives")
def product(a: Matrix, b: Matrix) -> Matrix:
    begun = time.perf_counter()
    c = a @ b
    wait_for(begun, 2.0 * len(a) ** 3)
    return c


# ---- The protein search


@gl.function(work="500*n", module="alternatives")
def index(
    residues: gl.Array[NDArray[np.int8], "n"], starts: gl.Array[NDArray[np.int32], "m"]
) -> gl.Array[NDArray[np.int32], "n+8001"]:
    """The index of a part: where the positions of each word begin, and the positions."""
    begun, table = time.perf_counter(), np.empty(len(residues) + WORDS + 1, np.int32)
    library("search").search_index(
        len(residues), passed(residues), len(starts) - 1, passed(starts), passed(table), passed(table[WORDS + 1 :])
    )
    wait_for(begun, 500.0 * len(residues))
    return table


@gl.function(work="2*n*q", module="alternatives")
def find(
    residues: gl.Array[NDArray[np.int8], "n"],
    starts: gl.Array[NDArray[np.int32], "m"],
    table: gl.Array[NDArray[np.int32], "t"],
    queries: gl.Array[NDArray[np.int8], "q"],
    begins: gl.Array[NDArray[np.int32], "k"],
    total: int,
    sequences: int,
) -> gl.Array[NDArray[np.float64], "(k-1)*50", "7"]:
    """Hits in a part: LIMIT rows for each query, of the E-value and the numbers of the hit; rows of zeros where there are fewer."""
    begun, number = time.perf_counter(), len(begins) - 1
    found, hits = np.zeros(number, np.int32), np.zeros((number * LIMIT, FIELDS), np.int32)
    evalues = np.zeros(number * LIMIT)
    stored = (
        len(residues),
        passed(residues),
        len(starts) - 1,
        passed(starts),
        passed(table),
        passed(table[WORDS + 1 :]),
    )
    asked = (len(queries), passed(queries), number, passed(begins), ctypes.c_long(total), sequences)
    library("search").search_search(
        *stored, *asked, ctypes.c_double(1e-3), LIMIT, passed(found), passed(hits), passed(evalues)
    )
    wait_for(begun, 2.0 * len(residues) * len(queries))
    return np.column_stack([evalues, hits])


# ---- Hydropad. Operations are those of a research code: more than the example's.


@gl.function(work="3000*n*n*n", module="alternatives")
def grav(strength: float, rho_dm: Mesh, rho_b: Mesh) -> Mesh:
    begun, phi = time.perf_counter(), np.empty_like(rho_dm)
    library("hydropad").hydropad_grav(len(phi), ctypes.c_double(strength), passed(rho_dm), passed(rho_b), passed(phi))
    wait_for(begun, 3000.0 * phi.size)
    return phi


@gl.function(work="1000*n*n*n", module="alternatives")
def initvel(
    gas: float, displacement: float, velocity: float, pressure: float, phi: Mesh
) -> tuple[gl.Array[NDArray[np.float64], "6", "n*n*n"], State]:
    """Positions and velocities of as many particles as there are cells, and the gas."""
    begun, n = time.perf_counter(), len(phi)
    moving, state = np.empty((6, n**3)), np.empty((5, n, n, n))
    numbers = map(ctypes.c_double, (gas, displacement, velocity, pressure))
    library("hydropad").hydropad_initvel(n, n, *numbers, passed(phi), passed(moving), passed(moving[3:]), passed(state))
    wait_for(begun, 1000.0 * phi.size)
    return moving, state


@gl.function(work="4500*n*n*n", module="alternatives")
def dark(mass: float, kick: float, drift: float, phi: Mesh, moving: Particles) -> tuple[Particles, Mesh]:
    begun, n, moving, rho = time.perf_counter(), len(phi), moving.copy(), np.empty_like(phi)
    numbers = map(ctypes.c_double, (mass, kick, drift))
    library("hydropad").hydropad_dark(n, n, *numbers, passed(phi), passed(moving), passed(moving[3:]), passed(rho))
    wait_for(begun, 4500.0 * phi.size)
    return moving, rho


@gl.function(work="9000*n*n*n", module="alternatives")
def bary(step: float, number: int, phi: Mesh, phi_old: Mesh, state: State) -> tuple[State, Mesh]:
    begun, n, state, rho = time.perf_counter(), len(phi), state.copy(), np.empty_like(phi)
    library("hydropad").hydropad_bary(
        n, ctypes.c_double(step), number, passed(phi), passed(phi_old), passed(state), passed(rho)
    )
    wait_for(begun, 9000.0 * phi.size)
    return state, rho


# ---- Recorded workflows


def program_of(reads):
    """A stand-in for a program that reads this many results: it waits, and returns an array."""
    inputs = "".join(f", a{number}: gl.Array[NDArray[np.float64], 'n{number}']" for number in range(reads))
    sums = "".join(f" + a{number}[0]" for number in range(reads))
    text = f"def program{reads}(seconds: float, count: int{inputs}) -> gl.Array[NDArray[np.float64], 'count']:\n"
    text += "    wait_for(time.perf_counter(), seconds * 1e9)\n"
    text += f"    return np.full(count, 1.0{sums})\n"
    exec(text, globals())
    return gl.function(work="1e9*seconds", module="alternatives")(globals()[f"program{reads}"])


PROGRAMS = [program_of(reads) for reads in range(READS_MAX + 1)]


@gl.function(work="1", module="alternatives")
def first(x: Numbers) -> float:
    """The only part of a workflow's last results that is sent to the client."""
    return float(x[0])
