"""Sessions that name their servers: real processes, and no agent anywhere."""

import json
import os
import signal
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS
from gridloom.common import executable


@pytest.fixture
def serve(program, monkeypatch):
    """Starts servers without an agent: processes, and where they can be dialled."""
    monkeypatch.delenv("GRIDLOOM_AGENT", raising=False)
    running = []

    def start(name, **environment):
        command = [executable.program() or "gridloom", "serve", str(FUNCTIONS), "--no-agent", "--name", name, "--models", "none"]
        command += ["--python", sys.executable, "--json", "--quiet", "--until-stdin-closes"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(command, env={**os.environ, **environment}, text=True, **pipes)
        running.append(process)
        return process, json.loads(process.stdout.readline())["address"]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def product(grid, matrices, heuristic="auto"):
    matmul = grid.function("tests/matmul")
    with grid.group(heuristic) as group:
        level = list(matrices)
        while len(level) > 1:
            level = [matmul(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0].get(), group


def test_groups_are_mapped_by_the_session(serve):
    addresses = [serve(f"s{number}")[1] for number in range(3)]
    matrices = [np.random.default_rng(seed).random((60, 60)) for seed in range(8)]
    expected = np.linalg.multi_dot(matrices)
    with gl.connect(servers=addresses) as grid, gl.connect(servers=addresses[1:]) as other:
        assert [server.name for server in grid.servers()] == ["s0", "s1", "s2"]
        assert [server.name for server in other.servers()] == ["s1", "s2"]
        for session in (grid, other):
            np.testing.assert_allclose(product(session, matrices)[0], expected)
        assert grid.function("tests/matmul")(matrices[0], matrices[1]).shape == (60, 60)
        # Servers know one another: data go straight from one to another.
        np.testing.assert_allclose(product(grid, matrices, "round-robin")[0], expected)
        assert grid.traffic().server_bytes > 0


def test_a_killed_server_is_replaced(serve, gate):
    (first, one), (second, two) = serve("one"), serve("two")
    with gl.connect(servers=[one, two]) as grid:
        hold, total = grid.function("tests/hold"), grid.function("tests/matmul")
        with grid.group() as group:
            held = hold(np.zeros(3), str(gate.path))
        pid = gate.server()
        killed = first if pid == first.pid else second
        killed.send_signal(signal.SIGKILL)
        gate.open()
        held.get()
        assert [server.name for server in grid.servers()] == ["two" if killed is first else "one"]
        a = np.eye(3)
        np.testing.assert_array_equal(total(a, a), a)
        assert group.report() is not None


def test_servers_are_found_in_the_environment_and_errors_are_reported(serve, monkeypatch):
    _, address = serve("one")
    monkeypatch.setenv("GRIDLOOM_SERVERS", f"{address}, {address}")
    with gl.connect() as grid:
        assert [server.name for server in grid.servers()] == ["one"]
    for wrong in ([], "host:1", ["nowhere"]):
        with pytest.raises(gl.GridloomError):
            gl.connect(servers=wrong)
    for servers in (["127.0.0.1:1", "127.0.0.1:2"], ["127.0.0.1:1"]):
        with pytest.raises(gl.ConnectError) as refused:
            gl.connect(servers=servers)
        assert all(f"cannot use the server at {server}: " in str(refused.value) for server in servers)
        assert "connection refused" in str(refused.value) and "serve --no-agent" in str(refused.value)
    with pytest.warns(gl.ConnectWarning, match="without the server at 127.0.0.1:1: .*connection refused") as told:
        grid = gl.connect(servers=[address, "127.0.0.1:1"])
    assert [warning.filename for warning in told] == [__file__]
    with grid:
        assert [server.name for server in grid.servers()] == ["one"]
        np.testing.assert_array_equal(grid.function("tests/matmul")(np.eye(2), np.eye(2)), np.eye(2))
    with pytest.raises(gl.UsageError, match="not both"):
        gl.connect("127.0.0.1:7711", servers=[address])
