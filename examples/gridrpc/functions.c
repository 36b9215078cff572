/* The functions of functions.idl and language.idl: cc -O2 -shared -fPIC -o libexamples.so functions.c -lm */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The random number at that position of a sequence (splitmix64): the same on every machine, in any order of calls. */
static uint64_t random_at(uint64_t place) {
    uint64_t z = (place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double unit(uint64_t number) { return (double)(number >> 11) * 0x1p-53; }

long pi_trial(int seed, long trials) {
    long hits = 0;
    uint64_t first = (uint64_t)seed << 40;
    for (long i = 0; i < trials; i++) {
        double x = unit(random_at(first + 2 * (uint64_t)i)), y = unit(random_at(first + 2 * (uint64_t)i + 1));
        hits += x * x + y * y < 1;
    }
    return hits;
}

/* Exchanges two rows, and the elements of each right-hand side that belong to them. */
static void exchange(int n, int nrhs, double *a, double *b, int one, int other) {
    for (int j = 0; j < n; j++) {
        double kept = a[one * n + j];
        a[one * n + j] = a[other * n + j];
        a[other * n + j] = kept;
    }
    for (int r = 0; r < nrhs; r++) {
        double kept = b[r * n + one];
        b[r * n + one] = b[r * n + other];
        b[r * n + other] = kept;
    }
}

/* Returns 0, or the number of the first zero pivot, counted from 1. */
int solve(int n, int nrhs, double *a, int *pivots, double *b) {
    for (int k = 0; k < n; k++) {
        int largest = k;
        for (int i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[largest * n + k])) largest = i;
        pivots[k] = largest + 1;
        if (a[largest * n + k] == 0) return k + 1;
        if (largest != k) exchange(n, nrhs, a, b, k, largest);
        for (int i = k + 1; i < n; i++) {
            double factor = a[i * n + k] /= a[k * n + k];
            for (int j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
            for (int r = 0; r < nrhs; r++) b[r * n + i] -= factor * b[r * n + k];
        }
    }
    for (int r = 0; r < nrhs; r++)
        for (int i = n - 1; i >= 0; i--) {
            for (int j = i + 1; j < n; j++) b[r * n + i] -= a[i * n + j] * b[r * n + j];
            b[r * n + i] /= a[i * n + i];
        }
    return 0;
}

void mean_of(int n, const double *x, double *mean, double *deviation) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    *mean = n > 0 ? sum / n : 0;
    for (int i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

/* A search that never ends, for programs that cancel it. */
void search_for_ever(int seed, double *found) {
    *found = seed;
    for (;;) pause();
}

void integrate(int steps, double from, double to, double *integral, void (*progress)(int *, double *)) {
    double width = (to - from) / steps, sum = 0;
    for (int i = 0, told = 0; i < steps; i++) {
        double x = from + (i + 0.5) * width;
        sum += 4 / (1 + x * x) * width;
        int percent = (int)(100L * (i + 1) / steps);
        if (percent / 10 > told) {
            told = percent / 10;
            progress(&percent, &sum);
        }
    }
    *integral = sum;
}

/* Returns the number of lines, or -1 if a file cannot be read or written. */
int grep_lines(const char *pattern, const char *text, const char *hits) {
    char line[4096];
    int count = 0;
    FILE *in = fopen(text, "r"), *out = fopen(hits, "w");
    if (in == NULL || out == NULL) count = -1;
    while (count >= 0 && fgets(line, sizeof line, in) != NULL)
        if (strstr(line, pattern) != NULL) {
            fputs(line, out);
            count++;
        }
    if (in != NULL) fclose(in);
    if (out != NULL) fclose(out);
    return count;
}
