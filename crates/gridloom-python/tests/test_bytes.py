"""Paths, environments and arguments may be any bytes, and output escapes characters that a stream or terminal cannot show."""

import io
import os
import subprocess
import sys

import pytest
from gridloom.common.encodable import encodable
from gridloom.display.bars import print_above

ODD = b"caf\xe9-\xff"

CALLS = """
import os, sys
import gridloom as gl

def where(text):
    print("\\u00e9 \\udcff")
    return os.getcwd(), os.environ.get("TMPDIR"), text

with gl.local(servers=1, functions=["functions.py"], logs=True) as grid:
    assert grid.function("functions/plus")(1) == 2
    assert grid.run(where, sys.argv[1]).get()[2] == sys.argv[1]
    assert grid.function("functions/copied")(b"data") == b"data"
print("done")
"""

FUNCTIONS = """
import gridloom as gl

@gl.function
def plus(x: int) -> int:
    print("\\u00e9")
    return x + 1

copied = gl.program(["sh", "-c", 'cat "$1" > "$2"', "sh", "{given}", "{made}"], inputs=["given"], outputs=["made"], name="copied")
"""


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_grid_runs_in_folders_whose_names_are_not_utf8(tmp_path, locale):
    folder = os.path.join(os.fsencode(tmp_path), ODD)
    os.makedirs(os.path.join(folder, b"tmp\xff"))
    for name, text in ((b"functions.py", FUNCTIONS), (b"program.py", CALLS)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    environment = {**os.environb, b"TMPDIR": os.path.join(folder, b"tmp\xff"), b"LC_X": ODD, **{os.fsencode(k): os.fsencode(v) for k, v in locale.items()}}
    done = subprocess.run([sys.executable, "program.py", ODD], cwd=folder, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0 and done.stdout.endswith(b"done\n"), done.stderr.decode(errors="backslashreplace")


def test_characters_that_a_stream_cannot_encode_are_escaped():
    assert encodable("é\udcff→", "ascii") == "\\xe9\\udcff\\u2192"
    assert encodable("é\udcff", None) == "é\\udcff"
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    print_above("é", stream)
    assert stream.buffer.getvalue() == b"\\xe9\n"
