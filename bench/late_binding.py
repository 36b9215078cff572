"""Calls of unknown duration: how close a grid gets to list scheduling, compared with a pool of processes and Dask.

Every call sleeps, so that servers, pool and Dask may have more slots than this machine has cores. The bound is list
scheduling: each call in turn runs on the slot that is free first (Graham, SIAM J. Appl. Math. 17(2), 1969).

    python bench/late_binding.py [--rounds 3] [--servers 1 3 16] [--bytes 1000000]

With `--bytes`, each call takes an array of this size.
"""

import argparse
import heapq
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import gridloom as gl
import numpy as np

NAPS = '''
import time
import gridloom as gl

@gl.function
def nap(seconds: float, data: gl.Array["uint8", "n"]) -> int:
    time.sleep(seconds)
    return 0
'''


def nap(seconds, data):
    time.sleep(seconds)
    return 0


def drawn(seed, mean_s=0.05, count=90):
    """Lengths of calls by distribution, each with about that mean."""
    draw = random.Random(seed)
    lengths = {
        "lognormal": [draw.lognormvariate(0.0, 1.0) for _ in range(count)],
        "bimodal": [10.0 if draw.random() < 0.1 else 0.5 for _ in range(count)],
        "Pareto": [draw.paretovariate(1.5) for _ in range(count)],
    }
    return {name: [mean_s * length / statistics.mean(of) for length in of] for name, of in lengths.items()}


def bound(lengths, slots):
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def plain_calls(grid, lengths, data):
    nap = grid.function("naps/nap")
    for handle in [nap.submit(length, data) for length in lengths]:
        handle.get()


def group(grid, lengths, data):
    nap = grid.function("naps/nap")
    with grid.group():
        handles = [nap(length, data.copy()) for length in lengths]
    for handle in handles:
        handle.get()


def seconds(body):
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def methods(slots, size_bytes):
    """Functions that run calls of given lengths, by method."""
    data = np.ones(size_bytes, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        module = pathlib.Path(folder) / "naps.py"
        module.write_text(NAPS)
        with gl.local(servers=slots, functions=[module]) as grid, ProcessPoolExecutor(slots) as pool:
            plain_calls(grid, [0.0] * slots, data)
            list(pool.map(nap, [0.01] * slots, [data] * slots))
            found = {
                "plain calls": lambda lengths: plain_calls(grid, lengths, data),
                "group": lambda lengths: group(grid, lengths, data),
                "pool": lambda lengths: list(pool.map(nap, lengths, [data] * len(lengths))),
            }
            try:
                from dask.distributed import Client, LocalCluster
            except ImportError:
                yield found
                return
            with LocalCluster(n_workers=slots, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
                all_of = lambda lengths: client.gather(client.map(nap, lengths, [data] * len(lengths), pure=False))  # noqa: E731
                all_of([0.01] * slots)
                found["Dask"] = all_of
                yield found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 3, 16])
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--json", type=pathlib.Path, help="write all ratios to this file")
    options = parser.parse_args()
    print("time divided by that of list scheduling: median (least..greatest)")
    ratios = {}
    for slots in options.servers:
        for found in methods(slots, options.bytes):
            print(f"{slots} servers".ljust(24) + "".join(name.rjust(22) for name in found))
            cases = [("naps 1 x 3", [1.0] * 3), ("naps (2, 0.1, 0.1) x 3", [2, 0.1, 0.1] * 3)] if slots == 3 else []
            for seed in range(options.rounds):
                cases += [(name, lengths) for name, lengths in drawn(seed).items()]
            for case, lengths in cases:
                for name, run in found.items():
                    ratio = seconds(lambda: run(lengths)) / bound(lengths, slots)
                    ratios.setdefault(f"{slots} servers", {}).setdefault(case, {}).setdefault(name, []).append(ratio)
            for case, of in ratios[f"{slots} servers"].items():
                cells = [f"{statistics.median(r):.2f} ({min(r):.2f}..{max(r):.2f})" for r in of.values()]
                print(case.ljust(24) + "".join(cell.rjust(22) for cell in cells), flush=True)
    if options.json:
        options.json.write_text(json.dumps(ratios, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
