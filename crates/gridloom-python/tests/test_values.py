"""Every value arrives as it was sent, through a Python function on a server."""

import threading

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS
from functions import DTYPES

LARGE = (150, 130)  # past what travels inside a frame


def sample(dtype, shape):
    rng = np.random.default_rng(1)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    values = (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype.kind == "c" else 0)).astype(dtype)
    if values.size:
        values.flat[0] = np.nan
    return values


def same(a, b):
    assert a.dtype == b.dtype.newbyteorder("=") and a.shape == b.shape
    np.testing.assert_array_equal(a, b)
    assert np.array_equal(np.signbit(a.real), np.signbit(b.real)) if a.dtype.kind == "f" else True


@pytest.mark.parametrize("shape", [(3, 4), LARGE, (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_and_layout(both, dtype, shape):
    echo = both.function(f"tests/echo_{dtype}")
    base = sample(dtype, shape)
    wide = np.repeat(np.repeat(base, 2, axis=0), 3, axis=1)
    layouts = {
        "C": base,
        "F": np.asfortranarray(base),
        "strided": wide[::2, ::3],
        "reversed": base[::-1, ::-1],
        "broadcast": np.broadcast_to(base[:1, :1], shape),
        "transposed view": np.ascontiguousarray(base.T).T,
    }
    for name, array in layouts.items():
        got = echo(array)
        same(got, array)
        assert got.flags.writeable and got.flags.aligned, name


@pytest.mark.parametrize("dtype", DTYPES)
def test_fortran_order_is_kept(both, dtype):
    array = np.asfortranarray(sample(dtype, LARGE))
    got = both.function(f"tests/echo_f_{dtype}")(array)
    same(got, array)
    assert got.flags.f_contiguous


@pytest.mark.parametrize("shape", [(3, 4), LARGE, (1, 5)], ids=str)
def test_arrays_get_the_order_that_a_function_wants(both, shape):
    array = sample("float64", shape)
    for given in (array, np.repeat(array, 2, axis=1)[:, ::2], np.asfortranarray(array)):
        got = both.function("tests/echo_f_float64")(given)
        same(got, array)
        assert got.flags.f_contiguous


@pytest.mark.parametrize("dtype", [one for one in DTYPES if "long" not in one])
def test_other_byte_order(both, dtype):
    array = sample(dtype, LARGE)
    same(both.function(f"tests/echo_{dtype}")(array.astype(np.dtype(dtype).newbyteorder(">"))), array)


def test_nan_bits_are_kept(both):
    bits = np.array([[0x7FF8DEADBEEF0001, 0xFFF0000000000001]] * 4000, dtype=np.uint64)
    got = both.function("tests/echo_float64")(bits.view(np.float64))
    assert np.array_equal(got.view(np.uint64), bits)


def test_no_dimensions(both):
    got = both.function("tests/echo0")(np.array(2.5))
    assert got.shape == () and got == 2.5


def test_numbers_and_texts(both):
    sent = (-(2**63), 0.1, 1 - 2j, True, "h\u00e9\0llo", b"\0\xff", 0.1, 255)
    got = both.function("tests/scalars")(*sent)
    assert got[:6] == sent[:6] and [type(x) for x in got[:6]] == [int, float, complex, bool, str, bytes]
    assert got[6] == np.float32(0.1) and isinstance(got[6], np.float32)
    assert got[7] == 255 and isinstance(got[7], np.uint8)
    again = both.function("tests/scalars")(
        np.int64(3), np.array(0.5, ">f8"), np.complex64(1j), np.bool_(False), "x" * 100_000, bytearray(b"ab" * 50_000),
        np.float32(7), u=np.uint8(1),
    )
    assert again[:4] == (3, 0.5, 1j, False) and len(again[4]) == 100_000 and again[5] == b"ab" * 50_000


def test_arguments_are_read_only_and_aligned(grid):
    assert grid.function("tests/flags")(np.zeros(10_000)) == "False 0 True"
    assert grid.function("tests/flags")(np.zeros(3)).startswith("False")
    with pytest.raises(gl.RemoteError, match="read-only"):
        grid.function("tests/write")(np.zeros(10_000))


def test_results_stay_after_the_session(program):
    from conftest import FUNCTIONS

    with gl.local(servers=1, functions=[FUNCTIONS]) as grid:
        small, large = (grid.function("tests/matmul")(np.eye(n), np.eye(n)) for n in (3, 200))
        with grid.group():
            handle = grid.function("tests/matmul")(np.eye(200), np.eye(200))
        first, second = handle.get(), handle.get()
        first[0, 0] = 5
        assert second[0, 0] == 1 and handle.get()[0, 0] == 1
    assert np.array_equal(small, np.eye(3)) and np.array_equal(large, np.eye(200)) and first[0, 0] == 5
    with pytest.raises(gl.UsageError, match="closed"):
        handle.get()


def test_lists_become_arrays(grid):
    assert np.array_equal(grid.function("tests/matmul")([[1, 2]], [[3], [4]]), [[11.0]])


def test_empty_goes_out_as_it_is(both):
    array = both.empty(LARGE)
    array[...] = sample("float64", LARGE)
    same(both.function("tests/echo_float64")(array), array)
    same(both.function("tests/echo_float64")(array[10:20]), array[10:20])
    same(both.function("tests/echo_float64")(array[:, 3:9]), array[:, 3:9])


def test_threads_call_at_the_same_time(grid):
    echo, wrong = grid.function("tests/echo_int64"), []

    def work(seed):
        array = np.full((100, 100), seed)
        wrong.extend(i for i in range(20) if not np.array_equal(echo(array + i), array + i))

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


M = np.ones((2, 3))


@pytest.mark.parametrize(
    "name, args, kwargs, parts",
    [
        ("matmul", (M.astype("f4"), M.T), {}, ["'a'", "float32", "float64"]),
        ("matmul", (M, M), {}, ["'b'", "[2, 3]", "k = 3"]),
        ("matmul", (np.ones(3), M), {}, ["'a'", "2 dimensions", "[3]"]),
        ("matmul", (M,), {}, ["missing", "'b'"]),
        ("matmul", (M, M, M), {}, ["3 arguments", "expected"]),
        ("matmul", (M, M.T), {"q": 1}, ["'q'"]),
        ("matmul", ("text", M), {}, ["'a'", "string", "array of float64"]),
        ("matmul", (object(), M), {}, ["'a'", "object", "array of float64"]),
        ("matmul", (np.array([["x"]]), M), {}, ["'a'", "<U1", "array of float64"]),
        ("matmul", (np.ma.masked_array(M), M), {}, ["'a'", "MaskedArray", "filled"]),
        ("matmul", (None, M), {}, ["'a'", "NoneType"]),
        ("sleep", ("1",), {}, ["'seconds'", "string", "float64"]),
        ("sleep", (True,), {}, ["'seconds'", "bool", "float64"]),
        ("sleep", (1j,), {}, ["'seconds'", "complex128", "float64"]),
        ("wrong_shape", (2.5,), {}, ["'n'", "2.5", "int64"]),
        ("wrong_shape", (2**70,), {}, ["'n'", "int64", "64 bits"]),
        ("fail", (b"x",), {}, ["'message'", "bytes", "string"]),
    ],
)
def test_wrong_arguments(grid, name, args, kwargs, parts):
    with pytest.raises(gl.ArgumentError) as told:
        grid.function(f"tests/{name}")(*args, **kwargs)
    for part in [f"tests/{name}", *parts]:
        assert part in str(told.value)
    assert isinstance(told.value, (TypeError, ValueError))


def test_an_overflowing_float_is_refused(grid):
    with pytest.raises(gl.ArgumentError, match="'f'"):
        grid.function("tests/scalars")(1, 1.0, 1j, True, "", b"", 1e40, 1)


def test_what_no_server_can_hold_is_refused_before_it_is_copied(program):
    huge = np.broadcast_to(0.0, 1 << 40)
    with gl.local(servers=1, functions=[FUNCTIONS], memory=1 << 30) as grid:
        halve = grid.function("tests/halve")
        says = r"tests/halve: argument 'x' takes 8.8 TB, more than the 1.1 GB of the largest store .* 'server-1'; .*--memory"
        with pytest.raises(gl.ArgumentError, match=says):
            halve(huge)
        with grid.group() as group, pytest.raises(gl.ArgumentError, match="takes 8.8 TB"):
            halve(x=huge)
        assert len(group) == 0
    with gl.local(servers=1, functions=[FUNCTIONS], memory=1 << 60) as grid:
        with pytest.raises(gl.ArgumentError, match="takes 8.8 TB, more than the .* of memory left on this machine"):
            grid.function("tests/halve")(huge)


@pytest.mark.parametrize("shape", [-1, (2, -1), 1.5, "ab", (1.0,), None])
def test_a_shape_that_is_none_is_reported(grid, shape):
    with pytest.raises(gl.UsageError, match="^empty: "):
        grid.empty(shape)
