"""Groups on an engine in this process: the contract of all engines, and limits that need no cluster."""

import concurrent.futures
import contextlib
import gc
import os
import threading

import gridloom as gl
import numpy as np
import pytest
from engine_contract import Contract
from engine_functions import FUNCTIONS, Fake, half, process, product, sums
from gridloom.engines import cluster as engine_cluster
from gridloom.engines import cluster_model
from gridloom.engines.protocol import NotYet
from gridloom.session.opening import connect_engine


@pytest.fixture
def grid():
    with connect_engine(Fake(), FUNCTIONS) as grid:
        yield grid


class TestContract(Contract):
    pass


def test_a_long_chain_is_made_again():
    engine = Fake()
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
            last = 2.0**1000
            for _ in range(2_000):
                last = grid.function(half)(last)
        engine.dying = "w1"
        assert last.get() == 2.0**-1000


class Empty(Fake):
    """Starts no worker on demand."""

    def request_worker(self):
        self.requested += 1


def test_the_last_worker_that_dies_is_reported(monkeypatch):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    engine = Empty()
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group():
            one = grid.function(half)(1.0)
        engine.there.clear()
        # The wait for another one keeps the limit of a call.
        with pytest.warns(gl.ConnectWarning, match="the cluster has lost all workers that it had: w0, w1: waiting up to 120 s for one; a fake"):
            with pytest.raises(gl.TimedOut):
                one.get(timeout=0.2)
        monkeypatch.setattr(cluster_model, "_JOIN_SECONDS", 0.0)
        with pytest.raises(gl.ServerLost, match="the cluster has lost all workers that it had: w0, w1, and has had none for 0 s; a fake worker"):
            one.get()
        engine.there.append("w2")
        assert one.get() == 0.5
    assert engine.requested > 1
    engine = Empty()
    engine.there.clear()
    with pytest.warns(gl.ConnectWarning), pytest.raises(gl.ConnectError, match="the cluster has no workers, and has had none for 0 s"):
        connect_engine(engine, FUNCTIONS)


def test_a_cluster_that_starts_workers_on_demand():
    engine = Fake()
    engine.there.clear()
    with pytest.warns(gl.ConnectWarning, match="the cluster has no workers: waiting"):
        grid = connect_engine(engine, FUNCTIONS)
    with grid:
        assert grid.function(half)(3.0) == 1.5
        engine.there.clear()
        with pytest.warns(gl.ConnectWarning, match="the cluster has lost all workers that it had: on-demand-1: waiting"):
            assert grid.function(half)(5.0) == 2.5
        assert engine.there == ["on-demand-2"]


def test_workers_that_join_are_used_and_results_of_before_are_read(monkeypatch):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    engine = Fake()
    x = np.ones((100, 100))
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group():
            first, (total, _) = grid.function(product)(x, x), grid.function(sums)(x)
        function = grid.function(product)
        engine.there[:] = ["w1", "w2", "w3"]
        with grid.group(lambda problem: [index % 3 for index in range(len(problem.tasks))]) as group:
            made = [function(first, x) for _ in range(3)]
            quarter = grid.function(half)(total)
        assert {one.server for one in group.report().tasks} == {"w1", "w2", "w3"}
        assert all(np.array_equal(one.get(), x @ x @ x) for one in made)
        assert quarter.get() == 5_000
        assert sorted(grid._cluster.measured.slots) == ["w1", "w2", "w3"]
        assert grid.function(process).on("w3")(1.0) == os.getpid()
        with pytest.raises(gl.InputError, match="w0"):
            grid.function(process).on("w0")


class Deadly(Fake):
    """An engine whose worker dies, with all its running calls, when it runs a call with a deadly argument."""

    def __init__(self, slots, deadly=(13.0,)):
        super().__init__()
        self.slots, self.number, self.deadly = slots, 1, deadly

    def collect(self, result, timeout):
        if (worker := result["worker"]) in self.there and any(one in self.deadly for one in result["args"] if isinstance(one, float)):
            with_it = [one for one in self.sent if one["worker"] == worker and "value" not in one and one["deaths"] < 2 and one is not result]
            self.died |= {one["key"] for one in with_it[: self.slots - 1 if result["deaths"] < 2 else 0]} | {result["key"]}
            self.leave(worker)
        return super().collect(result, timeout)

    def leave(self, worker):
        self.number += 1
        self.there[self.there.index(worker)] = f"w{self.number}"


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_that_ends_its_worker_fails_alone(monkeypatch, workers, slots):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    engine = Deadly(slots)
    del engine.there[workers:]
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group() as group:
            halves = [grid.function(half)(float(n)) for n in range(30)]
            after = grid.function(half)(halves[13])
        with pytest.raises(gl.Crashed, match=r"engines/half on w\d+: its worker process ended while it ran, 3 times") as caught:
            group.wait()
        assert caught.value.function == "engines/half"
        assert [one.get() for number, one in enumerate(halves) if number != 13] == [n / 2 for n in range(30) if n != 13]
        for failed in (halves[13], after):
            with pytest.raises(gl.Crashed):
                failed.get()
        assert grid.function(half)(3.0) == 1.5
        assert engine.number == 4


@pytest.mark.parametrize("slots", [1, 4])
def test_calls_that_kill_their_workers_do_not_fail_other_calls(monkeypatch, slots):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    deadly = (3.0, 4.0, 11.0, 12.0, 20.0)
    with connect_engine(Deadly(slots, deadly), FUNCTIONS) as grid:
        with grid.group():
            halves = {float(n): grid.function(half)(float(n)) for n in range(30)}
        for n, one in halves.items():
            if n in deadly:
                with pytest.raises(gl.Crashed, match="3 times"):
                    one.get()
            else:
                assert one.get() == n / 2


def test_calls_of_workers_that_shut_down_on_request_have_not_crashed(monkeypatch):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    engine = Deadly(1)
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group():
            halves = [grid.function(half)(float(n)) for n in range(4)]
        for _ in range(5):
            for worker in list(engine.there):
                engine.leave(worker)
            grid._cluster._look(False)
            grid._cluster._submit([one._made_by for one in halves])
        assert {one._made_by.attempt for one in halves} == {6}
        assert [one.get() for one in halves] == [0.0, 0.5, 1.0, 1.5]


def test_calls_on_other_workers_continue_when_one_is_lost(monkeypatch):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    engine = Deadly(1)
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
            halves = [grid.function(half)(float(n)) for n in range(6)]
            both = grid.function(product)(np.ones((2, 2)), np.ones((2, 2))), grid.function(product)(np.ones((2, 2)), np.ones((2, 2)))
            last = grid.function(product)(*both)
        engine.leave("w1")
        grid._cluster._look(False)
        assert [one.get() for one in halves] == [n / 2 for n in range(6)] and last.get().tolist() == [[8, 8], [8, 8]]
        runs = {one._made_by: sum(sent["key"] == one._made_by.key for sent in engine.sent) for one in (*halves, *both, last)}
        assert set(runs.values()) == {1}
        again = [call for call in runs if call.attempt == 2]
        assert sorted(call.args.get("x", -1.0) for call in again) == [-1.0, -1.0, 1.0, 3.0, 5.0]


def test_a_session_drops_unused_models(monkeypatch):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    engine = Deadly(1)
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group():
            first = grid.function(half)(3.0)
        for _ in range(3):
            engine.leave(engine.there[0])
            assert grid.function(half)(5.0) == 2.5
        # The current model, and the model of the result that the program still uses.
        assert len(grid._cluster._models) == 2
        assert first.get() == 1.5 and first.shape is not None
        del first
        gc.collect()
        engine.leave(engine.there[0])
        assert grid.function(half)(7.0) == 3.5
        gc.collect()
        engine.leave(engine.there[0])
        grid.group("auto")
        assert len(grid._cluster._models) <= 2


def test_a_running_call_does_not_block_other_threads(monkeypatch):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.0)
    engine, go, begun = Deadly(1), threading.Event(), threading.Event()
    collect = engine.collect

    def waits(result, timeout):
        # The last attempt of the call runs until the event is set.
        if result["deaths"] == 2 and not go.is_set():
            begun.set()
            raise NotYet
        return collect(result, timeout)

    monkeypatch.setattr(engine, "collect", waits)
    with connect_engine(engine, FUNCTIONS) as grid, concurrent.futures.ThreadPoolExecutor(1) as threads:
        with grid.group():
            deadly = grid.function(half)(13.0)
        failing = threads.submit(deadly.get)
        begun.wait()
        assert grid.function(half)(3.0) == 1.5
        go.set()
        with pytest.raises(gl.Crashed):
            failing.result()


def test_a_program_that_waits_with_short_limits_detects_a_lost_worker(monkeypatch):
    monkeypatch.setattr(engine_cluster, "_LOOKS_SECONDS", 0.05)
    engine = Deadly(1)
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group():
            one = grid.function(half)(3.0)
        for worker in list(engine.there):
            engine.leave(worker)
        value = None
        while value is None:
            with contextlib.suppress(gl.TimedOut):
                value = one.get(timeout=0.0)
        assert value == 1.5


def test_only_time_between_close_checks_counts_as_time_without_workers(monkeypatch):
    monkeypatch.setattr(cluster_model, "_APART_SECONDS", 0.0)
    monkeypatch.setattr(cluster_model, "_JOIN_SECONDS", 0.0)
    workers = cluster_model.Workers(engine := Empty())
    engine.there.clear()
    with pytest.warns(gl.ConnectWarning):
        assert not workers.names("none")
    # Workers may have been connected since the last check.
    with pytest.warns(gl.ConnectWarning):
        assert not workers.names("none")
    monkeypatch.setattr(cluster_model, "_APART_SECONDS", 60.0)
    with pytest.raises(gl.ServerLost, match="none, and has had none for 0 s"):
        workers.names("none")
    assert engine.requested == 2


def test_small_results_are_collected_together():
    engine = Fake()
    with connect_engine(engine, FUNCTIONS) as grid:
        with grid.group() as group:
            halves = [grid.function(half)(float(n)) for n in range(100)]
        group.wait()
        assert [one.get() for one in halves] == [n / 2 for n in range(100)]
    assert engine.collected == [99]


def test_large_results_are_sent_before_all_inputs_exist():
    engine = Fake()
    with connect_engine(engine, FUNCTIONS) as grid:
        x = np.ones((400, 400))
        with grid.group(lambda problem: [0, 1, 0]):
            made = grid.function(product)(x, x), grid.function(product)(x, x)
            last = grid.function(product)(*made)
        assert [worker for _, worker in engine.ahead] == ["w0"]
        assert np.array_equal(last.get(), x @ x @ x @ x)
