"""The GridRPC API as C programs see it: the conformance suite, for real and in simulation."""

import pathlib
import re
import shutil
import subprocess

import gridloom as gl
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom")
SUITE = ROOT / "tests" / "gridrpc"
CAPI = ROOT / "target" / "capi"
GROUPS = {"initialize": 2, "finalize": 2, "handles": 9, "call": 4, "wait": 13, "probe": 8, "cancel": 5, "errors": 7}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A folder with the suite, its functions and its configuration, built."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler 'cc'")
    if not (CAPI / "include" / "grpc.h").exists():
        pytest.skip("the library has no grpc.h: 'make capi'")
    folder = tmp_path_factory.mktemp("gridrpc")
    for name in ("functions.idl", "gridrpc.toml", "platform.toml"):
        shutil.copy(SUITE / name, folder)
    compiler = ["cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-g"]
    sources = sorted(path for path in SUITE.glob("*.c") if path.name != "functions.c")
    flags = [f"-I{CAPI}/include", f"-L{CAPI}/lib", "-lgridloom", f"-Wl,-rpath,{CAPI}/lib", "-lm", "-pthread"]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", SUITE / "functions.c", "-o", folder / "libgridrpc.so"], check=True)
    subprocess.run([*compiler, *sources, "-o", folder / "suite", *flags], check=True)
    return folder


def passes(folder, *before):
    """What the suite says when it runs behind that command; each case went well."""
    command = [*before, folder / "suite", folder / "gridrpc.toml", "server-1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=1200)
    assert done.returncode == 0 and "not ok" not in done.stdout, done.stdout + done.stderr
    return done.stdout


def counts(said):
    """Cases of each group of the OGF's."""
    groups = re.findall(r"^ok \d+ - OGF (\w+) \d+:", said, re.MULTILINE)
    return {group: groups.count(group) for group in groups}


def test_the_suite_passes_for_real(suite, monkeypatch):
    monkeypatch.setenv("GRIDLOOM_PROGRAM", PROGRAM)
    said = passes(suite)
    assert counts(said) == GROUPS and sum(GROUPS.values()) == 50


def test_the_suite_passes_in_simulation(suite):
    simulate = [PROGRAM, "simulate", "-p", suite / "platform.toml", "--execute", "--"]
    assert counts(passes(suite, *simulate)) == GROUPS


def test_a_failed_case_is_told(suite):
    """The suite can fail: with a server's name that is none."""
    command = [suite / "suite", suite / "gridrpc.toml", "no-such-server", "OGF handles 3"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=suite, timeout=120, env={"GRIDLOOM_PROGRAM": PROGRAM}
    )
    assert done.returncode == 1 and "not ok 1 - OGF handles 3" in done.stdout and "GRPC_SERVER_NOT_FOUND" in done.stdout


@pytest.mark.parametrize("standard", ["c++11", "c++17"])
def test_the_header_for_cpp(suite, standard, monkeypatch):
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler 'c++'")
    monkeypatch.setenv("GRIDLOOM_PROGRAM", PROGRAM)
    flags = [f"-I{CAPI}/include", f"-L{CAPI}/lib", "-lgridloom", f"-Wl,-rpath,{CAPI}/lib"]
    compiler = ["c++", f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1"]
    subprocess.run([*compiler, SUITE / "cpp.cc", "-o", suite / "cpp", *flags], check=True)
    subprocess.run([suite / "cpp", suite / "gridrpc.toml"], cwd=suite, check=True, timeout=120)
