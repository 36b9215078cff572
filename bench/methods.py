"""Whether `auto` selects the best transfer method: simulated, for combinations (cells) of platform, servers and size.

    python bench/methods.py [--json FILE]

In each cell a value of one server is sent to all others: by `auto`, and by each other method. A cell is *near* if `auto` takes at most
1.1 times as long as the best of the others.
"""

import argparse
import json
import pathlib
import statistics
import tempfile

import gridloom as gl
import numpy as np
from star import star

MIB = 1 << 20
METHODS = ("direct", "tree", "swarm")
SERVERS = (2, 3, 5, 8, 16, 32, 64, 128)
SIZES = (MIB // 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)


PLATFORMS = {
    "100 Mb/s": lambda servers: star(servers, 12.5e6),
    "1 Gb/s": lambda servers: star(servers, 125e6),
}


def seconds(platform, size_bytes, method, replicas):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "platform.toml"
        file.write_text(platform)
        with gl.simulate(file) as grid:
            grid.advance(60)
            grid.put("data", np.broadcast_to(np.uint8(0), (size_bytes,)), method=method, replicas=replicas)
            begun = grid.now()
            grid.place("data")
            return grid.now() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    cells = []
    for name, platform in PLATFORMS.items():
        for servers in SERVERS:
            text = platform(servers)
            for size_bytes in SIZES:
                for replicas in (1, 2):
                    if replicas >= servers:
                        continue
                    by = {one: seconds(text, size_bytes, one, replicas) for one in ("auto", *METHODS)}
                    best = min(METHODS, key=by.get)
                    ratio = by["auto"] / by[best]
                    cells.append(
                        {
                            "platform": name,
                            "servers": servers,
                            "bytes": size_bytes,
                            "replicas": replicas,
                            **by,
                            "ratio": ratio,
                        }
                    )
                    if ratio > 1.1:
                        times = ", ".join(f"{one} {taken:.4f} s" for one, taken in by.items())
                        print(
                            f"{name}, {servers} servers, {size_bytes / MIB} MiB, {replicas} replicas: {times}",
                            flush=True,
                        )
    near = sum(cell["ratio"] <= 1.1 for cell in cells)
    ratios = [cell["ratio"] for cell in cells]
    print(
        f"{near} of {len(cells)} cells are near ({near / len(cells):.0%}); auto takes {statistics.median(ratios):.2f} times as long as the best"
    )
    print(f"({min(ratios):.2f} to {max(ratios):.2f})")
    if options.json:
        options.json.write_text(json.dumps(cells, indent=1))


if __name__ == "__main__":
    main()
