"""The demonstration's two programs as mapped groups, for bench/worlds.py: prints their durations as JSON.

It runs on this machine, in simulation, or on a testbed. Each program runs three times, and the third run counts.
In the first, every function runs on every server: afterwards links and functions are known, and workers have their memory (a
function's first call in a process was observed to take five times as long).
"""

import collections
import json
import pathlib
import sys

import numpy as np

DEMO = pathlib.Path(__file__).resolve().parent.parent / "examples" / "demo"
sys.path.insert(0, str(DEMO))

import demo  # noqa: E402
import gridloom as gl  # noqa: E402

STRIPS = 8


def run(grid, body):
    """Makespan in seconds, and seconds of each function."""
    seconds = collections.Counter()
    for heuristic in ("round-robin", "heft", "heft"):
        with grid.group(heuristic) as group:
            handles = body()
        for handle in handles:
            handle.get()
    report = group.report()
    for task in report.to_dict()["tasks"]:
        seconds[task["function"]] += task["end_seconds"] - task["start_seconds"]
    return {"makespan": report.measured_seconds, "predicted": report.predicted_seconds, "functions": seconds}


def chain(grid, n):
    dgemm = grid.function("demo/dgemm")
    matrices = list(np.random.default_rng(8).standard_normal((8, n, n)))
    return lambda: [demo.tree(lambda pairs: [dgemm(a, b) for a, b in pairs], matrices)]


def image(grid):
    picture = demo.photograph()
    return lambda: demo.enhance_with(
        lambda name, calls: [grid.function(f"enhance/{name}")(*arguments) for arguments in calls], picture, STRIPS
    )


def main():
    n = int(sys.argv[1])
    with gl.local(
        servers=1,
        functions=[DEMO / "linalg.idl", DEMO / "enhance.py"],
        libraries=[gl.blas_library()],
        environment={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    ) as grid:
        programs = {"chain": run(grid, chain(grid, n)), "image": run(grid, image(grid))}
        speeds = [server.speed_flops for server in grid.servers()]
    print(json.dumps({"speed": max(filter(None, speeds), default=None), "programs": programs}))


if __name__ == "__main__":
    main()
