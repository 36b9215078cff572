"""Task Bench with Ray, for comparison with examples/taskbench/taskbench.py: the same arguments and output. See bench/taskbench.py.

    python bench/peers/taskbench_ray.py --by actors --kernel kernel.so --processors 2 --pattern stencil --width 32 --rounds 0:10

With `actors` there is one for each processor, which runs the tasks of a run of neighbouring points. With `tasks` each task is a remote
function. The driver calls all tasks of a round, with the futures of their inputs, and waits for all
outputs that no other task takes.
"""

import os
import pathlib
import sys
import time

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "taskbench"
# Workers find the task there.
os.environ["PYTHONPATH"] = str(EXAMPLE)
sys.path.insert(0, str(EXAMPLE))

import ray  # noqa: E402
from kernel import options, print_rounds, task  # noqa: E402


class Worker:
    """A processor."""

    def __init__(self, graph, library):
        self.graph, self.library = graph, library

    def run(self, iterations, step, at, *inputs):
        return task(self.graph, self.library, iterations, step, at, *inputs)


def main():
    by = sys.argv.pop(sys.argv.index("--by") + 1)
    sys.argv.remove("--by")
    arguments = options(__doc__)
    graph, width = arguments.graph, arguments.width
    ray.init(num_cpus=arguments.processors, include_dashboard=False, log_to_driver=False, logging_level="error")
    if by == "actors":
        made = ray.remote(num_cpus=1)(Worker)
        workers = [made.remote(graph, arguments.kernel) for _ in range(arguments.processors)]
        call = lambda at, *rest: workers[at * arguments.processors // width].run.remote(*rest)  # noqa: E731
    else:
        shared, function = ray.put(graph), ray.remote(num_cpus=1)(task)
        call = lambda at, *rest: function.remote(shared, arguments.kernel, *rest)  # noqa: E731

    def round_of(iterations, steps):
        began, before, ends = time.perf_counter(), [], []
        for step in range(steps):
            now = [
                call(at, iterations, step, at, *(before[point] for point in graph.inputs(step, at)))
                for at in range(graph.width_at(step))
            ]
            ends += [output for at, output in enumerate(now) if graph.is_end(step, at, steps)]
            before = now
        assert ray.get(ends)[-1] == (steps - 1, graph.width_at(steps - 1) - 1)
        return time.perf_counter() - began

    # Workers start, and load the modules and libraries that they need.
    round_of(0, 10)
    print_rounds(arguments, [round_of(*one) for one in arguments.rounds])


if __name__ == "__main__":
    main()
