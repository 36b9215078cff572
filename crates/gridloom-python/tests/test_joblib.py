"""The backend of joblib: ``joblib.Parallel`` on a grid."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from sent_functions import stop

joblib = pytest.importorskip("joblib", reason="joblib is not installed")
Parallel, delayed = joblib.Parallel, joblib.delayed


@pytest.fixture(scope="module")
def grid(program):
    """One of its own: workers that are ended would disturb others."""
    with gl.local(servers=2) as grid:
        yield grid


@pytest.fixture(autouse=True)
def backend(grid):
    gl.adapters.register_joblib()
    with joblib.parallel_config("gridloom", grid=grid):
        yield


def process(_=None):
    return os.getpid()


def wait_for(folder, count):
    """Where calls meet: each waits until so many are there."""
    (Path(folder) / str(os.getpid())).touch()
    while len(os.listdir(folder)) < count:
        time.sleep(0.001)
    return os.getpid()


def counted(folder):
    """Calls that run now, at most."""
    mine = Path(folder) / f"{os.getpid()}"
    mine.touch()
    time.sleep(0.005)
    now = len(os.listdir(folder))
    mine.unlink()
    return now


def fail_at(number, wrong):
    if number == wrong:
        raise KeyError(number)
    return number


def nested(number, jobs):
    return process(), Parallel(n_jobs=jobs)(delayed(process)() for _ in range(number))


def nested_twice(number):
    return [sum(part) for part in Parallel(n_jobs=2)(delayed(nested_sum)(number) for _ in range(2))]


def nested_sum(number):
    return Parallel(n_jobs=2)(delayed(abs)(-n) for n in range(number))


def test_calls_run_on_all_servers(tmp_path):
    found = set(Parallel(batch_size=1)(delayed(wait_for)(tmp_path, 2) for _ in range(2)))
    assert len(found) == 2 and os.getpid() not in found
    assert Parallel()(delayed(pow)(n, 2) for n in range(100)) == [n**2 for n in range(100)]
    assert Parallel()(delayed(lambda x, scale: x * scale)(n, scale=2) for n in range(3)) == [0, 2, 4]
    assert Parallel()([]) == []


def test_by_name_and_as_an_instance(grid):
    assert Parallel(backend="gridloom", grid=grid)(delayed(abs)(-n) for n in range(3)) == [0, 1, 2]
    with joblib.parallel_config("threading"), joblib.parallel_backend("gridloom", grid=grid):
        assert os.getpid() not in Parallel()(delayed(process)() for _ in range(3))


def test_the_number_of_jobs(grid, tmp_path):
    assert joblib.effective_n_jobs(-1) == 2 and joblib.effective_n_jobs(-2) == 1 and joblib.effective_n_jobs(7) == 7
    assert Parallel(n_jobs=1)(delayed(process)() for _ in range(2)) == [os.getpid()] * 2
    (tmp_path / "two").mkdir()
    with gl.local(servers=3) as more, joblib.parallel_config("gridloom", grid=more):
        assert joblib.effective_n_jobs(-1) == 3
        assert max(Parallel(n_jobs=2, batch_size=1)(delayed(counted)(tmp_path / "two") for _ in range(30))) <= 2
    with pytest.raises(ValueError, match="n_jobs == 0"):
        Parallel(n_jobs=0)(delayed(abs)(n) for n in range(3))


def test_small_calls_go_in_batches(grid):
    before = grid.traffic()
    assert sum(Parallel()(delayed(abs)(n) for n in range(20_000))) == 199_990_000
    batches = []

    class Told(type(joblib.parallel.get_active_backend()[0])):
        def batch_completed(self, batch_size, duration):
            batches.append(batch_size)
            super().batch_completed(batch_size, duration)

    Parallel(backend=Told(grid))(delayed(abs)(n) for n in range(20_000))
    assert max(batches) > 10 and len(batches) < 2_000
    assert before.client_bytes < grid.traffic().client_bytes


def test_an_error_comes_with_its_traceback(grid):
    with pytest.raises(KeyError) as caught:
        Parallel()(delayed(fail_at)(n, 30) for n in range(1000))
    assert caught.value.args == (30,) and "in fail_at" in str(caught.value.__cause__)
    assert Parallel()(delayed(fail_at)(n, None) for n in range(10)) == list(range(10))


def test_an_error_ends_what_runs(tmp_path):
    """A call that never ends by itself holds no server."""
    calls = [delayed(stop)(str(tmp_path / "gate")), delayed(fail_at)(1, 1)]
    with pytest.raises(KeyError):
        Parallel(batch_size=1)(calls)
    (tmp_path / "both").mkdir()
    assert len(set(Parallel(batch_size=1)(delayed(wait_for)(tmp_path / "both", 2) for _ in range(2)))) == 2


@pytest.mark.parametrize("index", [0, 40])
def test_what_cannot_be_pickled_is_named(index):
    calls = (delayed(abs)(threading.Lock() if n == index else n) for n in range(100))
    with pytest.raises(gl.ArgumentError, match="a call of builtins:abs cannot be sent: argument 1, of type lock"):
        Parallel(batch_size=1)(calls)


def test_a_crash_is_reported():
    with pytest.raises(gl.Crashed):
        Parallel()(delayed(os._exit)(3) for _ in range(2))
    assert Parallel()(delayed(abs)(n) for n in range(3)) == [0, 1, 2]


def test_generators():
    assert list(Parallel(return_as="generator")(delayed(abs)(n) for n in range(100))) == list(range(100))
    assert set(Parallel(return_as="generator_unordered")(delayed(abs)(n) for n in range(100))) == set(range(100))


@pytest.mark.filterwarnings("ignore:.*tasks which were still being processed")
def test_a_generator_that_is_closed_early_ends_its_calls(tmp_path):
    gate = str(tmp_path / "gate")
    results = Parallel(return_as="generator_unordered", batch_size=1)(
        delayed(abs)(1) if n == 0 else delayed(stop)(gate) for n in range(100)
    )
    assert next(results) == 1
    results.close()
    (tmp_path / "both").mkdir()
    assert len(set(Parallel(batch_size=1)(delayed(wait_for)(tmp_path / "both", 2) for _ in range(2)))) == 2


def test_a_time_limit(tmp_path):
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.1)(delayed(stop)(str(tmp_path / "gate")) for _ in range(3))


def test_calls_within_calls_run_on_the_grid(grid):
    """They do if they ask for it; the calls that wait for them give up their slots."""
    for outer, inner in Parallel(batch_size=1)(delayed(nested)(6, 2) for _ in range(4)):
        assert outer not in inner
    for outer, inner in Parallel(batch_size=1)(delayed(nested)(6, None) for _ in range(4)):
        assert set(inner) == {outer}
    assert Parallel(batch_size=1)(delayed(nested_twice)(4) for _ in range(2)) == [[6, 6]] * 2


def test_shared_memory_is_of_threads():
    assert set(Parallel(require="sharedmem")(delayed(process)() for _ in range(3))) == {os.getpid()}


def test_threads_have_calls_of_their_own(grid):
    def some(number):
        with joblib.parallel_config("gridloom", grid=grid):
            return sum(Parallel()(delayed(pow)(number, 2) for _ in range(100)))

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(some, range(3))) == [0, 100, 400]


def test_arrays_go_along():
    x = np.arange(100_000.0)
    assert Parallel()(delayed(np.sum)(x[n:]) for n in range(3)) == [x.sum(), x[1:].sum(), x[2:].sum()]


def test_without_a_grid_it_reports_it(monkeypatch):
    monkeypatch.delenv("GRIDLOOM_AGENT", raising=False)
    monkeypatch.delenv("GRIDLOOM_SERVERS", raising=False)
    with joblib.parallel_config("gridloom"), pytest.raises(gl.UsageError, match="grid=grid"):
        Parallel()(delayed(abs)(n) for n in range(3))


def test_a_grid_search(grid):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.datasets import make_classification
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    x, y = make_classification(200, random_state=1)
    search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": [0.01, 0.1]}, cv=3)
    found = search.fit(x, y).cv_results_["mean_test_score"]
    with joblib.parallel_config("threading", n_jobs=1):
        np.testing.assert_allclose(found, search.fit(x, y).cv_results_["mean_test_score"])


def threads(_=None):
    return {os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def nested_threads(_=None):
    return Parallel(n_jobs=2)(delayed(threads)() for _ in range(2))


@pytest.mark.filterwarnings("ignore:inner_max_num_threads")
def test_threads_of_numerical_libraries_are_limited_for_one_call(grid):
    before = grid.run(threads).get(60)
    with joblib.parallel_config("gridloom", grid=grid, inner_max_num_threads=3):
        assert Parallel()(delayed(threads)() for _ in range(4)) == [{"3"}] * 4
        assert Parallel()(delayed(nested_threads)() for _ in range(2)) == [[{"3"}] * 2] * 2
    assert Parallel()(delayed(threads)() for _ in range(4)) == [before] * 4


def within(backend):
    with joblib.parallel_config(backend, n_jobs=2):
        one = Parallel()(delayed(square)(n) for n in range(3))
    return one, Parallel(n_jobs=2, backend=backend)(delayed(square)(n) for n in range(3))


def square(n):
    return n * n


@pytest.mark.parametrize("name", ["threading", "sequential", "multiprocessing", "loky", "gridloom"])
def test_a_call_may_use_any_backend_by_name(name):
    assert Parallel()(delayed(within)(name) for _ in range(2)) == [([0, 1, 4], [0, 1, 4])] * 2
