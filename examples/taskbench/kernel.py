"""The kernel of Task Bench's tasks, compiled from kernel.c, and the common options and output of the Python programs."""

import argparse
import ctypes
import functools
import json

import graph

CELLS = 64


class Kernel:
    """The given number of times a product and a sum of each of 64 cells."""

    def __init__(self, path):
        self._memory = ctypes.create_string_buffer(8 * CELLS + 64)
        # The time of an iteration depends on the alignment of the cells.
        start = -(-ctypes.addressof(self._memory) // 64) * 64
        (ctypes.c_double * CELLS).from_address(start)[:] = [1.0] * CELLS
        self._cells = ctypes.c_void_p(start)
        self._compute = ctypes.CDLL(str(path)).compute
        self._compute.argtypes, self._compute.restype = [ctypes.c_void_p, ctypes.c_long], None

    def __call__(self, iterations):
        self._compute(self._cells, iterations)


@functools.cache
def loaded(path):
    """The kernel of this process."""
    return Kernel(path)


def task(graph, library, iterations, step, at, *inputs):
    """A task as a function. Its output is its step and point."""
    graph.check(step, at, inputs)
    loaded(library)(iterations)
    return step, at


def options(doc):
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", required=True, help="kernel.c as a shared library")
    parser.add_argument("--processors", type=int, default=2, help="of the cluster, where the program starts one")
    parser.add_argument("--pattern", default="stencil", choices=graph.PATTERNS)
    parser.add_argument("--width", type=int, default=32, help="points")
    parser.add_argument("--rounds", default="0:100", help="ITERATIONS:STEPS,…")
    found = parser.parse_args()
    found.graph = graph.Graph(found.pattern, found.width)
    found.rounds = [tuple(map(int, one.split(":"))) for one in found.rounds.split(",")]
    return found


def print_rounds(options, seconds):
    """Print the output that bench/taskbench.py reads."""
    rounds = [
        {"iterations": iterations, "steps": steps, "tasks": options.graph.tasks(steps), "seconds": took}
        for (iterations, steps), took in zip(options.rounds, seconds, strict=True)
    ]
    print(json.dumps({"rounds": rounds}))
