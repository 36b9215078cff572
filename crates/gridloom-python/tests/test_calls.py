"""Groups, futures and errors on real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS

X = np.linspace(1.0, 2.0, 20_000)


def test_a_group_runs_together(grid):
    matmul = grid.function("tests/matmul")
    a, b, c, d = np.random.default_rng(0).random((4, 100, 100))
    with grid.group("heft") as group:
        ab, cd = matmul(a, b), matmul(c, d)
        abcd = matmul(ab, cd)
        assert len(group) == 3 and abcd.shape == (100, 100) and abcd.dtype == np.float64
        plan = group.plan("heft")
        assert len(plan.tasks) == 3 and plan.makespan_seconds >= plan.lower_bound_seconds > 0
        a[:] = 0
    assert len(group) == 0
    assert not np.allclose(abcd.get(), 0), "arguments are those of the time of the call"
    report = group.report()
    assert len(report.tasks) == 3 and report.tasks_failed == 0 and report.measured_seconds > 0
    assert report.to_dict()["heuristic"] == "heft" and "makespan: predicted" in str(report)
    assert sum(report.by_link.values()) == report.client_bytes + report.server_bytes


def test_an_array_passed_twice_is_sent_once(program):
    with gl.local(servers=1, functions=[FUNCTIONS]) as grid, grid.group() as group:
        a = np.random.default_rng(0).random((200, 200))
        aa = grid.function("tests/matmul")(a, a)
        aaa = grid.function("tests/matmul")(aa, a)
        assert np.allclose(aaa.get(), a @ a @ a)
        sent = [moved for moved in group.report().transfers if moved.source.startswith("client")]
        assert sum(moved.size_bytes for moved in sent) == a.nbytes


@pytest.mark.parametrize("size", [10, 40_000])
def test_an_array_changed_between_two_recorded_calls_is_two(grid, size):
    statistics = grid.function("tests/statistics")
    x = np.ones(size)
    view = np.ones(2 * size)[::2]
    with grid.group():
        before = [statistics(x)[0], statistics(view)[0]]
        x[:] = np.nan
        view[:] = 5
        after = [statistics(x)[0], statistics(view)[0]]
    assert [handle.get() for handle in before] == [1.0, 1.0]
    assert np.isnan(after[0].get()) and after[1].get() == 5.0


@pytest.mark.parametrize("ran", [False, True], ids=["a new grid", "a grid that has run a function"])
def test_a_forked_child_cannot_use_the_grid_of_its_parent(program, ran):
    with gl.local(servers=1) as grid:
        assert not ran or grid.run(pow, 2, 3).get(60) == 8
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                grid.run(pow, 2, 3)
                said = "no error"
            except gl.UsageError as error:
                said = f"{error}; {grid!r}"
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        with open(read) as heard:
            said = heard.read()
        assert os.waitpid(child, 0)[1] == 0
    told = "the grid belongs to the process that forked this one; open another here"
    assert said == f"{told}; <gridloom.Grid: of the process that forked this one>"


def test_a_function_of_a_forked_child_is_not_its_own(grid):
    nothing = grid.function("tests/nothing")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "no error"
        try:
            nothing()
        except gl.UsageError as error:
            said = str(error)
        with gl.local(servers=1) as own:
            said += f"; {own.function('linalg/dnrm2')(np.array([3.0, 4.0]))}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read) as heard:
        assert heard.read() == "the grid belongs to the process that forked this one; open another here; 5.0"
    assert os.waitpid(child, 0)[1] == 0
    assert nothing() is None


def test_a_group_inside_another_may_read_its_handles(grid):
    matmul, a = grid.function("tests/matmul"), np.eye(3) * 2
    with grid.group():
        outer = matmul(a, a)
        with grid.group():
            inner = matmul(outer, a)
        assert np.array_equal(inner.get(), np.eye(3) * 8)
        after = matmul(outer, inner)
    assert np.array_equal(after.get(), np.eye(3) * 32)


def test_an_unknown_heuristic_is_refused_where_the_group_begins(grid):
    with pytest.raises(gl.InputError, match="unknown heuristic 'heff'; known: auto, heft"):
        grid.group("heff")


def test_several_results_and_none(grid):
    with grid.group() as group:
        mean, ends = grid.function("tests/statistics")(X)
        assert grid.function("tests/nothing")() is None
    assert mean.get() == pytest.approx(X.mean()) and np.array_equal(ends.get(), [1.0, 2.0])
    group.wait()
    assert grid.function("tests/nothing")() is None
    assert grid.function("tests/inner")(X, X.size).shape == (X.size - 2,)


def test_control_flow_on_a_result(grid):
    halve, rounds, x = grid.function("tests/halve"), 0, X * 8
    with grid.group() as group:
        x, norm = halve(x)
        while norm > 1.0:
            x, norm = halve(x)
            rounds += 1
        assert float(norm) <= 1.0 and bool(norm) and len(x) == X.size
        y, _ = halve(x)
    assert rounds == 3 and np.allclose(y.get(), X / 4) and np.allclose(np.asarray(x), X / 2)
    assert len(group.report().tasks) == 5


def test_handles_go_into_other_groups_and_calls(grid):
    matmul = grid.function("tests/matmul")
    with grid.group():
        two = matmul(2 * np.eye(100), np.eye(100))
    with grid.group():
        four = matmul(two, two)
    assert np.array_equal(matmul(four, two), 8 * np.eye(100))


def test_a_block_that_raises_runs_nothing(grid):
    with pytest.raises(ZeroDivisionError), grid.group() as group:
        grid.function("tests/fail")("never")
        1 / 0
    assert group.report().tasks == []
    assert np.array_equal(grid.function("tests/matmul")(np.eye(2), np.eye(2)), np.eye(2)), "calls are plain again"


def test_handles_of_a_block_that_raised_report_it(grid):
    matmul, a = grid.function("tests/matmul"), np.eye(2)
    with pytest.raises(ZeroDivisionError) as raised, grid.group():
        ran = matmul(a, a)
        ran.get()
        never = matmul(ran, a)
        1 / 0
    for _ in range(2):
        says = "the call of 'tests/matmul' never ran: the block of its group raised ZeroDivisionError: division by zero"
        with pytest.raises(gl.NotRun, match=says) as told:
            never.get()
        assert told.value.__cause__ is raised.value and told.value.function == "tests/matmul"
    with pytest.raises(gl.NotRun):
        matmul(never, a)
    assert np.array_equal(ran.get(), a)


def test_errors_that_nobody_reads_are_reported(program):
    says = r"1 call in groups failed, and their errors were not read\n  function 'tests/fail' raised ValueError on server 'server-1': "
    with gl.local(servers=1, functions=[FUNCTIONS]) as grid:
        fail, sleep = grid.function("tests/fail"), grid.function("tests/sleep")

        def later():
            """Whatever was launched before has ended: the server runs one call at a time."""
            with grid.group():
                done = sleep(0.0)
            assert done.get() == 0.0

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for read in (gl.Group.report, gl.Group.wait):
                with grid.group() as group:
                    fail("told")
                try:
                    read(group)
                except gl.RemoteError:
                    pass
            with grid.group() as group:
                cancelled = sleep(30.0)
            group.cancel()
            with pytest.raises(gl.Cancelled):
                cancelled.get()
            later()
        with grid.group() as group:
            fail("first")
        later()
        del group
        with pytest.warns(gl.UnreadErrorWarning, match=says + "first"):
            last = grid.group()
        with last:
            fail("second")
        later()
        with pytest.warns(gl.UnreadErrorWarning, match=says + "second"):
            grid.close()


def test_other_threads_are_not_recorded(grid):
    seen = []
    with grid.group():
        thread = threading.Thread(target=lambda: seen.append(grid.function("tests/sleep")(0.0)))
        thread.start()
        thread.join()
    assert seen == [0.0]


def test_timeline(grid, tmp_path):
    with grid.group() as group:
        grid.function("tests/sleep")(0.0)
    group.report().save_timeline(tmp_path / "page.html", title="A & B")
    assert "A &amp; B" in (tmp_path / "page.html").read_text()


def test_remote_exception(grid):
    with pytest.raises(gl.RemoteError) as told:
        grid.function("tests/fail")("no good")
    assert (told.value.kind, told.value.message, told.value.function) == ("ValueError", "no good", "tests/fail")
    assert "functions.py" in told.value.traceback and told.value.server.startswith("server-")


def test_failure_in_a_group(grid):
    with grid.group() as group:
        grid.function("tests/fail")("inside")
        good = grid.function("tests/sleep")(0.0)
    with pytest.raises(gl.RemoteError, match="inside"):
        group.wait()
    assert good.get() == 0.0 and group.report().tasks_failed == 1


@pytest.mark.parametrize(
    "name, args, says",
    [
        ("wrong_shape", (3,), r"expected float64\[3\], got float64\[4\]"),
        ("wrong_dtype", (3,), r"expected float64\[3\], got float32\[3\]"),
        ("wrong_count", (), "expected a tuple of 2 results, got 1"),
        ("wrong_scalar", (), "expected int64, got float 2.5"),
    ],
)
def test_wrong_results(grid, name, args, says):
    with pytest.raises(gl.SignatureError, match=says):
        grid.function(f"tests/{name}")(*args)


def test_a_crash_takes_down_the_worker_only(grid):
    with pytest.raises(gl.Crashed) as told:
        grid.function("tests/crash")()
    assert told.value.function == "tests/crash"
    with pytest.raises(gl.Crashed, match=r"sys.exit\(3\)"):
        grid.function("tests/leave")()
    assert grid.function("tests/sleep")(0.0) == 0.0 and len(grid.servers()) == 2


def test_unknown_function(grid):
    with pytest.raises(gl.UnknownName, match="did you mean tests/matmul") as told:
        grid.function("tests/matmull")
    assert isinstance(told.value, KeyError) and not str(told.value).startswith("'")
    assert "tests/matmul" in grid.functions()
    told = grid.function("matmul").__doc__
    assert "c := a b" in told and "After the semicolon stand sizes that follow from the arrays" in told
    assert "semicolon" not in grid.function("nothing").__doc__


def test_futures(grid, gate):
    future = grid.function("tests/hold").submit(X, str(gate.path))
    gate.server()
    assert not future.done()
    with pytest.raises(gl.ArgumentError, match=r"Future; pass its .get\(\)"):
        grid.function("tests/halve")(future)
    gate.open()
    assert np.array_equal(future.get(), X + 1) and future.done() and future.get() is future.get()


def test_cancel(grid, gate):
    future = grid.function("tests/hold").submit(X, str(gate.path))
    gate.server()
    assert future.cancel() and future.cancelled() and future.done()
    with pytest.raises(gl.Cancelled):
        future.get()
    assert future.cancel(), "it is cancelled, as futures of the standard library say"
    ended = grid.function("linalg/dnrm2").submit(np.ones(4))
    assert ended.get() == 2 and not ended.cancel()


def test_futures_of_both_kinds_can_be_aborted(grid, gate):
    calls = [grid.function("tests/hold").submit(X, str(gate.path)), grid.run(time.sleep, 1000)]
    gate.server()
    for call in calls:
        call.abort()
        with pytest.raises(gl.Cancelled):
            call.get(60)
        assert call.cancelled()


def test_time_limit(grid):
    begin = time.monotonic()
    with pytest.raises(gl.TimedOut) as told:
        grid.function("tests/sleep").submit(30.0, timeout=0.2).get()
    assert told.value.limit_seconds == pytest.approx(0.2) and isinstance(told.value, TimeoutError)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"servers": -1}, "servers is a whole number from 1 up, got -1"),
        ({"servers": 0}, "servers is a whole number from 1 up, got 0"),
        ({"servers": "2"}, "servers is a whole number from 1 up, got '2'"),
        ({"slots": 2.5}, "slots is a whole number from 1 up, got 2.5"),
        ({"plain": -1}, "plain is a whole number from 0 up, got -1"),
        ({"memory": 2**63}, "memory: the size .9223372036854775808. is too large; the limit is 8 EiB"),
    ],
)
def test_numbers_of_a_local_grid_are_checked(settings, says):
    with pytest.raises(gl.UsageError, match=says):
        gl.local(**settings)


def test_a_wait_may_have_a_limit(grid, gate):
    hold = grid.function("tests/hold")
    with grid.group():
        handle = hold(X, str(gate.path))
        with pytest.raises(gl.UsageError, match=r"a recorded call has no time limit .*get\(timeout"):
            hold(X, str(gate.path), timeout=1.0)
    future = hold.submit(X, str(gate.path))
    for waits in (handle, future):
        with pytest.raises(TimeoutError, match="no result within 0.02 s") as told:
            waits.get(timeout=0.02)
        assert isinstance(told.value, gl.TimedOut) and told.value.limit_seconds == 0.02
    with pytest.raises(gl.TimedOut):
        hold(X, str(gate.path), timeout=0.02)
    for no_time in (-1, "5", float("nan")):
        for waits in (handle.get, future.get, lambda timeout: hold(X, "", timeout=timeout), lambda timeout: hold.submit(X, "", timeout=timeout)):
            with pytest.raises(gl.UsageError, match=f"timeout is a number of seconds from 0 up, or None for no limit; got {no_time!r}"):
                waits(timeout=no_time)
    gate.open()
    assert np.array_equal(handle.get(timeout=30), X + 1) and np.array_equal(future.get(timeout=float("inf")), X + 1)


def test_a_killed_server_does_not_change_the_answer(program, gate):
    with gl.local(servers=3, functions=[FUNCTIONS]) as grid:
        hold, halve = grid.function("tests/hold"), grid.function("tests/halve")
        with grid.group() as group:
            first, _ = halve(X)
            second = hold(first, str(gate.path))
            third, _ = halve(second)
        victim = gate.server()
        assert victim in grid.server_processes()
        os.kill(victim, signal.SIGKILL)
        gate.open()
        assert np.allclose(third.get(), (X / 2 + 1) / 2)
        report = group.report()
        assert len(report.lost_servers) == 1 and report.tasks_again >= 1 and report.tasks_failed == 0
        assert "lost server" in str(report)


def test_interrupt_ends_a_wait(program, gate):
    script = (
        "import signal, sys, numpy as np, gridloom as gl\n"
        # A shell that starts the tests in the background may have them ignore interrupts.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "grid = gl.local(servers=1, functions=[sys.argv[1]])\n"
        "hold = grid.function('tests/hold')\n"
        "try:\n"
        "    if sys.argv[3] == 'group':\n"
        "        with grid.group():\n"
        "            handle = hold(np.zeros(3), sys.argv[2])\n"
        "        handle.get()\n"
        "    else:\n"
        "        hold(np.zeros(3), sys.argv[2])\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    for form in ("group", "plain"):
        run = [sys.executable, "-c", script, str(FUNCTIONS), str(gate.path), form]
        process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        gate.server()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        assert out == "interrupted\n" and process.returncode == 0
        gate.path.unlink()


def test_threads_may_wait_for_the_same_result(both, gate):
    hold, together = both.function("tests/hold"), threading.Barrier(9)
    with both.group():
        handle = hold(X, str(gate.path))
    seen = []

    def get():
        together.wait()
        seen.append(handle.get())

    threads = [threading.Thread(target=get, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.wait()
    gate.server()
    gate.open()
    for thread in threads:
        thread.join(timeout=30)
    assert len(seen) == 8 and all(np.array_equal(value, X + 1) for value in seen)


def test_a_hundred_thousand_calls_leave_no_memory_behind(program):
    def resident_bytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def calls(grid, groups):
        nothing, sleep = grid.function("tests/nothing"), grid.function("tests/sleep")
        for _ in range(groups):
            with grid.group() as group:
                handles = [sleep(0.0) for _ in range(999)]
                nothing()
            assert handles[-1].get() == 0.0
            group.wait()

    with gl.local(servers=2, functions=[FUNCTIONS]) as grid:
        calls(grid, 20)
        before = resident_bytes()
        calls(grid, 100)
        grown = resident_bytes() - before
    assert grown < 10e6, f"{grown / 100_000:.0f} bytes a call"


@pytest.mark.parametrize("form", ["group", "future"])
def test_after_an_interrupt_the_result_is_there_still(program, gate, form):
    script = (
        "import signal, sys, numpy as np, gridloom as gl\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "grid = gl.local(servers=1, functions=[sys.argv[1]])\n"
        "hold = grid.function('tests/hold')\n"
        "try:\n"
        "    if sys.argv[3] == 'group':\n"
        "        with grid.group():\n"
        "            waits = hold(np.zeros(3), sys.argv[2])\n"
        "    else:\n"
        "        waits = hold.submit(np.zeros(3), sys.argv[2])\n"
        "    waits.get()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "print(waits.get(), waits.get())\n"
    )
    run = [sys.executable, "-c", script, str(FUNCTIONS), str(gate.path), form]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    gate.server()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    gate.open()
    try:
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert out == "[1. 1. 1.] [1. 1. 1.]\n" and process.returncode == 0


def test_a_closed_grid_reports_it(program):
    grid = gl.local(servers=1, functions=[FUNCTIONS])
    processes, sleep = grid.server_processes(), grid.function("tests/sleep")
    grid.close()
    grid.close()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    with pytest.raises(gl.UsageError, match="closed"):
        sleep(0.0)


def test_connection_refused():
    with pytest.raises(gl.ConnectError, match="agent at 127.0.0.1:1: no program listens there .*; start an agent with 'gridloom agent'"):
        gl.connect("127.0.0.1:1")


CROWD = """
import resource, sys
import gridloom as gl, numpy as np
options = eval(sys.argv[2])
limit = options.pop("descriptors", None)
if limit:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
with gl.local(servers=1, functions=[sys.argv[1]], **options) as grid:
    echo = grid.function("tests/echo_float64")
    futures = [echo.submit(np.full((40, 100), float(i))) for i in range(200)]
    print(sum(future.get(timeout=120)[0, 0] == i for i, future in enumerate(futures)))
"""


@pytest.mark.parametrize(
    "options",
    [{"memory": 1 << 20}, {"memory": 1 << 20, "shared_memory": False}, {"descriptors": 200, "shared_memory": False}],
    ids=["small store", "small store, tcp", "few descriptors"],
)
def test_more_calls_than_there_is_room_for_take_turns(program, options):
    done = subprocess.run(
        [sys.executable, "-c", CROWD, str(FUNCTIONS), repr(options)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "200", done.stderr


    with pytest.raises(gl.ConnectError, match="'here' is not an address of an agent; expected HOST:PORT"):
        gl.connect("here")


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("broken.py", "import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("broken.idl", "Define f(", r"broken.idl:1:\d+: "),
    ],
)
def test_why_a_local_grid_does_not_start_is_in_the_error(program, tmp_path, capfd, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(gl.ConnectError, match=rf"(?s)server-[12] of the local grid did not start: .*{says}"):
        gl.local(servers=2, functions=[tmp_path / name])
    assert capfd.readouterr().err == ""
