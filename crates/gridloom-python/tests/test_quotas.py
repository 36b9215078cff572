"""Quotas and priorities on servers of a grid with several processes."""

import json
import os
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from gridloom.common import executable

MIB = 1 << 20

MODULE = """
import os, time
import numpy as np
import gridloom as gl

@gl.function
def note(folder: str, what: str) -> int:
    with open(os.path.join(folder, "order"), "a") as file:
        file.write(what + "\\n")
    while what.startswith("block") and not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.01)
    return 0

@gl.function
def outer(folder: str, what: str) -> int:
    with gl.connect() as grid:
        return grid.function("noted/note")(folder, what)

@gl.function
def total(x: gl.Array["float64", "n"]) -> float:
    return float(x.sum())

@gl.function
def zeros(n: int) -> gl.Array["float64", "n"]:
    return np.zeros(n)
"""


@pytest.fixture
def start(program, monkeypatch, tmp_path):
    """Starts a service of a grid and returns its address."""
    monkeypatch.setenv("GRIDLOOM_MODELS", "none")
    (tmp_path / "noted.py").write_text(MODULE)
    running = []

    def start(*arguments):
        command = [executable.program() or "gridloom", *arguments, "--json", "--quiet", "--until-stdin-closes"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        running.append(process)
        return json.loads(process.stdout.readline())["address"]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def serve(start, tmp_path, address, *options):
    module = str(tmp_path / "noted.py")
    start(
        "serve",
        module,
        "--agent",
        address,
        "--listen",
        "127.0.0.1:0",
        "--python",
        sys.executable,
        "--slots",
        "1",
        *options,
    )


def priorities(address):
    """The priorities of the calls on the server, by function."""
    command = [executable.program() or "gridloom", "calls", "--agent", address, "--json"]
    calls = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)["calls"]
    return sorted((call["function"], call["priority"]) for call in calls)


def test_calls_of_a_user_start_by_priority(start, tmp_path):
    address = start("agent", "--listen", "127.0.0.1:0")
    serve(start, tmp_path, address)
    order = tmp_path / "order"
    with gl.connect(address) as grid:
        note = grid.function("noted/note")
        calls = [note.submit(str(tmp_path), "block")]
        wait_until(order.exists)
        for what, priority in (("late", 7), ("early", -7), ("usual", 0), ("second", -1)):
            calls.append(note.with_priority(priority).submit(str(tmp_path), what))
        grid.priority = 3
        assert grid.priority == 3
        calls.append(note.submit(str(tmp_path), "session"))
        with grid.group(priority=-3):
            in_group = note(str(tmp_path), "group")
            own = note.with_priority(8)(str(tmp_path), "own")
        grid.priority = None
        expected = [("noted/note", number) for number in sorted((0, 7, -7, 0, -1, 3, -3, 8))]
        wait_until(lambda: priorities(address) == expected)
        (tmp_path / "go").touch()
        assert [call.get() for call in calls] == [0] * len(calls) and in_group.get() == own.get() == 0
    assert order.read_text().split() == ["block", "early", "group", "second", "usual", "session", "late", "own"]


def test_nested_calls_have_the_priority_of_the_call_that_makes_them(start, tmp_path):
    address = start("agent", "--listen", "127.0.0.1:0")
    serve(start, tmp_path, address)
    with gl.connect(address) as grid:
        call = grid.function("noted/outer").with_priority(-4).submit(str(tmp_path), "block")
        wait_until(lambda: priorities(address) == [("noted/note", -4), ("noted/outer", -4)])
        (tmp_path / "go").touch()
        assert call.get() == 0


def test_calls_of_any_function_start_by_priority(tmp_path):
    def note(what):
        with open(tmp_path / "order", "a") as file:
            file.write(what + "\n")
        while what == "block" and not (tmp_path / "go").exists():
            pass

    with gl.local(servers=1, slots=1) as grid:
        calls = [grid.run(note, "block")]
        wait_until((tmp_path / "order").exists)
        calls.append(grid.run(note, "usual"))
        calls.append(grid.options(priority=-1).run(note, "early"))
        results = grid.map(note, ["first", "last"], priority=-2)
        (tmp_path / "go").touch()
        assert list(results) == [None, None] and [call.get() for call in calls] == [None] * 3
    assert (tmp_path / "order").read_text().split() == ["block", "first", "last", "early", "usual"]


@pytest.mark.parametrize("priority", [1.5, "high", 2**31, -(2**31) - 1])
def test_a_priority_that_is_none(grid, priority):
    for refused in (
        lambda: grid.options(priority=priority),
        lambda: grid.map(print, [1], priority=priority),
        lambda: grid.group(priority=priority),
        lambda: setattr(grid, "priority", priority),
    ):
        with pytest.raises(
            gl.UsageError, match="priority is (a whole number from -2147483648 up|at most 2147483647), got"
        ):
            refused()


def test_a_quota_of_disk(start, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('[everybody]\ndisk = "24MiB"\n')
    rules.chmod(0o600)
    address = start("agent", "--listen", "127.0.0.1:0", "--rules", str(rules))
    folders = ["--disk", str(tmp_path / "disk"), "--disk-limit", "200MiB", "--durable", str(tmp_path / "durable")]
    (tmp_path / "disk").mkdir()
    serve(start, tmp_path, address, "--memory", "8MiB", *folders)
    with gl.connect(address) as grid:
        zeros = grid.function("noted/zeros")
        with grid.group() as group:
            kept = [zeros(MIB) for _ in range(4)]
        group.wait()
        # The server reports every 10 s. One of the results, and data of less than 1 MiB, stay in memory.
        wait_until(lambda: sum(grid.usage().disk_bytes.values()) >= 16 * MIB)
        assert sum(grid.usage().disk_bytes.values()) <= 24 * MIB
        # More results fit only if the program has copies of others.
        with grid.group():
            more = [zeros(MIB) for _ in range(3)]
        assert all(handle.get().nbytes == 8 * MIB for handle in kept + more)
        with pytest.raises(gl.QuotaExceeded, match=r"take 40 MiB.* the rules of the grid allow 24 MiB on the server's disk"):
            with grid.group():
                large = zeros(5 * MIB)
            large.get()
        del kept, more, large, group
        wait_until(lambda: not grid.usage().disk_bytes)
        grid.put("mesh", np.zeros(2 * MIB), durable=True)
        with pytest.raises(
            gl.QuotaExceeded, match=r"does not store '.*again': it takes 16 MiB, .* allow 24 MiB; delete durable data"
        ) as raised:
            grid.put("again", np.zeros(2 * MIB), durable=True)
        assert raised.value.name.endswith("again")
        grid.put("again", np.zeros(2 * MIB))
        grid.delete("mesh")
        grid.put("third", np.zeros(2 * MIB), durable=True)


def test_a_quota_of_bytes_over_a_link(start, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('[link.all]\nbetween = ["*", "*"]\n[everybody]\nlinks = { all = "4MiB" }\n')
    rules.chmod(0o600)
    address = start("agent", "--listen", "127.0.0.1:0", "--rules", str(rules))
    serve(start, tmp_path, address)
    with gl.connect(address) as grid:
        total, ones = grid.function("noted/total"), np.ones(MIB)
        assert total(ones) == MIB
        # The server reports every 10 s.
        wait_until(lambda: any(links["all"] == 8 * MIB for links in grid.usage().link_bytes.values()))
        with pytest.raises(gl.QuotaExceeded, match=r"took 8 MiB .*over the link 'all' today, .* allow 4 MiB .*a day"):
            total(ones)
        assert total(np.ones(2)) == 2, "small arguments are sent with the call"
