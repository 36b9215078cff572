"""Tiled Cholesky factorisation: T(T+1)(T+2)/6 calls in one group. Results go from server to server.

    python examples/cholesky/cholesky.py [--tiles 6] [--size 256] [--heuristic auto]

The matrix is cut into tiles of size × size; each step factors a diagonal tile, solves for those below it and updates the rest
(Buttari, Langou, Kurzak, Dongarra, Parallel Computing 35, 2009, algorithm 2). Only the tiles of the factor are returned. It runs unchanged
on an embedded local grid, under ``gridloom simulate`` and under ``gridloom testbed run``.
"""

import argparse
import pathlib

import gridloom as gl
import numpy as np

FUNCTIONS = pathlib.Path(__file__).resolve().parent / "cholesky.idl"


def positive_definite(n, seed=7):
    """A symmetric positive definite matrix of order n."""
    a = np.random.default_rng(seed).standard_normal((n, n))
    a = a @ a.T / n
    a[np.diag_indices(n)] += 1.0
    return a


def factor(grid, a, size):
    """Record the factorisation of ``a`` in tiles of ``size``: handles of the factor's tiles, by (row, column)."""
    potrf, trsm, syrk, gemm = (grid.function(f"cholesky/{name}") for name in ("potrf", "trsm", "syrk", "gemm"))
    count = len(a) // size

    def cut(number):
        return slice(number * size, (number + 1) * size)

    tiles = {(i, j): np.ascontiguousarray(a[cut(i), cut(j)]) for i in range(count) for j in range(i + 1)}
    for k in range(count):
        tiles[k, k] = potrf(tiles[k, k])
        for i in range(k + 1, count):
            tiles[i, k] = trsm(tiles[k, k], tiles[i, k])
        for i in range(k + 1, count):
            tiles[i, i] = syrk(tiles[i, k], tiles[i, i])
            for j in range(k + 1, i):
                tiles[i, j] = gemm(tiles[i, k], tiles[j, k], tiles[i, j])
    return tiles


def assemble(tiles):
    """Fetch the tiles and assemble them into one lower triangle."""
    for tile in tiles.values():
        tile.prefetch()
    count = max(row for row, _ in tiles) + 1
    size = tiles[0, 0].get().shape[0]
    lower = np.zeros((count * size, count * size))
    for (i, j), tile in tiles.items():
        lower[i * size : (i + 1) * size, j * size : (j + 1) * size] = tile.get()
    return np.tril(lower)


def residual(a, lower):
    """Relative error of the factorisation, ``|a - l l'| / |a|`` in the Frobenius norm."""
    return np.linalg.norm(a - lower @ lower.T) / np.linalg.norm(a)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", type=int, default=6, help="tiles in a row")
    parser.add_argument("--size", type=int, default=256, help="rows of a tile")
    parser.add_argument("--heuristic", default="auto", help="what maps the group ('gridloom heuristics' lists them)")
    options = parser.parse_args()
    a = positive_definite(options.tiles * options.size)
    with gl.local(
        servers=2,
        functions=[FUNCTIONS],
        libraries=[gl.blas_library()],
        environment={"OPENBLAS_NUM_THREADS": "1"},
    ) as grid:
        with grid.group(options.heuristic) as group:
            tiles = factor(grid, a, options.size)
        lower = assemble(tiles)
        report = group.report()
        calls = options.tiles * (options.tiles + 1) * (options.tiles + 2) // 6
        print(f"{calls} calls on {len(grid.servers())} servers, mapped by {report.plans[0].heuristic}")
        how = "simulated" if report.simulated else "measured"
        print(f"makespan: predicted {report.predicted_seconds:.3f} s, {how} {report.measured_seconds:.3f} s")
        if grid.simulated and not lower.any():
            print("simulated: no residual, since functions were not run ('--execute' runs them)")
            return
        error = residual(a, lower)
        print(f"residual {error:.1e}")
        if not error < 1e-14 * len(a):
            raise SystemExit("the factor is wrong")


if __name__ == "__main__":
    main()
