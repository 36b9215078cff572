"""`gridloom map` compared with the schedulers of anrg-saga: recorded workflows on given servers, without contention (m0).

    python3.12 -m venv target/saga-venv && target/saga-venv/bin/pip install anrg-saga
    python bench/saga.py --data DIR [--tasks 350] [--rounds 7] [--limit 10] [--json FILE]

DIR is a folder in the format of `gridloom map --baseline`: baseline.json with the platforms, and the workflows. Each
workflow of at most `--tasks` tasks is mapped on each of its platforms. All plans are evaluated alike: a plan of anrg-saga,
its servers and starts, is read by `gridloom map --plan`, which rejects invalid plans, and the makespan must be the
scheduler's own within a millionth. Plans that are rejected, fail or take longer than the limit are named, and not counted.

Mapping times, in seconds, are of the mapping alone, without start, import or reading: the median of the rounds for
Gridloom, one run for anrg-saga. Its schedulers are plain Python. They iterate over sets of names; PYTHONHASHSEED is 0,
so that plans are reproducible.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

import worlds

HERE = pathlib.Path(__file__).resolve().parent
OUT = worlds.ROOT / "target" / "saga"
PEER = worlds.ROOT / "target" / "saga-venv" / "bin" / "python"
PROGRAM = HERE / "saga_program.py"
HEURISTICS = ["auto", "heft"]
# Heuristics of SAGA by class name. Among the others in 2.1.0, ETF, FCP, FLB, FastestNode, GDL, MCT, MET, MSBC, MST, OLB and WBA ended
# later than HEFT on each platform of srasearch-10a, montage-dss-05d and cycles-1l; HBMCT leaves out tasks; Duplex and
# Hybrid are the best of others; brute force and SMT are for a few tasks.
SCHEDULERS = ["Heft", "Cpop", "PEFT", "MinMin", "MaxMin", "Sufferage", "BIL", "DPS"]
# Maximum relative difference between the peer's own makespan and that of `gridloom map --plan`.
TOLERANCE = 1e-6


def mapped(options, workflow, platform, *how):
    command = [options.gridloom, "map", "--workflow", workflow, "--platform", platform, "--model", "m0", "--json", *how]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return (json.loads(done.stdout), None) if done.returncode == 0 else (None, done.stderr.strip())


def ours(options, workflow, platform, heuristic):
    """Gridloom's makespan and the median of its mapping times."""
    runs = []
    for _ in range(options.rounds):
        found, why = mapped(options, workflow, platform, "--heuristic", heuristic)
        if found is None:
            raise SystemExit(f"{workflow.name}, {heuristic}: {why}")
        runs.append(found)
    seconds = statistics.median(run["map_seconds"] for run in runs)
    return {"makespan_seconds": runs[0]["makespan_seconds"], "map_seconds": seconds}


def judged(options, workflow, platform, plan):
    """The peer's makespan according to `gridloom map --plan`, and its mapping time; or why there is none."""
    if "error" in plan:
        return plan
    file = OUT / "plan.json"
    file.write_text(json.dumps(plan))
    found, why = mapped(options, workflow, platform, "--plan", file)
    if found is None:
        return {"error": f"refused: {why}"}
    makespan, own = found["makespan_seconds"], plan["makespan_seconds"]
    if not math.isclose(makespan, own, rel_tol=TOLERANCE):
        raise SystemExit(f"{workflow.name}: the makespan is {makespan} s, and {own} s by anrg-saga: the models differ")
    return {"makespan_seconds": makespan, "map_seconds": plan["map_seconds"]}


def peer(options, name):
    """The version of anrg-saga, and for each platform the plans of all schedulers."""
    command = [options.python, "-P", PROGRAM, options.data, name, options.limit, *SCHEDULERS]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def check(options):
    """Reports what is missing and how to get it."""
    if not options.gridloom.exists():
        raise SystemExit(f"{options.gridloom} is missing: run `make build`, or name another with --gridloom")
    if not (options.data / "baseline.json").exists():
        what = "baseline.json and the workflows that it names, as docs/commands/map.md describes them"
        raise SystemExit(f"{options.data / 'baseline.json'} is missing: --data takes a folder with {what}")
    for entry in json.loads((options.data / "baseline.json").read_text())["workflows"]:
        if not (options.data / f"{entry['workflow']}.json").exists():
            raise SystemExit(f"{options.data} lacks {entry['workflow']}.json, which its baseline.json names")
    has = [options.python, "-P", "-c", "import saga.schedulers"]
    if not options.python.exists() or subprocess.run(has, capture_output=True).returncode:
        make = f"python3.12 -m venv {PEER.parent.parent} && {PEER.parent / 'pip'} install anrg-saga"
        raise SystemExit(
            f"{options.python} has no anrg-saga (PyPI): run `{make}`, or name another Python with --python"
        )


def cases(options):
    """Each workflow on each of its platforms, with the results of all schedulers."""
    for entry in json.loads((options.data / "baseline.json").read_text())["workflows"]:
        name = entry["workflow"]
        workflow = options.data / f"{name}.json"
        tasks = len(json.loads(workflow.read_text())["tasks"])
        if tasks > options.tasks:
            continue
        theirs = peer(options, name)
        for number, (text, plans) in enumerate(zip(entry["platforms"], theirs["platforms"], strict=True)):
            platform = OUT / "platform.json"
            platform.write_text(json.dumps(text))
            found = {one: ours(options, workflow, platform, one) for one in HEURISTICS}
            found |= {one: judged(options, workflow, platform, plans[one]) for one in SCHEDULERS}
            yield {"workflow": name, "platform": number, "tasks": tasks, "saga": theirs["version"], "found": found}


def over_auto(case, name):
    """Makespan divided by auto's; None without a plan."""
    makespan = case["found"][name].get("makespan_seconds")
    return makespan and makespan / case["found"]["auto"]["makespan_seconds"]


def cell(ratio, seconds):
    return f"{ratio:>8.3f}{seconds:>8.2g}" if ratio else f"{'-':>8}{'-':>8}"


def row(case):
    for name, one in case["found"].items():
        if "error" in one:
            print(f"{case['workflow']}, platform {case['platform']}, {name}: {one['error']}", file=sys.stderr)
    cells = "".join(cell(over_auto(case, name), one.get("map_seconds")) for name, one in case["found"].items())
    return f"{case['workflow']:30}{case['platform']:>3}{case['tasks']:>6}{cells}"


def mean(values):
    return statistics.geometric_mean(values) if values else None


def means(everything):
    """Geometric means of each over the cases for which it has a plan."""
    found = {}
    for name in [*HEURISTICS, *SCHEDULERS]:
        planned = [case for case in everything if over_auto(case, name)]
        found[name] = {
            "cases": len(planned),
            "makespan_over_auto": mean([over_auto(case, name) for case in planned]),
            "map_seconds": mean([case["found"][name]["map_seconds"] for case in planned]),
        }
    return found


def best_of_peer(everything):
    """For cases with plans of the peer: the smallest makespan relative to auto's, and the seconds that all plans took."""
    planned = [
        [(over_auto(case, name), case["found"][name]) for name in SCHEDULERS if over_auto(case, name)]
        for case in everything
    ]
    ratios = [min(ratio for ratio, _ in plans) for plans in planned if plans]
    seconds = [sum(one["map_seconds"] for _, one in plans) for plans in planned if plans]
    if not ratios:
        raise SystemExit("no scheduler of anrg-saga made a plan: raise --limit")
    least, greatest = min(ratios), max(ratios)
    return {"makespan_over_auto": mean(ratios), "least": least, "greatest": greatest, "map_seconds": mean(seconds)}


def same_heft(everything):
    """Number of cases in which the two HEFT implementations end at the same time."""
    both = [[case["found"][name].get("makespan_seconds", math.inf) for name in ("heft", "Heft")] for case in everything]
    return sum(math.isclose(one, other, rel_tol=TOLERANCE) for one, other in both)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of baseline.json and the workflows")
    parser.add_argument("--tasks", type=int, default=350, help="leave out workflows of more tasks")
    parser.add_argument("--rounds", type=int, default=7, help="how often Gridloom maps each")
    parser.add_argument("--limit", type=float, default=10, help="seconds for one schedule of anrg-saga")
    parser.add_argument("--python", type=pathlib.Path, default=PEER, help="a Python that has anrg-saga")
    parser.add_argument("--gridloom", type=pathlib.Path, default=worlds.GRIDLOOM, help="the program to compare")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args()
    check(options)
    OUT.mkdir(parents=True, exist_ok=True)
    names = "".join(f"{name:>16}" for name in [*HEURISTICS, *(f"saga {name}" for name in SCHEDULERS)])
    print(f"{'makespan over auto, mapping s':30}{'k':>3}{'tasks':>6}{names}")
    everything = []
    for case in cases(options):
        everything.append(case)
        print(row(case), flush=True)
    if not everything:
        raise SystemExit(f"no workflow has at most {options.tasks} tasks: raise --tasks")
    found, best = means(everything), best_of_peer(everything)
    columns = "".join(cell(one["makespan_over_auto"], one["map_seconds"]) for one in found.values())
    print(f"{'geometric mean':39}{columns}")
    print(f"{f'plans in {len(everything)} cases':39}" + "".join(f"{one['cases']:>16}" for one in found.values()))
    print(
        f"the best of anrg-saga {everything[0]['saga']} for each case: {best['makespan_over_auto']:.4f} of auto's "
        f"makespan in the mean, from {best['least']:.4f} to {best['greatest']:.4f}, "
        f"all mapped in {best['map_seconds']:.2g} s; the two HEFT end alike in {same_heft(everything)} cases"
    )
    if options.json:
        options.json.write_text(json.dumps({"cases": everything, "means": found, "best_of_saga": best}, indent=1))


if __name__ == "__main__":
    main()
