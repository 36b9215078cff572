import gridloom as gl
import numpy as np

a, b, c, d = np.random.default_rng(1).standard_normal((4, 1000, 1000))
with gl.local(servers=4) as grid:               # or gl.connect("agent.example.org:7711")
    dgemm = grid.function("linalg/dgemm")
    with grid.group() as group:                  # calls are recorded, then mapped together
        ab = dgemm(a, b)
        cd = dgemm(c, d)
        abcd = dgemm(ab, cd)                     # ab and cd never visit the client
    print(abcd.get().shape)                      # a NumPy array
    print(group.report())                        # predicted and measured makespan, bytes by link
