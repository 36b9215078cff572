"""Paths, commands and parts of pages that all experiments use."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RELEASE = ROOT / "target" / "release"
GRIDLOOM = RELEASE / "gridloom"
#: Built programs, platforms and raw figures of the experiments.
WORK = ROOT / "target" / "experiments"
PAGES = ROOT / "docs" / "experiments"


@dataclasses.dataclass
class Item:
    """A table or figure of a paper, compared with Gridloom's."""

    what: str
    #: "same order", "beyond", or "not reproduced: why".
    state: str
    #: Markdown: a description of the runs, and the table.
    text: str
    #: Draws on Matplotlib axes, if there is a plot.
    plot: object = None


def output(command, folder=None):
    """Runs a command and returns what it prints. An error ends the experiment."""
    command = [str(word) for word in command]
    environment = {**os.environ, "PATH": os.pathsep.join([str(ROOT / ".venv" / "bin"), os.environ["PATH"]])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def machine():
    """The machine that runs, as `bench/record.py` describes it."""
    sys.path.append(str(ROOT / "bench"))
    import record

    return record.machine()


def progress(text):
    print(text, file=sys.stderr, flush=True)


def table(head, rows):
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def saved(name, figures):
    written(PAGES / f"{name}.json", json.dumps(figures, indent=1) + "\n")


def load(name):
    path = PAGES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
