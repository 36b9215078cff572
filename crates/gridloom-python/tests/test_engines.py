"""Groups on clusters of other systems: what each engine keeps, with one in this process and a Dask cluster of two workers."""

import builtins
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings

import cloudpickle
import gridloom as gl
import numpy as np
import pytest
from gridloom.engines import cluster as engine_cluster
from gridloom.engines import dask as dask_engine
from gridloom.engines.protocol import Measured, NotYet, ResultLost
from gridloom.engines.ray import RayEngine
from gridloom.session.opening import connect_engine
from numpy.typing import NDArray

Square = gl.Array[NDArray[np.float64], "n", "n"]
gl_module = "engines"


@gl.function(work="2*n*n*n")
def product(a: Square, b: Square) -> Square:
    return a @ b


@gl.function(work="n*n")
def sums(a: Square) -> tuple[gl.Out[float, "total"], gl.Out[gl.Array[NDArray[np.float64], "n"], "diagonal"]]:
    return float(a.sum()), np.diagonal(a).copy()


@gl.function(work="1")
def half(x: float) -> float:
    return x / 2


@gl.function(work="1e9")
def process(x: float) -> int:
    import os

    return os.getpid()


@gl.function(work="1")
def fails(x: float) -> float:
    raise KeyError(f"no {x}")


@gl.function(work="1")
def is_late(x: float) -> float:
    raise TimeoutError(f"{x} is late")


@gl.function(work="1e9")
def dies_once(path: str, x: float) -> float:
    import os
    import pathlib

    try:
        pathlib.Path(path).touch(exist_ok=False)
    except FileExistsError:
        return x + 1
    os._exit(1)


# A module that workers do not have.
sys.modules["absent_there"] = absent_there = types.ModuleType("absent_there")


@gl.function(work="1")
def needs_more(x: float) -> float:
    return absent_there.scale * x


@gl.function(work="1")
def wrong(x: float) -> float:
    return (one for one in (x, x))


@gl.function(work="1")
def reshaped(a: Square) -> gl.Array[NDArray[np.float64], "n"]:
    return a


@gl.function(work="1")
def waits_for(path: str, a: Square) -> Square:
    import pathlib
    import time

    while not pathlib.Path(path).exists():
        time.sleep(0.01)
    return a


FUNCTIONS = [product, sums, half, process, fails, is_late, dies_once, needs_more, wrong, reshaped, waits_for]


class Fake:
    """Runs calls in this process, when they are asked for."""

    recovers = False
    dumps = staticmethod(cloudpickle.dumps)

    def __init__(self):
        self.there, self.ran, self.ahead, self.dying = ["w0", "w1"], {}, [], None
        self.noted, self.launches, self.waits, self.submitter = [], 0, 0, None

    def workers(self):
        return list(self.there)

    def probe(self):
        both = dict.fromkeys(self.there, 1e9)
        return Measured(dict.fromkeys(self.there, 1), both, both, {("w0", "w1"): 1e9}, 1e-4)

    def submit(self, key, body, args, worker, rank):
        assert all("body" in one for one in args if isinstance(one, dict))
        # One thread at a time submits and launches.
        assert self.submitter in (None, threading.get_ident())
        self.submitter = threading.get_ident()
        time.sleep(0)
        self.noted.append({"key": key, "body": body, "args": args, "worker": worker, "rank": rank, "is_sent": False})
        return self.noted[-1]

    def prefetch(self, key, result, worker, rank):
        self.ahead.append((result["key"], worker))

    def launch(self):
        self.launches += 1
        while self.noted:
            self.noted.pop()["is_sent"] = True
        self.submitter = None

    def discard(self):
        self.noted.clear()
        self.submitter = None

    def wait(self, results, timeout):
        self.waits += 1
        for place, one in enumerate(results):
            try:
                self.collect(one, timeout)
            except (NotYet, ResultLost):
                raise
            except Exception:
                return place
        return None

    def collect(self, result, timeout):
        waiting = [result]
        while waiting:
            call = waiting[-1]
            assert call["is_sent"]
            if call["worker"] not in self.there:
                raise NotYet
            if self.dying == call["worker"]:
                self.there.remove(self.dying)
                raise ResultLost("it died")
            if before := [one for one in call["args"] if isinstance(one, dict) and "value" not in one]:
                waiting += before
                continue
            waiting.pop()
            if "value" not in call:
                args = [one["value"] if isinstance(one, dict) else one for one in call["args"]]
                self.ran[call["key"]] = (float(call["rank"]), call["rank"] + 0.5, call["worker"])
                call["value"] = call["body"](*args)
        return result["value"]

    def times(self, keys):
        return {key: self.ran[key] for key in keys}

    def close(self):
        self.there = []


@contextlib.contextmanager
def bare(tmp_path_factory):
    """Processes begun meanwhile cannot import gridloom: a cluster needs nothing of it."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['gridloom'] = None\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.fspath(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with bare(tmp_path_factory):
        cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with cluster:
        yield cluster


# Losses are noticed within a second or two.
QUICK = {"health_check_period_ms": 500, "health_check_failure_threshold": 2, "health_check_initial_delay_ms": 0}


@pytest.fixture(scope="module", autouse=True)
def _as_it_was():
    """Ray puts its own `print` and debugger in place of Python's, for all that runs in this process afterwards."""
    printed, debugger, hook = builtins.print, os.environ.get("PYTHONBREAKPOINT"), sys.breakpointhook
    yield
    builtins.print, sys.breakpointhook = printed, hook
    os.environ.pop("PYTHONBREAKPOINT", None)
    if debugger is not None:
        os.environ["PYTHONBREAKPOINT"] = debugger


@pytest.fixture(scope="module")
def rays(tmp_path_factory):
    """A Ray cluster of two nodes, to which this process has a session."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    with bare(tmp_path_factory):
        cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, "_system_config": QUICK})
    try:
        with bare(tmp_path_factory):
            cluster.add_node()
        ray.init(cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        started = [info.process for node in cluster.list_all_nodes() for of in node.all_processes.values() for info in of]
        cluster.shutdown()
        assert all(one.poll() is not None for one in started)


@pytest.fixture(params=["fake", "dask", "ray"])
def grid(request):
    if request.param == "fake":
        engine = Fake()
        with connect_engine(engine, FUNCTIONS) as grid:
            yield grid
        return
    if request.param == "ray":
        request.getfixturevalue("rays")
        with gl.connect(pytest.importorskip("ray"), functions=FUNCTIONS) as grid:
            yield grid
        return
    address = request.getfixturevalue("cluster").scheduler_address
    with gl.connect(address.replace("tcp://", "dask://"), functions=FUNCTIONS) as grid:
        yield grid


def test_a_group_matches_its_functions(grid):
    a, b = np.random.default_rng(1).standard_normal((2, 200, 200))
    with grid.group() as group:
        ab, ba = grid.function(product)(a, b), grid.function("engines/product")(b, a)
        total, diagonal = grid.function(sums)(grid.function(product)(ab, ba))
        quarter = grid.function(half)(grid.function(half)(total))
    assert np.allclose(diagonal.get(), np.diagonal(a @ b @ b @ a))
    assert quarter.get() == total.get() / 4
    report = group.report()
    assert len(report.tasks) == 6 and report.predicted_seconds > 0 and report.measured_seconds > 0
    assert {one.function for one in report.tasks} == {"engines/product", "engines/sums", "engines/half"}
    # Each call ran where the plan has it.
    assert all(one.server == report.planned[one.task] for one in report.tasks)
    assert str(report).startswith("6 calls on ") and "not where" not in str(report)
    # Results of a group are arguments of the next one, and of a call by itself.
    with grid.group():
        again = grid.function(sums)(ab)
    assert again[0].get() == pytest.approx((a @ b).sum())
    assert grid.function(half)(total) == total.get() / 2


def test_workers_and_links_are_measured(grid):
    measured, names = grid._cluster.measured, sorted(grid._cluster.measured.slots)
    assert len(names) == 2 and set(measured.speed) == set(measured.client_bytes_per_s) == set(names)
    assert list(measured.direct_bytes_per_s) == [tuple(names)]
    assert all(
        one > 1e5 for one in [*measured.speed.values(), *measured.client_bytes_per_s.values(), *measured.direct_bytes_per_s.values()]
    )


def test_heuristics_choose_the_workers(grid):
    names = sorted(grid._cluster.measured.slots)
    with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]) as group:
        processes = [grid.function(process)(float(n)) for n in range(4)]
    values = [one.get() for one in processes]
    report = group.report()
    assert sorted(report.planned.values()) == sorted(names * 2)
    assert len(set(values)) == len({one.server for one in report.tasks}) or len(set(values)) == 1
    with grid.group():
        pinned = grid.function(process).on(names[1])(1.0)
    assert pinned.get() in values


def test_errors_are_reported_as_on_a_grid(grid):
    with pytest.raises(gl.ArgumentError, match=r"argument 'b' has shape \[3\], expected \[n, n\] of 2 dimensions"):
        grid.function(product)(np.ones((3, 3)), np.ones(3))
    with grid.group() as group:
        failed = grid.function(half)(grid.function(fails)(2.0))
    for attempt in (failed.get, group.wait):
        with pytest.raises(KeyError, match="no 2.0"):
            attempt()
    # Not that the wait has ended.
    with pytest.raises(TimeoutError, match="2.0 is late"):
        grid.function(is_late)(2.0)
    for name, arguments in {"run": (half, 1), "map": (half, [1]), "put": ("x", 1), "get": ("x",), "empty": (3,), "links": ()}.items():
        with pytest.raises(gl.UsageError, match=f"Grid.{name} is not there on an engine"):
            getattr(grid, name)(*arguments)
    with pytest.raises(gl.UsageError, match="no option 'regroup'"):
        grid.group(regroup=2)
    with pytest.raises(gl.UsageError, match="recorded in groups"):
        grid.function(half).submit(1.0)
    with pytest.raises(gl.UnknownName):
        grid.function("engines/other")


def test_the_first_error_does_not_wait_for_other_calls(grid, tmp_path, monkeypatch):
    def group(waited, *functions):
        # The places of others are looked at in turn.
        monkeypatch.setattr(engine_cluster, "_WAITED_MAX", waited)
        gate = tmp_path / f"open-{waited}"
        given = {fails: [3.0], half: [4.0], waits_for: [os.fspath(gate), np.ones((2, 2))]}
        with grid.group(lambda problem: [int(one is waits_for) for one in functions]) as group:
            results = [grid.function(one)(*given[one]) for one in functions]
        try:
            with pytest.raises(KeyError, match="no 3.0"):
                group.wait()
        finally:
            gate.touch()
        assert results[functions.index(waits_for)].get().sum() == 4

    group(1000, fails, waits_for)
    # The fake runs calls in their order, when they are asked for.
    if not isinstance(grid._cluster._engine, Fake):
        group(999, waits_for, fails)
        group(1, waits_for, half, half, fails)


def test_a_traceback_has_the_function(grid):
    with grid.group():
        failed = grid.function(fails)(3.0)
    told = []
    for _ in range(2):
        with pytest.raises(KeyError, match="no 3.0") as caught:
            failed.get()
        told.append("".join(traceback.format_exception(caught.value)))
    assert "in fails\n" in told[0]
    # It does not grow.
    assert told[0].count("in collect\n") == told[1].count("in collect\n")


class Matrix:
    """Becomes an array, and cannot be pickled."""

    def __array__(self, dtype=None, copy=None):
        return np.ones((100, 100))

    def __reduce__(self):
        raise TypeError("a Matrix cannot be pickled")


def test_arguments_are_sent_as_arrays(grid):
    rows = np.ones((100, 100)).tolist()
    assert np.array_equal(grid.function(product)(Matrix(), rows), 100 * np.ones((100, 100)))
    # What is as large goes straight to its worker.
    if (sent := getattr(grid._cluster._engine, "_client", None)) is not None:
        with pytest.MonkeyPatch.context() as patch:
            scattered = []
            patch.setattr(sent, "scatter", lambda value, **more: (scattered.append(value.nbytes), type(sent).scatter(sent, value, **more))[1])
            grid.function(product)(rows, rows)
        assert scattered == [80_000, 80_000]


def test_a_submission_that_fails_leaves_the_session_as_it_was(grid, monkeypatch):
    calls, submit = [], grid._cluster._engine.submit

    def refuses_third(key, *more):
        calls.append(key)
        if len(calls) == 3:
            raise RuntimeError("the third one")
        return submit(key, *more)

    monkeypatch.setattr(grid._cluster._engine, "submit", refuses_third)
    with pytest.raises(RuntimeError, match="the third one"), grid.group():
        halves = [grid.function(half)(float(n)) for n in range(5)]
    assert grid.function(half)(3.0) == 1.5
    assert [one.get() for one in halves] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_threads_call_functions_of_one_grid(grid):
    count = 100 if isinstance(grid._cluster._engine, Fake) else 20

    def run(thread):
        return [grid.function(half)(float(2 * n + thread)) for n in range(count)]

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(run, range(4))) == [[n + thread / 2 for n in range(count)] for thread in range(4)]


@pytest.fixture
def dask_grid(cluster):
    with gl.connect(cluster.scheduler_address.replace("tcp://", "dask://"), functions=FUNCTIONS) as grid:
        yield grid


def once(method, error, call=1):
    """The method, which raises that at that call of it."""
    calls = itertools.count(1)

    def raising(*args, **kwargs):
        if next(calls) == call:
            raise error
        return method(*args, **kwargs)

    return raising


@pytest.mark.parametrize("graph", [1, 2])
def test_a_graph_that_is_not_sent_leaves_the_session_of_dask_as_it_was(dask_grid, monkeypatch, graph):
    client = dask_grid._cluster._engine._client
    monkeypatch.setattr(dask_engine, "_GRAPH_TASKS_MAX", 3)
    monkeypatch.setattr(client, "get", once(client.get, TypeError("cannot be pickled"), graph))
    with pytest.raises(TypeError, match="cannot be pickled"), dask_grid.group():
        halves = [dask_grid.function(half)(float(n)) for n in range(5)]
    assert dask_grid.function(half)(3.0) == 1.5
    assert [one.get() for one in halves] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_group_goes_to_dask_in_several_graphs(dask_grid, monkeypatch, tmp_path):
    client, graphs = dask_grid._cluster._engine._client, []
    monkeypatch.setattr(dask_engine, "_GRAPH_TASKS_MAX", 3)
    monkeypatch.setattr(client, "get", lambda *args, **kwargs: (graphs.append(args), type(client).get(client, *args, **kwargs))[1])
    x = np.ones((200, 200))
    with dask_grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]) as group:
        squares = [dask_grid.function(product)(x, x) for _ in range(3)]
        died = dask_grid.function(dies_once)(os.fspath(tmp_path / "died"), 3.0)
        both = [dask_grid.function(sums)(one) for one in squares]
        halves = [dask_grid.function(half)(total) for total, _ in both]
    assert len(graphs) >= 4
    group.wait()
    assert died.get() == 4.0
    assert [one.get() for one in halves] == [200.0**3 / 2] * 3
    assert all(np.array_equal(diagonal.get(), np.full(200, 200.0)) for _, diagonal in both)


def test_an_argument_that_does_not_reach_its_worker_is_sent_again(dask_grid, monkeypatch):
    client, x = dask_grid._cluster._engine._client, np.ones((200, 200))
    monkeypatch.setattr(client, "scatter", once(client.scatter, TimeoutError("No valid workers found")))
    assert dask_grid.function(product)(x, x)[0, 0] == 200


def test_functions_that_dask_has_lost_are_sent_again(dask_grid):
    with dask_grid.group(lambda problem: [0]):
        first = dask_grid.function(half)(3.0)
    assert first.get() == 1.5
    dask_grid._cluster._engine._client.cancel([one.future for one in dask_grid._cluster._engine._functions.values()], force=True)
    with dask_grid.group(lambda problem: [0] * len(problem.tasks)) as group:
        halves = [dask_grid.function(half)(float(n)) for n in range(5)]
    group.wait()
    assert [one.get() for one in halves] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_unsupported_requests_to_workers_are_reported(grid, monkeypatch):
    if isinstance(grid._cluster._engine, Fake):
        monkeypatch.delitem(sys.modules, "absent_there")
    with pytest.raises(gl.CannotRun, match="engines/needs_more on .*: it needs the module 'absent_there', which the worker cannot import"):
        grid.function(needs_more)(1.0)
    with pytest.raises(gl.SignatureError, match="engines/wrong on .*: result 'out0': expected float64, got generator"):
        grid.function(wrong)(1.0)
    with grid.group():
        row = grid.function(reshaped)(np.ones((3, 3)))
    with pytest.raises(gl.SignatureError, match=r"result 'out0': expected float64\[3\], got float64\[3, 3\]") as caught:
        row.get()
    assert caught.value.function == "engines/reshaped"


def test_a_worker_that_dies_loses_no_result(grid, tmp_path):
    noted = os.fspath(tmp_path / "died")
    x = np.ones((100, 100))
    with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
        first = grid.function(product)(x, x)
        if isinstance(grid._cluster._engine, Fake):
            grid._cluster._engine.dying = sorted(grid._cluster.measured.slots)[1]
            second = grid.function(half)(8.0)
        else:
            second = grid.function(dies_once)(noted, 3.0)
        third = grid.function(product)(first, first)
    assert second.get() == 4.0
    assert np.array_equal(third.get(), x @ x @ x @ x)


def test_a_node_of_ray_that_is_killed_loses_no_result(rays, tmp_path):
    ray = pytest.importorskip("ray")
    third = rays.add_node()
    with gl.connect(ray, functions=[product, waits_for, half]) as grid:
        assert len(grid._cluster.measured.slots) == 3
        x, gate = np.ones((300, 300)), tmp_path / "open"
        with grid.group(lambda problem: [index % 3 for index in range(len(problem.tasks))]) as group:
            made = [grid.function(product)(x, x) for _ in range(3)]
            held = [grid.function(waits_for)(os.fspath(gate), one) for one in made]
            ends = [grid.function(product)(one, one) for one in held]
        # All is made, also there, and nothing has gone on.
        assert all(one.get()[0, 0] == 300 for one in made)
        rays.remove_node(third, allow_graceful=False)
        gate.touch()
        assert all(np.array_equal(one.get(), x @ x @ x @ x) for one in ends)
        assert "not where the plan has them" in str(group.report())
        assert grid.function(half)(3.0) == 1.5


def test_a_session_of_ray_that_has_ended_is_reported(rays, monkeypatch):
    ray = pytest.importorskip("ray")
    with gl.connect(ray, functions=[half]) as grid:
        with pytest.raises(gl.UsageError, match="this process has a session of Ray"):
            gl.connect("ray://127.0.0.1:1", functions=[half])
        ray.shutdown()
        with pytest.raises(gl.ServerLost, match="the session of Ray has ended"):
            grid.function(half)(1.0)
    with pytest.raises(gl.UsageError, match="Ray has no session in this process"):
        gl.connect(ray, functions=[half])
    with monkeypatch.context() as patch:
        patch.setattr(ray, "__version__", "2.60.99")
        with pytest.raises(gl.ConnectError, match=r"Version mismatch: .*\n.*Ray: 2.*\n(.*\n)+ *Ray: 2.60.99"):
            RayEngine(rays.address)
    engine = RayEngine(rays.address)
    assert len(engine.workers()) == 2
    engine.close()
    assert not ray.is_initialized()
    ray.init(rays.address, log_to_driver=False)


def test_many_calls_are_sent_and_waited_for_together(grid):
    with grid.group() as group:
        many = [grid.function(half)(float(n)) for n in range(2_500)]
        last = grid.function(half)(many[-1])
    group.wait()
    assert [one.get() for one in (*many[::500], last)] == [0.0, 250.0, 500.0, 750.0, 1000.0, 2499 / 4]
    if isinstance(grid._cluster._engine, Fake):
        assert (grid._cluster._engine.launches, grid._cluster._engine.waits) == (1, 3)


def test_a_hundred_thousand_calls_are_run():
    engine = Fake()
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group() as group:
            many = [grid.function(half)(float(n)) for n in range(100_000)]
        group.wait()
        assert many[-1].get() == 99_999 / 2 and len(engine.ran) == 100_000
        assert (engine.launches, engine.waits) == (1, 100)


def test_a_long_chain_is_made_again():
    engine = Fake()
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
            last = 2.0**1000
            for _ in range(2_000):
                last = grid.function(half)(last)
        engine.dying = "w1"
        assert last.get() == 2.0**-1000


def test_the_last_worker_that_dies_is_reported():
    engine = Fake()
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group():
            one = grid.function(half)(1.0)
        engine.there.clear()
        with pytest.raises(gl.ServerLost, match="the cluster has lost all workers that it had: w0, w1"):
            one.get()


def test_large_results_are_sent_before_all_inputs_exist():
    engine = Fake()
    with connect_engine(engine, FUNCTIONS) as grid:
        x = np.ones((400, 400))
        with grid.group(lambda problem: [0, 1, 0]):
            made = grid.function(product)(x, x), grid.function(product)(x, x)
            last = grid.function(product)(*made)
        assert [worker for _, worker in engine.ahead] == ["w0"]
        assert np.array_equal(last.get(), x @ x @ x @ x)


def test_a_cluster_of_dask_that_dies_and_restarts(tmp_path):
    pytest.importorskip("distributed", reason="distributed is not installed")
    (port,) = free_ports(1)
    dask, quiet = [sys.executable, "-m", "dask"], {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = [*dask, "worker", f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with contextlib.ExitStack() as parts:

        def start(command):
            part = parts.enter_context(subprocess.Popen(command, cwd=tmp_path, **quiet))
            parts.callback(part.kill)
            return part

        def connected():
            # Until the worker is there.
            while True:
                with contextlib.suppress(gl.ConnectError):
                    return gl.connect(f"dask://127.0.0.1:{port}", functions=[waits_for, half])

        started = [start(scheduler), start(worker)]
        gate = tmp_path / "open"
        with connected() as grid:
            with grid.group():
                held = grid.function(waits_for)(os.fspath(gate), np.ones((2, 2)))
            for part in started:
                part.kill()
                part.wait()
            with pytest.raises(gl.ServerLost, match="the Dask scheduler at .* answers no more: .*; when it is back, connect anew"):
                held.get()
            start(scheduler), start(worker)
            gate.touch()
            with pytest.raises(gl.ServerLost, match="connect anew"):
                grid.function(half)(1.0)
        with connected() as grid:
            assert grid.function(half)(1.0) == 0.5


def test_a_dask_of_another_release_runs_groups(tmp_path):
    """A scheduler and a worker of the release before, and a worker of that of the program."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    before = pathlib.Path(sys.prefix) / "dask-before"
    if not (before / "ready").exists():
        pytest.skip("the release before is not installed: make .venv/dask-before/ready")
    (port,) = free_ports(1)
    dask, quiet = [sys.executable, "-m", "dask"], {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    old = {**os.environ, "PYTHONPATH": os.fspath(before)}
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = [*dask, "worker", f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with contextlib.ExitStack() as parts:
        for command, environment in ((scheduler, old), (worker, old), (worker, dict(os.environ))):
            part = parts.enter_context(subprocess.Popen(command, cwd=tmp_path, env=environment, **quiet))
            parts.callback(part.kill)
        while True:
            with contextlib.suppress(gl.ConnectError), warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                grid = gl.connect(f"dask://127.0.0.1:{port}", functions=[product])
                if len(grid._cluster.measured.slots) == 2:
                    break
                grid.close()
        assert "has distributed 2026.7.1" in str([one.message for one in told if one.category is gl.ConnectWarning][0])
        with grid:
            x = np.random.default_rng(1).standard_normal((400, 400))
            with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
                square = grid.function(product)(x, x)
                last = grid.function(product)(square, square)
            assert np.allclose(last.get(), x @ x @ x @ x)


# A program of its own: a process has one session of Ray.
LOSES_RAY = """
import sys

import gridloom as gl
import test_engines

address, gate = sys.argv[1:]
with gl.connect(address, functions=[test_engines.waits_for, test_engines.half]) as grid:
    with grid.group():
        held = grid.function(test_engines.waits_for)(gate, test_engines.np.ones((2, 2)))
    print("held", flush=True)
    for call in (held.get, lambda: grid.function(test_engines.half)(1.0)):
        try:
            print("no error", call())
        except gl.ServerLost as error:
            print(" ".join(str(error).split()), flush=True)
input()
with gl.connect(address, functions=[test_engines.half]) as grid:
    print(grid.function(test_engines.half)(1.0))
"""


def free_ports(count):
    with contextlib.ExitStack() as taken:
        sockets = [taken.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def test_a_cluster_of_ray_that_dies_and_restarts(tmp_path, tmp_path_factory):
    pytest.importorskip("ray", reason="ray is not installed")
    ports = free_ports(2)
    # Names of sockets have a limit.
    with contextlib.ExitStack() as parts, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as place:
        ray = [os.fspath(pathlib.Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--disable-usage-stats"]
        ray += ["--port", str(ports[0]), "--ray-client-server-port", str(ports[1]), "--node-ip-address", "127.0.0.1"]
        ray += ["--include-dashboard=false", "--num-cpus", "1", "--object-store-memory", str(100 << 20), "--temp-dir", place]
        # Else the program and the cluster wait half a minute for each other.
        soon = {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "3", "RAY_AUTH_MODE": "disabled"}

        def killed(part):
            # Its processes are in its group, but for workers, which end with them.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)
            part.wait()

        def started():
            with bare(tmp_path_factory):
                quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                part = subprocess.Popen(ray, env={**os.environ, **soon}, start_new_session=True, **quiet)
            parts.callback(killed, part)
            said = ""
            while "Ray runtime started" not in said:
                line = part.stdout.readline()
                assert line, said
                said += line
            return part

        first = started()
        path = os.pathsep.join([os.fspath(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        words = [sys.executable, "-c", LOSES_RAY, f"ray://127.0.0.1:{ports[1]}", os.fspath(tmp_path / "open")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        program = parts.enter_context(subprocess.Popen(words, env={**os.environ, **soon, "PYTHONPATH": path}, **pipes))
        parts.callback(program.kill)
        assert program.stdout.readline() == "held\n"
        killed(first)
        assert re.match("the Ray cluster answers no more: .*; when it is back, connect anew", program.stdout.readline())
        assert program.stdout.readline() == "the session of Ray has ended: connect anew, when the cluster is there\n"
        started()
        assert program.communicate("\n")[0] == "0.5\n"
        assert program.returncode == 0


def test_an_open_client_is_taken_and_stays_open(cluster):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster, set_as_default=False) as client:
        with gl.connect(client, functions=[half]) as grid:
            assert grid.function(half)(3.0) == 1.5
        assert client.submit(int, 3).result() == 3


def test_workers_of_another_python_are_refused(cluster, monkeypatch):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster, set_as_default=False) as client:
        versions = client.get_versions()
        worker = min(versions["workers"])
        versions["workers"][worker]["host"]["python"] = "3.9.1.final.0"
        monkeypatch.setattr(client, "get_versions", lambda: versions)
        with pytest.raises(gl.ConnectError, match=f"the Dask worker at {worker} has Python 3.9, and this program 3"):
            gl.connect(client, functions=[half])


def test_versions_that_were_not_tried_are_reported(cluster, monkeypatch):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster, set_as_default=False) as client:
        versions = client.get_versions()
        ours = versions["client"]["packages"]["distributed"]
        for about in (versions["client"], versions["scheduler"], *versions["workers"].values()):
            about["packages"]["distributed"] = "2031.2.0"
        worker = min(versions["workers"])
        versions["workers"][worker]["packages"]["distributed"] = ours
        monkeypatch.setattr(client, "get_versions", lambda: versions)
        with pytest.warns(gl.ConnectWarning) as told, gl.connect(client, functions=[half]) as grid:
            assert grid.function(half)(3.0) == 1.5
    assert [str(one.message) for one in told if one.category is gl.ConnectWarning] == [
        f"the Dask worker at {worker} has distributed {ours}, and this program 2031.2.0: calls may fail; install one version everywhere",
        "this program has distributed 2031.2.0, and this version of Gridloom was tried with 2026.8: if calls fail, install that one",
    ]
    assert all(one.filename == __file__ for one in told if one.category is gl.ConnectWarning)


def test_a_ray_that_was_not_tried_is_reported(rays, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "__version__", "2.61.0")
    with pytest.warns(gl.ConnectWarning, match="this program has Ray 2.61.0, and this version of Gridloom was tried with 2.60") as told:
        gl.connect(ray, functions=[half]).close()
    assert told[0].filename == __file__


def test_invalid_arguments_are_rejected(cluster):
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with pytest.raises(gl.UsageError, match=r"needs them at the beginning: gridloom.connect\(..., functions=\[f, g\]\); got \[\]"):
        gl.connect(address)
    with pytest.raises(gl.UsageError, match="functions are for a cluster of Dask or Ray"):
        gl.connect("127.0.0.1:1", functions=[half])
    with pytest.raises(gl.UsageError, match="expected an address, an open distributed.Client, or ray, got int 5"):
        gl.connect(5, functions=[half])
    with pytest.raises(gl.UsageError, match="not both"):
        gl.connect(address, servers=["127.0.0.1:1"], functions=[half])
