/* Fourier transforms of any length, fast if it has small factors; unnormalised. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

/* One transform of `count` numbers, `stride` apart, to `out`; `roots` has the powers of the root of order `order`. */
static void transform(const double complex *in, double complex *out, int count, int stride, const double complex *roots,
                      int order) {
    int factor = 2;
    if (count == 1) {
        out[0] = in[0];
        return;
    }
    while (count % factor != 0) factor++;
    int part = count / factor, step = order / count;
    for (int f = 0; f < factor; f++) transform(in + f * stride, out + f * part, part, stride * factor, roots, order);
    for (int k = 0; k < part; k++) {
        double complex terms[factor];
        for (int f = 0; f < factor; f++) terms[f] = out[f * part + k] * roots[(long)f * k * step % order];
        for (int j = 0; j < factor; j++) {
            double complex sum = terms[0];
            for (int f = 1; f < factor; f++) sum += terms[f] * roots[(long)f * j * part * step % order];
            out[j * part + k] = sum;
        }
    }
}

/* Along one axis: n^2 rows of n numbers that are `stride` apart. */
static void along(double complex *data, int n, long stride, const double complex *roots, double complex *row,
                  double complex *out) {
    for (long line = 0; line < (long)n * n; line++) {
        long first = line / stride * stride * n + line % stride;
        for (int i = 0; i < n; i++) row[i] = data[first + i * stride];
        transform(row, out, n, 1, roots, n);
        for (int i = 0; i < n; i++) data[first + i * stride] = out[i];
    }
}

/* A cube, in place; the sign is that of the exponent. */
void hydropad_fft(double complex *data, int n, int sign) {
    double complex *roots = malloc(3 * (size_t)n * sizeof *roots), *row = roots + n, *out = row + n;
    if (roots == NULL) abort();
    for (int k = 0; k < n; k++) {
        double angle = sign * 8 * atan(1) * k / n;
        roots[k] = cos(angle) + I * sin(angle);
    }
    along(data, n, 1, roots, row, out);
    along(data, n, n, roots, row, out);
    along(data, n, (long)n * n, roots, row, out);
    free(roots);
}
