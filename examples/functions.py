"""Your own functions: ordinary Python functions with types and shapes in their annotations."""

import gridloom as gl
import numpy as np


@gl.function(work="2*m*n*k")
def matmul(a: gl.Array["float64", "m", "k"], b: gl.Array["float64", "k", "n"]) -> gl.Array["float64", "m", "n"]:
    """Product of two matrices."""
    return a @ b


@gl.function(work="5*n")
def statistics(x: gl.Array["float64", "n"]) -> tuple[float, float]:
    """Mean and standard deviation."""
    return float(np.mean(x)), float(np.std(x))


@gl.function
def greet(name: str) -> str:
    """A greeting."""
    return f"hello, {name}"
