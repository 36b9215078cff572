/* The potential on the mesh, its gradient, and the transfer between mesh and particles. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The factor by which the second difference multiplies a wave of number k, times -1. */
static double eigenvalue(int k, int n) {
    double s = 2 * n * sin(4 * atan(1) * k / n);
    return s * s;
}

void hydropad_grav(int n, double strength, const double *rho_dm, const double *rho_b, double *phi) {
    long cells = (long)n * n * n;
    double complex *waves = malloc((size_t)cells * sizeof *waves);
    double mean = 0;
    if (waves == NULL) abort();
    for (long i = 0; i < cells; i++) mean += rho_dm[i] + rho_b[i];
    mean /= (double)cells;
    for (long i = 0; i < cells; i++) waves[i] = strength * (rho_dm[i] + rho_b[i] - mean);
    hydropad_fft(waves, n, -1);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++) {
                double sum = eigenvalue(i, n) + eigenvalue(j, n) + eigenvalue(k, n);
                double complex *wave = &waves[((long)i * n + j) * n + k];
                *wave = i + j + k == 0 ? 0 : *wave / (-sum * (double)cells);
            }
    hydropad_fft(waves, n, 1);
    for (long i = 0; i < cells; i++) phi[i] = creal(waves[i]);
    free(waves);
}

/* Central differences: [3][n][n][n]. */
void hydropad_gradient(int n, const double *phi, double *gradient) {
    long cells = (long)n * n * n, strides[3] = {(long)n * n, n, 1};
    for (int axis = 0; axis < 3; axis++)
        for (long cell = 0; cell < cells; cell++) {
            long at = cell / strides[axis] % n, first = cell - at * strides[axis];
            double up = phi[first + (at + 1) % n * strides[axis]], down = phi[first + (at + n - 1) % n * strides[axis]];
            gradient[axis * cells + cell] = (up - down) * n / 2;
        }
}

/* The eight cells around a position, and their weights (cloud in cell). */
static void cloud(int n, const double place[3], long cells[8], double weights[8]) {
    int low[3], high[3];
    double part[3];
    for (int axis = 0; axis < 3; axis++) {
        double at = place[axis] * n - 0.5;
        double floored = floor(at);
        part[axis] = at - floored;
        low[axis] = ((int)floored % n + n) % n;
        high[axis] = (low[axis] + 1) % n;
    }
    for (int corner = 0; corner < 8; corner++) {
        int i = corner & 4 ? high[0] : low[0], j = corner & 2 ? high[1] : low[1], k = corner & 1 ? high[2] : low[2];
        cells[corner] = ((long)i * n + j) * n + k;
        weights[corner] = (corner & 4 ? part[0] : 1 - part[0]) * (corner & 2 ? part[1] : 1 - part[1]) *
                          (corner & 1 ? part[2] : 1 - part[2]);
    }
}

/* The density of particles at x: [3][particles]. */
void hydropad_deposit(int n, long particles, double mass, const double *x, double *rho) {
    memset(rho, 0, (size_t)n * (size_t)n * (size_t)n * sizeof *rho);
    for (long p = 0; p < particles; p++) {
        double place[3] = {x[p], x[particles + p], x[2 * particles + p]}, weights[8];
        long cells[8];
        cloud(n, place, cells, weights);
        for (int corner = 0; corner < 8; corner++) rho[cells[corner]] += mass * weights[corner];
    }
}

/* The values of a mesh at the particles, by the same weights, so that no particle attracts itself. */
void hydropad_interpolate(int n, const double *mesh, const double *x, long particles, double *values) {
    for (long p = 0; p < particles; p++) {
        double place[3] = {x[p], x[particles + p], x[2 * particles + p]}, weights[8], sum = 0;
        long cells[8];
        cloud(n, place, cells, weights);
        for (int corner = 0; corner < 8; corner++) sum += weights[corner] * mesh[cells[corner]];
        values[p] = sum;
    }
}
