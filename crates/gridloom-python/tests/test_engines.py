"""Groups on an engine in this process: the contract of all engines, and limits that need no cluster."""

import os

import gridloom as gl
import numpy as np
import pytest
from engine_contract import Contract
from engine_functions import FUNCTIONS, Fake, half, process, product, sums
from gridloom.engines import cluster as engine_cluster
from gridloom.engines import cluster_model
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
    assert engine.requested == 1
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
    """A worker dies whenever it runs a call with that argument, with all calls that it runs at the same time."""

    def __init__(self, slots):
        super().__init__()
        self.slots, self.number = slots, 1

    def collect(self, result, timeout):
        if result["worker"] in self.there and 13.0 in result["args"]:
            self.number += 1
            self.there[self.there.index(result["worker"])] = f"w{self.number}"
        return super().collect(result, timeout)


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
