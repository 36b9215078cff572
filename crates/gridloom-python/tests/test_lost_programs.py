"""Programs that are killed leave nothing behind, and modules are found where they are."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gridloom as gl
import pytest
from bad_functions import is_alive, is_free, wait_until

PROGRAM = Path(gl.__file__).parent / "bin" / "gridloom"


class Grids:
    """An agent and servers as processes, which end with the test."""

    def __init__(self):
        self.processes = []

    def start(self, *arguments, **environment):
        """Give what it says when it is ready."""
        process = subprocess.Popen(
            [PROGRAM, *arguments, "--json", "--quiet", "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.processes.append(process)
        return json.loads(process.stdout.readline())["address"]

    def serve(self, *arguments, **environment):
        fixed = ("--run-code", "--python", sys.executable, "--slots", "1", "--models", "none")
        return self.start("serve", *fixed, *arguments, **environment)

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(30)
            process.stdout.close()


@pytest.fixture
def grids(program):
    grids = Grids()
    yield grids
    grids.end()


LOST = """
import sys, time
import gridloom as gl, numpy as np
from pathlib import Path

grid = gl.connect(sys.argv[1])
with grid.group() as group:
    held = grid.function("bad/zeros")(6_000_000)
    read = grid.function("bad/doubles")(held)
group.launch()
calls = {"group": grid.function("bad/hang"), "submit": grid.function("bad/hang")}
print(len(read.get()), flush=True)
del read
if sys.argv[2] == "group":
    with grid.group() as hangs:
        hanging = [calls["group"]() for _ in range(3)]
    hangs.launch()
elif sys.argv[2] == "submit":
    hanging = [calls["submit"].submit() for _ in range(3)]

def hold(gate):
    Path(gate).touch()
    while True:
        time.sleep(1)

if sys.argv[2] == "run":
    hanging = [grid.run(hold, sys.argv[3]) for _ in range(3)]
sys.stdin.read()
"""


@pytest.mark.parametrize("what", ["group", "submit", "run"])
def test_a_program_that_is_killed_leaves_nothing(grids, bad_module, tmp_path, what):
    """As a kernel that restarts: slots and stores are free for the next program."""
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve(bad_module, "--agent", agent, "--memory", str(100 << 20))
    run = [sys.executable, "-c", LOST, agent, what, tmp_path / "gate"]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout.readline() == "6000000\n"
        if what == "run":
            wait_until((tmp_path / "gate").exists)
        client.kill()
    with gl.connect(agent) as grid:
        # It fits if what the other held is released.
        assert len(grid.function("bad/zeros")(12_000_000, timeout=60)) == 12_000_000
        assert is_free(grid)


def test_a_program_continues_when_the_agent_restarts(grids, bad_module):
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve(bad_module, "--agent", agent)
    with gl.connect(agent) as grid:
        zeros = grid.function("bad/zeros")
        running = grids.processes[0]
        for size in (3, 4, 5):
            running.kill()
            running.wait()
            with grid.group() as group:
                made = zeros(size)
            group.launch()
            assert grids.start("agent", "--listen", agent) == agent
            running = grids.processes[-1]
            assert len(made.get()) == size and len(zeros(size)) == size


def test_a_program_that_is_killed_takes_its_local_grid_along(program):
    code = (
        "import gridloom as gl, sys, time\n"
        "grid = gl.local(servers=2)\n"
        "calls = [grid.run(time.sleep, 1000) for _ in range(4)]\n"
        "print(*grid.server_processes(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = [sys.executable, "-c", code]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        servers = client.stdout.readline().split()
        workers = [child for server in servers for child in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
        client.kill()
    wait_until(lambda: not any(map(is_alive, servers + workers)))


def test_a_local_grid_in_a_cell_that_runs_again(program):
    grid = gl.local(servers=1)
    assert is_free(grid)
    first = grid.server_processes()
    grid = gl.local(servers=1)
    assert is_free(grid)
    wait_until(lambda: not any(map(is_alive, first)))
    grid.close()


MODULE = """
import os

class Thing:
    pass

def server():
    return os.getppid()
"""


@pytest.fixture
def uneven(grids, tmp_path, monkeypatch):
    """Two servers, of which one has the module `only_one_has_it`."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "only_one_has_it.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "folder")
    addresses = [grids.serve("--no-agent", PYTHONPATH=path) for path in (str(tmp_path / "folder"), "")]
    with gl.connect(servers=addresses) as grid:
        yield grid
    sys.modules.pop("only_one_has_it", None)


def test_a_call_runs_where_its_module_is(uneven, grids):
    import only_one_has_it

    (server,) = {uneven.run(only_one_has_it.server).get(60) for _ in range(10)}
    assert server == grids.processes[0].pid
    assert set(uneven.map(lambda thing: os.getppid(), [only_one_has_it.Thing() for _ in range(10)])) == {server}
    with gl.Executor(grid=uneven) as executor:
        assert {executor.submit(only_one_has_it.server).result(60) for _ in range(10)} == {server}


def test_a_call_waits_for_the_server_that_has_its_module(uneven, gate, tmp_path):
    def hold(gate):
        if importlib.util.find_spec("only_one_has_it") is None:
            return "is not there"
        while not os.path.exists(f"{gate}.open"):
            time.sleep(0.001)
        return "held"

    def needs(folder):
        (Path(folder) / str(os.getpid())).touch(exist_ok=False)
        import only_one_has_it

        return only_one_has_it.server()

    (tmp_path / "runs").mkdir()
    holds = [uneven.run(hold, str(gate.path)) for _ in range(2)]
    wait_until(lambda: any(call.done() for call in holds))
    waits = uneven.run(needs, tmp_path / "runs")
    wait_until(lambda: list((tmp_path / "runs").iterdir()))
    # The free server takes other calls meanwhile, and not that one again.
    assert [uneven.run(pow, n, 2).get(60) for n in range(20)] == [n**2 for n in range(20)]
    assert not waits.done()
    gate.open()
    assert sorted(call.get(60) for call in holds) == ["held", "is not there"]
    assert waits.get(60) > 0 and len(list((tmp_path / "runs").iterdir())) == 2


def test_a_module_that_no_server_has_is_reported(uneven, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "nobody_has_it.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "here")
    import nobody_has_it

    with pytest.raises(gl.CannotRun, match="module 'nobody_has_it', which the server cannot import"):
        uneven.run(nobody_has_it.server).get(60)
