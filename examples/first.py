"""The README's first program on small matrices: a group of calls, mapped together."""

import gridloom as gl
import numpy as np

a = np.array([[1.0, 2.0], [3.0, 4.0]])
b = np.array([[0.0, 1.0], [1.0, 0.0]])
c, d = a + b, a - b

with gl.local(servers=4) as grid:  # or gl.connect("agent.example.org:7711")
    dgemm = grid.function("linalg/dgemm")
    with grid.group() as group:  # calls are recorded, then mapped together
        ab = dgemm(a, b)
        cd = dgemm(c, d)
        abcd = dgemm(ab, cd)  # ab and cd never visit the client
    print(abcd.get())  # a NumPy array
    report = group.report()  # predicted and measured makespan, bytes by link

print(f"{len(report.tasks)} calls, {report.client_bytes} bytes over client links")
