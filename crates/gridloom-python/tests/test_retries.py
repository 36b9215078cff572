"""Calls that fail and run again."""

import os
import threading
from pathlib import Path

import gridloom as gl
import pytest

FUNCTIONS = """
import os
from pathlib import Path

import gridloom as gl


def note(folder):
    runs = len(list(Path(folder).iterdir()))
    (Path(folder) / f"{runs:03}-{os.getppid()}").touch()
    return runs


@gl.function
def fails(folder: str, times: int) -> int:
    runs = note(folder)
    if runs < times:
        raise ConnectionError(f"run {runs}")
    return runs


@gl.function
def crashes(folder: str, times: int) -> int:
    runs = note(folder)
    if runs < times:
        os._exit(3)
    return runs


@gl.function
def double(x: int) -> int:
    return 2 * x


class EndpointLost(Exception):
    pass


@gl.function
def raises_own(folder: str) -> int:
    note(folder)
    raise EndpointLost("of the function")


@gl.function
def imports(folder: str, module: str) -> int:
    note(folder)
    __import__(module)
    return 0


@gl.function
def needs_module(folder: str) -> int:
    bad = Path(folder) / "bad"
    if not bad.exists():
        bad.write_text(str(os.getppid()))
    if bad.read_text() == str(os.getppid()):
        note(Path(folder) / "runs")
        import module_that_is_nowhere
    return os.getppid()
"""


@pytest.fixture(scope="module")
def again(program, tmp_path_factory):
    module = tmp_path_factory.mktemp("again") / "again.py"
    module.write_text(FUNCTIONS)
    with gl.local(servers=2, slots=1, functions=[module]) as grid:
        yield grid


def runs_of(folder: Path) -> list[str]:
    """The server process of each run, in order."""
    return [run.name.split("-")[1] for run in sorted(folder.iterdir())]


def flaky(folder, times):
    runs = len(list(Path(folder).iterdir()))
    (Path(folder) / f"{runs:03}-{os.getppid()}").touch()
    if runs < times:
        raise KeyError(f"run {runs}")
    return runs


def test_a_call_that_failed_runs_again_on_another_server(again, tmp_path):
    assert again.function("again/fails", retries=2)(str(tmp_path), 2) == 2
    runs = runs_of(tmp_path)
    assert len(runs) == 3
    assert runs[0] != runs[1]


def test_the_last_error_is_reported_when_all_runs_have_failed(again, tmp_path):
    with pytest.raises(gl.RemoteError, match="run 2"):
        again.function("again/fails", retries=2)(str(tmp_path), 9)
    assert len(runs_of(tmp_path)) == 3


@pytest.mark.parametrize(("retry_on", "runs"), [(OSError, 2), ((ValueError, OSError), 2), (ValueError, 1), (gl.Crashed, 1)])
def test_only_named_errors_and_their_subclasses_count(again, tmp_path, retry_on, runs):
    call = again.function("again/fails", retries=1, retry_on=retry_on).submit(str(tmp_path), 1)
    if runs == 2:
        assert call.get() == 1
    else:
        with pytest.raises(gl.RemoteError, match="run 0"):
            call.get()
    assert len(runs_of(tmp_path)) == runs


def test_a_crash_is_repeated(again, tmp_path):
    assert again.function("again/crashes", retries=1, retry_on=gl.Crashed)(str(tmp_path), 1) == 1


def test_in_a_group_what_reads_the_result_waits_for_it(again, tmp_path):
    fails = again.function("again/fails", retries=3, retry_on=OSError)
    double = again.function("again/double")
    with again.group("heft"):
        made = double(double(fails(str(tmp_path), 3)))
    assert made.get() == 12
    assert len(runs_of(tmp_path)) == 4


def test_in_a_group_too_runs_are_counted(again, tmp_path):
    with again.group("heft"):
        made = again.function("again/double")(again.function("again/fails", retries=1)(str(tmp_path), 9))
    with pytest.raises(gl.TaskError, match="run 1"):
        made.get()
    assert len(runs_of(tmp_path)) == 2


def test_any_function_runs_again(again, tmp_path):
    (tmp_path / "one").mkdir()
    with gl.Executor(grid=again, retries=2, retry_on=LookupError) as executor:
        assert executor.submit(flaky, tmp_path / "one", 2).result() == 2
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    assert list(again.map(flaky, folders, [0, 1, 2], retries=2)) == [0, 1, 2]
    with pytest.raises(KeyError):
        list(again.map(flaky, folders, [9, 9, 9], retries=2, retry_on=ValueError))


def test_a_server_without_a_module_gets_no_more_calls(again, tmp_path):
    (tmp_path / "runs").mkdir()
    needs_module = again.function("again/needs_module")
    servers = {needs_module(str(tmp_path)) for _ in range(40)}
    assert len(servers) == 1
    # The program avoids the server until the agent sends another directory.
    assert len(runs_of(tmp_path / "runs")) < 10


def test_an_exception_with_the_name_of_a_server_fault_is_not_a_server_fault(again, tmp_path):
    with pytest.raises(gl.RemoteError, match="of the function") as raised:
        again.function("again/raises_own")(str(tmp_path))
    assert raised.value.kind == "EndpointLost" and len(runs_of(tmp_path)) == 1
    for server in ("server-1", "server-2"):
        with pytest.raises(gl.RemoteError, match="of the function"):
            again.function("again/raises_own").on(server)(str(tmp_path))


def test_a_call_that_imports_an_unknown_module_withdraws_no_function(again, tmp_path):
    imports = again.function("again/imports")
    with pytest.raises(gl.RemoteError, match="No module named 'nonsense'") as raised:
        imports(str(tmp_path), "nonsense")
    assert raised.value.kind == "ModuleNotFoundError" and len(set(runs_of(tmp_path))) == 2
    for server in ("server-1", "server-2"):
        assert imports.on(server)(str(tmp_path), "math") == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"retries": -1}, "retries is a whole number from 0 up"),
        ({"retries": 1.5}, "retries is a whole number from 0 up"),
        ({"retry_on": OSError}, "give retries=, the number of retries, too"),
        ({"retries": 1, "retry_on": "OSError"}, "an exception class or several"),
        ({"retries": 1, "retry_on": ()}, "names no exception class"),
        ({"retries": 1, "retry_on": gl.Cancelled}, "no call runs again after Cancelled"),
    ],
)
def test_invalid_arguments_are_rejected(again, options, told):
    with pytest.raises(gl.UsageError, match=told):
        again.function("again/fails", **options)
    with pytest.raises(gl.UsageError, match=told):
        gl.Executor(grid=again, **options)


def test_options_of_any_function(again, tmp_path):
    def flaky(folder, retries=0):
        runs = len(list(Path(folder).iterdir()))
        (Path(folder) / f"{runs}").touch()
        if runs < 2:
            raise ConnectionError(f"run {runs}")
        return runs, retries

    options = again.options(retries=2, retry_on=ConnectionError)
    assert options.run(flaky, tmp_path, retries=7).get() == (2, 7)
    assert "2 retries" in repr(options)
    for wrong in ({"retries": -1}, {"retry_on": OSError}, {"retries": 1, "retry_on": 3}):
        with pytest.raises(gl.UsageError, match="^options"):
            again.options(**wrong)


class Locked(LookupError):
    """It cannot be pickled."""

    def __init__(self, runs):
        super().__init__(runs)
        self.lock = threading.Lock()


def locked(folder, times):
    runs = len(list(Path(folder).iterdir()))
    (Path(folder) / f"{runs:03}-{os.getppid()}").touch()
    if runs < times:
        raise Locked(runs)
    return runs


@pytest.mark.parametrize("retry_on, runs", [(Locked, 3), (LookupError, 3), (gl.RemoteError, 3), (ValueError, 1)])
def test_an_exception_that_cannot_come_counts_by_its_classes(again, tmp_path, retry_on, runs):
    call = again.options(retries=2, retry_on=retry_on).run(locked, tmp_path, 9)
    with pytest.raises(gl.RemoteError, match=f"Locked: {runs - 1}"):
        call.get()
    assert len(runs_of(tmp_path)) == runs
