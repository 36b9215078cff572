"""Two sites that work on a grid and exchange results by messages: each process is a client of the grid, on its own host.

    gridloom simulate -p ../two-sites.toml -d grid.toml -- python grid.py
    gridloom deploy -d grid.toml -- python grid.py                            # each starts a small grid of its own

To share one grid, start it (`gridloom agent & gridloom serve builtin:linalg &`) and write `gl.connect()` for `gl.local`.
That works in simulation too.
"""

import gridloom as gl
import numpy as np


@gl.message
class Norm:
    site: str
    value: float
    moved: int


@gl.process
def site(me, collector, n):
    peer = me.connect(collector, 4000)
    with gl.local(servers=2) as grid:
        dgemm, dnrm2 = grid.function("linalg/dgemm"), grid.function("linalg/dnrm2")
        a = np.full((int(n), int(n)), 2.0)
        with grid.group() as group:
            product = dgemm(dgemm(a, a), a)
        norm = dnrm2(product.get().ravel())
        report = group.report()
        how = "simulated" if report.simulated else "measured"
        me.log(f"predicted {report.predicted_seconds:.4f} s, {how} {report.measured_seconds:.4f} s")
        peer.send(Norm(me.host, norm, grid.traffic().client_bytes))


@gl.process
def collector(me, sites):
    me.listen(4000)
    for _ in range(int(sites)):
        _, norm = me.wait(Norm)
        print(f"{norm.site}: norm {norm.value:.6g}, {norm.moved} bytes")


gl.run_processes()
