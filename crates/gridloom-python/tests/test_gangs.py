"""Programs of chares in Python that servers offer by name, as gangs on their slots."""

import subprocess
import sys
from pathlib import Path

import pytest
from test_lost_programs import PROGRAM, grids
from test_up_code import HOSTS, STUB, run

__all__ = ["grids"]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PLATFORM = EXAMPLES / "two-sites.toml"
STENCIL = EXAMPLES / "stencil" / "stencil.py"

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


def test_a_python_program_continues_from_its_checkpoint_on_other_elements(grids, tmp_path):
    agent = offer(grids, STENCIL, "--checkpoints", tmp_path / "kept")
    words = ("--", "squares", "--size", "64", "--chares", "16", "--steps", "20", "--checkpoint-every", "5", "--check")
    done = gang(agent, 4, "--checkpoint", "heat", *words)
    assert done.returncode == 0 and "bitwise equal" in done.stdout, done.stdout + done.stderr
    done = gang(agent, 3, "--restart", "heat", *words)
    assert done.returncode == 0 and "bitwise equal" in done.stdout, done.stdout + done.stderr
    assert "from the last checkpoint of 'heat'" in done.stderr


def in_world(world, program, *words):
    """Run the same command in a simulation or on a testbed, where servers of the platform offer the program."""
    inner = [PROGRAM, "chares", "run", "-n", "3", *words, "--agent", "--", "squares", "a b"]
    command = [PROGRAM, *world, "-p", PLATFORM, "--program", f"squares={program}", "--python", sys.executable, "--", *inner]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)


def test_a_gang_is_simulated_on_the_servers_of_the_platform(squares):
    done = in_world(["simulate"], squares)
    assert done.returncode == 0 and "140 ['a b']\n" in done.stdout and "trace hash" in done.stdout, done.stdout + done.stderr
    refused = in_world(["simulate"], squares, "--bind")
    assert refused.returncode == 1 and "--bind: in simulation" in refused.stderr
    none = subprocess.run(
        [PROGRAM, "simulate", "-p", PLATFORM, "--", PROGRAM, "chares", "run", "--agent", "--", "squares"], capture_output=True, text=True
    )
    assert none.returncode == 1 and "'gridloom simulate --program squares=PATH' does" in none.stderr


def test_a_gang_runs_on_the_servers_of_a_testbed(squares):
    probe = [PROGRAM, "testbed", "run", "-p", PLATFORM, "--no-grid", "--overload", "--quiet", "--", "true"]
    probe = subprocess.run(probe, capture_output=True, text=True, timeout=60)
    if "does not let this user have" in probe.stderr:
        pytest.skip(probe.stderr)
    done = in_world(["testbed", "run", "--quiet", "--overload", "--speeds", "none"], squares)
    assert done.returncode == 0 and "element@0| 140 ['a b']\n" in done.stdout, done.stdout + done.stderr
    assert "1 on 'cluster-1'" in done.stderr


def test_a_gang_runs_on_the_servers_that_up_starts(squares, tmp_path):
    """A stub stands for ssh. The program's folder goes to the host."""
    (tmp_path / "ssh").write_text(STUB.format(folder=tmp_path / ".lab"))
    (tmp_path / "ssh").chmod(0o755)
    hosts = HOSTS.replace("offered.py --run-code", "--program squares=squares.py").replace("code =", 'slots = "2", code =')
    (tmp_path / "grid.toml").write_text(hosts.format(program=PROGRAM, python=sys.executable))
    try:
        lines = run(tmp_path, "up", str(tmp_path / "grid.toml"), "--ssh", str(tmp_path / "ssh"))
        squares.unlink()
        done = gang(lines[-1]["agent"], 2, "--", "squares")
        assert done.returncode == 0 and "element@0| 140 []\n" in done.stdout, done.stdout + done.stderr
    finally:
        run(tmp_path, "down")
