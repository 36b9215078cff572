"""The wheel of `make wheel`, in a fresh environment of each available Python."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSION = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
PROGRAM = """
import gridloom as gl
import numpy as np

with gl.local(servers=1) as grid:
    dgemm = grid.function("linalg/dgemm")
    print(dgemm(np.eye(2), np.full((2, 2), 3.0)).sum(), grid.run(divmod, 17, 5).result())
"""


@pytest.fixture(scope="module")
def wheel():
    wheels = list((ROOT / "target" / "wheels").glob("*.whl"))
    if not wheels:
        pytest.skip("there is no wheel: 'make wheel' builds it")
    return wheels[0]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def interpreter(minor):
    """Returns a Python of this version that can create environments, from the search path or from pyenv."""
    name = f"python3.{minor}"
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found = [shutil.which(name), *sorted(pyenv.glob(f"versions/3.{minor}.*/bin/{name}"))]
    ask = f"import sys, venv; assert sys.version_info[:2] == (3, {minor})"
    # A shim of pyenv exists but does not run if its version is not selected.
    works = (path for path in found if path and run(path, "-c", ask).returncode == 0)
    return next(works, None)


@pytest.mark.parametrize("minor", range(10, 15))
def test_the_wheel_works_on(minor, wheel, tmp_path):
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor}")
    assert run(python, "-m", "venv", "--without-pip", "--symlinks", "an env", cwd=tmp_path).returncode == 0
    folder = tmp_path / "an env" / "bin"
    # Nothing from the environment of these tests, and no other program 'gridloom'.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GRIDLOOM", "PYTHON"))}
    own["PATH"] = f"{folder}:/usr/bin:/bin"

    def install(*what):
        pip = [sys.executable, "-m", "pip", "--python", folder / "python", "install", "--quiet", "--no-compile"]
        return run(*pip, "--disable-pip-version-check", "--only-binary=:all:", *what, cwd=ROOT)

    done = install("--no-deps", wheel)
    assert done.returncode == 0, done.stderr
    done = run(folder / "gridloom", "--version", env=own, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gridloom {VERSION}\n", "")
    done = install(wheel)
    if done.returncode:
        pytest.skip(f"the command 'gridloom' runs, but what the package needs cannot be installed: {done.stderr.strip()[-300:]}")
    done = run(folder / "python", "-m", "gridloom", "--version", env=own, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gridloom {VERSION}\n", "")
    done = run(folder / "python", "-c", PROGRAM, env=own, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "12.0 (3, 2)\n", "")


def test_the_wheel_holds_licences_and_the_readme(wheel):
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as files:
        folder = f"gridloom-{VERSION}.dist-info"
        metadata = files.read(f"{folder}/METADATA").decode()
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            assert files.read(f"{folder}/licenses/{name}") == (ROOT / name).read_bytes()
            assert f"License-File: {name}\n" in metadata
    assert metadata.rstrip().endswith((ROOT / "README.md").read_text().rstrip())
