"""The C library for tests. A module that imports `the_library` has the library checked before each of its tests."""

import pathlib
import shutil
import subprocess

import pytest
from parts import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[1]
CAPI = ROOT / "target" / "capi"
# The options that pkg-config prints.
LIBRARY = [f"-I{CAPI}/include", f"-L{CAPI}/lib", "-lgridloom", f"-Wl,-rpath,{CAPI}/lib"]

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler 'cc'")


@pytest.fixture(autouse=True)
def the_library(monkeypatch):
    """Fails if the library is missing: it is what the tests check."""
    if not (CAPI / "include" / "grpc.h").exists():
        pytest.fail(f"there is no library in {CAPI}; build it with 'make capi'", pytrace=False)
    monkeypatch.setenv("GRIDLOOM_PROGRAM", PROGRAM)
    monkeypatch.delenv("GRIDLOOM_AGENT", raising=False)


def compile_c(sources, target, *more, compiler="cc"):
    """Compiles a program and links it with the library."""
    warnings = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-g"]
    subprocess.run([compiler, *warnings, *more, *sources, "-o", target, *LIBRARY, "-lm", "-pthread"], check=True)
    return target
