"""Shared data that come to servers by a folder that they share."""

import signal
import subprocess

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from test_lost_programs import PROGRAM, grids

__all__ = ["grids"]

VALUE = np.arange(1 << 19, dtype=np.float64)


@pytest.fixture
def storage(grids, tmp_path):
    """An agent, and three servers that share a folder."""
    grids.folder = tmp_path / "storage"
    grids.agent = grids.start("agent", "--listen", "127.0.0.1:0")
    for number in range(3):
        serve_one(grids, number, "--storage", str(grids.folder))
    return grids


def serve_one(grids, number, *options):
    grids.serve("--agent", grids.agent, "--name", f"s{number}", "--no-shared-memory", *options)


def kill(grids, servers):
    # The first process is the agent's.
    for process in [grids.processes[1 + int(server[1:])] for server in servers]:
        process.send_signal(signal.SIGKILL)
        process.wait()


def files(grids):
    return [path for path in grids.folder.glob("*/*-*") if path.is_file()]


@pytest.mark.parametrize("survivor", range(4))
def test_a_file_serves_all_that_share_the_folder(storage, survivor):
    with gl.connect(storage.agent) as grid:
        grid.put("mesh", VALUE, method="storage")
        grid.place("mesh")
        (file,) = files(storage)
        assert file.stat().st_size == VALUE.nbytes and file.stat().st_mode & 0o777 == 0o600
        # One that does not see the folder.
        serve_one(storage, 3)
        wait_until(lambda: len(grid.servers()) == 4)
        grid.place("mesh")
        kill(storage, [f"s{number}" for number in range(4) if number != survivor])
        assert np.array_equal(grid.get("mesh"), VALUE)


def test_a_file_goes_with_the_value(storage):
    with gl.connect(storage.agent) as grid:
        grid.put("mesh", VALUE, method="storage")
        grid.place("mesh")
        assert len(files(storage)) == 1
        grid.delete("mesh")
        wait_until(lambda: files(storage) == [])
    folders = len(list(storage.folder.iterdir()))
    for process in storage.processes[1:]:
        process.stdin.close()
        process.wait(30)
    assert (folders, [path.name for path in storage.folder.iterdir()]) == (4, ["gridloom-storage"])


def test_a_file_that_was_changed_is_not_taken(storage):
    with gl.connect(storage.agent) as grid:
        grid.put("mesh", VALUE, method="storage")
        ((holder,),) = (name.servers for name in grid.names())
        first, last = {"s0", "s1", "s2"} - {holder}
        grid.place("mesh", first)
        (file,) = files(storage)
        file.write_bytes(b"\1" * VALUE.nbytes)
        grid.place("mesh", last)
        kill(storage, [holder, first])
        assert np.array_equal(grid.get("mesh"), VALUE)


def test_what_a_killed_server_has_left_is_removed(storage):
    with gl.connect(storage.agent) as grid:
        grid.put("mesh", VALUE, method="storage")
        grid.place("mesh")
        (file,) = files(storage)
        kill(storage, ["s0", "s1", "s2"])
        assert file.exists()
        serve_one(storage, 3, "--storage", str(storage.folder))
        assert not file.exists()
        assert len(list(storage.folder.iterdir())) == 2


def test_a_folder_that_cannot_be_a_storage_is_an_error(program, tmp_path):
    (tmp_path / "gridloom-storage").write_text("mine")
    command = [PROGRAM, "serve", "--no-functions", "--no-agent", "--storage", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "'gridloom-storage' there contains 'mine', which is not the id of a storage" in ended.stderr


HOST = '[[host]]\nname = "s{0}"\nspeed = "1Gf"\nproperties = {{ role = "server", memory = "1GiB", storage = "{1}" }}\n'
NETWORK = """
[[host]]
name = "client"
speed = "1Gf"
properties = { role = "client, agent" }
[[host]]
name = "files"
speed = "1Gf"
properties = { role = "none" }
[[star]]
name = "lan"
hosts = ["client", "s0", "s1", "s2", "s3", "s4"]
bandwidth = "12.5MBps"
latency = "100us"
[[link]]
name = "wide"
bandwidth = "1.25GBps"
latency = "100us"
[[connect]]
from = "files"
to = "lan"
links = ["wide"]
"""


def test_in_simulation_the_card_of_the_file_server_counts(tmp_path):
    hosts = "".join(HOST.format(number, "files") for number in range(5))
    (tmp_path / "files.toml").write_text(hosts + NETWORK)
    size = 16 << 20
    with gl.simulate(tmp_path / "files.toml") as grid:
        grid.advance(30)
        grid.put("mesh", np.broadcast_to(np.uint8(0), (size,)), method="storage")
        begun = grid.now()
        grid.place("mesh")
        # Written by one card, then read by all others at the same time.
        assert (grid.now() - begun) / (size / 12.5e6) == pytest.approx(2, rel=0.1)
        assert grid.simulation().bytes_by_link["wide"] == 5 * size
    (tmp_path / "wrong.toml").write_text(hosts.replace('"files"', '"flies"') + NETWORK)
    with pytest.raises(gl.GridloomError, match="host 's0' has storage = 'flies', but there is no such host.*files"):
        gl.simulate(tmp_path / "wrong.toml")
