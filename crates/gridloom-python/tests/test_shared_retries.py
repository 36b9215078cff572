"""Shared names: calls that run again put the same again."""

import os
import signal

import gridloom as gl
import numpy as np
import pytest
from test_shared import agent, grids

__all__ = ["agent", "grids"]


@pytest.mark.parametrize("differs", [False, True])
def test_a_call_that_runs_again_may_put_the_same_again(agent, tmp_path, differs):
    first = tmp_path / "first"
    values = np.arange(10_000.0)

    def put_and_leave():
        """Put a name. The first call that comes so far ends its server."""
        with gl.connect() as grid:
            is_first = not first.exists()
            grid.put("mesh", values + (differs and not is_first), replicas=2)
            if is_first:
                first.write_text("")
                os.kill(os.getppid(), signal.SIGKILL)
                signal.pause()
        return "again"

    with gl.connect(agent) as grid:
        put = grid.run(put_and_leave)
        if differs:
            with pytest.raises(gl.NameExists, match="the call that put 'mesh' was restarted and puts other data"):
                put.get()
        else:
            assert put.get() == "again"
        assert np.array_equal(grid.get("mesh"), values) and grid.names()[0].version == 1
        with pytest.raises(gl.NameExists, match="exist already"):
            grid.put("mesh", values)


@pytest.mark.parametrize("differs", [False, True])
def test_a_call_that_its_program_has_run_again_may_put_the_same_again(agent, tmp_path, differs):
    values = np.arange(10_000.0)

    def put_and_fail(number):
        """Put a name. The first two calls of each number fail after that."""
        runs = len(list(tmp_path.glob(f"{number}-*")))
        (tmp_path / f"{number}-{runs}").touch()
        with gl.connect() as grid:
            grid.put(f"mesh/{number}", values + (differs and runs))
        if runs < 2:
            raise ConnectionError(f"run {runs}")
        return runs

    with gl.connect(agent) as grid, gl.Executor(grid=grid, retries=2) as executor:
        runs = [
            lambda: grid.options(retries=2).run(put_and_fail, 0).get(),
            lambda: next(iter(grid.map(put_and_fail, [1], retries=2))),
            lambda: executor.submit(put_and_fail, 2).result(),
        ]
        for number, run in enumerate(runs):
            if differs:
                with pytest.raises(gl.NameExists, match=f"the call that put 'mesh/{number}' was restarted and puts other data"):
                    run()
            else:
                assert run() == 2
        # A call of its own is no further run.
        with pytest.raises(gl.NameExists, match="exist already"):
            grid.run(put_and_fail, 0).get()
        assert np.array_equal(grid.get("mesh/0"), values)
        assert [name.version for name in grid.names()] == [1, 1, 1]


PUTS_AND_FAILS = """
import os
from pathlib import Path

import gridloom as gl
import numpy as np


@gl.function
def puts(marks: str, crashes: int) -> int:
    runs = len(list(Path(marks).iterdir()))
    (Path(marks) / str(runs)).touch()
    with gl.connect() as grid:
        grid.put(f"mesh/{crashes}", np.arange(10_000.0))
    if runs < 2:
        if crashes:
            os._exit(3)
        raise ConnectionError(f"run {runs}")
    return runs
"""


@pytest.mark.parametrize("crashes", [0, 1])
def test_a_named_function_that_runs_again_may_put_the_same_again(tmp_path, crashes):
    (tmp_path / "fails.py").write_text(PUTS_AND_FAILS)
    marks = tmp_path / "marks"
    marks.mkdir()
    with gl.local(servers=2, functions=[tmp_path / "fails.py"]) as grid:
        puts = grid.function("fails/puts", retries=2, retry_on=(gl.Crashed, ConnectionError))
        assert puts(str(marks), crashes) == 2
        assert [name.version for name in grid.names()] == [1]
