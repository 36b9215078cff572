"""Plans that are saved, edited, given, explained and drawn, and heuristics of the user's own, in both worlds."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS


def record(grid, group, calls=3):
    """A product of products; with less calls, less of it."""
    matmul = grid.function("tests/matmul")
    a = np.arange(400.0).reshape(20, 20) / 400
    with group:
        left = matmul(a, a)
        right = matmul(a, left)
        return matmul(left, right) if calls == 3 else right


def planned(grid, heuristic="heft"):
    group = grid.group()
    matmul = grid.function("tests/matmul")
    a = np.arange(400.0).reshape(20, 20) / 400
    with group:
        left = matmul(a, a)
        right = matmul(a, left)
        product = matmul(left, right)
        plan = group.plan(heuristic)
        group.discard()
    del left, right, product
    return plan


def waits(grid, plan, calls=3):
    group = grid.group(plan)
    record(grid, group, calls)
    group.wait()


def names(grid):
    return [server.name for server in grid.servers()]


def test_a_plan_is_saved_edited_and_run(world, tmp_path):
    plan = planned(world)
    plan.save(tmp_path / "plan.json")
    again = gl.Plan.load(tmp_path / "plan.json")
    assert again == plan and str(again) == str(plan)
    first, second, third = names(world)
    # By hand.
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "edited.json").write_text(re.sub(r'("number":1,.*?"server":)"[^"]*"', rf'\1"{third}"', text))
    edited = gl.Plan.load(tmp_path / "edited.json")
    assert edited.tasks[1].server == third and edited.heuristic == "given"
    # By method.
    moved = edited.move(0, first).move(2, second)
    assert [task.server for task in moved.tasks] == [first, third, second]
    assert moved.makespan_seconds == max(t.end_seconds for t in [*moved.tasks, *moved.transfers])
    group = world.group(moved)
    product = record(world, group)
    a = np.arange(400.0).reshape(20, 20) / 400
    assert np.allclose(product.get(), a @ a @ (a @ a @ a))
    report = group.report()
    ran = {task.task: task.server for task in report.tasks}
    assert [ran[task] for task in sorted(ran, key=int)] == [first, third, second]
    assert report.heuristic == report.plans[0].heuristic == "given"


def test_plans_that_do_not_fit(platform, tmp_path):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        plan = planned(grid)

        def refused(change, match):
            plan.save(tmp_path / "plan.json")
            lines = (tmp_path / "plan.json").read_text().splitlines()
            # Without the problem: what the agent says is looked at.
            lines = [line for line in lines if not line.startswith('"problem"')]
            lines[-2] = lines[-2].rstrip(",")
            (tmp_path / "plan.json").write_text(change("\n".join(lines)))
            with pytest.raises(gl.NotRun, match=match):
                waits(grid, gl.Plan.load(tmp_path / "plan.json"))

        def order(text):
            return text.replace('"order":0', '"order":9').replace('"order":1', '"order":8')

        with pytest.raises(gl.NotRun, match=r"it has 3 tasks and the group 2: task 2 \('tests/matmul'\) is not in the group"):
            waits(grid, plan, calls=2)
        refused(lambda text: text.replace("tests/matmul", "tests/halve"), "task 0 calls 'tests/halve' there and 'tests/matmul'")
        refused(lambda text: re.sub('"server":"s.*?"', '"server":"desk"', text), "'desk', and there is none of that name; there are s0, s1, s2")
        refused(order, r"its order has task 2 \('tests/matmul'\) before task 0 \('tests/matmul'\), whose result it reads")
        with pytest.raises(gl.InputError, match="there is none of that name"):
            plan.move(0, "desk")
        with pytest.raises(gl.InputError, match="no task 7; it has 3"):
            plan.move(7, "s0")


def test_every_result_of_a_group_with_a_bad_plan_reports_it(world):
    plan, matmul = planned(world), world.function("tests/matmul")
    a = np.eye(3)
    with world.group(plan) as group:
        first = matmul(a, a)
        second = matmul(first, a)
    for handle in (second, first):
        with pytest.raises(gl.NotRun, match="it has 3 tasks and the group 2"):
            handle.get()
    with pytest.raises(gl.NotRun, match="it has 3 tasks and the group 2"):
        group.wait()


def test_a_plan_that_was_changed_without_its_problem_has_no_times(platform, tmp_path):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        plan = planned(grid)
        path = tmp_path / "plan.json"
        plan.save(path)
        lines = [line for line in path.read_text().splitlines() if not line.startswith('"problem"')]
        lines[-2] = lines[-2].rstrip(",")
        path.write_text("\n".join(lines))
        assert gl.Plan.load(path).makespan_seconds == plan.makespan_seconds
        other = next(server for server in names(grid) if server != plan.tasks[0].server)
        path.write_text(re.sub(r'("number":0,.*?"server":)"[^"]*"', rf'\1"{other}"', "\n".join(lines)))
        edited = gl.Plan.load(path)
        edited.save(tmp_path / "again.json")
        for changed in (edited, gl.Plan.load(tmp_path / "again.json")):
            assert math.isnan(changed.makespan_seconds) and changed.transfers == [] and changed.tasks[0].server == other
            assert "its times are not known" in str(changed) and "busy" not in str(changed)
            with pytest.raises(gl.UsageError, match="cannot be drawn: its times are not known"):
                changed.gantt(tmp_path / "plan.svg")
        # It can be run for all that.
        group = grid.group(edited)
        record(grid, group).get()
        report = group.report()
        assert other in {task.server for task in report.tasks} and report.predicted_seconds > 0
        # The same holds for the plan of a report.
        assert math.isnan(report.plans[0].move(0, plan.tasks[0].server).makespan_seconds)


@pytest.mark.parametrize("heuristic", ["auto", "heft", "greedy_map", "mct", "round-robin", "random[seed=7]", "min-min", "anneal[steps=2000]"])
def test_the_plan_that_is_shown_is_the_one_that_runs(platform, heuristic):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        matmul = grid.function("tests/matmul")
        a = np.broadcast_to(0.0, (500, 500))
        with grid.group(heuristic) as group:
            ends = [matmul(matmul(a, a), matmul(a, a)) for _ in range(4)]
            shown = group.plan()
        ran = group.report().plans[0]
        assert shown.heuristic == ran.heuristic == ("greedy" if heuristic == "greedy_map" else heuristic)
        assert shown.hash == ran.hash
        assert ends[0].get().shape == (500, 500)


def test_a_group_that_runs_a_plan_or_a_function_of_its_own_shows_that(platform):
    def last(problem):
        return [len(problem.servers) - 1] * len(problem.tasks)

    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        plan = planned(grid)
        matmul = grid.function("tests/matmul")
        a = np.arange(400.0).reshape(20, 20) / 400
        for heuristic, name in ((last, "last"), (plan, "given")):
            with grid.group(heuristic) as group:
                left = matmul(a, a)
                right = matmul(a, left)
                matmul(left, right)
                shown = group.plan()
            ran = group.report().plans[0]
            assert (shown.heuristic, shown.hash) == (ran.heuristic, ran.hash) and ran.heuristic == name


def test_drawings_and_plans_that_would_mislead_are_refused(platform, tmp_path):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        plan = planned(grid)
        with pytest.raises(gl.UsageError, match=r"x\.png: drawings are SVG, not png: name the file .*x\.svg"):
            plan.gantt(tmp_path / "x.png")
        plan.gantt(tmp_path / "x.SVG")
        plan.gantt(tmp_path / "x")
        group = grid.group()
        record(grid, group)
        with pytest.raises(gl.UsageError, match="no calls left to plan: they were launched"):
            group.plan()
        body = grid.group(regroup=2)
        record(grid, body)
        with pytest.raises(gl.UsageError, match="no calls left to plan"):
            body.plan()
        assert len(grid.group().plan().tasks) == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda text: text[:300], r"plan\.json:\d+:\d+: not a plan: the file ends in the middle"),
        (lambda text: text.replace('"server":', '"servr":', 1), r"plan\.json:14:\d+: not a plan: 'servr' is unknown here; known are"),
        (lambda text: text.replace('"number":0', '"number":"0"'), "not a plan: expected a whole number from 0, found the string \"0\""),
        (lambda text: text.replace('"number":0', '"number":0,"number":1'), "'number' appears twice in one object"),
        (lambda text: text.replace('"hash":', '"hsh":'), "'hsh' is unknown here"),
        (lambda text: text.replace("gridloom plan 1", "gridloom plan 9"), "format is 'gridloom plan 9'; expected 'gridloom plan 1'"),
        (lambda text: text.replace("gridloom plan 1", "gridloom graph 1"), "format is 'gridloom graph 1'; expected 'gridloom plan 1'"),
        (lambda text: '{"assignment": {}, "start_seconds": {}}', "it is a plan of a recorded workflow, .*; expected 'gridloom plan 1'"),
        (lambda text: '{"tasks": [], "files": {}}', "it is a recorded workflow, .*; expected 'gridloom plan 1'"),
        (lambda text: '{"tasks": []}', "it has no 'format'; expected 'gridloom plan 1'"),
        (lambda text: text.replace('"number":1', '"number":0'), "task 0 is there twice"),
        (lambda text: text.replace('"order":2', '"order":-1'), "'order' of task 2 is -1; expected 0 or more"),
        (lambda text: re.sub('"start_seconds":[^,]*', '"start_seconds":-5', text), "task 0: 'start_seconds' is -5.0; it must be 0 or above"),
        (lambda text: text.replace('"number":2', '"number":3'), "task 2 is missing"),
        (lambda text: re.sub('"server":"s.*?"', '"server":"desk"', text), "'desk', and there is none of that name"),
    ],
)
def test_files_that_are_no_plans(platform, tmp_path, change, match):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        planned(grid).save(tmp_path / "plan.json")
    path = tmp_path / "plan.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(gl.InputError, match=match):
        gl.Plan.load(path)
    with pytest.raises(gl.InputError, match=r"none\.json"):
        gl.Plan.load(tmp_path / "none.json")


def test_a_plan_is_shown_and_explained(platform, tmp_path):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        plan = planned(grid)
        group = grid.group()
        record(grid, group).get()
        ran = group.report().plans[0]
    assert str(plan).startswith("plan by heft: 3 tasks on ") and "times the bound" in str(plan)
    plan.gantt(tmp_path / "plan.svg")
    svg = (tmp_path / "plan.svg").read_text()
    assert svg.count("<title>task ") == 3 and 'stroke="#000"' in svg
    explained = plan.explain(1)
    assert explained.server == plan.tasks[1].server == explained.alternatives[0].server
    assert explained.alternatives[0].makespan_seconds == plan.makespan_seconds
    assert len(explained.alternatives) == 3 and "elsewhere" in str(explained)
    for other in explained.alternatives[1:]:
        assert plan.move(1, other.server).makespan_seconds == pytest.approx(other.makespan_seconds)
    assert json.loads(json.dumps(explained.to_dict()))["task"] == 1
    path = plan.critical_path()
    assert path[0].start_seconds == 0.0 and path[-1].end_seconds == plan.makespan_seconds
    for number in (3, -1, 10**30):
        with pytest.raises(gl.InputError, match=f"no task {number}; it has 3, and they are counted from 0"):
            plan.explain(number)
        with pytest.raises(gl.InputError, match=f"no task {number}; it has 3, and they are counted from 0"):
            plan.move(number, "s0")
    with pytest.raises(gl.InputError, match="'x' is no number of a task; the plan has 3, counted from 0"):
        plan.explain("x")
    with pytest.raises(gl.UsageError, match="the basis of this plan is not known"):
        ran.explain(0)
    assert "3 tasks" in str(ran)


def test_a_heuristic_of_the_users_own(world):
    def spread(problem):
        assert [task.function for task in problem.tasks] == ["tests/matmul"] * 3
        assert problem.link_seconds(0, 0, 10**9) == 0.0 < problem.link_seconds(0, problem.client, 8)
        assert problem.data[0].held_by == (problem.client,) and problem.data[-1].wanted
        assert all(seconds > 0 for task in problem.tasks for seconds in task.seconds)
        return [number % len(problem.servers) for number in range(len(problem.tasks))]

    by_number = planned(world, lambda problem: {2: 0, 1: names(world)[1], 0: np.int64(2)})
    assert [task.server for task in by_number.tasks] == names(world)[::-1]
    plan = planned(world, spread)
    assert plan.heuristic == "spread" and [task.server for task in plan.tasks] == names(world)
    group = world.group(spread)
    assert record(world, group).get().shape == (20, 20)
    assert [plan.heuristic for plan in group.report().plans] == ["spread"]


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (None, "heuristic 'mine' returned an invalid plan: None, not a server for each task"),
        ("s0", "'s0', not a server for each task"),
        ([0, 1], "2 servers for 3 tasks"),
        ([0, 1, 3], "3 for task 2; servers are numbered from 0 to 2"),
        ([0, -1, 0], "-1 for task 1"),
        ([0, "desk", 0], "'desk' for task 1, and there is no server of that name"),
        ([0, 1.5, 0], "1.5 for task 1, which is no name and no number of a server"),
        (([0, 0, 0], [2, 1, 0]), r"its order has task 2 \('tests/matmul'\) before task 0"),
        (([0, 0, 0], [0, 1]), "its order lacks task 2"),
        (([0, 0, 0], [0, 1, 9]), "task 9 in the order; tasks are numbered from 0 to 2"),
        (([0, 0, 0], "x"), "'x' for the order"),
        (([0, 0, 0], "012"), "'012' for the order"),
        (([0, 0, 0], [0.9, 1.9, 2.9]), r"\[0.9, 1.9, 2.9\] for the order, which is no list of tasks' numbers"),
        (([0, 0, 0], [float("inf")] * 3), r"\[inf, inf, inf\] for the order"),
        (([0, 0, 0], {0, 1, 2}), r"\{0, 1, 2\} for the order"),
        ({0, 1, 2}, r"\{0, 1, 2\}, not a server for each task, in their order"),
        ({0: 0, 1: 1}, "a dict without task 2; a dict has the server of each task by its number"),
        ({0: 0, 1: 1, 2: 2, "s": 0}, "a dict of 4 servers for 3 tasks"),
        ({0: 0, 1: 1, 2: 9}, "9 for task 2; servers are numbered from 0 to 2"),
    ],
)
def test_heuristics_that_return_nonsense(platform, returned, match):
    def mine(problem):
        return returned

    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        with pytest.raises(gl.NotRun, match=match):
            planned(grid, mine)
        group = grid.group(mine)
        with pytest.raises(gl.NotRun, match=match):
            record(grid, group)


def test_a_heuristic_that_raises(platform):
    def mine(problem):
        return 1 / 0

    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        matmul = grid.function("tests/matmul")
        with pytest.raises(gl.NotRun, match="heuristic 'mine': it raised ZeroDivisionError") as caught:
            with grid.group(mine):
                product = matmul(np.eye(2), np.eye(2))
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(gl.NotRun, match="it raised ZeroDivisionError"):
            product.get()
        with pytest.raises(gl.UsageError, match="not by int"):
            grid.group(3)


def held_up():
    """A heuristic that says that it runs, and goes on when it is told to."""
    running, go = threading.Event(), threading.Event()

    def waiting(problem):
        running.set()
        go.wait()
        return [0] * len(problem.tasks)

    return waiting, running, go


def test_a_heuristic_that_never_returns_is_abandoned(world):
    waiting, _, go = held_up()
    match = "heuristic 'waiting': it returned no plan within 0.05 s; make it faster, or allow more time with map_timeout"
    with pytest.raises(gl.NotRun, match=match):
        record(world, world.group(waiting, map_timeout=0.05))
    with pytest.raises(gl.NotRun, match=match):
        record(world, world.group(waiting, regroup=1, map_timeout=0.05))
    group = world.group()
    with pytest.raises(gl.NotRun, match=match), group:
        world.function("tests/matmul")(np.eye(2), np.eye(2))
        group.plan(waiting, map_timeout=0.05)
    with pytest.raises(gl.UsageError, match="map_timeout is a number of seconds from 0 up, .* got -1"):
        world.group(waiting, map_timeout=-1)
    assert record(world, world.group()).get().shape == (20, 20)
    go.set()


def test_another_thread_launches_while_a_heuristic_runs(world):
    waiting, running, go = held_up()
    group = world.group(waiting, map_timeout=None)
    outcome = []
    launching = threading.Thread(target=lambda: outcome.append(record(world, group)))
    launching.start()
    running.wait()
    assert record(world, world.group()).get().shape == (20, 20)
    assert not outcome
    go.set()
    launching.join()
    assert outcome[0].get().shape == (20, 20)
    assert [plan.heuristic for plan in group.report().plans] == ["waiting"]


def test_a_heuristic_does_not_launch_groups_of_its_grid(world):
    told = []

    def nosy(problem):
        matmul = world.function("tests/matmul")
        np.testing.assert_array_equal(matmul(np.eye(2), np.eye(2)), np.eye(2))
        with world.group() as group:
            matmul(np.eye(2), np.eye(2))
            told.append(group.plan("heft").heuristic)
            group.discard()
        with world.group():
            matmul(np.eye(2), np.eye(2))

    with pytest.raises(gl.NotRun, match="it raised UsageError.*cannot launch groups of the session for which it maps") as caught:
        record(world, world.group(nosy))
    assert isinstance(caught.value.__cause__, gl.UsageError) and told == ["heft"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_ends_it_from_a_heuristic(platform, kind):
    def leaves(problem):
        raise kind

    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        matmul = grid.function("tests/matmul")
        with pytest.raises(kind), grid.group(leaves):
            product = matmul(np.eye(2), np.eye(2))
        with pytest.raises(gl.NotRun, match=f"it raised {kind.__name__}"):
            product.get()
        with pytest.raises(kind), grid.group(leaves):
            matmul(np.eye(2), np.eye(2)).get()
        with pytest.raises(kind):
            planned(grid, leaves)


ENDLESS = """
import signal, sys, threading
import gridloom as gl, numpy as np

# Where tests run in the background, interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def endless(problem):
    if sys.argv[2] == "interrupted":
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    while True:
        pass

with gl.simulate(sys.argv[1]) as grid:
    dgemm = grid.function("linalg/dgemm")
    try:
        with grid.group(endless, map_timeout=0.1 if sys.argv[2] == "given up" else None):
            dgemm(np.eye(2), np.eye(2))
    except (gl.NotRun, KeyboardInterrupt) as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize(("how", "error"), [("given up", "NotRun"), ("interrupted", "KeyboardInterrupt")])
def test_a_program_ends_whose_heuristic_does_not(platform, how, error):
    run = subprocess.run([sys.executable, "-c", ENDLESS, platform, how], capture_output=True, text=True, timeout=60)
    assert (run.stdout.strip(), run.returncode) == (error, 0), run.stderr


def test_what_is_left_of_a_given_plan_is_mapped_again(program, gate):
    with gl.local(servers=2, functions=[FUNCTIONS]) as grid:
        first, second = names(grid)
        hold = grid.function("tests/hold")
        group = grid.group(lambda problem: [second])
        with group:
            held = hold(np.zeros(3), str(gate.path))
        victim = gate.server()  # It runs there: the plan is in force.
        assert victim == grid.server_processes()[1]
        os.kill(victim, signal.SIGKILL)
        gate.open()
        assert np.array_equal(held.get(), np.ones(3))
        report = group.report()
        assert [plan.heuristic for plan in report.plans] == ["<lambda>", "heft"]
        assert report.plans[1].tasks[0].server == first
