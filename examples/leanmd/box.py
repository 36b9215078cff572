"""Forces in a protein in water, on cells and pairs of cells in the style of LeanMD, in Python. 6 x 6 x 6 cells have 3,024 pairs.

    pip download ParmEd==4.3.1 --no-deps --no-binary :all: && tar xzf parmed-4.3.1.tar.gz       # has such a box: DHFR, 30,581 sites
    cd parmed-4.3.1/examples/gromacs
    gridloom chares run -n 2 -- python box.py --gro dhfr_pme.gro --top dhfr_pme.top --check
    gridloom chares run -n 2 --sites 2 --latency 32ms -- python box.py --gro dhfr_pme.gro --top dhfr_pme.top

Forces are those of Lennard-Jones, shifted to be 0 at the cutoff, and of charges: q q' 332.0636 / r (1 - r / cutoff)². There are no bonded
forces, so the sites do not move, and each step has the same forces again: only the time of a step matters. The forces have the same bits
for any number of elements, any placement and any latency; ``--check`` compares with a serial loop.

A pair of cells at two sites waits for remote positions, and the remote cell waits for its forces. So such pairs run before others.
"""

import argparse
import hashlib
import itertools
import sys
import time

import molecules
import numpy as np
from gridloom import chares

#: Coulomb energy of two elementary charges at 1 Å, kcal/mol.
COULOMB = 332.0636
#: Relative positions of the second cell of a pair: half of the 26 around the first.
NEIGHBOURS = [by for by in itertools.product((-1, 0, 1), repeat=3) if by > (0, 0, 0)]
#: Floating-point operations per pair of sites whose distance is computed, additionally per pair within the cutoff,
#: and per force that is added to a site's. They count in simulation, where other work counts as one operation.
LOOKED_AT, ACTING, ADDED = 12, 60, 3
OWN_PAIRS = 1 + len(NEIGHBOURS)
PAIRS = OWN_PAIRS + len(NEIGHBOURS)
#: Element of a cell's chares, by the cell, the number of cells and the number of elements.
PLACEMENTS = {
    "blocks": lambda cell, cells, elements: cell * elements // cells,
    "round-robin": lambda cell, cells, elements: cell % elements,
}
#: Lower priorities run first.
FIRST, USUAL = -1, 0


class Box:
    """A periodic cube of cells: the same cube follows on each side."""

    def __init__(self, sites, cells, cutoff):
        edge = sites.length / cells
        if cells < 3 or edge < cutoff:
            raise SystemExit(
                f"{cells} cells along {sites.length:g} Å are {edge:.2f} Å long, and the cutoff is {cutoff:g}: give at least 3 cells, and no "
                f"more than {int(sites.length / cutoff)}"
            )
        self.sites, self.cells, self.cutoff = sites, cells, cutoff
        index = np.minimum((sites.at / edge).astype(int), cells - 1)
        number = (index[:, 0] * cells + index[:, 1]) * cells + index[:, 2]
        #: The sites of each cell, by its number.
        self.inside = [np.flatnonzero(number == cell) for cell in range(cells**3)]
        #: The site of each cell.
        self.sites_of_cells = [0] * cells**3

    def index(self, cell):
        return np.array([cell // self.cells**2, cell // self.cells % self.cells, cell % self.cells])

    def moved(self, cell, by):
        """The number of a neighbouring cell, and the offset to add to its positions."""
        there = self.index(cell) + by
        x, y, z = there % self.cells
        return int((x * self.cells + y) * self.cells + z), there // self.cells * self.sites.length

    def pairs_of(self, cell):
        """Pairs in which that cell is the first, and those in which it is the second."""
        first = [(cell, number) for number in range(OWN_PAIRS)]
        return first, [(self.moved(cell, -np.array(by))[0], 1 + at) for at, by in enumerate(NEIGHBOURS)]

    def priority(self, cell, number):
        """The priority of the messages of a pair."""
        other = cell if number == 0 else self.moved(cell, NEIGHBOURS[number - 1])[0]
        return USUAL if self.sites_of_cells[cell] == self.sites_of_cells[other] else FIRST

    def forces(self, cell, number, first, second):
        """The forces on the two cells of a pair with sites at these positions, and van der Waals energy, Coulomb energy and pairs within the
        cutoff."""
        other, shift = (cell, 0.0) if number == 0 else self.moved(cell, NEIGHBOURS[number - 1])
        second = second + shift
        ways = [first[:, None, axis] - second[None, :, axis] for axis in range(3)]
        square = ways[0] ** 2 + ways[1] ** 2 + ways[2] ** 2
        near = square < self.cutoff**2
        if number == 0:
            near = np.triu(near, 1)
        a, b = np.nonzero(near)
        energies, along = self.law(self.inside[cell][a], self.inside[other][b], np.sqrt(square[a, b]))
        on_first, on_second = np.empty_like(first), np.empty_like(second)
        for axis, way in enumerate(ways):
            force = along * way[a, b]
            on_first[:, axis] = np.bincount(a, force, len(first))
            on_second[:, axis] = -np.bincount(b, force, len(second))
        if number == 0:
            on_first += on_second
        return on_first, on_second, np.array([*energies, len(a)])

    def law(self, one, other, distance):
        """Sum of the energies of these pairs of sites, and the force of each by its distance."""
        sites, cutoff = self.sites, self.cutoff
        factors = sites.factors(one, other)
        sixth = (0.5 * (sites.sigma[one] + sites.sigma[other])) ** 6
        depth = 4 * np.sqrt(sites.depth[one] * sites.depth[other]) * factors[:, 0]

        def lennard_jones(distance):
            part = sixth / distance**6
            return depth * part * (part - 1), 6 * depth * part * (2 * part - 1) / distance

        (energy, force), (cut_energy, cut_force) = lennard_jones(distance), lennard_jones(cutoff)
        charges = COULOMB * sites.charge[one] * sites.charge[other] * factors[:, 1]
        energies = (
            np.sum(energy - cut_energy + (distance - cutoff) * cut_force),
            np.sum(charges / distance * (1 - distance / cutoff) ** 2),
        )
        return energies, (force - cut_force + charges * (1 / distance**2 - 1 / cutoff**2)) / distance

    def serial(self):
        """The forces on each cell, and the energies, in the order of the chares' sums."""
        at = [self.sites.at[inside] for inside in self.inside]
        second_of = lambda cell, number: cell if number == 0 else self.moved(cell, NEIGHBOURS[number - 1])[0]  # noqa: E731
        every = [(cell, number) for cell in range(self.cells**3) for number in range(OWN_PAIRS)]
        found = {pair: self.forces(*pair, at[pair[0]], at[second_of(*pair)]) for pair in every}
        on_cells = []
        for cell in range(self.cells**3):
            first, second = self.pairs_of(cell)
            on_cells.append(in_order([found[pair][0] for pair in first] + [found[pair][1] for pair in second]))
        return on_cells, sum(found[pair][2] for pair in every)


def in_order(forces):
    total = np.zeros_like(forces[0])
    for force in forces:
        total += force
    return total


class Cell(chares.Chare):
    """The sites of a cell."""

    forces = chares.Mailbox()

    def __init__(self, box, steps):
        self.box, self.steps, self.number = box, steps, self.index[0]
        self.at = box.sites.at[box.inside[self.number]]

    async def run(self):
        sends = [
            (Pair.array_of_all.section(some).positions.with_priority(priority), is_first)
            for priority in (FIRST, USUAL)
            for pairs, is_first in zip(self.box.pairs_of(self.number), (True, False), strict=True)
            if (some := [pair for pair in pairs if self.box.priority(*pair) == priority])
        ]
        await self.all_reduce()
        self.began = chares.now()
        for step in range(self.steps):
            for positions, is_first in sends:
                positions(step, is_first, self.at)
            received = [None] * PAIRS
            for _ in range(PAIRS):
                pair, force = await self.forces.receive(step)
                received[pair] = force
                chares.compute(ADDED * len(force))
            total = in_order(received)
        self.contribute(total, "gather", self.array[0].done)

    def done(self, forces):
        self.of_cells, self.seconds = forces, chares.now() - self.began
        Pair.array_of_all.send_energies()

    def energies_received(self, energies):
        chares.exit((self.of_cells, energies, self.seconds))


class Pair(chares.Chare):
    """The forces between two cells, or within one."""

    def __init__(self, box):
        self.box, (self.cell, self.number) = box, self.index
        self.first, self.second, self.energies = {}, {}, np.zeros(3)
        if self.number:
            self.other, _ = box.moved(self.cell, NEIGHBOURS[self.number - 1])
        self.priority = box.priority(*self.index)

    def positions(self, step, is_first, at):
        (self.first if is_first else self.second)[step] = at
        if self.number == 0:
            self.second[step] = at
        chares.compute(1)
        if step in self.first and step in self.second:
            on_first, on_second, self.energies = self.box.forces(
                self.cell, self.number, self.first.pop(step), self.second.pop(step)
            )
            chares.compute(LOOKED_AT * len(on_first) * len(on_second) + ACTING * self.energies[2])
            if self.number:
                self._send_forces(self.other, step, self.number + len(NEIGHBOURS), on_second)
            self._send_forces(self.cell, step, self.number, on_first)

    def _send_forces(self, cell, *forces):
        Cell.array_of_all[cell].forces.with_priority(self.priority)(*forces)

    def send_energies(self):
        self.contribute(self.energies, "sum", Cell.array_of_all[0].energies_received, ordered=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gro", required=True, help="positions")
    parser.add_argument("--top", required=True, help="atoms, bonds and pairs of the protein")
    parser.add_argument("--cells", type=int, default=6, help="along a side")
    parser.add_argument("--cutoff", type=float, default=9.0, help="Å")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--placement", default="blocks", choices=list(PLACEMENTS))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    try:
        box = Box(molecules.read(options.gro, options.top), options.cells, options.cutoff)
    except (OSError, molecules.FilesError) as error:
        sys.exit(f"box: {error}")

    def program(job):
        count, place = box.cells**3, PLACEMENTS[options.placement]
        # A pair is on the element of its first cell.
        with_cell = lambda index, elements: place(index[0], count, elements)  # noqa: E731
        box.sites_of_cells = [job.sites[place(cell, count, job.elements)] for cell in range(count)]
        Cell.array_of_all = job.array(Cell, count, (box, max(options.steps, 1)), placement=with_cell)
        Pair.array_of_all = job.array(Pair, (count, OWN_PAIRS), (box,), placement=with_cell)
        Cell.array_of_all.run()

    ended = chares.run(program)
    if not ended.is_first:
        return
    forces, energies, seconds = ended.value
    show(box, forces, energies)
    print(f"{len(forces) * OWN_PAIRS:,} pairs of cells: {seconds / max(options.steps, 1):.3f} s a step")
    if options.check:
        began = time.perf_counter()
        on_cells, serial = box.serial()
        print(f"serial: {time.perf_counter() - began:.3f} s a step")
        if not all(np.array_equal(one, other) for one, other in zip(forces, on_cells, strict=True)):
            sys.exit("box: the forces are not those of the serial loop")
        if not np.allclose(energies, serial, rtol=1e-12):
            sys.exit(f"box: the energies {energies} are not those of the serial loop: {serial}")
        print("the serial loop has the same bits")


def show(box, forces, energies):
    sites = box.sites
    counts = np.array([len(inside) for inside in box.inside])
    second = lambda cell, number: box.moved(cell, NEIGHBOURS[number - 1])[0]  # noqa: E731
    candidates = sum(count * (count - 1) // 2 for count in counts) + sum(
        counts[cell] * counts[second(cell, number)] for cell in range(len(counts)) for number in range(1, OWN_PAIRS)
    )
    total = np.abs(np.sum(np.concatenate(forces), axis=0)).max()
    print(
        f"{len(sites.at):,} sites, {sites.protein:,} of a protein of charge {sites.charge[: sites.protein].sum():.0f}; {counts.min()} to "
        f"{counts.max()} in a cell; {candidates:,} pairs looked at, {energies[2]:,.0f} within {box.cutoff:g} Å"
    )
    print(f"van der Waals {energies[0]:.6f}, Coulomb {energies[1]:.6f} kcal/mol; forces add up to {total:.1e}")
    bits = hashlib.blake2b(b"".join(force.tobytes() for force in forces), digest_size=8).hexdigest()
    print(f"bits of all forces {bits}")


if __name__ == "__main__":
    main()
