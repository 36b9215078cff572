"""Groups on an engine in this process: the contract of all engines, and limits that need no cluster."""

import gridloom as gl
import numpy as np
import pytest
from engine_contract import Contract
from engine_functions import FUNCTIONS, Fake, half, product
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
