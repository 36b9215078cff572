"""Ctrl-C ends a program with an executor, and a map, together with their calls."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from bad_functions import is_in, wait_until
from conftest import FUNCTIONS
from sent_functions import running, stop, twice

_BEGIN = """
import os, signal, sys, threading, time
import gridloom as gl
# A shell that starts the tests in the background may have them ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

def hang(gate):
    open(gate, "w").close()
    time.sleep(1000)
"""

_PROGRAMS = {
    "result in a with block": "with gl.Executor(max_workers=1) as executor:\n    executor.submit(hang, sys.argv[1]).result()",
    "result": "gl.Executor(max_workers=1).submit(hang, sys.argv[1]).result()",
    "end of a with block": "with gl.Executor(max_workers=1) as executor:\n    executor.submit(hang, sys.argv[1])",
    "shutdown": "executor = gl.Executor(max_workers=1)\nexecutor.submit(hang, sys.argv[1])\nexecutor.shutdown()",
    "end of the program, whose thread waits": "executor = gl.Executor(max_workers=1)\nthreading.Thread(target=executor.submit(hang, sys.argv[1]).exception).start()",
    "end of the program, whose pool waits": "from concurrent.futures import ThreadPoolExecutor\nexecutor = gl.Executor(max_workers=1)\n"
    "ThreadPoolExecutor().submit(executor.submit(hang, sys.argv[1]).exception)",
    "end of the program": "executor = gl.Executor(max_workers=1)\nexecutor.submit(hang, sys.argv[1])",
}


@pytest.mark.parametrize("where", _PROGRAMS)
def test_one_ctrl_c_ends_a_program_with_an_executor(program, tmp_path, where):
    path = tmp_path / "runs"
    process = subprocess.Popen([sys.executable, "-c", f"{_BEGIN}\n{_PROGRAMS[where]}\n", str(path)], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: path.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0 or where.startswith("end of the program"), said


def interrupts(gate):
    """Press Ctrl-C once a call runs."""

    def press():
        running(gate)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()


@pytest.fixture
def handled():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_map_reports_it_and_its_calls_end(program, gate, handled):
    with gl.local(servers=1) as grid:
        results = grid.map(stop, [str(gate.path)] * 5)
        interrupts(gate)
        with pytest.raises(KeyboardInterrupt):
            next(results)
        with pytest.raises(gl.Cancelled, match="the map was interrupted, and its calls were ended"):
            list(results)
        with pytest.raises(gl.Cancelled, match="results that are missing"):
            next(results)
        assert grid.run(twice, 1).get(60) == 2


def test_an_interrupted_shutdown_of_an_executor_ends_its_calls(program, gate, handled):
    with gl.local(servers=1) as grid:
        executor = gl.Executor(grid=grid)
        calls = [executor.submit(stop, str(gate.path)) for _ in range(5)]
        interrupts(gate)
        with pytest.raises(KeyboardInterrupt):
            executor.shutdown()
        assert all(call.cancelled() for call in calls)
        assert grid.run(twice, 1).get(60) == 2


def helpers():
    """Threads of this process that wait in its main thread's place, or did."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            names.append((task / "comm").read_text().strip())
    return names.count("gridloom-wait")


def interrupted(wait, method):
    """Press Ctrl-C while the main thread is in that method, which does not end by itself."""

    def press():
        wait_until(lambda: is_in(threading.main_thread(), method))
        os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=press)
    presses.start()
    with pytest.raises(KeyboardInterrupt):
        wait()
    presses.join()


def test_an_interrupted_wait_for_a_name_is_over(program, handled):
    with gl.local(servers=1) as grid:
        before = helpers()
        for _ in range(6):
            interrupted(lambda: grid.get("mesh"), gl.Grid.get)
        # One is kept for the next wait, and there may be another if one of them took long.
        assert helpers() < before + 3
        # Later results are not retained.
        grid.put("mesh", np.ones(1000))
        grid.delete("mesh")
        wait_until(lambda: [load[-1] for load in grid._raw.loads(5.0).values()] == [0])


def test_an_interrupted_wait_for_a_result_is_over_and_the_call_continues(program, gate, handled):
    with gl.local(servers=1, functions=[FUNCTIONS]) as grid:
        with grid.group() as group:
            held = grid.function("tests/hold")(np.ones(3), str(gate.path))
        before = helpers()
        for _ in range(3):
            interrupted(held.get, gl.Handle.get)
            interrupted(group.wait, gl.Group.wait)
        assert helpers() < before + 3
        gate.open()
        assert list(held.get(60)) == [2, 2, 2]


def test_an_interrupted_wait_of_a_simulation_is_over(platform, handled):
    with gl.simulate(platform) as grid:
        before = helpers()
        for _ in range(6):
            interrupted(lambda: grid.get("mesh"), gl.Grid.get)
        assert helpers() < before + 3
        grid.put("mesh", 7)
        assert grid.exists("mesh")
