"""GRAS: times of an exchange of the Pastry welcome message with Gridloom and with six other systems.

Two processes send each other the welcome message of the Pastry overlay network: a struct that contains rows of a routing table behind a pointer, and a
set of leaves. They run on one host, over TCP on loopback and by the fastest method of each system (Gridloom and Open MPI: shared memory, others: Unix
sockets), and on two hosts of `gridloom testbed`. Gridloom's TCP connections are encrypted, those of the other systems are not. JSON is by nlohmann-json,
XML by expat, CORBA by omniORB. No package contains PBIO; Cap'n Proto replaces it, because its messages, too, are close to the struct in memory. A round
runs all systems one after the other. Times are in microseconds: the median of the rounds, and in parentheses the smallest and the largest.
"""

import json
import os
import statistics
import sys

from common import ROOT, WORK, Item, machine, output, progress, table

TITLE = "GRAS"
PAPER = "M. Quinson, *GRAS: a research and development framework for grid and P2P infrastructures*, research report RR-5789, INRIA 2006"
SYSTEMS = {
    "gridloom": "Gridloom",
    "mpi": "Open MPI",
    "grpc": "gRPC",
    "corba": "CORBA",
    "capnp": "Cap'n Proto",
    "json": "JSON",
    "xml": "XML",
}
#: Systems that transfer messages between different architectures, as GRAS did. Open MPI as packaged does not.
PORTABLE = [name for name in SYSTEMS if name not in ("gridloom", "mpi")]
ROWS = (0, 10, 100, 1000)
#: Lines of code and complexity of the paper's program.
PAPER_LINES, PAPER_COMPLEXITY = 48, 8
PLACES = {
    "tcp": "Figures 6 to 8 over loopback: TCP",
    "host": "Figures 6 to 8 on one host: the fastest method of each system",
    "lan": "Figures 6 to 8 in a LAN: 1 Gb/s, 100 µs",
    "wan": "Figures 6 to 8 in a WAN: 100 Mb/s, 20 ms",
}
#: Times within this ratio are equal.
NEAR = 1.05


def run(is_full):
    WORK.mkdir(parents=True, exist_ok=True)
    file = WORK / "gras.json"
    rounds, before = 9 if is_full else 3, os.getloadavg()[0]
    progress(f"Pastry messages, {rounds} rounds: some minutes")
    script = ROOT / "bench" / "pastry" / "run.py"
    output(
        [sys.executable, script, "--rounds", rounds, "--cases", "tcp", "host", "memory", "lan", "wan", "--json", file]
    )
    figures = json.loads(file.read_text())
    figures["samples"] = {key: of for key, of in figures["samples"].items() if " round_trip " in key}
    return {**figures, "machine": machine(), "load": [before, os.getloadavg()[0]]}


def cell(measure):
    if measure is None:
        return "–"
    median, least, greatest = (
        f"{measure[which]:,.0f}" if measure["greatest"] >= 100 else f"{measure[which]:.1f}"
        for which in ("median", "least", "greatest")
    )
    return f"{median} ({least}..{greatest})"


def measures(figures, system, place, what):
    """The measures by number of rows, each None if it is missing."""
    return [figures["microseconds"].get(f"{system} {place} {what} {rows}") for rows in ROWS]


def has(figures, system, place, what="round_trip"):
    return any(measures(figures, system, place, what))


def code(figures):
    counts = figures["programs"]
    if not counts:
        return Item("Table 1: lines of code and complexity", "not run: there is no module 'lizard'", "")
    ours = counts["gridloom"]

    def fewest(what):
        return all(ours[what] <= NEAR * other[what] for other in counts.values())

    is_as_paper = ours["lines"] <= PAPER_LINES and ours["cyclomatic_complexity"] <= PAPER_COMPLEXITY
    better = [SYSTEMS[s] for s, of in counts.items() if of["cyclomatic_complexity"] < ours["cyclomatic_complexity"]]
    if not fewest("lines"):
        state = "not reproduced: another system needs fewer lines"
    elif is_as_paper and not better:
        state = "beyond"
    else:
        state = (
            "same order"
            if not better
            else f"not reproduced: fewest lines, but {' and '.join(better)} have a lower complexity"
        )
    rows = [
        [
            SYSTEMS[system],
            of["lines"],
            of["cyclomatic_complexity"],
            of["functions"],
            of["lines_of_description"] or "–",
        ]
        for system, of in counts.items()
    ]
    return Item(
        "Table 1: lines of code and complexity",
        state,
        f"In the paper, the program with GRAS has the fewest lines ({PAPER_LINES}) and the lowest cyclomatic complexity ({PAPER_COMPLEXITY}). Lines do not "
        "count comments, the declaration of the struct, the values in it, or functions that only time encoding. JSON, XML and Cap'n Proto "
        "only encode, so their programs contain sockets. A description is a file for a generator of code; Gridloom reads the declaration of "
        "the struct. Gridloom's program checks each call for errors, which counts as complexity.\n\n"
        + table(["system", "lines", "complexity", "functions", "lines of description"], rows),
    )


def exchange(figures, place, what):
    found = {
        system: measures(figures, system, place, "round_trip") for system in SYSTEMS if has(figures, system, place)
    }
    if "gridloom" not in found:
        return Item(what, "not reproduced: Gridloom's program did not run there", missing(figures, place))

    def ratios(system):
        """Medians of the ratios of the rounds: Gridloom and the other system see the same noise."""
        samples = figures["samples"]
        pairs = [[samples[f"{name} {place} round_trip {rows}"] for name in ("gridloom", system)] for rows in ROWS]
        return [statistics.median(a / b for a, b in zip(*both)) for both in pairs]

    slower = {}
    for system in PORTABLE:
        if system in found:
            numbers = [str(rows) for rows, ratio in zip(ROWS, ratios(system)) if ratio > NEAR]
            if numbers:
                slower[SYSTEMS[system]] = numbers
    if slower:
        parts = [f"{system} with {', '.join(numbers)} rows" for system, numbers in slower.items()]
        state = f"not reproduced: slower than {'; '.join(parts)}"
    else:
        state = "beyond" if "mpi" in found and max(ratios("mpi")) <= NEAR else "same order"
    rows = [
        [SYSTEMS[system], *(cell(measure) for measure in all_), *(f"{ratio:.2f}" for ratio in ratios(system))]
        for system, all_ in found.items()
    ]

    def draw(axes):
        width = 0.8 / len(found)
        for index, (system, all_) in enumerate(found.items()):
            medians = [measure["median"] for measure in all_]
            spread = [
                [measure["median"] - measure["least"] for measure in all_],
                [measure["greatest"] - measure["median"] for measure in all_],
            ]
            places = [number + (index - len(found) / 2 + 0.5) * width for number in range(len(ROWS))]
            axes.bar(places, medians, width, yerr=spread, label=SYSTEMS[system])
        axes.set_xticks(range(len(ROWS)), [f"{rows} rows" for rows in ROWS])
        axes.set(ylabel="exchange, µs", yscale="log")

    head = ["", *(f"{rows} rows, µs" for rows in ROWS), *(f"Gridloom / system, {rows}" for rows in ROWS)]
    return Item(
        what,
        state,
        "*Same order* means that Gridloom takes at most 5 % longer than any other system that converts between architectures, with any number of rows; *beyond* means "
        f"that this holds for Open MPI, too. Ratios are medians of the ratios of the rounds.{quality(figures, place)}\n\n{table(head, rows)}{missing(figures, place)}",
        draw,
    )


def quality(figures, place):
    """The machine, and how well the network was emulated."""
    text = f" Machine: {figures['machine']}."
    if figures["load"]:
        text += f" Its load was {' and '.join(f'{load:.1f}' for load in figures['load'])} before and after the run."
    traffic = figures["testbeds"].get(place)
    if not traffic:
        return text
    return f"{text} The testbed delivered {traffic['delivered']:,} packets, {traffic['late']:,} of them late, and lost {traffic['lost']:,}."


def missing(figures, place):
    """The systems that did not run there, by name."""
    lines = []
    for what, why in figures["without"].items():
        system, _, where = what.partition(", ")
        if where in ("", place) and (system in SYSTEMS or system == place):
            lines.append(f"- Without {SYSTEMS.get(system, 'this network')}: {why}.\n")
    return "\n" + "".join(lines) if lines else ""


def architectures(figures):
    """Encoding and decoding without a network, of messages of this and of other architectures."""
    rows = []
    for what in ("encode", "decode"):
        for system in SYSTEMS:
            place = "memory" if system == "gridloom" else "tcp"
            if has(figures, system, place, what):
                rows.append([f"{SYSTEMS[system]}, {what}", *map(cell, measures(figures, system, place, what))])
    natives = measures(figures, "gridloom", "memory", "decode")
    labels = [key.split()[2] for key in figures["microseconds"] if key.startswith("gridloom memory decode:")]
    foreign = {what: measures(figures, "gridloom", "memory", what) for what in dict.fromkeys(labels)}
    for what, found in foreign.items():
        rows.append([f"Gridloom, decode a message of {what.partition(':')[2]}", *map(cell, found)])
    named = "Figures 6 to 8 between architectures: encoding and decoding"
    if not foreign:
        return Item(named, "not reproduced: the program gridloom-bench did not run", missing(figures, "memory"))
    slowest = [max(found[index]["median"] for found in foreign.values()) for index in range(len(ROWS))]
    ratio = max(slow / native["median"] for slow, native in zip(slowest, natives))
    texts = {
        SYSTEMS[s]: measures(figures, s, "tcp", "decode") for s in ("json", "xml") if has(figures, s, "tcp", "decode")
    }
    slower = [name for name, found in texts.items() if any(slow > text["median"] for slow, text in zip(slowest, found))]
    return Item(
        named,
        f"not reproduced: conversion is slower than reading {' and '.join(slower)}" if slower else "same order",
        "As in GRAS, the receiver converts. A message of a machine with another byte order or word size takes up to "
        f"{ratio:.1f} times as long to decode as one of the same machine. *Same order* means that this takes less time than to decode text. The "
        "messages of other architectures (ppc, ppc64, i386) are in the data representations of these architectures. Exchanges with a process on an emulated processor (qemu-user) are not timed: they would "
        "measure the emulation.\n\n" + table(["", *(f"{rows} rows, µs" for rows in ROWS)], rows),
    )


def items(figures):
    yield code(figures)
    for place, what in PLACES.items():
        yield exchange(figures, place, what)
    yield architectures(figures)
