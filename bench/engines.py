"""A Dask or Ray cluster at two sites: groups by Gridloom's plan compared with the cluster's own scheduling of the same tasks.

    python bench/engines.py [--engine dask|ray] [--links unequal|equal] [--rounds 3] [--data DIR] [--out FILE] [CASE…]

On a testbed: a client with Dask's scheduler, or Ray's head, and two workers at one site, two workers at the other, behind a link of 5 MB/s and
10 ms; or all links alike. Tasks wait, so that the machine's processors do not matter; their work is declared accordingly. Both methods run in turn on the
same cluster. Recorded workflows need DIR, with the files of `gridloom map`; their times and sizes are scaled by one number.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

import gridloom as gl
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "workflow"))
import recorded  # noqa: E402

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
DASK = [sys.executable, "-m", "dask"]
RAY = [str(pathlib.Path(sys.executable).parent / "ray"), "start", "--block", "--disable-usage-stats", "--object-store-memory", str(300 << 20)]
WORKERS = ["near-0", "near-1", "far-0", "far-1"]
SECONDS = 0.1
ELEMENTS = 1 << 19
# Cholesky: the matrix in tiles of 1.1 MiB each.
TILES, ORDER = 5, 384
# Total time of a workflow's tasks, seconds.
WORKFLOW_SECONDS = 16.0
WAN = {"unequal": ("5MBps", "10ms"), "equal": ("25MBps", "100us")}
PLATFORM = """
host = [{ name = "client", speed = "1Gf" }]
star = [{ name = "desk", hosts = ["client"], bandwidth = "25MBps", latency = "100us" }]

[[cluster]]
name = "near"
hosts = "near-[0-1]"
speed = "1Gf"
bandwidth = "25MBps"
latency = "100us"

[[cluster]]
name = "far"
hosts = "far-[0-1]"
speed = "1Gf"
bandwidth = "25MBps"
latency = "100us"

[[link]]
name = "wan"
bandwidth = "%s"
latency = "%s"

[[link]]
name = "lan"
bandwidth = "25MBps"
latency = "100us"

[[connect]]
from = "desk"
to = "near"
links = ["lan"]

[[connect]]
from = "near"
to = "far"
links = ["wan"]

[[connect]]
from = "desk"
to = "far"
links = ["wan"]
"""
Numbers = gl.Array[NDArray[np.float64], "n"]
Tile = gl.Array[NDArray[np.float64], "n", "n"]


@gl.function(work="1e8", module="bench")
def step(x: Numbers) -> Numbers:
    time.sleep(SECONDS)
    return x + 1


@gl.function(work="1e8", module="bench")
def combine(x: Numbers, y: Numbers) -> Numbers:
    time.sleep(SECONDS)
    return x + y


@gl.function(work="1e8", module="bench")
def total(x: Numbers, k: int) -> float:
    time.sleep(SECONDS)
    return float(x.sum()) + k


@gl.function(work="1e8", module="bench")
def potrf(a: Tile) -> Tile:
    time.sleep(SECONDS)
    return np.linalg.cholesky(a)


@gl.function(work="1e8", module="bench")
def trsm(lower: Tile, a: Tile) -> Tile:
    time.sleep(SECONDS)
    return np.ascontiguousarray(np.linalg.solve(lower, a.T).T)


@gl.function(work="1e8", module="bench")
def update(a: Tile, left: Tile, right: Tile) -> Tile:
    time.sleep(SECONDS)
    return a - left @ right.T


@gl.function(work="1e8", module="bench")
def trace(a: Tile) -> float:
    time.sleep(SECONDS)
    return float(np.trace(a))


def program_of(reads):
    """A stand-in for a program that reads this many results: it waits, and returns an array."""
    inputs = "".join(f", a{number}: gl.Array[NDArray[np.float64], 'n{number}']" for number in range(reads))
    sums = "".join(f" + a{number}[0]" for number in range(reads))
    text = f"def program{reads}(seconds: float, count: int{inputs}) -> gl.Array[NDArray[np.float64], 'count']:\n"
    text += f"    time.sleep(seconds)\n    return np.full(count, 1.0{sums})\n"
    made = {}
    exec(text, globals(), made)
    return gl.function(work="1e9*seconds", module="bench")(made[f"program{reads}"])


def chains(f, array):
    """Six chains of five steps on arrays of 4 MiB."""
    ends = [array(ELEMENTS) for _ in range(6)]
    for _ in range(5):
        ends = [f.step(one) for one in ends]
    return [f.total(one, number) for number, one in enumerate(ends)]


def broadcast(f, array):
    """An array of 4 MiB that twelve tasks read."""
    made = f.step(array(ELEMENTS))
    return [f.total(made, number) for number in range(12)]


def tree(f, array):
    """Eight arrays of 4 MiB, each processed by a step, then added in pairs."""
    left = [f.step(array(ELEMENTS)) for _ in range(8)]
    while len(left) > 1:
        left = [f.combine(one, other) for one, other in zip(left[::2], left[1::2])]
    return [f.total(left[0], 0)]


def cholesky(f, array):
    """Tiled Cholesky factorisation (Buttari and others, Parallel Computing 35, 2009, algorithm 2); the last tile depends on all."""
    tiles = {(i, j): array((ORDER, i == j)) for i in range(TILES) for j in range(i + 1)}
    for k in range(TILES):
        tiles[k, k] = f.potrf(tiles[k, k])
        for i in range(k + 1, TILES):
            tiles[i, k] = f.trsm(tiles[k, k], tiles[i, k])
        for i in range(k + 1, TILES):
            for j in range(k + 1, i + 1):
                tiles[i, j] = f.update(tiles[i, j], tiles[i, k], tiles[j, k])
    return [f.trace(tiles[TILES - 1, TILES - 1])]


def workflow_of(path):
    """A recorded workflow as a case, and how many results its tasks read. Each task makes one array of the size of its files."""
    plain = recorded.read(path)
    workflow = recorded.read(path, WORKFLOW_SECONDS / sum(task["work_seconds"] for task in plain["tasks"]))
    maker = {file: number for number, task in enumerate(workflow["tasks"]) for file in task["outputs"]}
    count = lambda files: max(sum(workflow["files"][file] for file in files) // 8, 1)  # noqa: E731
    reads = [sorted({maker[file] for file in task["inputs"] if file in maker}) for task in workflow["tasks"]]
    ends = set(range(len(reads))) - {one for before in reads for one in before}

    def case(f, array):
        made = []
        for task, before in zip(workflow["tasks"], reads):
            given = [array(count([file for file in task["inputs"] if file not in maker]))] if set(task["inputs"]) - maker.keys() else []
            args = [*given, *(made[one] for one in before)]
            made.append(vars(f)[f"program{len(args)}"](task["work_seconds"], count(task["outputs"]), *args))
        # Only numbers are returned to the client.
        return [f.total(made[one], 0) for one in sorted(ends)]

    case.__name__ = path.name.removesuffix(".json")
    widths = {len(before) + bool(set(task["inputs"]) - maker.keys()) for task, before in zip(workflow["tasks"], reads)}
    return case, widths


CASES = [chains, broadcast, tree, cholesky]
WORKFLOWS = ["srasearch-10a-001", "epigenomics-hep-1seq-100k-001"]


class OfDask:
    """Dask's own scheduling."""

    def __init__(self, address):
        import distributed
        from gridloom.engines.dask import DaskEngine

        self.dask = distributed.Client(address, set_as_default=False)
        self.dask.wait_for_workers(len(WORKERS))
        self.engine = DaskEngine(self.dask)

    def function(self, body):
        return lambda *args: self.dask.submit(body, *args, pure=False)

    def given(self, array):
        return self.dask.scatter(array, direct=True, hash=False)

    def results(self, made):
        return self.dask.gather(made)

    def close(self):
        self.dask.close()


class OfRay:
    """Ray's own scheduling."""

    def __init__(self, address):
        import ray
        from gridloom.engines.ray import RayEngine

        self.ray = ray
        ray.init(address, _node_ip_address=address.partition(":")[0], log_to_driver=False)
        while sum(node["Alive"] for node in ray.nodes()) < len(WORKERS) + 1:
            time.sleep(0.2)
        self.engine = RayEngine(ray)

    def function(self, body):
        return self.ray.remote(num_cpus=1)(body).remote

    def given(self, array):
        return self.ray.put(array)

    def results(self, made):
        return self.ray.get(made)

    def close(self):
        self.ray.shutdown()


class Given:
    """Initial arrays of a case: each is sent once per run."""

    def __init__(self, sends):
        self.sends, self.sent, self.made = sends, {}, {}

    def __call__(self, what):
        if isinstance(what, tuple) or what != ELEMENTS:
            if what not in self.sent:
                self.sent[what] = self.sends(self.array(what))
            return self.sent[what]
        return self.sends(np.full(what, 1.0))

    def array(self, what):
        if not isinstance(what, tuple):
            return np.full(what, 1.0)
        order, is_diagonal = what
        # A matrix with this tile everywhere but on the diagonal has eigenvalues near those of the diagonal tiles.
        return np.eye(order) * (2.0 if is_diagonal else 0.0) + np.full((order, order), 1e-4)


def client(options):
    """Runs all cases by both methods, and prints their times."""
    from gridloom.session.opening import connect_engine

    system = (OfDask if options.engine == "dask" else OfRay)(options.client)
    measured = system.engine.probe()
    print(measured, file=sys.stderr)
    # Tasks wait, so a second of one worker is as good as one of another.
    measured = dataclasses.replace(measured, speed=dict.fromkeys(measured.speed, 1e9))
    cases, widths = list(CASES), set()
    for name in WORKFLOWS if options.data else []:
        case, reads = workflow_of(options.data / f"{name}.json")
        cases.append(case)
        widths |= reads
    functions = [step, combine, total, potrf, trsm, update, trace, *map(program_of, sorted(widths))]
    found = {}
    with connect_engine(system.engine, functions, measured) as grid:
        ours = types.SimpleNamespace(**{one.__name__: grid.function(one) for one in functions})
        theirs = types.SimpleNamespace(**{one.__name__: system.function(grid._cluster._bodies[f"bench/{one.__name__}"]) for one in functions})
        for case in cases:
            if options.case and case.__name__ not in options.case:
                continue
            rows = found[case.__name__] = []
            for _ in range(options.rounds):
                begun = time.perf_counter()
                with grid.group() as group:
                    results = case(ours, Given(lambda array: array))
                planned = [one.get() for one in results]
                middle = time.perf_counter()
                own = system.results(case(theirs, Given(system.given)))
                end = time.perf_counter()
                assert np.allclose(planned, own), (planned, own)
                report = group.report()
                away = sum(one.server != report.planned[one.task] for one in report.tasks)
                seconds = {"predicted": report.predicted_seconds, "measured": report.measured_seconds}
                rows.append({**seconds, "planned": middle - begun, "own": end - middle, "away": away, "load": os.getloadavg()[0]})
                print(case.__name__, rows[-1], file=sys.stderr, flush=True)
    system.close()
    print(json.dumps(found))


def enter(name, host, *command):
    return [str(PROGRAM), "testbed", "enter", "--name", name, host, "--", *command]


def cluster(engine, addresses, place):
    """The commands that start it, by host."""
    if engine == "dask":
        address = f"tcp://{addresses['client']}:8786"
        yield "client", [*DASK, "scheduler", "--host", addresses["client"], "--port", "8786", "--no-dashboard"]
        for worker in WORKERS:
            own = ["--name", worker, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", place]
            yield worker, [*DASK, "worker", address, *own]
        return
    about = ["--node-ip-address", addresses["client"], "--port", "6379", "--num-cpus", "0", "--include-dashboard=false", "--temp-dir", place]
    yield "client", [*RAY, "--head", *about]
    for worker in WORKERS:
        about = ["--node-ip-address", addresses[worker], "--node-name", worker, "--num-cpus", "1"]
        yield worker, [*RAY, "--address", f"{addresses['client']}:6379", *about]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--engine", choices=["dask", "ray"], default="dask")
    parser.add_argument("--links", choices=list(WAN), default="unequal")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=pathlib.Path, help="folder of recorded workflows")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("case", nargs="*")
    options = parser.parse_args()
    if options.client:
        client(options)
        return
    name = f"engines-{os.getpid()}"
    # Short: paths of sockets have a limit.
    with tempfile.TemporaryDirectory(prefix="e-", dir="/tmp") as place:
        folder = pathlib.Path(place)
        (folder / "platform.toml").write_text(PLATFORM % WAN[options.links])
        up = [str(PROGRAM), "testbed", "up", "--no-grid", "--name", name, "--platform", folder / "platform.toml"]
        bed = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
        parts = []
        try:
            if not bed.stdout.readline().endswith("is up\n"):
                raise SystemExit("the testbed did not start")
            shown = subprocess.run([str(PROGRAM), "testbed", "show", "--name", name, "--json"], capture_output=True, text=True, check=True)
            addresses = {host["name"]: host["address"] for host in json.loads(shown.stdout)["hosts"]}
            for host, command in cluster(options.engine, addresses, place):
                with (folder / f"{host}.log").open("w") as log:
                    parts.append(subprocess.Popen(enter(name, host, *command), stdout=log, stderr=log))
                # One after the other, because nodes on one file system choose free names of sockets.
                while options.engine == "ray" and "Ray runtime started" not in (folder / f"{host}.log").read_text():
                    if parts[-1].poll() is not None:
                        raise SystemExit((folder / f"{host}.log").read_text())
                    time.sleep(0.1)
            port = "6379" if options.engine == "ray" else "8786"
            about = ["--client", f"{'' if options.engine == 'ray' else 'tcp://'}{addresses['client']}:{port}", "--engine", options.engine]
            about += ["--rounds", str(options.rounds)] + (["--data", str(options.data.resolve())] if options.data else [])
            runs = [sys.executable, __file__, *about, *options.case]
            done = subprocess.run(enter(name, "client", *runs), stdout=subprocess.PIPE, text=True)
            if done.returncode:
                raise SystemExit(done.returncode)
            found = json.loads(done.stdout.splitlines()[-1])
        finally:
            for part in parts:
                part.terminate()
            for part in parts:
                part.wait()
            bed.terminate()
            bed.wait()
    print(f"{options.engine}, {options.links} links, load {', '.join(f'{one:.1f}' for one in os.getloadavg())}")
    print(f"{'case':30}{'predicted, s':>14}{'measured, s':>13}{'by plan, s':>12}{'own, s':>9}{'own / plan':>12}  (least..most)")
    for case, rows in found.items():
        ratios = [row["own"] / row["planned"] for row in rows]
        middle = {key: statistics.median(row[key] for row in rows) for key in ("predicted", "measured", "planned", "own")}
        print(
            f"{case:30}{middle['predicted']:14.2f}{middle['measured']:13.2f}{middle['planned']:12.2f}{middle['own']:9.2f}"
            f"{statistics.median(ratios):12.2f}  ({min(ratios):.2f}..{max(ratios):.2f})"
        )
    if options.out:
        options.out.write_text(json.dumps({"engine": options.engine, "links": options.links, "cases": found}, indent=1))


if __name__ == "__main__":
    main()
