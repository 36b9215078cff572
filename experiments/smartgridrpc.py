"""SmartGridRPC (Hydropad): local, plain GridRPC, one group a step, one group of ten steps, in simulation.

The machines are the paper's: servers of 498 and 531 MFlops, connected by links of 1 Gb/s, and clients of 248 MFlops: one has a link of
100 Mb/s and 256 MB of memory, the other a link of 1 Gb/s and 1 GB. A third client, with 1 Gb/s and 256 MB, is not in the paper.
Clients page when what they hold exceeds their memory ([the model](../platform.md#memory-and-paging)). The paper does not state the speed of
their disks: 20 MB/s is an assumption: a disk of that time reads some tens of MB/s in order, and a few MB/s at random. Servers have enough memory.
"""

import re
import sys

from common import GRIDLOOM, ROOT, WORK, Item, output, progress, table, written

TITLE = "SmartGridRPC"
PAPER = "T. Brady, J. Dongarra, M. Guidolin, A. Lastovetsky, K. Seymour, *SmartGridRPC: the new RPC model for high performance grid computing*, technical report UCD-CSI-2009-10"
SOURCES = ROOT / "examples" / "gridrpc" / "hydropad"
LOCAL = ROOT / "experiments" / "hydropad_local.py"
#: Bandwidth and memory of each client.
CLIENTS = {
    "100 Mb/s, 256 MB": ("100Mbps", "256MB"),
    "1 Gb/s, 1 GB": ("1Gbps", "1GB"),
    "1 Gb/s, 256 MB": ("1Gbps", "256MB"),
}
#: Cells, and particles, along an edge.
SIZES = {
    "100 Mb/s, 256 MB": [64, 96, 112, 128, 144, 160],
    "1 Gb/s, 1 GB": [64, 96, 112, 128, 144, 160, 208],
    "1 Gb/s, 256 MB": [64, 96, 112, 128, 144, 160],
}
FULL_SIZES = {client: [*sizes, 224] if "1 GB" in client else [*sizes, 176] for client, sizes in SIZES.items()}
VARIANTS = ["local", "GridRPC", "group of one step", "group of ten steps"]
SWAP = "20MBps"
FASTEST_FLOPS = 531e6
PLATFORM = """routing = "shortest"

[[host]]
name = "client"
speed = "248Mf"
properties = {{ role = "client, agent", memory = "{memory}", swap = "{swap}" }}

[[host]]
name = "s1"
speed = "498Mf"
properties = {{ role = "server" }}

[[host]]
name = "s2"
speed = "531Mf"
properties = {{ role = "server" }}

[[router]]
name = "switch"

[[link]]
name = "client-link"
bandwidth = "{bandwidth}"
latency = "100us"
sharing = "splitduplex"

[[link]]
name = "link-1"
bandwidth = "1Gbps"
latency = "50us"
sharing = "splitduplex"

[[link]]
name = "link-2"
bandwidth = "1Gbps"
latency = "50us"
sharing = "splitduplex"

[[connect]]
from = "client"
to = "switch"
links = ["client-link:up"]

[[connect]]
from = "s1"
to = "switch"
links = ["link-1:up"]

[[connect]]
from = "s2"
to = "switch"
links = ["link-2:up"]
"""


def megabytes(n):
    """Memory of the program's arrays: two densities and two potentials, gas, particles; as many particles as cells."""
    return 8 * (9 * n**3 + 6 * n**3) / 1e6


def bound_s(n):
    """Seconds of bary and grav, which follow each other, on the faster server."""
    return 1700 * n**3 / FASTEST_FLOPS


def built():
    folder = WORK / "hydropad"
    folder.mkdir(parents=True, exist_ok=True)
    capi = ROOT / "target" / "capi"
    kernels = [SOURCES / name for name in ("fft.c", "gravity.c", "matter.c", "gas.c")]
    output(["cc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", *kernels, "-o", folder / "libhydropad.so", "-lm"])
    for name in ("plain", "mapped"):
        sources = [SOURCES / f"{name}.c", SOURCES / "hydropad.c", SOURCES / "cosmology.c"]
        link = [f"-L{capi}/lib", f"-Wl,-rpath,{capi}/lib", "-lgridloom", "-lm"]
        output(["cc", "-O2", f"-I{capi}/include", *sources, "-o", folder / name, *link])
    for name in ("hydropad.idl", "grid.toml"):
        written(folder / name, (SOURCES / name).read_text())
    return folder


def seconds_per_step(folder, platform, program, steps=(10, 20)):
    """Virtual seconds per step, without the beginning and the end of the program."""
    totals = []
    for count in steps:
        words = [count if word is None else word for word in program]
        command = [GRIDLOOM, "simulate", "-p", platform, "--", *words]
        totals.append(float(re.search(r"^simulated ([\d.]+) s$", output(command, folder), re.MULTILINE)[1]))
    return (totals[1] - totals[0]) / (steps[1] - steps[0])


def variants(folder, n):
    """Commands of the variants; None is the number of steps."""
    return [
        [sys.executable, LOCAL, n, n, None],
        [folder / "plain", "grid.toml", n, n, None],
        [folder / "mapped", "grid.toml", n, n, None, 1],
        [folder / "mapped", "grid.toml", n, n, None, 10],
    ]


def run(is_full):
    folder = built()
    figures = {}
    for client, (bandwidth, memory) in CLIENTS.items():
        platform = written(
            folder / f"{bandwidth}-{memory}.toml", PLATFORM.format(bandwidth=bandwidth, memory=memory, swap=SWAP)
        )
        for n in (FULL_SIZES if is_full else SIZES)[client]:
            progress(f"Hydropad, client with {client}, {megabytes(n):.0f} MB")
            seconds = [seconds_per_step(folder, platform, program) for program in variants(folder, n)]
            figures.setdefault(client, {})[n] = seconds
    return figures


def figure(client, what, aim, paper, found):
    """The item of one client. `aim` is the smallest ratio in the paper, or None if the paper does not have this client."""
    rows = [
        [f"{megabytes(n):.0f}", *(f"{one:.2f}" for one in seconds), f"{bound_s(n):.2f}"]
        + [f"{seconds[1] / seconds[3]:.2f}", f"{seconds[0] / seconds[3]:.2f}"]
        for n, seconds in found.items()
    ]
    ratios = [seconds[1] / seconds[3] for seconds in found.values()]
    above = max(seconds[3] / bound_s(n) for n, seconds in found.items()) - 1
    state = "same order" if min(ratios) > 1 else "not reproduced: mapping does not help"
    if aim is None:
        state = "not in the paper"
    elif min(ratios) >= aim:
        state = "beyond"

    def draw(axes):
        sizes = [megabytes(n) for n in found]
        for index, variant in enumerate(VARIANTS):
            axes.plot(sizes, [seconds[index] for seconds in found.values()], marker="o", markersize=3, label=variant)
        axes.set(xlabel="size of the problem, MB", ylabel="s a step")

    text = (
        f"Times are in seconds per step. {paper}In Gridloom, the mapped group of ten steps is {min(ratios):.2f} to {max(ratios):.2f} times as "
        f"fast as plain GridRPC, and takes at most {100 * above:.1f} % longer than the `bound`: the work of gas and gravity on the faster "
        "server, a lower limit for each step. `local` computes on the client.\n\n"
    )
    head = ["MB", *VARIANTS, "bound", "GridRPC / ten steps", "local / ten steps"]
    return Item(what, state, text + table(head, rows), draw)


def items(figures):
    found = {client: {int(n): seconds for n, seconds in sizes.items()} for client, sizes in figures.items()}
    slow, fast, other = CLIENTS
    yield figure(
        slow,
        "Figure 3: client with 100 Mb/s and 256 MB",
        4,
        "In the paper, the mapped group is about 4 times as fast as plain GridRPC, and about 6 times as fast as `local`. ",
        found[slow],
    )
    yield figure(
        fast,
        "Figure 4: client with 1 Gb/s and 1 GB",
        2,
        "In the paper, the mapped group is over 2 times as fast as plain GridRPC. ",
        found[fast],
    )
    yield figure(other, "Not in the paper: client with 1 Gb/s and 256 MB", None, "", found[other])
    both = [n for n in found[slow] if n in found[fast]]
    rows = [
        [f"{megabytes(n):.0f}", f"{found[slow][n][3]:.2f}", f"{found[fast][n][3]:.2f}"]
        + [f"{found[slow][n][3] / found[fast][n][3]:.2f}"]
        for n in both
    ]
    apart = max(found[slow][n][3] / found[fast][n][3] for n in both)
    yield Item(
        "Figure 5: both clients of the paper, groups of ten steps",
        "same order" if apart < 1.1 else f"not reproduced: the clients are up to {apart:.2f} times apart",
        "In the paper, steps take almost the same time with both clients.\n\n"
        + table(["MB", *(f"{client}: s a step" for client in (slow, fast)), "ratio"], rows),
    )
