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


def test_each_state_is_one_of_three(run):
    states = [row[2] for name in run.NAMES for row in run.page(name)[1]]
    assert all(state in ("beyond", "same order") or state.startswith("not reproduced: ") for state in states), states


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
