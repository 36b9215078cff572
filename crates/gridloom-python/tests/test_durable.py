"""Shared data that outlive their servers."""

import os
import signal
import subprocess

import gridloom as gl
import numpy as np
import pytest
from test_lost_programs import PROGRAM, grids

__all__ = ["grids"]


class Durable:
    """An agent and a server with a folder for durable data. Both can be killed and started again."""

    def __init__(self, grids, folder):
        self.grids, self.folder = grids, folder
        self.start()

    def start(self):
        self.agent = self.grids.start("agent", "--listen", "127.0.0.1:0")
        self.grids.serve("--agent", self.agent, "--name", "s0", "--durable", str(self.folder))

    def kill(self):
        for process in self.grids.processes[-2:]:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture
def durable(grids, tmp_path):
    return Durable(grids, tmp_path / "durable")


def test_durable_data_survive_a_kill_of_agent_and_server(durable):
    value = np.random.default_rng(1).random((100_000, 2))
    with gl.connect(durable.agent) as grid:
        grid.put("mesh", value, durable=True)
        grid.put("mesh", value + 1, durable=True, replace=True)
        grid.put("small", 7, durable=True)
        grid.put("empty", b"", durable=True)
        grid.put("gone", 8)
        grid.put("deleted", 9, durable=True)
        grid.delete("deleted")
    for _ in range(2):
        durable.kill()
        durable.start()
        with gl.connect(durable.agent) as grid:
            assert np.array_equal(grid.get("mesh", timeout=60), value + 1)
            assert (grid.get("small"), grid.get("empty")) == (7, b"")
            assert [(one.name, one.version) for one in grid.names()] == [("empty", 1), ("mesh", 2), ("small", 1)]
            assert grid.run(np.sum, grid.find("mesh")).get() == np.sum(value + 1)
    with gl.connect(durable.agent) as grid:
        for name in ("mesh", "small", "empty"):
            grid.delete(name)
        grid.put("last", 1, durable=True)
    durable.kill()
    durable.start()
    with gl.connect(durable.agent) as grid:
        assert grid.get("last", timeout=60) == 1
        assert [one.name for one in grid.names()] == ["last"]
    assert len(list(durable.folder.glob("*.data"))) == 1


def test_data_that_were_changed_are_not_believed(durable):
    with gl.connect(durable.agent) as grid:
        grid.put("mesh", np.arange(10_000.0), durable=True)
        grid.put("other", np.arange(5.0), durable=True)
    durable.kill()
    [changed] = [file for file in durable.folder.glob("*.data") if file.stat().st_size > 10_000]
    with changed.open("r+b") as file:
        file.seek(5000)
        file.write(b"!")
    durable.start()
    with gl.connect(durable.agent) as grid:
        assert list(grid.get("other", timeout=60)) == [0, 1, 2, 3, 4]
        assert not grid.exists("mesh") and not changed.exists()


def test_a_put_that_no_server_can_make_durable_is_an_error(grids):
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve("--agent", agent, "--name", "s0")
    with gl.connect(agent) as grid:
        with pytest.raises(gl.OutOfMemory, match="no server keeps durable data; start some with --durable DIR"):
            grid.put("mesh", 1, durable=True)
        assert not grid.exists("mesh")


def test_a_folder_has_one_server(durable):
    command = [PROGRAM, "serve", "--no-functions", "--no-agent", "--durable", durable.folder]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0 and "another server keeps its data there" in ended.stderr
