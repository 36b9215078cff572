"""Groups that are described beforehand, in both worlds."""

import json
import os
import signal
import warnings

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS

EXTENT = 30


def matrix():
    """Its powers go to zero."""
    return np.random.default_rng(1).random((EXTENT, EXTENT)) / EXTENT


def described(matmul, steps):
    """Powers of a, each of the one before."""
    graph = gl.Graph()
    a = graph.input("a", shape=(EXTENT, EXTENT))
    power = a
    for step in range(steps):
        power = graph.call(matmul, power, a, name=f"power{step + 2}", optional=step > 1)
        graph.want(power)
    return graph


def converge(matmul, a, limit):
    """Multiplies until all elements are below the limit: how often depends on the elements."""
    power, count = a, 0
    while np.asarray(power).max() > limit:
        power, count = matmul(power, a), count + 1
    return power, count


def test_a_loop_until_convergence_follows_its_graph(world):
    matmul, a = world.function("tests/matmul"), matrix()
    expected, count = converge(np.matmul, a, 1e-3)
    assert 2 < count < 6
    with world.group("heft", graph=described(matmul, 6), strict=True) as group:
        power, came = converge(matmul, a, 1e-3)
    np.testing.assert_allclose(power.get(), expected, rtol=1e-12)
    report = group.report()
    assert (came, len(report.tasks), report.differences, len(report.plans)) == (count, count, [], 1)
    planned = [task.server for task in group.followed.tasks]
    ran = sorted(report.tasks, key=lambda task: int(task.task))
    assert [task.server for task in ran] == planned[:count]
    assert [task.task for task in ran] == [task.task for task in group.followed.tasks][:count]


def test_differences_warn_and_the_results_are_right(world):
    matmul, a = world.function("tests/matmul"), matrix()
    small = np.arange(16.0).reshape(4, 4)
    with pytest.warns(gl.DifferenceWarning) as told:
        with world.group(graph=described(matmul, 2)) as group:
            square = matmul(a, a)
            other = matmul(small, small)
            cube = matmul(square, a)
            more = matmul(cube, a)
            np.testing.assert_allclose(more.get(), np.linalg.matrix_power(a, 4), rtol=1e-12)
    np.testing.assert_array_equal(other.get(), small @ small)
    assert [difference.call for difference in group.differences] == [2, 4]
    first, last = (str(warning.message) for warning in told)
    assert first.startswith("call 2, of 'tests/matmul', is not 'power3' as declared") and "mapped by itself" in first
    assert last.startswith("call 4, of 'tests/matmul', was not declared: all 2 declared calls have been made")
    assert told[0].filename == told[1].filename == __file__
    assert group.report().differences == group.differences


def test_a_strict_group_raises_before_anything_is_sent(world):
    matmul, a = world.function("tests/matmul"), matrix()
    with pytest.raises(gl.DifferenceError, match="'power2', a declared call of 'tests/matmul', was never made") as missing:
        with world.group(graph=described(matmul, 1), strict=True) as group:
            with pytest.raises(gl.DifferenceError, match=r"input 'a', float64\[30, 30\]") as refused:
                matmul(a[:3, :3], a[:3, :3])
    assert (refused.value.call, refused.value.described, missing.value.call) == (1, "power2", None)
    assert group.report().tasks == []


def test_an_array_that_changes_is_another_input(world):
    matmul, a = world.function("tests/matmul"), matrix()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with world.group(graph=described(matmul, 2)) as group:
            square = matmul(a, a)
            square.get()
            a *= 2
            cube = matmul(square, a)
    np.testing.assert_allclose(cube.get(), matrix() @ matrix() @ a, rtol=1e-12)
    assert [difference.described for difference in group.differences] == ["power3"]
    assert len(told) == 1 and "not what was passed for it before (or it was changed)" in str(told[0].message)


def test_inputs_that_are_results_are_planned_where_they_are(world):
    matmul, a = world.function("tests/matmul"), matrix()
    with world.group() as before:
        square = matmul(a, a)
    before.wait()
    graph = gl.Graph()
    x = graph.input("x", square)
    graph.call(matmul, x, x, name="fourth")
    with world.group(graph=graph, inputs={"x": square}, strict=True) as group:
        fourth = matmul(square, square)
    np.testing.assert_allclose(fourth.get(), np.linalg.matrix_power(a, 4), rtol=1e-12)
    assert all(transfer.source != "client" for transfer in group.followed.transfers)


def test_a_block_that_raises_keeps_what_was_called(world):
    matmul, a = world.function("tests/matmul"), matrix()
    with pytest.raises(RuntimeError, match="enough"):
        with world.group(graph=described(matmul, 2), strict=True):
            square = matmul(a, a)
            raise RuntimeError("enough")
    np.testing.assert_allclose(square.get(), a @ a, rtol=1e-12)


def test_a_graph_is_saved_edited_and_planned(world, tmp_path):
    matmul = world.function("tests/matmul")
    graph = described(matmul, 3)
    graph.save(tmp_path / "g.json")
    assert gl.Graph.load(tmp_path / "g.json").calls == graph.calls == ["power2", "power3", "power4"]
    plan = graph.plan(world, "heft")
    moved = plan.move(1, world.servers()[-1].name)
    with pytest.warns(gl.DifferenceWarning, match="'power3'.*was never made"):
        with world.group(moved, graph=gl.Graph.load(tmp_path / "g.json")) as group:
            a = matrix()
            matmul(a, a)
    assert [task.server for task in group.followed.tasks] == [task.server for task in moved.tasks]
    record = json.loads((tmp_path / "g.json").read_text())
    record["calls"][0]["args"] = ["power4", "a"]
    (tmp_path / "g.json").write_text(json.dumps(record))
    with pytest.raises(gl.InputError, match="in a cycle: 'power2' reads 'power4', which reads 'power3', which reads 'power2'"):
        gl.Graph.load(tmp_path / "g.json")


def test_several_results_numbers_and_texts_can_be_described(world):
    statistics = world.function("tests/statistics")
    graph = gl.Graph()
    x = graph.input("x", np.zeros(5))
    mean, ends = graph.call(statistics, x)
    assert (mean.name, ends.name) == ("statistics-1.mean", "statistics-1.ends")
    by_name = graph.call("tests/statistics", ends)
    graph.want(by_name["mean"])
    with world.group(graph=graph, strict=True):
        first = statistics(np.arange(5.0))
        mean, _ = statistics(first[1])
        assert float(first[0]) == float(mean) == 2.0


def test_calls_that_are_bound_keep_to_their_server(world):
    matmul, a = world.function("tests/matmul"), matrix()
    last = world.servers()[-1].name
    there = matmul.on(last)
    assert (there.server, matmul.server, there.name) == (last, None, matmul.name)
    graph = gl.Graph()
    described = graph.input("a", shape=(EXTENT, EXTENT))
    square = graph.call(matmul, described, described, name="square")
    graph.call(there, square, described, name="cube")
    with world.group("heft", graph=graph, strict=True) as group:
        cube = there(matmul(a, a), a)
    np.testing.assert_allclose(cube.get(), a @ a @ a, rtol=1e-12)
    assert group.followed.tasks[1].server == last
    with world.group("mct") as group:
        cube = there(there(a, a), a)
    np.testing.assert_allclose(cube.get(), a @ a @ a, rtol=1e-12)
    assert {task.server for task in group.report().tasks} == {last}
    np.testing.assert_allclose(there(a, a), a @ a, rtol=1e-12)
    with pytest.raises(gl.InputError, match="there is no server 'nowhere'"):
        matmul.on("nowhere")


def test_bad_descriptions_say_why(world):
    matmul = world.function("tests/matmul")
    graph = gl.Graph()
    with pytest.raises(gl.InputError, match="input 'a' has the extent -3; it must be an integer of at least 1"):
        graph.input("a", shape=(-3, 2))
    with pytest.raises(gl.UsageError, match="cannot be described"):
        graph.input("a", shape=float("nan"))
    with pytest.raises(gl.UsageError, match="give its shape="):
        graph.input("a")
    a = graph.input("a", shape=(3, 4))
    with pytest.raises(gl.UsageError, match=r"describe data with graph.input"):
        graph.call(matmul, a, np.zeros((3, 3)))
    with pytest.raises(gl.InputError, match="two inputs or calls are named 'a'"):
        graph.call(matmul, a, a, name="a")
    graph.call(matmul, a, a, name="p")
    with pytest.raises(gl.InputError, match="call 'p': "):
        world.group(graph=graph)
    with pytest.raises(gl.UsageError, match="give graph="):
        world.group(strict=True)


def test_wrong_declarations_are_refused_or_undone(world):
    matmul = world.function("tests/matmul")
    graph = gl.Graph()
    a = graph.input("a", shape=(3, 3))
    square = graph.call(matmul, a, a, name="square")
    wrong = graph.call(matmul, square, graph.input("b", shape=(5, 5)), name="wrong")
    with pytest.raises(gl.InputError, match="call 'wrong': "):
        graph.plan(world)
    for mistake, match in [("square", "not the text 'square'"), (None, "not NoneType"), ((square, wrong), r"pass each by itself, as \*")]:
        with pytest.raises(gl.UsageError, match=match):
            graph.want(mistake)
    with pytest.raises(gl.InputError, match="'a' is an input, which the program already has"):
        graph.want(square, a)
    with pytest.raises(gl.InputError, match="'square' cannot be removed: call 'wrong' reads it; remove that first"):
        graph.remove(square)
    with pytest.raises(gl.InputError, match="no input or call 'squre' to remove; did you mean square"):
        graph.remove("squre")
    graph.want(wrong)
    graph.remove(wrong)
    graph.remove("b")
    assert graph.calls == ["square"] and len(graph.plan(world).tasks) == 1
    again = graph.call(matmul, square, a, name="wrong")
    assert len(graph.plan(world).tasks) == 2 and again.name == "wrong"
    # Neither a refused call nor a refused want leaves anything behind.
    before = graph._raw.json()
    with pytest.raises(gl.InputError):
        graph.call(matmul, gl.groups.GraphNode("none"), a, name="other")
    with pytest.raises(gl.InputError):
        graph.want(again, a)
    assert graph._raw.json() == before


def test_inputs_that_are_no_results_are_refused(world):
    matmul, array = world.function("tests/matmul"), np.eye(3)
    graph = gl.Graph()
    a = graph.input("a", array)
    graph.call(matmul, a, a)
    for inputs, match in [
        ({"a": array}, r"inputs\['a'\] is ndarray; only handles"),
        ({1: array}, "1 is no name"),
        (array, "inputs is a dict of handles by the names of the graph's inputs, got ndarray"),
    ]:
        with pytest.raises(gl.UsageError, match=match):
            world.group(graph=graph, inputs=inputs)
    with pytest.raises(gl.UsageError, match=r"graph is a gl\.Graph, got str; gl\.Graph\.load\(path\) reads one"):
        world.group(graph="g.json")
    with pytest.raises(gl.UsageError, match=r"graph is a gl\.Graph, got ndarray$"):
        world.group(graph=array)


def test_calls_of_a_server_that_died_run_elsewhere(program, gate):
    with gl.local(servers=2, functions=[FUNCTIONS]) as grid:
        first, second = (server.name for server in grid.servers())
        hold, path = grid.function("tests/hold"), str(gate.path)
        graph = gl.Graph()
        x = graph.input("x", np.zeros(3))
        graph.call(hold, graph.call(hold, x, path, name="one"), path, name="two")
        plan = graph.plan(grid, "heft").move(0, second).move(1, second)
        with grid.group(plan, graph=graph, strict=True) as group:
            one = hold(np.zeros(3), path)
            victim = gate.server()
            assert victim == grid.server_processes()[1]
            os.kill(victim, signal.SIGKILL)
            gate.open()
            assert np.array_equal(one.get(), np.ones(3))
            two = hold(one, path)
        assert np.array_equal(two.get(), 2 * np.ones(3))
        report = group.report()
        assert [task.server for task in report.tasks] == [first, first]
        assert [plan.heuristic for plan in report.plans][:2] == ["given", "heft"] and report.differences == []


def test_bodies_of_a_loop_go_together(world):
    matmul, a = world.function("tests/matmul"), matrix()
    groups, power = [], a
    for _ in range(7):
        with world.group("heft", regroup=3) as group:
            power = matmul(power, a)
        groups.append(group)
    np.testing.assert_allclose(power.get(), np.linalg.matrix_power(a, 8), rtol=1e-12)
    assert [group.report().together for group in groups] == [3, 3, 3, 3, 3, 3, 1]
    assert "3 groups went together" in str(groups[0].report())


def test_a_loop_that_looks_at_each_result_ends(world):
    matmul, a = world.function("tests/matmul"), matrix()
    power, count = a, 0
    while np.asarray(power).max() > 1e-3:
        with world.group(regroup="auto"):
            power, count = matmul(power, a), count + 1
    assert count == converge(np.matmul, a, 1e-3)[1]


def test_a_body_that_raises_leaves_the_others(world):
    matmul, a = world.function("tests/matmul"), matrix()
    with world.group(regroup=10):
        kept = matmul(a, a)
    with pytest.raises(RuntimeError):
        with world.group(regroup=10):
            lost = matmul(kept, a)
            raise RuntimeError("enough")
    np.testing.assert_allclose(kept.get(), a @ a, rtol=1e-12)
    with pytest.raises(gl.NotRun):
        lost.get()


def test_what_makes_no_loop_is_refused(world):
    graph = described(world.function("tests/matmul"), 1)
    kinds = [("often", "a number of bodies"), (2.5, "a number of bodies"), (True, "a number of bodies")]
    for regroup, why in [*kinds, (0, "from 1 to 256"), (10**30, "from 1 to 256 or .*, got 1000")]:
        with pytest.raises(gl.UsageError, match=why):
            world.group(regroup=regroup)
    with pytest.raises(gl.UsageError, match="mapped by itself"):
        world.group(graph=graph, regroup=2)
    with pytest.raises(gl.UsageError, match="of one group"):
        world.group(graph.plan(world), regroup=2)
