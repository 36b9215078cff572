"""Shared data that outlive their servers."""

import os
import re
import signal
import subprocess

import gridloom as gl
import numpy as np
import pytest
from test_lost_programs import PROGRAM, grids

__all__ = ["grids"]


def end(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)


class Durable:
    """An agent and a server with a folder for durable data. Both can be killed and started again."""

    def __init__(self, grids, folder, options=()):
        self.grids, self.folder, self.options = grids, folder, options
        self.start()

    def start(self):
        self.agent = self.grids.start("agent", "--listen", "127.0.0.1:0")
        self.start_server()

    def start_server(self):
        self.grids.serve("--agent", self.agent, "--name", "s0", "--durable", str(self.folder), *self.options)

    def kill(self):
        for process in self.grids.processes[-2:]:
            end(process)

    def kill_server(self):
        end(self.grids.processes[-1])


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


def flip(file):
    with file.open("r+b") as opened:
        opened.seek(5000)
        opened.write(b"!")


DAMAGE = {
    "its content was changed": flip,
    "the file does not have the length of 80000 bytes of data": lambda file: os.truncate(file, 40_000),
    "the file is missing": os.remove,
    "it is a folder, device, pipe or socket instead of the file with the data": lambda file: (file.unlink(), os.mkfifo(file)),
}


@pytest.mark.parametrize("why", DAMAGE)
def test_the_error_of_lost_data_names_the_damage_of_their_file(durable, why):
    with gl.connect(durable.agent) as grid:
        grid.put("mesh", np.arange(10_000.0), durable=True)
        grid.put("other", np.arange(5.0), durable=True)
    durable.kill()
    [damaged] = [file for file in durable.folder.glob("*.data") if file.stat().st_size > 10_000]
    DAMAGE[why](damaged)
    durable.start()
    is_kept = damaged.with_suffix(".wrong").exists
    with gl.connect(durable.agent) as grid:
        assert list(grid.get("other", timeout=60)) == [0, 1, 2, 3, 4]
        assert not damaged.exists() and is_kept() == (why != "the file is missing")
        told = re.escape(f"server 's0' found it damaged: '{damaged}': {why}")
        for limit in [None, 60, 0]:
            with pytest.raises(gl.DataLost, match=f"'mesh'.*{told}.*put"):
                grid.get("mesh", timeout=limit)
        assert not grid.exists("mesh")
    # The error names the damage until the name is put again.
    durable.kill()
    durable.start()
    with gl.connect(durable.agent) as grid:
        with pytest.raises(gl.DataLost, match="server 's0' found it damaged"):
            grid.get("mesh")
        grid.put("mesh", 7, durable=True)
        assert grid.get("mesh") == 7
    durable.kill()
    durable.start()
    with gl.connect(durable.agent) as grid:
        assert grid.get("mesh", timeout=60) == 7


def test_a_waiting_request_fails_when_a_returning_server_finds_the_file_damaged(durable):
    with gl.connect(durable.agent) as grid:
        grid.put("mesh", np.arange(10_000.0), durable=True)
        durable.kill_server()
        [damaged] = durable.folder.glob("*.data")
        flip(damaged)
        get = grid.begin_get("mesh")
        durable.start_server()
        with pytest.raises(gl.DataLost, match="server 's0' found it damaged.*its content was changed"):
            get.get(timeout=120)


def truncated(durable):
    """Truncates the file of the large datum. Returns the pattern of the error."""
    [file] = [file for file in durable.folder.glob("*.data") if file.stat().st_size > 100_000]
    os.truncate(file, 4096)
    return f"on server 's0', its file '{re.escape(str(file))}' was truncated to 4096 bytes.*put the data again"


SUM = """
import pathlib
import time

import gridloom as gl


@gl.function
def waits(begun: str, gate: str) -> int:
    pathlib.Path(begun).touch()
    while not pathlib.Path(gate).exists():
        time.sleep(0.01)
    return 1


@gl.function
def total(x: gl.Array["float64", "n"]) -> float:
    return float(x.sum())
"""


@pytest.mark.parametrize("options", [(), ("--no-shared-memory",)])
def test_a_file_that_is_truncated_after_it_was_sent_to_a_worker_is_reported_as_damaged(grids, tmp_path, options):
    """Earlier, the error was that the worker had been killed by SIGBUS."""

    functions = tmp_path / "functions.py"
    functions.write_text(SUM)
    durable = Durable(grids, tmp_path / "durable", (functions, *options))
    with gl.connect(durable.agent) as grid:
        grid.put("mesh", np.arange(1_000_000.0), durable=True)
    durable.kill()
    durable.start()
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    with gl.connect(durable.agent) as grid:
        found = grid.find("mesh", timeout=60)
        running = grid.function("functions/waits").submit(str(begun), str(gate))
        while not begun.exists():
            assert not running.done(), running.get()
        with grid.group():
            queued = grid.function("functions/total")(found)
        damage = truncated(durable)
        gate.touch()
        assert running.get(timeout=120) == 1
        with pytest.raises(gl.DataLost, match=damage):
            queued.get(timeout=120)
        with pytest.raises(gl.DataLost, match=damage):
            found.get(timeout=120)
        assert grid.run(abs, -2).get(timeout=120) == 2


def test_a_file_that_is_truncated_while_its_server_runs_is_reported_as_damaged(durable):
    """Earlier, such a file killed the server by SIGBUS."""
    with gl.connect(durable.agent) as grid:
        grid.put("mesh", np.arange(100_000.0), durable=True)
        grid.put("other", 7, durable=True)
    durable.kill()
    durable.start()
    with gl.connect(durable.agent) as grid:
        found = grid.find("mesh", timeout=60)
        damage = truncated(durable)
        with pytest.raises(gl.DataLost, match=damage):
            grid.run(np.sum, found).get(timeout=120)
        with pytest.raises(gl.DataLost, match=damage):
            found.get(timeout=120)
        assert grid.get("other") == 7
        grid.put("mesh", 8, durable=True, replace=True)
        assert grid.get("mesh") == 8


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
