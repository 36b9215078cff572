"""SmartGridRPC (Hydropad): local, plain GridRPC, one group a step, one group of ten steps, in simulation.

The machines are the paper's: a client of 248 MFlops and servers of 498 and 531 MFlops, connected by links of 1 Gb/s. The client's
link has 100 Mb/s or 1 Gb/s. Memory is unlimited, so hosts never swap.
"""

import re

from common import GRIDLOOM, ROOT, WORK, Item, output, progress, table, written

TITLE = "SmartGridRPC"
PAPER = "T. Brady, J. Dongarra, M. Guidolin, A. Lastovetsky, K. Seymour, *SmartGridRPC: the new RPC model for high performance grid computing*, technical report UCD-CSI-2009-10"
SOURCES = ROOT / "examples" / "gridrpc" / "hydropad"
#: Cells and particles along an edge.
SIZES = [(64, 64), (80, 80), (96, 96), (112, 112)]
FULL_SIZES = [*SIZES, (128, 128), (144, 144), (160, 160)]
CLIENTS = {"100 Mb/s": "100Mbps", "1 Gb/s": "1Gbps"}
VARIANTS = ["local", "GridRPC", "group of one step", "group of ten steps"]
CLIENT_FLOPS = 248e6
FASTEST_FLOPS = 531e6
PLATFORM = """routing = "shortest"

[[host]]
name = "client"
speed = "248Mf"
properties = {{ role = "client, agent" }}

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


def megabytes(n, m):
    """Memory of the program's arrays: two densities and two potentials, gas, particles."""
    return 8 * (9 * n**3 + 6 * m**3) / 1e6


def flops_per_step(n, m):
    """By CalcOrder of dark, bary and grav in hydropad.idl."""
    return 200 * m**3 + 10 * n**3 + 1500 * n**3 + 200 * n**3


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


def seconds_per_step(folder, platform, program, n, m, group=()):
    """Virtual seconds per step, without the beginning and the end of the program."""
    totals = []
    for steps in (10, 20):
        command = [GRIDLOOM, "simulate", "-p", platform, "--", folder / program, "grid.toml", n, m, steps, *group]
        totals.append(float(re.search(r"^simulated ([\d.]+) s$", output(command, folder), re.MULTILINE)[1]))
    return (totals[1] - totals[0]) / 10


def run(is_full):
    folder = built()
    figures = {}
    for client, bandwidth in CLIENTS.items():
        platform = written(folder / f"{bandwidth}.toml", PLATFORM.format(bandwidth=bandwidth))
        for n, m in FULL_SIZES if is_full else SIZES:
            progress(f"Hydropad, client at {client}, {megabytes(n, m):.0f} MB")
            figures[f"{client}, {n}, {m}"] = [
                flops_per_step(n, m) / CLIENT_FLOPS,
                seconds_per_step(folder, platform, "plain", n, m),
                seconds_per_step(folder, platform, "mapped", n, m, [1]),
                seconds_per_step(folder, platform, "mapped", n, m, [10]),
            ]
    return figures


def items(figures):
    by_client = {client: {} for client in CLIENTS}
    bounds = {}
    for key, seconds in figures.items():
        client, n, m = key.split(", ")
        size = megabytes(int(n), int(m))
        by_client[client][size], bounds[size] = seconds, bound_s(int(n))
    aims = {"100 Mb/s": ("Figure 3: client at 100 Mb/s", 4), "1 Gb/s": ("Figure 4: client at 1 Gb/s", 2)}
    for client, found in by_client.items():
        what, paper = aims[client]
        rows = [
            [f"{size:.0f}", *(f"{one:.2f}" for one in seconds), f"{bounds[size]:.2f}", f"{seconds[1] / seconds[3]:.2f}"]
            for size, seconds in found.items()
        ]
        ratio = min(seconds[1] / seconds[3] for seconds in found.values())

        def draw(axes, found=found):
            for index, variant in enumerate(VARIANTS):
                axes.plot(
                    list(found), [seconds[index] for seconds in found.values()], marker="o", markersize=3, label=variant
                )
            axes.set(xlabel="size of the problem, MB", ylabel="s a step")

        yield Item(
            what,
            "beyond" if ratio >= paper else "same order" if ratio > 1 else "not reproduced: mapping does not help",
            f"Times are in seconds per step. In the paper, the mapped group of ten steps is {'about' if paper == 4 else 'over'} {paper} times as fast as "
            f"plain GridRPC; in Gridloom, it is at least {ratio:.2f} times as fast. `local` is the work of a step at the speed of the client; no step can be shorter than the `bound`, the work of gas and gravity on the "
            f"faster server.\n\n" + table(["MB", *VARIANTS, "bound", "GridRPC / ten steps"], rows),
            draw,
        )
    slow, fast = by_client.values()
    rows = [
        [f"{size:.0f}", f"{slow[size][3]:.2f}", f"{fast[size][3]:.2f}", f"{slow[size][3] / fast[size][3]:.2f}"]
        for size in slow
    ]
    apart = max(slow[size][3] / fast[size][3] for size in slow)
    yield Item(
        "Figure 5: both clients, groups of ten steps",
        "same order" if apart < 1.1 else f"not reproduced: the clients are up to {apart:.2f} times apart",
        "In the paper, steps take almost the same time with both clients.\n\n"
        + table(["MB", *(f"client at {client}, s a step" for client in CLIENTS), "ratio"], rows),
    )
