"""Ctrl-C ends a program with an executor, and a map, together with their calls."""

import os
import signal
import subprocess
import sys
import threading
import time

import gridloom as gl
import pytest
from sent_functions import running, stop, twice

_BEGIN = """
import os, signal, sys, time
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
    "end of the program": "executor = gl.Executor(max_workers=1)\nexecutor.submit(hang, sys.argv[1])",
}


@pytest.mark.parametrize("text", _PROGRAMS.values(), ids=_PROGRAMS.keys())
def test_one_ctrl_c_ends_a_program_with_an_executor(program, tmp_path, text):
    path = tmp_path / "runs"
    process = subprocess.Popen([sys.executable, "-c", f"{_BEGIN}\n{text}\n", str(path)], stderr=subprocess.PIPE, text=True)
    try:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0 or text is _PROGRAMS["end of the program"], said


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


def test_an_interrupted_map_says_so_and_its_calls_end(program, gate, handled):
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
