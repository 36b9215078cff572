"""A value that is larger than the memory of the servers: put, and broadcast to all of them.

Servers have little memory and a disk (`gridloom serve --memory --disk`), and exchange data over TCP on this machine. A program puts an array
of the numbers 0, 1, 2 ..., and sends it to all servers. On each server a function checks every element. Printed are the durations of both, and the
peak memory of each server that the system could not reclaim without losing data (anonymous and shared memory).

    python bench/spilling.py [--gib 4] [--memory 512MiB] [--servers 3] [--disk FOLDER]
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time

import gridloom as gl
import numpy as np
from faults import Node

FUNCTIONS = '''
import gridloom as gl
import numpy as np


@gl.function
def wrong(data: gl.Array["float64", "n"]) -> int:
    """Number of elements that differ from their index."""
    step = 1 << 20
    parts = ((first, data[first : first + step]) for first in range(0, len(data), step))
    return sum(int((part != np.arange(first, first + len(part))).sum()) for first, part in parts)
'''


class Watch:
    """The peak memory of each process."""

    def __init__(self, pids):
        self.most = dict.fromkeys(pids, 0)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended.wait(0.02):
            for pid in self.most:
                lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                held = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))
                self.most[pid] = max(self.most[pid], held)

    def end(self):
        self.ended.set()
        self.thread.join()
        return max(self.most.values())


def timed(act):
    began = time.monotonic()
    act()
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--disk", help="an existing folder; a temporary one without it")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        functions = pathlib.Path(folder) / "spilling_functions.py"
        functions.write_text(FUNCTIONS)
        agent = Node("agent", is_cut=False)
        fixed = ["serve", str(functions), "--agent", agent.address, "--python", sys.executable, "--models", "none"]
        store = ["--memory", options.memory, "--disk", folder, "--no-shared-memory"]
        servers = [Node(*fixed, *store, "--name", f"s{number}", is_cut=False) for number in range(options.servers)]
        size = int(options.gib * (1 << 30)) // 8
        puts, places = [], []
        with gl.connect(agent.address) as grid:
            wrong = grid.function("spilling_functions/wrong")
            for number in range(options.rounds):
                watch = Watch([server.process.pid for server in servers])
                value = np.arange(size, dtype=np.float64)
                puts.append(timed(lambda name=f"v{number}", value=value: grid.put(name, value)))
                del value
                places.append(timed(lambda name=f"v{number}": grid.place(name)))
                most = watch.end()
                found = grid.find(f"v{number}")
                with grid.group():
                    wrongs = [wrong.on(f"s{place}")(found) for place in range(options.servers)]
                assert [one.get() for one in wrongs] == [0] * options.servers
                told = {"gib": options.gib, "servers": options.servers, "memory": options.memory}
                told |= {"put_s": round(puts[-1], 1), "place_s": round(places[-1], 1), "held_mib": most >> 20}
                print(json.dumps(told), flush=True)
                del found
                grid.delete(f"v{number}")
        print(json.dumps({"put_s": statistics.median(puts), "place_s": statistics.median(places)}))
        for node in [*servers, agent]:
            node.end()


if __name__ == "__main__":
    main()
