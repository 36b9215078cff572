"""Functions that the tests of engines run on clusters, an engine in this process, and helpers of these tests."""

import contextlib
import itertools
import os
import socket
import sys
import threading
import time
import types

import cloudpickle
import gridloom as gl
import numpy as np
import pytest
from gridloom.engines.protocol import Measured, NotYet, ResultLost
from numpy.typing import NDArray

Square = gl.Array[NDArray[np.float64], "n", "n"]
gl_module = "engines"


@gl.function(work="2*n*n*n")
def product(a: Square, b: Square) -> Square:
    return a @ b


@gl.function(work="n*n")
def sums(a: Square) -> tuple[gl.Out[float, "total"], gl.Out[gl.Array[NDArray[np.float64], "n"], "diagonal"]]:
    return float(a.sum()), np.diagonal(a).copy()


@gl.function(work="1")
def half(x: float) -> float:
    return x / 2


@gl.function(work="1e9")
def process(x: float) -> int:
    import os

    return os.getpid()


@gl.function(work="1")
def fails(x: float) -> float:
    raise KeyError(f"no {x}")


@gl.function(work="1")
def is_late(x: float) -> float:
    raise TimeoutError(f"{x} is late")


@gl.function(work="1e9")
def dies_once(path: str, x: float) -> float:
    import os
    import pathlib

    try:
        pathlib.Path(path).touch(exist_ok=False)
    except FileExistsError:
        return x + 1
    os._exit(1)


@gl.function(work="1")
def leaves(x: float) -> float:
    import sys

    sys.exit(int(x))


@gl.function(work="1")
def interrupts(x: float) -> float:
    raise KeyboardInterrupt(f"at {x}")


# A module that workers do not have.
sys.modules["absent_there"] = absent_there = types.ModuleType("absent_there")


@gl.function(work="1")
def needs_more(x: float) -> float:
    return absent_there.scale * x


@gl.function(work="1")
def wrong(x: float) -> float:
    return (one for one in (x, x))


@gl.function(work="1")
def reshaped(a: Square) -> gl.Array[NDArray[np.float64], "n"]:
    return a


@gl.function(work="1")
def waits_for(path: str, a: Square) -> Square:
    import pathlib
    import time

    while not pathlib.Path(path).exists():
        time.sleep(0.01)
    return a


FUNCTIONS = [product, sums, half, process, fails, is_late, dies_once, needs_more, wrong, reshaped, waits_for, leaves, interrupts]


class Fake:
    """An engine that runs calls in this process, when their results are requested."""

    recovers = False
    start_hint = "a fake worker joins by 'there.append'"
    dumps = staticmethod(cloudpickle.dumps)

    def __init__(self):
        self.there, self.ran, self.ahead, self.dying = ["w0", "w1"], {}, [], None
        self.noted, self.launches, self.waits, self.submitter = [], 0, 0, None
        self.requested, self.collected, self.slots = 0, [], 1
        # Keys of calls that were running when their workers died; all calls that were sent.
        self.died, self.sent = set(), []

    def workers(self):
        return list(self.there)

    def request_worker(self):
        self.requested += 1
        self.there.append(f"on-demand-{self.requested}")

    def probe(self, known=None):
        both = dict.fromkeys(self.there, 1e9)
        links = dict.fromkeys(itertools.combinations(sorted(self.there), 2), 1e9)
        return Measured(dict.fromkeys(self.there, self.slots), both, both, links, 1e-4)

    def submit(self, key, body, args, worker, rank, deaths):
        assert all("body" in one for one in args if isinstance(one, dict))
        # One thread at a time submits and launches.
        assert self.submitter in (None, threading.get_ident())
        self.submitter = threading.get_ident()
        time.sleep(0)
        self.noted.append({"key": key, "body": body, "args": args, "worker": worker, "rank": rank, "deaths": deaths, "is_sent": False})
        return self.noted[-1]

    def prefetch(self, key, result, worker, rank):
        self.ahead.append((result["key"], worker))

    def launch(self):
        self.launches += 1
        while self.noted:
            self.sent.append(self.noted.pop())
            self.sent[-1]["is_sent"] = True
        self.submitter = None

    def discard(self):
        self.noted.clear()
        self.submitter = None

    def wait(self, results, timeout):
        self.waits += 1
        for place, one in enumerate(results):
            try:
                self.collect(one, timeout)
            except (NotYet, ResultLost):
                raise
            except Exception:
                return place
        return None

    def collect(self, result, timeout):
        waiting = [result]
        while waiting:
            call = waiting[-1]
            assert call["is_sent"]
            if call["worker"] not in self.there:
                raise NotYet
            if self.dying == call["worker"]:
                self.there.remove(self.dying)
                raise ResultLost("it died")
            if before := [one for one in call["args"] if isinstance(one, dict) and "value" not in one]:
                waiting += before
                continue
            waiting.pop()
            if "value" not in call:
                args = [one["value"] if isinstance(one, dict) else one for one in call["args"]]
                self.ran[call["key"]] = (float(call["rank"]), call["rank"] + 0.5, call["worker"])
                call["value"] = call["body"](*args)
        return result["value"]

    def collect_ended(self, results):
        ended = {place: one["value"] for place, one in enumerate(results) if "value" in one}
        self.collected.append(len(ended))
        return ended

    def has_ended(self, result):
        return "value" in result

    def has_died(self, result):
        return result["key"] in self.died

    def times(self, keys):
        return {key: self.ran[key] for key in keys}

    def close(self):
        self.there = []


@contextlib.contextmanager
def bare(tmp_path_factory):
    """Processes started in this block cannot import gridloom, because a cluster must not need it."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['gridloom'] = None\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.fspath(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


def once(method, error, call=1):
    """Return the method, changed so that it raises `error` at its call number `call`."""
    calls = itertools.count(1)

    def raising(*args, **kwargs):
        if next(calls) == call:
            raise error
        return method(*args, **kwargs)

    return raising


def free_ports(count):
    with contextlib.ExitStack() as taken:
        sockets = [taken.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
