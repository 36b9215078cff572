"""A ring of simulated processes that pass a token, in C, Rust and Python: wall time, processor time, memory.

    python bench/ring.py [--processes 1000] [--messages 100000] [--rounds 5] [--json FILE]

The programs are examples/processes/ring.{c,rs,py}, with typed messages; processes of C and Rust run on coroutines, those of
Python on threads. `gridloom simulate` is measured as a whole: start, connections, all messages. Hosts are a cluster at a switch, one
for each process. A round runs every language in turn.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRIDLOOM = ROOT / "target" / "release" / "gridloom"
CAPI = ROOT / "target" / "capi"
OUT = ROOT / "target" / "ring"
EXAMPLES = ROOT / "examples" / "processes"
PLATFORM = """[[cluster]]
name = "ring"
hosts = "node-[0-{last}]"
speed = "1Gf"
bandwidth = "1Gbps"
latency = "50us"
"""
PORT = 4100


def deployment(processes, rounds):
    text = ""
    for number in range(processes):
        following = (number + 1) % processes
        first = ', "first"' if number == 0 else ""
        text += f'[[process]]\nhost = "node-{number}"\nfunction = "member"\n'
        text += f'arguments = [{PORT}, "node-{following}", {PORT}, {rounds}{first}]\n'
    return text


def programs():
    """The command of each language."""
    ring = OUT / "ring"
    library = [f"-I{CAPI}/include", f"-L{CAPI}/lib", "-lgridloom", f"-Wl,-rpath,{CAPI}/lib"]
    subprocess.run(["cc", "-O2", EXAMPLES / "ring.c", "-o", ring, *library], check=True)
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "gridloom", "--example", "ring"]
    subprocess.run(cargo, check=True, cwd=ROOT)
    rust = ROOT / "target" / "release" / "examples" / "ring"
    return {"C": [ring], "Rust": [rust], "Python": [sys.executable, EXAMPLES / "ring.py"]}


def simulated(command, steps):
    """Wall seconds, processor seconds, and the hash of the run."""
    simulate = [GRIDLOOM, "simulate", "-p", OUT / "ring.toml", "-d", OUT / "processes.toml", "--", *command]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(simulate, capture_output=True, text=True)
    wall_s, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0 or f"the token went {steps} steps" not in done.stdout:
        sys.exit(f"{command}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    trace_hash = done.stdout.rsplit("trace hash ", 1)[1].strip()
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, trace_hash


def cell(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=100_000, help="in all; a multiple of the processes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, help="write all samples to this file")
    arguments = parser.parse_args()
    if not GRIDLOOM.exists() or not CAPI.exists():
        sys.exit("build Gridloom first: make build")
    OUT.mkdir(parents=True, exist_ok=True)
    rounds = arguments.messages // arguments.processes
    (OUT / "ring.toml").write_text(PLATFORM.format(last=arguments.processes - 1))
    (OUT / "processes.toml").write_text(deployment(arguments.processes, rounds))
    commands = programs()
    samples = {language: [] for language in commands}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        for language, command in commands.items():
            samples[language].append(simulated(command, rounds * arguments.processes))
    print(f"{arguments.processes} processes, {rounds * arguments.processes} messages: seconds, median (spread)")
    for language, measured in samples.items():
        walls, processor, hashes = zip(*measured)
        same = "the same hash each time" if len(set(hashes)) == 1 else f"DIFFERENT HASHES {sorted(set(hashes))}"
        print(f"{language:8} wall {cell(walls)}, processor {cell(processor)}, {same}")
    if arguments.json:
        arguments.json.write_text(json.dumps(samples, indent=1) + "\n")


if __name__ == "__main__":
    main()
