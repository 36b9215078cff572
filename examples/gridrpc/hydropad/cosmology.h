/* Shared by the programs: the universe's arrays at the client, its expansion, its first waves. No remote call. */
#ifndef HYDROPAD_COSMOLOGY_H
#define HYDROPAD_COSMOLOGY_H

/* Densities today, relative to the critical density: all matter, the cosmological constant; and the part of matter that is gas. */
typedef struct cosmology {
    double matter, lambda, gas;
} cosmology;

cosmology einstein_de_sitter(double gas);
cosmology concordance(void);

/* A run: its sizes and arrays, as passed to the calls. */
typedef struct universe {
    int n, m, steps;       /* cells and particles along an edge */
    long cells, particles;
    double mass;           /* of a particle, in mean densities times cells */
    cosmology cosmology;
    double from, to;       /* expansion factors; steps are alike in them */
    double *phi[2];        /* the potential: step k makes phi[k % 2] */
    double *rho_dm, *rho_b, *x, *u, *state;
} universe;

universe new_universe(int n, int m, cosmology kind, double from, double to, int steps);
void free_universe(universe *u);

/* The scalars of grav and initvel at the beginning. */
typedef struct start {
    double strength, displacement, velocity, pressure;
} start;
start start_of(const universe *u);

/* The scalars of step k, from 1: its end, its time, how long particles are kicked by the last potential and drift, and
 * the strength of gravity at its end. */
typedef struct moment {
    double a, step, kick, drift, strength;
} moment;
moment moment_of(const universe *u, int k);

/* The densities of the first waves: a sum of random waves, by a spectrum of cold dark matter. */
void first_waves(universe *u, unsigned long seed);

/* The random number in [0, 1) at that position of that sequence; the same on every machine. */
double random_unit(unsigned long sequence, unsigned long place);

/* A checksum of all bits of particles, gas and potential: two runs with the same physics have the same. */
unsigned long long checksum(const universe *u);

#endif
