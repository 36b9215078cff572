"""Transfers of named data between servers, in the three patterns of OmniStorage, compared with the bound of the links.

    python bench/sites.py --case 2 > sites.toml
    gridloom simulate -p sites.toml -- python bench/patterns.py --case 2
    gridloom testbed run -p sites.toml --functions bench/patterns_functions.py -- python bench/patterns.py --case 2

- W-To-W: one server of each cluster; the second reads the result of the first.
- BROADCAST: all servers read the result of one.
- ALL-EXCHANGE: each server has made an array, and each reads those of all.

Each value is made on its server and put under a name, which moves nothing; then calls on the servers read it. Prints a line of JSON for
each round. The bound is size / bandwidth of the data that cross the busiest link.
"""

import argparse
import json
import pathlib

import gridloom as gl
from sites import BANDWIDTH, BETWEEN

FUNCTIONS = pathlib.Path(__file__).resolve().parent / "patterns_functions.py"


def share(grid, makers, size_bytes, name):
    """Has each of these servers make an array, and puts it under a name."""
    make = grid.function("patterns_functions/make")
    with grid.group() as group:
        made = [make.on(maker)(size_bytes // 8, float(number)) for number, maker in enumerate(makers)]
    group.report()
    for number, handle in enumerate(made):
        grid.put(f"{name}/{number}", handle)


def read(grid, readers, names):
    """Has each of these servers read all of these names. Returns the measured and the predicted seconds."""
    last = grid.function("patterns_functions/last")
    found = [grid.find(name) for name in names]
    with grid.group() as group:
        read = [last.on(reader)(value) for reader in readers for value in found]
    values = [value.get() for value in read]
    if not grid.simulated:
        assert values == [float(number) for _ in readers for number in range(len(found))], values
    report = group.report()
    return report.measured_seconds, report.predicted_seconds


def patterns(servers):
    """Pattern, servers that make, servers that read, and number of values that cross a server's link and the one between clusters."""
    half = len(servers) // 2
    yield "W-To-W", servers[:1], servers[half : half + 1], 1, 1
    yield "BROADCAST", servers[:1], servers, 1, 1
    yield "ALL-EXCHANGE", servers, servers, len(servers) - 1, half


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, choices=[1, 2], default=1, help="the platform's")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mib", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--pattern", choices=["W-To-W", "BROADCAST", "ALL-EXCHANGE"])
    options = parser.parse_args()
    with gl.local(servers=4, functions=[FUNCTIONS]) as grid:
        servers = sorted(server.name for server in grid.servers())
        if grid.simulated:
            # Servers measure the links between them when they join.
            grid.advance(60)
        for number in range(options.rounds):
            for mib in options.mib:
                size_bytes = mib << 20
                for pattern, makers, readers, own, between in patterns(servers):
                    if options.pattern not in (None, pattern):
                        continue
                    name = f"{pattern}/{mib}/{number}"
                    share(grid, makers, size_bytes, name)
                    names = [f"{name}/{maker}" for maker in range(len(makers))]
                    seconds, predicted = read(grid, readers, names)
                    bound = size_bytes * max(own / BANDWIDTH, between / BETWEEN[options.case][0])
                    line = {"pattern": pattern, "case": options.case, "servers": len(servers), "mib": mib}
                    line |= {"seconds": round(seconds, 3), "of_bound": round(seconds / bound, 3)}
                    print(json.dumps({**line, "predicted": round(predicted / seconds, 3)}), flush=True)
                    for one in names:
                        grid.delete(one)


if __name__ == "__main__":
    main()
