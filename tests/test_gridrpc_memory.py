"""Memory, descriptors and threads of C programs: the conformance suite under tools that watch them, and many sessions."""

import re
import shutil
import subprocess

import pytest
from c_library import compile_c, needs_cc, the_library
from gridrpc_suite import SUITE, agent, files, passes, serve, served, sources, start, suite

# Fixtures.
__all__ = ["agent", "files", "serve", "served", "start", "suite", "the_library"]
# Under valgrind the suite takes minutes.
pytestmark = [needs_cc, pytest.mark.timeout(900)]


def test_memory_is_used_as_it_should_be(suite, monkeypatch):
    if shutil.which("valgrind") is None:
        pytest.skip("there is no valgrind")
    monkeypatch.setenv("GRIDRPC_SESSIONS", "200")
    kinds = ["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]
    passes(suite, "valgrind", "-q", "--error-exitcode=9", "--leak-check=full", *kinds)


def test_sanitizers_find_nothing(suite, monkeypatch):
    """Covers the programs, and the code in which the library reads and writes their memory. The sanitizer for
    threads cannot be used: it does not see the locks of a library that was not built with it."""
    monkeypatch.setenv("GRIDRPC_SESSIONS", "200")
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_POSIX_C_SOURCE=200809L"]
    program = compile_c(sources(), suite / "sanitized", "-std=c99", *checks)
    passes(suite, program=program)


def test_nothing_is_left_of_a_session(suite, served, monkeypatch):
    """With hundreds of sessions with calls of all kinds, and 30,000 calls: memory, descriptors, threads."""
    monkeypatch.setenv("GRIDLOOM_AGENT", served)
    program = compile_c([SUITE / "cycles.c"], suite / "cycles", "-std=c99", "-D_POSIX_C_SOURCE=200809L")
    done = subprocess.run([program, "500", "1500"], capture_output=True, text=True, cwd=suite, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    # A leak of one KiB per round is detected.
    done = subprocess.run([program, "500", "500", "1024"], capture_output=True, text=True, cwd=suite, timeout=600)
    assert done.returncode == 1 and len(re.findall(r"\b(9|1[0-4])\d\d bytes each", done.stdout)) == 3, done.stdout
