"""Results of a function for many items: their order, how far calls run ahead, limits of time and errors."""

import itertools
import threading
from concurrent.futures import CancelledError

import gridloom as gl
import pytest
from bad_functions import wait_until
from sent_functions import block, hang, stop, twice


def test_results_arrive_in_order(grid):
    assert list(grid.map(twice, range(200))) == [2 * x for x in range(200)]
    assert list(grid.map(pow, [2, 3, 4], itertools.repeat(2))) == [4, 9, 16]
    assert list(grid.map(twice, range(100), chunksize=7)) == [2 * x for x in range(100)]
    assert list(grid.map(twice, [])) == []


def test_a_map_takes_an_endless_iterable(grid):
    taken = []

    def numbers():
        for number in itertools.count():
            taken.append(number)
            yield number

    results = grid.map(twice, numbers(), buffersize=5)
    assert len(taken) == 5
    assert [next(results) for _ in range(10)] == [2 * x for x in range(10)]
    assert len(taken) == 15
    results.close()
    assert len(taken) == 15


def test_large_arguments_are_not_submitted_far_ahead(grid, monkeypatch):
    monkeypatch.setattr("gridloom.run.prefetch.WINDOW_BYTES", 1 << 20)
    taken = []

    def blocks():
        for number in range(40):
            taken.append(number)
            yield bytes(600_000)

    results = grid.map(len, blocks())
    assert len(taken) == 4, "two for each of two slots"
    assert next(results) == 600_000 and len(taken) == 5
    assert list(results) == [600_000] * 39


def test_a_map_raises_where_it_fails(grid):
    results = grid.map(lambda x: 1 / x, [1, 2, 0, 4])
    assert [next(results), next(results)] == [1, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
    with pytest.raises(ValueError, match="chunksize"):
        grid.map(twice, [1], chunksize=0)
    with pytest.raises(ValueError, match="buffersize"):
        grid.map(twice, [1], buffersize=0)


@pytest.mark.parametrize("by", ["a map", "an executor"])
def test_an_item_that_cannot_be_sent_costs_no_result_before_it(grid, by):
    items = [*range(80), threading.Lock(), 1]
    run = grid.map if by == "a map" else gl.Executor(grid=grid).map
    given, results = [], run(twice, items)
    with pytest.raises(gl.ArgumentError, match="argument 1, of type lock, cannot be pickled"):
        for result in results:
            given.append(result)
    assert given == [2 * x for x in range(80)]


@pytest.mark.parametrize("chunksize", [1, 2, 3, 100])
def test_an_iterable_that_fails_costs_no_result_before_it(grid, chunksize):
    def numbers():
        yield from range(3)
        raise KeyError("no more")

    given, results = [], grid.map(twice, numbers(), chunksize=chunksize)
    with pytest.raises(KeyError, match="no more"):
        for result in results:
            given.append(result)
    assert given == [0, 2, 4] and list(results) == []


def test_a_map_may_have_a_time_limit(grid, gate):
    results = grid.map(stop, [str(gate.path)], timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)


def test_results_that_are_not_taken_are_bounded(grid, monkeypatch, gate, other_gate):
    """Past the bound, only as many calls run as there are results soon to be taken."""
    monkeypatch.setattr("gridloom.run.prefetch.WINDOW_BYTES", 1_000_000)
    least = 4
    # No result is there before the calls are submitted: the bound would end the submission.
    gates = itertools.chain([str(other_gate.path)] * least, itertools.repeat(str(gate.path)))
    # Workers are faster than a program that is busy: without the gate, further calls would run before it has counted these results.
    results = grid.map(block, gates)
    other_gate.open()
    # Two calls run at a time and up to eight results are read: these may have begun before the bound was passed.
    more, calls = 10, results._futures
    wait_until(lambda: sum(call.done() for call in calls) >= least)
    gate.open()
    # These come later, and run before what is held back would.
    assert [grid.run(twice, n).get(60) for n in range(20)] == [2 * n for n in range(20)]
    assert least <= sum(call.done() for call in calls) <= least + more < len(calls)
    assert [len(next(results)) for _ in range(30)] == [400_000] * 30
    assert sum(call.done() for call in calls) <= least + more
    results.close()
    assert grid.run(twice, 1).get(60) == 2


def test_calls_of_a_map_that_are_delayed_can_be_cancelled(grid, monkeypatch, gate, other_gate):
    monkeypatch.setattr("gridloom.run.prefetch.WINDOW_BYTES", 1_000_000)
    results = grid.map(block, [str(other_gate.path)] * 4 + [str(gate.path)] * 196)
    other_gate.open()
    last = results._futures[-1]
    wait_until(lambda: sum(call.done() for call in results._futures) >= 4)
    assert last.cancel() and last.cancelled()
    gate.open()
    with pytest.raises(CancelledError):
        list(results)
    # Calls that run already end; calls that are held back would stay.
    wait_until(lambda: not grid._any_function.runner._calls)


def raise_timeout(_):
    raise TimeoutError("mine")


def test_a_map_that_times_out_ends_the_calls_that_hang(program, gate):
    with gl.local(servers=1) as grid:
        assert grid.run(twice, 1).get(60) == 2
        results = grid.map(hang, [str(gate.path)] * 3, timeout=0.3)
        for _ in range(2):  # never an empty rest
            with pytest.raises(TimeoutError, match="not there within 0.3 s; all its calls are ended"):
                list(results)
        assert grid.run(twice, 2).get(60) == 4
        # An error of the function that is of that kind leaves the others.
        with pytest.raises(TimeoutError, match="mine"):
            list(grid.map(raise_timeout, range(3), timeout=60))
        assert grid.run(twice, 2).get(60) == 4
