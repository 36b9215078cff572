"""Dask and Ray beside Gridloom on one emulated grid: a chain of matrices, a protein search, Hydropad and recorded workflows.

The grid is a testbed: four servers of 1, 1.5, 2 and 3 Gflop/s with one slot each, and a host for the agent, scheduler or head, at one site with links of 200 Mb/s
and 0.1 ms; the client is behind a link of 100 Mb/s and 5 ms. Every packet crosses emulated links. Functions are the same for all systems: they compute,
and then wait until as much time has passed as on their host. Gridloom's servers are started with these speeds, which they would otherwise measure;
Dask and Ray have no such property.

Each system is used as its documentation recommends. Gridloom: one group per program, mapped by `auto`. Dask: `Client.submit`, and `scatter` directly to
workers for arrays of the client. Ray: remote functions and `ray.put` through Ray's client, because the program is not on a node of the cluster. Before the first
run, one call warms up each worker. Results are checked in each run. Times are those at the client, from the first call to the last result, and
include the transfer of the client's data. Bytes are those of the client's network interface, headers included; memory is the largest resident memory of the
client's process.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from alternatives_functions import SPEEDS
from common import GRIDLOOM, ROOT, WORK, Item, progress, table

TITLE = "Today's alternatives"
HEADING = "Today's alternatives: Dask, Ray and Gridloom on one emulated grid"
PAPER = "Dask and Ray run the same programs as Gridloom"
SYSTEMS = {"Gridloom": None, "Dask": "distributed", "Ray": "ray"}
PROGRAMS = ["chain", "search", "hydropad"]
WORKFLOWS = ["srasearch-10a-001", "epigenomics-hep-1seq-100k-001"]
MORE_WORKFLOWS = [
    "montage-dss-05d-001",
    "srasearch-40a-003",
    "cycles-1l-1c-9p-001",
    "cycles-5l-1c-9p-001",
    "1000genome-2ch-250k-001",
    "blast-small-001",
    "mag-001",
    "viralrecon-001",
]
#: Two systems are equal if they differ by less.
EQUAL = 1.05
START_S = 120
PLATFORM = """
[[host]]
name = "client"
speed = "1Gf"
[[cluster]]
name = "site"
hosts = ["head", "s[0-3]"]
speed = "1Gf"
bandwidth = "200Mbps"
latency = "50us"
[[link]]
name = "uplink"
bandwidth = "100Mbps"
latency = "5ms"
sharing = "splitduplex"
[[route]]
from = "client"
to = "site"
links = ["uplink:up"]
"""


def compile_kernels():
    """The kernels of Hydropad and of the search as libraries."""
    examples = ROOT / "examples"
    hydropad = [
        examples / "gridrpc" / "hydropad" / f"{name}.c" for name in ("fft", "gravity", "matter", "gas", "cosmology")
    ]
    for name, sources in (("hydropad", hydropad), ("search", [examples / "search" / "search.c"])):
        flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
        command = ["cc", *flags, *map(str, sources), "-o", str(WORK / f"lib{name}.so"), "-lm"]
        subprocess.run(command, check=True)


def workflows(is_full):
    """Files of recorded workflows: those beside the repository, or the small one of the examples."""
    folder = ROOT.parent / "shared" / "data" / "workflows"
    names = [*WORKFLOWS, *(MORE_WORKFLOWS if is_full else [])]
    found = [folder / f"{name}.json" for name in names if (folder / f"{name}.json").exists()]
    return found or [ROOT / "examples" / "workflow" / "small.json"]


class Bed:
    """Emulated hosts without a grid."""

    def __init__(self, folder):
        self.folder, self.name, self.parts = folder, f"alternatives-{os.getpid()}", []
        (folder / "platform.toml").write_text(PLATFORM)
        up = [GRIDLOOM, "testbed", "up", "--no-grid", "--name", self.name, "--platform", folder / "platform.toml"]
        self.bed = subprocess.Popen(list(map(str, up)), stdout=subprocess.PIPE, text=True)
        if not self.bed.stdout.readline().endswith("is up\n"):
            raise SystemExit("the testbed did not start")
        shown = [GRIDLOOM, "testbed", "show", "--name", self.name, "--json"]
        done = subprocess.run(list(map(str, shown)), capture_output=True, text=True, check=True)
        self.addresses = {host["name"]: host["address"] for host in json.loads(done.stdout)["hosts"]}
        paths = os.pathsep.join([str(ROOT / "experiments"), *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
        own = {"GRIDLOOM_KEYS": str(folder / "keys"), "PYTHONPATH": paths}
        self.environment = {**os.environ, **threads, **own}

    def command(self, host, *command):
        return [str(word) for word in (GRIDLOOM, "testbed", "enter", "--name", self.name, host, "--", *command)]

    def start(self, host, *command, ready):
        """Start a process there. Returns a function that waits until its output has this text."""
        log = self.folder / f"{host}.log"
        with log.open("w") as output:
            part = subprocess.Popen(self.command(host, *command), stdout=output, stderr=output, env=self.environment)
        self.parts.append(part)

        def wait():
            end = time.monotonic() + START_S
            while ready not in log.read_text():
                if part.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{host} did not start:\n{log.read_text()}")
                time.sleep(0.05)

        return wait

    def close(self):
        for part in [*reversed(self.parts), self.bed]:
            part.terminate()
            part.wait()


def start_gridloom(bed):
    keys = [str(GRIDLOOM), "keys", "init", "alternatives"]
    subprocess.run(keys, env=bed.environment, check=True, capture_output=True)
    agent = f"{bed.addresses['head']}:7711"
    bed.start("head", GRIDLOOM, "agent", "--listen", agent, "--records", "none", ready=agent)()
    functions = ROOT / "experiments" / "alternatives_functions.py"
    waits = []
    for host, speed in SPEEDS.items():
        listen = ["--listen", f"{bed.addresses[host]}:0", "--agent", agent, "--name", host]
        rest = ["--speed", f"{speed}Gf", "--models", "none", "--python", sys.executable]
        waits.append(bed.start(host, GRIDLOOM, "serve", functions, *listen, *rest, ready="alternatives/product"))
    for wait in waits:
        wait()
    return agent


def start_dask(bed):
    address, dask = f"tcp://{bed.addresses['head']}:8786", [sys.executable, "-m", "dask"]
    head = ["scheduler", "--host", bed.addresses["head"], "--port", "8786", "--no-dashboard"]
    bed.start("head", *dask, *head, ready="Scheduler at")()
    waits = []
    for host in SPEEDS:
        own = ["--name", host, "--host", bed.addresses[host], "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        waits.append(
            bed.start(host, *dask, "worker", address, *own, "--local-directory", bed.folder, ready="Registered to")
        )
    for wait in waits:
        wait()
    return address


def start_ray(bed):
    ray = [pathlib.Path(sys.executable).parent / "ray", "start", "--block", "--disable-usage-stats"]
    store = ["--object-store-memory", str(300 << 20)]
    about = [
        "--node-ip-address",
        bed.addresses["head"],
        "--port",
        "6379",
        "--num-cpus",
        "0",
        "--ray-client-server-port",
        "10001",
    ]
    # Paths of sockets have a limit.
    about += ["--include-dashboard=false", "--temp-dir", bed.folder]
    bed.start("head", *ray, *store, "--head", *about, ready="Ray runtime started")()
    for host in SPEEDS:
        about = ["--node-ip-address", bed.addresses[host], "--node-name", host, "--num-cpus", "1"]
        # One after the other, because nodes on one file system choose free names of sockets.
        bed.start(
            host, *ray, *store, "--address", f"{bed.addresses['head']}:6379", *about, ready="Ray runtime started"
        )()
    return f"ray://{bed.addresses['head']}:10001"


def measure(system, programs, rounds):
    """Run the programs with one system on a testbed of its own. Returns its figures by program."""
    with tempfile.TemporaryDirectory(prefix="a-", dir="/tmp") as place, contextlib.ExitStack() as stack:
        bed = Bed(pathlib.Path(place))
        stack.callback(bed.close)
        address = {"Gridloom": start_gridloom, "Dask": start_dask, "Ray": start_ray}[system](bed)
        client = [sys.executable, ROOT / "experiments" / "alternatives_client.py", system, address, rounds, *programs]
        done = subprocess.run(bed.command("client", *client), stdout=subprocess.PIPE, text=True, env=bed.environment)
        if done.returncode:
            raise SystemExit(f"{system}: exit status {done.returncode}")
        return json.loads(done.stdout.splitlines()[-1])


def run(is_full):
    import importlib.metadata
    import importlib.util

    WORK.mkdir(parents=True, exist_ok=True)
    compile_kernels()
    programs = [one for one in PROGRAMS if one != "search" or importlib.util.find_spec("pyhmmer")]
    programs += map(str, workflows(is_full))
    figures = {"versions": {}, "skipped": {}, "load": [], "processors": len(os.sched_getaffinity(0)), "systems": {}}
    if "search" not in programs:
        figures["skipped"]["search"] = "the package pyhmmer, which ships the proteins, is not installed"
    for system, package in SYSTEMS.items():
        if package and importlib.util.find_spec(package) is None:
            figures["skipped"][system] = f"the package {package} is not installed"
            continue
        if package:
            figures["versions"][system] = importlib.metadata.version(package)
        progress(f"{system}: {len(programs)} programs")
        figures["load"].append(os.getloadavg()[0])
        figures["systems"][system] = measure(system, programs, 5 if is_full else 3)
    return figures


def items(figures):
    found, versions = figures["systems"], figures["versions"]
    programs = list(found["Gridloom"])

    def middle(system, program, key):
        return statistics.median(row[key] for row in found[system][program])

    def rows(key, text):
        return [[one, *(text(system, one, key) for system in found)] for one in programs]

    def seconds(system, program, key):
        all_of_it = [row[key] for row in found[system][program]]
        return f"{statistics.median(all_of_it):.2f} ({min(all_of_it):.2f} to {max(all_of_it):.2f})"

    def megabytes(system, program, key):
        return f"{middle(system, program, key) / 1e6:.1f}"

    best_of_others = {
        one: min((middle(system, one, "seconds"), system) for system in found if system != "Gridloom")
        if len(found) > 1
        else None
        for one in programs
    }
    skipped = "".join(f"Not run: {name}, because {why}.\n\n" for name, why in figures["skipped"].items())
    rounds = len(found["Gridloom"][programs[0]])
    load = ", ".join(f"{one:.1f}" for one in figures["load"])
    about = ", ".join(f"{name} {version}" for name, version in versions.items())
    slower = [
        one for one, best in best_of_others.items() if best and middle("Gridloom", one, "seconds") > EQUAL * best[0]
    ]
    behind = ", ".join(f"{one} ({best_of_others[one][1]})" for one in slower)
    head = ["program", *found]
    yield Item(
        "Makespan",
        f"not reproduced: another system is faster in {behind}" if slower else "beyond",
        f"Seconds at the client, median of {rounds} runs with the fastest and the slowest{', ' + about if about else ''}, on a machine with "
        f"{figures['processors']} processors, with other work: the load was {load} when each system began.\n\n{skipped}"
        + table(head, rows("seconds", seconds)),
    )
    least = {one: min(middle(system, one, "client_bytes") for system in found) for one in programs}
    more = [one for one in programs if middle("Gridloom", one, "client_bytes") > EQUAL * least[one]]
    yield Item(
        "Bytes over the client's link",
        f"not reproduced: another system sends less in {', '.join(more)}" if more else "beyond",
        "Megabytes in both directions, median, with all headers.\n\n" + table(head, rows("client_bytes", megabytes)),
    )
    peak = {system: max(middle(system, one, "client_memory_bytes") for one in programs) for system in found}
    yield Item(
        "Memory of the client",
        "beyond"
        if peak["Gridloom"] <= EQUAL * min(peak.values())
        else "not reproduced: another system's client needs less",
        "Largest resident memory of the client's process in megabytes, median, its data and the Python packages included.\n\n"
        + table(head, rows("client_memory_bytes", megabytes)),
    )
    if len(found) > 1:
        wins = {system: [] for system in found}
        for one in programs:
            times = {system: middle(system, one, "seconds") for system in found}
            fastest = min(times.values())
            for system, time_ in times.items():
                if time_ <= EQUAL * fastest:
                    wins[system].append(one)
        ratios = [best_of_others[one][0] / middle("Gridloom", one, "seconds") for one in programs]
        yield Item(
            "Where each system wins",
            "beyond" if not slower else "same order",
            f"Programs in which a system is the fastest, or less than {EQUAL - 1:.0%} slower than the fastest one. The faster one of Dask and Ray takes "
            f"{statistics.geometric_mean(ratios):.2f} times as long as Gridloom (geometric mean; {min(ratios):.2f} to {max(ratios):.2f}).\n\n"
            + table(["system", "programs"], [[system, ", ".join(names) or "none"] for system, names in wins.items()]),
        )
