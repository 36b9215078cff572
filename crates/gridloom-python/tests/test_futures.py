"""Calls of all kinds as they end: ``gridloom.as_completed``, ``gridloom.wait``, ``await`` and ``async for``."""

import asyncio
import concurrent.futures
import contextlib
import gc
import itertools
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, ThreadPoolExecutor

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from conftest import FUNCTIONS
from sent_functions import stop, twice

X = np.ones(3)


@pytest.fixture(scope="module")
def grid(program):
    """One on which a call that stops at a gate stops no other one."""
    with gl.local(servers=2, slots=4, functions=[FUNCTIONS]) as grid:
        yield grid


@pytest.fixture
def calls(grid):
    """A short call of each kind."""
    halve = grid.function("tests/halve")
    with grid.group():
        handle = halve(X)[1]
    return [halve.submit(X), grid.run(twice, 1), handle]


@pytest.fixture
def held(grid, gate):
    """A call that ends when the gate is open."""
    call = grid.function("tests/hold").submit(X, str(gate.path))
    gate.server()
    return call


def test_calls_of_all_kinds_are_given_once(calls):
    assert set(gl.as_completed([*calls, *calls], timeout=60)) == set(calls)
    assert set(gl.as_completed(calls)) == set(calls), "those that have ended are given at once"
    assert list(gl.as_completed([])) == []


def test_one_that_ends_first_is_given_first(calls, held, gate):
    ends = gl.as_completed([held, *calls])
    assert {next(ends), next(ends), next(ends)} == set(calls)
    gate.open()
    assert next(ends) is held
    assert next(ends, None) is None
    np.testing.assert_array_equal(held.get(), X + 1)


def test_a_handle_that_ends_first_is_given_first(grid, gate):
    with grid.group():
        held, short = grid.function("tests/hold")(X, str(gate.path)), grid.function("tests/halve")(X)[1]
    ends = gl.as_completed([held, short])
    assert next(ends) is short
    gate.open()
    assert next(ends) is held


def test_what_waits_does_not_take_the_ends_of_others(grid):
    """Calls of `Grid.run`, of functions with types and of groups end side by side, in several threads."""
    halve = grid.function("tests/halve")

    def some(number):
        typed, run = [halve.submit(X) for _ in range(50)], [grid.run(twice, number) for _ in range(50)]
        with grid.group():
            handles = [halve(X)[1] for _ in range(10)]
        return len(list(gl.as_completed([*typed, *handles, *run], timeout=60))), {one.get() for one in run}

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(some, range(4))) == [(110, {2 * number}) for number in range(4)]


def test_more_results_than_threads(grid):
    halve = grid.function("tests/halve")
    with grid.group():
        handles = [halve(X)[1] for _ in range(300)]
    assert set(gl.as_completed(handles, timeout=60)) == set(handles)


def test_failed_calls_have_ended(grid):
    fail = grid.function("tests/fail")
    with grid.group():
        inside = grid.function("tests/wrong_scalar")()
    failed = [fail.submit("no good"), grid.run(divmod, 1, 0), inside]
    for call in gl.as_completed(failed, timeout=60):
        with pytest.raises((gl.RemoteError, gl.SignatureError, ZeroDivisionError)):
            call.get()


def test_a_call_whose_result_was_taken_has_ended(calls):
    for call in calls:
        call.get()
    assert gl.wait(calls, timeout=0) == (set(calls), set())


def test_a_result_taken_meanwhile_counts(grid, gate, held):
    ends = gl.as_completed([held])
    taken = threading.Thread(target=held.get)
    taken.start()
    gate.open()
    assert next(ends) is held
    taken.join()


def test_time_limits(calls, held):
    with pytest.raises(gl.TimedOut, match="1 of 4 calls have not ended within 0.2 s"):
        for call in gl.as_completed([held, *calls], timeout=0.2):
            assert call is not held
    with pytest.raises(TimeoutError):
        next(gl.as_completed([held], timeout=0))
    assert gl.wait([held, *calls], timeout=0) == (set(calls), {held})
    with pytest.raises(gl.UsageError, match="timeout"):
        gl.as_completed(calls, timeout=-1)


def test_wait_for_all_for_the_first_and_for_a_failure(grid, calls, held, gate):
    done, not_done = gl.wait([held, calls[0]], return_when=FIRST_COMPLETED)
    assert (done, not_done) == ({calls[0]}, {held})
    failed = grid.function("tests/fail").submit("no good")
    waited = gl.wait([held, calls[1], failed], return_when=FIRST_EXCEPTION)
    assert failed in waited.done and waited.not_done == {held}
    gate.open()
    assert gl.wait([held, *calls]) == ({held, *calls}, set())
    with pytest.raises(gl.UsageError, match="return_when"):
        gl.wait(calls, return_when="SOME")


def test_what_is_no_call_is_refused(calls):
    for wrong in (gl.as_completed, gl.wait):
        with pytest.raises(gl.UsageError, match="expected gl.Future, gl.Handle or a future of concurrent.futures, got int"):
            wrong([*calls, 3])


def test_futures_of_others_count(calls):
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(twice, 3)
        assert set(gl.as_completed([other, *calls])) == {other, *calls}


def test_an_abandoned_call_is_not_kept(grid, gate, calls):
    """A wait that is left early keeps no call."""
    held = grid.function("tests/hold").submit(X, str(gate.path))
    for call in gl.as_completed([held, *calls]):
        assert call in calls
        break
    kept = weakref.ref(held)
    del held
    gc.collect()
    assert kept() is None


def test_the_end_of_a_session_ends_waits(program, tmp_path):
    grid = gl.local(servers=1)
    call = grid.run(stop, str(tmp_path / "gate"))
    wait_until(lambda: list(tmp_path.glob("gate.[0-9]*")))
    dnrm2 = grid.function("linalg/dnrm2")
    typed = dnrm2.submit(X)
    with grid.group():
        handle = dnrm2(X)
    ends = gl.as_completed([call, typed, handle])
    threading.Thread(target=grid.close).start()
    assert set(ends) == {call, typed, handle}
    for one in (call, typed, handle):
        with pytest.raises(gl.UsageError, match="closed"):
            one.get()
    assert gl.wait([typed, handle], timeout=0).not_done == set()


def test_all_kinds_can_be_awaited(calls):
    async def program():
        return await asyncio.gather(*calls)

    typed, run, handle = asyncio.run(program())
    assert (typed[1], run, handle) == (0.5, 2, 0.5)


def test_a_failure_is_raised_where_it_is_awaited(grid):
    async def program():
        with pytest.raises(gl.RemoteError, match="no good"):
            await grid.function("tests/fail").submit("no good")
        with grid.group():
            handle = grid.function("tests/wrong_scalar")()
        with pytest.raises(gl.SignatureError):
            await handle
        with pytest.raises(RuntimeError, match="StopIteration"):
            await grid.run(next, iter(()))

    asyncio.run(program())


def test_the_loop_continues_meanwhile(grid, gate):
    """What opens the gate runs in the loop in which three calls are awaited that stop at it."""

    async def program():
        typed = grid.function("tests/hold").submit(X, str(gate.path))
        with grid.group():
            handle = grid.function("tests/hold")(X, str(gate.path))
        both = asyncio.gather(typed, handle)
        while not gate.path.exists():
            await asyncio.sleep(0.001)
        gate.open()
        return await both

    for value in asyncio.run(program()):
        np.testing.assert_array_equal(value, X + 1)


def test_a_cancelled_wait_cancels_the_call(grid, held, gate):
    stopped = [grid.run(stop, str(gate.path), n) for n in range(50)]

    async def program():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(held), 0.01)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(held, 0.01)
        waits = asyncio.ensure_future(stopped[-1])
        await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    asyncio.run(program())
    with pytest.raises(gl.Cancelled):
        held.get(60)
    assert stopped[-1].cancelled()
    gate.open()
    assert [call.get() for call in stopped[:-1]] == list(range(49))


def test_a_cancelled_wait_for_a_handle_leaves_the_call(grid, gate):
    with grid.group():
        handle = grid.function("tests/hold")(X, str(gate.path))
    gate.server()

    async def program():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(handle, 0.01)
        gate.open()
        return await handle

    np.testing.assert_array_equal(asyncio.run(program()), X + 1)


def test_as_completed_in_asyncio(calls, held, gate):
    async def program():
        given = []
        async for call in gl.as_completed([held, *calls]):
            given.append(call)
            if len(given) == len(calls):
                gate.open()
        assert set(given[:-1]) == set(calls) and given[-1] is held
        assert [call async for call in gl.as_completed([])] == []

    asyncio.run(program())


def test_as_completed_in_asyncio_with_a_limit(held, gate):
    async def program():
        ends = gl.as_completed([held], timeout=0.05)
        with pytest.raises(gl.TimedOut):
            async for _ in ends:
                pass
        ends = gl.as_completed([held])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ends.__anext__(), 0.01)
        gate.open()
        assert await ends.__anext__() is held

    asyncio.run(program())


def test_a_map_in_asyncio(grid):
    async def program():
        assert [x async for x in grid.map(twice, range(200))] == [2 * x for x in range(200)]
        assert [x async for x in grid.map(twice, range(100), chunksize=7)] == [2 * x for x in range(100)]
        with gl.Executor(grid=grid) as executor:
            assert [x async for x in executor.map(twice, range(3))] == [0, 2, 4]
        results = grid.map(lambda x: 1 / x, [1, 0, 2])
        assert await results.__anext__() == 1.0
        with pytest.raises(ZeroDivisionError):
            await results.__anext__()
        assert [x async for x in results] == []

    asyncio.run(program())


def test_an_endless_map_in_asyncio(grid):
    taken = []

    def numbers():
        for number in itertools.count():
            taken.append(number)
            yield number

    async def program():
        results = grid.map(twice, numbers(), buffersize=5)
        async for result in results:
            if result == 10:
                break
        await results.aclose()
        return [result async for result in results]

    assert asyncio.run(program()) == []
    assert len(taken) == 11


def test_a_cancelled_wait_leaves_a_map_whole(grid, gate):
    async def program():
        results = grid.map(stop, [str(gate.path)] * 3, [1, 2, 3])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(results.__anext__(), 0.01)
        gate.open()
        return [result async for result in results]

    assert asyncio.run(program()) == [1, 2, 3]


def test_a_map_in_asyncio_with_a_limit(grid, gate):
    async def program():
        with pytest.raises(TimeoutError):
            async for _ in grid.map(stop, [str(gate.path)], timeout=0.05):
                pass

    asyncio.run(program())


def test_a_map_reports_a_stop_iteration(grid):
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(grid.map(next, [iter(())]))


def simulated_order(platform, asynchronous=False):
    with gl.simulate(platform) as grid:
        dgemm = grid.function("linalg/dgemm")
        large, small = (np.broadcast_to(0.0, (n, n)) for n in (400, 20))
        with grid.group():
            handles = [dgemm(large, large), dgemm(small, small)]
        calls = {dgemm.submit(large, large): "large", dgemm.submit(small, small): "small"}
        calls |= {handles[0]: "large handle", handles[1]: "small handle"}
        if asynchronous:

            async def program():
                return [calls[call] async for call in gl.as_completed(calls)]

            order = asyncio.run(program())
        else:
            order = [calls[call] for call in gl.as_completed(calls)]
        return order, grid.now()


def test_a_simulated_grid_gives_calls_in_virtual_time(platform):
    order, now = simulated_order(platform)
    assert sorted(order) == ["large", "large handle", "small", "small handle"]
    assert order.index("small") < order.index("large") and order.index("small handle") < order.index("large handle")
    assert simulated_order(platform) == (order, now) == simulated_order(platform, asynchronous=True)


def test_time_limits_on_a_simulated_grid_are_virtual(platform):
    with gl.simulate(platform) as grid, gl.simulate(platform) as other:
        dgemm, large = grid.function("linalg/dgemm"), np.broadcast_to(0.0, (1000, 1000))
        call = dgemm.submit(large, large)
        with grid.group():
            handle = dgemm(large, large)
        begin = grid.now()
        assert gl.wait([call, handle], timeout=0.01).not_done == {call, handle}
        assert grid.now() == pytest.approx(begin + 0.01)
        with pytest.raises(gl.UsageError, match="simulated"):
            gl.as_completed([call, other.function("linalg/dgemm").submit(large, large)])
        assert gl.wait([call, handle]).not_done == set()

        async def program():
            return (await dgemm.submit(large, large)).shape

        assert asyncio.run(program()) == (1000, 1000)


def test_a_program_that_ends_while_it_waits(program, tmp_path):
    (tmp_path / "p.py").write_text(
        "import gridloom as gl, numpy as np, time\n"
        f"grid = gl.local(servers=1, functions=[{str(FUNCTIONS)!r}])\n"
        "dgemm, a = grid.function('linalg/dgemm'), np.ones((1500, 1500))\n"
        "with grid.group():\n    handles = [dgemm(a, a) for _ in range(3)]\n"
        # The endless calls start after another call has run: a server may first start the task whose inputs are ready first.
        "handles[0].get()\n"
        "ends = gl.as_completed([*handles, grid.function('tests/sleep').submit(100.0), grid.run(time.sleep, 100)])\n"
        "next(ends)\nprint('over')\n"
    )
    done = subprocess.run([sys.executable, "p.py"], cwd=tmp_path, timeout=120, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
    # It is warned of the abandoned calls, and of nothing else.
    assert "2 calls had not ended when the grid was closed" in done.stderr and "Error" not in done.stderr.replace("UnreadError", "").replace("UsageError", "")


def test_a_forked_child_waits_for_nothing(grid):
    # Many times: threads of the session that the child does not have may hold any lock just then.
    halve = grid.function("tests/halve")
    for _ in range(300):
        with grid.group():
            handle = halve(X)[1]
        calls = [halve.submit(X), grid.run(twice, 1), handle]
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os._exit(len(gl.wait([calls[0], handle]).not_done))
            os._exit(9)
        assert ended_within(child, 60) == 0
        assert gl.wait(calls, timeout=60).not_done == set()


def ended_within(child, limit):
    """The exit status of that child, which is killed after so many seconds."""
    watch = os.pidfd_open(child)
    try:
        if not select.select([watch], [], [], limit)[0]:
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(watch)


def fail(x):
    raise KeyError(x)


def closed(grid):
    """What is told when a session ends."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        grid.close()
    return [str(one.message) for one in told if one.category is gl.UnreadErrorWarning]


def test_errors_that_nobody_reads_are_reported_when_the_session_ends(program):
    grid = gl.local(servers=1, functions=[FUNCTIONS])
    grid.run(fail, "dropped")
    kept = [grid.run(fail, "kept"), grid.function("tests/fail").submit("typed")]
    read = [grid.run(fail, "read"), grid.function("tests/fail").submit("read")]
    mapped = grid.map(fail, ["map"] * 3)
    with pytest.raises(KeyError):
        next(mapped)
    for one in read:
        assert one.exception() is not None
    gl.wait([*kept, grid.run(int)])
    (told,) = closed(grid)
    lines = told.splitlines()
    assert lines[0] == "3 calls failed, and nobody read why" and len(lines) == 4, told
    for line in ("test_futures:fail: KeyError: 'dropped'", "test_futures:fail: KeyError: 'kept'", "RemoteError: function 'tests/fail'"):
        assert line in told, told


def test_calls_that_have_not_ended_are_reported_when_the_session_ends(program, gate):
    grid = gl.local(servers=1, functions=[FUNCTIONS])
    left = [grid.function("tests/hold").submit(X, str(gate.path)), grid.run(stop, str(gate.path))]
    gate.server()
    (told,) = closed(grid)
    assert told.startswith("2 calls had not ended when the grid was closed") and "tests/hold" in told and ":stop had ended" in told
    for one in left:
        with pytest.raises(gl.UsageError, match="closed"):
            one.result()
    # An error that leaves the block is told, not what it interrupts.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError), gl.local(servers=1) as grid:
            left = grid.run(stop, str(gate.path) + "never")
            raise ZeroDivisionError


def test_calls_with_types_are_futures_of_the_standard_library(grid, held, gate):
    norm = grid.function("linalg/dnrm2")
    calls = [norm.submit(np.array([3.0, 4.0])) for _ in range(3)]
    assert {call.result() for call in concurrent.futures.as_completed(calls, timeout=60)} == {5.0}
    done, not_done = concurrent.futures.wait([*calls, held, grid.run(twice, 1)], return_when=FIRST_COMPLETED)
    assert held in not_done and held.running()
    told = queue.Queue()
    held.add_done_callback(told.put)
    assert told.empty() and not held.done()
    gate.open()
    assert concurrent.futures.wait([held, *calls], timeout=60).not_done == set()
    held.add_done_callback(told.put)
    assert [told.get(timeout=60), told.get(timeout=60)] == [held, held]
    assert held.exception() is None and not held.cancelled() and not held.running()
    failed = grid.function("tests/fail").submit("no")
    assert isinstance(failed.exception(timeout=60), gl.RemoteError)
    with pytest.raises(gl.RemoteError):
        failed.result()

    async def wrapped():
        return await asyncio.wrap_future(norm.submit(np.array([6.0, 8.0])))

    assert asyncio.run(wrapped()) == 10.0


def test_calls_of_a_simulated_grid_are_no_futures_of_real_time(platform):
    with gl.simulate(platform) as grid:
        call = grid.function("linalg/dnrm2").submit(X)
        with pytest.raises(gl.UsageError, match=r"waited for by gridloom\.wait"):
            concurrent.futures.wait([call])
        assert call.result() == 0.0
