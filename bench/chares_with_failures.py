"""The stencil on chares while an element or a server is killed (kill -9): its result has the bits of the serial program's, and nothing hangs.

    python bench/chares_with_failures.py [--trials 100] [--kinds folder memory server resize]        # after make build; builds the example

Each trial runs the stencil with checkpoints, and kills a process at a random moment of the time of an undisturbed run:

    folder    an element; all restart from the last checkpoint in a folder
    memory    an element; it alone restarts, with the part that another one kept
    server    one of three servers with a slot each, two of which have an element; two of the remaining ones restart elements
    resize    an element of a program that alternates between four and two elements; kept in memory or a folder, in turn

A trial is right if the program ends with the checksum of the serial program. One that takes longer than `--limit` hangs; it is reported with its
number, as is one that ends otherwise. The random choices depend on the kind and the number alone.
"""

import argparse
import contextlib
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import tempfile
import time

from faults import Node

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRIDLOOM = ROOT / "target" / "release" / "gridloom"
STENCIL = ROOT / "target" / "release" / "examples" / "stencil"
ARGUMENTS = ["--size", "384", "--chares", "36", "--steps", "4000", "--checkpoint-every", "50"]
KINDS = ("folder", "memory", "server", "resize")
#: Number of elements after each of these steps.
RESIZES = [f"{step}:{4 if step % 1000 else 2}" for step in range(500, 4000, 500)]


class Servers:
    """An agent, and three servers that offer the stencil."""

    def __init__(self, folder):
        self.agent = Node("agent", is_cut=False)
        given = [
            "--program",
            f"stencil={STENCIL}",
            "--slots",
            "1",
            "--checkpoints",
            folder,
            "--agent",
            self.agent.address,
        ]
        self.nodes = [Node("serve", "--name", f"s{number}", *given, is_cut=False) for number in range(3)]

    def end(self):
        for node in self.nodes:
            if node.process.poll() is None:
                node.end()
        self.agent.end()


def command(kind, elements, folder, servers):
    if kind == "server":
        return ["-n", "2", "--agent", servers.agent.address, "--checkpoint", "kept", "--restarts", "5", "--", "stencil"]
    kept = f"{folder}/kept" if kind == "folder" or (kind == "resize" and elements % 2) else "memory"
    resizes = [word for resize in RESIZES for word in ("--resize", resize)] if kind == "resize" else []
    return ["-n", elements, "--checkpoint", kept, "--restarts", "5", "--", STENCIL, *resizes]


def children(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    with contextlib.suppress(OSError):
        return [int(one) for task in tasks for one in task.read_text().split()]
    return []


def trial(kind, number, limit, seconds=None):
    """Seconds that it took, whether something was killed, and what is wrong; nothing is killed without `seconds`."""
    draw = random.Random(f"{kind} {number}")
    elements = draw.choice([2, 3, 4])
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(folder) if kind == "server" else None
        words = [
            str(word) for word in [GRIDLOOM, "chares", "run", *command(kind, elements, folder, servers), *ARGUMENTS]
        ]
        began, is_killed = time.monotonic(), False
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            try:
                if seconds is not None:
                    time.sleep(draw.uniform(0.0, 0.8 * seconds))
                    if servers is not None:
                        draw.choice(servers.nodes).kill()
                        is_killed = True
                    elif elements_now := children(run.pid):
                        os.kill(draw.choice(elements_now), signal.SIGKILL)
                        is_killed = True
                output, _ = run.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                run.kill()
                return limit, is_killed, "hangs"
            finally:
                if servers is not None:
                    servers.end()
        took = time.monotonic() - began
        found = re.findall(r"checksum (\w+)", output)
        wrong = (
            None
            if run.returncode == 0 and found and set(found) == {serial()}
            else f"status {run.returncode}: {output[-600:]}"
        )
        return took, is_killed, wrong


SERIAL = []


def serial():
    if not SERIAL:
        done = subprocess.run([STENCIL, *ARGUMENTS, "--check"], capture_output=True, text=True, check=True).stdout
        SERIAL.append(re.search(r"serial: .* checksum (\w+)", done)[1])
    return SERIAL[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="trials of each kind")
    parser.add_argument("--baseline", type=int, default=5, help="runs of each kind in which nothing is killed")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a trial")
    options = parser.parse_args()
    os.environ.setdefault("GRIDLOOM_KEYS", str(ROOT / "target" / "keys-of-bench"))
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "gridloom", "--example", "stencil"]
    subprocess.run(cargo, check=True, cwd=ROOT)
    serial()
    print(
        "| killed, checkpoints in | trials | killed in time | right | hang | undisturbed, s | with a loss, s |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for kind in options.kinds:
        undisturbed = [trial(kind, f"baseline {number}", options.limit)[0] for number in range(options.baseline)]
        usual = statistics.median(undisturbed)
        found = [trial(kind, number, options.limit, usual) for number in range(options.trials)]
        for number, (_, _, wrong) in enumerate(found):
            if wrong:
                print(f"{kind} {number}: {wrong}", flush=True)
        lost = [took for took, is_killed, _ in found if is_killed]
        right, hang = sum(wrong is None for *_, wrong in found), sum(wrong == "hangs" for *_, wrong in found)
        spread = lambda all_of: f"{statistics.median(all_of):.2f} ({min(all_of):.2f}..{max(all_of):.2f})"  # noqa: E731
        what = {
            "folder": "an element, a folder",
            "memory": "an element, memory",
            "server": "a server, a folder",
            "resize": "an element while their number changes, both",
        }[kind]
        print(
            f"| {what} | {len(found)} | {len(lost)} | {right} | {hang} | {spread(undisturbed)} | {spread(lost)} |", flush=True
        )
    print(f"load: {os.getloadavg()}")


if __name__ == "__main__":
    main()
