"""Time to send a shared datum to every server, compared with one transfer of it.

Without arguments: simulated, servers around a switch. With `--here`: in the grid that runs, for example on a testbed:

    python bench/broadcast.py
    python bench/star.py > star.toml
    gridloom testbed run -p star.toml --functions builtin:linalg -- python bench/broadcast.py --here --bandwidth 12.5e6

On a testbed it also counts what each server sends.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import gridloom as gl
import numpy as np
from star import star

MIB = 1 << 20
# Servers, bandwidth of each link (bytes a second), bytes.
SIMULATED = [
    (2, 12.5e6, 64 * MIB),
    (4, 12.5e6, 64 * MIB),
    (8, 12.5e6, 64 * MIB),
    (16, 12.5e6, 64 * MIB),
    (16, 12.5e6, 256 * MIB),
    (64, 125e6, 64 * MIB),
    (256, 125e6, 64 * MIB),
    (1024, 125e6, 64 * MIB),
    (64, 125e6, 1024 * MIB),
    (256, 125e6, 1024 * MIB),
    (1024, 125e6, 1024 * MIB),
]


PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"


def sent_by_server():
    """Bytes that each server has sent; none, if this is not a testbed."""
    done = subprocess.run([PROGRAM, "testbed", "show", "--json"], capture_output=True, text=True)
    links = json.loads(done.stdout)["links"] if done.returncode == 0 else []
    return {one["name"]: one["bytes"] for one in links if one["name"].endswith("_UP") and "_client" not in one["name"]}


def seconds_to_all(grid, name):
    """Seconds until all servers have the datum of its first server."""
    begun = grid.now()
    grid.place(name)
    return grid.now() - begun


def simulated():
    print("servers  MB/s    MiB  seconds  of one transfer  most that a server sends")
    for servers, bandwidth, size_bytes in SIMULATED:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "platform.toml"
            file.write_text(star(servers, bandwidth))
            with gl.simulate(file) as grid:
                # Servers measure the links between them when they join.
                grid.advance(60)
                grid.put("data", np.broadcast_to(np.uint8(0), (size_bytes,)))
                seconds = seconds_to_all(grid, "data")
                sent = [
                    size
                    for link, size in grid.simulation().bytes_by_link.items()
                    if link.endswith("_UP") and "_client" not in link
                ]
        ratio = seconds / (size_bytes / bandwidth)
        print(
            f"{servers:7} {bandwidth / 1e6:5.1f} {size_bytes // MIB:6} {seconds:8.2f} {ratio:16.3f} {max(sent) / size_bytes:25.2f}",
            flush=True,
        )


def here(bandwidth, size_bytes, rounds):
    with gl.connect() as grid:
        alone = size_bytes / bandwidth
        ratios, uploads = [], []
        for number in range(rounds):
            name = f"broadcast-{number}"
            value = np.random.default_rng(number).integers(0, 256, size_bytes, np.uint8)
            grid.put(name, value)
            before = sent_by_server()
            ratios.append(seconds_to_all(grid, name) / alone)
            uploads.append(
                max(((after - before[link]) / size_bytes for link, after in sent_by_server().items()), default=0.0)
            )
            grid.delete(name)
        low, high = min(ratios), max(ratios)
        servers = len(grid.servers())
        print(
            f"{servers} servers, {size_bytes // MIB} MiB: {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}) of one transfer, "
            f"most that a server sends {max(uploads):.2f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="in the grid that GRIDLOOM_AGENT names")
    parser.add_argument("--bandwidth", type=float, default=12.5e6, help="of each link, bytes a second")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.here:
        here(options.bandwidth, options.mib * MIB, options.rounds)
    else:
        simulated()


if __name__ == "__main__":
    main()
