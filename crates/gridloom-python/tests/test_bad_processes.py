"""Functions that hang, fork, crash, or change or close what their process has: the slot takes the next call."""

import asyncio
import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import gridloom as gl
import numpy as np
import pytest
from bad_functions import is_alive, is_free, wait_until
from sent_functions import running, stop, twice

# --- They do not end.


def test_a_time_limit_ends_a_function_that_hangs(one):
    with pytest.raises(gl.TimedOut):
        one.function("bad/hang")(timeout=0.05)
    assert is_free(one)


def test_a_call_that_runs_can_be_aborted(one, gate):
    call, behind = one.run(stop, str(gate.path)), one.run(twice, 2)
    running(gate)
    assert not call.cancel()
    assert not call.cancelled()
    call.abort()
    with pytest.raises(CancelledError) as caught:
        call.get(60)
    assert isinstance(caught.value, gl.Cancelled) and call.cancelled()

    async def awaited():
        await call

    # The wait was not cancelled.
    with pytest.raises(gl.Cancelled):
        asyncio.run(awaited())
    assert behind.get(60) == 4


def test_abort_takes_a_call_that_waits_and_leaves_one_that_has_ended(one, gate):
    ended = one.run(twice, 1)
    assert ended.get(60) == 2
    held, waits = one.run(stop, str(gate.path), 3), one.run(twice, 2)
    running(gate)
    waits.abort()
    with pytest.raises(CancelledError):
        waits.get(60)
    ended.abort()
    assert ended.get() == 2
    gate.open()
    assert held.get(60) == 3
    held.abort()


def test_an_aborted_call_does_not_run_again(one, gate):
    executor = gl.Executor(grid=one, retries=3)
    call = executor.submit(stop, str(gate.path))
    running(gate)
    call.abort()
    assert isinstance(call.exception(60), gl.Cancelled)
    executor.shutdown()
    assert len(list(gate.path.parent.glob("gate.[0-9]*"))) == 1


# --- They start processes.


def fork(child_does):
    child = os.fork()
    if child == 0:
        return child_does()
    os.waitpid(child, 0)
    return "parent"


def fail():
    raise ValueError("child")


@pytest.mark.parametrize("child_does", [lambda: "child", fail, sys.exit], ids=["returns", "raises", "exits"])
def test_a_forked_child_answers_no_call(program, child_does):
    with gl.local(servers=1) as grid:
        assert grid.run(fork, child_does).get(30) == "parent"
        assert len(set(grid.map(lambda _: os.getpid(), range(50)))) == 1


def test_a_forked_child_of_a_declared_function_answers_no_call(program, bad_module):
    with gl.local(servers=1, functions=[bad_module]) as grid:
        np.testing.assert_array_equal(grid.function("bad/forks")(np.ones(3), timeout=30), [2, 2, 2])


def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return workers.map(abs, [-1, -2])


def forked():
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


def test_processes_of_a_function_end_with_its_worker(program):
    with gl.local(servers=1) as grid:
        assert grid.run(pool).get(60) == [1, 2]
        left = [grid.run(lambda: subprocess.Popen(["sleep", "1000"]).pid).get(60), grid.run(forked).get(60)]
        assert is_free(grid) and all(map(is_alive, left))
        assert isinstance(grid.run(os._exit, 1).exception(60), gl.Crashed)
        wait_until(lambda: not any(map(is_alive, left)))
        left = [grid.run(forked).get(60)]
    wait_until(lambda: not any(map(is_alive, left)))


# --- They change their process.


def change(folder):
    os.chdir(folder)
    os.environ["GRIDLOOM_TEST_CHANGED"] = "yes"
    sys.setrecursionlimit(2000)
    np.seterr(divide="raise")


def state():
    return os.getcwd(), os.environ.get("GRIDLOOM_TEST_CHANGED"), sys.getrecursionlimit(), np.geterr()["divide"]


def test_the_next_call_sees_what_a_function_changed_but_for_the_folder(program, tmp_path):
    (tmp_path / "folder").mkdir()
    with gl.local(servers=1) as grid:
        folder, *_ = grid.run(state).get(60)
        grid.run(change, tmp_path / "folder").get(60)
        (tmp_path / "folder").rmdir()
        assert grid.run(state).get(60) == (folder, "yes", 2000, "raise")
        assert isinstance(grid.run(lambda: (os.chdir("/"), fail())).exception(60), ValueError)
        assert grid.run(os.getcwd).get(60) == folder
        # A new process knows nothing of it.
        assert isinstance(grid.run(os._exit, 1).exception(60), gl.Crashed)
        assert grid.run(state).get(60) == (folder, None, 1000, "warn")


def test_an_initializer_may_change_the_folder(one, tmp_path):
    with gl.Executor(grid=one, initializer=os.chdir, initargs=(tmp_path,)) as executor:
        assert {executor.submit(os.getcwd).result(60) for _ in range(2)} == {str(tmp_path)}
    assert isinstance(one.run(os._exit, 1).exception(60), gl.Crashed)


def test_threads_that_continue_do_not_spoil_the_next_call(one, gate):
    def fails_later(gate):
        threading.Thread(target=lambda: (stop(gate), fail())).start()
        return threading.active_count()

    assert one.run(fails_later, str(gate.path)).get(60) > 1
    running(gate)
    assert is_free(one)
    gate.open()
    assert is_free(one)


def test_a_crash_of_such_a_thread_ends_the_call_that_runs_then(one, gate, other_gate):
    def crashes_later(gate):
        threading.Thread(target=lambda: (stop(gate), os._exit(7))).start()

    one.run(crashes_later, str(gate.path)).get(60)
    call = one.run(stop, str(other_gate.path))
    # A call that has not begun when the thread ends its process runs again.
    running(gate)
    running(other_gate)
    gate.open()
    assert isinstance(error := call.exception(60), gl.Crashed) and "exit status 7" in str(error)
    assert is_free(one)


# --- They close descriptors.


def close_standard():
    os.closerange(0, 3)
    print("said after that")


def close_others():
    os.closerange(3, 100)
    signal.pause()


def test_standard_streams_can_be_closed(program):
    heard = []
    with gl.local(servers=1, logs=heard.append) as grid:
        grid.run(close_standard).get(60)
        assert is_free(grid)
        values = np.arange(100_000.0)
        np.testing.assert_array_equal(grid.run(twice, values).get(60), 2 * values)
    assert "said after that\n" in [said.text for said in heard]


def test_without_its_socket_a_worker_ends(one):
    with pytest.raises(gl.Crashed):
        one.run(close_others).get(60)
    assert is_free(one)


def test_a_worker_without_its_socket_is_not_reported_to_lack_memory(one):
    assert "memory" not in str(one.run(close_others).exception(60))


# --- They end their process.


def deep_in_c():
    class Deep:
        def __repr__(self):
            return repr([self])

    sys.setrecursionlimit(10**9)
    return repr(Deep())


@pytest.mark.parametrize(
    ("function", "args", "how"),
    [
        (deep_in_c, (), "SIGSEGV"),
        (ctypes.string_at, (0,), "SIGSEGV"),
        (os.abort, (), "SIGABRT"),
        (signal.raise_signal, (signal.SIGKILL,), "SIGKILL"),
        (os.killpg, (0, signal.SIGTERM), "SIGTERM"),
        (os._exit, (0,), "exit status 0"),
        (sys.exit, ("enough",), r"sys\.exit\(enough\)"),
    ],
)
def test_the_end_of_the_process_is_named(one, function, args, how):
    with pytest.raises(gl.Crashed, match=how):
        one.run(function, *args).get(60)
    assert is_free(one)


def test_a_call_that_spoils_its_worker_runs_once(one, tmp_path):
    """It has ended when the server finds the connection closed, but its answer is lost."""

    def closes(path):
        with open(path, "a") as file:
            file.write("x")
        os.closerange(3, 100)

    with pytest.raises(gl.Crashed, match="exit status 1|closed its connection"):
        one.run(closes, tmp_path / "runs").get(60)
    assert (tmp_path / "runs").read_text() == "x"


def test_a_call_of_which_workers_are_killed_runs_three_times(one, tmp_path):
    def is_killed(path):
        with open(path, "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(gl.Crashed, match="3 workers were killed while they ran it, the last by signal 9"):
        one.run(is_killed, tmp_path / "runs").get(60)
    assert (tmp_path / "runs").read_text() == "xxx"
    assert is_free(one)


def test_a_lack_of_memory_is_an_error_of_the_call(one):
    def takes_all():
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, before[1]))
        try:
            kept = []
            while True:
                kept.append(np.empty(64 << 20, np.uint8))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    worker = one.run(os.getpid).get(60)
    with pytest.raises(MemoryError):
        one.run(takes_all).get(60)
    assert one.run(os.getpid).get(60) == worker
