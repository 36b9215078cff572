"""Recorded workflows whose tasks take half to twice as long as predicted: with tasks that may move, and with the plan kept.

Each workflow runs twice in simulation, on six servers at two sites: once as a group, whose tasks may move to idle servers and be mapped
again; once by the plan that the same heuristic makes in advance, which is kept. Files of the workflow are data of the group.

    python bench/recorded_moves.py --data DIR [--heuristic heft] [--tasks 1000]

DIR holds recorded workflows: {tasks: [{id, work_seconds, inputs, outputs}], files: {name: bytes}}.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import gridloom as gl

# Maximum number of parameters of a function.
PARAMETERS_MAX = 128

PLATFORM = """
[[host]]
name = "laptop"
speed = "1Gf"
properties = { role = "client,agent" }

[[star]]
name = "desk"
hosts = ["laptop"]
bandwidth = "100MBps"
latency = "100us"

[[cluster]]
name = "near"
hosts = "near-[0-3]"
speed = "1Gf"
bandwidth = "100MBps"
latency = "100us"
properties = { role = "server", memory = "1TiB" }

[[cluster]]
name = "far"
hosts = "far-[0-1]"
speed = "2Gf"
bandwidth = "100MBps"
latency = "100us"
properties = { role = "server", memory = "1TiB" }

[[link]]
name = "wide"
bandwidth = "20MBps"
latency = "10ms"

[[connect]]
from = "near"
to = "far"
links = ["wide"]

[[link]]
name = "local"
bandwidth = "100MBps"
latency = "100us"

[[connect]]
from = "desk"
to = "near"
links = ["local"]

[[connect]]
from = "desk"
to = "far"
links = ["wide"]
"""

PROGRAM = '''
import json, sys
import numpy as np
import gridloom as gl

workflow, heuristic, is_kept = json.loads(open(sys.argv[1]).read()), sys.argv[2], sys.argv[3] == "kept"

def record(group, functions):
    files = {}
    for task in workflow["tasks"]:
        args = [files[name] if name in files else np.broadcast_to(0.0, (size,)) for name, size in task["inputs"]]
        made = functions[task["id"]](*args)
        made = made if isinstance(made, tuple) else (made,)
        files.update(zip((name for name, _ in task["outputs"]), made))

with gl.connect() as grid:
    functions = {task["id"]: grid.function("w/" + task["id"]) for task in workflow["tasks"]}
    # Both are planned in advance: the session's links have been measured by then.
    with grid.group(heuristic) as group:
        record(group, functions)
        plan = group.plan()
        group.discard()
    begin = grid.now()
    with grid.group(plan if is_kept else heuristic) as group:
        record(group, functions)
    group.wait()
    print(json.dumps({"seconds": grid.now() - begin}))
'''


def elements(size_bytes):
    return max(1, -(-size_bytes // 8))


def tasks_of(workflow):
    """Tasks sorted after those whose files they read, with files as numbers of float64."""
    maker = {name: task["id"] for task in workflow["tasks"] for name in task["outputs"]}
    by_id = {task["id"]: task for task in workflow["tasks"]}
    done, order = set(), []

    def visit(task):
        stack = [(task, iter(sorted(set(task["inputs"]) & maker.keys())))]
        while stack:
            task, inputs = stack[-1]
            for name in inputs:
                before = by_id[maker[name]]
                if before["id"] not in done and before is not task:
                    stack.append((before, iter(sorted(set(before["inputs"]) & maker.keys()))))
                    break
            else:
                stack.pop()
                if task["id"] not in done:
                    done.add(task["id"])
                    order.append(task)

    for task in workflow["tasks"]:
        visit(task)
    def sized(names):
        return [[name, elements(workflow["files"][name])] for name in dict.fromkeys(names)]

    return [
        {"id": t["id"], "work": max(t["work_seconds"], 1e-3), "inputs": sized(t["inputs"]), "outputs": sized(t["outputs"]) or [[t["id"], 1]]}
        for t in order
    ]


def declared(tasks):
    """The interface: a separate function for each task, so that no task's times are learned from another's."""
    lines = ["Module w;"]
    for task in tasks:
        inputs = [f"IN double a{i}[{size}]" for i, (_, size) in enumerate(task["inputs"])]
        outputs = [f"OUT double b{i}[{size}]" for i, (_, size) in enumerate(task["outputs"])]
        names = [f"a{i}" for i in range(len(inputs))] + [f"b{i}" for i in range(len(outputs))]
        head = f"Define {task['id']}({', '.join(inputs + outputs)}) CalcOrder {task['work'] * 1e9:.0f}"
        lines.append(f'{head} Calls "C" {task["id"]}({", ".join(names)});')
    return "\n".join(lines)


def simulated(folder, program, heuristic, how):
    command = [
        *(program, "simulate", "--platform", folder / "platform.toml", "--functions", folder / "w.idl"),
        *("--efficiencies", folder / "efficiencies.json", "--"),
        *(sys.executable, folder / "program.py", folder / "workflow.json", heuristic, how),
    ]
    run = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"seconds"')]
    if run.returncode or not lines:
        raise SystemExit(f"{how}: {run.stderr.strip() or run.stdout.strip()}")
    return json.loads(lines[0])["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--heuristic", default="heft")
    parser.add_argument("--tasks", type=int, default=1000, help="leave out workflows of more tasks")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = shutil.which("gridloom") or str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom")
    ratios = []
    print(f"{'workflow':36}{'tasks':>6}{'kept, s':>12}{'moving, s':>12}{'ratio':>8}")
    for path in sorted(options.data.glob("*.json")):
        workflow = json.loads(path.read_text())
        if "tasks" not in workflow or len(workflow["tasks"]) > options.tasks:
            continue
        if any(len(set(task["inputs"])) + len(task["outputs"]) > PARAMETERS_MAX for task in workflow["tasks"]):
            continue
        tasks, draw = tasks_of(workflow), random.Random(options.seed)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "platform.toml").write_text(PLATFORM)
            (folder / "program.py").write_text(PROGRAM)
            (folder / "w.idl").write_text(declared(tasks))
            (folder / "workflow.json").write_text(json.dumps({"tasks": tasks}))
            efficiencies = {f"w/{task['id']}": 2 ** draw.uniform(-1, 1) for task in tasks}
            (folder / "efficiencies.json").write_text(json.dumps(efficiencies))
            kept, moving = (simulated(folder, program, options.heuristic, how) for how in ("kept", "moving"))
        ratios.append(moving / kept)
        print(f"{path.stem:36}{len(tasks):6}{kept:12.1f}{moving:12.1f}{ratios[-1]:8.3f}", flush=True)
    print(f"{'moving / kept':36}{'':18} geometric mean {statistics.geometric_mean(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    sys.exit(main())
