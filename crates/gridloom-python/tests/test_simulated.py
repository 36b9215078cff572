"""The same programs on a simulated grid."""

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS


def run(grid, a):
    matmul = grid.function("tests/matmul")
    with grid.group("heft") as group:
        left, right = matmul(a, a), matmul(a, a)
        product = matmul(left, right)
    return product.get(), group.report(), grid.simulation()


def test_the_same_program_twice_is_the_same_run(platform):
    runs = []
    for _ in range(2):
        with gl.simulate(platform, functions=[FUNCTIONS], seed=7) as grid:
            assert grid.simulated and len(grid.servers()) == 3
            runs.append(run(grid, np.ones((300, 300))))
    (value, report, simulation), (_, _, again) = runs
    assert value.shape == (300, 300) and not value.any(), "results are stand-ins"
    assert simulation.seconds > 0 and simulation.trace_hash == again.trace_hash
    # The mapper takes links for free of contention; the simulator shares them, here between two copies of `a`.
    assert report.predicted_seconds <= report.measured_seconds <= 2 * report.predicted_seconds


def test_bodies_run_if_asked(platform, program):
    a = np.random.default_rng(0).random((50, 50))
    with gl.simulate(platform, functions=[FUNCTIONS], execute=True) as grid:
        value, _, _ = run(grid, a)
    assert np.allclose(value, a @ a @ a @ a)


def test_arrays_larger_than_memory(platform):
    n = 2**37 // 8  # 128 GiB
    huge = np.broadcast_to(0.0, n)
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        with grid.group() as group:
            half, _ = grid.function("tests/halve")(huge)
            quarter, norm = grid.function("tests/halve")(half)
        assert quarter.shape == (n,) and norm.get() == 0.0
        report = group.report()
        assert report.client_bytes >= huge.nbytes and report.measured_seconds > huge.nbytes / 10e6
        assert half.get().shape == (n,), "shown without memory of that size"


def test_virtual_time(platform):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        begin = grid.now()
        grid.advance(3600.0)
        assert grid.now() - begin == pytest.approx(3600.0)
        begin = grid.now()
        grid.compute(3e9)
        assert grid.now() - begin == pytest.approx(3.0)
        assert grid.function("tests/sleep")(1.0) == 0.0
        with pytest.raises(gl.ArgumentError, match="'seconds'"):
            grid.function("tests/sleep")("x")


def test_bad_platform(tmp_path):
    with pytest.raises(gl.InputError, match="none.xml"):
        gl.simulate(tmp_path / "none.xml")
