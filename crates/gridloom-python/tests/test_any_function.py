"""Any Python function on a grid: ``Grid.run`` and ``Grid.map``."""

import collections
import dataclasses
import datetime
import functools
import operator
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, as_completed
from concurrent.futures import TimeoutError as FuturesTimeoutError
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from sent_functions import hang, running, stop, twice


@dataclasses.dataclass
class Point:
    x: float
    y: float = 2.0


class Told(Exception):
    """An exception with arguments of its own, which pickles."""

    def __init__(self, a, b):
        super().__init__(a, b)


class WithConstructor(Exception):
    """Its constructor takes something else than it hands on."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.a = a


def noted(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return ["noted", function(*args, **kwargs)]

    return inner


VALUES = {
    "none": None,
    "dict": {"a": [1, (2.5, "x")], 3: {4, 5}},
    "dataclass": Point(1.0),
    "named": collections.Counter("gridloom"),
    "time": datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc),
    "large integer": 10**100,
    "bytes": b"\0" * 100_000,
    "function": operator.itemgetter(1),
    "path": Path("a") / "b",
    "tuple": (1, "a", None),
    "list": [1.5, [2, {"c": b""}]],
    "complex": 1 + 2j,
    "class": Point,
}
ARRAYS = {
    "float": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
    "struct": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "text": np.array(["ab", "c"]),
    "time": np.array(["2026-01-02"], dtype="datetime64[D]"),
    "object": np.array([None, {"a": 1}], dtype=object),
    "none": np.zeros((0, 3)),
    "of no dimension": np.array(2.5),
    "of six dimensions": np.arange(64.0).reshape((2,) * 6),
    "of half precision": np.ones(3, dtype=np.float16),
    "large": np.arange(200_000.0),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_values_make_the_round_trip(both, value):
    got = both.run(lambda x: x, value).get()
    if callable(value):
        assert got is value if isinstance(value, type) else got("ab") == value("ab")
    else:
        assert got == value and type(got) is type(value)


@pytest.mark.parametrize("value", ARRAYS.values(), ids=ARRAYS)
def test_arrays_make_the_round_trip(both, value):
    def same(x):
        assert x.flags.writeable
        return x

    got = both.run(same, value).get()
    assert (got.dtype, got.shape, got.flags.f_contiguous) == (value.dtype, value.shape, value.flags.f_contiguous)
    np.testing.assert_array_equal(got, value)


def test_data_frames_make_the_round_trip(both):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None]})
    pandas.testing.assert_frame_equal(both.run(lambda f: f[["b", "a"]], frame).get(), frame[["b", "a"]])


def test_functions_of_all_kinds(grid):
    factor = 3
    assert grid.run(twice, 4).get() == 8
    assert grid.run(lambda x: factor * x, 4).get() == 12
    assert grid.run(noted(twice), 4).get() == ["noted", 8]
    assert grid.run(functools.partial(pow, 2), exp=5).get() == 32
    assert grid.run(operator.add, 1, 2).get() == 3
    assert grid.run("a-b".split, "-").get() == ["a", "b"]
    assert grid.run(Point, 5).get() == Point(5)
    assert grid.run(Point(1.0).__eq__, Point(1.0)).get() is True


def test_it_runs_in_another_process(grid):
    assert grid.run(os.getpid).get() != os.getpid()


def test_arguments_may_change_after_the_call(grid, gate):
    blocked = [grid.run(stop, str(gate.path)) for _ in range(2)]
    values = [1, 2]
    later = grid.run(sum, values)
    values.append(100)
    gate.open()
    assert later.get() == 3
    assert [call.get() for call in blocked] == [None, None]


PROGRAM = """
import dataclasses
import gridloom as gl

SCALE = 10

@dataclasses.dataclass
class Mine:
    x: int

class Wrong(Exception):
    pass

def scaled(mine):
    if mine.x < 0:
        raise Wrong(mine.x)
    return Mine(helper(mine.x))

def helper(x):
    return SCALE * x

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        made = grid.run(scaled, Mine(4)).get()
        assert isinstance(made, Mine) and made == Mine(40), made
        try:
            grid.run(scaled, Mine(-1)).get()
        except Wrong as error:
            print("raised", error, "in helper" in str(error.__cause__), "in scaled" in str(error.__cause__))
        import beside
        print(grid.run(beside.name).get())
"""


def test_functions_classes_and_modules_of_a_program(program, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("def name():\n    return __name__\n")
    run = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.stdout == "raised -1 False True\nbeside\n", done.stdout + done.stderr


def test_a_module_that_the_server_lacks(grid, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    with pytest.raises(gl.CannotRun, match="module 'only_here', which the server cannot import") as caught:
        grid.run(only_here.f).get()
    assert caught.value.function == "only_here:f" and caught.value.server.startswith("server-")
    for remedy in ("install it there", "in the program itself", r"register_pickle_by_value\(only_here\)"):
        assert caught.match(remedy)


def raises(kind, *args, **kwargs):
    raise kind(*args, **kwargs)


def test_exceptions_are_raised_unchanged(grid):
    with pytest.raises(KeyError) as caught:
        grid.run(raises, KeyError, "k").get()
    assert caught.value.args == ("k",)
    assert 'in raises\n    raise kind(*args, **kwargs)' in str(caught.value.__cause__)
    assert "run_code" not in str(caught.value.__cause__)
    with pytest.raises(Told) as caught:
        grid.run(raises, Told, 1, 2).get()
    assert caught.value.args == (1, 2)


def test_an_exception_is_raised_without_its_constructor(grid):
    with pytest.raises(WithConstructor, match="^1 and 2$") as caught:
        grid.run(raises, WithConstructor, 1, b=2).get()
    assert caught.value.a == 1 and "in raises" in str(caught.value.__cause__)


def test_an_exception_that_does_not_pickle_is_reported(grid):
    def fail():
        error = ValueError("no")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(gl.RemoteError, match="no") as caught:
        grid.run(fail).get()
    error = caught.value
    assert (error.kind, error.message) == ("ValueError", "no") and "in fail" in error.traceback
    assert error.function.endswith(".fail") and error.server.startswith("server-")
    assert "RemoteError, because the exception cannot be pickled: TypeError: cannot pickle '_thread.lock' object" in str(error)


def test_recursion_without_end(grid):
    def deeper(n):
        return deeper(n + 1)

    with pytest.raises(RecursionError):
        grid.run(deeper, 0).get()
    assert grid.run(twice, 1).get() == 2


@pytest.mark.parametrize("end", [functools.partial(sys.exit, 3), functools.partial(os._exit, 3)], ids=["exit", "_exit"])
def test_the_end_of_a_worker_harms_its_call_alone(grid, end):
    with pytest.raises(gl.Crashed, match="3") as caught:
        grid.run(end).get()
    assert "exit" in caught.value.function and "python/run" not in str(caught.value)
    assert grid.run(twice, 1).get() == 2


def test_what_cannot_be_pickled_is_named(grid):
    lock = threading.Lock()
    with pytest.raises(gl.ArgumentError, match="argument 2, of type lock, cannot be pickled"):
        grid.run(max, 1, lock)
    with pytest.raises(gl.ArgumentError, match="argument 'key', of type lock"):
        grid.run(max, 1, key=lock)
    with pytest.raises(gl.ArgumentError, match="its variable 'lock', of type lock, cannot be pickled .*: make it inside"):
        grid.run(lambda: lock)
    with pytest.raises(gl.ArgumentError, match="expected a function to run, got int 3"):
        grid.run(3)
    with pytest.raises(gl.SignatureError, match="its result cannot be pickled: lock: .*; return plain data"):
        grid.run(threading.Lock).get()


def test_a_call_can_be_cancelled_until_it_is_sent(grid, gate):
    calls = [grid.run(stop, str(gate.path), n) for n in range(50)]
    running(gate)
    last, first = calls[-1], calls[0]
    assert last.cancel() and last.cancelled() and last.done()
    assert not first.cancel() and first.running()
    with pytest.raises(CancelledError):
        last.get()
    with pytest.raises(TimeoutError):
        first.get(0.01)
    gate.open()
    assert sorted(call.get() for call in as_completed(calls[:-1])) == list(range(49))


def test_thousands_of_futures_at_once(grid):
    calls = [grid.run(twice, n) for n in range(10_000)]
    assert sum(call.get() for call in as_completed(calls)) == 10_000 * 9_999


def test_threads_share_a_grid(grid):
    sums = []
    threads = [threading.Thread(target=lambda: sums.append(sum(grid.map(twice, range(100))))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [9900] * 4


def test_plain_calls_and_groups_run_concurrently(grid, gate):
    call = grid.run(stop, str(gate.path), 1)
    running(gate)
    with grid.group():
        handle = grid.function("tests/halve")(np.ones(2))[1]
    gate.open()
    assert handle.get() == 0.5
    assert call.get() == 1


def test_a_call_goes_to_the_server_that_typed_calls_leave_idle(program, gate):
    functions = Path(__file__).parent / "functions.py"
    with gl.local(servers=2, functions=[functions]) as grid:
        held = grid.function("tests/hold").submit(np.ones(2), str(gate.path))
        assert [grid.run(twice, n).get(timeout=60) for n in range(5)] == [0, 2, 4, 6, 8]
        assert not held.done()
        gate.open()
        assert held.get().tolist() == [2.0, 2.0]


def test_a_lost_server_does_not_lose_its_calls(program, tmp_path):
    with gl.local(servers=2) as grid:
        gate = tmp_path / "gate"
        calls = [grid.run(stop, str(gate), n) for n in range(6)]
        wait_until(lambda: len(list(tmp_path.glob("gate.[0-9]*"))) == 2)
        os.kill(grid.server_processes()[0], 9)
        Path(f"{gate}.open").touch()
        assert [call.get() for call in calls] == list(range(6))


def test_the_end_of_a_grid_ends_its_calls(program, tmp_path):
    with gl.local(servers=1) as grid:
        calls = [grid.run(stop, str(tmp_path / "gate"), n) for n in range(20)]
    for call in calls:
        with pytest.raises(gl.UsageError, match="closed before .*:stop had ended"):
            call.get()
    with pytest.raises(gl.UsageError, match="closed"):
        grid.run(twice, 1)


def test_a_call_can_be_awaited(grid):
    import asyncio

    async def program():
        return await asyncio.gather(grid.run(twice, 1), grid.run(twice, 2))

    assert asyncio.run(program()) == [2, 4]


def test_numerical_libraries_share_the_processors(monkeypatch):
    def threads():
        return os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    with gl.local(1, slots=1 + len(os.sched_getaffinity(0))) as grid:
        assert grid.run(threads).result() == ("1", "7")
    with gl.local(1, environment={"OMP_NUM_THREADS": "3"}) as grid:
        assert grid.run(threads).result()[0] == "3"


async def later(x):
    import asyncio

    await asyncio.sleep(0)
    return 2 * x


async def counted(n):
    for number in range(n):
        yield number


def test_functions_that_await_run_to_their_end(grid):
    assert grid.run(later, 3).get() == 6
    assert list(grid.map(later, [1, 2], chunksize=2)) == [2, 4]
    with grid.stream(counted, 3) as values:
        assert list(values) == [0, 1, 2]
    with grid.stream(counted, 10**9, buffersize=1) as values:
        assert next(values) == 0


@pytest.mark.parametrize("function", [counted, lambda n: (x for x in range(n))], ids=["async", "generator"])
def test_a_generator_is_for_a_stream(grid, function):
    with pytest.raises(gl.SignatureError, match="it gives values one by one, which grid.stream takes"):
        grid.run(function, 3).get()


def test_a_file_for_which_there_is_no_room_is_reported(program, tmp_path):
    (tmp_path / "large").write_bytes(bytes(100_000))

    def limited():
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    with gl.local(servers=1, environment={"TMPDIR": str(tmp_path)}) as grid:
        grid.run(limited).get()
        with pytest.raises(gl.CannotRun, match=f"cannot be written to {tmp_path} on the server's machine: .*; free some space, or set TMPDIR"):
            grid.run(os.path.getsize, gl.File(tmp_path / "large")).get()


def test_a_working_directory_that_was_removed(program, tmp_path):
    text = (
        "import os, gridloom as gl\n"
        f"os.mkdir('{tmp_path}/gone'); os.chdir('{tmp_path}/gone'); os.rmdir('{tmp_path}/gone')\n"
        "with gl.local(servers=1) as grid:\n    print(grid.run(pow, 2, 3).get(), grid.run(lambda: 4).get())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.stdout == "8 4\n", done.stderr


def test_a_wait_that_is_cancelled_ends_the_call_where_it_runs(program, gate):
    import asyncio

    async def wait(grid):
        await asyncio.wait_for(grid.run(hang, str(gate.path)), 0.3)

    with gl.local(servers=1) as grid:
        assert grid.run(twice, 1).get(60) == 2
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(wait(grid))
        assert grid.run(twice, 2).get(60) == 4


def test_a_call_may_have_a_time_limit(program, gate):
    with gl.local(servers=1) as grid:
        assert grid.options(timeout=60).run(twice, 1).get(60) == 2
        call = grid.options(timeout=0.3, retries=2).run(hang, str(gate.path))
        with pytest.raises(gl.TimedOut, match="time limit of 0.3 s"):
            call.get(60)
        assert grid.run(twice, 2).get(60) == 4
        with pytest.raises(gl.UsageError, match="options: timeout is a number of seconds"):
            grid.options(timeout=-1)


def test_a_wait_that_is_too_long_reports_it(grid, gate):
    held = grid.run(stop, str(gate.path))
    running(gate)
    for wait in (held.get, held.result, held.exception):
        with pytest.raises(FuturesTimeoutError, match=r"sent_functions:stop has not ended within 0.01 s; it is still running: get\(\) waits again"):
            wait(0.01)
    with pytest.raises(FuturesTimeoutError, match="a result of the map was not there within 0.01 s"):
        next(grid.map(stop, [str(gate.path)], timeout=0.01))
    gate.open()
    assert held.get(60) is None

    def times_out():
        raise TimeoutError("of the function")

    with pytest.raises(TimeoutError, match="^of the function$"):
        grid.run(times_out).get(60)
    with pytest.raises(TimeoutError, match="^of the function$"):
        next(grid.map(lambda _: times_out(), [1], timeout=60))
