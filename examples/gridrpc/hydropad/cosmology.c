/* See cosmology.h. */
#include "cosmology.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WAVES = 48, INTERVALS = 64 };

cosmology einstein_de_sitter(double gas) { return (cosmology){1, 0, gas}; }
cosmology concordance(void) { return (cosmology){0.3, 0.7, 0.15}; }

/* The rate of expansion, relative to today's. */
static double rate(const cosmology *c, double a) {
    return sqrt(c->matter / (a * a * a) + c->lambda + (1 - c->matter - c->lambda) / (a * a));
}

/* Supercomoving time from one expansion factor to another (Simpson's rule). */
static double time_between(const cosmology *c, double from, double to) {
    double sum = 0, width = (to - from) / INTERVALS;
    for (int i = 0; i <= INTERVALS; i++) {
        double a = from + i * width;
        sum += (i == 0 || i == INTERVALS ? 1 : i % 2 ? 4 : 2) / (a * a * a * rate(c, a));
    }
    return sum * width / 3;
}

static double *zeros(long count) {
    double *made = calloc((size_t)count, sizeof *made);
    if (made == NULL) abort();
    return made;
}

universe new_universe(int n, int m, cosmology kind, double from, double to, int steps) {
    universe u = {n, m, steps, (long)n * n * n, (long)m * m * m, 0, kind, from, to, {NULL, NULL}, NULL, NULL, NULL,
                  NULL, NULL};
    u.mass = (1 - kind.gas) * (double)u.cells / (double)u.particles;
    u.phi[0] = zeros(u.cells);
    u.phi[1] = zeros(u.cells);
    u.rho_dm = zeros(u.cells);
    u.rho_b = zeros(u.cells);
    u.state = zeros(5 * u.cells);
    u.x = zeros(3 * u.particles);
    u.u = zeros(3 * u.particles);
    return u;
}

void free_universe(universe *u) {
    free(u->phi[0]), free(u->phi[1]), free(u->rho_dm), free(u->rho_b), free(u->state), free(u->x), free(u->u);
}

start start_of(const universe *u) {
    const cosmology *c = &u->cosmology;
    double a = u->from, h = rate(c, a), growth = pow(c->matter / (a * a * a * h * h), 0.55);
    double strength = 1.5 * c->matter * a;
    return (start){strength, -1 / strength, -a * a * h * growth / strength, 1e-5};
}

static double factor_at(const universe *u, double k) { return u->from + (u->to - u->from) * k / u->steps; }

moment moment_of(const universe *u, int k) {
    const cosmology *c = &u->cosmology;
    double last = factor_at(u, k - 1), now = factor_at(u, k), step = time_between(c, last, now);
    /* The first kick is half a step: it brings velocities half a step ahead. */
    double before = k == 1 ? last : factor_at(u, k - 1.5);
    return (moment){now, step, time_between(c, before, factor_at(u, k - 0.5)), step, 1.5 * c->matter * now};
}

double random_unit(unsigned long sequence, unsigned long place) {
    uint64_t z = (((uint64_t)sequence << 40) + place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* The transfer function for wave number k in h/Mpc (Bardeen, Bond, Kaiser and Szalay). */
static double transfer(double k) {
    double q = k / 0.21, sum = 1 + 3.89 * q + pow(16.1 * q, 2) + pow(5.46 * q, 3) + pow(6.71 * q, 4);
    return log(1 + 2.34 * q) / (2.34 * q) * pow(sum, -0.25);
}

/* A wave of random direction, length and phase, by the spectrum for its length. */
static void add_wave(const universe *u, unsigned long seed, unsigned long wave, double *delta) {
    const double turn = 8 * atan(1), box = 64;
    int number[3], sum = 0;
    for (unsigned long axis = 0; axis < 3; axis++) {
        number[axis] = (int)floor(7 * random_unit(seed, 4 * wave + axis)) - 3;
        sum += number[axis] * number[axis];
    }
    if (sum == 0) return;
    double k = turn * sqrt(sum) / box, phase = turn * random_unit(seed, 4 * wave + 3);
    for (long cell = 0; cell < u->cells; cell++) {
        const long place[3] = {cell / ((long)u->n * u->n), cell / u->n % u->n, cell % u->n};
        double turns = 0;
        for (int axis = 0; axis < 3; axis++) turns += ((double)place[axis] + 0.5) / u->n * number[axis];
        delta[cell] += sqrt(k) * transfer(k) * cos(turn * turns + phase);
    }
}

void first_waves(universe *u, unsigned long seed) {
    const double rms = 0.05;
    double *delta = zeros(u->cells), squares = 0;
    for (unsigned long wave = 0; wave < WAVES; wave++) add_wave(u, seed, wave, delta);
    for (long cell = 0; cell < u->cells; cell++) squares += delta[cell] * delta[cell];
    for (long cell = 0; cell < u->cells; cell++) {
        double scaled = 1 + rms * delta[cell] / sqrt(squares / (double)u->cells);
        u->rho_dm[cell] = (1 - u->cosmology.gas) * scaled;
        u->rho_b[cell] = u->cosmology.gas * scaled;
    }
    free(delta);
}

static unsigned long long summed(unsigned long long sum, const double *values, long count) {
    for (long i = 0; i < count; i++) {
        unsigned long long bits;
        memcpy(&bits, &values[i], sizeof bits);
        sum = (sum ^ bits) * 0x100000001b3u;
    }
    return sum;
}

unsigned long long checksum(const universe *u) {
    unsigned long long sum = 0xcbf29ce484222325u;
    sum = summed(sum, u->x, 3 * u->particles);
    sum = summed(sum, u->u, 3 * u->particles);
    sum = summed(sum, u->state, 5 * u->cells);
    return summed(sum, u->phi[u->steps % 2], u->cells);
}
