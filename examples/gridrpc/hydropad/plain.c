/* Hydropad with plain GridRPC: each call is mapped by itself, and all data go through the client.
 *
 *   plain CONFIGURATION [CELLS [PARTICLES [STEPS]]] */
#include "hydropad.h"

#include <string.h>

int main(int argc, char **argv) {
    functions f;
    universe v = hydropad_begin(argc, argv, &f);
    start first = start_of(&v);

    MUST(grpc_call(&f.grav, v.n, first.strength, v.rho_dm, v.rho_b, v.phi[0]));
    MUST(grpc_call(&f.initvel, v.n, v.m, v.cosmology.gas, first.displacement, first.velocity, first.pressure, v.phi[0],
                   v.x, v.u, v.state));
    memcpy(v.phi[1], v.phi[0], (size_t)v.cells * sizeof *v.phi[0]);

    for (int k = 1; k <= v.steps; k++) {
        moment now = moment_of(&v, k);
        double *phi = v.phi[(k + 1) % 2], *next = v.phi[k % 2];
        grpc_sessionid_t dark;
        MUST(grpc_call_async(&f.dark, &dark, v.n, v.m, v.mass, now.kick, now.drift, phi, v.x, v.u, v.rho_dm));
        MUST(grpc_call(&f.bary, v.n, now.step, k, phi, next, v.state, v.rho_b));
        MUST(grpc_wait(dark));
        MUST(grpc_call(&f.grav, v.n, now.strength, v.rho_dm, v.rho_b, next));
    }
    return hydropad_end("plain", &v, &f);
}
