"""Tiled Cholesky and a chain of products as mapped groups, for bench/predicted.py: prints predicted and measured times.

Functions are calibrated first, on every server, at other sizes than those of the programs. A program's prediction is
printed before it runs. With the name of a testbed, a Cholesky of larger tiles is run instead, and the testbed's first server is slowed
down to a quarter during the run.
"""

import json
import pathlib
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
sys.path[:0] = [str(EXAMPLES / "demo"), str(EXAMPLES / "cholesky")]

import cholesky  # noqa: E402
import demo  # noqa: E402
import gridloom as gl  # noqa: E402

GRIDLOOM = HERE.parent / "target" / "release" / "gridloom"
TILES, TILE = 8, 512
MATRICES, ORDER = 8, 1024
SIZES = (192, 320, 448, 640)
#: Number of matrices that a function reads, and sizes at which it is calibrated, which include neither TILE nor
#: ORDER.
CALIBRATED = {
    "cholesky/potrf": (1, SIZES),
    "cholesky/trsm": (2, SIZES),
    "cholesky/syrk": (2, SIZES),
    "cholesky/gemm": (3, SIZES),
    "demo/dgemm": (2, (448, 768, 1280)),
}
REPEATS = 4
#: Tiles large enough that moving them takes little time compared with computing them, so that a slow server matters.
SLOWED_TILES, SLOWED_TILE = 8, 1024
SLOWED_SIZES = (384, 896)
SLOWED = "s1"
FACTOR = 0.25
#: Time at which the server becomes slow, as a fraction of the group's time without this change.
WHEN = 0.3


def everywhere(problem):
    """Place consecutive calls on consecutive servers. Calls are recorded once per server, so each runs on every server."""
    return [number % len(problem.servers) for number in range(len(problem.tasks))]


def calibrate(grid, slowed=False):
    servers = len(grid.servers())
    for name, (matrices, sizes) in CALIBRATED.items():
        function = grid.function(name)
        for size in SLOWED_SIZES if slowed else sizes:
            arguments = [cholesky.positive_definite(size)] * matrices
            for _ in range(REPEATS):
                with grid.group(everywhere) as group:
                    for _ in range(servers):
                        function(*arguments)
                group.wait()


def factorisation(grid, tiles, tile):
    a = cholesky.positive_definite(tiles * tile)

    def check(handles):
        lower = cholesky.assemble(handles)
        assert grid.simulated or cholesky.residual(a, lower) < 1e-12

    return lambda: cholesky.factor(grid, a, tile), check


def chain(grid):
    dgemm = grid.function("demo/dgemm")
    matrices = list(np.random.default_rng(8).standard_normal((MATRICES, ORDER, ORDER)))

    def check(handles):
        product, expected = handles[0].get(), np.linalg.multi_dot(matrices)
        assert grid.simulated or np.linalg.norm(product - expected) < 1e-10 * np.linalg.norm(expected)

    return lambda: [demo.tree(lambda pairs: [dgemm(x, y) for x, y in pairs], matrices)], check


def run(grid, heuristic, record, check, meanwhile=None):
    with grid.group(heuristic) as group:
        handles = record()
        print(json.dumps({"predicted": group.plan(heuristic).makespan_seconds}), flush=True)
    if meanwhile:
        meanwhile()
    check(handles)
    report = group.report()
    return {
        "predicted": report.predicted_seconds,
        "measured": report.measured_seconds,
        "mapped": report.plans[0].map_seconds,
        "plans": len(report.plans),
    }


def slowed(grid, testbed):
    """Run a group three times: with the first server at full speed, slowed down to a quarter during the run, and slow from the beginning."""

    def set_speed(factor):
        subprocess.run([GRIDLOOM, "testbed", "slow", "--name", testbed, SLOWED, str(factor)], check=True, capture_output=True)

    calibrate(grid, slowed=True)
    record, check = factorisation(grid, SLOWED_TILES, SLOWED_TILE)
    fast = run(grid, "auto", record, check)

    def slow_down():
        began = time.perf_counter()
        time.sleep(WHEN * fast["measured"])
        set_speed(FACTOR)
        slow_down.after = time.perf_counter() - began

    changed = run(grid, "auto", record, check, slow_down)
    calibrate(grid, slowed=True)
    known = run(grid, "auto", record, check)
    # Ideally, the rest of the group after the change takes as long as on a grid whose slow server is known.
    left = 1 - slow_down.after / fast["measured"]
    ideal = slow_down.after + left * known["measured"]
    set_speed(1)
    return {"fast": fast, "changed": changed, "known": known, "after": slow_down.after, "ideal": ideal}


def main():
    rounds, testbed = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    with gl.local(
        servers=1,
        functions=[EXAMPLES / "demo" / "linalg.idl", cholesky.FUNCTIONS],
        libraries=[gl.blas_library()],
        environment={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    ) as grid:
        if testbed:
            print(json.dumps({"slowed": [slowed(grid, testbed) for _ in range(rounds)]}))
            return
        calibrate(grid)
        programs = {"cholesky": factorisation(grid, TILES, TILE), "chain": chain(grid)}
        results = {name: {"auto": [], "mct": []} for name in programs}
        for _ in range(rounds):
            for name, (record, check) in programs.items():
                for heuristic, runs in results[name].items():
                    runs.append(run(grid, heuristic, record, check))
        found = {"speeds": [server.speed_flops for server in grid.servers()], "results": results}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
