"""Faults: nodes that are killed, restarted, stopped for a while or disconnected, under groups of calls on real processes.

Each trial is a grid of its own: an agent, three servers and a client that runs groups of calls, four chains of three calls on 1 MB
each. At a random moment, a fault happens to the agent, a server, two servers, a worker or the client. The client reports
how each group ended: right, wrong, or with an error. A trial is over when three groups in a row were right after the nodes are
back, or at an error that no node can recover from; otherwise it hangs.

    python bench/faults.py [--trials 20] [--jobs 8] [--only agent:restart:tcp ...] [--seed 0]

`restart` starts the node again at its address as soon as it is dead, `stop` stops its process for 15 s, `cut` breaks its
connections and accepts no new ones for 3 s. Nodes are cut over TCP only: their addresses lead through a forwarder.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import gridloom as gl

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
TARGETS = ("agent", "server", "two servers", "worker", "client")
FAULTS = ("kill", "restart", "stop", "cut")
STOP_S = 15.0
CUT_S = 3.0
HANG_S = 60.0

FUNCTIONS = '''
import time
import gridloom as gl

@gl.function
def step(x: gl.Array["float64", "n"], add: float) -> gl.Array["float64", "n"]:
    time.sleep(0.05)
    return x + add
'''

CLIENT = '''
import json, sys
import gridloom as gl, numpy as np

grid = gl.connect(sys.argv[1])
step = grid.function("faults/step")
number = 0
while True:
    number += 1
    try:
        with grid.group() as group:
            ends = []
            for chain in range(4):
                x = np.full(125_000, float(chain + number))
                for add in (1.0, 2.0, 3.0):
                    x = step(x, add)
                ends.append(x)
        is_right = all((end.get() == chain + number + 6.0).all() for chain, end in enumerate(ends))
        report = {"end": "right" if is_right else "wrong"}
    except gl.GridloomError as error:
        report = {"end": type(error).__name__, "text": str(error)}
    print(json.dumps(report), flush=True)
'''


class Forwarder:
    """A port that forwards to another one, unless it is cut."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.to = None
        self.is_cut = False
        self.pairs = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                local, _ = self.listener.accept()
            except OSError:
                return
            if self.is_cut:
                local.close()
                continue
            try:
                remote = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                local.close()
                continue
            for one in (local, remote):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pairs.append((local, remote))
            for ends in ((local, remote), (remote, local)):
                threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, a, b):
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
        except OSError:
            pass
        for one in (a, b):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.is_cut = True
        for pair in self.pairs:
            for one in pair:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs.clear()

    def heal(self):
        self.is_cut = False

    def end(self):
        self.cut()
        self.listener.close()


def listening_port(process):
    """The TCP port on which a process listens."""
    sockets = {os.readlink(one) for one in pathlib.Path(f"/proc/{process}/fd").iterdir() if one.is_symlink()}
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            return int(fields[1].rpartition(":")[2], 16)
    raise LookupError(f"process {process} does not listen")


class Node:
    """An agent or a server as a process."""

    def __init__(self, *arguments, is_cut):
        self.forwarder = Forwarder() if is_cut else None
        self.arguments = [*arguments, "--json", "--quiet", "--until-stdin-closes"]
        if is_cut:
            self.arguments += ["--advertise", f"127.0.0.1:{self.forwarder.port}"]
        self.port = 0
        self.port, self.address = self.start()

    def start(self):
        """Start it, at its former port if it had one; return the port, and the address for others."""
        run = [PROGRAM, *self.arguments, "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ready = json.loads(self.process.stdout.readline())
        if self.forwarder is not None and self.port == 0:
            self.forwarder.to = listening_port(self.process.pid)
            return self.forwarder.to, ready["address"]
        return int(ready["address"].rpartition(":")[2]), ready["address"]

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.close()
            self.process.wait(30)
        self.process.stdout.close()
        if self.forwarder is not None:
            self.forwarder.end()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def workers(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(one) for task in tasks for one in task.read_text().split()]


class Trial:
    def __init__(self, folder, transport, is_cut):
        shared = ["--no-shared-memory"] if transport == "tcp" else []
        self.agent = Node("agent", is_cut=is_cut)
        fixed = ["--agent", self.agent.address, "--models", "none", "--python", sys.executable, *shared]
        self.servers = [Node("serve", f"{folder}/faults.py", "--name", f"s{n}", *fixed, is_cut=is_cut) for n in range(3)]
        self.folder = folder
        self.reports = collections.deque()
        self.start_client()

    def start_client(self):
        self.client = subprocess.Popen([sys.executable, "-c", CLIENT, self.agent.address], stdout=subprocess.PIPE, text=True)

    def next(self, limit):
        """How the next group ended; `None` if none did in time."""
        ready, _, _ = select.select([self.client.stdout], [], [], limit)
        return json.loads(self.client.stdout.readline() or '{"end": "gone"}') if ready else None

    def until_right(self, seen, limit_s=HANG_S, ends_at_error=False):
        """Wait for three right groups in a row; false if that takes too long."""
        right, until = 0, time.monotonic() + limit_s
        while right < 3:
            report = self.next(max(0.0, until - time.monotonic()))
            if report is None:
                return False
            right = right + 1 if report["end"] == "right" else 0
            if report["end"] != "right":
                seen.append(report)
                if ends_at_error:
                    return True
        return True

    def end(self):
        self.client.send_signal(signal.SIGCONT)
        self.client.kill()
        self.client.wait()
        self.client.stdout.close()
        for node in [*self.servers, self.agent]:
            node.end()


def cause_fault(trial, target, fault, draw):
    """Cause the fault; return a function that undoes it, if it lasts."""
    nodes = {
        "agent": [trial.agent],
        "server": [draw.choice(trial.servers)],
        "two servers": draw.sample(trial.servers, 2),
        "worker": [],
        "client": [],
    }[target]
    if target == "worker":
        workers = draw.choice(trial.servers).workers()
        if not workers:
            return
        worker = draw.choice(workers)
        if fault == "kill":
            os.kill(worker, signal.SIGKILL)
        else:
            os.kill(worker, signal.SIGSTOP)
            time.sleep(STOP_S)
            os.kill(worker, signal.SIGCONT)
    elif target == "client":
        if fault == "stop":
            trial.client.send_signal(signal.SIGSTOP)
            time.sleep(STOP_S)
            trial.client.send_signal(signal.SIGCONT)
        elif fault == "cut":
            for node in [trial.agent, *trial.servers]:
                node.forwarder.cut()
            time.sleep(CUT_S)
            for node in [trial.agent, *trial.servers]:
                node.forwarder.heal()
        else:
            trial.client.kill()
            trial.client.wait()
            trial.client.stdout.close()
            trial.start_client()
    elif fault in ("kill", "restart"):
        for node in nodes:
            node.kill()
        if fault == "restart":
            for node in nodes:
                node.start()
    elif fault == "stop":
        for node in nodes:
            node.process.send_signal(signal.SIGSTOP)
        time.sleep(STOP_S)
        for node in nodes:
            node.process.send_signal(signal.SIGCONT)
    else:
        for node in nodes:
            node.forwarder.cut()
        time.sleep(CUT_S)
        for node in nodes:
            node.forwarder.heal()


def trial(target, fault, transport, seed):
    draw = random.Random(f"{target} {fault} {transport} {seed}")
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "faults.py").write_text(FUNCTIONS)
        one = Trial(folder, transport, fault == "cut")
        try:
            if not one.until_right(seen):
                return ["did not start"], 0.0
            time.sleep(draw.uniform(0.0, 0.5))
            began = time.monotonic()
            cause_fault(one, target, fault, draw)
            ended = one.until_right(seen, ends_at_error=(target, fault) == ("agent", "kill"))
            took_s = time.monotonic() - began
        finally:
            one.end()
    if not ended:
        seen.append({"end": "hangs"})
    return [report["end"] if "text" not in report else f"{report['end']}: {report['text']}" for report in seen], took_s


def cells(only):
    for transport in ("shared", "tcp"):
        for target in TARGETS:
            for fault in FAULTS:
                is_made = (fault != "cut" or transport == "tcp") and (target != "worker" or fault in ("kill", "stop"))
                if is_made and (not only or f"{target}:{fault}:{transport}" in only):
                    yield target, fault, transport


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="trials of each kind")
    parser.add_argument("--jobs", type=int, default=8, help="trials at a time")
    parser.add_argument("--only", nargs="*", default=[], metavar="TARGET:FAULT:TRANSPORT")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bad = 0
    print("target       fault    transport  trials  without an error  longest s  errors")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        run = {
            cell: [pool.submit(trial, *cell, options.seed + number) for number in range(options.trials)]
            for cell in cells(options.only)
        }
        for (target, fault, transport), trials in run.items():
            ends = [one.result() for one in trials]
            errors = collections.Counter(error for seen, _ in ends for error in seen)
            right = sum(not seen for seen, _ in ends)
            longest = max(took for _, took in ends)
            print(f"{target:12} {fault:8} {transport:10} {len(ends):6}  {right:16}  {longest:9.1f}", flush=True)
            for error, times in errors.most_common(5):
                print(f"    {times} x {error[:200]}", flush=True)
            bad += sum(times for error, times in errors.items() if error in ("wrong", "hangs", "gone", "did not start"))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
