"""Functions that hang, print without end, fork, crash, change their process, or return what nobody expects.

Each harms its own call at most: the caller gets a named error, and the slot takes the next call.
"""

import asyncio
import ctypes
import importlib.util
import itertools
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from test_any_function import running, stop, twice

PROGRAM = Path(gl.__file__).parent / "bin" / "gridloom"

DECLARED = '''
import os
import pickle
import time

import gridloom as gl
import numpy as np


@gl.function
def hang() -> None:
    while True:
        time.sleep(0.01)


@gl.function
def fails(characters: int) -> None:
    raise ValueError("x" * characters)


@gl.function
def forks(x: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    child = os.fork()
    if child == 0:
        return 0 * x
    os.waitpid(child, 0)
    return x + 1


@gl.function
def zeros(n: int) -> gl.Array["float64", "n"]:
    return np.zeros(n)


@gl.function
def doubles(x: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    return 2 * x


@gl.function
def in_place(x: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    x *= 2
    return x


@gl.function
def four(pickled: bytes) -> gl.Array["float64", 4]:
    return pickle.loads(pickled)


@gl.function
def none(pickled: bytes) -> gl.Array["float64", 0, 3]:
    return pickle.loads(pickled)


@gl.function
def integer(pickled: bytes) -> int:
    return pickle.loads(pickled)


@gl.function
def number(pickled: bytes) -> float:
    return pickle.loads(pickled)


@gl.function
def byte(pickled: bytes) -> np.uint8:
    return pickle.loads(pickled)


@gl.function
def text(pickled: bytes) -> str:
    return pickle.loads(pickled)


@gl.function
def length(text: str) -> int:
    return len(text)


@gl.function
def single(pickled: bytes) -> np.float32:
    return pickle.loads(pickled)


@gl.function
def pair(pickled: bytes) -> tuple[int, float]:
    return pickle.loads(pickled)
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("bad") / "bad.py"
    path.write_text(DECLARED)
    return path


@pytest.fixture(scope="module")
def one(program, module):
    """A grid of one slot: what one call spoils, the next one meets."""
    with gl.local(servers=1, functions=[module], memory=64 << 20) as grid:
        yield grid


def is_free(grid):
    return grid.run(abs, -42).get(60) == 42


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- They do not end.


def test_a_time_limit_ends_a_function_that_hangs(one):
    with pytest.raises(gl.DeadlineExceeded):
        one.function("bad/hang")(timeout=0.05)
    assert is_free(one)


def test_a_call_that_runs_can_be_aborted(one, gate):
    call, behind = one.run(stop, str(gate.path)), one.run(twice, 2)
    running(gate)
    assert not call.cancel()
    call.abort()
    with pytest.raises(gl.Cancelled):
        call.get(60)
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


# --- They print.

PRINTS = """
import json, os, sys
import gridloom as gl

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def lines(stream):
    for _ in range(40_000):
        print("x" * 999, file=getattr(sys, stream))

def descriptor(number):
    for _ in range(40_000):
        os.write(number, b"x" * 999 + b"\\n")

def one_line(stream):
    for _ in range(40_000):
        getattr(sys, stream).write("x" * 1000)

heard = []
with gl.local(servers=1, slots=2, logs=lambda said: heard.append(len(said.text))) as grid:
    for _ in range(20):
        grid.run(abs, 1).get()
    before = peak()
    call = grid.run(globals()[sys.argv[1]], json.loads(sys.argv[2]))
    others = 0
    while not call.done():
        others += grid.run(abs, -1).get(60)
    call.get()
    print(json.dumps([peak() - before, sum(heard), others]))
"""
BOUND_BYTES = 16 << 20


@pytest.mark.parametrize(
    ("function", "where"),
    [
        ("lines", "stdout"),
        ("lines", "stderr"),
        ("descriptor", 1),
        ("one_line", "stdout"),
    ],
)
def test_what_a_function_prints_fills_no_memory(program, function, where):
    """Of 40 MB the program hears 1 MiB and a little more; the rest is for the log."""
    run = [sys.executable, "-c", PRINTS, function, json.dumps(where)]
    done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True)
    grown_bytes, heard, others = json.loads(done.stdout)
    assert grown_bytes < BOUND_BYTES and heard < 4 << 20 and others > 0


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


def test_a_forked_child_of_a_declared_function_answers_no_call(program, module):
    with gl.local(servers=1, functions=[module]) as grid:
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


def test_threads_that_go_on_do_not_spoil_the_next_call(one, gate):
    def fails_later(gate):
        threading.Thread(target=lambda: (stop(gate), fail())).start()
        return threading.active_count()

    assert one.run(fails_later, str(gate.path)).get(60) > 1
    running(gate)
    assert is_free(one)
    gate.open()
    assert is_free(one)


def test_a_crash_of_such_a_thread_ends_the_call_that_runs_then(one, gate, tmp_path):
    def crashes_later(gate):
        threading.Thread(target=lambda: (stop(gate), os._exit(7))).start()

    one.run(crashes_later, str(gate.path)).get(60)
    call = one.run(stop, str(tmp_path / "other"))
    running(gate)
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


def test_a_worker_without_its_socket_is_not_said_to_lack_memory(one):
    assert "memory" not in str(one.run(close_others).exception(60))


# --- They return or raise what cannot be sent.


class ExitsWhenRead:
    def __reduce__(self):
        return sys.exit, (5,)


class FailsWhenRead:
    def __reduce__(self):
        return int, ("no number",)


class ExitsWhenReadError(Exception):
    def __reduce__(self):
        return sys.exit, (5,)


class OtherWhenReadError(Exception):
    def __reduce__(self):
        return dict, ()


def raises(kind, *args):
    raise kind(*args)


def nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


def test_a_result_that_cannot_be_pickled_is_told(one):
    with pytest.raises(gl.WrongResult, match="generator: TypeError: .*; return plain data instead"):
        one.run(lambda: (n for n in range(3))).get(60)
    with pytest.raises(gl.WrongResult, match="list: .*recursion.*; return plain data instead"):
        one.run(nested, 100_000).get(60)
    with pytest.raises(gl.ArgumentError, match="argument 1, of type list, cannot be pickled"):
        one.run(len, nested(100_000))
    assert is_free(one)


@pytest.mark.parametrize("made", [ExitsWhenRead, FailsWhenRead])
def test_a_result_that_cannot_be_unpickled_is_told(one, made):
    with pytest.raises(gl.WrongResult, match=f"the result of .*{made.__name__} cannot be unpickled here: (SystemExit|ValueError)"):
        one.run(made).get(60)
    assert is_free(one)


def test_an_argument_that_cannot_be_unpickled_is_told(one):
    with pytest.raises(gl.CannotRun, match="an argument cannot be unpickled there: ValueError: .*'no number'"):
        one.run(twice, FailsWhenRead()).get(60)
    with pytest.raises(gl.Crashed, match=r"sys\.exit\(5\)"):
        one.run(twice, ExitsWhenRead()).get(60)
    assert is_free(one)


@pytest.mark.parametrize("kind", [ExitsWhenReadError, OtherWhenReadError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_that_cannot_be_raised_again_is_told(one, kind):
    with pytest.raises(gl.RemoteError) as caught:
        one.run(raises, kind, "why").get(60)
    error = caught.value
    assert (error.kind, error.message) == (kind.__name__, "why")
    assert "in raises\n" in error.traceback and "run_code" not in error.traceback
    assert is_free(one)


def test_a_gigantic_message_comes_once(one):
    with pytest.raises(ValueError) as caught:
        one.run(raises, ValueError, "x" * 1_000_000).get(60)
    assert len(str(caught.value)) == 1_000_000
    told = str(caught.value.__cause__)
    assert len(told) < 70_000 and "in raises\n" in told


def test_a_gigantic_message_of_a_declared_function_is_told(one):
    with pytest.raises(gl.RemoteError) as caught:
        one.function("bad/fails")(100_000_000, timeout=60)
    assert caught.value.kind == "ValueError"


def test_what_is_too_large_for_a_store_is_told_of_the_function(one):
    with pytest.raises(gl.ArgumentError, match="^builtins:len: its pickled arguments takes? 100.0 MB, more than"):
        one.run(len, bytes(100_000_000)).get(60)
    with pytest.raises(gl.StoreFull):
        one.function("bad/zeros")(20_000_000)
    assert is_free(one)


def test_stop_iteration_ends_no_iterator(one):
    async def awaited():
        return await one.run(raises, StopIteration)

    assert isinstance(one.run(raises, StopIteration, 3).exception(60), StopIteration)
    with pytest.raises(RuntimeError):
        asyncio.run(asyncio.wait_for(awaited(), 60))
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(one.map(raises, [StopIteration]))


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


# --- They return another type or shape than they declare, or change what they are given.

FOUR = np.arange(4.0)
RIGHT = {
    "list": ("four", [0, 1, 2, 3], FOUR),
    "strided": ("four", np.arange(8.0)[::2] / 2, FOUR),
    "backwards": ("four", FOUR[::-1], FOUR[::-1]),
    "broadcast": ("four", np.broadcast_to(1.0, 4), np.ones(4)),
    "big-endian": ("four", FOUR.astype(">f8"), FOUR),
    "no numbers": ("four", np.array([np.nan, np.inf, -np.inf, -0.0]), np.array([np.nan, np.inf, -np.inf, -0.0])),
    "empty": ("none", np.zeros((0, 3)), np.zeros((0, 3))),
    "largest": ("integer", 2**63 - 1, 2**63 - 1),
    "whole": ("integer", 2.0, 2),
    "nan": ("number", float("nan"), np.nan),
    "-inf": ("number", float("-inf"), -np.inf),
    "NUL": ("text", "a\0b", "a\0b"),
}
WRONG = {
    "object array": ("four", FOUR.astype(object), r"expected float64\[4\], got object\[4\]"),
    "integers": ("four", np.arange(4), r"got int64\[4\]"),
    "large integers": ("four", [10**400, 1, 2, 3], r"got object\[4\]"),
    "shape": ("four", FOUR.reshape(2, 2), r"got float64\[2, 2\]"),
    "no array": ("four", None, r"got object\[\]"),
    "ragged": ("four", [[1], [2, 3]], "got list"),
    "empty": ("none", np.zeros((3, 0)), r"expected float64\[0, 3\], got float64\[3, 0\]"),
    "beyond 64 bits": ("integer", 2**63, "expected int64, got int 9223372036854775808"),
    "bool": ("integer", True, "got bool"),
    "nan": ("integer", float("nan"), "got float nan"),
    "beyond 8 bits": ("byte", 256, "expected uint8, got int 256"),
    "beyond floats": ("number", 10**400, "expected float64, got int"),
    "complex": ("number", 1j, "expected float64, got complex"),
    "bytes": ("text", b"x", "expected str, got bytes"),
    "three of two": ("pair", (1, 2.0, 3), "expected a tuple of 2 results, got 3"),
    "beyond the largest": ("single", 1e300, "expected float32, got float 1e.300"),
    "one of two": ("pair", 1, "expected a tuple of 2 results, got int 1"),
}


@pytest.mark.parametrize(("function", "value", "expected"), RIGHT.values(), ids=RIGHT)
def test_a_result_that_fits_is_taken(one, function, value, expected):
    np.testing.assert_array_equal(one.function(f"bad/{function}")(pickle.dumps(value)), expected)


@pytest.mark.parametrize(("function", "value", "told"), WRONG.values(), ids=WRONG)
def test_a_result_that_does_not_fit_is_told(one, function, value, told):
    with pytest.raises(gl.WrongResult, match=told):
        one.function(f"bad/{function}")(pickle.dumps(value))


def test_a_mask_is_not_dropped(one):
    with pytest.raises(gl.WrongResult, match="mask"):
        one.function("bad/four")(pickle.dumps(np.ma.array(FOUR, mask=[0, 1, 0, 0])))


def test_a_text_that_is_no_unicode_is_told(one):
    with pytest.raises(gl.WrongResult, match="surrogate|UTF-8|Unicode"):
        one.function("bad/text")(pickle.dumps("\ud800"))
    with pytest.raises(gl.ArgumentError, match="argument 'text'.*surrogate"):
        one.function("bad/length")("\ud800")


@pytest.mark.parametrize("length", [4, 100_000])
def test_nobody_sees_that_an_argument_was_changed(one, length):
    def in_place(x):
        x *= 2
        return x

    ours = np.ones(length)
    np.testing.assert_array_equal(one.run(in_place, ours).get(60), 2 * ours)
    with one.group() as group:
        made = one.function("bad/doubles")(ours)
        changed, read = one.function("bad/in_place")(made), one.function("bad/doubles")(made)
    group.launch()
    with pytest.raises(gl.RemoteError, match="read-only"):
        changed.get(60)
    np.testing.assert_array_equal(read.get(60), 4 * ours)
    np.testing.assert_array_equal(made.get(60), 2 * ours)
    assert (ours == 1).all()


# --- There are many, or the items are bad.


def test_a_hundred_thousand_calls(one):
    assert sum(one.map(twice, range(100_000), chunksize=100)) == 100_000 * 99_999


def test_an_iterable_that_fails_ends_the_results(one):
    def numbers():
        yield from range(10)
        raise KeyError("ten")

    results = one.map(twice, numbers(), lead=3)
    with pytest.raises(KeyError, match="ten"):
        list(results)
    assert list(results) == []


def test_a_generator_ends_with_the_results(one):
    ended = []

    def numbers():
        try:
            yield from itertools.count()
        finally:
            ended.append(True)

    results = one.map(twice, numbers())
    assert list(itertools.islice(results, 3)) == [0, 2, 4]
    results.close()
    assert ended == [True]


def test_a_generator_may_itself_run_calls(one):
    assert list(one.map(twice, (one.run(twice, n).get(60) for n in range(10)))) == [4 * n for n in range(10)]
    assert list(one.map(twice, one.map(twice, range(100)))) == [4 * n for n in range(100)]


# --- Where they run is not as expected.


class Grids:
    """An agent and servers as processes, which end with the test."""

    def __init__(self):
        self.processes = []

    def start(self, *arguments, **environment):
        """Give what it says when it is ready."""
        process = subprocess.Popen(
            [PROGRAM, *arguments, "--json", "--quiet", "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.processes.append(process)
        return json.loads(process.stdout.readline())["address"]

    def serve(self, *arguments, **environment):
        fixed = ("--run-code", "--python", sys.executable, "--slots", "1", "--models", "none")
        return self.start("serve", *fixed, *arguments, **environment)

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(30)
            process.stdout.close()


@pytest.fixture
def grids(program):
    grids = Grids()
    yield grids
    grids.end()


LOST = """
import sys
import gridloom as gl, numpy as np
from pathlib import Path

grid = gl.connect(sys.argv[1])
with grid.group() as group:
    held = grid.function("bad/zeros")(6_000_000)
    read = grid.function("bad/doubles")(held)
group.launch()
calls = {"group": grid.function("bad/hang"), "submit": grid.function("bad/hang")}
print(len(read.get()), flush=True)
del read
if sys.argv[2] == "group":
    with grid.group() as hangs:
        hanging = [calls["group"]() for _ in range(3)]
    hangs.launch()
elif sys.argv[2] == "submit":
    hanging = [calls["submit"].submit() for _ in range(3)]

def hold(gate):
    Path(gate).touch()
    while True:
        pass

if sys.argv[2] == "run":
    hanging = [grid.run(hold, sys.argv[3]) for _ in range(3)]
sys.stdin.read()
"""


@pytest.mark.parametrize("what", ["group", "submit", "run"])
def test_a_program_that_is_killed_leaves_nothing(grids, module, tmp_path, what):
    """As a kernel that restarts: slots and stores are free for the next program."""
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve(module, "--agent", agent, "--memory", str(100 << 20))
    run = [sys.executable, "-c", LOST, agent, what, tmp_path / "gate"]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout.readline() == "6000000\n"
        if what == "run":
            wait_until((tmp_path / "gate").exists)
        client.kill()
    with gl.connect(agent) as grid:
        # It fits if what the other held is released.
        assert len(grid.function("bad/zeros")(12_000_000, timeout=60)) == 12_000_000
        assert is_free(grid)


def test_a_program_that_is_killed_takes_its_local_grid_along(program):
    code = (
        "import gridloom as gl, sys, time\n"
        "grid = gl.local(servers=2)\n"
        "calls = [grid.run(time.sleep, 1000) for _ in range(4)]\n"
        "print(*grid.server_processes(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = [sys.executable, "-c", code]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        servers = client.stdout.readline().split()
        workers = [child for server in servers for child in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
        client.kill()
    wait_until(lambda: not any(map(is_alive, servers + workers)))


def test_a_local_grid_in_a_cell_that_runs_again(program):
    grid = gl.local(servers=1)
    assert is_free(grid)
    first = grid.server_processes()
    grid = gl.local(servers=1)
    assert is_free(grid)
    wait_until(lambda: not any(map(is_alive, first)))
    grid.close()


MODULE = """
import os

class Thing:
    pass

def server():
    return os.getppid()
"""


@pytest.fixture
def uneven(grids, tmp_path, monkeypatch):
    """Two servers, of which one has the module `only_one_has_it`."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "only_one_has_it.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "folder")
    addresses = [grids.serve("--no-agent", PYTHONPATH=path) for path in (str(tmp_path / "folder"), "")]
    with gl.connect(servers=addresses) as grid:
        yield grid
    sys.modules.pop("only_one_has_it", None)


def test_a_call_runs_where_its_module_is(uneven, grids):
    import only_one_has_it

    (server,) = {uneven.run(only_one_has_it.server).get(60) for _ in range(10)}
    assert server == grids.processes[0].pid
    assert set(uneven.map(lambda thing: os.getppid(), [only_one_has_it.Thing() for _ in range(10)])) == {server}
    with gl.Executor(grid=uneven) as executor:
        assert {executor.submit(only_one_has_it.server).result(60) for _ in range(10)} == {server}


def test_a_call_waits_for_the_server_that_has_its_module(uneven, gate, tmp_path):
    def hold(gate):
        if importlib.util.find_spec("only_one_has_it") is None:
            return "is not there"
        while not os.path.exists(f"{gate}.open"):
            time.sleep(0.001)
        return "held"

    def needs(folder):
        (Path(folder) / str(os.getpid())).touch(exist_ok=False)
        import only_one_has_it

        return only_one_has_it.server()

    (tmp_path / "runs").mkdir()
    holds = [uneven.run(hold, str(gate.path)) for _ in range(2)]
    wait_until(lambda: any(call.done() for call in holds))
    waits = uneven.run(needs, tmp_path / "runs")
    wait_until(lambda: list((tmp_path / "runs").iterdir()))
    # The free server takes other calls meanwhile, and not that one again.
    assert [uneven.run(pow, n, 2).get(60) for n in range(20)] == [n**2 for n in range(20)]
    assert not waits.done()
    gate.open()
    assert sorted(call.get(60) for call in holds) == ["held", "is not there"]
    assert waits.get(60) > 0 and len(list((tmp_path / "runs").iterdir())) == 2


def test_a_module_that_no_server_has_is_told(uneven, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "nobody_has_it.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "here")
    import nobody_has_it

    with pytest.raises(gl.CannotRun, match="module 'nobody_has_it', which the server cannot import"):
        uneven.run(nobody_has_it.server).get(60)
