"""A broadcast while a server is killed (kill -9): all others get every byte, and nothing hangs.

Each trial is a grid of its own on this machine: an agent and servers, as processes that exchange data over TCP. A client puts bytes
under a name, and all servers read them at once, each checking their SHA-256. At a random moment, a server is killed:

    keeper    one of the servers that keep the value, as `put` has placed it
    reader    another one, which may be forwarding the bytes to others

The trial is right if each other server has received the bytes, the call of the killed one has ended, and the client can then read
the bytes. A trial that takes longer than `--limit` hangs: it is reported with its seed, and with the servers' output.

    python bench/broadcast_with_failures.py [--trials 100] [--mib 128] [--servers 8] [--replicas 2] [--seed 0] [--only keeper:planned ...]

Methods of reading: `named`, functions that get the name; `planned`, calls of a group that take it as an argument; `placed`, `Grid.place`.
The time lost in a trial is its time beyond the median of the trials in which nothing is killed (`--baseline`).
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time

from faults import Node

METHODS = ("named", "planned", "placed")
VICTIMS = ("keeper", "reader")

FUNCTIONS = """
import hashlib
import gridloom as gl

def short(data) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:7])

@gl.function
def check(data: gl.Array["uint8", "n"]) -> int:
    return short(data)

@gl.function
def check_named(name: str) -> int:
    with gl.connect() as grid:
        return short(grid.get(name))
"""

CLIENT = """
import hashlib, json, sys
import gridloom as gl, numpy as np

address, seed, size_bytes, replicas, method = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
grid = gl.connect(address)
data = np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)
expected = int.from_bytes(hashlib.sha256(data).digest()[:7])

def report(**fields):
    print(json.dumps(fields), flush=True)

def ends(calls):
    for server, call in calls.items():
        try:
            report(server=server, end="right" if call.get() == expected else "wrong")
        except gl.GridloomError as error:
            report(server=server, end=type(error).__name__, text=str(error))

def all_read():
    servers = [server.name for server in grid.servers()]
    if method == "named":
        named = grid.function("broadcast_functions/check_named")
        return ends({server: named.on(server).submit("value") for server in servers})
    if method == "placed":
        try:
            grid.place("value")
            report(placed="right")
        except gl.GridloomError as error:
            report(placed=type(error).__name__, text=str(error))
    check, found, calls = grid.function("broadcast_functions/check"), grid.find("value"), {}
    with grid.group():
        for server in servers:
            try:
                calls[server] = check.on(server)(found)
            except gl.InputError as error:
                # It was killed before.
                report(server=server, end="InputError", text=str(error))
    ends(calls)

# Starts a worker on each server.
check = grid.function("broadcast_functions/check")
[one.get() for one in [check.on(server.name).submit(data[:1]) for server in grid.servers()]]
grid.put("value", data, replicas=replicas)
report(keepers=grid.names("value")[0].servers)
sys.stdin.readline()
all_read()
report(read="right" if (grid.get("value") == data).all() else "wrong")
"""


class Trial:
    def __init__(self, folder, options, number, method):
        self.folder = pathlib.Path(folder)
        (self.folder / "broadcast_functions.py").write_text(FUNCTIONS)
        self.agent = Node("agent", is_cut=False)
        fixed = ["--agent", self.agent.address, "--models", "none", "--python", sys.executable, "--no-shared-memory"]
        self.servers = {
            f"s{n}": Node("serve", f"{folder}/broadcast_functions.py", "--name", f"s{n}", *fixed, is_cut=False)
            for n in range(options.servers)
        }
        given = [self.agent.address, number, options.mib << 20, options.replicas, method]
        self.client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, *map(str, given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def next(self, until):
        """The client's next report; `None` if there is none in time."""
        ready, _, _ = select.select([self.client.stdout], [], [], max(0.0, until - time.monotonic()))
        return json.loads(self.client.stdout.readline() or '{"gone": true}') if ready else None

    def go(self):
        self.client.stdin.write("go\n")
        self.client.stdin.flush()

    def end(self):
        self.client.kill()
        self.client.wait()
        self.client.stdin.close()
        self.client.stdout.close()
        for node in self.servers.values():
            if node.process.poll() is None:
                node.end()
        self.agent.end()


def errors_of(reports, victim, names):
    """The errors among the reports of the client."""
    ends = {line["server"]: line for line in reports if "server" in line}
    found = [f"{name}: {ends[name]['end']}: {ends[name].get('text', '')}" for name in names if name in ends]
    found = [
        text
        for text, name in zip(found, [name for name in names if name in ends])
        if name != victim and ends[name]["end"] != "right"
    ]
    found += [f"{name}: no answer" for name in names if name not in ends]
    if victim in ends and ends[victim]["end"] == "wrong":
        found.append(f"{victim}, which was killed: wrong")
    if not any(line.get("read") == "right" for line in reports):
        found.append("the client has not read the bytes")
    return found


def trial(options, number, method, kind, delay_s):
    """Duration in seconds, and the errors; `kind` is `None` if nothing is to be killed."""
    draw = random.Random(f"{method} {kind} {number}")
    with tempfile.TemporaryDirectory() as folder:
        run = Trial(folder, options, number, method)
        try:
            until = time.monotonic() + options.limit
            first = run.next(until)
            if first is None or "keepers" not in first:
                return 0.0, [f"did not begin: {first}"], None
            keepers = first["keepers"]
            victim = None
            if kind is not None:
                among = keepers if kind == "keeper" else [name for name in run.servers if name not in keepers]
                victim = draw.choice(among)
            begun, reports = time.monotonic(), []
            until = begun + options.limit
            run.go()
            if victim is not None:
                time.sleep(draw.uniform(0.0, delay_s))
                run.servers[victim].kill()
            while not reports or not ("read" in reports[-1] or "gone" in reports[-1]):
                line = run.next(until)
                if line is None:
                    return options.limit, [f"hangs; the client has reported {reports}"], victim
                reports.append(line)
            return time.monotonic() - begun, errors_of(reports, victim, run.servers), victim
        finally:
            run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--baseline", type=int, default=5, help="trials of each method in which nothing is killed")
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a trial")
    parser.add_argument("--only", nargs="*", default=[], metavar="VICTIM:METHOD")
    options = parser.parse_args()
    cells = [(kind, method) for method in METHODS for kind in VICTIMS if not options.only or f"{kind}:{method}" in options.only]
    baseline_s = {}
    for method in dict.fromkeys(method for _, method in cells):
        seconds = []
        for number in range(options.baseline):
            took_s, errors, _ = trial(options, options.seed + number, method, None, 0.0)
            seconds.append(took_s)
            if errors:
                sys.exit(f"{method}, nothing killed: {errors}")
        baseline_s[method] = statistics.median(seconds)
        print(f"{method}, nothing killed: {baseline_s[method]:.2f} s ({min(seconds):.2f} to {max(seconds):.2f})", flush=True)
    lost, bad = {cell: [] for cell in cells}, 0
    for number, (kind, method) in zip(range(options.trials), itertools.cycle(cells)):
        seed = options.seed + number
        took_s, errors, victim = trial(options, seed, method, kind, 1.2 * baseline_s[method])
        lost[kind, method].append(took_s - baseline_s[method])
        load = os.getloadavg()[0]
        print(
            f"seed {seed}, {kind} {victim}, {method}: {took_s:.2f} s, load {load:.1f}{''.join(f'; {text}' for text in errors)}",
            flush=True,
        )
        bad += bool(errors)
    for (kind, method), seconds in lost.items():
        if seconds:
            print(
                f"{kind} killed, {method}: {len(seconds)} trials, lost {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
            )
    print(f"{bad} of {options.trials} trials were not right")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
