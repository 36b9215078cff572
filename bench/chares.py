"""The stencil on message-driven objects, compared with its serial loop, and on two sites.

    python bench/chares.py stencil [--rounds 5]        # after make build; builds the example
    python bench/chares.py numpy [--rounds 5]          # the same mesh in Python on two elements, beside mpi4py; see bench/mpi.py
    python bench/chares.py processor [--rounds 4]      # the same in processor time, which other programs change less
    python bench/chares.py sites [--rounds 3]          # real on two processes, and simulated beside it; --testbed: on two hosts of a testbed
    python bench/chares.py filters [--rounds 7]        # each filter between two sites; needs gridloom-bench, too
    python bench/chares.py python [--rounds 5]         # a message between two chares of one element in Python, plain and awaited
    python bench/chares.py balance [--rounds 3]        # a skewed stencil with each load balancer, real and simulated
    python bench/chares.py placement                   # simulated: each placement on two sites of eight elements
    python bench/chares.py sweep                       # simulated, 2 to 64 processors
    python bench/chares.py memory [--rounds 3]         # a mesh larger than what one element may have; --servers: one server, needs make python
    python bench/chares.py leanmd [--rounds 5]         # molecular dynamics on one element, two, and two sites
    python bench/chares.py box-simulated --box DIR     # the same on two sites, 2 and 16 elements
    python bench/chares.py box --box DIR [--rounds 3]  # forces in a real box, with its files: see examples/leanmd/box.py

A round runs every case in turn. Each run also measures the serial loop, in the same process.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile

import mpi

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRIDLOOM = ROOT / "target" / "release" / "gridloom"
BENCH = ROOT / "target" / "release" / "gridloom-bench"
STENCIL = ROOT / "target" / "release" / "examples" / "stencil"
SIZE = 2048
CELLS = SIZE * SIZE
#: One-way latencies, ms. The last is that of the wide-area link in the published experiments.
LATENCIES_MS = [0, 0.5, 1, 2, 4, 8, 16, 29.37]
#: Bandwidth of each host's link, and between the sites.
BANDWIDTH = "10Gbps"
#: The published latency, which was injected there.
PUBLISHED_MS = 1.725
PLATFORM = """[[cluster]]
name = "east"
hosts = "east-[1-{half}]"
speed = "1Gf"
bandwidth = "{bandwidth}"
latency = "5us"
properties = {{ site = "east" }}

[[cluster]]
name = "west"
hosts = "west-[1-{half}]"
speed = "1Gf"
bandwidth = "{bandwidth}"
latency = "5us"
properties = {{ site = "west" }}

[[link]]
name = "wan"
bandwidth = "{bandwidth}"
latency = "{latency}us"
sharing = "splitduplex"

[[connect]]
from = "east"
to = "west"
links = ["wan:up"]
"""


def output(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout


def run(command):
    said = output(command)
    found = re.search(r"([\d.]+) m?s a step", said)
    serial = re.search(r"serial: ([\d.]+) ms", said)
    return float(found[1]), float(serial[1]) if serial else None


def real(elements, chares, steps, *options):
    """Milliseconds per step, and those of the serial loop."""
    program = [STENCIL, "--chares", chares, "--steps", steps, "--check"]
    return run([GRIDLOOM, "chares", "run", "-n", elements, *options, "--", *program])


def simulated(elements, chares, steps, latency_ms, cell_ns, balance="none", skew=1, placement="blocks", bandwidth=BANDWIDTH):
    """Milliseconds per step in virtual time."""
    program = [STENCIL, "--chares", chares, "--steps", steps, "--cell-ns", cell_ns, "--skew", skew, "--placement", placement]
    return in_simulation(elements, latency_ms, program, balance, bandwidth)


def in_simulation(elements, latency_ms, program, balance="none", bandwidth=BANDWIDTH):
    """Milliseconds per step in virtual time, of a program on two sites."""
    with tempfile.TemporaryDirectory() as folder:
        platform, deployment = pathlib.Path(folder) / "platform.toml", pathlib.Path(folder) / "elements.toml"
        platform.write_text(PLATFORM.format(half=elements // 2, latency=latency_ms * 1000, bandwidth=bandwidth))
        made = [GRIDLOOM, "chares", "deployment", "-p", platform, "--balance", balance]
        deployment.write_text(subprocess.run(made, check=True, capture_output=True, text=True).stdout)
        return run([GRIDLOOM, "simulate", "-p", platform, "-d", deployment, "--", *program])[0]


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def stencil(rounds):
    cases = [(elements, ppn, chares) for elements, ppn in ((1, 1), (2, 1), (2, 2)) for chares in (4, 16, 64, 256, 1024)]
    found = {case: [] for case in cases}
    for _ in range(rounds):
        for elements, ppn, chares in cases:
            found[elements, ppn, chares].append(real(elements, chares, 100, "--ppn", ppn))
    print("| elements | of one process | chares | ms a step | serial, ms | times the serial time / elements |\n|---|---|---|---|---|---|")
    for (elements, ppn, chares), runs in found.items():
        ratios = [ms * elements / serial for ms, serial in runs]
        print(f"| {elements} | {ppn} | {chares} | {spread([ms for ms, _ in runs])} | {spread([s for _, s in runs])} | {spread(ratios)} |")
    return {str(case): runs for case, runs in found.items()}


def numpy(rounds):
    """The mesh in NumPy: blocks on chares, and strips on two ranks of mpi4py, by Open MPI and by `gridloom mpirun`."""
    strips = mpi.STRIPS.replace("1024, 40", f"{SIZE}, 100")

    def chares(count):
        program = [
            sys.executable,
            ROOT / "examples" / "stencil" / "stencil.py",
            "--size",
            SIZE,
            "--chares",
            count,
            "--steps",
            100,
        ]
        return run([GRIDLOOM, "chares", "run", "-n", 2, "--", *program])[0]

    cases = {f"{count} chares in Python": lambda count=count: chares(count) for count in (4, 16, 64, 256)}
    cases |= {
        "mpi4py, Open MPI, 2 ranks": lambda: mpi.run(strips, 2, None),
        "mpi4py, gridloom mpirun, 2 ranks": lambda: mpi.run(strips, 2, 2),
    }
    found = mpi.rounds_of(cases, rounds)
    print("| on two processors | ms a step |\n|---|---|")
    for name, times in found.items():
        print(f"| {name} | {spread(times)} |")
    return found


def processor_ms(elements, ppn, chares, *options):
    """Processor time per step of all elements together, without that of the start."""

    def seconds(steps):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        program = [STENCIL, "--chares", chares, "--steps", steps, *options]
        run([GRIDLOOM, "chares", "run", "-n", elements, "--ppn", ppn, "--", *program])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return (seconds(301) - seconds(1)) / 300 * 1e3


def processor(rounds):
    cases = [(elements, ppn, chares) for elements, ppn in ((1, 1), (2, 1), (2, 2)) for chares in (16, 1024)]
    found = {case: [] for case in cases}
    for _ in range(rounds):
        serial = processor_ms(1, 1, 16, "--check") - processor_ms(1, 1, 16)
        for case in cases:
            found[case].append((processor_ms(*case), serial))
    print("| elements | of one process | chares | processor ms a step | serial, ms | times serial |\n|---|---|---|---|---|---|")
    for (elements, ppn, chares), runs in found.items():
        each, serial, ratios = ([ms for ms, _ in runs], [s for _, s in runs], [ms / s for ms, s in runs])
        print(f"| {elements} | {ppn} | {chares} | {spread(each)} | {spread(serial)} | {spread(ratios)} |")
    return {str(case): runs for case, runs in found.items()}


def on_testbed(chares, steps, latency_ms):
    """Milliseconds per step of two elements on two hosts whose link has that one-way latency."""
    with tempfile.TemporaryDirectory() as folder:
        platform, deployment = pathlib.Path(folder) / "platform.toml", pathlib.Path(folder) / "elements.toml"
        platform.write_text(PLATFORM.format(half=1, latency=latency_ms * 1000, bandwidth=BANDWIDTH))
        made = subprocess.run([GRIDLOOM, "chares", "deployment", "-p", platform], check=True, capture_output=True, text=True)
        deployment.write_text(made.stdout)
        run_there = [GRIDLOOM, "testbed", "run", "--no-grid", "--quiet", "--speeds", "none", "-p", platform, "-d", deployment, "--"]
        return run([*run_there, STENCIL, "--chares", chares, "--steps", steps])[0]


def calibrated(chares, real_ms):
    """Nanoseconds per cell with which the simulation takes as long as the real run without latency."""
    cell_ns = 0
    for _ in range(2):
        cell_ns += (real_ms - (simulated(2, chares, 30, 0, cell_ns) if cell_ns else 0)) * 2e6 / CELLS
    return cell_ns


def expected_ms(all_chares, found, chosen):
    """Simulated times, by chares and latency, if cells take the time of the chosen real runs without latency."""
    cell_ns = {chares: calibrated(chares, chosen(found[chares, 0])) for chares in all_chares}
    return {(chares, latency): simulated(2, chares, 30, latency, cell_ns[chares]) for chares, latency in found}


def sites(rounds, is_testbed):
    all_chares = (4, 16, 64, 256)
    found = {(chares, latency): [] for latency in LATENCIES_MS for chares in all_chares}
    for _ in range(rounds):
        for chares, latency in found:
            steps = 100 if latency <= 4 else 60
            far = ["--sites", 2, "--latency", f"{latency}ms"]
            found[chares, latency].append(on_testbed(chares, steps, latency) if is_testbed else real(2, chares, steps, *far)[0])
    print("| one way, ms | " + " | ".join(f"{chares} chares: real; simulated" for chares in all_chares) + " |")
    print("|---" * (1 + len(all_chares)) + "|")
    expected = expected_ms(all_chares, found, statistics.median)
    for latency in LATENCIES_MS:
        cells = (f"{spread(found[chares, latency])}; {expected[chares, latency]:.2f}" for chares in all_chares)
        print(f"| {latency} | {' | '.join(cells)} |")
    for name, chosen, ms in (("medians", statistics.median, expected), ("shortest runs", min, expected_ms(all_chares, found, min))):
        ratios = sorted((ms[case] / chosen(runs), case) for case, runs in found.items())
        told = (f"{ratio:.3f} ({chares} chares, {latency} ms)" for ratio, (chares, latency) in (ratios[0], ratios[-1]))
        print(f"simulated over real, {name}: {' to '.join(told)}")
    return {str(case): runs for case, runs in found.items()}


FILTERS = [[], ["compress"], ["delay=0s"], ["rate=2MBps"], ["compress", "rate=2MBps"], ["delay=4ms"], ["delay=4ms", "jitter=2ms"]]
#: Round trips per run.
TRIPS = 5000


def filters(rounds):
    """A round trip between two chares in two processes, and a step of the stencil."""
    found = {" ".join(names): [] for names in FILTERS}
    for _ in range(rounds):
        for names in FILTERS:
            options = ["-n", 2, "--sites", 2, *(word for name in names for word in ("--filter", name))]
            # Fewer trips if one takes milliseconds.
            trips = TRIPS // 100 if "delay=4ms" in names else TRIPS
            command = [GRIDLOOM, "chares", "run", *options, "--", BENCH, "--chares", 2 * trips]
            done = subprocess.check_output([str(word) for word in command], text=True)
            trip_us = float(done.split()[-1]) / trips * 1e6
            found[" ".join(names)].append((trip_us, real(2, 16, 60, *options[2:])[0]))
    print("| filters | round trip, us | stencil, 16 chares, ms a step |\n|---|---|---|")
    for names, runs in found.items():
        print(f"| {names or 'none'} | {spread([trip for trip, _ in runs])} | {spread([step for _, step in runs])} |")
    return found


PLAYERS = """
from gridloom import chares

class Player(chares.Chare):
    def ball(self, left):
        if left == {count}:
            self.began = chares.now()
        if left:
            self.array[1 - self.index[0]].ball(left - 1)
        else:
            chares.exit((chares.now() - self.began) / {count})

print(chares.run(lambda job: job.array(Player, 2)[0].ball({count})).value * 1e6)
"""


WAITERS = """
from gridloom import chares

class Player(chares.Chare):
    ball = chares.Mailbox()

    async def play(self):
        other, began = self.array[1 - self.index[0]], chares.now()
        for number in range({count} // 2):
            if self.index[0] == 0:
                other.ball(number)
                await self.ball.receive(number)
            else:
                await self.ball.receive(number)
                other.ball(number)
        if self.index[0] == 0:
            chares.exit((chares.now() - began) / {count})

print(chares.run(lambda job: job.array(Player, 2).play()).value * 1e6)
"""


def python(rounds):
    programs = {"plain": PLAYERS, "awaited": WAITERS}
    found = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            done = subprocess.check_output([sys.executable, "-c", program.format(count=200_000)])
            found[name].append(float(done))
    for name, times in found.items():
        print(f"a message between two chares of an element in Python, {name}: {spread(times)} us")
    return found


BALANCERS = ("none", "greedy", "refine", "hierarchical", "grid-aware")
#: Factor of the work in the upper quarter of the mesh.
SKEW = 4


def balance(rounds):
    """All steps count, including those before the first moves."""
    found = {(balancer, skew): [] for balancer, skew in [("none", 1), *((name, SKEW) for name in BALANCERS)]}
    for _ in range(rounds):
        for balancer, skew in found:
            program = [STENCIL, "--chares", 64, "--steps", 1000, "--skew", skew]
            command = [GRIDLOOM, "chares", "run", "-n", 2, "--balance", balancer, "--", *program]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
            found[balancer, skew].append((float(re.search(r"([\d.]+) ms a step", done)[1]), int(re.search(r"(\d+) moved", done)[1])))
    print("| balancer | work above | 2 elements, 64 chares: ms a step | chares moved | simulated | simulated, 16 elements, 256 chares |\n|---|---|---|---|---|---|")
    for (balancer, skew), runs in found.items():
        same, more = simulated(2, 64, 1000, 0, 1.5, balancer, skew), simulated(16, 256, 1000, 0.5, 1.5, balancer, skew)
        moved = sorted(moved for _, moved in runs)
        print(f"| {balancer} | {skew} times | {spread([ms for ms, _ in runs])} | {moved[0]}..{moved[-1]} | {same:.2f} | {more:.2f} |", flush=True)
    return {str(case): runs for case, runs in found.items()}


PLACEMENTS = ("blocks", "round-robin", "by-site", "by-communication")


def placement():
    """With a fast network the latency matters; with a slow one the bytes between elements do."""
    found = {}
    print("| network | chares | one way, ms | " + " | ".join(PLACEMENTS) + " |\n|---|---|---" + "|---" * len(PLACEMENTS) + "|")
    for bandwidth, chares, latencies in [("10Gbps", 256, (0, 0.5, 1, 1.5, 3)), ("100Mbps", 1024, (0, 1, 3))]:
        for ms in latencies:
            row = [simulated(16, chares, 30, ms, 5, placement=name, bandwidth=bandwidth) for name in PLACEMENTS]
            found[f"{bandwidth}, {chares}, {ms}"] = row
            print(f"| {bandwidth} | {chares} | {ms} | " + " | ".join(f"{ms:.2f}" for ms in row) + " |", flush=True)
    return found


#: Cells along a side of the mesh, and limit of an element's address space: `ulimit -v`.
LARGE, BOUND_KIB = 8192, 450 << 10


def memory(rounds):
    """The mesh has 512 MiB, so it does not fit one element, but fits two."""

    def of(elements, bound_kib):
        program = [STENCIL, "--size", LARGE, "--chares", 64, "--steps", 20]
        words = " ".join(str(word) for word in program)
        bounded = ["sh", "-c", f"ulimit -v {bound_kib} && exec {words}"]
        command = [GRIDLOOM, "chares", "run", "-n", elements, "--", *(bounded if bound_kib else program)]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    found, sums = {elements: [] for elements in (1, 2, 4)}, set(re.findall(r"checksum (\w+)", of(1, 0)[1]))
    for _ in range(rounds):
        for elements, runs in found.items():
            status, said, why = of(elements, BOUND_KIB)
            sums |= set(re.findall(r"checksum (\w+)", said))
            runs.append(
                float(re.search(r"([\d.]+) ms a step", said)[1])
                if status == 0
                else (why.strip().splitlines() or ["?"])[-1]
            )
    print(f"{LARGE} x {LARGE} cells, {8 * LARGE**2 >> 20} MiB; an element may have {BOUND_KIB >> 10} MiB")
    print(f"all have the bits of one element without a bound: {len(sums) == 1}\n| elements | ms a step |\n|---|---|")
    for elements, runs in found.items():
        print(f"| {elements} | {runs[0] if isinstance(runs[0], str) else spread(runs)} |")
    return found


def memory_on_servers(rounds):
    """The same on three servers with a slot each, with limited data memory in each of their processes."""
    from faults import Node

    os.environ.setdefault("GRIDLOOM_KEYS", str(ROOT / "target" / "keys-of-bench"))
    program = ["--size", LARGE, "--chares", 64, "--steps", 20]
    serial = subprocess.run([str(word) for word in (STENCIL, *program)], capture_output=True, text=True, check=True)
    found, sums = {elements: [] for elements in (1, 2, 3)}, set(re.findall(r"checksum (\w+)", serial.stdout))
    agent = Node("agent", is_cut=False)
    offer = ["--program", f"stencil={STENCIL}", "--slots", "1", "--agent", agent.address]
    own = resource.getrlimit(resource.RLIMIT_DATA)
    # Servers inherit it from this process, workers and elements from the server.
    resource.setrlimit(resource.RLIMIT_DATA, (BOUND_KIB << 10, own[1]))
    nodes = [Node("serve", "--name", f"s{number}", *offer, is_cut=False) for number in range(3)]
    resource.setrlimit(resource.RLIMIT_DATA, own)
    for _ in range(rounds):
        for elements, runs in found.items():
            words = [GRIDLOOM, "chares", "run", "-n", elements, "--agent", agent.address, "--", "stencil", *program]
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
            sums |= set(re.findall(r"checksum (\w+)", done.stdout))
            step = re.search(r"([\d.]+) ms a step", done.stdout)
            # Without the frames of a backtrace.
            said = [line for line in done.stderr.splitlines() if "failed" in line or "ended with" in line]
            runs.append(float(step[1]) if done.returncode == 0 else "; ".join(said))
    for node in [*nodes, agent]:
        node.end()
    print(f"{LARGE} x {LARGE} cells, {8 * LARGE**2 >> 20} MiB; a process of a server may have {BOUND_KIB >> 10} MiB")
    print(f"all have the bits of one element without a bound: {len(sums) == 1}\n| servers | ms a step |\n|---|---|")
    for elements, runs in found.items():
        print(f"| {elements} | {runs[0] if isinstance(runs[0], str) else spread(runs)} |")
    return found


#: One-way latencies, ms: up to some 0.7 of a step of two elements as the round trip.
BOX_LATENCIES_MS = (0, 8, 32, 64, 128, 256)


#: One-way latencies, ms: up to more than a step of two elements.
LEANMD_LATENCIES_MS = (0, 1, 2, 4, 8, 16)
#: By number of elements: one-way latencies in simulation, ms. A step takes 0.70 s on two elements of 1 Gflop/s.
BOX_SIMULATED = {2: (0, 32, 128, 256, 384, 512), 16: (0, 8, 32, 64, 128)}


def box_program(files, *options):
    positions, topology = files / "dhfr_pme.gro", files / "dhfr_pme.top"
    return [sys.executable, ROOT / "examples" / "leanmd" / "box.py", "--gro", positions, "--top", topology, *options]


def box_simulated(files):
    """Seconds per step."""
    found = {}
    for elements, latencies in BOX_SIMULATED.items():
        for ms in latencies:
            found[f"{elements}, {ms}"] = in_simulation(elements, ms, box_program(files, "--steps", 12))
            print(f"{elements} elements, {ms} ms: {found[f'{elements}, {ms}']:.3f} s a step", flush=True)
    return found


def molecules(rounds, program, latencies_ms, unit):
    """One element, two, and two at two sites. Time per step, with that of the serial loop in the same process."""
    cases = [(1, None), (2, None), *((2, ms) for ms in latencies_ms)]
    found = {case: [] for case in cases}
    for _ in range(rounds):
        for elements, ms in cases:
            sites = [] if ms is None else ["--sites", 2, "--latency", f"{ms}ms"]
            said = output([GRIDLOOM, "chares", "run", "-n", elements, *sites, "--", *program])
            step, serial = re.findall(rf": ([\d.]+) {unit} a step", said)
            found[elements, ms].append((float(step), float(serial)))
    head = ["elements", "one way between two sites, ms", f"{unit} a step", f"serial, {unit}", "times serial / elements"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for (elements, ms), runs in found.items():
        ratios = [step * elements / serial for step, serial in runs]
        cells = [elements, "" if ms is None else ms, spread([s for s, _ in runs]), spread([s for _, s in runs]), spread(ratios)]
        print(f"| {' | '.join(map(str, cells))} |")
    return {str(case): runs for case, runs in found.items()}


def box(rounds, files):
    """Forces in a real box."""
    return molecules(rounds, box_program(files, "--steps", 6, "--check"), BOX_LATENCIES_MS, "s")


def leanmd(rounds):
    """A Lennard-Jones fluid of 13,824 atoms."""
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "gridloom", "--example", "leanmd"]
    subprocess.run(cargo, check=True, cwd=ROOT)
    return molecules(rounds, [STENCIL.with_name("leanmd"), "--steps", 30, "--check"], LEANMD_LATENCIES_MS, "ms")


def sweep():
    """Processors, chares and latencies, with the time per cell of the serial loop."""
    cell_ns = run([STENCIL, "--steps", 100, "--check"])[1] * 1e6 / CELLS
    print(f"a cell takes {cell_ns:.3f} ns\n\n| processors | chares | " + " | ".join(f"{ms} ms" for ms in [*LATENCIES_MS, PUBLISHED_MS]) + " |")
    print("|---" * (3 + len(LATENCIES_MS)) + "|")
    found = {}
    for processors, all_chares in {2: (4, 16, 64), 4: (4, 16, 64), 8: (16, 64, 256), 16: (16, 64, 256), 32: (64, 256, 1024), 64: (64, 256, 1024)}.items():
        for chares in all_chares:
            row = [simulated(processors, chares, 30, ms, cell_ns) for ms in [*LATENCIES_MS, PUBLISHED_MS]]
            found[f"{processors}, {chares}"] = row
            print(f"| {processors} | {chares} | " + " | ".join(f"{ms:.2f}" for ms in row) + " |", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "part",
        choices=[
            "stencil",
            "numpy",
            "processor",
            "sites",
            "filters",
            "python",
            "balance",
            "placement",
            "sweep",
            "memory",
            "leanmd",
            "box",
            "box-simulated",
        ],
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--servers", action="store_true", help="with memory: servers in place of elements of this machine")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--testbed", action="store_true", help="of sites: shaped links in place of messages that are held back")
    parser.add_argument("--box", type=pathlib.Path, help="folder of dhfr_pme.gro and dhfr_pme.top")
    options = parser.parse_args()
    if options.part.startswith("box") and options.box is None:
        parser.error(f"{options.part} needs --box DIR")
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "gridloom", "--example", "stencil"]
    subprocess.run(cargo, check=True, cwd=ROOT)
    parts = {
        "stencil": stencil,
        "processor": processor,
        "sites": lambda rounds: sites(rounds, options.testbed),
        "filters": filters,
        "python": python,
        "balance": balance,
    }
    parts |= {"memory": memory_on_servers if options.servers else memory}
    parts |= {"numpy": numpy, "leanmd": leanmd, "box": lambda rounds: box(rounds, options.box)}
    simulations = {"placement": placement, "sweep": sweep, "box-simulated": lambda: box_simulated(options.box)}
    found = simulations[options.part]() if options.part in simulations else parts[options.part](options.rounds)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
