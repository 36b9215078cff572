"""Recorded workflows: those of WfCommons (WfFormat 1.5), and the format of `gridloom map`."""

import hashlib
import json
import pathlib
import re


def read(path, scale=1.0):
    """The workflow in the format of `gridloom map`, with scaled times and sizes: tasks after those whose files they read."""
    found = json.loads(pathlib.Path(path).read_text())
    workflow = _compact(found["workflow"]) if "workflow" in found else found
    files = {name: round(size * scale) for name, size in workflow["files"].items()}
    tasks = [
        {
            "id": task["id"],
            "name": task.get("name", task["id"]),
            "work_seconds": task["work_seconds"] * scale,
            "inputs": list(dict.fromkeys(task["inputs"])),
            "outputs": list(dict.fromkeys(task["outputs"])),
        }
        for task in workflow["tasks"]
    ]
    return {"tasks": _ordered(tasks), "files": files}


def function_of(task):
    """The name of a task's function. Other characters of an id than those of names become ``_``, and a digest keeps different ids different."""
    identifier = task["id"]
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", identifier)[:200]
    return name if name == identifier else f"{name}-{hashlib.sha256(identifier.encode()).hexdigest()[:16]}"


def final_files(workflow):
    """Files that a task makes and no task reads."""
    read_files = {name for task in workflow["tasks"] for name in task["inputs"]}
    return [name for task in workflow["tasks"] for name in task["outputs"] if name not in read_files]


def _compact(workflow):
    seconds = {task["id"]: task["runtimeInSeconds"] for task in workflow["execution"]["tasks"]}
    specification = workflow["specification"]
    tasks = [
        {
            "id": task["id"],
            "name": task["name"],
            "work_seconds": seconds[task["id"]],
            "inputs": task.get("inputFiles", []),
            "outputs": task.get("outputFiles", []),
        }
        for task in specification["tasks"]
    ]
    return {"tasks": tasks, "files": {file["id"]: file["sizeInBytes"] for file in specification["files"]}}


def _ordered(tasks):
    maker = {name: number for number, task in enumerate(tasks) for name in task["outputs"]}
    missing = {number: {maker[name] for name in task["inputs"] if name in maker} - {number} for number, task in enumerate(tasks)}
    ready, done = [number for number, before in missing.items() if not before], []
    for number in ready:
        done.append(tasks[number])
        for later, before in missing.items():
            if number in before:
                before.discard(number)
                if not before:
                    ready.append(later)
    if len(done) < len(tasks):
        raise SystemExit("the workflow has a circle: tasks that wait for one another's files")
    return done
