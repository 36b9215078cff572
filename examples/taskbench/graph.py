"""The graphs of Task Bench, as graph.rs has them: so many points, so many steps, and a pattern that says which outputs a task takes."""

from dataclasses import dataclass

PATTERNS = ("none", "stencil", "tree", "fft", "all-to-all")
NONE = range(0)


def around(at, stride, width):
    """`at - stride`, `at`, `at + stride`, as far as there are that many points."""
    first = at - stride if at >= stride else at
    last = at + stride if at + stride < width else at
    return range(first, last + 1, stride)


@dataclass(frozen=True)
class Graph:
    """A pattern over so many points."""

    pattern: str
    width: int

    @property
    def period(self):
        """After so many steps tasks take the outputs of the same points again."""
        return max((self.width - 1).bit_length(), 1) if self.pattern == "fft" else 1

    def width_at(self, step):
        """How many points have a task at that step."""
        return min(1 << min(step, self.width), self.width) if self.pattern == "tree" else self.width

    def first_step(self, at):
        """The first step at which that point has a task."""
        return at.bit_length() if self.pattern == "tree" else 0

    def inputs(self, step, at):
        """The points with outputs of the step before that the task of that point takes."""
        if step == 0 or self.pattern == "none":
            return NONE
        return range(at // 2, at // 2 + 1) if self.pattern == "tree" else self._partners(step, at)

    def outputs(self, step, at):
        """The points that take the output of that task at the next step."""
        if self.pattern == "none":
            return NONE
        if self.pattern == "tree":
            return range(2 * at, min(2 * at + 2, self.width_at(step + 1)))
        return self._partners(step + 1, at)

    def _partners(self, step, at):
        """Where each takes the output of the other."""
        if self.pattern == "all-to-all":
            return range(self.width)
        return around(at, 1 << (step - 1) % self.period, self.width)

    def is_end(self, step, at, steps):
        """Whether no task of so many steps takes the output of that one."""
        return step == steps - 1 or not self.outputs(step, at)

    def tasks(self, steps):
        """How many tasks there are in so many steps."""
        return sum(self.width_at(step) for step in range(steps))

    def inputs_of_all(self, steps):
        """How many inputs they take together."""
        return sum(len(self.inputs(step, at)) for step in range(steps) for at in range(self.width_at(step)))

    def check(self, step, at, outputs):
        """Raise if these are not the outputs, as pairs of step and point, that the task takes."""
        wanted = [(step - 1, point) for point in self.inputs(step, at)]
        if [tuple(output) for output in outputs] != wanted:
            raise ValueError(f"task {step} of point {at} got {outputs}, and takes {wanted}")
