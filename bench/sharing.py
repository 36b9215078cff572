"""Whether `auto` selects the best method for the sharing patterns of OmniStorage, simulated.

    python bench/sharing.py [--mib 16 64 256 1024] [--json FILE]

A cell is a case of bench/sites.py, a pattern of bench/patterns.py and a size. In each cell the pattern runs once with each method, on a grid of
its own: `auto`, `direct`, `tree`, `swarm`, `storage`, whose files are on a file server of 1 Gb/s, and `client`, which is plain GridRPC: the
client gets the values and sends them with the calls. Prints the seconds of each, and for how many cells `auto` takes at most 1.05 times as
long as the best of the others.
"""

import argparse
import json
import pathlib
import tempfile

import gridloom as gl
from patterns import FUNCTIONS, patterns
from sites import BETWEEN, sites

METHODS = ("auto", "direct", "tree", "swarm", "storage", "client")
PATTERNS = ("W-To-W", "BROADCAST", "ALL-EXCHANGE")
NEAR = 1.05


def read(grid, method, readers, names):
    """Has each of these servers read all of these names."""
    last = grid.function("patterns_functions/last")
    if method == "client":
        values = [grid.get(name) for name in names]
        calls = [last.on(reader).submit(value) for reader in readers for value in values]
        return [call.result() for call in calls]
    found = [grid.find(name) for name in names]
    with grid.group() as group:
        made = [last.on(reader)(value) for reader in readers for value in found]
    group.report()
    return [one.get() for one in made]


def seconds(case, pattern, mib, method):
    """The time in which all readers have read all values."""
    with tempfile.TemporaryDirectory() as folder:
        platform = pathlib.Path(folder) / "sites.toml"
        platform.write_text(sites(case))
        with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
            # Servers measure the links between them when they join.
            grid.advance(60)
            servers = sorted(server.name for server in grid.servers())
            makers, readers = next(of[1:3] for of in patterns(servers) if of[0] == pattern)
            make = grid.function("patterns_functions/make")
            with grid.group() as group:
                made = [make.on(maker)((mib << 20) // 8, 0.0) for maker in makers]
            group.report()
            names = [f"value/{number}" for number in range(len(makers))]
            for name, value in zip(names, made, strict=True):
                grid.put(name, value, method="auto" if method == "client" else method)
            begun = grid.now()
            read(grid, method, readers, names)
            return grid.now() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--patterns", choices=PATTERNS, nargs="+", default=PATTERNS)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    cells = []
    for pattern in options.patterns:
        for case in BETWEEN:
            for mib in options.mib:
                took = {method: seconds(case, pattern, mib, method) for method in METHODS}
                ratio = took["auto"] / min(took[method] for method in METHODS[1:])
                cells.append({"pattern": pattern, "case": case, "mib": mib, "ratio": ratio, **took})
                shown = ", ".join(f"{method} {of:.2f} s" for method, of in took.items())
                print(f"{pattern}, case {case}, {mib} MiB: {shown}; auto / best {ratio:.3f}", flush=True)
    near = sum(cell["ratio"] <= NEAR for cell in cells)
    print(f"auto is within 5 % of the best in {near} of {len(cells)} cells")
    if options.json:
        options.json.write_text(json.dumps(cells, indent=1))


if __name__ == "__main__":
    main()
