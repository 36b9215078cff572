/* A server solves a system of linear equations, with arrays that are changed in place. The program checks the solution.
 *
 *   dgesv CONFIGURATION [N] */
#include "example.h"

#include <math.h>
#include <string.h>

/* The largest difference between `a` times `x` and `b`. */
static double residual(int n, const double *a, const double *x, const double *b) {
    double largest = 0;
    for (int i = 0; i < n; i++) {
        double sum = -b[i];
        for (int j = 0; j < n; j++) sum += a[i * n + j] * x[j];
        largest = fmax(largest, fabs(sum));
    }
    return largest;
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[2]) : 200, info = -1;
    size_t length = (size_t)n * sizeof(double), size = (size_t)n * length;
    double *a = malloc(size), *factors = malloc(size), *b = malloc(length), *x = malloc(length);
    int *pivots = malloc((size_t)n * sizeof *pivots);
    grpc_function_handle_t handle;
    if (n <= 0 || a == NULL || factors == NULL || b == NULL || x == NULL || pivots == NULL) return 2;
    for (int i = 0; i < n; i++) {
        b[i] = 1 + i % 7;
        for (int j = 0; j < n; j++) a[i * n + j] = 1.0 / (1 + (i * 7 + j * 3) % 11) + (i == (j + 1) % n ? n : 0);
    }
    memcpy(factors, a, size);
    memcpy(x, b, length);
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&handle, "examples/dgesv"));
    MUST(grpc_call(&handle, n, 1, factors, pivots, x, &info));
    printf("%d equations: info %d, the residual is %s\n", n, info,
           residual(n, a, x, b) < 1e-9 * n ? "small" : "too large");
    MUST(grpc_function_handle_destruct(&handle));
    MUST(grpc_finalize());
    free(a), free(factors), free(b), free(x), free(pivots);
    return 0;
}
