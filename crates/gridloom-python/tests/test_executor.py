"""``gridloom.Executor`` behaves as the executors of ``concurrent.futures``, whose own tests these follow."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool

import gridloom as gl
import pytest
from bad_functions import wait_until
from sent_functions import running, stop, twice

STATE = "unset"


@pytest.fixture
def executor(grid):
    with gl.Executor(grid=grid) as executor:
        yield executor


def set_up(value):
    global STATE
    STATE = value


def state():
    return STATE


def fail(*_):
    raise ValueError("no good")


def test_submit_and_keywords(executor):
    future = executor.submit(pow, 2, 8)
    assert future.result() == 256 and future.done() and not future.running() and not future.cancelled()
    assert executor.submit(dict, fn=1, self=2).result() == {"fn": 1, "self": 2}


def test_a_future_can_be_waited_for(executor, gate):
    held, short = executor.submit(stop, str(gate.path)), executor.submit(twice, 2)
    done, not_done = futures.wait([held, short], return_when=futures.FIRST_COMPLETED)
    assert (done, not_done) == ({short}, {held})
    done, not_done = futures.wait([held], timeout=0)
    assert (done, not_done) == (set(), {held})
    with pytest.raises(futures.TimeoutError):
        list(futures.as_completed([held, short], timeout=0))
    with pytest.raises(futures.TimeoutError):
        held.result(timeout=0)
    gate.open()
    assert set(futures.as_completed([held, short])) == {held, short}


def test_waiting_ends_with_the_first_exception(executor, gate):
    held, failed = executor.submit(stop, str(gate.path)), executor.submit(fail)
    done, not_done = futures.wait([held, failed], return_when=futures.FIRST_EXCEPTION)
    assert (done, not_done) == ({failed}, {held})
    assert isinstance(failed.exception(), ValueError)
    gate.open()


def test_callbacks(executor):
    called = []
    future = executor.submit(twice, 4)
    future.add_done_callback(lambda ended: called.append(ended.result()))
    futures.wait([future])
    future.add_done_callback(lambda ended: called.append(ended))
    # The former is called by a thread that may still be at it.
    executor.shutdown()
    wait_until(lambda: len(called) == 2)
    assert sorted(called, key=str) == sorted([8, future], key=str)


def test_a_callback_may_submit(executor):
    ended = threading.Event()
    more = []

    def follow(future):
        more.append(executor.submit(twice, future.result()))
        ended.set()

    executor.submit(twice, 1).add_done_callback(follow)
    assert ended.wait(30)
    assert more[0].result() == 4


def test_map(executor):
    assert list(executor.map(pow, range(10), range(10))) == [n**n for n in range(10)]
    assert list(executor.map(pow, range(40), range(40), chunksize=6)) == [n**n for n in range(40)]
    results = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
    assert [next(results), next(results)] == [(0, 1), (0, 1)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(ValueError):
        executor.map(twice, [1], chunksize=0)
    with pytest.raises(ValueError):
        executor.map(twice, [1], buffersize=0)


def test_a_map_submits_all_unless_its_buffer_is_bounded(executor):
    taken = []

    def numbers():
        for number in range(100):
            taken.append(number)
            yield number

    bounded = executor.map(twice, numbers(), buffersize=3)
    assert len(taken) == 3 and next(bounded) == 0 and len(taken) == 4
    bounded.close()
    taken.clear()
    executor.map(twice, numbers())
    assert len(taken) == 100


def test_a_map_with_a_time_limit(executor, gate):
    results = executor.map(stop, [str(gate.path)] * 3, timeout=0.05)
    with pytest.raises(futures.TimeoutError):
        next(results)
    gate.open()


def test_after_shutdown_nothing_is_taken(grid):
    executor = gl.Executor(grid=grid)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(twice, 1)
    with pytest.raises(RuntimeError):
        executor.map(twice, [1])
    assert grid.run(twice, 1).get() == 2


def test_shutdown_waits_for_all(grid):
    executor = gl.Executor(grid=grid)
    submitted = [executor.submit(twice, n) for n in range(100)]
    executor.shutdown(wait=True)
    assert all(future.done() for future in submitted)


def test_shutdown_without_waiting(grid, gate):
    executor = gl.Executor(grid=grid)
    held = executor.submit(stop, str(gate.path), 7)
    executor.shutdown(wait=False)
    assert not held.done()
    gate.open()
    assert held.result() == 7


def test_shutdown_may_cancel(grid, gate):
    executor = gl.Executor(grid=grid)
    submitted = [executor.submit(stop, str(gate.path), n) for n in range(50)]
    running(gate)
    executor.shutdown(wait=False, cancel_futures=True)
    gate.open()
    executor.shutdown()
    cancelled = [future for future in submitted if future.cancelled()]
    assert all(future.done() for future in submitted)
    assert 0 < len(cancelled) < 50 and submitted[0].result() == 0


def test_what_cannot_be_pickled_is_reported_by_the_future(executor):
    future = executor.submit(twice, threading.Lock())
    assert isinstance(future.exception(), gl.ArgumentError)
    assert isinstance(executor.submit(threading.Lock).exception(), gl.SignatureError)


def test_an_initializer(program):
    with gl.Executor(2, initializer=set_up, initargs=("ready",)) as executor:
        assert set(executor.map(lambda _: state(), range(20))) == {"ready"}
        assert executor.submit(state).result() == "ready"


def test_an_initializer_that_fails_breaks_the_executor(grid, gate):
    executor = gl.Executor(grid=grid, initializer=fail)
    with pytest.raises(BrokenProcessPool, match="initializer failed on server 'server-.*ValueError: no good") as caught:
        executor.submit(twice, 1).result()
    assert "in fail" in str(caught.value.__cause__)
    with pytest.raises(BrokenProcessPool):
        executor.submit(twice, 1)
    assert grid.run(twice, 1).get() == 2
    executor.shutdown()


def test_the_error_of_an_initializer_is_logged_as_by_python(program, capfd):
    with gl.Executor(1, initializer=fail) as executor, pytest.raises(BrokenProcessPool):
        executor.submit(twice, 1).result()
    lines = capfd.readouterr().err.splitlines()
    assert lines[:2] == ["Exception in initializer:", "Traceback (most recent call last):"], lines
    assert lines[-1] == "ValueError: no good" and lines.count("Exception in initializer:") == 1


def test_an_executor_with_its_own_servers_prints_output_without_labels(program, capfd):
    def say(n):
        print(f'{{"n": {n}}}\n')
        print("half", end="")

    with gl.Executor(1) as executor:
        executor.submit(say, 1).result()
    assert capfd.readouterr().out == '{"n": 1}\n\nhalf'


def end_process(how):
    how(3)


@pytest.mark.parametrize("how", [sys.exit, os._exit])
def test_an_initializer_that_ends_its_process_breaks_the_executor(program, how):
    with gl.Executor(1, initializer=end_process, initargs=(how,)) as executor:
        calls = [executor.submit(twice, n) for n in range(5)]
        for call in calls:
            with pytest.raises(futures.BrokenExecutor, match="the initializer"):
                call.result(60)
        with pytest.raises(futures.BrokenExecutor, match="the initializer"):
            executor.submit(twice, 1)


def test_a_function_that_ends_its_process_fails_alone(program):
    with gl.Executor(1, initializer=set_up, initargs=("set",)) as executor:
        calls = [executor.submit(state), executor.submit(end_process, os._exit), executor.submit(state)]
        assert [calls[0].result(60), calls[2].result(60)] == ["set", "set"]
        with pytest.raises(gl.Crashed):
            calls[1].result(60)
        assert executor.submit(state).result(60) == "set"


def test_an_executor_of_its_own(program):
    with gl.Executor(2) as executor:
        workers = set(executor.map(lambda _: (time.sleep(0.01), os.getpid())[1], range(20)))
    assert len(workers) == 2 and os.getpid() not in workers


def test_wrong_arguments(grid):
    with pytest.raises(ValueError, match="max_workers"):
        gl.Executor(0)
    with pytest.raises(gl.UsageError, match="max_workers is for a grid of its own"):
        gl.Executor(2, grid=grid)
    with pytest.raises(TypeError, match="initializer"):
        gl.Executor(grid=grid, initializer=1)
    with pytest.raises(TypeError):
        gl.Executor(grid=grid).submit()


def test_a_program_that_ends_ends_its_calls_first(program, tmp_path):
    (tmp_path / "p.py").write_text(
        "import gridloom as gl, pathlib, sys, time\n"
        "def note(n):\n    time.sleep(0.01); pathlib.Path(sys.argv[0] if n < 0 else f'{n}').touch()\n"
        "executor = gl.Executor(1)\n"
        "[executor.submit(note, n) for n in range(10)]\n"
    )
    done = subprocess.run([sys.executable, "p.py"], cwd=tmp_path, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal()) == list(range(10))


def test_asyncio_takes_it(executor):
    async def program():
        return await asyncio.get_running_loop().run_in_executor(executor, twice, 21)

    assert asyncio.run(program()) == 42


def test_what_is_no_grid_is_reported(program):
    with pytest.raises(gl.UsageError, match="grid is a gridloom.Grid, got 5; max_workers says how many servers"):
        gl.Executor(grid=5)
    with pytest.raises(TypeError, match="integer"):
        gl.Executor(max_workers="2")
