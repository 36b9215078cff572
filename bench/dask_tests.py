"""Runs the tests of Dask's collections with `gridloom.dask` in place of all its schedulers.

python bench/dask_tests.py [--out FILE] [TESTS…]: paths within the package dask, by default those of arrays, bags, data frames, delayed and
of graphs in general. It prints how many passed, and which did not. Tests that also fail with Dask's multiprocessing scheduler are listed
separately: they depend on what tasks do in the process of the program.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DEFAULT = [
    "tests/test_base.py",
    "tests/test_delayed.py",
    "bag/tests/test_bag.py",
    "array/tests/test_array_core.py",
    "array/tests/test_map_blocks.py",
    "array/tests/test_rechunk.py",
    "array/tests/test_linalg.py",
    "array/tests/test_overlap.py",
    "array/tests/test_ufunc.py",
    "array/tests/test_random.py",
    "array/tests/test_routines.py",
    "dataframe/tests/test_multi.py",
    "dataframe/dask_expr/tests/test_collection.py",
    "dataframe/dask_expr/tests/test_groupby.py",
]

PLUGIN = """
import json, os
import pytest

failed, passed = [], 0

@pytest.fixture(scope="session", autouse=True)
def over_a_grid():
    import dask.base
    import dask.multiprocessing
    if os.environ["DASK_TESTS_OVER"] == "processes":
        dask.base.named_schedulers.update(dict.fromkeys(dask.base.named_schedulers, dask.multiprocessing.get))
        with dask.config.set(scheduler=dask.multiprocessing.get):
            yield
        return
    import gridloom as gl
    with gl.local(servers=2, logs=False) as grid:
        dask.base.named_schedulers.update(dict.fromkeys(dask.base.named_schedulers, gl.dask))
        with dask.config.set(scheduler=gl.dask):
            yield

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    global passed
    report = (yield).get_result()
    if report.failed:
        failed.append(f"{item.path}::{item.nodeid.partition('::')[2]}")
    elif report.when == "call" and report.passed:
        passed += 1

def pytest_sessionfinish():
    with open(os.environ["DASK_TESTS_OUT"], "w") as out:
        json.dump({"passed": passed, "failed": failed}, out)
"""


def run(over: str, tests: list[str], folder: pathlib.Path) -> dict[str, object]:
    """Run tests, and return how many passed and which failed."""
    (folder / "over_a_grid.py").write_text(PLUGIN)
    out = folder / "out.json"
    # Collected in a folder of its own, so that no settings of the current folder apply.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "over_a_grid",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--import-mode=importlib",
        # Some tests access memory that another one has unmapped.
        "--tb=line",
    ]
    environment = {**os.environ, "PYTHONPATH": os.fspath(folder), "DASK_TESTS_OVER": over, "DASK_TESTS_OUT": os.fspath(out)}
    with open(folder / f"{over}.txt", "w") as said:
        subprocess.run([*command, *tests], env=environment, cwd=folder, stdout=said, stderr=said)
    print(f"{over}:", "\n".join((folder / f"{over}.txt").read_text().splitlines()[-1:]))
    return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="a file for what pytest printed")
    parser.add_argument("tests", nargs="*", default=DEFAULT)
    options = parser.parse_args()
    import dask

    place = pathlib.Path(dask.__file__).parent
    paths = [os.fspath(place / test) for test in options.tests]
    with tempfile.TemporaryDirectory(prefix="dask-tests-") as folder:
        ours = run("gridloom", paths, pathlib.Path(folder))
        print(f"Dask {dask.__version__} over Gridloom: {ours['passed']} passed, {len(ours['failed'])} failed")
        if options.out:
            pathlib.Path(options.out).write_text((pathlib.Path(folder) / "gridloom.txt").read_text())
        if ours["failed"]:
            own = set(run("processes", ours["failed"], pathlib.Path(folder))["failed"])
            print(f"of these, {len(own)} fail over Dask's processes, too; the others are marked:")
            for one in sorted(set(ours["failed"])):
                print(f"  {'  ' if one in own else '! '}{one.removeprefix(os.fspath(place))}")


if __name__ == "__main__":
    main()
