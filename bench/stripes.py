"""Many messages between two distant sites, over one connection and over several (`--filter stripe=N`), on the testbed.

    python bench/stripes.py [--rounds 3] [--latency 50ms] [--bandwidth 1Gbps]      # after make build and make python

A chare at the first site sends messages of 1 MiB to a chare at the second, which replies when it has received all of them. A round runs
each number of connections once.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from gridloom import chares

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRIDLOOM = ROOT / "target" / "release" / "gridloom"
MESSAGES = 256
MESSAGE_BYTES = 1 << 20
CONNECTIONS = (1, 2, 4, 8)
PLATFORM = """[[host]]
name = "east"
speed = "1Gf"
properties = {{ site = "east" }}

[[host]]
name = "west"
speed = "1Gf"
properties = {{ site = "west" }}

[[link]]
name = "wan"
bandwidth = "{bandwidth}"
latency = "{latency}"
sharing = "splitduplex"

[[connect]]
from = "east"
to = "west"
links = ["wan:up"]
"""


class End(chares.Chare):
    def __init__(self):
        self.received = 0

    def send(self):
        self.began = time.monotonic()
        message = bytes(MESSAGE_BYTES)
        for _ in range(MESSAGES):
            self.array[1].take(message)

    def take(self, message):
        self.received += 1
        if self.received == MESSAGES:
            self.array[0].all_arrived()

    def all_arrived(self):
        chares.exit(time.monotonic() - self.began)


def program(job):
    job.array(End, 2)[0].send()


def rate(connections, platform, folder):
    """Megabytes per second."""
    deployment = folder / "elements.toml"
    options = ["--filter", f"stripe={connections}"] if connections > 1 else []
    made = subprocess.run([GRIDLOOM, "chares", "deployment", "-p", platform, *options], check=True, capture_output=True, text=True)
    deployment.write_text(made.stdout)
    command = [GRIDLOOM, "testbed", "run", "--no-grid", "-p", platform, "-d", deployment, "--", sys.executable, __file__, "--as-element"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    found = re.search(r"took ([\d.]+) s", done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"{connections} connections: {done.stdout}{done.stderr}")
    return MESSAGES * MESSAGE_BYTES / 1e6 / float(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", default="50ms", help="one way")
    parser.add_argument("--bandwidth", default="1Gbps")
    parser.add_argument("--as-element", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_element:
        ended = chares.run(program)
        if ended.is_first:
            print(f"took {ended.value} s")
        return
    found = {connections: [] for connections in CONNECTIONS}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        platform = folder / "platform.toml"
        platform.write_text(PLATFORM.format(latency=options.latency, bandwidth=options.bandwidth))
        for _ in range(options.rounds):
            for connections in CONNECTIONS:
                found[connections].append(rate(connections, platform, folder))
    print("| connections | MB/s |\n|---|---|")
    for connections, rates in found.items():
        print(f"| {connections} | {statistics.median(rates):.1f} ({min(rates):.1f}..{max(rates):.1f}) |")


if __name__ == "__main__":
    main()
