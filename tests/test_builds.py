"""Every crate is compiled once: all builds request the same features of the crates that they share."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: The Makefile's builds, each by a separate call of cargo.
BUILDS = {
    "program and library for C": ["-p", "gridloom-cli", "-p", "gridloom-capi"],
    "wheel": ["-p", "gridloom-python"],
    "benchmark": ["-p", "gridloom-bench"],
    "tests": ["--edges", "dev,normal,build"],
}


def features(selection):
    """Returns a dictionary from crate and version to the set of features in the build."""
    command = ["cargo", "tree", "--locked", "--offline", "--prefix", "none", "--format", "{p}|{f}"]
    if "--edges" not in selection:
        command += ["--edges", "normal,build"]
    told = subprocess.run([*command, *selection], cwd=ROOT, capture_output=True, text=True)
    if told.returncode:
        pytest.skip(f"cargo tree: {told.stderr.strip()[-200:]}")
    lines = (line.removesuffix(" (*)").split("|") for line in told.stdout.splitlines() if "|" in line)
    return {crate: found.removesuffix(" (*)") for crate, found in lines}


@pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no cargo")
def test_builds_share_what_is_compiled():
    found = {name: features(selection) for name, selection in BUILDS.items()}
    first = found["program and library for C"]
    wrong = [
        f"{crate}: {name} has [{own[crate]}], the program [{first[crate]}]"
        for name, own in found.items()
        for crate in own
        if crate in first and own[crate] != first[crate]
    ]
    assert not wrong, "\n".join([*wrong, "give these dependencies one set of features in Cargo.toml"])
