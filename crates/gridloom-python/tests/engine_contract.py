"""The contract of all engines: each of their files of tests has a class of it, and a fixture `grid`."""

import concurrent.futures
import os
import sys
import traceback

import gridloom as gl
import numpy as np
import pytest
from engine_functions import (
    Fake,
    dies_once,
    fails,
    half,
    interrupts,
    is_late,
    leaves,
    needs_more,
    process,
    product,
    reshaped,
    sums,
    waits_for,
    wrong,
)
from gridloom.engines import cluster as engine_cluster
from gridloom.engines import dask as dask_engine


class Matrix:
    """Becomes an array, and cannot be pickled."""

    def __array__(self, dtype=None, copy=None):
        return np.ones((100, 100))

    def __reduce__(self):
        raise TypeError("a Matrix cannot be pickled")


class Contract:
    """Tests of a grid on an engine. A worker dies in the last one."""

    def test_a_group_matches_its_functions(self, grid):
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

    def test_workers_and_links_are_measured(self, grid):
        measured, names = grid._cluster.measured, sorted(grid._cluster.measured.slots)
        assert len(names) == 2 and set(measured.speed) == set(measured.client_bytes_per_s) == set(names)
        assert list(measured.direct_bytes_per_s) == [tuple(names)]
        assert all(
            one > 1e5 for one in [*measured.speed.values(), *measured.client_bytes_per_s.values(), *measured.direct_bytes_per_s.values()]
        )

    def test_heuristics_choose_the_workers(self, grid):
        names = sorted(grid._cluster.measured.slots)
        with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]) as group:
            processes = [grid.function(process)(float(n)) for n in range(4)]
        values = [one.get() for one in processes]
        report = group.report()
        assert sorted(report.planned.values()) == sorted(names * 2)
        assert len(set(values)) == len({one.server for one in report.tasks}) or len(set(values)) == 1
        with grid.group():
            pinned = grid.function(process).on(names[1])(1.0)
        assert pinned.get() in values

    def test_errors_are_reported_as_on_a_grid(self, grid):
        with pytest.raises(gl.ArgumentError, match=r"argument 'b' has shape \[3\], expected \[n, n\] of 2 dimensions"):
            grid.function(product)(np.ones((3, 3)), np.ones(3))
        with grid.group() as group:
            failed = grid.function(half)(grid.function(fails)(2.0))
        for attempt in (failed.get, group.wait):
            with pytest.raises(KeyError, match="no 2.0"):
                attempt()
        # Not that the wait has ended.
        with pytest.raises(TimeoutError, match="2.0 is late"):
            grid.function(is_late)(2.0)
        for name, arguments in {"run": (half, 1), "map": (half, [1]), "put": ("x", 1), "get": ("x",), "empty": (3,), "links": ()}.items():
            with pytest.raises(gl.UsageError, match=f"Grid.{name} is not there on an engine"):
                getattr(grid, name)(*arguments)
        with pytest.raises(gl.UsageError, match="no option 'regroup'"):
            grid.group(regroup=2)
        with pytest.raises(gl.UsageError, match="recorded in groups"):
            grid.function(half).submit(1.0)
        with pytest.raises(gl.UnknownName):
            grid.function("engines/other")

    def test_a_function_that_exits_ends_its_call_alone(self, grid):
        with grid.group():
            exits, interrupted, other = grid.function(leaves)(4.0), grid.function(interrupts)(5.0), grid.function(half)(3.0)
        with pytest.raises(gl.Crashed, match=r"engines/leaves on .*: it called sys.exit\(4\)") as caught:
            exits.get()
        assert caught.value.how == "it called sys.exit(4)"
        with pytest.raises(gl.RemoteError, match="engines/interrupts on .*: it raised KeyboardInterrupt") as caught:
            interrupted.get()
        assert (caught.value.kind, caught.value.message) == ("KeyboardInterrupt", "at 5.0")
        assert other.get() == 1.5

    def test_the_first_error_does_not_wait_for_other_calls(self, grid, tmp_path, monkeypatch):
        def group(waited, *functions):
            # The places of others are looked at in turn.
            monkeypatch.setattr(engine_cluster, "_WAITED_MAX", waited)
            gate = tmp_path / f"open-{waited}"
            given = {fails: [3.0], half: [4.0], waits_for: [os.fspath(gate), np.ones((2, 2))]}
            with grid.group(lambda problem: [int(one is waits_for) for one in functions]) as group:
                results = [grid.function(one)(*given[one]) for one in functions]
            try:
                with pytest.raises(KeyError, match="no 3.0"):
                    group.wait()
            finally:
                gate.touch()
            assert results[functions.index(waits_for)].get().sum() == 4

        group(1000, fails, waits_for)
        # The fake runs calls in their order, when they are asked for.
        if not isinstance(grid._cluster._engine, Fake):
            group(999, waits_for, fails)
            group(1, waits_for, half, half, fails)

    def test_a_traceback_has_the_function(self, grid):
        with grid.group():
            failed = grid.function(fails)(3.0)
        told = []
        for _ in range(2):
            with pytest.raises(KeyError, match="no 3.0") as caught:
                failed.get()
            told.append("".join(traceback.format_exception(caught.value)))
        assert "in fails\n" in told[0]
        # It does not grow.
        assert told[0].count("in collect\n") == told[1].count("in collect\n")

    def test_arguments_are_sent_as_arrays(self, grid):
        rows = np.ones((100, 100)).tolist()
        assert np.array_equal(grid.function(product)(Matrix(), rows), 100 * np.ones((100, 100)))
        # What is as large goes straight to its worker.
        if (sent := getattr(grid._cluster._engine, "_client", None)) is not None:
            with pytest.MonkeyPatch.context() as patch:
                scattered = []
                patch.setattr(sent, "scatter", lambda value, **more: (scattered.append(value.nbytes), type(sent).scatter(sent, value, **more))[1])
                grid.function(product)(rows, rows)
            assert scattered == [80_000, 80_000]

    def test_a_submission_that_fails_leaves_the_session_as_it_was(self, grid, monkeypatch):
        calls, submit = [], grid._cluster._engine.submit

        def refuses_third(key, *more):
            calls.append(key)
            if len(calls) == 3:
                raise RuntimeError("the third one")
            return submit(key, *more)

        monkeypatch.setattr(grid._cluster._engine, "submit", refuses_third)
        with pytest.raises(RuntimeError, match="the third one"), grid.group():
            halves = [grid.function(half)(float(n)) for n in range(5)]
        assert grid.function(half)(3.0) == 1.5
        assert [one.get() for one in halves] == [0.0, 0.5, 1.0, 1.5, 2.0]

    def test_threads_call_functions_of_one_grid(self, grid):
        count = 100 if isinstance(grid._cluster._engine, Fake) else 20

        def run(thread):
            return [grid.function(half)(float(2 * n + thread)) for n in range(count)]

        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            assert list(threads.map(run, range(4))) == [[n + thread / 2 for n in range(count)] for thread in range(4)]

    def test_unsupported_requests_to_workers_are_reported(self, grid, monkeypatch):
        if isinstance(grid._cluster._engine, Fake):
            monkeypatch.delitem(sys.modules, "absent_there")
        with pytest.raises(gl.CannotRun, match="engines/needs_more on .*: it needs the module 'absent_there', which the worker cannot import"):
            grid.function(needs_more)(1.0)
        with pytest.raises(gl.SignatureError, match="engines/wrong on .*: result 'out0': expected float64, got generator"):
            grid.function(wrong)(1.0)
        with grid.group():
            row = grid.function(reshaped)(np.ones((3, 3)))
        with pytest.raises(gl.SignatureError, match=r"result 'out0': expected float64\[3\], got float64\[3, 3\]") as caught:
            row.get()
        assert caught.value.function == "engines/reshaped"

    def test_many_calls_are_sent_and_waited_for_together(self, grid, monkeypatch):
        engine, count = grid._cluster._engine, 10_000
        if not isinstance(engine, Fake):
            # Several waits and graphs, on clusters that take milliseconds for a call.
            count = 120
            monkeypatch.setattr(engine_cluster, "_WAITED_MAX", 50)
            monkeypatch.setattr(dask_engine, "_GRAPH_TASKS_MAX", 50)
        with grid.group() as group:
            many = [grid.function(half)(float(n)) for n in range(count)]
            last = grid.function(half)(many[-1])
        group.wait()
        assert [one.get() for one in (*many[::40], last)] == [*(n / 2 for n in range(0, count, 40)), (count - 1) / 4]
        if isinstance(engine, Fake):
            assert (engine.launches, engine.waits, len(engine.ran)) == (1, 11, count + 1)

    def test_a_worker_that_dies_loses_no_result(self, grid, tmp_path):
        noted = os.fspath(tmp_path / "died")
        x = np.ones((100, 100))
        with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
            first = grid.function(product)(x, x)
            if isinstance(grid._cluster._engine, Fake):
                grid._cluster._engine.dying = sorted(grid._cluster.measured.slots)[1]
                second = grid.function(half)(8.0)
            else:
                second = grid.function(dies_once)(noted, 3.0)
            third = grid.function(product)(first, first)
        assert second.get() == 4.0
        assert np.array_equal(third.get(), x @ x @ x @ x)
