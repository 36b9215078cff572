"""Handles in expressions: they give their values, or say how to get them."""

import math

import numpy as np
import pytest

X = np.array([[2.0, 4.0], [6.0, 8.0]])


@pytest.fixture
def made(grid):
    """Handles of a number, of a whole number and of an array."""
    with grid.group():
        number, whole = grid.function("tests/scalars")(3, 2.0, 1j, True, "s", b"b", 1.5, 7)[1::6]
        array = grid.function("tests/echo_float64")(X)
    return number, whole, array


def test_a_handle_equals_its_value(made):
    number, whole, array = made
    assert number == 2.0 and 2.0 == number and not number != 2.0 and number != 3.0 and 3.0 != number and not number == "2.0"
    assert whole == 7 and np.float64(2.0) == number and number != None  # noqa: E711
    assert (array == X).all() and (X == array).all() and (array != 2.0).sum() == 3


def test_a_loop_ends_when_its_value_comes(grid):
    halve, rounds = grid.function("tests/halve"), 0
    with grid.group():
        x, norm = halve(np.array([8.0]))
        while norm != 1.0 and rounds < 9:
            x, norm = halve(x)
            rounds += 1
    assert rounds == 2


def test_handles_equal_themselves_alone(grid):
    with grid.group():
        one, same = (grid.function("tests/halve")(np.array([8.0]))[1] for _ in range(2))
    assert one == one and one != same and not one == same and one.get() == same.get()
    assert {one: 1, same: 2}[same] == 2 and [one, same].index(same) == 1 and len({one, same, one}) == 2


def test_operators_give_values(made):
    number, whole, array = made
    assert (number + 1, 1 + number, number - 1, 1 - number, number * 3, 3 * number) == (3, 3, 1, -1, 6, 6)
    assert (number / 4, 4 / number, number // 2, 5 // number, number % 2, 5 % number) == (0.5, 2, 1, 2, 0, 1)
    assert (number**3, 3**number, divmod(number, 2), divmod(5, number)) == (8, 9, (1, 0), (2, 1))
    assert (-number, +number, abs(number), round(number), math.floor(number), math.ceil(number)) == (-2, 2, 2, 2, 2, 2)
    assert sum([number, number]) == 4 and number + whole == 9 and complex(number) == 2 + 0j and list(range(whole)) == [*range(7)]
    assert np.array_equal(array + 1, X + 1) and np.array_equal(array @ X, X @ X) and np.array_equal(X @ array, X @ X)
    assert np.array_equal(np.sqrt(array), np.sqrt(X)) and np.array_equal(X - array, 0 * X)
    number += 1
    assert number == 3.0 and type(number) is float


def test_formats(made):
    number, whole, array = made
    assert f"{number:.2f} {whole:03}" == "2.00 007"
    assert f"{number}" == str(number) == repr(number) and "gridloom.Handle" in repr(number)


def test_methods_of_the_value_need_get(made):
    number, _, array = made
    for name in ("T", "sum", "mean", "tolist"):
        with pytest.raises(AttributeError, match=rf"a gridloom.Handle has no attribute '{name}'; if its value has it, write .get\(\).{name}"):
            getattr(array, name)
    assert array.get().T[0, 1] == 6.0 and array.shape == (2, 2)
    with pytest.raises(AttributeError, match="^a gridloom.Handle has no attribute '_repr_png_'$"):
        array._repr_png_
