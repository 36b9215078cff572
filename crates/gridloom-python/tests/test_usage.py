"""`Grid.usage`: what users have used of a grid."""

import datetime
import json
import os
import subprocess
import sys

import gridloom as gl
import pytest
from bad_functions import wait_until
from gridloom.common import executable


@pytest.fixture
def start(program, monkeypatch, tmp_path):
    """Starts a service of a grid and returns its process and its address."""
    monkeypatch.setenv("GRIDLOOM_MODELS", "none")
    running = []

    def start(*arguments):
        command = [executable.program() or "gridloom", *arguments, "--json", "--quiet", "--until-stdin-closes"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ})
        running.append(process)
        return process, json.loads(process.stdout.readline())["address"]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_the_usage_of_calls_and_of_shared_data(start, tmp_path):
    module = tmp_path / "used.py"
    module.write_text("import gridloom as gl\n\n@gl.function\ndef double(x: int) -> int:\n    return 2 * x\n")
    _, address = start("agent", "--listen", "127.0.0.1:0")
    serve = ["serve", str(module), "--agent", address, "--listen", "127.0.0.1:0", "--python", sys.executable]
    first, _ = start(*serve, "--name", "first")
    start(*serve, "--name", "second")
    with gl.connect(address) as grid:
        assert grid.usage() == gl.models.Usage([], {})
        assert grid.function("used/double").on("first")(2) == 4
        # A server that ends reports at once.
        first.terminate()
        first.wait(timeout=60)
        wait_until(lambda: grid.usage().days)
        grid.put("mesh", b"12345678")
        today = datetime.datetime.now(datetime.timezone.utc).date()
        (day,) = grid.usage(since=today - datetime.timedelta(1), until="2999-12-31").days
        assert (day.succeeded, day.failed, day.cancelled) == (1, 0, 0) and day.slot_seconds > 0
        assert abs((today - day.day).days) <= 1 and day.user
        assert grid.usage(until="2020-01-01").days == [] and len(grid.usage(user=day.user).days) == 1
        assert grid.usage().stored_bytes == {day.user: 8}


@pytest.mark.parametrize("day", ["yesterday", "1969-12-31", 20786, datetime.datetime(2026, 11, 29)])
def test_a_day_that_is_none(grid, day):
    with pytest.raises(gl.UsageError, match="since is a day since 1970, such as '2026-11-29'"):
        grid.usage(since=day)


def test_a_first_day_after_the_last_one(grid):
    with pytest.raises(gl.UsageError, match="since 2026-11-02 is later than until 2026-11-01; exchange them"):
        grid.usage(since="2026-11-02", until="2026-11-01")


def test_servers_without_an_agent_keep_no_records(start):
    _, address = start("serve", "--no-functions", "--no-agent", "--listen", "127.0.0.1:0")
    with gl.connect(servers=[address]) as grid, pytest.raises(gl.UsageError, match="keep no records of users"):
        grid.usage()
