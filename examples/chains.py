"""Twelve chains of matrix products, call by call and as one group: the dominant eigenvectors of twelve data sets.

A chain squares the matrix X X' five times. Its input is small and its result is a vector; the intermediate matrices are large.
"""

import gridloom as gl
import numpy as np

random = np.random.default_rng(1)
data = random.standard_normal((12, 1000, 20))
data /= np.linalg.norm(data, axis=(1, 2), keepdims=True)
start = np.ones(1000)

with gl.local(servers=3) as grid:
    dgemm, dgemv = grid.function("linalg/dgemm"), grid.function("linalg/dgemv")

    began = grid.now()
    powers = [call.get() for call in [dgemm.submit(x, x.T) for x in data]]  # each product is returned to the client
    for _ in range(5):
        powers = [call.get() for call in [dgemm.submit(power, power) for power in powers]]
    plain = [call.get() for call in [dgemv.submit(power, start) for power in powers]]
    print(f"call by call: {grid.now() - began:.2f} s")

    with grid.group() as group:  # the same calls, mapped together
        powers = [dgemm(x, x.T) for x in data]
        for _ in range(5):
            powers = [dgemm(power, power) for power in powers]
        vectors = [dgemv(power, start) for power in powers]
        plan = group.plan()
    grouped = [vector.get() for vector in vectors]
    report = group.report()
    print(f"as a group: {report.measured_seconds:.2f} s, {report.predicted_seconds:.2f} s predicted")
    print(report)

assert all(np.allclose(one, other) for one, other in zip(plain, grouped))
plan.gantt("chains.svg")
