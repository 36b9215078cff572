"""The pages of the papers' experiments: they are what the recorded figures give."""

import importlib
import sys

import pytest
from c_library import ROOT

EXPERIMENTS = ROOT / "experiments"


@pytest.fixture(scope="module")
def run():
    sys.path.insert(0, str(EXPERIMENTS))
    yield importlib.import_module("run")
    sys.path.remove(str(EXPERIMENTS))


def test_each_page_was_written_from_its_figures(run):
    rows = []
    for name in run.NAMES:
        text, found, plots = run.page(name)
        rows += found
        assert (ROOT / "docs" / "experiments" / f"{name}.md").read_text(encoding="utf-8") == text, (
            f"run: python experiments/run.py --pages ({name})"
        )
        assert all((ROOT / "docs" / "experiments" / file).exists() for file in plots)
    assert (ROOT / "docs" / "experiments" / "index.md").read_text(encoding="utf-8") == run.index(rows)


def test_each_state_is_one_of_five(run):
    states = [row[2] for name in run.NAMES for row in run.page(name)[1]]
    starts = ("not reproduced: ", "not run")
    assert all(state in ("beyond", "same order", "not in the paper") or state.startswith(starts) for state in states), states


def test_an_experiment_that_fails_is_recorded_and_the_next_one_runs(run, tmp_path, monkeypatch):
    def fails(is_full):
        raise SystemExit("no user | namespaces\nhere")

    objects, netsolve = importlib.import_module("objects"), importlib.import_module("netsolve")
    monkeypatch.setattr(run.common, "PAGES", tmp_path)
    monkeypatch.setattr(objects, "run", fails)
    monkeypatch.setattr(netsolve, "run", lambda is_full: {"answer": 1})
    monkeypatch.setattr(netsolve, "items", lambda figures: [run.common.Item("all", "same order", str(figures))])
    monkeypatch.setattr(sys, "argv", ["run.py", "objects", "netsolve"])
    with pytest.raises(SystemExit, match="objects"):
        run.main()
    index = (tmp_path / "index.md").read_text()
    assert (
        "not run: no user / namespaces here" in index and "[Direct communication for NetSolve](netsolve.md)" in index
    ), index


def test_without_another_system_nothing_is_compared(run):
    module, kept = importlib.import_module("alternatives"), run.common.load("alternatives")
    alone = {**kept["figures"], "systems": {"Gridloom": kept["figures"]["systems"]["Gridloom"]}}
    assert {item.state for item in module.items(alone)} == {"not run: there is no other system"}


def test_overlapping_ranges_are_not_beyond(run):
    module, kept = importlib.import_module("alternatives"), run.common.load("alternatives")

    def states(ours, theirs):
        rows = [
            {"chain": [{"seconds": x, "client_bytes": x, "client_memory_bytes": x} for x in times]}
            for times in (ours, theirs)
        ]
        return {
            item.state for item in module.items({**kept["figures"], "systems": dict(zip(("Gridloom", "Dask"), rows))})
        }

    assert states([1.0, 1.0, 1.1], [1.2, 1.3, 1.4]) == {"beyond"}
    assert states([1.0, 1.0, 1.3], [1.2, 1.3, 1.4]) == {"same order"}
    assert all(one.startswith("not reproduced: ") for one in states([1.5, 1.6, 1.7], [1.2, 1.3, 1.4]))



def test_errors_of_predictions_have_a_median_and_a_90th_percentile(run):
    predictions = importlib.import_module("predictions")

    def cases(*ratios):
        return [predictions.case("", "simulated", [ratio], [1.0, 1.0, 5.0]) for ratio in ratios]

    median, p90, state = predictions.summary(cases(*[1.0] * 8, 1.15, 3.0))
    assert (median, round(p90, 9), state) == (0, 0.15, "beyond")
    assert predictions.summary(cases(*[0.85] * 9, 1.0))[2] == "not reproduced: median error 15%, 90th percentile 15%"
    assert (
        predictions.summary(cases(*[1.0] * 8, 0.7, 1.25))[2] == "not reproduced: median error 0%, 90th percentile 25%"
    )


def test_systems_that_could_not_run_are_named(run):
    gras = importlib.import_module("gras")
    figures = {"without": {"corba": "there is no program 'omniidl'", "xml, wan": "no result", "lan": "no testbed"}}
    assert gras.missing(figures, "tcp") == "\n- Without CORBA: there is no program 'omniidl'.\n"
    assert gras.missing(figures, "wan").count("- Without") == 2
    assert "- Without this network: no testbed.\n" in gras.missing(figures, "lan")
