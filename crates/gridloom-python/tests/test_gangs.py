"""Programs of chares in Python that servers offer by name, as gangs on their slots."""

import subprocess
import sys

import pytest
from test_lost_programs import PROGRAM, grids

__all__ = ["grids"]

SQUARES = """
import sys
import beside
from gridloom import chares

class Square(chares.Chare):
    def tell(self):
        print("at", self.index[0], flush=True)
        self.contribute(beside.square(self.index[0]), "sum", chares.exit)

if "fail" in sys.argv:
    sys.exit(3)
ended = chares.run(lambda job: job.array(Square, 8).tell())
if ended.is_first:
    print(ended.value, sys.argv[1:])
"""


@pytest.fixture
def squares(tmp_path):
    """A program, and a module beside it."""
    (tmp_path / "beside.py").write_text("def square(x):\n    return x * x\n")
    (tmp_path / "squares.py").write_text(SQUARES)
    return tmp_path / "squares.py"


def gang(agent, number, *words):
    command = [PROGRAM, "chares", "run", "-n", str(number), "--agent", agent, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def offer(grids, program, *options, slots=2, servers=2):
    """Start an agent, and servers that offer that program as 'squares'; give the agent's address."""
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    fixed = ("--agent", agent, "--python", sys.executable, "--models", "none", "--slots", str(slots))
    for number in range(servers):
        grids.start("serve", "--program", f"squares={program}", "--name", f"s{number}", *fixed, *options)
    return agent


def test_a_python_file_is_run_by_the_servers_python(grids, squares):
    agent = offer(grids, squares)
    done = gang(agent, 4, "--", "squares", "a b", "-c")
    assert done.returncode == 0 and "element@0| 140 ['a b', '-c']\n" in done.stdout, done.stdout + done.stderr
    assert sorted(line.split("| ")[1] for line in done.stdout.splitlines() if "| at" in line) == [f"at {i}" for i in range(8)]
    assert {line.split("|")[0] for line in done.stdout.splitlines()} == {f"element@{i}" for i in range(4)}
    failed = gang(agent, 4, "--", "squares", "fail")
    assert failed.returncode == 3 and "ended with exit status: 3" in failed.stderr
