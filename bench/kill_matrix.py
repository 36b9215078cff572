"""Parts of a grid that die, hang or are cut off, at random moments: each group returns the right result or raises a named error in time.

Each trial is a grid of its own in network namespaces of this machine: an agent and its standby, a relay, two servers and a program on hosts
of their own. The program runs a group of 60 calls of 50 ms in 30 rounds. At a random moment during the run, something happens to one part:

    kill    kill -9
    stop    the process is stopped for 15 s
    cut     the host loses its network for 15 s (servers and program only)

A trial is right if the program prints the right result, or the name of an error of Gridloom, within `--limit` seconds after the moment:
twice the 10 s after which a silent node counts as lost, and the time of the group. Afterwards, a second program must get a right result.

    GRIDLOOM_PROGRAM=target/release/gridloom unshare -Urnm python bench/kill_matrix.py [--moments 20] [--seed 0] [--only agent:kill ...]
"""

import argparse
import os
import pathlib
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "crates/gridloom-python/tests"))
import hidden_sites as sites  # noqa: E402

PARTS = ["agent", "standby", "relay", "server", "worker", "program"]
KINDS = ["kill", "stop", "cut"]
STOPPED_SECONDS = 15
SPARE = f"{sites.HUB}:7712"
BOTH = f"{sites.AGENT}+{SPARE}"

PROGRAM = """
import sys, time
import gridloom as gl
import numpy as np

with gl.connect(sys.argv[1], timeout=60) as grid:
    step = grid.function("own/step")
    first = np.arange(1000.0)
    values, expected = [first, first], [first, first]
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        with grid.group() as group:
            for _ in range(30):
                values = [step(*values, 0.05, "") for _ in range(2)]
                expected = [expected[0] / 2 + expected[1] + 1] * 2
            results = [value.get() for value in values]
    except gl.GridloomError as error:
        print(type(error).__name__, flush=True)
    else:
        print("right" if all(map(np.array_equal, results, expected)) else "wrong", flush=True)
"""


class Grid:
    """The parts of one trial."""

    def __init__(self, folder):
        self.folder, self.parts = folder, {}
        (folder / "functions.py").write_text(sites.FUNCTIONS)
        self.start("agent", [], "agent", "--listen", "0.0.0.0:7711", "--advertise", sites.AGENT)
        listen = ["--listen", "0.0.0.0:7712", "--advertise", SPARE, "--name", "spare"]
        self.start("standby", [], "agent", "--standby-of", sites.AGENT, *listen)
        self.start("relay", [], "relay", "--listen", "0.0.0.0:8443", "--advertise", sites.RELAY)
        for name, host in [("server", "one"), ("other", "two")]:
            listen = ["--listen", "0.0.0.0:7801", "--advertise", f"{sites.address(host)}:7801", "--relay", sites.RELAY]
            options = ["--name", host, "--slots", "1", "--models", "none", "--python", sys.executable, "--agent", BOTH]
            self.start(name, sites.enter(host), "serve", "functions.py", *listen, *options)

    def start(self, name, enter, *words):
        command = [*enter, sites.PROGRAM, *words, "--json", "--log", "info"]
        log = open(self.folder / f"{name}.log", "w")
        self.parts[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.folder)
        assert self.parts[name].stdout.readline(), f"{name} has not started"

    def program(self):
        command = [*sites.enter("home"), sys.executable, "-c", PROGRAM, BOTH]
        log = open(self.folder / "program.log", "a")
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        if program.stdout.readline() != "ready\n":
            raise RuntimeError((self.folder / "program.log").read_text())
        print("go", file=program.stdin, flush=True)
        return program

    def process(self, part, program):
        """The identifier of the process to which something happens."""
        if part == "program":
            return program.pid
        pid = self.parts[part if part != "worker" else "server"].pid
        if part != "worker":
            return pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[-1])

    def end(self):
        for part in self.parts.values():
            part.send_signal(signal.SIGCONT)
            part.kill()
            part.wait()


def happen(kind, part, pid):
    """Returns what ends it, or None."""
    if kind == "kill":
        os.kill(pid, signal.SIGKILL)
        return None
    if kind == "stop":
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)
    device = f"to-{'home' if part == 'program' else 'one'}"
    sites.run("ip", "link", "set", device, "down")
    return lambda: sites.run("ip", "link", "set", device, "up")


def outcome(program, until):
    """What a program has printed by a time; "hangs" if nothing."""
    ready, _, _ = select.select([program.stdout], [], [], max(0, until - time.monotonic()))
    return program.stdout.readline().strip() or "ended" if ready else "hangs"


def trial(part, kind, moment, limit):
    with tempfile.TemporaryDirectory() as folder:
        grid = Grid(pathlib.Path(folder))
        try:
            program = grid.program()
            time.sleep(moment)
            pid, at = grid.process(part, program), time.monotonic()
            over = happen(kind, part, pid)
            if over and part == "program":
                time.sleep(STOPPED_SECONDS)
                over()
                over, at = None, time.monotonic()
            printed = "killed" if (part, kind) == ("program", "kill") else outcome(program, at + (STOPPED_SECONDS if over else limit))
            if over:
                over()
                printed = printed if printed != "hangs" else outcome(program, at + max(limit, STOPPED_SECONDS + 10))
            seconds = time.monotonic() - at
            program.kill()
            program.wait()
            again = outcome(grid.program(), time.monotonic() + limit)
            return printed, again, seconds
        finally:
            grid.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=25, help="seconds")
    parser.add_argument("--only", nargs="*", default=[], metavar="PART:KIND")
    options = parser.parse_args()
    sites.build_network()
    sites.forward(True)
    drawn, wrong = random.Random(options.seed), 0
    print("| part | what | right | named errors | seconds, median and longest | not right, or hangs |\n|---|---|---|---|---|---|")
    for part, kind in [(part, kind) for part in PARTS for kind in KINDS if kind != "cut" or part in ("server", "program")]:
        moments = [drawn.uniform(0, 1.5) for _ in range(options.moments)]
        if options.only and f"{part}:{kind}" not in options.only:
            continue
        trials = [trial(part, kind, moment, options.limit) for moment in moments]
        right = sum(printed in ("right", "killed") for printed, _, _ in trials)
        bad = [
            f"{moment:.3f} s: {printed}, then {again}"
            for moment, (printed, again, _) in zip(moments, trials)
            if printed in ("wrong", "hangs", "ended") or again != "right"
        ]
        names = sorted({printed for printed, _, _ in trials} - {"right", "killed", "wrong", "hangs", "ended"})
        seconds = [seconds for _, _, seconds in trials]
        times = f"{statistics.median(seconds):.1f}, {max(seconds):.1f}"
        print(f"| {part} | {kind} | {right} of {len(trials)} | {', '.join(names)} | {times} | {'; '.join(bad)} |", flush=True)
        wrong += len(bad)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
