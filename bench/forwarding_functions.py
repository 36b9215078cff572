"""The function of bench/forwarding.py."""

import gridloom as gl


@gl.function
def first(data: gl.Array["float64", "n"]) -> float:
    """The array's first element."""
    return float(data[0])
