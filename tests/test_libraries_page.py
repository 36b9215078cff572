"""The page on whole libraries is correct."""

import ctypes.util
import re
import shutil

import gridloom as gl
import pytest
from test_docs import ROOT, blocks_of_table, passes, told


def test_the_page_on_libraries_lists_all_routines():
    listed = set()
    for row in blocks_of_table("libraries.md")[3:]:
        for name in re.findall(r"`([^`]+)`", row.split("|")[2]):
            listed |= {name.replace("?", letter) for letter in "dszc"} if "?" in name else {name}
    for library in ("blas", "lapack", "fftw"):
        offered = {
            line.split("(")[0].split("/")[1]
            for line in told("idl", "show", "--builtin", library, cwd=ROOT).splitlines()
        }
        assert offered <= listed, (library, offered - listed)
        listed -= offered
    assert not listed


def test_the_page_on_libraries_shows_real_output():
    builtin = ["builtin:blas", "builtin:lapack", "builtin:fftw"]
    missing = [
        name
        for name in ("libopenblas.so.0", "libfftw3.so.3")
        if ctypes.util.find_library(name[3:].split(".")[0]) is None
    ]
    if missing or shutil.which("cc") is None:
        pytest.skip(f"there is no {' '.join(missing)} here, or no C compiler")
    with gl.local(servers=1, functions=builtin) as grid:
        passes("libraries.md", grid)
