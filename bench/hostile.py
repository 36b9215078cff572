"""Hostile load: strangers and malicious members attack an agent, a server and a relay while another user calls a function.

Each attack makes `--count` connections from another process, with four at a time; `slow` holds `--slow` connections that send a byte now
and then. Another user calls a function of the server, one call after the other, over TCP: for some seconds without the attack, and during
it. The table shows how the connections ended, the times of these calls, and the memory of the attacked process. The benchmark fails if
anybody gets in, if a call fails, or if the memory grows by more than `--growth` MiB.

    cargo build --release -p gridloom-cli --example hostile
    python bench/hostile.py [--count 10000] [--slow 1000] [--targets agent server relay]

Attackers and attacked processes share the processors of this machine, so the attackers themselves cause part of the additional time.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

import gridloom as gl

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("GRIDLOOM_PROGRAM") or str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom")
ATTACKERS = str(ROOT / "target" / "release" / "examples" / "hostile")
GRID = "hostile"
QUIET_SECONDS = 4
SLOW_SECONDS = 15
IDL = 'Module os;\nDefine pid(OUT int *pid) Calls "C" pid = getpid();\n'

CALLER = """
import json, os, sys, threading, time
import gridloom as gl

times, lock = [], threading.Lock()

def answer():
    for _ in sys.stdin:
        with lock:
            taken = sorted(times)
            times.clear()
        at = lambda part: taken[int((len(taken) - 1) * part)] * 1e3 if taken else None
        print(json.dumps({"calls": len(taken), "p50": at(0.5), "p99": at(0.99), "most": at(1)}), flush=True)
    os._exit(0)

with gl.connect(sys.argv[1], timeout=60) as grid:
    pid = grid.function("os/pid")
    pid()
    print("ready", flush=True)
    threading.Thread(target=answer, daemon=True).start()
    while True:
        start = time.perf_counter()
        pid()
        with lock:
            times.append(time.perf_counter() - start)
"""


def run(*words, keys, **options):
    environment = {**os.environ, "GRIDLOOM_KEYS": str(keys)}
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True, **options).stdout


class Part:
    """A process that reads commands from stdin, one per line, and exits at end of file."""

    def __init__(self, *words, keys, log, **environment):
        environment = {**os.environ, "GRIDLOOM_KEYS": str(keys), **environment}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=log, env=environment, text=True)
        self.line = self.process.stdout.readline().strip()
        if not self.line:
            raise RuntimeError(f"{words[:2]} has not started; see {log.name}")

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process ended: {self.process.args[:3]}")
        return json.loads(answer)

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Peak:
    """The largest memory of a process while the block runs, in MiB."""

    def __init__(self, part):
        self.part, self.mib, self.done = part, 0, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.done.wait(0.05):
            self.mib = max(self.mib, self.part.resident_mib())

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def admit(folder, admin, name):
    """Keys of a user of the grid, who may call all functions."""
    keys, text = folder / name, folder / f"{name}.pem"
    text.write_text(run(PROGRAM, "keys", "request", GRID, "--name", name, keys=keys))
    text.write_text(run(PROGRAM, "keys", "approve", str(text), keys=admin))
    run(PROGRAM, "keys", "install", str(text), keys=keys)
    return keys


def private(folder):
    folder.mkdir(mode=0o700)
    return str(folder)


def measure(target, attack, options):
    """One row of the table for each attack on a target. Returns False if one succeeded."""
    caller, attackers, attacked = target
    caller.ask("")
    time.sleep(QUIET_SECONDS)
    quiet = caller.ask("")
    before = attacked.resident_mib()
    began = time.monotonic()
    with Peak(attacked) as peak:
        if attack == "slow":
            outcome = attackers.ask(f"slow {options.slow}")
            time.sleep(SLOW_SECONDS)
        else:
            outcome = attackers.ask(f"{attack} {options.count}")
        seconds = time.monotonic() - began
        during = caller.ask("")
    if attack == "slow":
        attackers.ask("slow 0")
    time.sleep(1)
    after, got_in = attacked.resident_mib(), outcome.get("got_in", 0)
    count = options.slow if attack == "slow" else options.count
    growth = peak.mib - before
    is_right = not got_in and during["calls"] > 0 and growth <= options.growth
    print(
        f"{attack:<14}{count:>7}{seconds:>7.0f} s{got_in:>8}{during['calls']:>8}{quiet['p50']:>9.2f}{during['p50']:>9.2f}"
        f"{quiet['p99']:>9.2f}{during['p99']:>9.2f}{during['most']:>9.1f}{before:>9.0f}{peak.mib:>7.0f}{after:>7.0f}"
        f"{'' if is_right else '  WRONG'}",
        flush=True,
    )
    return is_right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="connections of each attack")
    parser.add_argument("--slow", type=int, default=1_000, help="slow connections at a time")
    parser.add_argument("--growth", type=float, default=160, help="limit of the additional memory, MiB")
    parser.add_argument("--targets", nargs="+", default=["agent", "server", "relay"])
    parser.add_argument("--attacks", nargs="+", help="only these")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    is_right = True
    with tempfile.TemporaryDirectory(prefix="gridloom-hostile-") as name:
        folder = pathlib.Path(name)
        admin, log = folder / "admin", open(folder / "log", "w")
        run(PROGRAM, "keys", "init", GRID, keys=admin)
        victim, turncoat = admit(folder, admin, "victim"), admit(folder, admin, "turncoat")
        (folder / "os.idl").write_text(IDL)
        node = ["--json", "--until-stdin-closes"]
        serve = ["serve", str(folder / "os.idl"), "--library", "libc.so.6", "--models", "none", *node]
        try:
            for target in options.targets:
                # With another folder of sockets, the caller uses TCP.
                far = {"GRIDLOOM_SOCKETS": private(folder / f"sockets of {target}")}
                parts = {}
                listen = ["--listen", "127.0.0.1:0"]
                parts["agent"] = Part(PROGRAM, "agent", *listen, "--records", "none", *node, keys=admin, log=log)
                agent = json.loads(parts["agent"].line)["address"]
                if target == "relay":
                    parts["relay"] = Part(PROGRAM, "relay", *listen, *node, keys=admin, log=log)
                    relay = json.loads(parts["relay"].line)["address"]
                    listen = ["--listen", "0.0.0.0:0", "--relay", relay]
                parts["server"] = Part(PROGRAM, *serve, *listen, "--agent", agent, keys=admin, log=log)
                address = json.loads(parts["server"].line)["address"]
                at = {"agent": agent, "server": address}.get(target) or relay
                behind = [address.split("/", 1)[1]] if target == "relay" else []
                parts["attackers"] = Part(ATTACKERS, at, GRID, *behind, keys=turncoat, log=log)
                parts["caller"] = Part(sys.executable, "-c", CALLER, agent, keys=victim, log=log, **far)
                print(
                    f"\n{'on the ' + target:<14}{'count':>7}{'took':>9}{'got in':>8}{'calls':>8}{'p50 ms':>9}{'during':>9}{'p99 ms':>9}"
                    f"{'during':>9}{'most':>9}{'MiB':>9}{'peak':>7}{'after':>7}"
                )
                attacked = (parts["caller"], parts["attackers"], parts[target])
                for attack in [*json.loads(parts["attackers"].line), "slow"]:
                    if not options.attacks or attack in options.attacks:
                        is_right &= measure(attacked, attack, options)
                for part in reversed(parts.values()):
                    part.end()
        except RuntimeError:
            print((folder / "log").read_text()[-4000:], file=sys.stderr)
            raise
    sys.exit(0 if is_right else "an attack succeeded, a call failed, or the memory grew too much")


if __name__ == "__main__":
    main()
