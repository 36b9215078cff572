"""Structure of a toy protein: parallel simulated annealing with genetic crossover, on two servers.

    cc -O2 -ffp-contract=off -shared -fPIC -o libprotein.so examples/protein/protein.c -lm
    python examples/protein/protein.py --library ./libprotein.so [--residues 13] [--chains 96] [--rounds 20]

Each server anneals half of the chains. Then every chain of one half is crossed with one of the other half, so in each round both
halves are sent from server to server: chains never pass the client before the end. All rounds are one group. The program runs
unchanged on an embedded local grid, under ``gridloom simulate`` and under ``gridloom testbed run``.

The lowest known energies in three dimensions are -4.9746 for 13 residues and -12.3266 for 21.
"""

import argparse
import pathlib

import gridloom as gl
import numpy as np

FUNCTIONS = pathlib.Path(__file__).resolve().parent / "protein.idl"
HOT, COLD = 0.7, 0.002


def fibonacci(residues):
    """The kinds of residues of the Fibonacci sequence, 1 for A and -1 for B; there is one for 13, 21, 34, 55, ..."""
    before, last = "A", "B"
    while len(last) < residues:
        before, last = last, before + last
    if len(last) != residues:
        raise SystemExit(f"there is no Fibonacci sequence of {residues} residues; choose 13, 21, 34 or 55")
    return np.array([1.0 if kind == "A" else -1.0 for kind in last])


def mixed(x):
    """The finaliser of SplitMix64 on uint64 arrays, as in protein.c."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def chains(count, residues, seed):
    """Two halves of chains with random directions, float64[count // 2, 2 * residues - 1] each, the same as in client.c."""
    half, variables = count // 2, 2 * (residues - 1)
    start = mixed(mixed(np.array([seed], np.uint64)) + np.uint64(2**64 - 1))
    of_chain = mixed(start + np.arange(2 * half, dtype=np.uint64))
    bits = mixed(of_chain[:, np.newaxis] + np.arange(variables, dtype=np.uint64)) >> np.uint64(11)
    angles = np.ones((2 * half, variables + 1))
    angles[:, :-1] = np.pi * (2 * (bits * 2.0**-53) - 1)
    return [angles[:half], angles[half:]]


def record(grid, kinds, halves, sweeps, rounds, seed, place=lambda function, half: function):
    """Record the calls: returns the handles of both halves and of their energies after the last round."""
    anneal, cross = grid.function("protein/anneal"), grid.function("protein/cross")
    energies = [None, None]
    for number in range(rounds):
        temperature = HOT * (COLD / HOT) ** (number / max(rounds - 1, 1))
        for half in (0, 1):
            halves[half], energies[half] = place(anneal, half)(
                kinds, sweeps, temperature, seed + half, number, halves[half]
            )
        if number < rounds - 1:
            halves = [place(cross, half)(kinds, seed, number, half, *halves) for half in (0, 1)]
    return halves, energies


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, help="the compiled protein.c, for an embedded grid")
    parser.add_argument("--residues", type=int, default=13)
    parser.add_argument("--chains", type=int, default=96, help="an even number")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=64, help="in each round")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = fibonacci(options.residues)
    libraries = [options.library] if options.library else []
    with gl.local(functions=[FUNCTIONS], libraries=libraries, servers=2) as grid:
        with grid.group():
            _, energies = record(
                grid,
                kinds,
                chains(options.chains, options.residues, options.seed),
                options.sweeps,
                options.rounds,
                options.seed,
            )
        found = np.concatenate([handle.get() for handle in energies])
        if grid.simulated and not found.any():
            print("simulated: no energies, since functions were not run ('--execute' runs them)")
            return
        print(f"lowest energy of {len(found)} chains: {found.min():.4f}")
        print(f"median: {np.median(found):.4f}")


if __name__ == "__main__":
    main()
