"""Predictions: simulated or planned times beside times measured on the testbed, for the experiments on the other pages.

The same platform file is simulated and emulated by `gridloom testbed`, where real processes exchange real packets. *Simulated* is the virtual time of
the same program, *planned* the makespan that the plan of a group predicts before the group runs. Functions are calibrated first, also
on the testbed: at other sizes, on another platform, or in a run of their own. All emulated hosts share the processors of one
machine, so other programs on it make measured times longer. The error of a case is |predicted / measured - 1|, of the medians of its rounds.
"""

import json
import math
import os
import pathlib
import re
import statistics
import sys
import tempfile

import common
import objects
from common import GRIDLOOM, RELEASE, ROOT, WORK, Item, output, progress, table

TITLE = "Predictions"
HEADING = "Predictions: predicted and measured times of the papers' experiments"
PAPER = "The papers compare predicted with measured times by examples only; the aims here are Gridloom's"
BENCH = ROOT / "bench"
MEDIAN_MAX, P90_MAX = 0.10, 0.20
#: Chares, and one-way latencies in ms, of the stencil and of LeanMD on two hosts.
CHARES, LATENCIES_MS = (16, 64), (1, 4, 16)
CELLS, PAIRS = 2048 * 2048, 3024


def script(name, *arguments):
    """Runs a benchmark, and returns what it writes as JSON."""
    file = WORK / "predictions.json"
    file.unlink(missing_ok=True)
    output([sys.executable, BENCH / name, *arguments, "--json", file])
    return json.loads(file.read_text())


def case(name, how, predicted, measured):
    """One comparison; times in seconds, one or several of each."""
    return {"case": name, "how": how, "predicted": predicted, "measured": measured}


def worlds(is_full):
    """The matrix chain, the image enhancement and Hydropad: simulated with calibrated functions, and emulated."""
    pairs = script("worlds.py", *(["--rounds", 5] if is_full else ["--rounds", 1, "--platforms", "two sites"]))
    return [
        case(name, "simulated", [one for one, _ in both], [other for _, other in both]) for name, both in pairs.items()
    ]


def plans(is_full):
    """Tiled Cholesky and the matrix chain: planned with calibrated functions, and emulated."""
    found = script("predicted.py", "--rounds", 5 if is_full else 2)
    return [
        case(
            f"{platform}, {program}",
            "planned",
            *([run[which] for run in runs["auto"]] for which in ("predicted", "measured")),
        )
        for platform, of in found.items()
        for program, runs in of["results"].items()
    ]


def netsolve(is_full):
    """Three programs on six servers, of which some are upgraded."""
    upgraded, efficiencies = range(7) if is_full else (0, 3, 6), WORK / "predictions-efficiencies.json"

    def run_in(world, rounds, *options):
        return script("stateless_servers.py", "--world", world, "--rounds", rounds, *options)

    def seconds(of):
        runs = [run for programs in of.values() for rounds in programs.values() for run in rounds]
        return {name: seconds for run in runs for name, seconds in run["functions"].items()}

    # The durations of functions are those of a run of their own, with direct transfers.
    ideal, real = (seconds(run_in(world, 1, "--upgraded", 6)) for world in ("simulate", "testbed"))
    efficiencies.write_text(
        json.dumps({name: ideal[name] / real[name] for name in ideal if ideal[name] and real.get(name)})
    )
    simulated = run_in("simulate", 1, "--upgraded", *upgraded, "--efficiencies", efficiencies)
    emulated = run_in("testbed", 3 if is_full else 1, "--upgraded", *upgraded)
    return [
        case(
            f"{program}, {number} upgraded",
            "simulated",
            *([run["measured"] for run in of[number][program]] for of in (simulated, emulated)),
        )
        for number in simulated
        for program in simulated[number]
    ]


def omnistorage(is_full):
    """Sharing patterns on two clusters of two servers."""
    cases, sizes = [], [8, 16, 32] if is_full else [8, 16]
    for number in (1, 2):
        platform = WORK / f"predictions-sites-{number}.toml"
        platform.write_text(output([sys.executable, BENCH / "sites.py", "--case", number, "--servers", 2]))
        program = ["--", sys.executable, BENCH / "patterns.py", "--case", number, "--mib", *sizes]
        simulate = [GRIDLOOM, "simulate", "-p", platform, *program]
        emulate = [
            GRIDLOOM,
            "testbed",
            "run",
            "-p",
            platform,
            "--speeds",
            "none",
            "--functions",
            BENCH / "patterns_functions.py",
        ]
        rounds = 3 if is_full else 2
        simulated, emulated = (
            [json.loads(line) for line in output(command).splitlines() if line.startswith('{"pattern"')]
            for command in (simulate, [*emulate, *program, "--rounds", rounds])
        )
        for one in simulated:
            measured = [
                other["seconds"]
                for other in emulated
                if (other["pattern"], other["mib"]) == (one["pattern"], one["mib"])
            ]
            name = f"{one['pattern']}, case {number}, {one['mib']} MiB"
            cases.append(case(name, "simulated", [one["seconds"]], measured))
    return cases


def on_testbed(program, latency_ms, steps):
    """Milliseconds per step of two elements on two hosts."""
    with tempfile.TemporaryDirectory() as folder:
        platform, deployment = pathlib.Path(folder) / "platform.toml", pathlib.Path(folder) / "elements.toml"
        platform.write_text(objects.PLATFORM.format(half=1, latency=latency_ms * 1000))
        deployment.write_text(output([GRIDLOOM, "chares", "deployment", "-p", platform, "--balance", "none"]))
        command = [
            GRIDLOOM,
            "testbed",
            "run",
            "--no-grid",
            "--quiet",
            "--speeds",
            "none",
            "-p",
            platform,
            "-d",
            deployment,
        ]
        printed = output([*command, "--", *program, "--steps", steps])
    found = re.search(r"([\d.]+) (m?)s a step", printed)
    return float(found[1]) * (1 if found[2] else 1000)


def message_driven_objects(is_full):
    """Stencil and LeanMD on two hosts: the grain is that of a run without latency between them."""
    rounds, cases = 5 if is_full else 3, []
    stencil, leanmd = RELEASE / "examples" / "stencil", RELEASE / "examples" / "leanmd"
    programs = {
        f"stencil, {chares} chares": ([stencil, "--chares", chares], "--cell-ns", 1e6 / CELLS, 60) for chares in CHARES
    }
    programs["LeanMD"] = ([leanmd], "--pair-us", 1e3 / PAIRS, 20)
    for name, (program, option, grain_per_ms, steps) in programs.items():

        def simulated(latency_ms, grain, program=program, option=option):
            # In the steady state, as in the real runs, which are long.
            return objects.ms_per_step(
                2, latency_ms, [*program, option, grain], (10, 40) if option == "--cell-ns" else (3, 9)
            )

        progress(f"{name}, simulated and on the testbed")
        found = {latency: [] for latency in (0, *LATENCIES_MS)}
        for _ in range(rounds):
            for latency, runs in found.items():
                runs.append(on_testbed(program, latency, steps))
        without = statistics.median(found[0])
        grain = 2 * without * grain_per_ms
        # Once more, because communication and the work of each entry method take time, too.
        grain += (without - simulated(0, grain)) * 2 * grain_per_ms
        for latency in LATENCIES_MS:
            measured = [ms / 1e3 for ms in found[latency]]
            cases.append(case(f"{name}, {latency} ms", "simulated", [simulated(latency, grain) / 1e3], measured))
    return cases


def pastry(is_full):
    """The Pastry message, whose measured times are those of the page on GRAS."""
    kept = common.load("gras")
    if kept is None:
        raise SystemExit("predictions need the figures of 'gras': run python experiments/run.py gras first")
    measured, cases = kept["figures"]["microseconds"], []
    for place, (bandwidth, latency) in kept["figures"]["links"].items():
        hosts = "".join(f'[[host]]\nname = "{name}"\nspeed = "1Gf"\n' for name in ("one", "two"))
        link = f'[[link]]\nname = "wire"\nbandwidth = "{bandwidth}"\nlatency = "{latency}"\nsharing = "splitduplex"\n'
        platform = WORK / f"predictions-{place}.toml"
        platform.write_text(hosts + link + '[[route]]\nfrom = "one"\nto = "two"\nlinks = ["wire:up"]\n')
        folder = ROOT / "target" / "pastry"
        os.environ["PASTRY_REPEATS"] = "10"
        command = [
            GRIDLOOM,
            "simulate",
            "-p",
            platform,
            "-d",
            folder / "deployment.toml",
            "--",
            folder / "with_gridloom",
        ]
        for rows, us in re.findall(r"round_trip (\d+) ([\d.]+)", output(command)):
            of = measured[f"gridloom {place} round_trip {rows}"]
            cases.append(case(f"{place}, {rows} rows", "simulated", [float(us) / 1e6], [of["median"] / 1e6]))
    return cases


PARTS = {
    "worlds": ("Matrix chain, image enhancement and Hydropad", worlds),
    "plans": ("Plans of groups", plans),
    "netsolve": ("Direct communication for NetSolve", netsolve),
    "omnistorage": ("OmniStorage", omnistorage),
    "objects": ("Message-driven objects", message_driven_objects),
    "gras": ("GRAS", pastry),
}


def run(is_full, parts=PARTS):
    """Figures of these parts: cases, and the load of the machine before and after, in which programs of this experiment count."""
    WORK.mkdir(parents=True, exist_ok=True)
    figures = {}
    for name in parts:
        progress(f"predicted and measured: {name}")
        before = os.getloadavg()[0]
        cases = PARTS[name][1](is_full)
        figures[name] = {"machine": common.machine(), "load": [before, os.getloadavg()[0]], "cases": cases}
    return figures


def error(of):
    return abs(statistics.median(of["predicted"]) / statistics.median(of["measured"]) - 1)


def percentile_90(values):
    """The smallest value that nine tenths of the values do not exceed."""
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]


def summary(cases):
    """Median and 90th percentile of the errors, and the state."""
    errors = [error(of) for of in cases]
    median, p90 = statistics.median(errors), percentile_90(errors)
    if median <= MEDIAN_MAX and p90 <= P90_MAX:
        return median, p90, "beyond"
    return median, p90, f"not reproduced: median error {median:.0%}, 90th percentile {p90:.0%}"


def items(figures):
    cases_of = {PARTS[name][0]: of["cases"] for name, of in figures.items()}
    groups = {"All experiments": [of for cases in cases_of.values() for of in cases], **cases_of}
    rows = [[name, len(cases), *(f"{error:.1%}" for error in summary(cases)[:2])] for name, cases in groups.items()]

    def draw(axes):
        ends = [math.inf, 0]
        for name, cases in cases_of.items():
            pairs = [[statistics.median(of[which]) for which in ("measured", "predicted")] for of in cases]
            axes.plot(*zip(*pairs), "o", markersize=3, label=name)
            ends = [min(ends[0], *map(min, pairs)), max(ends[1], *map(max, pairs))]
        axes.plot(ends, ends, color="grey", linewidth=0.8)
        axes.set(xlabel="measured, s", ylabel="predicted, s", xscale="log", yscale="log")

    absent = [title for name, (title, _) in PARTS.items() if name not in figures]
    note = f" Not run yet: {', '.join(absent)}." if absent else ""
    yield Item(
        "All experiments: predicted and measured",
        summary(groups["All experiments"])[2],
        f"The aims are a median error of at most {MEDIAN_MAX:.0%} and a 90th percentile of at most {P90_MAX:.0%}.{note}\n\n"
        + table(["experiment", "cases", "median error", "90th percentile"], rows),
        draw,
    )
    for name, of_part in figures.items():
        title, part = PARTS[name]
        median, p90, state = summary(of_part["cases"])
        rows = []
        for of in of_part["cases"]:
            predicted, measured = statistics.median(of["predicted"]), statistics.median(of["measured"])
            spread = f" ({min(of['measured']):.4g}..{max(of['measured']):.4g})" if len(of["measured"]) > 1 else ""
            ratio = predicted / measured
            rows.append([of["case"], of["how"], f"{predicted:.4g}", f"{measured:.4g}{spread}", f"{ratio:.3f}"])
        yield Item(
            f"{title}: {len(rows)} cases",
            state,
            f"{part.__doc__} Median error {median:.1%}, 90th percentile {p90:.1%}. Machine: {of_part['machine']}; load before and after: "
            f"{of_part['load'][0]:.1f}, {of_part['load'][1]:.1f}.\n\n"
            + table(["case", "predicted by", "predicted, s", "measured, s", "predicted / measured"], rows),
        )
