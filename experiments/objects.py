"""Message-driven objects (Koenig and Kalé): the stencil and LeanMD on two sites, in simulation.

Each host is one processor, and each site has half of the hosts. The grain size is the paper's: 36 ns per stencil cell, as measured on 2
processors with 16 objects, and 2.6 ms per pair of LeanMD, as measured on 2 processors. Each entry method takes another
0.2 µs (stencil) or 1 µs (LeanMD). The simulator does not model caches, so where latency does not matter, a few large objects are as fast as many small ones.
"""

import pathlib
import re
import tempfile

from common import GRIDLOOM, RELEASE, Item, output, progress, table

TITLE = "Message-driven objects"
PAPER = "G. A. Koenig, L. V. Kalé, *Using message-driven objects to mask latency in grid computing applications*, IPDPS 2005"
CELL_NS = 36
PAIR_US = 2595
PUBLISHED_MS = 1.725
#: Milliseconds per step of table 1, by processors and objects, with an injected latency of 1.725 ms.
PAPER_STENCIL = {
    2: {4: 85.8, 16: 75.1, 64: 80.4},
    4: {4: 85.1, 16: 35.0, 64: 36.7},
    8: {16: 25.5, 64: 17.6, 256: 19.9},
    16: {16: 17.1, 64: 11.0, 256: 10.0},
    32: {64: 6.8, 256: 6.0, 1024: 8.1},
    64: {64: 6.7, 256: 4.0, 1024: 4.9},
}
#: Seconds per step of table 2, by processors.
PAPER_LEANMD = {2: 3.924, 4: 2.021, 8: 1.015, 16: 0.559, 32: 0.302, 64: 0.239}
#: Latencies of figures 3 and 4, ms.
SWEEP_STENCIL_MS = [0, 1, 2, 4, 8, 16, 32]
SWEEP_LEANMD_MS = [1, 16, 32, 64, 128, 256]

PLATFORM = """[[cluster]]
name = "east"
hosts = "east-[1-{half}]"
speed = "1Gf"
bandwidth = "2Gbps"
latency = "5us"
properties = {{ site = "east" }}

[[cluster]]
name = "west"
hosts = "west-[1-{half}]"
speed = "1Gf"
bandwidth = "2Gbps"
latency = "5us"
properties = {{ site = "west" }}

[[link]]
name = "wan"
bandwidth = "40Gbps"
latency = "{latency}us"
sharing = "splitduplex"

[[connect]]
from = "east"
to = "west"
links = ["wan:up"]
"""


def ms_per_step(processors, latency_ms, program, steps):
    """Virtual milliseconds per step, without the first `steps[0]`, in which the pipeline fills."""
    with tempfile.TemporaryDirectory() as folder:
        platform, deployment = pathlib.Path(folder) / "platform.toml", pathlib.Path(folder) / "elements.toml"
        platform.write_text(PLATFORM.format(half=processors // 2, latency=latency_ms * 1000))
        deployment.write_text(output([GRIDLOOM, "chares", "deployment", "-p", platform, "--balance", "none"]))
        totals = []
        for count in steps:
            printed = output([GRIDLOOM, "simulate", "-p", platform, "-d", deployment, "--", *program, "--steps", count])
            totals.append(float(re.search(r"([\d.]+) ms a step", printed)[1]) * count)
    return (totals[1] - totals[0]) / (steps[1] - steps[0])


def stencil(processors, objects, latency_ms):
    program = [RELEASE / "examples" / "stencil", "--chares", objects, "--cell-ns", CELL_NS]
    return ms_per_step(processors, latency_ms, program, (10, 40))


def leanmd(processors, latency_ms):
    # Atoms are few, because the time of a pair is given.
    program = [RELEASE / "examples" / "leanmd", "--atoms", 3, "--pair-us", PAIR_US]
    return ms_per_step(processors, latency_ms, program, (3, 9)) / 1e3


def run(is_full):
    figures = {"stencil": {}, "stencil by latency": {}, "leanmd": {}, "leanmd by latency": {}}
    for processors, objects in ((p, o) for p, row in PAPER_STENCIL.items() for o in row):
        progress(f"stencil, {processors} processors, {objects} objects")
        figures["stencil"][f"{processors}, {objects}"] = stencil(processors, objects, PUBLISHED_MS)
    for processors in PAPER_LEANMD:
        progress(f"LeanMD, {processors} processors")
        figures["leanmd"][str(processors)] = leanmd(processors, PUBLISHED_MS)
    chosen = list(PAPER_STENCIL) if is_full else [2, 16, 64]
    for processors in chosen:
        for objects in PAPER_STENCIL[processors]:
            progress(f"stencil, {processors} processors, {objects} objects, by latency")
            found = [stencil(processors, objects, ms) for ms in SWEEP_STENCIL_MS]
            figures["stencil by latency"][f"{processors}, {objects}"] = found
    for processors in PAPER_LEANMD if is_full else [2, 32]:
        progress(f"LeanMD, {processors} processors, by latency")
        figures["leanmd by latency"][str(processors)] = [leanmd(processors, ms) for ms in SWEEP_LEANMD_MS]
    return figures


def state_of(ratios):
    """Judges times of ours by the paper's."""
    return (
        "beyond"
        if all(ratio <= 1.05 for ratio in ratios)
        else "same order"
        if max(ratios) < 2
        else "not reproduced: slower"
    )


def items(figures):
    rows, ratios, is_best_equal = [], [], []
    for processors, row in PAPER_STENCIL.items():
        ours = {objects: figures["stencil"][f"{processors}, {objects}"] for objects in row}
        is_best_equal.append(ours[min(row, key=row.get)] <= 1.05 * min(ours.values()))
        for objects, paper in row.items():
            ratios.append(ours[objects] / paper)
            rows.append([processors, objects, f"{ours[objects]:.2f}", paper, f"{ratios[-1]:.2f}"])
    best = (
        f"With the paper's best number of objects, the time is within 5 % of our best for {sum(is_best_equal)} of {len(is_best_equal)} "
        "numbers of processors."
    )
    head = ["processors", "objects", "Gridloom, ms a step", "paper, ms a step", "ratio"]
    yield Item(
        "Table 1: five-point stencil, 2048 × 2048, one way 1.725 ms",
        state_of(ratios),
        f"{best}\n\n{table(head, rows)}",
    )
    rows = [[*key.split(", "), *(f"{ms:.2f}" for ms in found)] for key, found in figures["stencil by latency"].items()]

    def draw_stencil(axes):
        for key, found in figures["stencil by latency"].items():
            processors, objects = key.split(", ")
            axes.plot(
                SWEEP_STENCIL_MS, found, marker="o", markersize=3, label=f"{processors} processors, {objects} objects"
            )
        axes.set(xlabel="one-way latency between the sites, ms", ylabel="ms a step", yscale="log")

    flat = [found[-1] / found[0] for key, found in figures["stencil by latency"].items() if key.startswith("2, ")]
    yield Item(
        "Figure 3: stencil by latency",
        "same order" if min(flat) < 1.1 else "not reproduced: not flat on 2 processors",
        f"On 2 processors and with the best number of objects, a step at {SWEEP_STENCIL_MS[-1]} ms takes {min(flat):.2f} times as long as without "
        "latency. In the paper, the time does not depend on the latency either.\n\n"
        + table(["processors", "objects", *(f"{ms} ms" for ms in SWEEP_STENCIL_MS)], rows),
        draw_stencil,
    )
    rows = [
        [p, f"{figures['leanmd'][str(p)]:.3f}", paper, f"{figures['leanmd'][str(p)] / paper:.2f}"]
        for p, paper in PAPER_LEANMD.items()
    ]
    yield Item(
        "Table 2: LeanMD, 216 cells and 3,024 pairs, one way 1.725 ms",
        state_of([figures["leanmd"][str(p)] / paper for p, paper in PAPER_LEANMD.items()]),
        table(["processors", "Gridloom, s a step", "paper, s a step", "ratio"], rows),
    )

    def draw_leanmd(axes):
        for key, found in figures["leanmd by latency"].items():
            axes.plot(SWEEP_LEANMD_MS, found, marker="o", markersize=3, label=f"{key} processors")
        axes.set(xlabel="one-way latency between the sites, ms", ylabel="s a step", yscale="log")

    two = figures["leanmd by latency"]["2"]
    yield Item(
        "Figure 4: LeanMD by latency",
        "same order" if two[-1] / two[0] < 1.1 else "not reproduced: not flat on 2 processors",
        f"On 2 processors, a step at {SWEEP_LEANMD_MS[-1]} ms takes {two[-1] / two[0]:.2f} times as long as at "
        f"{SWEEP_LEANMD_MS[0]} ms. In the paper, the time does not depend on the latency either.\n\n"
        + table(
            ["processors", *(f"{ms} ms" for ms in SWEEP_LEANMD_MS)],
            [[key, *(f"{s:.3f}" for s in found)] for key, found in figures["leanmd by latency"].items()],
        ),
        draw_leanmd,
    )
