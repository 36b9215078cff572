"""Runs mpi4py's own tests on the ranks of `gridloom mpirun` and counts those that pass on every rank.

    pip download --no-deps --no-binary :all: mpi4py && tar xf mpi4py-*.tar.gz
    python tests/mpi4py_tests.py mpi4py-*/test -n 3 [--elements 2] [--files 'test_p2p*,test_cco*'] [--say]

A test fails if it does not pass on all ranks, or if it does not end. Skipped tests are counted separately:
mpi4py's tests skip features that version 3.1 of the MPI standard does not have, and tests that need unavailable
hardware.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

#: Run by each rank, from the folder of the tests.
RUNNER = """
import importlib, json, os, sys, unittest
from mpi4py import MPI

class Result(unittest.TestResult):
    def tell(self, test, outcome, why=""):
        with open(os.path.join(sys.argv[2], f"{MPI.COMM_WORLD.rank}.jsonl"), "a") as file:
            file.write(json.dumps([test.id(), outcome, why]) + "\\n")

    def startTest(self, test):
        super().startTest(test)
        self.tell(test, "begun")
        self.is_bad = False

    def addSuccess(self, test):
        self.tell(test, "passed" if not self.is_bad else "failed")

    def addFailure(self, test, error):
        self.tell(test, "failed", self._exc_info_to_string(error, test))

    addError = addFailure

    def addSubTest(self, test, part, error):
        if error is not None:
            self.is_bad = True
            self.tell(test, "failed", self._exc_info_to_string(error, test))

    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)

sys.modules.setdefault("cupy", None)
sys.modules.setdefault("numba", None)
module = importlib.import_module(sys.argv[1])
unittest.defaultTestLoader.loadTestsFromModule(module).run(Result())
"""


def outcomes(folder, file, ranks, elements):
    """Returns the outcome of each test of a file, and why it failed."""
    with tempfile.TemporaryDirectory() as told:
        runner = folder / "gridloom_runner.py"
        runner.write_text(RUNNER)
        command = [sys.executable, "-m", "gridloom.mpi", "-n", str(ranks), str(runner), file.stem, told]
        if elements > 1:
            program = pathlib.Path(sys.executable).parent / "gridloom"
            command = [str(program), "chares", "run", "-n", str(elements), "--", *command]
        environment = {"GRIDLOOM_KEYS": f"{told}/keys", **os.environ}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
            said = done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired:
            said = "it did not end within 900 s"
        finally:
            runner.unlink()
        last = [{} for _ in range(ranks)]
        for rank, found in enumerate(last):
            path = pathlib.Path(told) / f"{rank}.jsonl"
            for line in path.read_text().splitlines() if path.exists() else ():
                test, outcome, why = json.loads(line)
                if found.get(test, ("begun",))[0] != "failed":
                    found[test] = (outcome, why)
    result = {}
    for test in sorted({test for found in last for test in found}):
        each = [found.get(test, ("begun", "")) for found in last]
        kinds = {outcome for outcome, _ in each}
        outcome = "skipped" if kinds == {"skipped"} else "passed" if kinds <= {"passed", "skipped"} else "failed"
        why = next((why for kind, why in each if kind == "failed" and why), "") or ("it did not end" if "begun" in kinds else "")
        result[test] = (outcome, why)
    return result, said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--elements", type=int, default=1)
    parser.add_argument("--files", default="test_p2p*,test_cco*")
    parser.add_argument("--say", action="store_true", help="print why each test failed")
    options = parser.parse_args()
    files = sorted(file for pattern in options.files.split(",") for file in options.folder.resolve().glob(pattern + ".py"))
    total = collections.Counter()
    for file in files:
        found, said = outcomes(options.folder.resolve(), file, options.n, options.elements)
        counts = collections.Counter(outcome for outcome, _ in found.values())
        total += counts
        print(f"{file.stem:28} " + ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped")), flush=True)
        for test, (outcome, why) in found.items():
            if outcome == "failed":
                last = [line for line in why.strip().splitlines() if line]
                print(f"    {test}: {why if options.say else last[-1] if last else ''}")
        if said and (counts["failed"] or not found):
            print("    " + said.strip()[-1500:].replace("\n", "\n    "))
    ran = total["passed"] + total["failed"]
    share = 100 * total["passed"] / max(ran, 1)
    print(f"{options.n} ranks: {total['passed']} of {ran} tests passed, {share:.1f} %; {total['skipped']} skipped")


if __name__ == "__main__":
    main()
