"""A program of mpi4py: the heat equation on a square, by Jacobi's method, on a grid of ranks with ghost cells.

    gridloom mpirun -n 16 examples/mpi/jacobi.py --check
    gridloom mpirun -n 64 --sites 2 --latency 4ms examples/mpi/jacobi.py

It does not depend on Gridloom: `mpiexec -n 4 python examples/mpi/jacobi.py` runs it on an MPI library.
"""

import argparse

import numpy as np
from mpi4py import MPI


def initial(size):
    """The square at the beginning: hot in the middle, in a frame of zeros."""
    cells = np.zeros((size + 2, size + 2))
    middle = slice(size // 3 + 1, 2 * size // 3 + 1)
    cells[middle, middle] = 100.0
    return cells


def step(cells):
    """Set each cell to the mean of its four neighbours; return the largest change, too."""
    after = cells.copy()
    after[1:-1, 1:-1] = 0.25 * (cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:])
    return after, np.abs(after - cells).max()


def exchange(grid, cells):
    """Fill the ghost cells with the neighbours' edges."""
    for axis, (first, last) in enumerate([(np.s_[1, :], np.s_[0, :]), (np.s_[:, 1], np.s_[:, 0])]):
        below, above = grid.Shift(axis, 1)
        inner, outer = (np.s_[-2, :], np.s_[-1, :]) if axis == 0 else (np.s_[:, -2], np.s_[:, -1])
        for edge, ghost, to, source in [(first, outer, below, above), (inner, last, above, below)]:
            came = np.zeros_like(cells[ghost])
            grid.Sendrecv(cells[edge].copy(), to, recvbuf=came, source=source)
            cells[ghost] = came


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--check", action="store_true", help="compare with a serial loop")
    options = parser.parse_args()

    world = MPI.COMM_WORLD
    grid = world.Create_cart(MPI.Compute_dims(world.size, 2))
    parts = [np.array_split(np.arange(options.size), extent) for extent in grid.dims]
    rows, columns = (part[at] for part, at in zip(parts, grid.coords, strict=True))
    cells = initial(options.size)[rows[0] : rows[-1] + 3, columns[0] : columns[-1] + 3].copy()

    world.Barrier()
    began = MPI.Wtime()
    for _ in range(options.steps):
        exchange(grid, cells)
        cells, change = step(cells)
        change = grid.allreduce(change, op=MPI.MAX)
    seconds = MPI.Wtime() - began

    blocks = grid.gather((rows[0], columns[0], cells[1:-1, 1:-1]), root=0)
    if grid.rank == 0:
        whole = np.zeros((options.size, options.size))
        for row, column, block in blocks:
            whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        print(f"{world.size} ranks, {options.steps} steps: {1e3 * seconds / options.steps:.3f} ms a step, last change {change:.6f}")
        if options.check:
            serial = initial(options.size)
            for _ in range(options.steps):
                serial, _ = step(serial)
            same = np.array_equal(whole, serial[1:-1, 1:-1])
            print("bitwise equal to the serial loop" if same else "NOT that of the serial loop")
            if not same:
                world.Abort(1)


if __name__ == "__main__":
    main()
