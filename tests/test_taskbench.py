"""Task Bench on chares in Python (examples/taskbench): its graphs, and that each task gets the inputs that its
pattern names."""

import json
import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "taskbench"


@pytest.fixture(scope="module")
def graph():
    sys.path.insert(0, str(EXAMPLE))
    import graph

    yield graph
    sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    made = tmp_path_factory.mktemp("kernel") / "kernel.so"
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", EXAMPLE / "kernel.c", "-o", made], check=True)
    return made


def test_outputs_go_where_they_are_inputs_and_nowhere_else(graph):
    for pattern in graph.PATTERNS:
        for width in [*range(1, 18), 64, 100]:
            made = graph.Graph(pattern, width)
            for step in range(10):
                later = range(made.width_at(step + 1))
                for at in range(made.width_at(step)):
                    takers = [to for to in later if at in made.inputs(step + 1, to)]
                    assert list(made.outputs(step, at)) == takers, (made, step, at)
                    assert made.first_step(at) <= step
                assert [made.inputs(step + 1, at) for at in later] == [
                    made.inputs(step + 1 + 6 * made.period, at) for at in later
                ]


def test_the_patterns_are_those_of_the_rust_program(graph):
    def of(pattern, step, at):
        return list(graph.Graph(pattern, 8).inputs(step, at))

    assert of("none", 3, 3) == []
    assert [of("stencil", 1, 0), of("stencil", 9, 4)] == [[0, 1], [3, 4, 5]]
    assert [of("tree", 2, 3), of("tree", 9, 6)] == [[1], [3]]
    assert [of("fft", step, 4) for step in (1, 2, 3, 4)] == [[3, 4, 5], [2, 4, 6], [0, 4], [3, 4, 5]]
    assert of("all-to-all", 1, 4) == list(range(8))
    tree = graph.Graph("tree", 6)
    assert [tree.width_at(step) for step in range(4)] == [1, 2, 4, 6]
    assert [tree.first_step(at) for at in range(6)] == [0, 1, 2, 2, 3, 3]
    assert (tree.tasks(4), tree.inputs_of_all(4)) == (1 + 2 + 4 + 6, 2 + 4 + 6)
    with pytest.raises(ValueError, match=r"task 2 of point 3 got .*, and takes \[\(1, 1\)\]"):
        tree.check(2, 3, [(1, 0)])


def run(kernel, *options, elements=()):
    program = [sys.executable, EXAMPLE / "taskbench.py", "--kernel", kernel, *options]
    started = [sys.executable, "-m", "gridloom", "chares", "run", *elements, "--"] if elements else []
    return subprocess.run([*started, *program], capture_output=True, text=True)


@pytest.mark.parametrize("elements", [(), ("-n", "2")])
@pytest.mark.parametrize("pattern", ["none", "stencil", "tree", "fft", "all-to-all"])
def test_all_tasks_run_on_one_element_and_on_two(kernel, pattern, elements):
    done = run(kernel, "--pattern", pattern, "--width", "7", "--rounds", "0:9,10:1,3:40", elements=elements)
    assert done.returncode == 0, done.stderr
    rounds = json.loads(done.stdout[done.stdout.index("{") :])["rounds"]
    assert [(one["iterations"], one["steps"]) for one in rounds] == [(0, 9), (10, 1), (3, 40)]
    tasks = {"tree": [1 + 2 + 4 + 6 * 7, 1, 1 + 2 + 4 + 37 * 7]}.get(pattern, [63, 7, 280])
    assert [one["tasks"] for one in rounds] == tasks
    assert all(one["seconds"] > 0 for one in rounds)


def test_a_task_with_another_input_ends_the_program(kernel, tmp_path):
    # An output that is sent twice, which the transport must not do.
    program = tmp_path / "twice.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(EXAMPLE)!r})\n"
        "import taskbench\n"
        "class Twice(taskbench.Point):\n"
        "    def begin(self, number):\n"
        "        super().begin(number)\n"
        "        self.array[0].output(2, 1)\n"
        "taskbench.Point = Twice\n"
        "taskbench.main()\n"
    )
    done = subprocess.run(
        [sys.executable, program, "--kernel", kernel, "--width", "4", "--rounds", "0:9"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "task 3 of point 0 got another output of point 1" in done.stderr
