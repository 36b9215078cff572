"""OmniStorage: W-To-W, BROADCAST and ALL-EXCHANGE with each method, in simulation.

Two clusters of eight workers are joined without a bottleneck (case 1) or by a link of 50 Mb/s and 10 ms (case 2), and the client is at a third
site; hosts have links of 100 Mb/s. `client` is plain GridRPC. `storage` replaces the paper's Gfarm, which has files on the workers and copies
of them: all servers share the files of one server beside the first cluster, whose link has 1 Gb/s. A value is written there
before it is read, over the network, so storage is slower here than in the paper.
"""

import json
import sys

from common import ROOT, WORK, Item, output, progress, table

TITLE = "OmniStorage"
PAPER = "Y. Nakajima, Y. Aida, M. Sato, O. Tatebe, *Performance evaluation of data management layer by data sharing patterns for grid RPC applications*, Euro-Par 2008"
METHODS = ["auto", "direct", "tree", "swarm", "storage", "client"]
PATTERNS = {
    "W-To-W": (
        "Figure 8: W-To-W",
        "In the paper, storage is fastest, plain GridRPC needs two transfers through the master, and swarm is slower than that.",
    ),
    "BROADCAST": ("Figure 9: BROADCAST", "In the paper, tree is fastest; swarm passes it at 1,024 MB in case 1; storage is slow, because it makes three copies."),
    "ALL-EXCHANGE": ("Figure 10: ALL-EXCHANGE", "In the paper, storage is twice as fast as swarm, and plain GridRPC is limited by its master."),
}
NEAR = 1.05


def run(is_full):
    WORK.mkdir(parents=True, exist_ok=True)
    file = WORK / "omnistorage.json"
    sizes = [16, 64, 256, 1024] if is_full else [16, 64, 256]
    progress("sharing patterns of OmniStorage: some minutes")
    output([sys.executable, ROOT / "bench" / "sharing.py", "--mib", *sizes, "--json", file])
    return json.loads(file.read_text())


def items(figures):
    for pattern, (what, paper) in PATTERNS.items():
        cells = [cell for cell in figures if cell["pattern"] == pattern]
        apart, gains = [cell["ratio"] for cell in cells], [cell["client"] / cell["auto"] for cell in cells]
        rows = [
            [cell["case"], cell["mib"], *(f"{cell[method]:.2f}" for method in METHODS), f"{cell['ratio']:.3f}"]
            for cell in cells
        ]
        is_best, is_faster = max(apart) <= NEAR, min(gains) >= 1 / NEAR
        reason = "`auto` is not the best method" if not is_best else "plain GridRPC is faster"
        yield Item(
            what,
            "same order" if is_best and is_faster else f"not reproduced: {reason}",
            f"{paper} Here `auto` takes at most {max(apart):.3f} times as long as the best method, and is up to {max(gains):.1f} times as fast as "
            "plain GridRPC. Times are in seconds.\n\n" + table(["case", "MiB", *METHODS, "auto / best"], rows),
        )
