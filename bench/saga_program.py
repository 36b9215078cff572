"""Maps a recorded workflow on its platforms by schedulers of anrg-saga, and prints their plans as JSON; see saga.py.

    python -P bench/saga_program.py DATA WORKFLOW LIMIT_SECONDS SCHEDULER...

-P keeps this folder, which contains saga.py, from being searched for the package.
"""

import collections
import importlib.metadata
import itertools
import json
import logging
import math
import pathlib
import signal
import sys
import time

import saga
from saga import schedulers


def task_graph(workflow):
    """Tasks cost seconds on a server of speed 1, edges the bytes of all files from one task to another."""
    maker = {file: task["id"] for task in workflow["tasks"] for file in task["outputs"]}
    size_bytes = collections.Counter()
    for task in workflow["tasks"]:
        for file in set(task["inputs"]) & maker.keys():
            size_bytes[maker[file], task["id"]] += workflow["files"][file]
    tasks = [(task["id"], task["work_seconds"]) for task in workflow["tasks"]]
    return saga.TaskGraph.create(tasks, [(*pair, float(size)) for pair, size in size_bytes.items()])


def network(platform):
    """A link in bytes/s for each pair; pairs without their own link send everything through the client, store and forward."""
    client, direct = platform["client_bytes_per_s"], platform["direct_bytes_per_s"]
    count = len(platform["speed"])
    links = [
        (str(one), str(other), direct.get(f"{one}-{other}", 1 / (1 / client[one] + 1 / client[other])))
        for one, other in itertools.combinations(range(count), 2)
    ]
    links += [(str(one), str(one), math.inf) for one in range(count)]
    return saga.Network.create([(str(one), speed) for one, speed in enumerate(platform["speed"])], links)


def out_of_time(*_):
    raise TimeoutError("longer than the limit")


def scheduled(name, platform, graph, limit_s):
    """Seconds that it took, its own makespan and its plan; or an error's name."""
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    started = time.perf_counter()
    try:
        schedule = getattr(schedulers, f"{name}Scheduler")().schedule(platform, graph)
        took_s = time.perf_counter() - started
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    # Tasks without work and data precede several first tasks, and follow several last ones.
    placed = [task for _, tasks in schedule.items() for task in tasks if not task.name.startswith("__super_")]
    return {
        "map_seconds": took_s,
        "makespan_seconds": schedule.makespan,
        "assignment": {task.name: int(task.node) for task in placed},
        "start_seconds": {task.name: task.start for task in placed},
    }


def main():
    data, name, limit_s, *names = sys.argv[1:]
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, out_of_time)
    folder = pathlib.Path(data)
    graph = task_graph(json.loads((folder / f"{name}.json").read_text()))
    found = []
    for entry in json.loads((folder / "baseline.json").read_text())["workflows"]:
        for platform in entry["platforms"] if entry["workflow"] == name else []:
            links = network(platform["platform"])
            graph.graph, links.graph  # computed once and cached: not part of any schedule's time
            found.append({one: scheduled(one, links, graph, float(limit_s)) for one in names})
    print(json.dumps({"version": importlib.metadata.version("anrg-saga"), "platforms": found}))


if __name__ == "__main__":
    main()
