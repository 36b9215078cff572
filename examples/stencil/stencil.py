"""The five-point stencil of stencil.rs on message-driven objects in Python. Blocks compute with NumPy.

    python examples/stencil/stencil.py --check
    gridloom chares run -n 2 -- python examples/stencil/stencil.py --chares 16 --check
    gridloom chares run -n 2 --sites 2 --latency 16ms -- python examples/stencil/stencil.py --chares 64

The mesh has the same bits for any number of chares and elements, and any placement, also if chares move and if the program restarts from a checkpoint.
"""

import argparse
import math

import numpy as np
from gridloom import chares

SIDES = {"above": (-1, 0), "below": (1, 0), "left": (0, -1), "right": (0, 1)}
OPPOSITE = {"above": "below", "below": "above", "left": "right", "right": "left"}


def mesh(size, rows, columns):
    """The part of the mesh with these rows and columns, in a frame of zeros."""
    cells = np.zeros((len(rows) + 2, len(columns) + 2))
    wave = lambda at: np.sin(np.pi * (at + 1) / (size + 1))  # noqa: E731
    cells[1:-1, 1:-1] = np.outer(wave(rows), wave(columns)) + (rows[:, None] * 31 + columns) % 7
    return cells


def step(cells):
    """Set each cell to the mean of its four neighbours."""
    after = cells.copy()
    after[1:-1, 1:-1] = 0.25 * (cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:])
    return after


class Block(chares.Chare):
    """A square of the mesh."""

    edge = chares.Mailbox()
    #: Options of the command line: the same on all elements.
    steps = move_every = checkpoint_every = 0
    #: By step: number of elements after it.
    resizes: dict[int, int] = {}

    def __init__(self, size, blocks):
        side, (row, column) = size // blocks, self.index
        self.cells = mesh(size, np.arange(row * side, (row + 1) * side), np.arange(column * side, (column + 1) * side))
        inside = lambda at: all(0 <= one < blocks for one in at)  # noqa: E731
        at = {side: (row + down, column + right) for side, (down, right) in SIDES.items()}
        self.neighbours = {side: self.array[there] for side, there in at.items() if inside(there)}

    async def run(self):
        await self.all_reduce()
        self.began, self.number = chares.now(), 0
        await self.go_on()

    async def go_on(self):
        first = self.number
        for number in range(first, self.steps):
            self.number = number
            if number > first and self.checkpoint_every and number % self.checkpoint_every == 0:
                # All blocks stop here, so that no message is in flight, and continue when they are saved.
                self.contribute(callback=self.array[0, 0].save)
                return
            if number > first and self.move_every and number % self.move_every == 0:
                # A chare cannot move while an entry method waits: this one ends, and the chare continues there.
                self.migrate_to((self.element + 1) % self.elements)
                self.this.go_on()
                return
            cells = self.cells
            own = {"above": cells[1, 1:-1], "below": cells[-2, 1:-1], "left": cells[1:-1, 1], "right": cells[1:-1, -2]}
            for side, neighbour in self.neighbours.items():
                # Messages from another site arrive late: chares that wait for them must not wait for others, too.
                neighbour.edge.with_priority(-1 if neighbour.is_at_border else 0)(number, OPPOSITE[side], own[side].copy())
            frame = {"above": cells[0, 1:-1], "below": cells[-1, 1:-1], "left": cells[1:-1, 0], "right": cells[1:-1, -1]}
            for _ in self.neighbours:
                # A neighbour may be one step ahead: its edges wait in the mailbox.
                side, edge = await self.edge.receive(number)
                frame[side][:] = edge
            self.cells = step(cells)
        self.contribute(self.cells[1:-1, 1:-1], "gather", self.array[0, 0].done)

    def save(self):
        if self.number in self.resizes:
            chares.resize(self.resizes[self.number])
        chares.checkpoint(self.array.go_on)

    def done(self, blocks):
        chares.exit((blocks, chares.now() - self.began))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--chares", type=int, default=16)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--placement", default="blocks")
    parser.add_argument("--move-every", type=int, default=0, help="number of steps after which each chare moves to the next element")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="number of steps after which all are saved, with gridloom chares run --checkpoint DIR")
    parser.add_argument("--resize", action="append", default=[], metavar="STEP:ELEMENTS", help="number of elements after the checkpoint of a step")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    size, blocks, steps = options.size, math.isqrt(options.chares), options.steps
    Block.resizes = {int(step): int(elements) for step, elements in (one.split(":") for one in options.resize)}
    Block.steps, Block.move_every, Block.checkpoint_every = steps, options.move_every, options.checkpoint_every

    def edges():
        """Each pair of neighbours, with the bytes of the two edges that they exchange in a step."""
        for row, column in np.ndindex(blocks, blocks):
            inside = [at for at in ((row + 1, column), (row, column + 1)) if max(at) < blocks]
            yield from (((row, column), at, 16 * size // blocks) for at in inside)

    def program(job):
        placement = chares.ByCommunication(edges()) if options.placement == "by-communication" else options.placement
        array = job.array(Block, (blocks, blocks), (size, blocks), placement=placement)
        array.run()

    ended = chares.run(program)
    if not ended.is_first:
        return
    parts, seconds = ended.value
    found = np.block([parts[row * blocks : (row + 1) * blocks] for row in range(blocks)])
    print(f"{size} x {size} cells in {blocks * blocks} chares, {steps} steps: {seconds / steps * 1e3:.3f} ms a step, sum {found.sum():.6f}")
    if options.check:
        cells = mesh(size, np.arange(size), np.arange(size))
        for _ in range(steps):
            cells = step(cells)
        same = np.array_equal(found, cells[1:-1, 1:-1])
        print("bitwise equal to the serial program" if same else "NOT that of the serial program")
        raise SystemExit(not same)


if __name__ == "__main__":
    main()
