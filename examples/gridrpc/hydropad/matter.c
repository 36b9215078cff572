/* Initial velocities, and the particles of dark matter. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

static double *reals(long count) {
    double *made = malloc((size_t)count * sizeof *made);
    if (made == NULL) abort();
    return made;
}

/* Gas of the mean density `gas` that has followed the same displacement, with those velocities. The displacement's
 * divergence is that of the potential's gradient, so its density follows from the Laplacian. */
static void initial_gas(int n, double gas, double displacement, double velocity, double pressure, const double *phi,
                        const double *gradient, double *state) {
    long cells = (long)n * n * n, strides[3] = {(long)n * n, n, 1};
    for (long cell = 0; cell < cells; cell++) {
        double laplacian = -6 * phi[cell], squares = 0;
        for (int axis = 0; axis < 3; axis++) {
            long at = cell / strides[axis] % n, first = cell - at * strides[axis];
            laplacian += phi[first + (at + 1) % n * strides[axis]] + phi[first + (at + n - 1) % n * strides[axis]];
        }
        double rho = gas * (1 - displacement * laplacian * n * n);
        state[cell] = rho;
        for (int axis = 0; axis < 3; axis++) {
            double u = velocity * gradient[axis * cells + cell];
            state[(axis + 1) * cells + cell] = rho * u;
            squares += u * u;
        }
        state[4 * cells + cell] = pressure / (HYDROPAD_GAMMA - 1) + rho * squares / 2;
    }
}

void hydropad_initvel(int n, int m, double gas, double displacement, double velocity, double pressure,
                      const double *phi, double *x, double *u, double *state) {
    long cells = (long)n * n * n, particles = (long)m * m * m;
    double *gradient = reals(3 * cells);
    hydropad_gradient(n, phi, gradient);
    for (long p = 0; p < particles; p++) {
        x[p] = ((double)(p / ((long)m * m)) + 0.5) / m;
        x[particles + p] = ((double)(p / m % m) + 0.5) / m;
        x[2 * particles + p] = ((double)(p % m) + 0.5) / m;
    }
    for (int axis = 0; axis < 3; axis++)
        hydropad_interpolate(n, gradient + axis * cells, x, particles, u + axis * particles);
    for (long i = 0; i < 3 * particles; i++) {
        x[i] += displacement * u[i];
        x[i] -= floor(x[i]);
        u[i] *= velocity;
    }
    initial_gas(n, gas, displacement, velocity, pressure, phi, gradient, state);
    free(gradient);
}

void hydropad_dark(int n, int m, double mass, double kick, double drift, const double *phi, double *x, double *u,
                   double *rho_dm) {
    long cells = (long)n * n * n, particles = (long)m * m * m;
    double *gradient = reals(3 * cells + particles), *force = gradient + 3 * cells;
    hydropad_gradient(n, phi, gradient);
    for (int axis = 0; axis < 3; axis++) {
        hydropad_interpolate(n, gradient + axis * cells, x, particles, force);
        for (long p = 0; p < particles; p++) u[axis * particles + p] -= kick * force[p];
    }
    for (long i = 0; i < 3 * particles; i++) {
        x[i] += drift * u[i];
        x[i] -= floor(x[i]);
    }
    hydropad_deposit(n, particles, mass, x, rho_dm);
    free(gradient);
}
