"""The product of bench/stateless_servers.py."""

import gridloom as gl

Matrix = gl.Array["float64", "n", "n"]


@gl.function(work="n")
def product(a: Matrix, b: Matrix) -> Matrix:
    """The product; its work is stated as almost nothing, so that a simulation consists of transfers alone."""
    return a @ b
