"""Groups on Dask: the contract of all engines and what Dask alone does, on one cluster of two workers."""

import asyncio
import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import threading
import types
import warnings

import gridloom as gl
import numpy as np
import pytest
from engine_contract import Contract
from engine_functions import FUNCTIONS, bare, dies_once, free_ports, half, once, process, product, sums, waits_for
from gridloom.engines import dask as dask_engine
from gridloom.engines.protocol import NotYet

distributed = pytest.importorskip("distributed", reason="distributed is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with bare(tmp_path_factory):
        cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with cluster:
        yield cluster


@pytest.fixture(scope="class")
def grid(cluster):
    with gl.connect(cluster.scheduler_address.replace("tcp://", "dask://"), functions=FUNCTIONS) as grid:
        yield grid


class TestContract(Contract):
    pass


@pytest.fixture
def dask_grid(cluster):
    with gl.connect(cluster.scheduler_address.replace("tcp://", "dask://"), functions=FUNCTIONS) as grid:
        yield grid


@pytest.mark.parametrize("graph", [1, 2])
def test_a_graph_that_is_not_sent_leaves_the_session_of_dask_as_it_was(dask_grid, monkeypatch, graph):
    client = dask_grid._cluster._engine._client
    monkeypatch.setattr(dask_engine, "_GRAPH_TASKS_MAX", 3)
    monkeypatch.setattr(client, "get", once(client.get, TypeError("cannot be pickled"), graph))
    with pytest.raises(TypeError, match="cannot be pickled"), dask_grid.group():
        halves = [dask_grid.function(half)(float(n)) for n in range(5)]
    assert dask_grid.function(half)(3.0) == 1.5
    assert [one.get() for one in halves] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_an_argument_that_does_not_reach_its_worker_is_sent_again(dask_grid, monkeypatch):
    client, x = dask_grid._cluster._engine._client, np.ones((200, 200))
    monkeypatch.setattr(client, "scatter", once(client.scatter, TimeoutError("No valid workers found")))
    assert dask_grid.function(product)(x, x)[0, 0] == 200


def test_a_result_that_is_lost_while_it_is_collected_leaves_no_failed_task(dask_grid, monkeypatch, caplog):
    engine = dask_grid._cluster._engine
    client, sent = engine._client, dask_engine._Sent("key", "worker", 0)
    sent.future, sent.gather_seconds = client.submit(int, "7"), 0.1
    assert sent.future.result() == 7

    async def lost(*_):
        # Dask's own function also clears these. Otherwise the caller takes the same answer repeatedly, and its event loop hangs.
        client._gather_keys = client._gather_future = None
        return {"status": "error", "keys": [sent.future.key]}

    with monkeypatch.context() as patch:
        patch.setattr(client, "_gather_remote", lost)
        patch.setattr(client, "_send_to_scheduler", lambda message: None)
        with pytest.raises(NotYet):
            engine.collect(sent, 60)
    sent.future.cancel()
    for _ in range(5):
        client.sync(asyncio.sleep, 0)
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_functions_that_dask_has_lost_are_sent_again(dask_grid):
    with dask_grid.group(lambda problem: [0]):
        first = dask_grid.function(half)(3.0)
    assert first.get() == 1.5
    dask_grid._cluster._engine._client.cancel([one.future for one in dask_grid._cluster._engine._functions.values()], force=True)
    with dask_grid.group(lambda problem: [0] * len(problem.tasks)) as group:
        halves = [dask_grid.function(half)(float(n)) for n in range(5)]
    group.wait()
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


def test_an_open_client_is_taken_and_stays_open(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        with gl.connect(client, functions=[half]) as grid:
            assert grid.function(half)(3.0) == 1.5
        assert client.submit(int, 3).result() == 3


def test_workers_of_another_python_are_refused(cluster, monkeypatch):
    with distributed.Client(cluster, set_as_default=False) as client:
        versions = client.get_versions()
        worker = min(versions["workers"])
        versions["workers"][worker]["host"]["python"] = "3.9.1.final.0"
        monkeypatch.setattr(client, "get_versions", lambda: versions)
        with pytest.raises(gl.ConnectError, match=f"the Dask worker at {worker} has Python 3.9, and this program 3"):
            gl.connect(client, functions=[half])


def test_a_link_between_busy_workers_is_taken_for_one_like_the_programs(cluster, monkeypatch):
    def busy(*_):
        raise asyncio.TimeoutError

    monkeypatch.setattr(dask_engine.DaskEngine, "_between", busy)
    with distributed.Client(cluster, set_as_default=False) as client:
        # The test before may have ended a worker.
        client.wait_for_workers(2, timeout=60)
        with gl.connect(client, functions=[half]) as grid:
            measured = grid._cluster.measured
            assert measured.direct_bytes_per_s == {tuple(sorted(measured.slots)): min(measured.client_bytes_per_s.values())}
            assert grid.function(half)(3.0) == 1.5


def test_versions_that_were_not_tried_are_reported(cluster, monkeypatch):
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


def test_a_cluster_of_dask_that_dies_and_restarts(tmp_path):
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


@contextlib.contextmanager
def own_cluster(tmp_path_factory, **options):
    """A cluster whose workers end or change."""
    with bare(tmp_path_factory):
        cluster = distributed.LocalCluster(dashboard_address=None, silence_logs=50, **options)
    with cluster, gl.connect(cluster.scheduler_address.replace("tcp://", "dask://"), functions=[half, process, dies, lasts]) as grid:
        yield cluster, grid


@gl.function(work="1")
def dies(x: float) -> float:
    import os

    os._exit(1)


@gl.function(work="1")
def lasts(began: str, gate: str, x: float) -> float:
    import os
    import pathlib
    import time

    pathlib.Path(began, str(os.getpid())).touch()
    while not pathlib.Path(gate).exists():
        time.sleep(0.01)
    return x


def test_calls_that_kill_their_workers_do_not_fail_other_calls(tmp_path_factory, tmp_path):
    gate = tmp_path / "open"
    with own_cluster(tmp_path_factory, n_workers=2, threads_per_worker=3) as (_, grid):
        with grid.group():
            halves = [grid.function(half)(float(n)) for n in range(10)]
            # They run at the same time as the other calls.
            last = [grid.function(lasts)(os.fspath(tmp_path), os.fspath(gate), float(n)) for n in range(2)]
            killed = [grid.function(dies)(float(n)) for n in range(3)]
            others = [grid.function(half)(one) for one in halves]
        # Its next attempt waits for the end of the calls that run on that worker.
        while killed[0]._made_by.deaths < 2:
            with pytest.raises(gl.TimedOut):
                killed[0].get(timeout=0.1)
        gate.touch()
        for one in killed:
            with pytest.raises(gl.Crashed, match="its worker process ended while it ran, 3 times"):
                one.get()
        assert [one.get() for one in halves + others + last] == [*(n / 2 for n in range(10)), *(n / 4 for n in range(10)), 0.0, 1.0]


def test_calls_do_not_count_as_the_cause_when_workers_shut_down_on_request(tmp_path_factory, tmp_path):
    gate = tmp_path / "open"
    with own_cluster(tmp_path_factory, n_workers=1, threads_per_worker=1) as (cluster, grid):
        client = grid._cluster._engine._client
        with grid.group():
            held = grid.function(lasts)(os.fspath(tmp_path), os.fspath(gate), 3.0)

        def begins(times):
            while len(list(tmp_path.iterdir())) < times:
                with contextlib.suppress(gl.TimedOut):
                    held.get(timeout=0.1)

        begins(1)
        client.restart_workers(list(client.scheduler_info()["workers"]))
        begins(2)
        for times in (3, 4):
            leaving = list(client.scheduler_info()["workers"])
            cluster.scale(times)
            client.wait_for_workers(len(leaving) + 1)
            client.retire_workers(leaving)
            begins(times)
        assert held._made_by.deaths == 0
        gate.touch()
        assert held.get() == 3.0


def test_a_cluster_whose_workers_die_restart_and_join(tmp_path_factory):
    with own_cluster(tmp_path_factory, n_workers=2, threads_per_worker=2) as (cluster, grid):
        before = grid.function(half)(3.0)
        with grid.group():
            halves = [grid.function(half)(float(n)) for n in range(20)]
            killed = grid.function(dies)(1.0)
            others = [grid.function(half)(float(n)) for n in range(20)]
        with pytest.raises(gl.Crashed, match="/dies on worker-.*: its worker process ended while it ran, 3 times"):
            killed.get()
        assert [one.get() for one in halves + others] == [n / 2 for n in range(20)] * 2
        # Nannies have brought other workers.
        cluster.scale(3)
        grid._cluster._engine._client.wait_for_workers(3)
        while len(grid._cluster.measured.slots) < 3:
            assert grid.function(half)(3.0) == before
        with grid.group(lambda problem: [index % 3 for index in range(len(problem.tasks))]):
            processes = [grid.function(process)(float(n)) for n in range(6)]
        assert len({one.get() for one in processes}) == 3
        with grid.group():
            lost = grid.function(half)(7.0)
        # Dask would raise an error if a worker takes long to return.
        grid._cluster._engine._client.restart(wait_for_workers=False)
        assert lost.get() == 3.5
        assert grid.function(half)(3.0) == before


def test_a_cluster_that_starts_workers_when_there_is_work(tmp_path_factory):
    with bare(tmp_path_factory):
        cluster = distributed.LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with cluster:
        # An idle worker ends after 3 s, as by default; shorter intervals end workers that have just started on a busy machine.
        cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=30)
        with pytest.warns(gl.ConnectWarning, match="the cluster has no workers: waiting up to 120 s for one; a Dask worker is started by"):
            grid = gl.connect(cluster.scheduler_address.replace("tcp://", "dask://"), functions=[half])
        with grid, warnings.catch_warnings():
            warnings.simplefilter("ignore", gl.ConnectWarning)
            assert grid.function(half)(3.0) == 1.5
            while grid._cluster._engine.workers():
                pass
            assert grid.function(half)(5.0) == 2.5


def nests(address: str, x: float) -> float:
    import gridloom as gl
    from engine_functions import half

    with gl.connect(address, functions=[half]) as grid:
        with grid.group():
            parts = [grid.function(half)(x) for _ in range(4)]
        return sum(part.get() for part in parts)


@gl.function(work="1")
def nested(address: str, x: float) -> float:
    return nests(address, x)


@gl.function(work="1")
def nested_alone(folder: str, address: str, x: float) -> float:
    import os
    import tempfile

    if len(os.listdir(folder)) < 2:
        tempfile.mkstemp(dir=folder)
        os._exit(1)
    return nests(address, x)


def test_calls_that_wait_for_nested_calls_end(tmp_path, monkeypatch):
    """First on a worker with one thread, then with a call that runs alone because its workers have died twice."""
    monkeypatch.setenv("PYTHONPATH", os.fspath(pathlib.Path(__file__).parent))
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with cluster, gl.connect(address, functions=[nested, nested_alone]) as grid:
        assert grid.function(nested)(address, 3.0) == 6.0
        with grid.group():
            both = [grid.function(nested)(address, float(n)) for n in range(2)]
            alone = grid.function(nested_alone)(os.fspath(tmp_path), address, 5.0)
        assert [one.get(timeout=200) for one in both] == [0.0, 2.0]
        assert alone.get(timeout=200) == 10.0 and len(list(tmp_path.iterdir())) == 2


def test_a_call_that_waits_to_run_alone_blocks_no_call_that_a_running_call_needs(monkeypatch):
    monkeypatch.setattr(dask_engine, "_TURN_SECONDS", 0.1)
    monkeypatch.setattr(distributed, "get_worker", lambda worker=types.SimpleNamespace(): worker)
    monkeypatch.delenv(dask_engine._IN_CALL, raising=False)
    begun, met, order = threading.Event(), threading.Event(), []
    turns = dask_engine._in_turn(lambda body: body())

    def first():
        begun.set()
        assert met.wait(60)
        order.append("first")

    def last():
        order.append("alone")

    threads = [threading.Thread(target=turns, args=(None, False, False, first))]
    threads[0].start()
    assert begun.wait(60)
    threads += [threading.Thread(target=turns, args=(None, is_alone, False, body)) for is_alone, body in ((True, last), (False, met.set))]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert order == ["first", "alone"]


def test_long_calls_do_not_delay_a_call_that_must_run_alone_again_and_again(monkeypatch):
    """Earlier, each call that had waited for 10 s overtook it, so that calls of more than 10 s delayed it without end."""
    monkeypatch.setattr(dask_engine, "_TURN_SECONDS", 0.05)
    monkeypatch.setattr(distributed, "get_worker", lambda worker=types.SimpleNamespace(): worker)
    monkeypatch.delenv(dask_engine._IN_CALL, raising=False)
    turns, threads, order = dask_engine._in_turn(lambda body: body()), [], []
    begun = [threading.Event() for _ in range(40)]

    def start(is_alone, body):
        threads.append(threading.Thread(target=turns, args=(None, is_alone, False, body)))
        threads[-1].start()

    def call(number):
        def body():
            begun[number].set()
            order.append(number)
            if number + 1 < len(begun):
                start(False, call(number + 1))
                # Calls overlap, unless the next one has to wait longer than a call runs.
                begun[number + 1].wait(0.5)

        return body

    start(False, call(0))
    assert begun[0].wait(60)
    start(True, lambda: order.append("alone"))
    assert begun[-1].wait(120)
    for thread in threads:
        thread.join(60)
    assert "alone" in order[:20] and len(order) == len(begun) + 1, order


def test_an_address_that_dask_cannot_use_is_rejected(capfd):
    for address in ("dask://", "dask://host", "dask://host:port", "dask://:8786", "dask://127.0.0.1:99999", "dask://127.0.0.1:8786/x"):
        with pytest.raises(gl.UsageError, match=f"expected dask://HOST:PORT, the address of a Dask scheduler, got '{address}'"):
            gl.connect(address, functions=[half])
