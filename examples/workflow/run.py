"""Runs a recorded workflow as a group, with stand-ins for its programs that take the recorded times and write files of the recorded sizes.

    WORKFLOW=examples/workflow/small.json SCALE=0.01 python examples/workflow/run.py [--plan PLAN]

PLAN is the output of `gridloom map --json` for the workflow, with the `speed` of the servers: the plan is kept then, and the times are
divided by the speeds. Server 0 of the plan is the first by name. Without PLAN, the grid makes the plan.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import gridloom as gl

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import recorded  # noqa: E402


def record(grid, workflow, seconds):
    """Record the calls of all tasks; return the files that no task reads."""
    made_here = {name for task in workflow["tasks"] for name in task["outputs"]}
    files = {name: bytes(size) for name, size in workflow["files"].items() if name not in made_here}
    for task in workflow["tasks"]:
        called = grid.function(f"workflow/{recorded.function_of(task)}")
        made = called(seconds[task["id"]], *(files[name] for name in task["inputs"]))
        made = made if isinstance(made, tuple) else (made,)
        files.update(zip(task["outputs"], made))
    return [files[name] for name in recorded.final_files(workflow)]


def planned(plan, workflow):
    """Tasks in the order in which the plan starts them, and a heuristic that maps them to the plan's servers."""
    starts = plan["start_seconds"]
    tasks = sorted(workflow["tasks"], key=lambda task: starts[task["id"]])
    servers = [plan["assignment"][task["id"]] for task in tasks]
    return {**workflow, "tasks": tasks}, lambda problem: (servers, list(range(len(servers))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--plan", type=pathlib.Path)
    parser.add_argument("--servers", type=int, default=2, help="of a grid on this machine")
    parser.add_argument("--rounds", type=int, default=1, help="number of runs: a grid learns the times of stand-ins")
    options = parser.parse_args()
    workflow = recorded.read(os.environ["WORKFLOW"], float(os.environ.get("SCALE", "1")))
    seconds, heuristic, predicted = {task["id"]: task["work_seconds"] for task in workflow["tasks"]}, "auto", None
    if options.plan is not None:
        plan = json.loads(options.plan.read_text())
        workflow, heuristic = planned(plan, workflow)
        seconds = {name: one / plan["speed"][plan["assignment"][name]] for name, one in seconds.items()}
        predicted = plan["makespan_seconds"]
    with gl.local(servers=options.servers, functions=[HERE / "stand_ins.py"]) as grid:
        now = grid.now if grid.simulated else time.monotonic
        with grid.group(heuristic) as group:
            # Links are measured before the first plan of a session.
            record(grid, workflow, seconds)
            group.plan()
            group.discard()
        for _ in range(options.rounds):
            begun = now()
            with grid.group(heuristic) as group:
                last = record(grid, workflow, seconds)
            for one in last:
                one.prefetch()
            sizes = [len(one.get()) for one in last]
            took = now() - begun
            expected = predicted or group.report().predicted_seconds
            print(f"makespan: predicted {expected:.3f} s, measured {took:.3f} s", file=sys.stderr)
    print(f"{len(workflow['tasks'])} tasks, {len(last)} files of {sum(sizes)} bytes at the end")


if __name__ == "__main__":
    main()
