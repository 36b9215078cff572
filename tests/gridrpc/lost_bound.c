/* A block with calls that are bound to a server, which is lost. Prints which server, waits for a line, and continues.
 *
 *   lost_bound SERVER */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>

enum { N = 100000 };

#define EXPECT(code, call)                                                                                             \
    do {                                                                                                               \
        grpc_error_t got_ = (call);                                                                                    \
        if (got_ != (code)) return printf("%s gave %s\n", #call, grpc_error_string(got_)), 1;                          \
    } while (0)

int main(int argc, char **argv) {
    static double x[N], y[N], z[N];
    double total = -1;
    grpc_function_handle_t bound, late, sum;
    grpc_error_t failed = GRPC_NO_ERROR, reader = GRPC_NO_ERROR, other = GRPC_NO_ERROR;
    for (int i = 0; i < N; i++) x[i] = y[i] = z[i] = i;
    MUST(grpc_initialize(NULL));
    MUST(grpc_function_handle_init(&bound, argc > 1 ? argv[1] : "server-1", "gridrpc/axpy"));
    MUST(grpc_function_handle_default(&late, "gridrpc/axpy"));
    MUST(grpc_function_handle_default(&sum, "gridrpc/sum"));
    grpc_map("auto") {
        MUST(grpc_call(&bound, N, 1.0, x, z));
        MUST(grpc_fetch(z));
        grpc_local() {
            printf("made\n");
            fflush(stdout);
            if (getchar() == EOF) return 2;
        }
        failed = grpc_call(&bound, N, 1.0, x, y);
        reader = grpc_call(&sum, (long)N, y, &total);
        other = grpc_call(&late, N, 1.0, x, z);
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, failed);
    if (reader == GRPC_NO_ERROR || total != -1) return printf("what it was to make was read\n"), 1;
    EXPECT(GRPC_NO_ERROR, other);
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    for (int i = 0; i < N; i++)
        if (z[i] != 3.0 * i) return printf("z[%d] is %g\n", i, z[i]), 1;
    /* A plain call does not use another server now either. */
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_call(&bound, N, 1.0, x, y));
    return grpc_finalize();
}
