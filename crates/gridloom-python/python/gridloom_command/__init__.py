"""Entry point of the command ``gridloom``, outside the package so that the command starts without importing it."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path


def main() -> None:
    """Become the program of the package."""
    package = importlib.util.find_spec("gridloom")
    assert package is not None and package.origin is not None, "both packages are in the same wheel"
    runpy.run_path(str(Path(package.origin).parent / "common" / "executable.py"), run_name="__main__")
