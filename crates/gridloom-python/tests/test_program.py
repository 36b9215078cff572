"""``python -m gridloom``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gridloom as gl
import pytest

PACKAGE = Path(gl.__file__).parent


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "gridloom", *arguments], capture_output=True, text=True, timeout=120, **options)


def test_it_is_the_program(program):
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gridloom {gl.__version__}\n", "")
    wrong = run("nothing", "a b")
    assert wrong.returncode == 2 and "unrecognized subcommand 'nothing'" in wrong.stderr


def test_it_runs_in_the_same_process(program):
    command = [sys.executable, "-m", "gridloom", "agent", "--listen", "127.0.0.1:0", "--until-stdin-closes"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, **pipes) as agent:
        assert "127.0.0.1:" in agent.stdout.readline()
        # Only root may read /proc/PID/exe of a process that protects its memory.
        assert Path(f"/proc/{agent.pid}/comm").read_text() == "gridloom\n"
        agent.stdin.close()
        assert agent.wait(timeout=60) == 0


@pytest.fixture
def bare(tmp_path):
    """The environment of a package without its program."""
    shutil.copytree(PACKAGE, tmp_path / "gridloom", ignore=shutil.ignore_patterns("bin", "__pycache__"))
    return {**os.environ, "PYTHONPATH": str(tmp_path), "PATH": str(tmp_path), "GRIDLOOM_PROGRAM": ""}


def test_a_missing_program_is_reported(bare):
    done = run("--version", env=bare, cwd=bare["PYTHONPATH"])
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("gridloom: this installation of the package has no program 'gridloom'"), done.stderr


def test_the_program_receives_this_installation_s_interpreter_and_blas(bare, tmp_path):
    named = tmp_path / "other"
    named.write_text('#!/bin/sh\necho "$1 $GRIDLOOM_PYTHON $GRIDLOOM_BLAS"\n')
    named.chmod(0o755)
    environment = {**bare, "GRIDLOOM_PROGRAM": str(named)}
    environment.pop("GRIDLOOM_BLAS", None)
    done = run("word", env=environment, cwd=tmp_path)
    assert done.stdout == f"word {sys.executable} {gl.blas_library() or ''}\n", done.stderr
    done = run("word", env={**environment, "GRIDLOOM_BLAS": "mine.so"}, cwd=tmp_path)
    assert done.stdout == f"word {sys.executable} mine.so\n", done.stderr


def test_a_program_that_cannot_be_run_is_reported(bare, tmp_path):
    named = tmp_path / "other"
    named.write_text("no program")
    done = run("--version", env={**bare, "GRIDLOOM_PROGRAM": str(named)}, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == f"gridloom: {named} cannot be run: Permission denied\n"
