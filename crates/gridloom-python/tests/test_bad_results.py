"""Functions whose results or exceptions cannot be sent or are not of the declared type, or that change their arguments."""

import asyncio
import pickle
import sys

import gridloom as gl
import numpy as np
import pytest
from bad_functions import is_free
from sent_functions import twice

# --- Results and exceptions that cannot be sent.


class ExitsWhenRead:
    def __reduce__(self):
        return sys.exit, (5,)


class FailsWhenRead:
    def __reduce__(self):
        return int, ("no number",)


class ExitsWhenReadError(Exception):
    def __reduce__(self):
        return sys.exit, (5,)


class OtherWhenReadError(Exception):
    def __reduce__(self):
        return dict, ()


def raises(kind, *args):
    raise kind(*args)


def nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


def test_a_result_that_cannot_be_pickled_is_reported(one):
    with pytest.raises(gl.SignatureError, match="generator: it gives values one by one, which grid.stream takes"):
        one.run(lambda: (n for n in range(3))).get(60)
    with pytest.raises(gl.SignatureError, match="list: .*recursion.*; return plain data instead"):
        one.run(nested, 100_000).get(60)
    with pytest.raises(gl.ArgumentError, match="argument 1, of type list, cannot be pickled"):
        one.run(len, nested(100_000))
    assert is_free(one)


@pytest.mark.parametrize("made", [ExitsWhenRead, FailsWhenRead])
def test_a_result_that_cannot_be_unpickled_is_reported(one, made):
    with pytest.raises(gl.SignatureError, match=f"the result of .*{made.__name__} cannot be unpickled here: (SystemExit|ValueError)"):
        one.run(made).get(60)
    assert is_free(one)


def test_an_argument_that_cannot_be_unpickled_is_reported(one):
    with pytest.raises(gl.CannotRun, match="an argument cannot be unpickled there: ValueError: .*'no number'"):
        one.run(twice, FailsWhenRead()).get(60)
    with pytest.raises(gl.Crashed, match=r"sys\.exit\(5\)"):
        one.run(twice, ExitsWhenRead()).get(60)
    assert is_free(one)


@pytest.mark.parametrize("kind", [ExitsWhenReadError, OtherWhenReadError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_that_cannot_be_raised_again_is_reported(one, kind):
    with pytest.raises(gl.RemoteError) as caught:
        one.run(raises, kind, "why").get(60)
    error = caught.value
    assert (error.kind, error.message) == (kind.__name__, "why")
    assert "in raises\n" in error.traceback and "run_code" not in error.traceback
    assert is_free(one)


def test_a_gigantic_message_arrives_once(one):
    with pytest.raises(ValueError) as caught:
        one.run(raises, ValueError, "x" * 1_000_000).get(60)
    assert len(str(caught.value)) == 1_000_000
    told = str(caught.value.__cause__)
    assert len(told) < 70_000 and "in raises\n" in told


def test_a_gigantic_message_of_a_declared_function_is_reported(one):
    with pytest.raises(gl.RemoteError) as caught:
        one.function("bad/fails")(100_000_000, timeout=60)
    assert caught.value.kind == "ValueError"


def test_data_too_large_for_a_store_are_reported_with_the_function(one):
    with pytest.raises(gl.ArgumentError, match="^builtins:len: its pickled arguments take 100.0 MB, more than"):
        one.run(len, bytes(100_000_000)).get(60)
    never = "a call of 'bad/zeros' needs 160000000 bytes for its arguments and results, more than the 67108864 bytes of the store of server"
    with pytest.raises(gl.OutOfMemory, match=f"^{never} 'server-1'; pass less data at a time, or start the server with a larger --memory$"):
        one.function("bad/zeros")(20_000_000)
    assert is_free(one)


def test_stop_iteration_ends_no_iterator(one):
    async def awaited():
        return await one.run(raises, StopIteration)

    assert isinstance(one.run(raises, StopIteration, 3).exception(60), StopIteration)
    with pytest.raises(RuntimeError):
        asyncio.run(asyncio.wait_for(awaited(), 60))
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(one.map(raises, [StopIteration]))


# --- Results of another type or shape than declared, and functions that change their arguments.

FOUR = np.arange(4.0)
RIGHT = {
    "list": ("four", [0, 1, 2, 3], FOUR),
    "strided": ("four", np.arange(8.0)[::2] / 2, FOUR),
    "backwards": ("four", FOUR[::-1], FOUR[::-1]),
    "broadcast": ("four", np.broadcast_to(1.0, 4), np.ones(4)),
    "big-endian": ("four", FOUR.astype(">f8"), FOUR),
    "no numbers": ("four", np.array([np.nan, np.inf, -np.inf, -0.0]), np.array([np.nan, np.inf, -np.inf, -0.0])),
    "empty": ("none", np.zeros((0, 3)), np.zeros((0, 3))),
    "largest": ("integer", 2**63 - 1, 2**63 - 1),
    "whole": ("integer", 2.0, 2),
    "nan": ("number", float("nan"), np.nan),
    "-inf": ("number", float("-inf"), -np.inf),
    "NUL": ("text", "a\0b", "a\0b"),
}
WRONG = {
    "object array": ("four", FOUR.astype(object), r"expected float64\[4\], got object\[4\]"),
    "integers": ("four", np.arange(4), r"got int64\[4\]"),
    "large integers": ("four", [10**400, 1, 2, 3], r"got object\[4\]"),
    "shape": ("four", FOUR.reshape(2, 2), r"got float64\[2, 2\]"),
    "no array": ("four", None, r"got object\[\]"),
    "ragged": ("four", [[1], [2, 3]], "got list"),
    "empty": ("none", np.zeros((3, 0)), r"expected float64\[0, 3\], got float64\[3, 0\]"),
    "beyond 64 bits": ("integer", 2**63, "expected int64, got int 9223372036854775808"),
    "bool": ("integer", True, "got bool"),
    "nan": ("integer", float("nan"), "got float nan"),
    "beyond 8 bits": ("byte", 256, "expected uint8, got int 256"),
    "beyond floats": ("number", 10**400, "expected float64, got int"),
    "complex": ("number", 1j, "expected float64, got complex"),
    "bytes": ("text", b"x", "expected str, got bytes"),
    "three of two": ("pair", (1, 2.0, 3), "expected a tuple of 2 results, got 3"),
    "beyond the largest": ("single", 1e300, "expected float32, got float 1e.300"),
    "one of two": ("pair", 1, "expected a tuple of 2 results, got int 1"),
}


@pytest.mark.parametrize(("function", "value", "expected"), RIGHT.values(), ids=RIGHT)
def test_a_result_that_fits_is_taken(one, function, value, expected):
    np.testing.assert_array_equal(one.function(f"bad/{function}")(pickle.dumps(value)), expected)


@pytest.mark.parametrize(("function", "value", "told"), WRONG.values(), ids=WRONG)
def test_a_result_that_does_not_fit_is_reported(one, function, value, told):
    with pytest.raises(gl.SignatureError, match=told):
        one.function(f"bad/{function}")(pickle.dumps(value))


def test_a_mask_is_not_dropped(one):
    with pytest.raises(gl.SignatureError, match="mask"):
        one.function("bad/four")(pickle.dumps(np.ma.array(FOUR, mask=[0, 1, 0, 0])))


def test_a_text_that_is_no_unicode_is_reported(one):
    with pytest.raises(gl.SignatureError, match="surrogate|UTF-8|Unicode"):
        one.function("bad/text")(pickle.dumps("\ud800"))
    with pytest.raises(gl.ArgumentError, match="argument 'text'.*surrogate"):
        one.function("bad/length")("\ud800")


@pytest.mark.parametrize("length", [4, 100_000])
def test_nobody_sees_that_an_argument_was_changed(one, length):
    def in_place(x):
        x *= 2
        return x

    ours = np.ones(length)
    np.testing.assert_array_equal(one.run(in_place, ours).get(60), 2 * ours)
    with one.group() as group:
        made = one.function("bad/doubles")(ours)
        changed, read = one.function("bad/in_place")(made), one.function("bad/doubles")(made)
    group.launch()
    with pytest.raises(gl.RemoteError, match="read-only"):
        changed.get(60)
    np.testing.assert_array_equal(read.get(60), 4 * ours)
    np.testing.assert_array_equal(made.get(60), 2 * ours)
    assert (ours == 1).all()
