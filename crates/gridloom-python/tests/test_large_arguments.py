"""Large arrays in the arguments of any function: each is copied once, into the memory from which it goes out."""

import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest

LARGE = 1 << 18
ARRAYS = {
    "C order": np.arange(2.0 * LARGE).reshape(2, -1),
    "Fortran order": np.asfortranarray(np.arange(2.0 * LARGE).reshape(2, -1)),
    "not contiguous": np.arange(4.0 * LARGE)[::2],
    "other byte order": np.arange(LARGE, dtype=">i8"),
    "records": np.zeros(LARGE, dtype=[("a", "i4"), ("b", "f8")]),
}


def look(*arrays, small, **named):
    """They may be changed, and say what they are."""
    found = [(a.dtype.str, a.shape, a.flags.f_contiguous, a.copy()) for a in (*arrays, *named.values())]
    for array in (*arrays, *named.values()):
        array[...] = 0
    return found, small


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_go_there_and_may_be_changed(both, array):
    kept = array.copy()
    found, small = both.run(look, array, array[:3], small={"x": np.ones(3)}, again=array).get(60)
    assert small["x"].tolist() == [1, 1, 1] and len(found) == 3
    for (dtype, shape, order, came), sent in zip(found, (array, array[:3], array), strict=True):
        assert (dtype, shape) == (sent.dtype.str, sent.shape)
        assert order == sent.flags.f_contiguous or not sent.flags.forc
        np.testing.assert_array_equal(came, sent)
    np.testing.assert_array_equal(array, kept)


def test_what_may_not_be_changed_stays_so(grid):
    fixed = np.ones(LARGE)
    fixed.flags.writeable = False
    assert grid.run(lambda a: (a.flags.writeable, float(a.sum())), fixed).get(60) == (False, LARGE)


def test_arguments_may_change_after_the_call(grid):
    array = np.ones(LARGE)
    calls = []
    for _ in range(8):
        calls.append(grid.run(lambda a: float(a.sum()), array))
        array += 1
    assert [call.get(60) for call in calls] == [n * LARGE for n in range(1, 9)]


def test_each_way_to_call_takes_them(grid):
    arrays = [np.full(LARGE, float(n)) for n in range(6)]
    sums = [n * LARGE for n in range(6)]
    assert list(grid.map(np.sum, arrays)) == sums
    assert list(grid.map(np.sum, arrays, chunksize=4)) == sums
    with gl.Executor(grid=grid) as executor:
        assert list(executor.map(np.sum, arrays)) == sums
    with grid.stream(lambda a: iter(a[:2].tolist()), arrays[3]) as values:
        assert list(values) == [3.0, 3.0]


COPIES = """
import gridloom as gl, numpy as np

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

array = np.ones(8_000_000)
with gl.local(servers=1) as grid:
    grid.run(np.sum, array[:10]).get()
    before = peak()
    grid.run(np.sum, array).get()
    print((peak() - before) / array.nbytes)
"""


def test_the_program_holds_one_copy(program):
    told = subprocess.run([sys.executable, "-c", COPIES], capture_output=True, text=True, check=True, timeout=120)
    assert float(told.stdout) < 1.5
