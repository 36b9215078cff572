"""Functions that print without end."""

import json
import subprocess
import sys

import pytest

PRINTS = """
import json, os, sys
import gridloom as gl

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def lines(stream):
    for _ in range(40_000):
        print("x" * 999, file=getattr(sys, stream))

def descriptor(number):
    for _ in range(40_000):
        os.write(number, b"x" * 999 + b"\\n")

def one_line(stream):
    for _ in range(40_000):
        getattr(sys, stream).write("x" * 1000)

heard = []
with gl.local(servers=1, slots=2, logs=lambda said: heard.append(len(said.text))) as grid:
    for _ in range(20):
        grid.run(abs, 1).get()
    before = peak()
    call = grid.run(globals()[sys.argv[1]], json.loads(sys.argv[2]))
    others = 0
    while not call.done():
        others += grid.run(abs, -1).get(60)
    call.get()
    print(json.dumps([peak() - before, sum(heard), others]))
"""
BOUND_BYTES = 16 << 20


@pytest.mark.parametrize(
    ("function", "where"),
    [
        ("lines", "stdout"),
        ("lines", "stderr"),
        ("descriptor", 1),
        ("one_line", "stdout"),
    ],
)
def test_what_a_function_prints_fills_no_memory(program, function, where):
    """Of 40 MB the program hears 1 MiB and a little more; the rest is for the log."""
    run = [sys.executable, "-c", PRINTS, function, json.dumps(where)]
    done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True)
    grown_bytes, heard, others = json.loads(done.stdout)
    assert grown_bytes < BOUND_BYTES and heard < 4 << 20 and others > 0
