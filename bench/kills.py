"""A broadcast while a server is killed (kill -9): all others get every byte, and nothing hangs.

Each trial is a grid of its own on this machine: an agent and servers, as processes that exchange data over TCP. A client puts bytes
under a name, and all servers read them at once, each checking their SHA-256. At a random moment, a server is killed:

    keeper    one of the servers that keep the value, as `put` has placed it
    reader    another one, which may be forwarding the bytes to others

The trial is right if each other server has received the bytes, the call of the killed one has ended, and the client can then read
the bytes. A trial that takes longer than `--limit` hangs: it is reported with its seed, and with the servers' output.

    python bench/kills.py [--trials 100] [--mib 128] [--servers 8] [--replicas 2] [--seed 0] [--only keeper:planned ...]

Methods of reading: `named`, functions that get the name; `planned`, calls of a group that take it as an argument; `placed`, `Grid.place`.
The time lost in a trial is its time beyond the median of the trials in which nothing is killed (`--calm`).
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

from bad_days import Node

WAYS = ("named", "planned", "placed")
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

address, seed, size_bytes, replicas, way = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
grid = gl.connect(address)
data = np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)
whole = int.from_bytes(hashlib.sha256(data).digest()[:7])

def say(**told):
    print(json.dumps(told), flush=True)

def ends(calls):
    for server, call in calls.items():
        try:
            say(server=server, end="right" if call.get() == whole else "wrong")
        except gl.GridloomError as error:
            say(server=server, end=type(error).__name__, text=str(error))

def all_read():
    servers = [server.name for server in grid.servers()]
    if way == "named":
        named = grid.function("kills/check_named")
        return ends({server: named.on(server).submit("value") for server in servers})
    if way == "placed":
        try:
            grid.place("value")
            say(placed="right")
        except gl.GridloomError as error:
            say(placed=type(error).__name__, text=str(error))
    check, found, calls = grid.function("kills/check"), grid.find("value"), {}
    with grid.group():
        for server in servers:
            try:
                calls[server] = check.on(server)(found)
            except gl.InputError as error:
                # It was killed before.
                say(server=server, end="InputError", text=str(error))
    ends(calls)

# So that all have a worker.
check = grid.function("kills/check")
[one.get() for one in [check.on(server.name).submit(data[:1]) for server in grid.servers()]]
grid.put("value", data, replicas=replicas)
say(keepers=grid.names("value")[0].servers)
sys.stdin.readline()
all_read()
say(read="right" if (grid.get("value") == data).all() else "wrong")
"""


class Trial:
    def __init__(self, folder, options, number, way):
        self.folder = pathlib.Path(folder)
        (self.folder / "kills.py").write_text(FUNCTIONS)
        self.agent = Node("agent", is_cut=False)
        fixed = ["--agent", self.agent.address, "--models", "none", "--python", sys.executable, "--no-shared-memory"]
        self.servers = {
            f"s{n}": Node("serve", f"{folder}/kills.py", "--name", f"s{n}", *fixed, is_cut=False)
            for n in range(options.servers)
        }
        given = [self.agent.address, number, options.mib << 20, options.replicas, way]
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


def wrongs_of(told, victim, names):
    """The mistakes among the client's reports."""
    ends = {line["server"]: line for line in told if "server" in line}
    found = [f"{name}: {ends[name]['end']}: {ends[name].get('text', '')}" for name in names if name in ends]
    found = [
        text
        for text, name in zip(found, [name for name in names if name in ends])
        if name != victim and ends[name]["end"] != "right"
    ]
    found += [f"{name}: no answer" for name in names if name not in ends]
    if victim in ends and ends[victim]["end"] == "wrong":
        found.append(f"{victim}, which was killed: wrong")
    if not any(line.get("read") == "right" for line in told):
        found.append("the client has not read the bytes")
    return found


def trial(options, number, way, kind, delay_s):
    """Seconds that it took, and what is wrong; `kind` is `None` if nothing is to be killed."""
    draw = random.Random(f"{way} {kind} {number}")
    with tempfile.TemporaryDirectory() as folder:
        one = Trial(folder, options, number, way)
        try:
            until = time.monotonic() + options.limit
            first = one.next(until)
            if first is None or "keepers" not in first:
                return 0.0, [f"did not begin: {first}"], None
            keepers = first["keepers"]
            victim = None
            if kind is not None:
                among = keepers if kind == "keeper" else [name for name in one.servers if name not in keepers]
                victim = draw.choice(among)
            begun, told = time.monotonic(), []
            until = begun + options.limit
            one.go()
            if victim is not None:
                time.sleep(draw.uniform(0.0, delay_s))
                one.servers[victim].kill()
            while not told or not ("read" in told[-1] or "gone" in told[-1]):
                line = one.next(until)
                if line is None:
                    return options.limit, [f"hangs; the client has reported {told}"], victim
                told.append(line)
            return time.monotonic() - begun, wrongs_of(told, victim, one.servers), victim
        finally:
            one.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--calm", type=int, default=5, help="trials of each method in which nothing is killed")
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a trial")
    parser.add_argument("--only", nargs="*", default=[], metavar="VICTIM:WAY")
    options = parser.parse_args()
    cells = [(kind, way) for way in WAYS for kind in VICTIMS if not options.only or f"{kind}:{way}" in options.only]
    calm = {}
    for way in dict.fromkeys(way for _, way in cells):
        took = []
        for number in range(options.calm):
            took_s, wrongs, _ = trial(options, options.seed + number, way, None, 0.0)
            took.append(took_s)
            if wrongs:
                sys.exit(f"{way}, nothing killed: {wrongs}")
        calm[way] = statistics.median(took)
        print(f"{way}, nothing killed: {calm[way]:.2f} s ({min(took):.2f} to {max(took):.2f})", flush=True)
    lost, bad = {cell: [] for cell in cells}, 0
    for number, (kind, way) in zip(range(options.trials), itertools.cycle(cells)):
        seed = options.seed + number
        took_s, wrongs, victim = trial(options, seed, way, kind, 1.2 * calm[way])
        lost[kind, way].append(took_s - calm[way])
        load = os.getloadavg()[0]
        print(
            f"seed {seed}, {kind} {victim}, {way}: {took_s:.2f} s, load {load:.1f}{''.join(f'; {text}' for text in wrongs)}",
            flush=True,
        )
        bad += bool(wrongs)
    for (kind, way), seconds in lost.items():
        if seconds:
            print(
                f"{kind} killed, {way}: {len(seconds)} trials, lost {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
            )
    print(f"{bad} of {options.trials} trials were not right")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
