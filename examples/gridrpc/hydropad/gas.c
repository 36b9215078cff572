/* Baryons: Harten's second-order scheme (total variation does not grow), along one axis after the other. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

enum { FIELDS = 5 };
/* The smallest pressure, relative to one and to the kinetic energy: smaller values are lost in rounding. */
static const double PRESSURE_MIN = 1e-10;
/* Fraction of a cell that the fastest wave may cross in one sweep. */
static const double COURANT = 0.4;

static double minmod(double a, double b) {
    if (a * b <= 0) return 0;
    return fabs(a) < fabs(b) ? a : b;
}

/* Fractions of a row's fastest wave below which sound waves, and the other waves, count as faster than they are. */
static const double ROUNDED_SOUND = 0.3, ROUNDED = 0.0625;

/* |x|, rounded near zero, where expansion shocks would form. */
static double viscosity(double x, double width) {
    x = fabs(x);
    return x < 2 * width ? x * x / (4 * width) + width : x;
}

/* The speed below which the k-th kind of wave is rounded, in cells per step. */
static double rounding(int k, double courant) { return courant * (k == 0 || k == 4 ? ROUNDED_SOUND : ROUNDED); }

/* A jump between two cells, decomposed into waves: their strengths, speeds and shapes, by Roe's means. */
typedef struct jump {
    double strength[FIELDS], speed[FIELDS], shape[FIELDS][FIELDS];
} jump;

static double pressure_of(const double *cell, double gamma) {
    double squares = cell[1] * cell[1] + cell[2] * cell[2] + cell[3] * cell[3];
    return (gamma - 1) * (cell[4] - squares / (2 * cell[0]));
}

static void take_apart(const double *left, const double *right, double gamma, jump *waves) {
    double l = sqrt(left[0]), r = sqrt(right[0]), v[3], d[FIELDS], q2 = 0;
    for (int axis = 0; axis < 3; axis++) {
        v[axis] = (left[axis + 1] / l + right[axis + 1] / r) / (l + r);
        q2 += v[axis] * v[axis];
    }
    double enthalpy = ((left[4] + pressure_of(left, gamma)) / l + (right[4] + pressure_of(right, gamma)) / r) / (l + r);
    double a = sqrt(fmax((gamma - 1) * (enthalpy - q2 / 2), 1e-30)), u = v[0];
    double b1 = (gamma - 1) / (a * a), b2 = b1 * q2 / 2;
    for (int f = 0; f < FIELDS; f++) d[f] = right[f] - left[f];
    double across = b1 * (d[4] - v[1] * d[2] - v[2] * d[3]);
    waves->strength[0] = 0.5 * ((b2 + u / a) * d[0] - (b1 * u + 1 / a) * d[1] + across);
    waves->strength[1] = (1 - b2) * d[0] + b1 * u * d[1] - across;
    waves->strength[2] = d[2] - v[1] * d[0];
    waves->strength[3] = d[3] - v[2] * d[0];
    waves->strength[4] = 0.5 * ((b2 - u / a) * d[0] - (b1 * u - 1 / a) * d[1] + across);
    const double speed[FIELDS] = {u - a, u, u, u, u + a};
    const double shape[FIELDS][FIELDS] = {{1, u - a, v[1], v[2], enthalpy - u * a},
                                          {1, u, v[1], v[2], q2 / 2},
                                          {0, 0, 1, 0, v[1]},
                                          {0, 0, 0, 1, v[2]},
                                          {1, u + a, v[1], v[2], enthalpy + u * a}};
    for (int k = 0; k < FIELDS; k++) {
        waves->speed[k] = speed[k];
        for (int f = 0; f < FIELDS; f++) waves->shape[k][f] = shape[k][f];
    }
}

static void flux_of(const double *cell, double gamma, double *flux) {
    double pressure = pressure_of(cell, gamma), u = cell[1] / cell[0];
    for (int f = 0; f < FIELDS; f++) flux[f] = u * cell[f];
    flux[1] += pressure;
    flux[4] += u * pressure;
}

/* Copies cell i of a row of fields, or of any other such array, to `cell`. */
static void gather(const double *row, int width, int i, double *cell) {
    for (int f = 0; f < FIELDS; f++) cell[f] = row[f * width + i];
}

/* The flux between cells i and i + 1; `limited` is by cell. */
static void flux_between(const double *row, int width, int i, double lambda, double gamma, double courant,
                         const double *limited, double *flux) {
    double left[FIELDS], right[FIELDS], other[FIELDS];
    jump waves;
    gather(row, width, i, left);
    gather(row, width, i + 1, right);
    take_apart(left, right, gamma, &waves);
    flux_of(left, gamma, flux);
    flux_of(right, gamma, other);
    for (int f = 0; f < FIELDS; f++) flux[f] = 0.5 * (flux[f] + other[f]);
    for (int k = 0; k < FIELDS; k++) {
        double rounded = rounding(k, courant), strength = waves.strength[k];
        double here = limited[k * width + i], next = limited[k * width + i + 1];
        double steeper = fabs(strength) > 1e-300 ? (next - here) / strength : 0;
        double passed = here + next - viscosity(lambda * waves.speed[k] + steeper, rounded) * strength;
        for (int f = 0; f < FIELDS; f++) flux[f] += waves.shape[k][f] * passed / (2 * lambda);
    }
}

/* The fastest wave along a row. */
static double fastest_of(const double *row, int width, double gamma) {
    double fastest = 0;
    for (int i = 0; i < width; i++) {
        double cell[FIELDS];
        gather(row, width, i, cell);
        double pressure = fmax(pressure_of(cell, gamma), 0);
        fastest = fmax(fastest, fabs(cell[1] / cell[0]) + sqrt(gamma * pressure / cell[0]));
    }
    return fastest;
}

void hydropad_sweep(int m, double lambda, double gamma, double *row, double *work) {
    int width = m + 2 * HYDROPAD_GHOSTS;
    double courant = lambda * fastest_of(row, width, gamma);
    double *limited = work, *jumps = work + FIELDS * width, *fluxes = work + 2 * FIELDS * width;
    for (int i = 1; i <= m + 3; i++) {
        double left[FIELDS], right[FIELDS];
        jump waves;
        gather(row, width, i, left);
        gather(row, width, i + 1, right);
        take_apart(left, right, gamma, &waves);
        for (int k = 0; k < FIELDS; k++) {
            double nu = lambda * waves.speed[k];
            jumps[k * width + i] = 0.5 * (viscosity(nu, rounding(k, courant)) - nu * nu) * waves.strength[k];
        }
    }
    for (int k = 0; k < FIELDS; k++)
        for (int i = 2; i <= m + 3; i++)
            limited[k * width + i] = minmod(jumps[k * width + i], jumps[k * width + i - 1]);
    for (int i = 2; i <= m + 2; i++) flux_between(row, width, i, lambda, gamma, courant, limited, fluxes + FIELDS * i);
    for (int i = 3; i <= m + 2; i++)
        for (int f = 0; f < FIELDS; f++)
            row[f * width + i] -= lambda * (fluxes[FIELDS * i + f] - fluxes[FIELDS * (i - 1) + f]);
}

/* All rows along an axis, periodic; the momentum along it is the first one of a row. */
static void sweep_axis(int n, int axis, double lambda, double *state, double *row, double *work) {
    long cells = (long)n * n * n, strides[3] = {(long)n * n, n, 1}, stride = strides[axis];
    const int fields[FIELDS] = {0, 1 + axis, 1 + (axis + 1) % 3, 1 + (axis + 2) % 3, 4};
    int width = n + 2 * HYDROPAD_GHOSTS;
    for (long line = 0; line < (long)n * n; line++) {
        long first = line / stride * stride * n + line % stride;
        for (int f = 0; f < FIELDS; f++)
            for (int i = 0; i < width; i++)
                row[f * width + i] = state[fields[f] * cells + first + (i + n - HYDROPAD_GHOSTS % n) % n * stride];
        hydropad_sweep(n, lambda, HYDROPAD_GAMMA, row, work);
        for (int f = 0; f < FIELDS; f++)
            for (int i = 0; i < n; i++)
                state[fields[f] * cells + first + i * stride] = row[f * width + i + HYDROPAD_GHOSTS];
    }
}

/* Changes momenta and kinetic energies; the inner energy stays the same. */
static void add_gravity(int n, double step, const double *gradient, double *state) {
    long cells = (long)n * n * n;
    for (long cell = 0; cell < cells; cell++) {
        double rho = state[cell], before = 0, after = 0;
        for (int axis = 0; axis < 3; axis++) {
            double *momentum = &state[(axis + 1) * cells + cell];
            before += *momentum * *momentum;
            *momentum -= step * rho * gradient[axis * cells + cell];
            after += *momentum * *momentum;
        }
        state[4 * cells + cell] += (after - before) / (2 * rho);
    }
}

/* Raises temperatures below the minimum. Returns the fastest wave. */
static double warm_up(int n, double *state) {
    long cells = (long)n * n * n;
    double fastest = 0;
    for (long cell = 0; cell < cells; cell++) {
        double all[FIELDS], largest = 0, squares = 0;
        for (int f = 0; f < FIELDS; f++) all[f] = state[f * cells + cell];
        for (int axis = 0; axis < 3; axis++) {
            squares += all[axis + 1] * all[axis + 1];
            largest = fmax(largest, fabs(all[axis + 1]));
        }
        double kinetic = squares / (2 * all[0]), least = PRESSURE_MIN * (1 + kinetic);
        double pressure = (HYDROPAD_GAMMA - 1) * (all[4] - kinetic);
        if (pressure < least) {
            pressure = least;
            state[4 * cells + cell] = kinetic + pressure / (HYDROPAD_GAMMA - 1);
        }
        fastest = fmax(fastest, largest / all[0] + sqrt(HYDROPAD_GAMMA * pressure / all[0]));
    }
    return fastest;
}

/* Gravity is that of the middle of the step, extrapolated from the last two potentials. */
void hydropad_bary(int n, double step, int number, const double *phi, const double *phi_old, double *state,
                   double *rho_b) {
    long cells = (long)n * n * n, room = FIELDS * (n + 2L * HYDROPAD_GHOSTS) + HYDROPAD_SWEEP_WORK((long)n);
    double *mean = malloc((size_t)(4 * cells + room) * sizeof *mean), *gradient = mean + cells, *row = mean + 4 * cells;
    if (mean == NULL) abort();
    for (long cell = 0; cell < cells; cell++) mean[cell] = 1.5 * phi[cell] - 0.5 * phi_old[cell];
    hydropad_gradient(n, mean, gradient);
    add_gravity(n, step / 2, gradient, state);
    int parts = (int)ceil(step * n * warm_up(n, state) / COURANT);
    if (parts < 1) parts = 1;
    for (int part = 0; part < parts; part++)
        for (int turn = 0; turn < 3; turn++) {
            int axis = (number + part) % 2 == 1 ? turn : 2 - turn;
            sweep_axis(n, axis, step / parts * n, state, row, row + FIELDS * (n + 2L * HYDROPAD_GHOSTS));
            warm_up(n, state);
        }
    add_gravity(n, step / 2, gradient, state);
    for (long cell = 0; cell < cells; cell++) rho_b[cell] = state[cell];
    free(mean);
}
