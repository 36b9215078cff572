"""Task Bench with mpi4py, for comparison with examples/taskbench/taskbench.py: the same arguments and output. See bench/taskbench.py.

    mpirun -np 2 python bench/peers/taskbench_mpi.py --kernel kernel.so --pattern stencil --width 32 --rounds 0:1000

As in taskbench.c each rank has a run of neighbouring points, and in each step posts a receive for each input from another rank and a send
for each output to one. Outputs are sent as buffers of two numbers.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "taskbench"))

import numpy as np  # noqa: E402
from kernel import Kernel, options, print_rounds  # noqa: E402
from mpi4py import MPI  # noqa: E402

WIDTH_MAX = 128


class Rank:
    """The points of a rank, and the messages between ranks."""

    def __init__(self, arguments):
        self.graph, self.kernel, self.world = arguments.graph, Kernel(arguments.kernel), MPI.COMM_WORLD
        width, ranks = arguments.width, self.world.size
        self.owners = [at * ranks // width for at in range(width)]
        self.points = [at for at in range(width) if self.owners[at] == self.world.rank]
        #: Outputs by step modulo 2 and point.
        self.sent = np.zeros((2, width, 2), dtype="i4")
        self.received = np.zeros((width, width, 2), dtype="i4")

    def step(self, step, iterations):
        before, now, requests, came = self.sent[(step + 1) % 2], self.sent[step % 2], [], {}
        rank, owners, graph = self.world.rank, self.owners, self.graph
        active = [at for at in self.points if at < graph.width_at(step)]
        for at in active:
            came[at] = [
                before[point] if owners[point] == rank else self.received[at, point] for point in graph.inputs(step, at)
            ]
            requests += [
                self.world.Irecv(self.received[at, point], owners[point], point * WIDTH_MAX + at)
                for point in graph.inputs(step, at)
                if owners[point] != rank
            ]
        for at in self.points if step else ():
            if at < graph.width_at(step - 1):
                requests += [
                    self.world.Isend(before[at], owners[to], at * WIDTH_MAX + to)
                    for to in graph.outputs(step - 1, at)
                    if owners[to] != rank
                ]
        if requests:
            MPI.Request.Waitall(requests)
        for at in active:
            graph.check(step, at, [one.tolist() for one in came[at]])
            self.kernel(iterations)
            now[at] = step, at

    def round(self, iterations, steps):
        self.world.Barrier()
        began = time.perf_counter()
        for step in range(steps):
            self.step(step, iterations)
        self.world.Barrier()
        return time.perf_counter() - began


def main():
    arguments = options(__doc__)
    rank = Rank(arguments)
    seconds = [rank.round(*one) for one in arguments.rounds]
    if rank.world.rank == 0:
        print_rounds(arguments, seconds)


if __name__ == "__main__":
    main()
