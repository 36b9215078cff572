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
