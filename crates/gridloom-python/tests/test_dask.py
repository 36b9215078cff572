"""`gl.dask`: graphs of Dask on a grid."""

import os
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest

dask = pytest.importorskip("dask", reason="dask is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")
db = pytest.importorskip("dask.bag", reason="dask is not installed")


@pytest.fixture(scope="module", autouse=True)
def grid(program):
    with gl.local(servers=2) as opened:
        yield opened


def where(value=None):
    return os.getppid(), value


def computed(*values, **options):
    return dask.compute(*values, scheduler=gl.dask, **options)


def test_arrays_bags_and_delayed_calls_match_dask():
    x = da.arange(10_000, chunks=1_000).reshape(100, 100)
    y = (x @ x.T + x.sum(axis=0)).mean()
    counts = db.from_sequence(range(100), npartitions=5).map(lambda n: n % 3).frequencies()
    total = dask.delayed(sum)([dask.delayed(pow)(n, 2) for n in range(10)])
    assert computed(y, counts, total) == dask.compute(y, counts, total, scheduler="sync")
    with dask.config.set(scheduler=gl.dask):
        assert total.compute() == 285
        assert np.array_equal(da.ones((5, 5), chunks=2).persist().sum(axis=0).compute(), np.full(5, 5.0))


def test_data_frames_match_dask():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    dd = pytest.importorskip("dask.dataframe", reason="pyarrow is not installed")
    frame = dd.from_pandas(pandas.DataFrame({"a": range(100), "b": [n % 7 for n in range(100)]}), npartitions=6)
    means, size = frame.groupby("b").a.mean(), frame.merge(frame, on="b").a_x.sum()
    ours, expected = computed(means, size), dask.compute(means, size, scheduler="sync")
    assert ours[0].sort_index().equals(expected[0].sort_index()) and ours[1] == expected[1]


def test_graphs_as_they_are_written():
    """Tasks as tuples, aliases, data, nested lists and dicts, fused tasks, and keys that are asked for twice."""
    from dask._task_spec import Alias, DataNode, Dict, Task, TaskRef

    graph = {
        "x": 1,
        "large": np.arange(100_000),
        "alias": "x",
        "again": Alias("again", "alias"),
        "y": (pow, "again", 3),
        "list": (sum, ["x", "y", [1][0]]),
        ("z", 0): Task(("z", 0), np.sum, TaskRef("large")),
        "dict": Task("dict", dict.get, Dict({"a": TaskRef("y")}), "a"),
        "node": DataNode("node", {"k": 2}),
        "never": (divmod, 1, 0),
    }
    fused = [Task("f1", pow, TaskRef("x"), 2), Task("f2", max, TaskRef("f1"), TaskRef("y"))]
    graph["fused"] = Task.fuse(*fused, key="fused")
    keys = ["x", ["alias", ("z", 0)], ["list", "list", ["node"]], "dict", "fused", "large"]
    x, inner, twice, from_dict, from_fused, large = gl.dask(graph, keys)
    assert (x, inner, twice) == (1, (1, 4999950000), (3, 3, ({"k": 2},)))
    assert from_dict == 1 and from_fused == 1 and large.shape == (100_000,)
    assert gl.dask(graph, keys[:-1]) == dask.get(graph, keys[:-1])
    assert gl.dask(graph, "y") == 1
    with pytest.raises(gl.UsageError, match="'a' is an alias of itself"):
        gl.dask({"a": "b", "b": "a"}, "a")


def test_a_task_reads_any_number_of_others():
    numbers = [dask.delayed(int)(n) for n in range(300)]
    assert computed(dask.delayed(sum)(numbers), dask.delayed(list)(numbers)) == (44850, list(range(300)))


def test_results_stay_on_servers(grid):
    before = grid.traffic().client_bytes
    array = da.random.random((2_000, 2_000), chunks=(1_000, 1_000))
    (mean,) = computed((array + array.T).mean())
    assert 0.9 < mean < 1.1
    assert grid.traffic().client_bytes - before < 4_000_000


class Unlucky(ValueError):
    def __init__(self, number):
        super().__init__(f"unlucky {number}")
        self.number = number


def unlucky(number):
    if number == 13:
        raise Unlucky(number)
    return number


def test_an_exception_is_raised_unchanged():
    numbers = [dask.delayed(unlucky)(n) for n in range(20)]
    with pytest.raises(Unlucky, match="unlucky 13") as raised:
        computed(dask.delayed(sum)(numbers))
    assert raised.value.number == 13 and "in unlucky" in str(raised.value.__cause__)
    # The grid goes on.
    assert computed(dask.delayed(sum)(numbers[:5])) == (10,)


def test_what_cannot_be_sent_or_returned_names_its_task():
    import threading

    lock = threading.Lock()
    with pytest.raises(gl.ArgumentError, match="the task held cannot be sent: .*_thread.lock"):
        gl.dask({"held": (lambda: lock,)}, "held")
    with pytest.raises(gl.SignatureError, match="given.*cannot be pickled: generator"):
        gl.dask({"given": (lambda: (n for n in range(3)),)}, "given")


def test_annotations_choose_servers_priorities_and_retries(grid):
    servers = {one.name for one in grid.servers()}
    assert servers == {"server-1", "server-2"}
    with dask.annotate(workers="server-2"):
        second = [dask.delayed(where, pure=False)(n) for n in range(6)]
    with dask.annotate(workers=["server-1"]):
        first = [dask.delayed(where, pure=False)(n) for n in range(6)]
    (on_second, on_first) = computed(second, first, optimize_graph=False)
    assert len({process for process, _ in on_second}) == len({process for process, _ in on_first}) == 1
    assert {process for process, _ in on_second} != {process for process, _ in on_first}
    with dask.annotate(workers="elsewhere"):
        pinned = dask.delayed(where)()
    with pytest.raises(gl.UsageError, match=r"workers=\['elsewhere'\], and the grid has none of these; it has server-1, server-2"):
        computed(pinned, optimize_graph=False)
    with dask.annotate(workers="elsewhere", allow_other_workers=True, priority=3):
        assert computed(dask.delayed(where)(1), optimize_graph=False)[0][1] == 1
    with dask.annotate(resources={"GPU": 1}):
        resourceful = dask.delayed(where)(2)
    with pytest.warns(UserWarning, match="the annotation 'resources' of Dask is not kept"):
        computed(resourceful, optimize_graph=False)


def test_priorities_precede_the_order_of_dask():
    from gridloom.adapters.dask_graph import Graph

    class Annotated(dict):
        def __dask_annotations__(self):
            return {"priority": {"c": 5, "b": 1}}

    graph = Graph(Annotated(a=(int, 1), b=(int, 2), c=(int, "d"), d=(int, 3), e=(max, "a", "b", "c")), ["e"])
    # c waits for d, which has none.
    assert [key for key in graph.order if key in "abc"][:1] == ["b"] and graph.order[-1] == "e"
    assert graph.order.index("c") == graph.order.index("d") + 1


def test_a_task_is_tried_again(tmp_path):
    def flaky(path):
        import pathlib

        tried = pathlib.Path(path)
        tried.write_text(f"{tried.read_text() if tried.exists() else ''}x")
        if len(tried.read_text()) < 3:
            raise RuntimeError("not yet")
        return tried.read_text()

    with dask.annotate(retries=2):
        call = dask.delayed(flaky)(tmp_path / "tried")
    assert computed(call, optimize_graph=False) == ("xxx",)


def test_what_tasks_took_is_kept_in_mind(grid):
    from gridloom.adapters.dask_scheduler import _known

    def slow(n):
        import time

        time.sleep(0.1)
        return bytes(n)

    computed(*[dask.delayed(slow)(1000) for _ in range(2)])
    seconds, size_bytes = _known[grid]["slow"]
    assert seconds >= 0.1 and 1000 < size_bytes < 1200


def test_the_grid_is_the_one_opened_last_or_the_one_named(grid):
    with gl.local(servers=1) as other:
        (last,), (named,) = computed(dask.delayed(where)()), computed(dask.delayed(where)(4), grid=grid)
        assert last[0] in other.server_processes() and named[0] in grid.server_processes()
    with gl.local(servers=1, run_code=False) as plain:
        with pytest.raises(gl.UnknownName, match="start one with 'gridloom serve --run-code'"):
            computed(dask.delayed(where)(), grid=plain)


def test_without_a_grid_or_dask_the_remedy_is_named():
    text = "import dask, gridloom as gl\ndask.delayed(int)(1).compute(scheduler=gl.dask)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert "UsageError: no grid is open: open one by gridloom.local()" in done.stderr
    missing = "import sys, gridloom as gl\nsys.modules['dask'] = None\ngl.dask({'x': 1}, 'x')"
    done = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True)
    assert "ImportError: gridloom.dask needs Dask 2025.4 or later, which cannot be imported: install it" in done.stderr
