"""Hydropad without a server, for `gridloom simulate`: its functions compute on the client's host, and access all their arrays once.

hydropad_local.py CELLS PARTICLES STEPS
"""

import sys

import gridloom as gl

BYTES = 8


def functions(n, m):
    """Operations (CalcOrder of hydropad.idl) and accessed bytes of dark, bary and grav, which make a step."""
    return [
        (200 * m**3 + 10 * n**3, BYTES * (2 * n**3 + 6 * m**3)),
        (1500 * n**3, BYTES * 8 * n**3),
        (200 * n**3, BYTES * 3 * n**3),
    ]


def main():
    n, m, steps = map(int, sys.argv[1:])
    with gl.local() as grid:
        # Two densities and two potentials, gas, particles.
        grid.hold_memory(BYTES * (9 * n**3 + 6 * m**3))
        for _ in range(steps):
            for work, accessed_bytes in functions(n, m):
                grid.compute(work, accessed_bytes)


if __name__ == "__main__":
    main()
