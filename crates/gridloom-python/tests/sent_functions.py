"""Functions that tests send, and how they wait for these."""

import os
import time
from pathlib import Path


def twice(x):
    return 2 * x


def stop(gate, x=None):
    """Waits until the gate is open; says that it runs by a file."""
    Path(f"{gate}.{os.getpid()}").touch()
    while not os.path.exists(f"{gate}.open"):
        time.sleep(0.001)
    return x


def running(gate):
    """Waits until a call of `stop` with this gate runs."""
    while not list(gate.path.parent.glob(f"{gate.path.name}.[0-9]*")):
        time.sleep(0.001)


def hang(gate):
    Path(f"{gate}.{os.getpid()}").touch()
    while True:
        time.sleep(1)


def block(gate):
    """Return 400 kB once the gate is open."""
    while not os.path.exists(gate + ".open"):
        time.sleep(0.001)
    return bytes(400_000)
