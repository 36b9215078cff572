"""Each call gets its function as the program sent it: what earlier calls did to objects in it stays out."""

import functools

import gridloom as gl
import numpy as np
import pytest


class Counter:
    def __init__(self):
        self.seen = []

    def add(self, x):
        self.seen.append(x)
        return list(self.seen)

    def __call__(self, x):
        return self.add(x)


def add_to(seen, x):
    seen.append(x)
    return list(seen)


def closure():
    seen = []
    return lambda x: add_to(seen, x)


def rebinding():
    count = 0

    def counted(x):
        nonlocal count
        count += 1
        return [x] * count

    return counted


def default():
    return lambda x, seen=[]: add_to(seen, x)


def keyword_default():
    return lambda x, *, seen=([],): add_to(seen[0], x)


def decorated():
    add = Counter()

    @functools.wraps(add_to)
    def wrapper(x):
        return add(x)

    return wrapper


def partial():
    return functools.partial(add_to, [])


def bound():
    return Counter().add


def generator():
    random, first = np.random.default_rng(0), np.random.default_rng(0).random()
    return lambda x: [x] if random.random() == first else [x, "another number"]


MADE = [bound, Counter, partial, closure, rebinding, default, keyword_default, decorated, generator]


@pytest.fixture(scope="module")
def alone(program):
    """One worker process."""
    with gl.local(servers=1, slots=1) as grid:
        yield grid


@pytest.mark.parametrize("make", MADE)
def test_distinct_objects_stay_distinct(alone, make):
    assert [alone.run(make(), x).get() for x in "abc"] == [["a"], ["b"], ["c"]]
    assert [alone.options(retries=1).run(make(), x).get() for x in "abc"] == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("make", MADE)
def test_calls_of_one_object_do_not_add_up(alone, make):
    same = make()
    assert [alone.run(same, x).get() for x in "abc"] == [["a"], ["b"], ["c"]]
    assert list(alone.map(same, "abc")) == [["a"], ["b"], ["c"]]
    assert list(alone.map(same, "abc", retries=1)) == [["a"], ["b"], ["c"]]
    with gl.Executor(grid=alone) as executor:
        assert list(executor.map(same, "abc")) == [["a"], ["b"], ["c"]]
        assert [executor.submit(same, x).result() for x in "abc"] == [["a"], ["b"], ["c"]]


def test_generators_restart(alone):
    assert alone.run(np.random.default_rng(0).random).get() == alone.run(np.random.default_rng(0).random).get()


class Fails:
    def __init__(self, path):
        self.path, self.runs = path, 0

    def __call__(self):
        self.runs += 1
        if not self.path.exists():
            self.path.touch()
            raise KeyError(self.runs)
        return self.runs


def test_a_further_run_begins_with_the_object_as_it_was(alone, tmp_path):
    assert alone.options(retries=2).run(Fails(tmp_path / "ran")).get() == 1


def test_calls_of_a_chunk_share_the_object_as_in_python(alone):
    assert list(alone.map(Counter(), "abcd", chunksize=2)) == [["a"], ["a", "b"], ["c"], ["c", "d"]]


def test_plain_functions_are_kept():
    from gridloom.worker.reuse import is_reusable

    def plain(x, y=(1, "a", np.float64(2), None), *, z=int):
        return x

    assert all(map(is_reusable, (plain, functools.lru_cache(plain), Counter, len)))
    assert not any(is_reusable(make()) for make in MADE)
    assert not is_reusable([].append) and not is_reusable(np.random.default_rng(0).random)
