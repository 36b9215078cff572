/* Handles for remote data, as in the component for NetSolve: a factored system stays on the server that made it.
 *
 *   remote CONFIGURATION */
#include "example.h"

enum { N = 100 };

int main(int argc, char **argv) {
    static double a[N][N], b[N];
    double mean = 0, deviation = 0;
    int info = -1;
    grpc_remote_t x;
    for (int i = 0; i < N; i++) {
        a[i][i] = 2;
        b[i] = i;
    }
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_remote_new_np(&x, "x"));
    MUST(grpc_remote_put_np(x, b, sizeof b));
    /* The solution takes the place of the right-hand side; pivots are not wanted here. */
    MUST(mynetsl("dgesv()", N, 1, a, (int *)NULL, x, &info));
    MUST(mynetsl("mean()", N, x, &mean, &deviation));
    printf("info %d, mean %g\n", info, mean);
    MUST(grpc_remote_free_np(x));
    MUST(grpc_finalize());
    return 0;
}
