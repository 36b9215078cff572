"""Serves functions.py in an embedded grid and calls it."""

import pathlib

import gridloom as gl
import numpy as np

with gl.local(servers=2, functions=[pathlib.Path(__file__).with_name("functions.py")]) as grid:
    print(grid.function("functions/greet")("world"))
    mean, deviation = grid.function("functions/statistics")(np.arange(5.0))
    print(f"mean {mean}, standard deviation {deviation:.4f}")
    matmul = grid.function("functions/matmul")
    try:
        matmul(np.ones((2, 3)), np.ones((4, 5)))
    except gl.ArgumentError as error:
        print(error)
