"""The command ``gridloom``, and ``python -m gridloom``: the program of the package, with the same arguments.

The command runs this file without the package, which takes a tenth of the time: nothing but the standard library is imported.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path


def program() -> str | None:
    """Find the program: this package's, else the one that GRIDLOOM_PROGRAM names, else the one on PATH."""
    packaged = Path(__file__).parents[1] / "bin" / "gridloom"
    if packaged.is_file():
        return os.fspath(packaged)
    named, found = os.environ.get("GRIDLOOM_PROGRAM"), shutil.which("gridloom")
    if not named and found and Path(found).read_bytes()[:2] == b"#!":
        return None  # The command itself, of an installation without the program.
    return named or found


def blas_library() -> Path | None:
    """Find the BLAS library of the package ``scipy-openblas32``.

    Returns
    -------
    pathlib.Path or None
        The library; ``None`` if the package is not installed.
    """
    package = importlib.util.find_spec("scipy_openblas32")
    if package is None or package.origin is None:
        return None
    library = Path(package.origin).parent / "lib" / "libscipy_openblas.so"
    return library if library.is_file() else None


def main() -> str:
    """Become the program, which finds the interpreter and the BLAS library of this installation.

    Returns
    -------
    str
        Why that cannot be.
    """
    path = program()
    if path is None:
        return (
            "gridloom: this installation of the package has no program 'gridloom', and there is none on PATH: "
            "install a wheel of the package, or name the program in the environment variable GRIDLOOM_PROGRAM"
        )
    found = {"GRIDLOOM_PYTHON": sys.executable, "GRIDLOOM_BLAS": blas_library()}
    environment = {name: os.fspath(value) for name, value in found.items() if value}
    try:
        os.execve(path, [path, *sys.argv[1:]], {**environment, **os.environ})
    except OSError as error:
        return f"gridloom: {path} cannot be run: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main())
