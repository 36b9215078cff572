"""`Grid.stream`: what a function yields on a server, value by value."""

import asyncio
import itertools
import os
import time

import gridloom as gl
import pytest


@pytest.fixture(scope="module")
def grid():
    with gl.local(servers=2) as opened:
        yield opened


def count(number, error=None):
    yield from range(number)
    if error is not None:
        raise error


def tell(path):
    for number in itertools.count():
        with open(path, "a") as file:
            file.write(f"{number}\n")
        yield number


def test_values_arrive_in_order(grid):
    assert list(grid.stream(count, 1000)) == list(range(1000))
    assert list(grid.stream(lambda: "abc")) == ["a", "b", "c"]
    assert list(grid.stream(count, 0)) == []
    assert list(grid.stream(lambda: iter([b"", None, b".", StopIteration()])))[:3] == [b"", None, b"."]


def test_many_streams_take_turns(grid):
    streams = [grid.stream(count, 20, buffersize=1) for _ in range(8)]
    assert list(zip(*streams)) == [(number,) * 8 for number in range(20)]


def test_an_error_follows_the_values_before_it_and_ends_the_stream(grid):
    stream = grid.stream(count, 3, KeyError("gone"))
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="gone") as caught:
        next(stream)
    assert "in count" in str(caught.value.__cause__)
    assert list(stream) == []


@pytest.mark.parametrize(
    ("function", "error", "told"),
    [
        (lambda: 5, TypeError, "a stream takes a function with 'yield', or one that returns an iterable; this one returned int"),
        (lambda: os._exit(3), gl.Crashed, "exit status 3"),
        (lambda: iter([iter(()), (_ for _ in ())]), gl.SignatureError, "generator: it gives values one by one"),
        (lambda: 1 / 0, ZeroDivisionError, "division by zero"),
    ],
)
def test_remote_errors_are_reported(grid, function, error, told):
    with pytest.raises(error, match=told) as caught:
        list(grid.stream(function))
    assert "python/stream" not in str(caught.value)


def test_what_cannot_be_sent_is_reported_immediately(grid):
    with pytest.raises(gl.ArgumentError, match="argument 1, of type generator, cannot be pickled"):
        grid.stream(count, (_ for _ in ()))
    with pytest.raises(ValueError, match="buffersize must be >= 1, got 0"):
        grid.stream(count, 1, buffersize=0)


def test_the_function_prefetches_lead_values_and_ends_with_close(grid, tmp_path):
    path = tmp_path / "told"
    with grid.stream(tell, path, buffersize=4) as stream:
        assert [next(stream), next(stream)] == [0, 1]
        # Calls are run in turn: with the sixth value there, five others are.
        while len(path.read_text().split()) < 6:
            os.sched_yield()
        assert next(stream) == 2
    assert list(stream) == []
    assert len(path.read_text().split()) <= 7


def test_a_wait_has_a_limit_and_can_be_made_again(grid, tmp_path):
    def read(path):
        yield path.read_text()

    path = tmp_path / "pipe"
    os.mkfifo(path)
    with grid.stream(read, path, timeout=0.1) as stream:
        with pytest.raises(gl.TimedOut, match="within 0.1 s"):
            next(stream)
        path.write_text("late")
        while True:
            try:
                assert next(stream) == "late"
                break
            except gl.TimedOut:
                pass


class Unloadable:
    """Cannot be unpickled."""

    def __reduce__(self):
        return divmod, (1, 0)


def test_what_cannot_be_loaded_there_is_reported(grid):
    for buffersize in (1, 16):
        with pytest.raises(gl.CannotRun, match="count cannot run on server 'server-.': an argument cannot be unpickled.*ZeroDivisionError"):
            list(grid.stream(count, Unloadable(), buffersize=buffersize))


class Slow:
    """Takes forever to unpickle."""

    def __reduce__(self):
        return time.sleep, (1e9,)


def test_close_ends_what_hangs_before_the_first_value():
    with gl.local(servers=1) as own:
        stream = own.stream(count, Slow())
        stream.close()
        assert own.run(pow, 2, 3).get(timeout=60) == 8


def test_async_for(grid):
    async def program():
        values = [value async for value in grid.stream(count, 5)]
        with pytest.raises(KeyError):
            async for value in grid.stream(count, 1, KeyError("gone")):
                values.append(value)
        return values

    assert asyncio.run(program()) == [0, 1, 2, 3, 4, 0]


def test_prints_are_labelled():
    said = []

    def chatty():
        print("hello")
        yield 1

    with gl.local(servers=1, logs=said.append) as grid:
        assert list(grid.stream(chatty)) == [1]
    assert [(one.label, one.text) for one in said] == [("chatty@server-1", "hello\n")]


def test_a_closed_session_ends_its_streams(grid):
    with gl.local(servers=1) as own:
        stream = own.stream(itertools.count)
        assert next(stream) == 0
    with pytest.raises((gl.UsageError, gl.Cancelled)):
        for _ in stream:
            pass
