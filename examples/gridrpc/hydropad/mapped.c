/* Hydropad with SmartGridRPC: the calls of each step are mapped together, or those of STEPS_PER_GROUP steps. Densities and
 * potentials are sent from server to server; particles and gas stay on their servers, step after step, since the client wants
 * nothing before the end.
 *
 *   mapped CONFIGURATION [CELLS [PARTICLES [STEPS [STEPS_PER_GROUP]]]] */
#include "hydropad.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    functions f;
    universe v = hydropad_begin(argc, argv, &f);
    start first = start_of(&v);
    int group = argc > 5 && atoi(argv[5]) > 0 ? atoi(argv[5]) : 1;

    grpc_map("auto") {
        grpc_stays_remote(v.x, v.u, v.state);
        MUST(grpc_call(&f.grav, v.n, first.strength, v.rho_dm, v.rho_b, v.phi[0]));
        MUST(grpc_call(&f.initvel, v.n, v.m, v.cosmology.gas, first.displacement, first.velocity, first.pressure,
                       v.phi[0], v.x, v.u, v.state));
    }
    MUST(grpc_map_error_np());
    memcpy(v.phi[1], v.phi[0], (size_t)v.cells * sizeof *v.phi[0]);

    for (int done = 0; done < v.steps;) {
        int last = done + group < v.steps ? done + group : v.steps;
        grpc_map("auto") {
            grpc_stays_remote(v.x, v.u, v.state, v.rho_dm, v.rho_b, v.phi[0], v.phi[1]);
            for (int k = done + 1; k <= last; k++) {
                moment now = moment_of(&v, k);
                double *phi = v.phi[(k + 1) % 2], *next = v.phi[k % 2];
                grpc_sessionid_t dark;
                MUST(grpc_call_async(&f.dark, &dark, v.n, v.m, v.mass, now.kick, now.drift, phi, v.x, v.u, v.rho_dm));
                MUST(grpc_call(&f.bary, v.n, now.step, k, phi, next, v.state, v.rho_b));
                MUST(grpc_wait(dark));
                MUST(grpc_call(&f.grav, v.n, now.strength, v.rho_dm, v.rho_b, next));
            }
        }
        MUST(grpc_map_error_np());
        done = last;
    }
    MUST(grpc_local_reads(v.x, v.u, v.state, v.phi[v.steps % 2]));
    return hydropad_end("mapped", &v, &f);
}
