"""Dask and Ray beside Gridloom on one emulated grid: a chain of matrices, a protein search, Hydropad and recorded workflows.

The grid is a testbed for each system: four servers with one slot each, and a host for the agent, scheduler or head, at one site with links of 200 Mb/s
and 0.1 ms; the client is behind a link of 100 Mb/s and 5 ms. Every packet crosses emulated links. Functions are the same for all systems: they compute,
and then wait until as much time has passed as on a host of 1, 1.5, 2 or 3 Gflop/s. No system knows these speeds. Gridloom's servers measure the speed of
the machine, which is the same for all of them, and its models learn from the calls.

A product of matrices counts as 2·n³ operations. In the protein search, the index of n residues counts as 500·n operations, and the search for q residues of
queries in it as 2·n·q. In Hydropad with n³ cells, the potential counts as 3000·n³ operations, the first velocities as 1000·n³, dark matter as 4500·n³, and the
gas as 9000·n³. These numbers are a choice: they are larger than those of the kernels, so that emulated hosts differ. Workflows are instances of WfCommons
(https://github.com/wfcommons/WfInstances); each task waits for its recorded time, and the tasks of one workflow take 10 s in total at 1 Gflop/s.

Each system is used as its documentation recommends. Gridloom: one group per program, mapped by `auto`. Dask: a client with `direct_to_workers`,
`Client.submit`, and one `scatter` for the arrays of a program. Ray: remote functions and `ray.put` through Ray's client, because the program is not
on a node of the cluster. With Dask and Ray, arrays of at most 10 kB are plain arguments. Before the first run, one call warms up each worker. The systems
take turns: in each round, each system runs a program once, then each runs the next one, and so on. Results are checked in each run. Times are
measured at the client, from the first call to the last result, and include the transfer of the client's data. Bytes are those of the client's network
interface, headers included; memory is the largest resident memory of the client's process.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
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
#: Two systems are equal if they differ by less than this factor.
EQUAL = 1.05
#: Longest times for the start of a process, an answer of a client, and the end of a process.
START_S, ANSWER_S, END_S = 120, 300, 30
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


def workflows(is_full, skipped):
    """Files of recorded workflows: those beside the repository, or the small one of the examples. Adds others to `skipped`."""
    folder = ROOT.parent / "shared" / "data" / "workflows"
    files = [folder / f"{name}.json" for name in [*WORKFLOWS, *(MORE_WORKFLOWS if is_full else [])]]
    found = [file for file in files if file.exists()]
    for file in files:
        if file not in found:
            skipped[f"workflow {file.stem}"] = (
                "its file is not beside the repository (source: WfInstances of WfCommons)"
            )
    return found or [ROOT / "examples" / "workflow" / "small.json"]


def ended(part):
    """End a process, by force if it does not end in time."""
    part.terminate()
    try:
        part.wait(END_S)
    except subprocess.TimeoutExpired:
        part.kill()
        part.wait()


class Bed:
    """Emulated hosts without a grid."""

    def __init__(self, folder, name):
        self.folder, self.name, self.parts = folder, f"alternatives-{os.getpid()}-{name.lower()}", []
        (folder / "platform.toml").write_text(PLATFORM)
        up = [GRIDLOOM, "testbed", "up", "--no-grid", "--name", self.name, "--platform", folder / "platform.toml"]
        self.bed = subprocess.Popen(list(map(str, up)), stdout=subprocess.PIPE, text=True)
        try:
            if not self.bed.stdout.readline().endswith("is up\n"):
                raise SystemExit("the testbed did not start; 'gridloom testbed up' needs user namespaces")
            shown = [GRIDLOOM, "testbed", "show", "--name", self.name, "--json"]
            done = subprocess.run(list(map(str, shown)), capture_output=True, text=True, check=True, timeout=START_S)
            self.addresses = {host["name"]: host["address"] for host in json.loads(done.stdout)["hosts"]}
        except BaseException:
            self.close()
            raise
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
            ended(part)


def start_gridloom(bed):
    keys = [str(GRIDLOOM), "keys", "init", "alternatives"]
    subprocess.run(keys, env=bed.environment, check=True, capture_output=True)
    agent = f"{bed.addresses['head']}:7711"
    bed.start("head", GRIDLOOM, "agent", "--listen", agent, "--records", "none", ready=agent)()
    functions = ROOT / "experiments" / "alternatives_functions.py"
    waits = []
    for host in SPEEDS:
        listen = ["--listen", f"{bed.addresses[host]}:0", "--agent", agent, "--name", host]
        rest = ["--models", "none", "--python", sys.executable]
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


class Client:
    """A system on a testbed of its own, and the process of its client."""

    def __init__(self, system, programs, stack):
        self.system = system
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="a-", dir="/tmp")))
        bed = Bed(folder, system)
        stack.callback(bed.close)
        address = {"Gridloom": start_gridloom, "Dask": start_dask, "Ray": start_ray}[system](bed)
        command = bed.command(
            "client", sys.executable, ROOT / "experiments" / "alternatives_client.py", system, address, *programs
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": bed.environment}
        self.process = subprocess.Popen(command, **pipes)
        stack.callback(ended, self.process)
        self.programs = self.answer()

    def answer(self):
        """The next line of JSON that the client prints; it prints other lines, too, if its system does."""
        timer = threading.Timer(ANSWER_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(("[", "{")):
                    return json.loads(line)
            state = self.process.wait(END_S)
            raise SystemExit(
                f"{self.system}: the client ended with exit status {state}, or did not answer within {ANSWER_S} s"
            )
        finally:
            timer.cancel()

    def run(self, program):
        self.process.stdin.write(program + "\n")
        self.process.stdin.flush()
        return self.answer()


def why(error):
    """The first line of an error."""
    return (str(error) or type(error).__name__).splitlines()[0]


def measure(programs, rounds, systems, skipped, loads):
    """Run the programs with all systems, in turn. Returns figures by system and program; a system that fails goes to `skipped`."""
    found = {}
    with contextlib.ExitStack() as stack:
        clients = []
        for system in systems:
            progress(f"{system} starts")
            try:
                clients.append(Client(system, programs, stack))
                found[system] = {program: [] for program in clients[-1].programs}
            except (Exception, SystemExit) as error:
                if system == "Gridloom":
                    raise
                skipped[system] = why(error)
        for number in range(rounds):
            loads.append(os.getloadavg()[0])
            for program in clients[0].programs:
                for client in list(clients):
                    try:
                        row = client.run(program)
                    except (Exception, SystemExit) as error:
                        if client.system == "Gridloom":
                            raise
                        skipped[client.system] = why(error)
                        clients.remove(client)
                        del found[client.system]
                        continue
                    found[client.system][program].append(row)
                    progress(f"round {number + 1}, {client.system}, {program}: {row['seconds']:.2f} s")
    return found


def run(is_full):
    import importlib.metadata
    import importlib.util

    WORK.mkdir(parents=True, exist_ok=True)
    compile_kernels()
    figures = {"versions": {}, "skipped": {}, "load": [], "processors": len(os.sched_getaffinity(0)), "systems": {}}
    programs = [one for one in PROGRAMS if one != "search" or importlib.util.find_spec("pyhmmer")]
    programs += map(str, workflows(is_full, figures["skipped"]))
    if "search" not in programs:
        figures["skipped"]["search"] = "the package pyhmmer, which ships the proteins, is not installed"
    systems = []
    for system, package in SYSTEMS.items():
        if package and importlib.util.find_spec(package) is None:
            figures["skipped"][system] = f"the package {package} is not installed"
            continue
        if package:
            figures["versions"][system] = importlib.metadata.version(package)
        systems.append(system)
    figures["systems"] = measure(programs, 5 if is_full else 3, systems, figures["skipped"], figures["load"])
    return figures


def items(figures):
    found = figures["systems"]
    programs, others = list(found["Gridloom"]), [system for system in found if system != "Gridloom"]
    reasons = "".join(f"Not run: {name}, because {reason}.\n\n" for name, reason in figures["skipped"].items())
    head = ["program", *found]

    def values(system, program, key):
        return [row[key] for row in found[system][program]]

    def middle(system, program, key):
        return statistics.median(values(system, program, key))

    def rows(key, text):
        return [[one, *(text(values(system, one, key)) for system in found)] for one in programs]

    def seconds(all_of_it):
        return f"{statistics.median(all_of_it):.2f} ({min(all_of_it):.2f} to {max(all_of_it):.2f})"

    def megabytes(all_of_it):
        return f"{statistics.median(all_of_it) / 1e6:.2f}"

    def compared(key, verb):
        """The state, and a sentence on overlapping ranges."""
        if not others:
            return "not run: there is no other system", ""
        best = {one: min((middle(system, one, key), system) for system in others) for one in programs}
        behind = [one for one in programs if middle("Gridloom", one, key) > EQUAL * best[one][0]]
        if behind:
            return f"not reproduced: {verb} in {', '.join(f'{one} ({best[one][1]})' for one in behind)}", ""
        near = [
            one
            for one in programs
            if max(values("Gridloom", one, key)) >= min(min(values(system, one, key)) for system in others)
        ]
        if near:
            return "same order", f"The ranges of Gridloom and of another system overlap in {', '.join(near)}.\n\n"
        return "beyond", ""

    load = ", ".join(f"{one:.1f}" for one in figures["load"])
    about = "".join(f", {name} {version}" for name, version in figures["versions"].items())
    state, overlap = compared("seconds", "another system is faster")
    yield Item(
        "Makespan",
        state,
        f"Seconds at the client{about}: the median of {len(found['Gridloom'][programs[0]])} runs, and in parentheses the fastest and the slowest. The "
        f"machine has {figures['processors']} processors; its load was {load} at the beginning of the rounds.\n\n{reasons}{overlap}"
        + table(head, rows("seconds", seconds)),
    )
    less, more = compared("client_bytes", "another system sends less")
    yield Item(
        "Bytes over the client's link",
        less,
        f"Median of the megabytes in both directions, including all headers.\n\n{more}"
        + table(head, rows("client_bytes", megabytes)),
    )
    less, more = compared("client_memory_bytes", "another system's client needs less")
    yield Item(
        "Memory of the client",
        less,
        "Median of the largest resident memory of the client's process in megabytes, including its data and the Python packages.\n\n"
        + more
        + table(head, rows("client_memory_bytes", megabytes)),
    )
    if others:
        wins = {system: [] for system in found}
        for one in programs:
            times = {system: middle(system, one, "seconds") for system in found}
            for system, time_ in times.items():
                if time_ <= EQUAL * min(times.values()):
                    wins[system].append(one)
        ratios = [
            min(middle(system, one, "seconds") for system in others) / middle("Gridloom", one, "seconds")
            for one in programs
        ]
        yield Item(
            "Where each system wins",
            state,
            f"Programs in which a system's median is the smallest, or less than {EQUAL - 1:.0%} above the smallest. The faster one of "
            f"{' and '.join(others)} takes {statistics.geometric_mean(ratios):.2f} times as long as Gridloom (geometric mean; "
            f"{min(ratios):.2f} to {max(ratios):.2f}).\n\n{overlap}"
            + table(["system", "programs"], [[system, ", ".join(names) or "none"] for system, names in wins.items()]),
        )
