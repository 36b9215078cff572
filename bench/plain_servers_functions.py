"""The product of bench/plain_servers.py."""

import gridloom as gl

Matrix = gl.Array["float64", "n", "n"]


@gl.function(work="n")
def product(a: Matrix, b: Matrix) -> Matrix:
    """The product; its work is stated as next to nothing, so that a simulation has transfers alone."""
    return a @ b
