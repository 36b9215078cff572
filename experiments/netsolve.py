"""Direct communication for NetSolve: six servers, stateless or upgraded, in simulation.

The network is that of bench/stateless_servers.py: hosts connected to a switch by links of 100 Mb/s. Calls are placed by hand, in the same way for each number of
upgraded servers, and functions take almost no time, so that only transfers differ.
"""

import json
import sys

from common import ROOT, WORK, Item, output, progress, table

TITLE = "Direct communication for NetSolve"
PAPER = "A. Lastovetsky, X. Zuo, P. Zhao, *A non-intrusive and incremental approach to enabling direct communications in RPC-based grid programming systems*, ICCS 2006"
CLIENTS = {"100 Mb/s": "100Mbps", "10 Mb/s": "10Mbps"}
#: Applications of tables 2 to 4: communication time before and after, seconds, in the order of three sizes.
PAPER_TABLES = {
    "protein": ("Table 2: protein structure", [(52, 30), (107, 62), (174, 101)]),
    "image": ("Table 3: image enhancement", [(60, 29), (124, 62), (200, 98)]),
    "chain": ("Table 4: matrix chain", [(102, 67), (214, 135), (320, 221)]),
}
PAPER_SLOW_CLIENT = 0.54


def run(is_full):
    figures = {}
    for client, bandwidth in CLIENTS.items():
        progress(f"stateless servers, client at {client}")
        WORK.mkdir(parents=True, exist_ok=True)
        file = WORK / f"netsolve-{bandwidth}.json"
        output(
            [sys.executable, ROOT / "bench" / "stateless_servers.py", "--client-bandwidth", bandwidth, "--json", file]
        )
        for upgraded, programs in json.loads(file.read_text()).items():
            for program, [round_] in programs.items():
                figures[f"{client}, {program}, {upgraded}"] = {
                    key: round_[key] for key in ("measured", "client_bytes", "server_bytes")
                }
    return figures


def items(figures):
    numbers = range(7)

    def seconds(client, program, upgraded):
        return figures[f"{client}, {program}, {upgraded}"]["measured"]

    for program, (what, paper) in PAPER_TABLES.items():
        before, after = seconds("100 Mb/s", program, 0), seconds("100 Mb/s", program, 6)
        rows = [["Gridloom", f"{before:.2f}", f"{after:.2f}", f"{1 - after / before:.0%}"]]
        rows += [[f"paper, size {size}", b, a, f"{1 - a / b:.0%}"] for size, (b, a) in enumerate(paper, 1)]
        least = min(1 - a / b for b, a in paper)
        yield Item(
            what,
            "beyond" if 1 - after / before >= least else "same order",
            "Communication time in seconds, with all servers stateless and with all servers upgraded. Problem sizes differ from the paper's, so only the savings can be compared.\n\n"
            + table(["", "stateless", "direct", "saved"], rows),
        )

    def draw(axes):
        for program in PAPER_TABLES:
            first = seconds("100 Mb/s", program, 0)
            axes.plot(
                list(numbers),
                [seconds("100 Mb/s", program, n) / first for n in numbers],
                marker="o",
                markersize=3,
                label=program,
            )
        axes.set(xlabel="upgraded servers of 6", ylabel="time, relative to 0 upgraded", ylim=(0, 1.05))

    falls = all(
        seconds("100 Mb/s", p, n + 1) <= seconds("100 Mb/s", p, n) * 1.01 for p in PAPER_TABLES for n in range(6)
    )
    yield Item(
        "Figure 6(a): 0 to 6 upgraded servers",
        "same order" if falls else "not reproduced: the time does not fall with each server",
        "Communication time in seconds. In the paper, it falls linearly with the number of upgraded servers.\n\n"
        + table(
            ["program", *(f"{n} upgraded" for n in numbers)],
            [[p, *(f"{seconds('100 Mb/s', p, n):.2f}" for n in numbers)] for p in PAPER_TABLES],
        ),
        draw,
    )
    saved = {p: 1 - seconds("10 Mb/s", p, 6) / seconds("10 Mb/s", p, 0) for p in PAPER_TABLES}
    yield Item(
        "Figure 6(b): client at 10 Mb/s",
        "beyond" if min(saved.values()) >= PAPER_SLOW_CLIENT else "same order",
        f"In the paper, direct links save about {PAPER_SLOW_CLIENT:.0%}.\n\n"
        + table(
            ["program", "stateless, s", "direct, s", "saved"],
            [
                [p, f"{seconds('10 Mb/s', p, 0):.2f}", f"{seconds('10 Mb/s', p, 6):.2f}", f"{saved[p]:.0%}"]
                for p in PAPER_TABLES
            ],
        ),
    )
