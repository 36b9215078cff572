"""Task Bench on message-driven objects in Python: the graphs, messages and output of taskbench.rs.

    cc -O3 -shared -fPIC kernel.c -o kernel.so
    gridloom chares run -n 2 -- python taskbench.py --kernel kernel.so --pattern stencil --width 32 --rounds 0:1000,1000:500

A task computes in C, so this measures the system and the Python code around it.
"""

from time import perf_counter

from gridloom import chares
from kernel import Kernel, options, print_rounds


class Point(chares.Chare):
    """A point of the graph. Its tasks run one after the other."""

    def __init__(self, options):
        self.options, self.graph, self.at = options, options.graph, self.index[0]
        self.compute = Kernel(options.kernel)
        # Values that repeat with the steps: entry methods, and the bit of each input next to the bits of all.
        period = self.period = self.graph.period
        later = self.graph.first_step(self.at) + 1
        steps = range(later * period, (later + 1) * period)
        self.outputs = [[self.array[to].output for to in self.graph.outputs(step, self.at)] for step in steps]
        inputs = [self.graph.inputs(step, self.at) for step in steps]
        self.bits = [{point: 1 << number for number, point in enumerate(points)} for points in inputs]
        self.all_bits = [(1 << len(points)) - 1 for points in inputs]
        self.seconds = []

    def begin(self, number):
        self.round, (self.iterations, self.steps) = number, self.options.rounds[number]
        self.is_ready, self.step, self.there, self.taken = False, self.graph.first_step(self.at), {}, 0
        self.contribute(callback=self.array.ready)

    def ready(self):
        self.is_ready = True
        if self.at == 0:
            self.began = perf_counter()
        if self.step < self.steps:
            self.go_on()
        else:
            # A tree that does not reach this point within that number of steps.
            self.finish()

    def output(self, step, point):
        """Receive the output of a task."""
        mine, there = step + 1, self.there.get(step + 1, 0)
        bit = self.bits[mine % self.period].get(point, 0)
        if mine < self.step or not bit or there & bit:
            raise ValueError(f"task {mine} of point {self.at} got another output of point {point}")
        self.there[mine] = there | bit
        self.taken += 1
        if mine == self.step and self.is_ready:
            self.go_on()

    def go_on(self):
        """Run tasks as long as their inputs have arrived."""
        step = self.step
        while step < self.steps and self.there.get(step, 0) == (self.all_bits[step % self.period] if step else 0):
            self.there.pop(step, None)
            self.compute(self.iterations)
            self.step = step + 1
            if self.step == self.steps:
                self.finish()
                return
            for output in self.outputs[step % self.period]:
                output(step, self.at)
            step = self.step
            if self.graph.pattern == "none":
                # Each task is a message of its own, as with any other pattern.
                self.array[self.at].go_on()
                return

    def finish(self):
        tasks = max(self.steps - self.graph.first_step(self.at), 0)
        self.contribute([tasks, self.taken], "sum", self.array[0].end_round)

    def end_round(self, sums):
        """At the first point: all tasks have run."""
        self.seconds.append(perf_counter() - self.began)
        due = [self.graph.tasks(self.steps), self.graph.inputs_of_all(self.steps)]
        if list(sums) != due:
            raise ValueError(f"the numbers of tasks and inputs are {sums}, but should be {due}")
        if self.round + 1 < len(self.options.rounds):
            self.array.begin(self.round + 1)
        else:
            chares.exit(self.seconds)


def main():
    arguments = options(__doc__)
    ended = chares.run(lambda job: job.array(Point, arguments.width, (arguments,)).begin(0))
    if ended.is_first:
        print_rounds(arguments, ended.value)


if __name__ == "__main__":
    main()
