"""Groups on clusters of other systems: what each engine keeps, with one in this process and a Dask cluster of two workers."""

import os

import gridloom as gl
import numpy as np
import pytest
from gridloom._engine import EngineGrid, Measured, ResultLost
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


@gl.function(work="1e9")
def dies_once(path: str, x: float) -> float:
    import os
    import pathlib

    try:
        pathlib.Path(path).touch(exist_ok=False)
    except FileExistsError:
        return x + 1
    os._exit(1)


FUNCTIONS = [product, sums, half, process, fails, dies_once]


class Fake:
    """Runs calls in this process, when they are asked for."""

    def __init__(self):
        self.there, self.ran, self.ahead, self.dying = ["w0", "w1"], {}, [], None

    def workers(self):
        return list(self.there)

    def probe(self):
        both = dict.fromkeys(self.there, 1e9)
        return Measured(dict.fromkeys(self.there, 1), both, both, {("w0", "w1"): 1e9}, 1e-4)

    def submit(self, key, body, args, worker, rank):
        return {"key": key, "body": body, "args": args, "worker": worker, "rank": rank}

    def prefetch(self, key, result, worker, rank):
        self.ahead.append((result["key"], worker))

    def collect(self, result, timeout, brings=True):
        if result["worker"] not in self.there:
            raise TimeoutError
        if self.dying == result["worker"]:
            self.there.remove(self.dying)
            raise ResultLost("it died")
        if "value" not in result:
            args = [self.collect(one, timeout) if isinstance(one, dict) else one for one in result["args"]]
            self.ran[result["key"]] = (float(result["rank"]), result["rank"] + 0.5, result["worker"])
            result["value"] = result["body"](*args)
        return result["value"]

    def times(self, keys):
        return {key: self.ran[key] for key in keys}

    def launched(self):
        pass

    def close(self):
        self.there = []


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        yield cluster


@pytest.fixture(params=["fake", "dask"])
def grid(request):
    if request.param == "fake":
        engine = Fake()
        with EngineGrid(engine, engine.probe(), FUNCTIONS) as grid:
            yield grid
        return
    address = request.getfixturevalue("cluster").scheduler_address
    with gl.connect(address.replace("tcp://", "dask://"), functions=FUNCTIONS) as grid:
        yield grid


def test_a_group_gives_what_its_functions_give(grid):
    a, b = np.random.default_rng(1).standard_normal((2, 200, 200))
    with grid.group() as group:
        ab, ba = grid.function(product)(a, b), grid.function("engines/product")(b, a)
        total, diagonal = grid.function(sums)(grid.function(product)(ab, ba))
        quarter = grid.function(half)(grid.function(half)(total))
    assert np.allclose(diagonal.get(), np.diagonal(a @ b @ b @ a))
    assert quarter.get() == total.get() / 4
    report = group.report()
    assert len(report.tasks) == 6 and report.predicted_seconds > 0 and report.measured_seconds > 0
    assert {one.function for one in report.tasks} == {"engines/product", "engines/sums", "engines/half"}
    # Each call ran where the plan has it.
    assert all(one.server == report.planned[one.task] for one in report.tasks)
    assert str(report).startswith("6 calls on ") and "not where" not in str(report)
    # Results of a group are arguments of the next one, and of a call by itself.
    with grid.group():
        again = grid.function(sums)(ab)
    assert again[0].get() == pytest.approx((a @ b).sum())
    assert grid.function(half)(total) == total.get() / 2


def test_workers_and_links_are_measured(grid):
    measured, names = grid.measured, sorted(grid.measured.slots)
    assert len(names) == 2 and set(measured.speed) == set(measured.client_bytes_per_s) == set(names)
    assert list(measured.direct_bytes_per_s) == [tuple(names)]
    assert all(
        one > 1e5 for one in [*measured.speed.values(), *measured.client_bytes_per_s.values(), *measured.direct_bytes_per_s.values()]
    )


def test_heuristics_choose_the_workers(grid):
    names = sorted(grid.measured.slots)
    with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]) as group:
        processes = [grid.function(process)(float(n)) for n in range(4)]
    values = [one.get() for one in processes]
    report = group.report()
    assert sorted(report.planned.values()) == sorted(names * 2)
    assert len(set(values)) == len({one.server for one in report.tasks}) or len(set(values)) == 1
    with grid.group():
        pinned = grid.function(process).on(names[1])(1.0)
    assert pinned.get() in values


def test_errors_are_told_as_on_a_grid(grid):
    with pytest.raises(gl.ArgumentError, match=r"argument 'b' has shape \[3\], expected \[n, n\] of 2 dimensions"):
        grid.function(product)(np.ones((3, 3)), np.ones(3))
    with grid.group() as group:
        failed = grid.function(half)(grid.function(fails)(2.0))
    for attempt in (failed.get, group.wait):
        with pytest.raises(KeyError, match="no 2.0"):
            attempt()
    for name in ("run", "map", "put", "get"):
        with pytest.raises(gl.UsageError, match=f"Grid.{name} is not there on an engine"):
            getattr(grid, name)(half, 1)
    with pytest.raises(gl.UsageError, match="no option 'regroup'"):
        grid.group(regroup=2)
    with pytest.raises(gl.UsageError, match="recorded in groups"):
        grid.function(half).submit(1.0)
    with pytest.raises(gl.UnknownFunctionError):
        grid.function("engines/other")


def test_a_worker_that_dies_loses_no_result(grid, tmp_path):
    noted = os.fspath(tmp_path / "died")
    x = np.ones((100, 100))
    with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
        first = grid.function(product)(x, x)
        if isinstance(grid._engine, Fake):
            grid._engine.dying = sorted(grid.measured.slots)[1]
            second = grid.function(half)(8.0)
        else:
            second = grid.function(dies_once)(noted, 3.0)
        third = grid.function(product)(first, first)
    assert second.get() == 4.0
    assert np.array_equal(third.get(), x @ x @ x @ x)


def test_the_last_worker_that_dies_is_told():
    engine = Fake()
    with EngineGrid(engine, engine.probe(), FUNCTIONS) as grid:
        with grid.group():
            one = grid.function(half)(1.0)
        engine.there.clear()
        with pytest.raises(gl.ServerLost, match="the cluster has lost all workers that it had: w0, w1"):
            one.get()


def test_large_results_are_sent_before_all_inputs_exist():
    engine = Fake()
    with EngineGrid(engine, engine.probe(), FUNCTIONS) as grid:
        x = np.ones((400, 400))
        with grid.group(lambda problem: [0, 1, 0]):
            made = grid.function(product)(x, x), grid.function(product)(x, x)
            last = grid.function(product)(*made)
        assert [worker for _, worker in engine.ahead] == ["w0"]
        assert np.array_equal(last.get(), x @ x @ x @ x)


def test_an_open_client_is_taken_and_stays_open(cluster):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster, set_as_default=False) as client:
        with gl.connect(client, functions=[half]) as grid:
            assert grid.function(half)(3.0) == 1.5
        assert client.submit(int, 3).result() == 3


def test_what_cannot_be_meant_is_refused(cluster):
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with pytest.raises(gl.UsageError, match=r"needs them at the beginning: gridloom.connect\(..., functions=\[f, g\]\); got \[\]"):
        gl.connect(address)
    with pytest.raises(gl.UsageError, match="functions are for a Dask cluster"):
        gl.connect("127.0.0.1:1", functions=[half])
    with pytest.raises(gl.UsageError, match="not both"):
        gl.connect(address, servers=["127.0.0.1:1"], functions=[half])
