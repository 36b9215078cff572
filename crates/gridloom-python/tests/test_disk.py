"""Servers that keep on a disk what finds no room in memory."""

import subprocess
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from test_lost_programs import PROGRAM, grids

__all__ = ["grids"]

MIB = 1 << 20


def anonymous_bytes(process):
    """Memory of a process that the system cannot take from it without losing data."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))


@pytest.fixture(params=["shared memory", "TCP"])
def disk(request, grids, tmp_path):
    """An agent, and two servers of 32 MiB memory and 512 MiB disk."""
    over_tcp = ("--no-shared-memory",) if request.param == "TCP" else ()
    grids.folder = tmp_path / "disk"
    grids.folder.mkdir()
    grids.agent = grids.start("agent", "--listen", "127.0.0.1:0")
    for number in range(2):
        store = ("--memory", str(32 * MIB), "--disk", str(grids.folder), "--disk-limit", str(512 * MIB))
        grids.serve("--agent", grids.agent, "--name", f"s{number}", *store, *over_tcp)
    return grids


def test_data_larger_than_memory_are_stored_read_and_forwarded(disk):
    values = [np.random.default_rng(seed).random((6 * MIB // 8, 4)) for seed in range(6)]
    with gl.connect(disk.agent) as grid:
        for number, value in enumerate(values):
            grid.put(f"v{number}", value, replicas=2)
        servers = disk.processes[1:]
        wait_until(lambda: all(anonymous_bytes(server) < 64 * MIB for server in servers))
        for number, value in enumerate(values):
            assert np.array_equal(grid.get(f"v{number}"), value)
            assert np.array_equal(grid.get(f"v{number}", rows=slice(-2, None)), value[-2:])
            assert grid.run(np.sum, grid.find(f"v{number}")).get() == value.sum()
        made = [grid.run(np.full, 4 * MIB, float(number)) for number in range(4)]
        assert [result.get()[-1] for result in made] == [0, 1, 2, 3]
        wait_until(lambda: all(anonymous_bytes(server) < 96 * MIB for server in servers))
        with pytest.raises(gl.OutOfMemory):
            grid.put("more", np.broadcast_to(0.0, 40 * MIB))
        assert list(disk.folder.iterdir()) == []


def test_an_invalid_disk_is_an_error(program, tmp_path):
    def refused(*options):
        fixed = [PROGRAM, "serve", "--no-functions", "--no-agent", "--disk"]
        ended = subprocess.run([*fixed, *options], capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode != 0
        return ended.stderr

    assert f"--disk: '{tmp_path}/none'" in refused(tmp_path / "none")
    assert "give a lower limit" in refused(tmp_path, "--disk-limit", "100000TiB")
    assert "--disk: '/proc'" in refused("/proc")
