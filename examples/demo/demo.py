"""Gridloom's demonstration: two programs, each on the client alone, as plain GridRPC, and as one mapped group.

1. The product of eight matrices by binary tree, with dgemm of a BLAS library, on four servers.
2. Combined spatial enhancement of a photograph of a retina, whole and in strips.

Writes ``out/demo/report.json``, the enhanced picture and a timeline for each program.

Under ``gridloom simulate`` all three methods take virtual time, and results are zeros unless the bodies of functions are run
(``--execute``): then there is nothing to compare, and no picture.
"""

import argparse
import ctypes
import hashlib
import importlib.util
import json
import os
import pathlib
import time

import enhance
import gridloom as gl
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
HALO = 3
#: Among the plans that end within 5 % of the best, `auto` takes the one that moves least: speeds are not known more
#: precisely.
HEURISTIC = "auto"
#: Largest relative difference between the three methods. The same library with the same number of threads gives the
#: same bits; another build of it may not.
TOLERANCE = 1e-12


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def is_skipped(grid):
    """True if the simulation skips the functions: then results are zeros."""
    one = np.ones((1, 1))
    return grid.simulated and not np.any(grid.function("demo/dgemm")(one, one))


def work_of(outline):
    """Operations of a group's calls so far."""
    works = []

    def on_the_first_server(problem):
        works.append(sum(task.work_flops for task in problem.tasks))
        return [0] * len(problem.tasks)

    outline.plan(on_the_first_server)
    return works[0]


def check(name, results):
    """Check that all methods return the same result."""
    reference = results["local"]
    for way, result in results.items():
        difference = np.max(np.abs(result - reference)) / np.max(np.abs(reference))
        if not difference <= TOLERANCE:
            raise SystemExit(f"{name}: '{way}' differs from 'local' by {difference:.2e}, tolerance {TOLERANCE:.0e}")


class Row:
    """One method of one program: the prediction made before it began, and the measurement."""

    def __init__(self, grid, predicted=None):
        self.grid, self.predicted = grid, predicted
        self.clock = grid.now if grid.simulated else time.perf_counter

    def __enter__(self):
        self.before = self.grid.traffic()
        self.start = self.clock()
        return self

    def __exit__(self, *_):
        self.seconds = self.clock() - self.start
        after = self.grid.traffic()
        self.client_bytes = after.client_bytes - self.before.client_bytes
        self.server_bytes = after.server_bytes - self.before.server_bytes
        self.makespan = None

    def to_dict(self, result):
        return {
            "seconds": self.seconds,
            "client_bytes": self.client_bytes,
            "server_bytes": self.server_bytes,
            "predicted_seconds": self.predicted,
            "measured_makespan_seconds": self.makespan,
            "digest": None if result is None else digest(result),
        }


def how(grid):
    """How the times of a run were obtained."""
    return "simulated" if grid.simulated else "measured"


def say(text):
    print(f"  {text}", flush=True)


# ---- 1. the chain of eight matrices


def tree(product, matrices):
    """The product by binary tree; ``product(pairs)`` multiplies the pairs of one level."""
    level = list(matrices)
    while len(level) > 1:
        level = product(list(zip(level[0::2], level[1::2])))
    return level[0]


def orthogonal(random, n):
    """A dense orthogonal matrix, the product of two Householder reflections: norms stay 1 along the chain."""
    u, v = (x / np.linalg.norm(x) for x in random.standard_normal((2, n)))
    return np.eye(n) - 2 * np.outer(u, u) - 2 * np.outer(v, v) + 4 * (u @ v) * np.outer(u, v)


def local_dgemm():
    """The same library in this process, with one thread as on each server."""
    blas = ctypes.CDLL(gl.blas_library())
    blas.scipy_openblas_set_num_threads(1)
    function = blas.scipy_cblas_dgemm
    i, d, p = ctypes.c_int, ctypes.c_double, ctypes.c_void_p
    function.argtypes = [i, i, i, i, i, i, d, p, i, p, i, d, p, i]
    function.restype = None

    def dgemm(a, b):
        (m, k), n = a.shape, b.shape[1]
        c = np.empty((m, n))
        function(101, 111, 111, m, n, k, 1.0, a.ctypes.data, k, b.ctypes.data, n, 0.0, c.ctypes.data, n)
        return c

    return dgemm


def chain(grid, n, out, skipped):
    print(f"Product of eight {n} x {n} matrices by binary tree, on {len(grid.servers())} servers")
    random = np.random.default_rng(8)
    matrices = [orthogonal(random, n) for _ in range(8)]
    dgemm, here = grid.function("demo/dgemm"), local_dgemm()
    results, rows, predicted_local = {}, {}, None
    if not grid.simulated:
        say("measuring: one small product on each server and here")
        small = np.ascontiguousarray(matrices[0][: n // 2, : n // 2])
        for _ in range(3):
            futures = [dgemm.submit(small, small) for _ in range(2 * len(grid.servers()))]
            for future in futures:
                future.get()
        start = time.perf_counter()
        here(small, small)
        predicted_local = 7 * 8 * (time.perf_counter() - start)
    outline = grid.group("mct")
    with outline:
        tree(lambda pairs: [dgemm(a, b) for a, b in pairs], matrices)
        predicted, work = outline.plan("mct").makespan_seconds, work_of(outline)
        outline.discard()

    say("on the client alone")
    with Row(grid, predicted_local) as rows["local"]:
        grid.compute(work)
        results["local"] = None if skipped else tree(lambda pairs: [here(a, b) for a, b in pairs], matrices)

    def plain_level(pairs):
        return [future.get() for future in [dgemm.submit(a, b) for a, b in pairs]]

    say(f"as plain calls: predicted {predicted:.3f} s")
    with Row(grid, predicted) as rows["plain"]:
        results["plain"] = tree(plain_level, matrices)

    with Row(grid) as rows["group"]:
        group = grid.group(HEURISTIC)
        with group:
            handle = tree(lambda pairs: [dgemm(a, b) for a, b in pairs], matrices)
            predicted = group.plan(HEURISTIC).makespan_seconds
            say(f"as one group: predicted {predicted:.3f} s")
        results["group"] = handle.get()
    report = group.report()
    rows["group"].predicted, rows["group"].makespan = predicted, report.measured_seconds
    say(f"  {how(grid)} {report.measured_seconds:.3f} s")
    if not skipped:
        check("chain", results)
        freivalds(results["group"], matrices)
    report.save_timeline(out / "chain.html")
    return {"n": n, **{way: row.to_dict(results[way]) for way, row in rows.items()}}


def freivalds(product, matrices):
    """Check the product with matrix-vector products (Freivalds)."""
    n = product.shape[0]
    for x in np.random.default_rng(3).standard_normal((3, n)):
        y = x
        for matrix in reversed(matrices):
            y = matrix @ y
        error = np.linalg.norm(product @ x - y) / (np.linalg.norm(product) * np.linalg.norm(x))
        if not error <= 1e-12 * n**0.5:
            raise SystemExit(f"chain: the product is wrong, relative error {error:.2e}")


# ---- 2. the image


def photograph():
    """The retina of scikit-image (CC0), as brightness in 0..255."""
    spec = importlib.util.find_spec("skimage")
    if spec is None:
        raise SystemExit("the photograph is part of the package scikit-image: pip install scikit-image")
    from PIL import Image

    path = pathlib.Path(spec.submodule_search_locations[0]) / "data" / "retina.jpg"
    rgb = np.asarray(Image.open(path).convert("RGB"), dtype=np.float64)
    return np.ascontiguousarray(rgb @ np.array([0.299, 0.587, 0.114]))


def pieces(image, strips):
    """Strips with halo rows: (rows, rows above, rows below)."""
    h = image.shape[0]
    bounds = np.linspace(0, h, strips + 1).astype(int)
    for begin, end in zip(bounds[:-1], bounds[1:]):
        first, last = max(0, begin - HALO), min(h, end + HALO)
        yield image[first:last], int(begin - first), int(last - end)


def enhance_with(call, image, strips):
    """The program. ``call(function name, argument lists)`` makes a wave of calls and returns their results."""
    parts = list(pieces(image, strips))
    fine = call("laplacian", [(f, top, bottom) for f, top, bottom in parts])
    # The gradient keeps up to two of the three halo rows, which the mean over 5 x 5 pixels then uses.
    inner = [(max(top - 2, 0), max(bottom - 2, 0)) for _, top, bottom in parts]
    gradient = call("sobel", [(f, *cut) for (f, _, _), cut in zip(parts, inner)])
    sharp = call("sharpen", [(f, fine_part, top, bottom) for (f, top, bottom), fine_part in zip(parts, fine)])
    smooth = call("smooth", [(g, min(top, 2), min(bottom, 2)) for g, (_, top, bottom) in zip(gradient, parts)])
    peaks = [peak for _, peak in smooth]
    while len(peaks) > 1:
        rest = peaks[len(peaks) // 2 * 2 :]
        peaks = list(call("larger", list(zip(peaks[0::2], peaks[1::2])))) + rest
    masks = call("mask", [(s, a, peaks[0]) for s, (a, _) in zip(sharp, smooth)])
    sums = call("combine", [(f, m, top, bottom) for (f, top, bottom), m in zip(parts, masks)])
    return call("power", [(r,) for r in sums])


def enhance_image(grid, image, strips, out, skipped):
    what = "whole" if strips == 1 else f"in {strips} strips"
    print(f"Enhancement of a photograph of {image.shape[0]} x {image.shape[1]} pixels, {what}")
    functions = {name: grid.function(f"enhance/{name}") for name in
                 ("laplacian", "sharpen", "sobel", "smooth", "larger", "mask", "combine", "power")}

    def here(name, calls):
        return [getattr(enhance, name)(*arguments) for arguments in calls]

    def plain(name, calls):
        return [future.get() for future in [functions[name].submit(*arguments) for arguments in calls]]

    def grouped(name, calls):
        return [functions[name](*arguments) for arguments in calls]

    results, rows, predicted_local = {}, {}, None
    if not grid.simulated:
        say("measuring: first passes of plain calls, the first of which starts the workers")
        for _ in range(3):
            enhance_with(plain, image, strips)
        start = time.perf_counter()
        quarter = np.ascontiguousarray(image[: image.shape[0] // 4])
        enhance_with(here, quarter, 1)
        predicted_local = 4 * (time.perf_counter() - start)
    outline = grid.group("mct")
    with outline:
        enhance_with(grouped, image, strips)
        predicted, work = outline.plan("mct").makespan_seconds, work_of(outline)
        outline.discard()
    say("on the client alone")
    with Row(grid, predicted_local) as rows["local"]:
        grid.compute(work)
        results["local"] = None if skipped else np.concatenate(enhance_with(here, image, strips))
    say(f"as plain calls: predicted {predicted:.3f} s")
    with Row(grid, predicted) as rows["plain"]:
        results["plain"] = np.concatenate(enhance_with(plain, image, strips))
    with Row(grid) as rows["group"]:
        group = grid.group(HEURISTIC)
        with group:
            handles = enhance_with(grouped, image, strips)
            predicted = group.plan(HEURISTIC).makespan_seconds
            say(f"as one group: predicted {predicted:.3f} s")
        results["group"] = np.concatenate([handle.get() for handle in handles])
    report = group.report()
    rows["group"].predicted, rows["group"].makespan = predicted, report.measured_seconds
    say(f"  {how(grid)} {report.measured_seconds:.3f} s")
    if not skipped:
        check("image", results)
    report.save_timeline(out / ("image.html" if strips == 1 else "image-strips.html"))
    return results["group"], {way: row.to_dict(results[way]) for way, row in rows.items()}


# ---- the table


def table(programs, simulated):
    wall = "simul. s" if simulated else "wall s"
    print("\nall times are simulated" if simulated else "")
    print(f"{'program':<14} {'way':<6} {wall:>8} {'client MB':>10} {'servers MB':>11} {'predicted s':>12} {'makespan s':>11}")
    for name, ways in programs:
        for way in ("local", "plain", "group"):
            row = ways[way]
            makespan = row["measured_makespan_seconds"]
            predicted = row["predicted_seconds"]
            # The client's own computing is not predicted in simulation: it takes the time that its host's speed
            # gives.
            predicted = "-" if predicted is None else f"{predicted:.3f}"
            print(
                f"{name:<14} {way:<6} {row['seconds']:>8.3f} {row['client_bytes'] / 1e6:>10.1f} "
                f"{row['server_bytes'] / 1e6:>11.1f} {predicted:>12} "
                f"{makespan if makespan is not None else row['seconds']:>11.3f}"
            )
    if not simulated:
        processors = len(os.sched_getaffinity(0))
        print(
            f"\nThe servers and the client share the {processors} processors of this machine. Groups gain more where links are slow, as under "
            "'gridloom simulate', or where servers are machines of their own."
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2048, help="rows of the matrices [2048]")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/demo"), help="folder for the results")
    parser.add_argument("--strips", type=int, default=8, help="strips of the picture [8]")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    image = photograph()
    with gl.local(
        servers=4,
        functions=[HERE / "linalg.idl", HERE / "enhance.py"],
        libraries=[gl.blas_library()],
        environment={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    ) as grid:
        skipped = is_skipped(grid)
        chain_report = chain(grid, options.n, options.out, skipped)
        picture, whole = enhance_image(grid, image, 1, options.out, skipped)
        strips_picture, strips = enhance_image(grid, image, options.strips, options.out, skipped)
    if not np.array_equal(picture, strips_picture):
        raise SystemExit("image: strips and whole image differ")
    if not skipped:
        from PIL import Image

        Image.fromarray(np.clip(np.rint(picture), 0, 255).astype(np.uint8)).save(options.out / "enhanced.png")
        Image.fromarray(np.clip(np.rint(image), 0, 255).astype(np.uint8)).save(options.out / "original.png")
    table([("chain", chain_report), ("image", whole), ("image, strips", strips)], grid.simulated)
    report = {"programs": {
        "chain": chain_report,
        "image": {"height": image.shape[0], "width": image.shape[1], **whole, "strips": {"count": options.strips, **strips}},
    }}
    (options.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    pictures = "" if skipped else " original.png, enhanced.png,"
    print(f"\nwritten to {options.out}: report.json,{pictures} chain.html, image.html, image-strips.html")


if __name__ == "__main__":
    main()
