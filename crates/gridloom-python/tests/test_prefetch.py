"""Results that are brought before they are asked for, in both worlds."""

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from conftest import FUNCTIONS


def square(extent):
    return np.random.default_rng(3).random((extent, extent))


def test_it_returns_at_once_and_the_value_is_right(world):
    matmul, a = world.function("tests/matmul"), square(200)
    with world.group("heft") as group:
        first = matmul(a, a)
        first.prefetch()
        second = matmul(first, a)
        second.prefetch()
        second.prefetch()
    group.wait()
    np.testing.assert_allclose(first.get(), a @ a)
    np.testing.assert_allclose(second.get(), a @ a @ a)
    second.prefetch()
    np.testing.assert_allclose(second.get(), a @ a @ a)


def test_it_arrives_while_other_calls_run(program, gate):
    with gl.local(servers=1, functions=[FUNCTIONS], shared_memory=False) as grid:
        halve, hold, x = grid.function("tests/halve"), grid.function("tests/hold"), np.ones(100_000)
        with grid.group() as group:
            half, _ = halve(x)
            half.prefetch()
            held = hold(half, str(gate.path))
        server = grid.servers()[0].name
        gate.server()
        # The server is in the middle of the call after it, and the program has not called `get`.
        wait_until(lambda: grid.traffic().by_link.get(f"{server} -> client", 0) >= x.nbytes)
        assert np.array_equal(half.get(), x / 2)
        gate.open()
        assert np.array_equal(held.get(), x / 2 + 1)
        assert [task.error for task in group.report().tasks] == [None, None]


def test_nothing_is_waited_for_in_simulation(platform):
    def seconds(prefetches):
        with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
            matmul, a = grid.function("tests/matmul"), np.broadcast_to(0.0, (1000, 1000))
            with grid.group() as group:
                first = matmul(a, a)
                for _ in range(prefetches):
                    first.prefetch()
                last = matmul(matmul(first, a), a)
            group.wait()
            del last
            begin = grid.now()
            first.get()
            return grid.now() - begin

    # 8 MB over 10 MB/s.
    assert seconds(0) > 0.8
    assert seconds(1) == seconds(2) == 0.0


def test_a_failure_is_reported_by_get(world):
    wrong = world.function("tests/wrong_shape")
    with world.group():
        bad = wrong(3)
        bad.prefetch()
    for _ in range(2):
        with pytest.raises(gl.SignatureError, match="wrong_shape"):
            bad.get()
        bad.prefetch()


def test_a_call_that_never_ran_reports_the_reason(world):
    matmul = world.function("tests/matmul")
    with pytest.raises(RuntimeError, match="enough"):
        with world.group():
            lost = matmul(np.eye(2), np.eye(2))
            raise RuntimeError("enough")
    with pytest.raises(gl.NotRun) as told:
        lost.prefetch()
    assert isinstance(told.value.__cause__, RuntimeError)
