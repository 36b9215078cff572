"""Measures the transfer of large data over a long-distance link, over one connection and over several, on the testbed.

    python bench/streams.py [--streams 1 4] [--mib 128] [--rounds 4] [--latency 30] [--bandwidth 1Gbps]

The two servers have Linux's default limits of TCP buffers (4 MiB to send, 6 MiB to receive; the testbed's own are larger). A value is
sent from one to the other. Prints a line of JSON for each transfer, with its rate relative to the link's. The first transfers start slowly.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile

GRIDLOOM = pathlib.Path(sys.executable).parent / "gridloom"
PLATFORM = """
[[host]]
name = "client"
speed = "1Gf"
properties = {{ role = "client, agent" }}
[[cluster]]
name = "servers"
hosts = "server-[1-2]"
speed = "1Gf"
bandwidth = "{bandwidth}"
latency = "{half}us"
properties = {{ role = "server", memory = "8GiB" }}
[[link]]
name = "near"
bandwidth = "{bandwidth}"
latency = "100us"
sharing = "splitduplex"
[[route]]
from = "client"
to = "servers"
links = ["near:up"]
"""
WINDOWS = "echo 4096 16384 4194304 > /proc/sys/net/ipv4/tcp_wmem; echo 4096 131072 6291456 > /proc/sys/net/ipv4/tcp_rmem"
PROGRAM = """
import sys, time
import gridloom as gl, numpy as np
size, rounds = int(sys.argv[1]), int(sys.argv[2])
with gl.local(servers=2) as grid:
    for number in range(rounds):
        grid.put(f"value-{number}", np.zeros(size, dtype=np.uint8), method="direct")
        begun = time.perf_counter()
        grid.place(f"value-{number}")
        print(time.perf_counter() - begun, flush=True)
"""


@contextlib.contextmanager
def testbed(platform, streams):
    """Start a testbed whose servers send large data over `streams` connections. Yields its name."""
    name = f"streams-{os.getpid()}"
    command = [GRIDLOOM, "testbed", "up", "-p", platform, "--name", name, "--speeds", "none"]
    environment = {**os.environ, "GRIDLOOM_STREAMS": str(streams)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as keeper:
        try:
            if not (select.select([keeper.stdout], [], [], 60)[0] and "is up" in keeper.stdout.readline()):
                raise RuntimeError("the testbed cannot be started")
            for host in ("server-1", "server-2"):
                subprocess.run([GRIDLOOM, "testbed", "enter", "--name", name, host, "--", "sh", "-c", WINDOWS], check=True)
            yield name
        finally:
            keeper.terminate()


def bytes_per_second(bandwidth):
    for unit, factor in (("Gbps", 125e6), ("Mbps", 125e3)):
        if bandwidth.endswith(unit):
            return float(bandwidth.removesuffix(unit)) * factor
    raise ValueError(f"bandwidth '{bandwidth}': give it as 1Gbps or 200Mbps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--latency", type=float, default=30, help="between the servers, ms")
    parser.add_argument("--bandwidth", default="1Gbps")
    options = parser.parse_args()
    size = options.mib << 20
    with tempfile.TemporaryDirectory() as folder:
        platform = pathlib.Path(folder) / "platform.toml"
        platform.write_text(PLATFORM.format(bandwidth=options.bandwidth, half=options.latency * 500))
        for streams in options.streams:
            with testbed(platform, streams) as name:
                command = [GRIDLOOM, "testbed", "enter", "--name", name, "client", "--", sys.executable, "-c", PROGRAM]
                command += [str(size), str(options.rounds)]
                out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout
            for number, seconds in enumerate(map(float, out.split())):
                of_link = size / seconds / bytes_per_second(options.bandwidth)
                line = {"streams": streams, "transfer": number, "seconds": round(seconds, 3), "of_link": round(of_link, 3)}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
