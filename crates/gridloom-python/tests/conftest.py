"""Grids that the tests share. Those on real processes need the `gridloom` program (GRIDLOOM_PROGRAM or on PATH)."""

import os
import shutil
import subprocess
from pathlib import Path

import gridloom as gl
import pytest
from bad_functions import DECLARED, wait_until

pytest.register_assert_rewrite("engine_contract")

HERE = Path(__file__).parent
FUNCTIONS = HERE / "functions.py"
# The modules that take longest. They begin first, so that no process runs one of them alone at the end.
LONGEST = ["gridrpc_memory", "gridrpc", "engines_ray", "engines_dask", "examples", "calls", "docs", "compat", "fortran", "plans", "engines", "graphs"]
LONGEST += ["connector", "mpi", "connector_rpc", "stateless_servers", "resize", "wheel"]


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.stem.removeprefix("test_")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


def _program():
    packaged = Path(gl.__file__).parent / "bin" / "gridloom"
    return str(packaged) if packaged.is_file() else os.environ.get("GRIDLOOM_PROGRAM") or shutil.which("gridloom")


@pytest.fixture(scope="session", autouse=True)
def keys(tmp_path_factory):
    """Not those of the user, which an agent would make. No module sets the variable: workers import modules of tests."""
    os.environ.setdefault("GRIDLOOM_RECORDS", "none")
    if "GRIDLOOM_KEYS" not in os.environ:
        os.environ["GRIDLOOM_KEYS"] = str(tmp_path_factory.mktemp("keys"))
        if found := _program():
            subprocess.run([found, "keys", "init", "tests"], stdout=subprocess.DEVNULL, check=True)


@pytest.fixture(scope="session")
def program():
    if not _program():
        pytest.skip("there is no gridloom program")


@pytest.fixture(scope="session", params=[True, False], ids=["shared", "tcp"])
def both(request, program):
    """A grid with and one without shared memory."""
    with gl.local(servers=2, functions=[FUNCTIONS], shared_memory=request.param) as grid:
        yield grid


@pytest.fixture(scope="session")
def grid(program):
    with gl.local(servers=2, functions=[FUNCTIONS]) as grid:
        yield grid


@pytest.fixture(scope="module")
def bad_module(tmp_path_factory):
    path = tmp_path_factory.mktemp("bad") / "bad.py"
    path.write_text(DECLARED)
    return path


@pytest.fixture(scope="module")
def one(program, bad_module):
    """A grid of one slot: what one call spoils, the next one meets."""
    with gl.local(servers=1, functions=[bad_module], memory=64 << 20) as grid:
        yield grid


@pytest.fixture
def platform(tmp_path):
    """A client with an agent, and three servers on a fast network."""
    path = tmp_path / "platform.xml"
    hosts = "".join(f'<host id="s{i}" speed="1Gf"><prop id="role" value="server"/><prop id="memory" value="100TB"/></host>' for i in range(3))
    routes = "".join(f'<route src="c" dst="s{i}"><link_ctn id="slow"/></route>' for i in range(3))
    routes += "".join(
        f'<route src="s{i}" dst="s{j}"><link_ctn id="fast"/></route>' for i in range(3) for j in range(i + 1, 3)
    )
    path.write_text(
        '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
        '<platform version="4.1"><zone id="z" routing="Full">'
        '<host id="c" speed="1Gf"><prop id="role" value="client,agent"/></host>'
        f"{hosts}"
        '<link id="slow" bandwidth="10MBps" latency="1ms"/><link id="fast" bandwidth="1GBps" latency="100us"/>'
        f"{routes}</zone></platform>"
    )
    return path


@pytest.fixture(params=["simulated", "real"])
def world(request, platform):
    """A grid of three servers that run bodies: simulated, and of real processes."""
    if request.param == "simulated":
        with gl.simulate(platform, functions=[FUNCTIONS], execute=True) as grid:
            yield grid
    else:
        request.getfixturevalue("program")
        with gl.local(servers=3, functions=[FUNCTIONS]) as grid:
            yield grid


class Gate:
    """Where calls of `tests/hold` stop."""

    def __init__(self, path):
        self.path = path

    def server(self):
        """Wait until a call is there; give its server's process."""
        wait_until(lambda: self.path.exists() and self.path.read_text())
        return int(self.path.read_text())

    def open(self):
        Path(f"{self.path}.open").touch()


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()


@pytest.fixture
def other_gate(tmp_path):
    gate = Gate(tmp_path / "other")
    yield gate
    gate.open()
