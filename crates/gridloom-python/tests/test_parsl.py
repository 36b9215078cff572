"""`gridloom.adapters.parsl.GridloomExecutor`: apps of Parsl on a grid."""

import os
import subprocess
import sys

import gridloom as gl
import pytest

parsl = pytest.importorskip("parsl", reason="parsl is not installed")


@pytest.fixture(scope="module")
def grid(program):
    with gl.local(servers=2) as opened:
        yield opened


@pytest.fixture
def loaded(grid, tmp_path):
    from gridloom.adapters.parsl import GridloomExecutor

    executor = GridloomExecutor(grid=grid)
    config = parsl.Config(executors=[executor], retries=1, run_dir=os.fspath(tmp_path / "runinfo"), usage_tracking=0)
    with parsl.load(config) as kernel:
        yield executor, kernel
    # The grid was given, so it is open.
    assert grid.run(pow, 2, 5).get() == 32


@parsl.python_app
def double(number):
    return 2 * number


@parsl.python_app
def process_of(_):
    import os

    return os.getppid()


@parsl.python_app
def fails(path):
    with open(path, "a") as tried:
        tried.write("x")
    raise KeyError("not here")


@parsl.bash_app
def count(inputs=(), stdout=None):
    return f"wc -l < '{inputs[0]}'"


@parsl.join_app
def quadruple(number):
    return double(double(number))


def test_apps_run_on_the_servers_of_the_grid(grid, loaded):
    assert [double(double(n)).result() for n in range(3)] == [0, 4, 8]
    assert quadruple(3).result() == 12
    assert {process_of(n).result() for n in range(4)} <= set(grid.server_processes())


def test_apps_of_the_shell_read_and_write_files(loaded, tmp_path):
    (tmp_path / "lines").write_text("a\nb\n")
    count(inputs=[tmp_path / "lines"], stdout=os.fspath(tmp_path / "out")).result()
    assert (tmp_path / "out").read_text().strip() == "2"


def test_an_exception_is_raised_unchanged_after_parsl_has_tried_again(loaded, tmp_path):
    with pytest.raises(KeyError, match="not here"):
        fails(os.fspath(tmp_path / "tried")).result()
    assert (tmp_path / "tried").read_text() == "xx"
    with pytest.raises(parsl.dataflow.errors.DependencyError):
        double(fails(os.fspath(tmp_path / "again"))).result()


def test_resources_are_refused(loaded):
    from parsl.executors.errors import InvalidResourceSpecification

    executor, _ = loaded
    with pytest.raises(InvalidResourceSpecification, match="apps cannot ask for cores or memory"):
        executor.submit(pow, {"cores": 2}, 2, 3)
    assert executor.submit(pow, {}, 2, 3).result() == 8
    assert "GridloomExecutor(" in repr(executor)


def test_it_starts_and_ends_a_grid_of_its_own(program, tmp_path):
    from gridloom.adapters.parsl import GridloomExecutor

    executor = GridloomExecutor(max_workers=1)
    with pytest.raises(gl.UsageError, match="'gridloom' was not started: parsl.load"):
        executor.submit(pow, {}, 2, 3)
    executor.start()
    assert executor.submit(pow, {}, 2, 3).result() == 8
    executor.shutdown()
    with pytest.raises(gl.UsageError, match="was not started"):
        executor.submit(pow, {}, 2, 3)


def test_without_parsl_the_remedy_is_named():
    text = "import sys\nsys.modules['parsl'] = None\nimport gridloom.adapters.parsl"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert "ImportError: gridloom.adapters.parsl needs Parsl" in done.stderr and "pip install parsl" in done.stderr
