/* The kernels of protein.idl, in plain C. Results depend on the arguments only: each random number is a function of the seed and of
 * where it is used, so they are the same however the calls are mapped.
 *
 * Energy: the AB model in three dimensions (F. H. Stillinger, T. Head-Gordon, C. L. Hirshfeld, Phys. Rev. E 48, 1469 (1993)),
 * E = sum (1 - cos theta) / 4 + sum 4 (r^-12 - C r^-6) over residues that are not neighbours, with C = (1 + a + b + 5 a b) / 8.
 * Annealing and crossover: T. Hiroyasu, M. Miki, M. Ogura, Y. Okamoto, parallel simulated annealing using genetic crossover. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Widths of proposals, radians: limits, and the factor by which one sweep with few or many accepted steps changes them. */
static const double WIDTH_MIN = 1e-3, WIDTH_MAX = 3.2, WIDTH_FACTOR = 1.25, ACCEPTED_MIN = 0.3, ACCEPTED_MAX = 0.6;

static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Returns the random number in [0, 1) at this place. */
static double random_unit(uint64_t seed, uint64_t round, uint64_t chain, uint64_t number) {
    return (double)(mixed(mixed(mixed(mixed(seed) + round) + chain) + number) >> 11) * 0x1p-53;
}

/* `at` has room for n positions. `angles` has the polar angle and the azimuth of each bond. */
static double energy(int n, const double *kinds, const double *angles, double (*at)[3]) {
    double bending = 0, pairs = 0, last[3] = {0};
    memset(at[0], 0, sizeof at[0]);
    for (int i = 0; i < n - 1; i++) {
        double polar = angles[2 * i], azimuth = angles[2 * i + 1];
        double bond[3] = {sin(polar) * cos(azimuth), sin(polar) * sin(azimuth), cos(polar)};
        if (i > 0) bending += 1 - (bond[0] * last[0] + bond[1] * last[1] + bond[2] * last[2]);
        for (int d = 0; d < 3; d++) at[i + 1][d] = at[i][d] + bond[d];
        memcpy(last, bond, sizeof last);
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 2; j < n; j++) {
            double x = at[i][0] - at[j][0], y = at[i][1] - at[j][1], z = at[i][2] - at[j][2];
            double inverse = 1 / (x * x + y * y + z * z), sixth = inverse * inverse * inverse;
            double attraction = (1 + kinds[i] + kinds[j] + 5 * kinds[i] * kinds[j]) / 8;
            pairs += 4 * sixth * (sixth - attraction);
        }
    /* Two residues at one place have no finite energy. */
    double sum = bending / 4 + pairs;
    return isfinite(sum) ? sum : HUGE_VAL;
}

void protein_anneal(int n, int chains, const double *kinds, int sweeps, double temperature, long seed, long round,
                    double *states, double *energies) {
    double (*at)[3] = malloc((size_t)n * sizeof *at);
    int variables = 2 * (n - 1);
    for (int chain = 0; chain < chains; chain++) {
        double *angles = states + (size_t)chain * (variables + 1), *width = angles + variables;
        double now = energy(n, kinds, angles, at);
        uint64_t number = 0;
        for (int sweep = 0; sweep < sweeps; sweep++) {
            int accepted = 0;
            for (int v = 0; v < variables; v++) {
                double before = angles[v], step = 2 * random_unit(seed, round, chain, number++) - 1;
                double luck = random_unit(seed, round, chain, number++);
                angles[v] += *width * step;
                double then = energy(n, kinds, angles, at);
                if (then <= now || luck < exp((now - then) / temperature)) {
                    now = then;
                    accepted++;
                } else {
                    angles[v] = before;
                }
            }
            double part = (double)accepted / variables;
            if (part < ACCEPTED_MIN) *width = fmax(*width / WIDTH_FACTOR, WIDTH_MIN);
            if (part > ACCEPTED_MAX) *width = fmin(*width * WIDTH_FACTOR, WIDTH_MAX);
        }
        energies[chain] = now;
    }
    free(at);
}

void protein_cross(int n, int chains, const double *kinds, long seed, long round, int half, const double *mothers,
                   const double *fathers, double *states) {
    double (*at)[3] = malloc((size_t)n * sizeof *at);
    int row = 2 * n - 1, variables = row - 1;
    double *children = malloc(2 * (size_t)row * sizeof *children);
    for (int chain = 0; chain < chains; chain++) {
        /* Another father in each round. */
        size_t father = (size_t)(((long)chain + round) % chains);
        const double *four[4] = {mothers + (size_t)chain * row, fathers + father * row, children, children + row};
        /* Both angles of a bond are of one parent. */
        int cut = 2 * (1 + (int)(random_unit(seed, round, chain, UINT64_MAX) * (n - 2)));
        for (int v = 0; v < row; v++) {
            children[v] = four[v < cut ? 0 : 1][v];
            children[row + v] = four[v < cut ? 1 : 0][v];
        }
        double of[4];
        for (int i = 0; i < 4; i++) of[i] = energy(n, kinds, four[i], at);
        int best = 0, second = -1;
        for (int i = 1; i < 4; i++)
            if (of[i] < of[best]) best = i;
        for (int i = 0; i < 4; i++)
            if (i != best && (second < 0 || of[i] < of[second])) second = i;
        memcpy(states + (size_t)chain * row, four[half == 0 ? best : second], (size_t)(variables + 1) * sizeof *states);
    }
    free(at);
    free(children);
}
