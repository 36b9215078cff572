"""A Dask cluster at two sites: groups by Gridloom's plan beside Dask's own scheduling of the same tasks.

    python bench/engines.py [--rounds 3] [--out FILE]

On a testbed: a client with Dask's scheduler and two workers at one site, two workers at the other, behind a link of 5 MB/s and 10 ms. Tasks wait
for 100 ms, so that the machine's processors do not matter; their work is declared so. Both ways run in turn on the same cluster.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import gridloom as gl
import numpy as np
from numpy.typing import NDArray

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
DASK = [sys.executable, "-m", "dask"]
WORKERS = ["near-0", "near-1", "far-0", "far-1"]
SECONDS = 0.1
ELEMENTS = 1 << 19
PLATFORM = """
host = [{ name = "client", speed = "1Gf" }]
star = [{ name = "desk", hosts = ["client"], bandwidth = "25MBps", latency = "100us" }]

[[cluster]]
name = "near"
hosts = "near-[0-1]"
speed = "1Gf"
bandwidth = "25MBps"
latency = "100us"

[[cluster]]
name = "far"
hosts = "far-[0-1]"
speed = "1Gf"
bandwidth = "25MBps"
latency = "100us"

[[link]]
name = "wan"
bandwidth = "5MBps"
latency = "10ms"

[[link]]
name = "lan"
bandwidth = "25MBps"
latency = "100us"

[[connect]]
from = "desk"
to = "near"
links = ["lan"]

[[connect]]
from = "near"
to = "far"
links = ["wan"]

[[connect]]
from = "desk"
to = "far"
links = ["wan"]
"""
Numbers = gl.Array[NDArray[np.float64], "n"]


@gl.function(work="1e8", module="bench")
def step(x: Numbers) -> Numbers:
    time.sleep(SECONDS)
    return x + 1


@gl.function(work="1e8", module="bench")
def combine(x: Numbers, y: Numbers) -> Numbers:
    time.sleep(SECONDS)
    return x + y


@gl.function(work="1e8", module="bench")
def total(x: Numbers, k: int) -> float:
    time.sleep(SECONDS)
    return float(x.sum()) + k


def chains(step, combine, total, array):
    """Six chains of five steps on arrays of 4 MiB."""
    ends = [array(number) for number in range(6)]
    for _ in range(5):
        ends = [step(one) for one in ends]
    return [total(one, 0) for one in ends]


def broadcast(step, combine, total, array):
    """An array of 4 MiB that twelve tasks read."""
    made = step(array(0))
    return [total(made, number) for number in range(12)]


def tree(step, combine, total, array):
    """Eight arrays of 4 MiB, each of which goes through a step, added in pairs."""
    left = [step(array(number)) for number in range(8)]
    while len(left) > 1:
        left = [combine(one, other) for one, other in zip(left[::2], left[1::2])]
    return [total(left[0], 0)]


CASES = [chains, broadcast, tree]


def client(address, rounds):
    """Runs all cases both ways, and prints their times."""
    import distributed
    from gridloom._engine import EngineGrid
    from gridloom._engine_dask import DaskEngine

    arrays = [np.full(ELEMENTS, float(number)) for number in range(8)]
    found = {}
    with distributed.Client(address, set_as_default=False) as dask:
        dask.wait_for_workers(len(WORKERS))
        engine = DaskEngine(dask)
        measured = engine.probe()
        print(measured, file=sys.stderr)
        # Tasks wait: a second of any worker is as good as one of another.
        measured = dataclasses.replace(measured, speed=dict.fromkeys(measured.speed, 1e9))
        with EngineGrid(engine, measured, [step, combine, total]) as grid:
            ours = [grid.function(one) for one in (step, combine, total)]
            bare = [grid._bodies[f"bench/{one.__name__}"] for one in (step, combine, total)]
            theirs = [lambda *args, body=body: dask.submit(body, *args, pure=False) for body in bare]
            for case in CASES:
                rows = found[case.__name__] = []
                for _ in range(rounds):
                    begun = time.perf_counter()
                    with grid.group() as group:
                        results = case(*ours, lambda number: arrays[number])
                    planned = [one.get() for one in results]
                    middle = time.perf_counter()
                    scattered = lambda number: dask.scatter(arrays[number], direct=True, hash=False)  # noqa: E731
                    own = dask.gather(case(*theirs, scattered))
                    end = time.perf_counter()
                    assert planned == own, (planned, own)
                    predicted = group.report().predicted_seconds
                    rows.append({"predicted": predicted, "planned": middle - begun, "dask": end - middle})
    print(json.dumps(found))


def enter(name, host, *command):
    return [str(PROGRAM), "testbed", "enter", "--name", name, host, "--", *command]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options.client, options.rounds)
        return
    name = f"engines-{os.getpid()}"
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "platform.toml").write_text(PLATFORM)
        up = [str(PROGRAM), "testbed", "up", "--no-grid", "--name", name, "--platform", folder / "platform.toml"]
        bed = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
        parts = []
        try:
            if not bed.stdout.readline().endswith("is up\n"):
                raise SystemExit("the testbed did not start")
            shown = subprocess.run([str(PROGRAM), "testbed", "show", "--name", name, "--json"], capture_output=True, text=True, check=True)
            address = next(host["address"] for host in json.loads(shown.stdout)["hosts"] if host["name"] == "client")
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            scheduler = [*DASK, "scheduler", "--host", address, "--port", "8786", "--no-dashboard"]
            parts.append(subprocess.Popen(enter(name, "client", *scheduler), **quiet))
            for worker in WORKERS:
                own = ["--name", worker, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", place]
                parts.append(subprocess.Popen(enter(name, worker, *DASK, "worker", f"tcp://{address}:8786", *own), **quiet))
            runs = [sys.executable, __file__, "--client", f"tcp://{address}:8786", "--rounds", str(options.rounds)]
            done = subprocess.run(enter(name, "client", *runs), capture_output=True, text=True)
            print(done.stderr, file=sys.stderr)
            found = json.loads(done.stdout.splitlines()[-1])
        finally:
            for part in parts:
                part.terminate()
            bed.terminate()
            bed.wait()
    print(f"{'case':12}{'predicted, s':>14}{'by plan, s':>14}{'Dask, s':>12}{'Dask / plan':>14}  (least..most)")
    for case, rows in found.items():
        ratios = [row["dask"] / row["planned"] for row in rows]
        middle = {key: statistics.median(row[key] for row in rows) for key in ("predicted", "planned", "dask")}
        print(
            f"{case:12}{middle['predicted']:14.2f}{middle['planned']:14.2f}{middle['dask']:12.2f}{statistics.median(ratios):14.2f}  "
            f"({min(ratios):.2f}..{max(ratios):.2f})"
        )
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
