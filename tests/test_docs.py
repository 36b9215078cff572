"""The reference pages say what is so: their descriptions are read, their functions run, their output is theirs."""

import doctest
import pathlib
import re
import shutil
import subprocess

import gridloom as gl
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom")


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


def passes(page, grid):
    """Its sessions, which follow from one another, print what they say."""
    found = doctest.DocTestParser().get_doctest("".join(blocks(page, "pycon")), {"gl": gl, "np": np, "grid": grid}, page, None, 0)
    told = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=told.append)
    assert found.examples and not told, "".join(told)


@pytest.fixture
def described(tmp_path):
    (tmp_path / "docs.idl").write_text("\n".join(blocks("idl.md", "idl")))
    return tmp_path / "docs.idl"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_page_on_interface_descriptions(described, tmp_path):
    (tmp_path / "docs.c").write_text("\n".join(blocks("idl.md", "c")))
    library = tmp_path / "libdocs.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "docs.c"], check=True)
    with gl.local(servers=1, functions=[described], libraries=[library]) as grid:
        passes("idl.md", grid)


def test_the_signatures_shown_are_those_of_the_descriptions(described):
    shown = subprocess.run([PROGRAM, "idl", "show", described], capture_output=True, text=True, check=True).stdout.splitlines()
    told = [line for block in blocks("idl.md", "text")[1:] for line in block.splitlines()]
    assert told and not set(told) - set(shown)


def test_the_page_on_python_functions(tmp_path):
    (tmp_path / "functions.py").write_text("\n\n".join(blocks("python-functions.md", "python")))
    with gl.local(servers=1, functions=[tmp_path / "functions.py"]) as grid:
        passes("python-functions.md", grid)
