/* Acceptance tests of the kernels, called directly: prints each figure, and whether it is within its bound.
 *
 *   cc -O2 -ffp-contract=off check.c fft.c gravity.c matter.c gas.c cosmology.c -o check -lm && ./check */
#include "cosmology.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void told(const char *what, double got, double least, double most) {
    int is_good = got >= least && got <= most;
    printf("%s  %-62s %11.4g   (%.4g to %.4g)\n", is_good ? "ok    " : "WRONG ", what, got, least, most);
    failures += !is_good;
}

static double *reals(long count) {
    double *made = calloc((size_t)count, sizeof *made);
    if (made == NULL) abort();
    return made;
}

static double wave(double x) { return cos(8 * atan(1) * x); }

/* ---- Gravity ----------------------------------------------------------------------------------------------------- */

static void the_laplacian_of_the_potential(int n) {
    long cells = (long)n * n * n;
    double *rho = reals(cells), *none = reals(cells), *phi = reals(cells), worst = 0;
    for (long cell = 0; cell < cells; cell++) rho[cell] = 1 + wave(3 * ((double)(cell / ((long)n * n)) + 0.5) / n);
    hydropad_grav(n, 1, rho, none, phi);
    for (long cell = 0; cell < cells; cell++) {
        double sum = -6 * phi[cell];
        for (long stride = 1; stride < cells; stride *= n) {
            long at = cell / stride % n, first = cell - at * stride;
            sum += phi[first + (at + 1) % n * stride] + phi[first + (at + n - 1) % n * stride];
        }
        worst = fmax(worst, fabs(sum * n * n - (rho[cell] - 1)));
    }
    char what[80];
    snprintf(what, sizeof what, "gravity: residual of the potential, n = %d", n);
    told(what, worst, 0, 1e-12);
    free(rho), free(none), free(phi);
}

static void forces_cancel(void) {
    enum { N = 16, M = 12 };
    long cells = (long)N * N * N, particles = (long)M * M * M;
    double *x = reals(3 * particles), *rho = reals(cells), *none = reals(cells), *phi = reals(cells);
    double *gradient = reals(3 * cells), *force = reals(particles), worst = 0, weights = 0;
    for (long i = 0; i < 3 * particles; i++) x[i] = random_unit(7, (unsigned long)i);
    hydropad_deposit(N, particles, 1, x, rho);
    for (long cell = 0; cell < cells; cell++) weights += rho[cell];
    told("dark matter: sum of the weights", weights / (double)particles - 1, -1e-12, 1e-12);
    hydropad_grav(N, 1, rho, none, phi);
    hydropad_gradient(N, phi, gradient);
    for (int axis = 0; axis < 3; axis++) {
        double sum = 0, absolute = 0;
        hydropad_interpolate(N, gradient + axis * cells, x, particles, force);
        for (long p = 0; p < particles; p++) {
            sum += force[p];
            absolute += fabs(force[p]);
        }
        worst = fmax(worst, fabs(sum) / absolute);
    }
    told("dark matter: sum of all forces by that of their sizes", worst, 0, 1e-12);
    free(x), free(rho), free(none), free(phi), free(gradient), free(force);
}

/* ---- Gas --------------------------------------------------------------------------------------------------------- */

/* The exact density of Sod's tube at position s / time, for the waves that move to the right from 0. */
static double sod(double s) {
    const double g = 1.4, p = 0.30313, u = 0.92745, left = sqrt(1.4);
    double behind = pow(p, 1 / g), tail = u - left * pow(p, (g - 1) / (2 * g));
    double ratio = p / 0.1, shocked = 0.125 * (ratio + (g - 1) / (g + 1)) / (ratio * (g - 1) / (g + 1) + 1);
    double shock = sqrt(g * 0.1 / 0.125) * sqrt((g + 1) / (2 * g) * ratio + (g - 1) / (2 * g));
    if (s < -left) return 1;
    if (s < tail) return pow(2 / (g + 1) - (g - 1) / ((g + 1) * left) * s, 2 / (g - 1));
    return s < u ? behind : s < shock ? shocked : 0.125;
}

/* A mirrored tube: a periodic box of length 2 with the dense gas in its middle. Reports the mean error of the right half. */
static void sods_tube(int n, double expected, int steps) {
    int m = 2 * n, width = m + 2 * HYDROPAD_GHOSTS, taken = 0;
    double *row = reals(5L * width), *work = reals(HYDROPAD_SWEEP_WORK((long)m));
    double time = 0, error = 0, mass = 0, energy = 0;
    for (int i = 0; i < width; i++) {
        int cell = (i + m - HYDROPAD_GHOSTS) % m, is_dense = cell >= n / 2 && cell < m - n / 2;
        row[i] = is_dense ? 1 : 0.125;
        row[4 * width + i] = (is_dense ? 1 : 0.1) / 0.4;
    }
    while (time < 0.2) {
        double fastest = 0;
        for (int f = 0; f < 5; f++)
            for (int i = 0; i < HYDROPAD_GHOSTS; i++) {
                row[f * width + i] = row[f * width + i + m];
                row[f * width + i + m + HYDROPAD_GHOSTS] = row[f * width + i + HYDROPAD_GHOSTS];
            }
        for (int i = 0; i < width; i++) {
            double rho = row[i], u = row[width + i] / rho, p = 0.4 * (row[4 * width + i] - rho * u * u / 2);
            fastest = fmax(fastest, fabs(u) + sqrt(1.4 * p / rho));
        }
        double step = fmin(0.8 / (fastest * n), 0.2 - time);
        hydropad_sweep(m, step * n, 1.4, row, work);
        time += step;
        taken++;
    }
    for (int cell = 0; cell < m; cell++) {
        double rho = row[cell + HYDROPAD_GHOSTS];
        mass += rho / n;
        energy += row[4 * width + cell + HYDROPAD_GHOSTS] / n;
        if (cell >= n) error += fabs(rho - sod(((cell + 0.5) / n - 1.5) / 0.2)) / n;
    }
    char what[80];
    snprintf(what, sizeof what, "gas: error of Sod's tube, n = %d", n);
    told(what, error, 0.85 * expected, 1.15 * expected);
    snprintf(what, sizeof what, "gas: steps of Sod's tube, n = %d", n);
    told(what, taken, steps * 0.97, steps * 1.03);
    told("gas: its mass", mass / 1.125 - 1, -3e-15, 3e-15);
    told("gas: its energy", energy / 2.75 - 1, -3e-15, 3e-15);
    free(row), free(work);
}

/* A random flow: the largest relative change of the conserved quantities. */
static void gas_is_conserved(void) {
    enum { N = 16 };
    long cells = (long)N * N * N;
    double *state = reals(5 * cells), *phi = reals(cells), *rho = reals(cells);
    double before[5] = {0}, after[5] = {0}, worst = 0;
    for (long cell = 0; cell < cells; cell++) {
        double squares = 0;
        state[cell] = 1 + 0.2 * random_unit(1, (unsigned long)cell);
        for (int axis = 1; axis <= 3; axis++) {
            double u = 0.3 * (random_unit((unsigned long)axis + 1, (unsigned long)cell) - 0.5) + 0.1;
            state[axis * cells + cell] = state[cell] * u;
            squares += u * u;
        }
        state[4 * cells + cell] = 1 / (HYDROPAD_GAMMA - 1) + state[cell] * squares / 2;
    }
    for (long i = 0; i < 5 * cells; i++) before[i / cells] += state[i];
    for (int number = 1; number <= 6; number++) hydropad_bary(N, 0.2 / N, number, phi, phi, state, rho);
    for (long i = 0; i < 5 * cells; i++) after[i / cells] += state[i];
    for (int f = 0; f < 5; f++) worst = fmax(worst, fabs(after[f] / before[f] - 1));
    told("gas: mass, momenta and energy of a random flow", worst, 0, 3e-15);
    for (long i = 0; i < 5 * cells; i++) state[i] = i / cells == 0 ? 1 : i / cells == 4 ? 3 : 0.5;
    hydropad_bary(N, 0.2 / N, 1, phi, phi, state, rho);
    worst = 0;
    for (long i = 0; i < 5 * cells; i++)
        worst = fmax(worst, fabs(state[i] - (i / cells == 0 ? 1 : i / cells == 4 ? 3 : 0.5)));
    told("gas: a free stream stays", worst, 0, 1e-15);
    free(state), free(phi), free(rho);
}

/* ---- All together ------------------------------------------------------------------------------------------------ */

/* Moves a universe from its first densities to its end. */
static void evolve(universe *u) {
    start here = start_of(u);
    double gas = u->cosmology.gas;
    hydropad_grav(u->n, here.strength, u->rho_dm, u->rho_b, u->phi[0]);
    memcpy(u->phi[1], u->phi[0], (size_t)u->cells * sizeof(double));
    hydropad_initvel(u->n, u->m, gas, here.displacement, here.velocity, here.pressure, u->phi[0], u->x, u->u, u->state);
    for (int k = 1; k <= u->steps; k++) {
        moment now = moment_of(u, k);
        double *phi = u->phi[(k + 1) % 2], *old = u->phi[k % 2];
        hydropad_dark(u->n, u->m, u->mass, now.kick, now.drift, phi, u->x, u->u, u->rho_dm);
        if (gas > 0) hydropad_bary(u->n, now.step, k, phi, old, u->state, u->rho_b);
        hydropad_grav(u->n, now.strength, u->rho_dm, u->rho_b, u->phi[k % 2]);
    }
}

/* A universe of a wave along x, from one expansion factor to another. */
static universe evolved(int n, int m, double gas, double amplitude, double from, double to, int steps) {
    universe u = new_universe(n, m, einstein_de_sitter(gas), from, to, steps);
    for (long cell = 0; cell < u.cells; cell++) {
        double delta = amplitude * wave(((double)(cell / ((long)n * n)) + 0.5) / n);
        u.rho_dm[cell] = (1 - gas) * (1 + delta);
        u.rho_b[cell] = gas * (1 + delta);
    }
    evolve(&u);
    return u;
}

/* Zel'dovich's pancake, which is exact until orbits cross at a = 1. Velocities are half a step behind. */
static void the_pancake(int n, int m) {
    const double from = 0.1, to = 0.9, k = 8 * atan(1), half = to - (to - from) / 80;
    universe u = evolved(n, m, 0, from, from, to, 40);
    double positions = 0, velocities = 0, exact = 0;
    for (long p = 0; p < u.particles; p++) {
        double q = ((double)(p / ((long)m * m)) + 0.5) / m, off = u.x[p] - (q - to * sin(k * q) / k);
        double velocity = -pow(half, 1.5) * sin(k * q) / k;
        off -= floor(off + 0.5);
        positions += off * off * n * n;
        velocities += (u.u[p] - velocity) * (u.u[p] - velocity);
        exact += velocity * velocity;
    }
    char what[80];
    snprintf(what, sizeof what, "pancake: error of positions in cells, n = %d, m = %d", n, m);
    told(what, sqrt(positions / (double)u.particles), 0, 0.1);
    snprintf(what, sizeof what, "pancake: error of velocities, n = %d, m = %d", n, m);
    told(what, sqrt(velocities / exact), 0, 0.05);
    free_universe(&u);
}

/* Gas in the same wave, away from where it accumulates. The gas is cold and follows Zel'dovich only approximately. */
static void the_pancake_of_gas(void) {
    enum { N = 32 };
    const double from = 0.05, to = 0.8, k = 8 * atan(1);
    universe u = evolved(N, N, 0.5, from, from, to, 60);
    double sum = 0;
    int count = 0;
    for (int i = 0; i < N; i++) {
        double x = (i + 0.5) / N, q = x;
        for (int round = 0; round < 200; round++) q = x + to * sin(k * q) / k;
        double exact = 1 / (1 - to * cos(k * q));
        if (cos(k * x) > 0.5) continue;
        sum += fabs(u.rho_b[(long)i * N * N] / 0.5 / exact - 1);
        count++;
    }
    told("pancake: mean error of the gas's density away from the caustic", sum / count, 0, 0.05);
    free_universe(&u);
}

static void waves_grow(double gas) {
    enum { N = 32 };
    const double from = 0.1, to = 0.3, small = 1e-3;
    universe u = evolved(N, N, gas, small, from, to, 60);
    double amplitude = 0;
    for (long cell = 0; cell < u.cells; cell++) {
        double x = ((double)(cell / ((long)N * N)) + 0.5) / N;
        amplitude += 2 * (u.rho_dm[cell] + u.rho_b[cell] - 1) * wave(x) / (double)u.cells;
    }
    char what[80];
    snprintf(what, sizeof what, "growth of a small wave, by theory's, %g of it gas", gas);
    told(what, amplitude / small / (to / from), 0.98, 1.02);
    free_universe(&u);
}

enum { SHELLS = 6 };

/* The power spectrum of the density: shell s sums |delta_k|^2 / cells^2 over the wave numbers (in units of the box's) of length s - 1/2 to
 * s + 1/2. The last number is the power of all other waves but the mean. */
static void spectrum(const universe *u, double power[SHELLS + 1]) {
    double complex *modes = malloc((size_t)u->cells * sizeof *modes);
    if (modes == NULL) abort();
    for (long cell = 0; cell < u->cells; cell++) modes[cell] = u->rho_dm[cell] + u->rho_b[cell] - 1;
    hydropad_fft(modes, u->n, -1);
    for (int shell = 0; shell <= SHELLS; shell++) power[shell] = 0;
    for (long cell = 1; cell < u->cells; cell++) {
        long number[3] = {cell / ((long)u->n * u->n), cell / u->n % u->n, cell % u->n};
        double square = 0, size = cabs(modes[cell]) / (double)u->cells;
        for (int axis = 0; axis < 3; axis++) {
            double k = (double)(number[axis] > u->n / 2 ? number[axis] - u->n : number[axis]);
            square += k * k;
        }
        int shell = (int)floor(sqrt(square) + 0.5);
        power[shell < SHELLS ? shell : SHELLS] += size * size;
    }
    free(modes);
}

/* Waves of all lengths grow alike while they are small: the power of each shell by the square of the expansion factor. On a mesh of N cells
 * the clouds of particles and the differences smooth waves of wave number s by a factor of about exp(-c (2 pi s / N)^2); here at most c = 0.9. */
static void the_spectrum_grows(double gas) {
    /* Particles between the middles of cells, where their clouds have no kink: with a kink, waves make others, however small they are. */
    enum { N = 32, M = 64 };
    const double from = 0.01, to = 0.02, growth = (to / from) * (to / from);
    universe u = new_universe(N, M, einstein_de_sitter(gas), from, to, 30);
    double before[SHELLS + 1], after[SHELLS + 1], all = 0;
    first_waves(&u, 1);
    /* So small that waves do not make others. */
    for (long cell = 0; cell < u.cells; cell++) {
        u.rho_dm[cell] = (1 - gas) + (u.rho_dm[cell] - (1 - gas)) / 2000;
        u.rho_b[cell] = gas + (u.rho_b[cell] - gas) / 2000;
    }
    spectrum(&u, before);
    evolve(&u);
    spectrum(&u, after);
    for (int shell = 1; shell < SHELLS; shell++) all += before[shell];
    told("spectrum: power of waves that were not put in, by all power", before[SHELLS] / all, 0, 1e-20);
    for (int shell = 1; shell < SHELLS; shell++) {
        char what[80];
        if (before[shell] == 0) continue;
        snprintf(what, sizeof what, "spectrum: growth of shell %d, by theory's, %g of it gas", shell, gas);
        told(what, after[shell] / before[shell] / growth, exp(-0.035 * shell * shell), 1.01);
    }
    free_universe(&u);
}

int main(void) {
    the_laplacian_of_the_potential(32);
    the_laplacian_of_the_potential(30);
    forces_cancel();
    sods_tube(64, 0.00936, 34);
    sods_tube(128, 0.00504, 69);
    sods_tube(256, 0.00283, 140);
    sods_tube(512, 0.00166, 280);
    gas_is_conserved();
    the_pancake(32, 32);
    the_pancake(64, 32);
    the_pancake(64, 64);
    the_pancake_of_gas();
    waves_grow(0);
    waves_grow(0.15);
    the_spectrum_grows(0.15);
    return failures > 0;
}
