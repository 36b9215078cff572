"""The client of experiments/alternatives.py: runs programs with one system, on the client's emulated host.

    alternatives_client.py SYSTEM ADDRESS PROGRAM...

It prints the names of the programs, as a list in JSON, once the system is ready. Then it reads names of programs, one a line: it runs each of them once,
and prints its figures in JSON. It ends when its input ends.

The programs are the same for all systems: `call` submits a call, whose arguments may be results of others, `given` sends arrays of the
client, `run` fetches the results. How each system does it follows its documentation.
"""

import ctypes
import json
import operator
import pathlib
import sys
import time

import alternatives_functions as functions
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples" / "search"), str(ROOT / "examples" / "workflow")]
import recorded  # noqa: E402
import search as proteins_of  # noqa: E402

#: Rows of the matrices, parts of the database, batches of queries, cells along an edge, steps.
ORDER, PARTS, BATCHES, CELLS, STEPS = 512, 8, 4, 32, 8
#: Total time of a workflow's tasks on the slowest host, seconds.
WORKFLOW_SECONDS = 10.0
#: Arrays of at most this size are plain arguments with Dask and Ray.
SMALL_BYTES = 10_000


def sent(arrays, send):
    """The arrays, of which those above SMALL_BYTES are replaced by what `send` returns for the list of them."""
    large = [number for number, array in enumerate(arrays) if array.nbytes > SMALL_BYTES]
    made = list(arrays)
    for number, one in zip(large, send([arrays[number] for number in large]) if large else []):
        made[number] = one
    return made


class Gridloom:
    """All calls of a program are a group, mapped by 'auto'."""

    def __init__(self, address):
        import gridloom as gl

        self.grid = gl.connect(address)
        nothing = self.grid.function("alternatives/nothing")
        for one in [nothing.on(server.name).submit(1.0) for server in self.grid.servers()]:
            one.get()

    def run(self, program):
        with self.grid.group():
            made = program(self)
        return [one.get() for one in made]

    def call(self, body, count, *arguments):
        return self.grid.function(f"alternatives/{body.__name__}")(*arguments)

    def given(self, arrays):
        return arrays

    def close(self):
        self.grid.close()


class Dask:
    """Futures; large arrays of the client are scattered to workers by one call ("Data Locality", "Futures")."""

    def __init__(self, address):
        import distributed

        self.client = distributed.Client(address, direct_to_workers=True)
        self.client.wait_for_workers(len(functions.SPEEDS))
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        self.client.gather([self.client.submit(functions.nothing, 1.0, workers=[one], pure=False) for one in workers])

    def run(self, program):
        return self.client.gather(program(self))

    def call(self, body, count, *arguments):
        made = self.client.submit(body, *arguments, pure=False)
        return (
            made
            if count == 1
            else [self.client.submit(operator.getitem, made, number, pure=False) for number in range(count)]
        )

    def given(self, arrays):
        return sent(arrays, lambda large: self.client.scatter(large, hash=False))

    def close(self):
        self.client.close()


class Ray:
    """Remote functions, and `ray.put` for large arrays, by Ray's client: the program is not on a node of the cluster ("Ray Client")."""

    def __init__(self, address):
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        self.ray, self.remote = ray, {}
        ray.init(address, log_to_driver=False)
        nodes = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
        nothing = ray.remote(functions.nothing)
        ray.get([nothing.options(scheduling_strategy=On(node, soft=False)).remote(1.0) for node in nodes])

    def run(self, program):
        return self.ray.get(program(self))

    def call(self, body, count, *arguments):
        if body not in self.remote:
            self.remote[body] = self.ray.remote(num_cpus=1, num_returns=count)(body)
        return self.remote[body].remote(*arguments)

    def given(self, arrays):
        return sent(arrays, lambda large: [self.ray.put(one) for one in large])

    def close(self):
        self.ray.shutdown()


# ---- Programs: each returns a function of the system that returns the wanted results, and one that checks their values.


class Serial:
    """The calls of a program one after the other in this process."""

    def call(self, body, count, *arguments):
        return body(*arguments)

    def given(self, arrays):
        return arrays


def expected_of(program):
    """The results of a program on this host alone, without waiting for emulated hosts."""
    waits, functions.wait_for = functions.wait_for, lambda begun, work: None
    try:
        return program(Serial())
    finally:
        functions.wait_for = waits


def are_equal(results, expected):
    return len(results) == len(expected) and all(map(np.array_equal, results, expected))


def chain():
    """The product of eight matrices by binary tree."""
    random = np.random.default_rng(8)
    matrices = [np.linalg.qr(random.standard_normal((ORDER, ORDER)))[0] for _ in range(8)]

    def program(system):
        level = system.given(matrices)
        while len(level) > 1:
            level = [system.call(functions.product, 1, a, b) for a, b in zip(level[::2], level[1::2])]
        return level

    def is_right(results):
        x = y = random.standard_normal(ORDER)
        for matrix in reversed(matrices):
            y = matrix @ y
        return np.linalg.norm(results[0] @ x - y) < 1e-10 * np.linalg.norm(x)

    return program, is_right


def search():
    """Real proteins in a database of eight parts, and four batches of queries."""
    database = proteins_of.read(proteins_of.shipped("938293.PRJEB85.HG003687.faa"))
    parts = [part for _, part in proteins_of.cut(database, PARTS)]
    batches = [database.take(range(number, len(database.names), 60 * BATCHES)) for number in range(BATCHES)]

    def program(system):
        arrays = [array for one in [*batches, *parts] for array in (one.residues, one.starts)]
        given = system.given(arrays)
        pairs = list(zip(given[::2], given[1::2]))
        made, total = [], (len(database.residues), len(database.names))
        for part in pairs[BATCHES:]:
            table = system.call(functions.index, 1, *part)
            for queries in pairs[:BATCHES]:
                made.append(system.call(functions.find, 1, *part, table, *queries, *total))
        return made

    # The same sequences, positions, scores and E-values as in this process.
    expected = expected_of(program)
    if not sum(np.count_nonzero(hits[:, 2]) for hits in expected):
        raise SystemExit("the search has no hits")
    return program, lambda results: are_equal(results, expected)


class Cosmology(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("matter", "lam", "gas")]


class Universe(ctypes.Structure):
    """`universe` of examples/gridrpc/hydropad/cosmology.h."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("n", "m", "steps")),
        *((name, ctypes.c_long) for name in ("cells", "particles")),
        ("mass", ctypes.c_double),
        ("cosmology", Cosmology),
        *((name, ctypes.c_double) for name in ("begin", "end")),
        ("phi", ctypes.POINTER(ctypes.c_double) * 2),
        *((name, ctypes.POINTER(ctypes.c_double)) for name in ("rho_dm", "rho_b", "x", "u", "state")),
    ]


class Start(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("strength", "displacement", "velocity", "pressure")]


class Moment(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("a", "step", "kick", "drift", "strength")]


def hydropad():
    """Formation of galaxies: the calls of all steps, as in examples/gridrpc/hydropad."""
    kernels = functions.library("hydropad")
    kernels.concordance.restype, kernels.new_universe.restype = Cosmology, Universe
    kernels.start_of.restype, kernels.moment_of.restype = Start, Moment
    kernels.new_universe.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        Cosmology,
        ctypes.c_double,
        ctypes.c_double,
        ctypes.c_int,
    ]
    universe = kernels.new_universe(CELLS, CELLS, kernels.concordance(), 1 / 31, 1 / 31 + 0.004 * STEPS, STEPS)
    here = ctypes.byref(universe)
    kernels.first_waves(here, ctypes.c_ulong(1))
    rho_dm, rho_b = (np.ctypeslib.as_array(one, (CELLS,) * 3).copy() for one in (universe.rho_dm, universe.rho_b))
    start, moments = kernels.start_of(here), [kernels.moment_of(here, k) for k in range(1, STEPS + 1)]

    def program(system):
        phi = old = system.call(functions.grav, 1, start.strength, *system.given([rho_dm, rho_b]))
        waves = (universe.cosmology.gas, start.displacement, start.velocity, start.pressure)
        moving, state = system.call(functions.initvel, 2, *waves, phi)
        for number, now in enumerate(moments, 1):
            moving, one = system.call(functions.dark, 2, universe.mass, now.kick, now.drift, phi, moving)
            state, other = system.call(functions.bary, 2, now.step, number, phi, old, state)
            phi, old = system.call(functions.grav, 1, now.strength, one, other), phi
        return [moving, state, phi]

    expected = expected_of(program)
    return program, lambda results: are_equal(results, expected)


def workflow(path):
    """A recorded workflow: each task makes one array of the size of its files. Times and sizes are scaled by one number."""
    plain = recorded.read(path)
    found = recorded.read(path, WORKFLOW_SECONDS / sum(task["work_seconds"] for task in plain["tasks"]))
    maker = {file: number for number, task in enumerate(found["tasks"]) for file in task["outputs"]}
    size = lambda files: max(sum(found["files"][file] for file in files) // 8, 1)  # noqa: E731
    own = [[file for file in task["inputs"] if file not in maker] for task in found["tasks"]]
    reads = [sorted({maker[file] for file in task["inputs"] if file in maker}) for task in found["tasks"]]
    ends = sorted(set(range(len(reads))) - {one for before in reads for one in before})

    def program(system):
        # Files of the client are sent once, however many tasks read them.
        read = sorted({file for files in own for file in files})
        made, given = [], dict(zip(read, system.given([np.ones(size([file])) for file in read])))
        for task, files, before in zip(found["tasks"], own, reads):
            inputs = [*(given[file] for file in files), *(made[one] for one in before)]
            body = functions.PROGRAMS[len(inputs)]
            made.append(system.call(body, 1, task["work_seconds"], size(task["outputs"]), *inputs))
        return [system.call(functions.first, 1, made[one]) for one in ends]

    values = []
    for files, before in zip(own, reads):
        values.append(1.0 + len(files) + sum(values[one] for one in before))
    return program, lambda results: np.allclose(results, [values[one] for one in ends])


# ---- Figures


def link_bytes():
    """Bytes that all interfaces of this host except loopback have received and sent."""
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]
    fields = {line.partition(":")[0].strip(): line.partition(":")[2].split() for line in lines}
    return sum(int(one[0]) + int(one[8]) for name, one in fields.items() if name != "lo")


def memory_bytes(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(key)


def measured(system, program, is_right):
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    memory, moved, begun = memory_bytes("VmRSS"), link_bytes(), time.perf_counter()
    results = system.run(program)
    end = time.perf_counter()
    figures = {
        "seconds": end - begun,
        "client_bytes": link_bytes() - moved,
        "client_memory_bytes": memory_bytes("VmHWM"),
        "client_memory_growth_bytes": memory_bytes("VmHWM") - memory,
    }
    if not is_right(results):
        raise SystemExit("the results are wrong")
    return figures


def main():
    name, address = sys.argv[1:3]
    programs = {one: {"chain": chain, "search": search, "hydropad": hydropad}.get(one) for one in sys.argv[3:]}
    programs = {pathlib.Path(one).stem: made() if made else workflow(one) for one, made in programs.items()}
    system = {"Gridloom": Gridloom, "Dask": Dask, "Ray": Ray}[name](address)
    print(json.dumps(list(programs)), flush=True)
    for line in sys.stdin:
        print(json.dumps(measured(system, *programs[line.strip()])), flush=True)
    system.close()


if __name__ == "__main__":
    main()
