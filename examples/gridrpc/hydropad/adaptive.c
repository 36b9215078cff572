/* Hydropad with SmartGridRPC, in groups of several steps. Measurements choose the number of steps: larger groups map
 * better and send less through the client, smaller ones react sooner when servers become slower.
 *
 *   adaptive CONFIGURATION [CELLS [PARTICLES [STEPS]]] */
#include "hydropad.h"

#include <string.h>

enum { GROUP_MAX = 16 };

/* The number of steps of the next group: twice as many while that makes a step faster, else half as many. */
static int next_size(int size, double step_s, double *last_step_s) {
    int next = *last_step_s == 0 || step_s < *last_step_s ? 2 * size : size / 2;
    *last_step_s = step_s;
    return next < 1 ? 1 : next > GROUP_MAX ? GROUP_MAX : next;
}

int main(int argc, char **argv) {
    functions f;
    universe v = hydropad_begin(argc, argv, &f);
    start first = start_of(&v);
    double step_s = 0;
    int size = 1;

    MUST(grpc_call(&f.grav, v.n, first.strength, v.rho_dm, v.rho_b, v.phi[0]));
    MUST(grpc_call(&f.initvel, v.n, v.m, v.cosmology.gas, first.displacement, first.velocity, first.pressure, v.phi[0],
                   v.x, v.u, v.state));
    memcpy(v.phi[1], v.phi[0], (size_t)v.cells * sizeof *v.phi[0]);

    for (int done = 0; done < v.steps;) {
        int last = done + size < v.steps ? done + size : v.steps;
        double began = grpc_now_np();
        grpc_map("auto") {
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
        size = next_size(size, (grpc_now_np() - began) / (last - done), &step_s);
        done = last;
    }
    return hydropad_end("adaptive", &v, &f);
}
