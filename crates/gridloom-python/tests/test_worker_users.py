"""Workers of the users of one grid: code left behind by one user's calls never affects another user's calls."""

import os
import subprocess
import sys

import gridloom as gl
import pytest
from test_lost_programs import PROGRAM, grids

__all__ = ["grids"]

# Returns the worker and what an earlier call has left there, and leaves something itself, for each line that it reads.
CALLS = """
import sys
import gridloom as gl

def leaves(name):
    import builtins, os
    left = getattr(builtins, "left", "nothing")
    builtins.left = f"code of {name}"
    return os.getpid(), left

with gl.connect(sys.argv[1]) as grid:
    for line in sys.stdin:
        print(*grid.run(leaves, sys.argv[2]).get(), sep=":", flush=True)
"""


def admit(name, folder):
    """Make keys for a user who may run code, and return their folder."""

    def run(*arguments, keys=None):
        environment = {**os.environ, **({"GRIDLOOM_KEYS": str(keys)} if keys else {})}
        return subprocess.run([PROGRAM, "keys", *arguments], env=environment, check=True, capture_output=True, text=True).stdout

    own, file = folder / name, folder / f"{name}.pem"
    grid = next(entry.name for entry in os.scandir(os.environ["GRIDLOOM_KEYS"]) if entry.is_dir())
    file.write_text(run("request", grid, "--name", name, "--run-code", keys=own))
    file.write_text(run("approve", str(file)))
    run("install", str(file), keys=own)
    return own


class Program:
    """A program of a user, which makes a call for each line."""

    def __init__(self, agent, keys):
        run = [sys.executable, "-c", CALLS, agent, keys.name]
        self.process = subprocess.Popen(
            run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "GRIDLOOM_KEYS": str(keys)}
        )

    def call(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip().split(":")

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def programs(grids, tmp_path):
    """Programs of two users on a server with one slot."""
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve("--agent", agent)
    programs = [Program(agent, admit(name, tmp_path)) for name in ("anna", "bert")]
    yield programs
    for program in programs:
        program.end()


def test_code_that_a_user_leaves_behind_is_not_in_the_worker_of_another(programs):
    anna, bert = programs
    first, left = anna.call()
    assert left == "nothing" and anna.call() == [first, "code of anna"]
    other, left = bert.call()
    assert other != first and left == "nothing" and bert.call() == [other, "code of bert"]
    again, left = anna.call()
    assert again not in {first, other} and left == "nothing"


def test_errors_of_limits_name_value_limit_and_remedy(grids, tmp_path):
    # Two grids, because on a busy machine the start of processes can take longer than the limit of time.
    brief, small = (grids.start("agent", "--listen", "127.0.0.1:0") for _ in range(2))
    grids.serve("--agent", brief, "--worker-time", "500ms")
    grids.serve("--agent", small, "--worker-processes", "3", "--worker-files", "100")

    def waits():
        import time

        time.sleep(600)

    def starts(count):
        import subprocess

        for process in [subprocess.Popen(["sleep", "600"]) for _ in range(count)]:
            process.wait()

    def opens():
        return [open(os.devnull) for _ in range(200)]

    with gl.connect(brief) as grid:
        with pytest.raises(gl.LimitExceeded, match=r"ran longer than the limit of 0.5 s; .* --worker-time") as error:
            grid.run(waits).get()
        assert (error.value.resource, error.value.limit, error.value.used) == ("time", 0.5, None)
    with gl.connect(small) as grid:
        with pytest.raises(gl.LimitExceeded, match=r"the limit is 3; start fewer processes at a time, .* --worker-processes") as error:
            grid.run(starts, 8).get()
        assert error.value.resource == "processes" and error.value.limit == 3 and 4 <= error.value.used <= 9
        with pytest.raises(OSError, match="Too many open files") as error:
            grid.run(opens).get()
        assert "The limit of open files is 100: close files, or start the server with a larger --worker-files." in str(error.value.__cause__)
        assert grid.run(abs, -1).get() == 1
