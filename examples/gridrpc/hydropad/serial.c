/* Hydropad without Gridloom: the kernels run one after the other, with the same physics to the bit.
 *
 *   serial [CELLS [PARTICLES [STEPS]]] */
#include "cosmology.h"
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int option(int argc, char **argv, int at, int otherwise) {
    int value = argc > at ? atoi(argv[at]) : otherwise;
    if (value > 0) return value;
    fprintf(stderr, "usage: %s [CELLS [PARTICLES [STEPS]]], numbers above 0\n", argv[0]);
    exit(2);
}

int main(int argc, char **argv) {
    int n = option(argc, argv, 1, 16), m = option(argc, argv, 2, 16), steps = option(argc, argv, 3, 8);
    universe v = new_universe(n, m, concordance(), 1.0 / 31, 1.0 / 31 + 0.004 * steps, steps);
    first_waves(&v, 1);
    start first = start_of(&v);

    hydropad_grav(n, first.strength, v.rho_dm, v.rho_b, v.phi[0]);
    hydropad_initvel(n, m, v.cosmology.gas, first.displacement, first.velocity, first.pressure, v.phi[0], v.x, v.u,
                     v.state);
    memcpy(v.phi[1], v.phi[0], (size_t)v.cells * sizeof *v.phi[0]);
    for (int k = 1; k <= steps; k++) {
        moment now = moment_of(&v, k);
        double *phi = v.phi[(k + 1) % 2], *next = v.phi[k % 2];
        hydropad_dark(n, m, v.mass, now.kick, now.drift, phi, v.x, v.u, v.rho_dm);
        hydropad_bary(n, now.step, k, phi, next, v.state, v.rho_b);
        hydropad_grav(n, now.strength, v.rho_dm, v.rho_b, next);
    }
    printf("serial: %d steps of %d^3 cells and %d^3 particles, checksum %016llx\n", steps, n, m, checksum(&v));
    free_universe(&v);
    return 0;
}
