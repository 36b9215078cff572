"""Recorded workflows: those of WfCommons (WfFormat 1.2 to 1.6), and the format of `gridloom map`."""

import hashlib
import json
import pathlib
import re


def read(path, scale=1.0):
    """The workflow in the format of `gridloom map`, with scaled times and sizes: tasks after those whose files they read."""
    found = json.loads(pathlib.Path(path).read_text())
    workflow = _with_parents(*_compact(found["workflow"])) if "workflow" in found else found
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
    """Return the name of a task's function: its id with invalid characters replaced by ``_``, and then a digest that keeps names unique."""
    identifier = task["id"]
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", identifier)[:200]
    return name if name == identifier else f"{name}-{hashlib.sha256(identifier.encode()).hexdigest()[:16]}"


def final_files(workflow):
    """Files that a task makes and no task reads."""
    read_files = {name for task in workflow["tasks"] for name in task["inputs"]}
    return [name for task in workflow["tasks"] for name in task["outputs"] if name not in read_files]


def _compact(workflow):
    """Return the workflow in the format of `gridloom map`, and the parents of each task."""
    if "specification" not in workflow:
        return _compact_before_1_5(workflow)
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
    files = {file["id"]: file["sizeInBytes"] for file in specification.get("files", [])}
    return {"tasks": tasks, "files": files}, [task.get("parents", []) for task in specification["tasks"]]


def _compact_before_1_5(workflow):
    """Convert versions before 1.5, in which tasks contain times and files. The keys are `runtime` and `size` before 1.4, and `jobs` before 1.3."""
    recorded = workflow.get("tasks") or workflow["jobs"]
    files = {file["name"]: file.get("sizeInBytes", file.get("size", 0)) for task in recorded for file in task.get("files", [])}

    def names(task, link):
        return [file["name"] for file in task.get("files", []) if file["link"] == link]

    tasks = [
        {
            "id": task.get("id", task["name"]),
            "name": task["name"],
            "work_seconds": task.get("runtimeInSeconds", task.get("runtime", 0.0)),
            "inputs": names(task, "input"),
            "outputs": names(task, "output"),
        }
        for task in recorded
    ]
    # Some files name parents by their names.
    ids = {task["name"]: task["id"] for task in tasks} | {task["id"]: task["id"] for task in tasks}
    return {"tasks": tasks, "files": files}, [[ids.get(parent, parent) for parent in task.get("parents", [])] for task in recorded]


def _with_parents(workflow, parents):
    """Add an empty file from each parent of which a task reads no file, so that the task waits for the parent."""
    tasks = {task["id"]: task for task in workflow["tasks"]}
    for task, before in zip(workflow["tasks"], parents, strict=True):
        for parent in before:
            if parent not in tasks:
                raise SystemExit(f"task '{task['id']}' has the parent '{parent}', which the workflow does not have")
            if not set(tasks[parent]["outputs"]) & set(task["inputs"]):
                name = f"{parent} before {task['id']}"
                tasks[parent]["outputs"].append(name)
                task["inputs"].append(name)
                workflow["files"][name] = 0
    return workflow


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
