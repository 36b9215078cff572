"""The graphs of Task Bench, as in graph.rs: a number of points, a number of steps, and a pattern that defines which outputs a task takes."""

from dataclasses import dataclass

PATTERNS = ("none", "stencil", "tree", "fft", "all-to-all")
NONE = range(0)


def around(at, stride, width):
    """`at - stride`, `at`, `at + stride`, without points outside the graph."""
    first = at - stride if at >= stride else at
    last = at + stride if at + stride < width else at
    return range(first, last + 1, stride)


@dataclass(frozen=True)
class Graph:
    """A pattern over a number of points."""

    pattern: str
    width: int

    @property
    def period(self):
        """Number of steps after which tasks take the outputs of the same points again."""
        return max((self.width - 1).bit_length(), 1) if self.pattern == "fft" else 1

    def width_at(self, step):
        """Number of points with a task at that step."""
        return min(1 << min(step, self.width), self.width) if self.pattern == "tree" else self.width

    def first_step(self, at):
        """The first step at which that point has a task."""
        return at.bit_length() if self.pattern == "tree" else 0

    def inputs(self, step, at):
        """The points whose outputs of the step before are inputs of that point's task."""
        if step == 0 or self.pattern == "none":
            return NONE
        return range(at // 2, at // 2 + 1) if self.pattern == "tree" else self._partners(step, at)

    def outputs(self, step, at):
        """The points whose tasks take that output at the next step."""
        if self.pattern == "none":
            return NONE
        if self.pattern == "tree":
            return range(2 * at, min(2 * at + 2, self.width_at(step + 1)))
        return self._partners(step + 1, at)

    def _partners(self, step, at):
        """Points that take one another's outputs."""
        if self.pattern == "all-to-all":
            return range(self.width)
        return around(at, 1 << (step - 1) % self.period, self.width)

    def is_end(self, step, at, steps):
        """True if no task within that number of steps takes that output."""
        return step == steps - 1 or not self.outputs(step, at)

    def tasks(self, steps):
        """Number of tasks in that many steps."""
        return sum(self.width_at(step) for step in range(steps))

    def inputs_of_all(self, steps):
        """Total number of their inputs."""
        return sum(len(self.inputs(step, at)) for step in range(steps) for at in range(self.width_at(step)))

    def check(self, step, at, outputs):
        """Raise if these are not the outputs, as pairs of step and point, that the task takes."""
        wanted = [(step - 1, point) for point in self.inputs(step, at)]
        if [tuple(output) for output in outputs] != wanted:
            raise ValueError(f"task {step} of point {at} got {outputs}, and takes {wanted}")
