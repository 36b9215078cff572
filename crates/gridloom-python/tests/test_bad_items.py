"""Maps over very many items, and over items that fail."""

import itertools

import pytest
from sent_functions import twice


def test_a_hundred_thousand_calls(one):
    assert sum(one.map(twice, range(100_000), chunksize=100)) == 100_000 * 99_999


def test_an_iterable_that_fails_ends_the_results(one):
    def numbers():
        yield from range(10)
        raise KeyError("ten")

    results = one.map(twice, numbers(), lead=3)
    with pytest.raises(KeyError, match="ten"):
        list(results)
    assert list(results) == []


def test_a_generator_ends_with_the_results(one):
    ended = []

    def numbers():
        try:
            yield from itertools.count()
        finally:
            ended.append(True)

    results = one.map(twice, numbers())
    assert list(itertools.islice(results, 3)) == [0, 2, 4]
    results.close()
    assert ended == [True]


def test_a_generator_may_itself_run_calls(one):
    assert list(one.map(twice, (one.run(twice, n).get(60) for n in range(10)))) == [4 * n for n in range(10)]
    assert list(one.map(twice, one.map(twice, range(100)))) == [4 * n for n in range(100)]
