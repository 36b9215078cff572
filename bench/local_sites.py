"""Sites of a local grid: measured links between them compared with the settings, and a chain of calls with and without sites.

`python bench/local_sites.py` starts grids of four servers. The chain is eight products of 1024 x 1024 matrices: each needs the previous one, of 8 MiB.
"""

import statistics
import time

import gridloom as gl
import numpy as np

ROUNDS = 5
LENGTH = 8
GRIDS = [
    {},
    {"sites": 2, "latency": "16ms"},
    {"sites": 2, "bandwidth": "10MB/s"},
    {"sites": 2, "latency": "16ms", "bandwidth": "10MB/s"},
    {"sites": 2, "latency": "2ms", "bandwidth": "100MB/s"},
]
SETTLED_SECONDS = 5.0


def chain(grid, heuristic):
    dgemm = grid.function("linalg/dgemm")
    first, other = np.random.default_rng(1).standard_normal((2, 1024, 1024))
    other /= 32
    with grid.group(heuristic) as group:
        product = first
        for _ in range(LENGTH):
            product = dgemm(product, other)
    assert np.allclose(product.get(), first @ np.linalg.matrix_power(other, LENGTH))
    return group.report()


def alternate(problem):
    """Place the calls on the first server of each site in turn, so that every product crosses the link."""
    return ["server-1" if number % 2 == 0 else "server-3" for number in range(len(problem.tasks))]


for arguments in GRIDS:
    with gl.local(servers=4, **arguments) as grid:
        print(f"gl.local(servers=4{''.join(f', {name}={value!r}' for name, value in arguments.items())})")
        chain(grid, "auto")
        time.sleep(SETTLED_SECONDS)
        for heuristic in ("auto", alternate):
            reports = [chain(grid, heuristic) for _ in range(ROUNDS)]
            seconds = [report.measured_seconds for report in reports]
            servers = {task.server for task in reports[-1].plans[0].tasks}
            name = heuristic if isinstance(heuristic, str) else heuristic.__name__
            told = f"{statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"
            print(f"  {name}: {told}, predicted {reports[-1].predicted_seconds:.3f} s, on {', '.join(sorted(servers))}")
        for link in grid.links():
            if {link.sender, link.receiver} == {"127.0.0.1", "127.0.0.2"}:
                latency_ms, rate = link.latency_seconds * 1e3, link.bytes_per_second / 1e6
                print(f"  {link.sender} -> {link.receiver}: {latency_ms:.2f} ms, {rate:.2f} MB/s, {link.measurements} measurements")
