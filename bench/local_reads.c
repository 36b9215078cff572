/* The price of a result that the program reads in grpc_local: not at all, declared with grpc_local_reads, or not declared.
 *
 * Each block makes a vector and computes for some time before it reads the middle of it. Prints, for each size and way, the median
 * and the extremes of the blocks' times. */
#include <grpc.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 21, WAYS = 4 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int ascends(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs a block, and returns its time in seconds. */
static double block(grpc_function_handle_t *axpy, int way, int n, double *x, double *y) {
    double seen = 0, began = now();
    y[n / 2] = 10;
    grpc_map("auto") {
        grpc_call(axpy, n, 1.0, x, y);
        if (way == 0) grpc_local() seen = 11;
        if (way == 1) grpc_local(grpc_local_reads(y)) seen = y[n / 2];
        if (way == 2) grpc_local() seen = y[n / 2];
        if (way == 3) {
            grpc_fetch(y);
            grpc_local() seen = y[n / 2];
        }
    }
    double took = now() - began;
    if (grpc_map_error_np() != GRPC_NO_ERROR || fabs(seen - 11) > 1e-9) {
        fprintf(stderr, "a block saw %g: %s\n", seen, grpc_last_error_text_np());
        exit(1);
    }
    return took;
}

int main(int argc, char **argv) {
    static const char *const names[WAYS] = {"not read", "declared", "undeclared", "fetched"};
    grpc_function_handle_t axpy;
    if (argc != 2 || grpc_initialize(argv[1]) != GRPC_NO_ERROR || grpc_function_handle_default(&axpy, "local/axpy") != GRPC_NO_ERROR) {
        fprintf(stderr, "local_reads CONFIG: %s\n", grpc_last_error_text_np());
        return 1;
    }
    printf("%12s %12s %12s %20s\n", "bytes", "way", "median ms", "min to max ms");
    for (int n = 1 << 10; n <= 1 << 22; n *= 16) {
        double *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y), took[WAYS][ROUNDS];
        if (x == NULL || y == NULL) return 1;
        for (int i = 0; i < n; i++) x[i] = 1, y[i] = 10;
        /* In turns: all ways meet the same noise. */
        for (int round = -2; round < ROUNDS; round++)
            for (int way = 0; way < WAYS; way++) {
                double seconds = block(&axpy, way, n, x, y);
                if (round >= 0) took[way][round] = seconds;
            }
        for (int way = 0; way < WAYS; way++) {
            qsort(took[way], ROUNDS, sizeof(double), ascends);
            printf("%12zu %12s %12.3f %9.3f to %7.3f\n", (size_t)n * sizeof *x, names[way], 1e3 * took[way][ROUNDS / 2],
                   1e3 * took[way][0], 1e3 * took[way][ROUNDS - 1]);
        }
        free(x);
        free(y);
    }
    return grpc_finalize() == GRPC_NO_ERROR ? 0 : 1;
}
