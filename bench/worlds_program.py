"""The demonstration's two programs and steps of Hydropad as mapped groups, for bench/worlds.py: prints their durations as JSON.

It runs on this machine, in simulation, or on a testbed. Each program runs three times, and the third run counts.
In the first run, every function runs on every server. After that, links and functions are known, and workers have allocated their memory (a
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

HYDROPAD = DEMO.parent / "gridrpc" / "hydropad" / "hydropad.idl"
STRIPS = 8
#: Cells and particles along an edge, steps, and scalars of Hydropad at redshift 30: strength of gravity, displacement, velocity, step of time.
CELLS, STEPS = 40, 3
STRENGTH, DISPLACEMENT, VELOCITY, STEP = 0.0145, -69.0, -6.7, 1.27


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


def hydropad(grid):
    """Dark matter and gas, as examples/gridrpc/hydropad/mapped.c calls them, with all steps in one group."""
    grav, initvel, dark, bary = (grid.function(f"hydropad/{name}") for name in ("grav", "initvel", "dark", "bary"))
    waves = 1 + 0.05 * np.sin(np.linspace(0, 6 * np.pi, CELLS))[:, None, None] * np.ones((CELLS, CELLS, CELLS))
    begun = 0.85 * waves, 0.15 * waves

    def body():
        phi = last = grav(CELLS, STRENGTH, *begun)
        x, u, state = initvel(CELLS, CELLS, 0.15, DISPLACEMENT, VELOCITY, 1e-5, phi)
        for number in range(1, STEPS + 1):
            x, u, rho_dm = dark(CELLS, CELLS, 0.85, STEP, STEP, phi, x, u)
            state, rho_b = bary(CELLS, STEP, number, phi, last, state)
            last, phi = phi, grav(CELLS, STRENGTH, rho_dm, rho_b)
        return [phi]

    return body


def main():
    n = int(sys.argv[1])
    with gl.local(
        servers=1,
        functions=[DEMO / "linalg.idl", DEMO / "enhance.py", HYDROPAD],
        libraries=[gl.blas_library(), sys.argv[2]],
        environment={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    ) as grid:
        bodies = {"chain": chain(grid, n), "image": image(grid), "hydropad": hydropad(grid)}
        programs = {name: run(grid, body) for name, body in bodies.items()}
        speeds = [server.speed_flops for server in grid.servers()]
    print(json.dumps({"speed": max(filter(None, speeds), default=None), "programs": programs}))


if __name__ == "__main__":
    main()
