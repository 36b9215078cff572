"""Task Bench with Dask, for comparison with examples/taskbench/taskbench.py: the same arguments and output. See bench/taskbench.py.

    python bench/peers/taskbench_dask.py --kernel kernel.so --processors 2 --pattern stencil --width 32 --rounds 0:10

There is a worker process with one thread for each processor. The client sends the graph of a whole round to the scheduler at once, and waits for
all outputs that no other task takes.
"""

import os
import pathlib
import sys
import time

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "taskbench"
# Workers find the task there.
os.environ["PYTHONPATH"] = str(EXAMPLE)
sys.path.insert(0, str(EXAMPLE))

import distributed  # noqa: E402
from kernel import options, print_rounds, task  # noqa: E402


def main():
    arguments = options(__doc__)
    graph = arguments.graph
    cluster = distributed.LocalCluster(n_workers=arguments.processors, threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(cluster)

    def round_of(number, iterations, steps):
        began = time.perf_counter()
        name = lambda step, at: f"{number}-{step}-{at}"  # noqa: E731
        every = [(step, at) for step in range(steps) for at in range(graph.width_at(step))]
        inputs = lambda step, at: (name(step - 1, point) for point in graph.inputs(step, at))  # noqa: E731
        tasks = {name(*one): (task, graph, arguments.kernel, iterations, *one, *inputs(*one)) for one in every}
        found = client.get(tasks, [name(*one) for one in every if graph.is_end(*one, steps)])
        assert tuple(found[-1]) == (steps - 1, graph.width_at(steps - 1) - 1)
        return time.perf_counter() - began

    # Workers load the modules and libraries that they need.
    round_of("first", 0, 10)
    print_rounds(arguments, [round_of(number, *one) for number, one in enumerate(arguments.rounds)])
    client.close()
    cluster.close()


if __name__ == "__main__":
    main()
