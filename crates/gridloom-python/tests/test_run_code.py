"""Servers that run functions which programs send, and those that do not: what they offer, and what is said when they are gone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from sent_functions import twice


def test_servers_run_no_code_unless_they_are_configured_to(program, platform):
    with gl.local(servers=1, run_code=False) as grid:
        for attempt in (lambda: grid.run(twice, 1), lambda: grid.map(twice, [1]), lambda: gl.Executor(grid=grid)):
            with pytest.raises(gl.UnknownName, match="start one with 'gridloom serve --run-code'"):
                attempt()
    told = r"a simulated grid cannot run functions that the program sends.*offer it by functions=\[\.\.\.\]"
    with gl.simulate(platform) as grid, pytest.raises(gl.UsageError, match=told):
        grid.run(twice, 1)


def test_servers_with_run_code(program):
    program = Path(gl.__file__).parent / "bin" / "gridloom"
    serve = [program, "serve", "--run-code", "--no-agent", "--json", "--python", sys.executable, "--until-stdin-closes"]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        ready = json.loads(server.stdout.readline())
        # Not the methods by which streams run.
        assert ready["functions"] == ["python/run", "python/task1", "python/task4", "python/task16", "python/task64"]
        with gl.connect(servers=[ready["address"]]) as grid:
            assert grid.run(lambda x: x + 1, 1).get() == 2


def test_what_a_server_offers_is_what_the_module_says():
    """The server has the definition built in, so that it starts without Python."""
    describe = [sys.executable, "-m", "gridloom.describe", "gridloom.run_code"]
    told = json.loads(subprocess.run(describe, capture_output=True, text=True, check=True).stdout)
    kept = Path(__file__).parents[2] / "gridloom" / "functions" / "run_code.json"
    assert json.loads(kept.read_text()) == told


def test_lists_of_functions_leave_out_parts_of_streams(grid):
    listed = set(grid.functions()) | {name for server in grid.servers() for name in server.functions}
    assert "python/run" in listed and not [name for name in listed if name.startswith("python/stream")]


def test_servers_that_are_all_lost_are_named(program):
    with gl.local(servers=2) as grid:
        norm = grid.function("linalg/dnrm2")
        assert grid.run(twice, 1).get() == 2
        for process in grid.server_processes():
            os.kill(process, 9)
        wait_until(lambda: not grid.servers())
        lost = "all servers were lost: server-1, server-2"
        for attempt in (lambda: norm(np.ones(2)), lambda: grid.function("linalg/dnrm2")):
            with pytest.raises(gl.UnknownName, match=lost):
                attempt()
        runs = f"^no server of this grid runs functions that programs send any more; {lost}: start one with 'gridloom serve --run-code'"
        for attempt in (
            lambda: grid.run(twice, 1).get(),
            lambda: list(grid.map(twice, [1])),
            lambda: list(grid.stream(range, 3)),
        ):
            with pytest.raises(gl.UnknownName, match=runs):
                attempt()
        with grid.group():
            handle = norm(np.ones(2))
        with pytest.raises(gl.NotRun, match=lost):
            handle.get()


def test_the_last_server_that_runs_functions_is_named_when_it_is_lost(program, tmp_path):
    program = Path(gl.__file__).parent / "bin" / "gridloom"
    served = [program, "serve", "--no-agent", "--json", "--python", sys.executable, "--until-stdin-closes", "--name"]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([*served, "runs", "--run-code"], **piped) as runs,
        subprocess.Popen([*served, "typed", "builtin:files"], env={**os.environ, "GRIDLOOM_FILES": str(tmp_path)}, **piped) as typed,
    ):
        addresses = [json.loads(one.stdout.readline())["address"] for one in (runs, typed)]
        with gl.connect(servers=addresses) as grid:
            assert grid.run(abs, -1).get() == 1
            runs.kill()
            wait_until(lambda: len(grid.servers()) == 1)
            told = "any more; those that did were lost: runs: start one with 'gridloom serve --run-code'"
            for attempt in (lambda: grid.run(abs, 1).get(), lambda: list(grid.map(abs, [1])), lambda: list(grid.stream(range, 3))):
                with pytest.raises(gl.UnknownName, match=told):
                    attempt()


def test_a_testbed_runs_functions_if_it_is_configured_to(program, platform, tmp_path):
    program = Path(gl.__file__).parent / "bin" / "gridloom"
    run = [program, "testbed", "run", "-p", platform, "--speeds", "none", "--quiet", "--overload"]
    probe = subprocess.run([*run, "--no-grid", "--", "true"], capture_output=True, text=True, timeout=60)
    if "does not let this user have" in probe.stderr:
        pytest.skip(probe.stderr)
    (tmp_path / "program.py").write_text(
        "import gridloom as gl, socket\nwith gl.local() as grid:\n    print(grid.run(lambda x: (x, socket.gethostname()), 3).get())\n"
    )
    for told, code in (([], 1), (["--run-code"], 0)):
        done = subprocess.run(
            [*run, *told, "--", sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert ("(3, 's" if told else "'gridloom testbed run --run-code'") in done.stdout + done.stderr
