"""Runs mypy for tests."""

import pathlib
import subprocess
import sys

# `make lint` puts there what mypy knows of NumPy: to read NumPy again takes seven seconds of processor time.
CACHE = pathlib.Path(__file__).parents[3] / ".mypy_cache"


def mypy(file, folder):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", CACHE, file]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)
