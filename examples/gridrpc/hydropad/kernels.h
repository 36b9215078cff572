/* The kernels of Hydropad, in plain C: gravity, initial velocities, dark matter, baryons.
 *
 * Supercomoving variables: the box has length 1 and H0 is 1; d tau = dt / a^2, u = dx / d tau. Then the equations of
 * motion are Newton's, without a drag term, and those of gas with 5/3 as its ratio of specific heats are Euler's.
 * Meshes are [n][n][n], x outermost; cell i is centred at (i + 1/2) / n. Results do not depend on
 * the server or on how many kernels run at a time: sums are formed in one order. */
#ifndef HYDROPAD_KERNELS_H
#define HYDROPAD_KERNELS_H

#include <complex.h>

#define HYDROPAD_GAMMA (5.0 / 3.0)

/* The functions of the interface description. */
void hydropad_grav(int n, double strength, const double *rho_dm, const double *rho_b, double *phi);
void hydropad_initvel(int n, int m, double gas, double displacement, double velocity, double pressure,
                      const double *phi, double *x, double *u, double *state);
void hydropad_dark(int n, int m, double mass, double kick, double drift, const double *phi, double *x, double *u,
                   double *rho_dm);
void hydropad_bary(int n, double step, int number, const double *phi, const double *phi_old, double *state,
                   double *rho_b);

/* Their parts. */
void hydropad_fft(double complex *data, int n, int sign);
void hydropad_gradient(int n, const double *phi, double *gradient);
void hydropad_deposit(int n, long particles, double mass, const double *x, double *rho);
void hydropad_interpolate(int n, const double *mesh, const double *x, long particles, double *values);
/* Rows of m cells with HYDROPAD_GHOSTS more at both ends, of density, momenta (along, across, across) and energy.
 * `work` has HYDROPAD_SWEEP_WORK(m) doubles. */
enum { HYDROPAD_GHOSTS = 3 };
#define HYDROPAD_SWEEP_WORK(m) (25 * ((m) + 2 * HYDROPAD_GHOSTS))
void hydropad_sweep(int m, double lambda, double gamma, double *row, double *work);

#endif
