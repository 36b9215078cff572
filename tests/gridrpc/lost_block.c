/* A block whose server is lost while it runs, with a result that only this server had. Prints which server, waits for
 * a line, and continues.
 *
 *   lost_block CONFIGURATION */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>

enum { N = 100000 };

int main(int argc, char **argv) {
    static double x[N], y[N];
    grpc_function_handle_t axpy;
    for (int i = 0; i < N; i++) x[i] = y[i] = i;
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&axpy, "gridrpc/axpy"));
    grpc_map("auto") {
        grpc_sessionid_t first;
        grpc_session_details_np info;
        MUST(grpc_call_async(&axpy, &first, N, 1.0, x, y));
        MUST(grpc_wait(first));
        grpc_local() {
            MUST(grpc_session_details_get_np(first, &info));
            printf("%s\n", info.server);
            fflush(stdout);
            if (getchar() == EOF) return 2;
        }
        MUST(grpc_call(&axpy, N, 1.0, x, y));
    }
    MUST(grpc_map_error_np());
    for (int i = 0; i < N; i++)
        if (y[i] != 3.0 * i) return printf("y[%d] is %g\n", i, y[i]), 1;
    MUST(grpc_map_report_np("lost_block.txt"));
    return grpc_finalize();
}
