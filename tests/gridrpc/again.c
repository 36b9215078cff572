/* A block of consecutive steps during which the server becomes slow. Prints how many steps ran on each server, and
 * the report.
 *
 *   again CONFIGURATION HEURISTIC */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>
#include <string.h>

enum { N = 100000, STEPS = 40, SERVERS = 4 };

int main(int argc, char **argv) {
    static double x[N], y[N];
    int on[SERVERS + 1] = {0};
    grpc_function_handle_t axpy;
    if (argc < 3) return 2;
    for (int i = 0; i < N; i++) x[i] = 1;
    MUST(grpc_initialize(argv[1]));
    MUST(grpc_function_handle_default(&axpy, "gridrpc/axpy"));
    grpc_map(argv[2]) {
        for (int step = 0; step < STEPS; step++) {
            grpc_sessionid_t id;
            grpc_session_details_np info;
            MUST(grpc_call_async(&axpy, &id, N, 1.0, x, y));
            MUST(grpc_wait(id));
            grpc_local() {
                MUST(grpc_session_details_get_np(id, &info));
                on[info.server[strlen(info.server) - 1] - '0']++;
            }
        }
    }
    MUST(grpc_map_error_np());
    for (int i = 0; i < N; i++)
        if (y[i] != STEPS) return printf("y[%d] is %g\n", i, y[i]), 1;
    for (int server = 1; server <= SERVERS; server++) printf("server-%d: %d\n", server, on[server]);
    MUST(grpc_map_report_np("again.txt"));
    return grpc_finalize();
}
