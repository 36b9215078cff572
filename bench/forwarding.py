"""One array sent to every server: the time compared with one transfer (size / bandwidth), predicted and measured.

It runs on this machine, in simulation, or on a testbed.

    python bench/star.py > star.toml
    gridloom simulate -p star.toml -- python bench/forwarding.py
    gridloom testbed run -p star.toml --functions bench/forwarding_functions.py -- python bench/forwarding.py

Each round sends another array, by plans that each have one
call on every server; each call reads the array's first element. Prints a line of JSON for each round.
"""

import argparse
import json
import pathlib

import gridloom as gl
import numpy as np

FUNCTIONS = pathlib.Path(__file__).resolve().parent / "forwarding_functions.py"


def one_each(problem):
    """A call on every server."""
    return list(range(len(problem.tasks)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, default=64)
    options = parser.parse_args()
    with gl.local(servers=4, functions=[FUNCTIONS]) as grid:
        first = grid.function("forwarding_functions/first")
        servers = len(grid.servers())
        for number in range(options.rounds):
            data = np.full(options.mebibytes << 17, float(number))
            with grid.group(one_each) as group:
                handles = [first(data) for _ in range(servers)]
            values = [handle.get() for handle in handles]
            report = group.report()
            line = {"servers": servers, "mebibytes": options.mebibytes, "measured_s": report.measured_seconds}
            print(json.dumps({**line, "predicted_s": report.predicted_seconds, "values": values}), flush=True)


if __name__ == "__main__":
    main()
