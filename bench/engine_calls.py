"""Groups of many short calls on a Dask or Ray cluster, compared with calls that are submitted to the cluster directly: seconds until all have ended.

    python bench/engine_calls.py [--engine dask ray] [--calls 1000 8000] [--rounds 3] [--out FILE]

Each cluster has two workers on this machine. A call halves a number, so this measures the cost of a call. Both methods run in turn.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import gridloom as gl


@gl.function(work="1", module="bench")
def half(x: float) -> float:
    return x / 2


def plainly(x):
    return x / 2


class OfDask:
    def __init__(self):
        import distributed

        self.wait = distributed.wait
        self.cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
        self.session = self.dask = distributed.Client(self.cluster, set_as_default=True)

    def own(self, calls):
        """Submit the calls by one `client.map`, and wait for them."""
        self.wait(self.dask.map(plainly, range(calls), pure=False))

    def close(self):
        self.dask.close()
        self.cluster.close()


class OfRay:
    def __init__(self):
        import ray
        from ray.cluster_utils import Cluster

        self.session = self.ray = ray
        self.cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, "num_cpus": 1})
        self.cluster.add_node(num_cpus=1)
        ray.init(self.cluster.address, log_to_driver=False)
        self.function = ray.remote(num_cpus=1)(plainly)

    def own(self, calls):
        """Submit each call of a remote function, and wait for them."""
        made = [self.function.remote(x) for x in range(calls)]
        self.ray.wait(made, num_returns=calls, fetch_local=False)

    def close(self):
        self.ray.shutdown()
        self.cluster.shutdown()


SYSTEMS = {"dask": OfDask, "ray": OfRay}


def planned(grid, calls):
    """Run the calls as a group. Return the seconds to record it, to map and submit it, and to wait for its end."""
    function, marks = grid.function(half), [time.perf_counter()]
    with grid.group() as group:
        for x in range(calls):
            function(float(x))
        marks.append(time.perf_counter())
    marks.append(time.perf_counter())
    group.wait()
    marks.append(time.perf_counter())
    return [end - begun for begun, end in zip(marks, marks[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--engine", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--calls", nargs="*", type=int, default=[1_000, 8_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    found = []
    print(f"{'engine':8}{'calls':>8}{'recorded':>10}{'submitted':>11}{'waited':>8}{'group':>8}{'own':>8}{'group/own':>11}  (least..most)  load")
    for name in options.engine:
        system = SYSTEMS[name]()
        with gl.connect(system.session, functions=[half]) as grid:
            # The first calls wait for processes and imports.
            planned(grid, 10), system.own(10)
            for calls in options.calls:
                groups, own = [], []
                for _ in range(options.rounds):
                    groups.append(planned(grid, calls))
                    begun = time.perf_counter()
                    system.own(calls)
                    own.append(time.perf_counter() - begun)
                parts = [statistics.median(part) for part in zip(*groups)]
                sums, load = [sum(parts) for parts in groups], os.getloadavg()[0]
                ratios = [ours / theirs for ours, theirs in zip(sums, own)]
                print(
                    f"{name:8}{calls:8}{parts[0]:10.2f}{parts[1]:11.2f}{parts[2]:8.2f}{statistics.median(sums):8.2f}{statistics.median(own):8.2f}"
                    f"{statistics.median(ratios):11.2f}  ({min(ratios):.2f}..{max(ratios):.2f})  {load:.1f}",
                    flush=True,
                )
                found.append({"engine": name, "calls": calls, "groups": groups, "own": own, "load": load})
        system.close()
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
