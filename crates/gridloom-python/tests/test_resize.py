"""Programs of chares that go on with another number of elements while they run."""

import os
import pathlib
import signal
import subprocess
import sys

import gridloom as gl
import pytest
from gridloom import chares

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
STENCIL = EXAMPLES / "stencil" / "stencil.py"
SAME = "bitwise equal to the serial program"


def command(*words):
    words = [str(word) for word in (PROGRAM, *words)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def said(*words):
    run = command(*words)
    out, _ = run.communicate(timeout=120)
    return run.returncode, out


def stencil(*options):
    return [sys.executable, STENCIL, "--size", 96, "--chares", 16, "--checkpoint-every", 10, "--check", *options]


def test_the_stencil_grows_and_shrinks():
    program = stencil("--steps", 50, "--resize", "10:4", "--resize", "30:1", "--resize", "40:3")
    status, out = said("chares", "run", "-n", 2, "--", *program)
    assert status == 0 and SAME in out, out
    assert out.count("the program continues with ") == 3, out


def children(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(one) for task in tasks for one in task.read_text().split()]


# The first element, another one, and one that was added.
@pytest.mark.parametrize("number, kept", [(0, "folder"), (1, "memory"), (3, "memory")])
def test_the_stencil_grows_and_shrinks_while_an_element_is_killed(tmp_path, number, kept):
    where = "memory" if kept == "memory" else tmp_path / "kept"
    program = stencil("--steps", 400, "--resize", "10:4", "--resize", "390:2")
    run = command("chares", "run", "-n", 2, "--checkpoint", where, "--restarts", 2, "--", *program)
    out = ""
    for line in run.stdout:
        out += line
        if "continues with 4 elements" in line:
            os.kill(children(run.pid)[number], signal.SIGKILL)
            break
    rest, _ = run.communicate(timeout=120)
    out += rest
    assert run.returncode == 0 and SAME in out, out
    assert "killed" in out or "signal" in out, out
    assert "continues with 2 elements instead of 4" in out, out


LEAVES = """
import sys, threading
from gridloom import chares

NUMBERS = {1: 2, 3: 3} if "stay" in sys.argv else {1: 2, 3: 3, 5: 2}

class One(chares.Chare):
    def __init__(self):
        self.steps = 0

    def go(self):
        self.steps += 1
        if self.steps in NUMBERS:
            chares.resize(NUMBERS[self.steps])
        if self.steps == 7:
            chares.exit(self.steps)
        else:
            chares.checkpoint(self.this.go)

def program(job):
    job.array(One, 6)[0].go()

try:
    chares.run(program)
    print("returned", flush=True)
except SystemExit:
    if "stay" in sys.argv:
        threading.Thread(target=threading.Event().wait).start()
    raise
finally:
    print("finally", flush=True)
"""


@pytest.mark.parametrize("stays", [False, True])
def test_what_an_element_does_that_leaves(tmp_path, stays):
    file = tmp_path / "leaves.py"
    file.write_text(LEAVES)
    status, out = said("chares", "run", "-n", 3, "--", sys.executable, file, *["stay"] * stays)
    # The second time, element 2 leaves, or stays until the end.
    assert status == 0, out
    assert out.count("element@2| finally") == 2, out
    assert out.count("element@2| returned") == (1 if stays else 0), out
    assert out.count("| returned") == (3 if stays else 2), out
    assert ("element@2 has left and has not ended" in out) == stays, out


def test_in_simulation_too(tmp_path):
    platform, deployment = EXAMPLES / "two-sites.toml", tmp_path / "elements.toml"
    status, out = said("chares", "deployment", "-p", platform, "-n", 4)
    assert status == 0, out
    deployment.write_text(out)
    program = stencil("--steps", 50, "--resize", "10:1", "--resize", "20:4", "--resize", "40:2")
    status, out = said("simulate", "-p", platform, "-d", deployment, "--", *program)
    assert status == 0 and SAME in out, out
    status, out = said("simulate", "-p", platform, "-d", deployment, "--", *stencil("--steps", 20, "--resize", "10:5"))
    assert status != 0 and "cannot continue with 5 elements: 4 or fewer are possible" in out, out


def test_an_invalid_number_is_an_error():
    class One(chares.Chare):
        def ask(self, number):
            chares.resize(number)
            chares.checkpoint(chares.exit)

    def program(number):
        return lambda job: job.array(One, 1).ask(number)

    assert chares.run(program(1)).value is None
    with pytest.raises(gl.ProcessError, match="0 elements: at least one element is needed"):
        chares.run(program(0))
    with pytest.raises(gl.ProcessError, match="2 elements: this run has a fixed number of elements"):
        chares.run(program(2))
    with pytest.raises(gl.UsageError, match="resize\\(-1\\): a number of processing elements"):
        chares.run(program(-1))
