"""Maps over very many items, and over items that fail."""

import itertools
from concurrent import futures

import gridloom as gl
import pytest
from bad_functions import wait_until
from sent_functions import twice


def fails(number):
    raise ValueError(f"no {number}")


def test_a_hundred_thousand_calls(one):
    assert sum(one.map(twice, range(100_000), chunksize=100)) == 100_000 * 99_999


def test_very_many_futures_end_each_once(one):
    ended = []
    with gl.Executor(grid=one) as executor:
        begun = [executor.submit(twice if number % 100 else fails, number) for number in range(4_000)]
        for future in begun:
            future.add_done_callback(ended.append)
        done, not_done = futures.wait(begun)
    wait_until(lambda: len(ended) == len(begun))
    assert len(done) == len(begun) == len(set(ended)) and not not_done
    for number, future in enumerate(begun):
        if number % 100:
            assert future.result() == 2 * number
        else:
            assert str(future.exception()) == f"no {number}"


def test_an_iterable_that_fails_ends_the_results(one):
    def numbers():
        yield from range(10)
        raise KeyError("ten")

    results = one.map(twice, numbers(), buffersize=3)
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
