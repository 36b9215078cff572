/* Objects keep the pieces of a matrix on servers, and only vectors are sent: the power method for the largest eigenvalue.
 *
 *   objects CONFIGURATION */
#include "example.h"

#include <math.h>

enum { N = 400, PIECES = 4, ROWS = N / PIECES, STEPS = 200 };

static double a[N][N], x[N], y[N];

int main(int argc, char **argv) {
    grpc_object_handle_t_np pieces[PIECES];
    grpc_sessionid_t ids[PIECES];
    double largest = 0;
    int step = 0;
    long products = 0, all = 0;
    for (int i = 0; i < N; i++) {
        x[i] = 1;
        for (int j = 0; j < N; j++) a[i][j] = 1.0 / (1 + i + j);
    }
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_object_handle_array_default_np(pieces, PIECES, "examples/rows"));
    for (int p = 0; p < PIECES; p++) MUST(grpc_invoke_np(&pieces[p], "keep", ROWS, N, a[p * ROWS]));

    for (double before = -1; step < STEPS && fabs(largest - before) > 1e-12 * largest; step++) {
        double norm = 0;
        for (int p = 0; p < PIECES; p++)
            MUST(grpc_invoke_async_np(&pieces[p], "times", &ids[p], N, x, ROWS, y + p * ROWS));
        MUST(grpc_wait_and(ids, PIECES));
        for (int i = 0; i < N; i++) norm += y[i] * y[i];
        before = largest;
        largest = sqrt(norm);
        for (int i = 0; i < N; i++) x[i] = y[i] / largest;
    }
    for (int p = 0; p < PIECES; p++) {
        MUST(grpc_invoke_np(&pieces[p], "count", &products));
        all += products;
    }
    printf("the largest eigenvalue of the Hilbert matrix of %d is %.9f, after %d steps\n", N, largest, step);
    printf("%d objects made %ld products\n", PIECES, all);
    MUST(grpc_object_handle_array_destruct_np(pieces, PIECES));
    MUST(grpc_finalize());
    return 0;
}
