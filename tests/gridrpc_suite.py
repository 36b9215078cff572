"""The conformance suite of the GridRPC API in C, and parts of grids for it. A module of tests imports the fixtures that it needs."""

import re
import shutil
import subprocess

import pytest
from c_library import ROOT, compile_c
from parts import address_in, parts

SUITE = ROOT / "tests" / "gridrpc"
CASES = 313
# Sources that are not part of the suite.
APART = {f"{name}.c" for name in ("again", "functions", "cycles", "late", "mixed")}
APART |= {f"lost{what}.c" for what in ("", "_block", "_bound", "_client", "_object")}
# Cases that need memory that not every machine has.
LARGE = {"1.2: sizes of 64 bits"}

@pytest.fixture(autouse=True)
def files(monkeypatch):
    monkeypatch.setenv("GRIDLOOM_FILES", ".")


def sources():
    """Returns the sources of the suite."""
    return sorted(path for path in SUITE.glob("*.c") if path.name not in APART)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Builds a folder with the suite, its functions and its configuration."""
    folder = tmp_path_factory.mktemp("gridrpc")
    for name in ("functions.idl", "ninfg.idl", "ninfg.h", "gridrpc.toml", "platform.toml"):
        shutil.copy(SUITE / name, folder)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", SUITE / "functions.c", "-o", folder / "libgridrpc.so"], check=True)
    compile_c(sources(), folder / "suite", "-std=c99", "-D_POSIX_C_SOURCE=200809L")
    return folder


def passes(folder, *before, program=None):
    """Runs the suite with the command `before` and returns its output. Each case must pass, except that cases
    which need much memory may be skipped."""
    command = [*before, program or folder / "suite", folder / "gridrpc.toml", "server-1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=1200)
    assert done.returncode == 0 and "not ok" not in done.stdout, done.stdout + done.stderr
    # One of the cases has a text that is not UTF-8.
    assert "caf\ufffd: GRPC_NOT_INITIALIZED: there is no session" in done.stderr
    said = re.findall(r"^ok \d+ - (.*?)(?: # SKIP (.*))?$", done.stdout, re.MULTILINE)
    assert len(said) == CASES
    assert {shows for shows, why in said if why} <= LARGE
    return done.stdout


@pytest.fixture
def start(suite):
    """Yields a function that starts parts of a grid and returns the process and its first line. The parts end with
    the test."""
    with parts(suite) as start:
        yield start


@pytest.fixture
def agent(start):
    """Starts an agent and returns its address."""
    return address_in(start("agent", "--listen", "127.0.0.1:0")[1])


@pytest.fixture
def serve(suite, start, agent):
    """Returns a function that starts a server of the suite's functions."""
    what = ["functions.idl", "builtin:files", "--agent", agent, "--library", suite / "libgridrpc.so", "--models", "none"]
    return lambda name: start("serve", *what, "--name", name)[0]


@pytest.fixture
def served(agent, serve):
    """Returns the address of an agent with one server of the suite's functions."""
    serve("server-1")
    return agent
