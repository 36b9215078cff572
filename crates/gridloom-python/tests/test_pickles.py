"""What is pickled and copied, and what is refused with its remedy."""

import copy
import functools
import math
import pickle
import subprocess
import sys
import threading

import gridloom as gl
import numpy as np
import pytest
from test_plans import names, planned, record, waits

WAYS = [pickle.loads, copy.copy, copy.deepcopy]


def through(way, value):
    return pickle.loads(pickle.dumps(value)) if way is pickle.loads else way(value)


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_survives_the_round_trip(world, way, tmp_path):
    plan = planned(world)
    again = through(way, plan)
    assert again == plan and str(again) == str(plan) and repr(again) == repr(plan)
    assert again.explain(1) == plan.explain(1) and again.critical_path() == plan.critical_path()
    for one, name in ((plan, "one"), (again, "again")):
        one.save(tmp_path / f"{name}.json")
        one.gantt(tmp_path / f"{name}.svg")
    for ending in ("json", "svg"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"again.{ending}").read_bytes()
    moved = through(way, again.move(0, names(world)[2]))
    assert moved.tasks[0].server == names(world)[2] and moved.makespan_seconds > 0
    waits(world, moved)


@pytest.mark.parametrize("way", WAYS)
def test_a_report_survives_the_round_trip(world, way, tmp_path):
    group = world.group()
    record(world, group).get()
    report = group.report()
    again = through(way, report)
    assert str(again) == str(report) and repr(again) == repr(report) and again.to_dict() == report.to_dict()
    for name in gl.plans.Report.__annotations__:
        assert getattr(again, name) == getattr(report, name), name
    again.to_dict()["tasks"].clear()
    assert again.to_dict() == report.to_dict()
    for title in ("Gridloom group", "a <b> & \"c\" 'd'"):
        for one, name in ((report, "one"), (again, "again")):
            one.save_timeline(tmp_path / name, title)
        assert (tmp_path / "one").read_text() == (tmp_path / "again").read_text()
    # Such a plan has no problem, and no known times once it is changed.
    moved = again.plans[0].move(0, names(world)[2])
    assert math.isnan(moved.makespan_seconds) and math.isnan(through(way, moved).makespan_seconds)


@pytest.mark.parametrize("way", WAYS)
def test_records_survive_the_round_trip(world, way):
    plan = planned(world)
    values = [plan.explain(0), plan.critical_path(), plan.tasks, plan.transfers, world.servers(), world.traffic()]
    if world.simulated:
        values.append(world.simulation())
    for value in values:
        assert through(way, value) == value
    assert str(through(way, plan.explain(0))) == str(plan.explain(0))


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_survives_the_round_trip(platform, way):
    graph = gl.Graph()
    a = graph.input("a", shape=(4, 4))
    graph.call("linalg/dgemm", a, a, name="square")
    again = through(way, graph)
    assert again.calls == ["square"]
    again.call("linalg/dgemm", gl.groups.GraphNode("square"), a, name="cube")
    assert (graph.calls, again.calls) == (["square"], ["square", "cube"])
    with gl.simulate(platform) as grid:
        assert len(again.plan(grid).tasks) == 2


def result(grid):
    with grid.group():
        return grid.function("tests/halve")(np.ones(2))[1]


def test_objects_of_a_session_name_the_remedy(grid):
    handle = result(grid)
    halve = grid.function("tests/halve")
    others = [grid, grid.group(), halve, halve.submit(np.ones(2)), grid.run(len, "")]
    for one in others:
        name = "Future" if isinstance(one, gl.Future) else type(one).__name__
        with pytest.raises(TypeError, match=f"a gridloom.{name} .* cannot be pickled: "):
            pickle.dumps([one])
    for one in (handle, *others):
        assert copy.copy(one) is one and copy.deepcopy([one])[0] is one
    assert pickle.loads(pickle.dumps(handle.get())) == 0.5


def test_a_handle_is_pickled_as_a_reference(grid):
    handle = result(grid)
    pickled = pickle.dumps([handle, handle])
    assert all(one is handle for one in pickle.loads(pickled))
    elsewhere = subprocess.run([sys.executable, "-c", f"import pickle; pickle.loads({pickled!r})"], capture_output=True, text=True)
    assert "a pickle of it is a reference: it is of another process; fetch the value, and pass its .get()" in elsewhere.stderr
    del handle
    with pytest.raises(gl.UsageError, match="the program has dropped it"):
        pickle.loads(pickled)


def test_a_handle_within_an_argument_is_its_value(grid):
    handle = result(grid)
    assert grid.run(abs, handle).get() == 0.5
    assert grid.run(lambda x: x, {"a": [1, handle]}).get() == {"a": [1, 0.5]}
    assert grid.run(max, [2, 1], key=functools.partial(pow, handle)).get() == 1
    assert list(grid.map(abs, [1, handle])) == [1, 0.5]
    assert list(grid.map(sum, [[], [handle]], chunksize=2)) == [0, 0.5]
    with gl.Executor(grid=grid) as executor:
        assert executor.submit(sum, [handle, handle]).result() == 1.0
    with pytest.raises(gl.ArgumentError, match=r"its variable 'handle', of type Handle, .*pass its \.get\(\)"):
        grid.run(lambda: handle)
    with grid.group():
        array = grid.function("tests/halve")(np.ones(3))[0]
    assert grid.run(sum, array).get() == 1.5
    lock = threading.Lock()
    with pytest.raises(gl.ArgumentError, match="argument 2, of type lock"):
        grid.run(max, handle, lock)


def test_a_session_in_a_function_is_refused(grid):
    with pytest.raises(gl.ArgumentError, match=r"'grid', of type Grid, .*: open one by gridloom\.connect\(\) where it is used"):
        grid.run(lambda: grid.servers())
    assert grid.run(lambda: len(gl.connect().servers())).get() == len(grid.servers())


def test_what_a_function_returns_is_reported(grid):
    def gives_a_handle():
        with gl.connect() as inner:
            return result(inner)

    with pytest.raises(gl.SignatureError, match=r"Handle: CannotPickle: a gridloom\.Handle .*pass its \.get\(\)"):
        grid.run(gives_a_handle).get()
