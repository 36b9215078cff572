/* A remote datum whose server is lost before it is read.
 *
 *   lost CONFIGURATION
 *
 * Prints which server made it. Continues when it gets the next line of its input; "SECONDS" first lets this much time
 * pass, for a simulation. Then reads the datum twice: at the client, and by a call. */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>
#include <stdlib.h>

enum { N = 4000 };

static double x[N], y[N], z[N];

int main(int argc, char **argv) {
    grpc_function_handle_t axpy, pause;
    grpc_session_details_np info;
    grpc_sessionid_t id;
    grpc_remote_t a;
    char line[64];
    double sum = 0;
    for (int i = 0; i < N; i++) x[i] = y[i] = 1;
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&axpy, "gridrpc/axpy"));
    MUST(grpc_function_handle_default(&pause, "gridrpc/sleep"));
    MUST(grpc_remote_new_np(&a, "lost"));
    MUST(grpc_remote_put_np(a, y, sizeof y));
    MUST(grpc_call_async(&axpy, &id, N, 2.0, x, a));
    MUST(grpc_wait(id));
    MUST(grpc_session_details_get_np(id, &info));
    printf("made on %s\n", info.server);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return 2;
    if (atoi(line) > 0) MUST(grpc_call(&pause, atoi(line)));
    grpc_error_t error = grpc_remote_get_np(a, z, sizeof z);
    if (error == GRPC_NO_ERROR) error = mynetsl("sum", (long)N, a, &sum);
    if (error != GRPC_NO_ERROR) {
        grpc_perror_np("read");
        printf("%s\n", grpc_error_string(error));
    } else {
        printf("%g at the client, %g in all\n", z[N - 1], sum);
    }
    MUST(grpc_finalize());
    return 0;
}
