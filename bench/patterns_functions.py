"""The functions of bench/patterns.py."""

import gridloom as gl
import numpy as np


@gl.function
def make(n: int, value: float) -> gl.Array["float64", "n"]:
    """An array of one value."""
    return np.full(n, value)


@gl.function
def last(data: gl.Array["float64", "n"]) -> float:
    """The array's last element."""
    return float(data[-1])


@gl.function
def last_of(name: str) -> float:
    """The last element of an array with a name."""
    with gl.connect() as grid:
        return float(grid.get(name)[-1])
