/* Pi by Monte Carlo: many asynchronous calls through one handle.
 *
 *   pi CONFIGURATION [CALLS [TRIALS]] */
#include "example.h"

int main(int argc, char **argv) {
    int calls = argc > 2 ? atoi(argv[2]) : 16;
    long trials = argc > 3 ? atol(argv[3]) : 1000000, all = 0;
    long *hits = calloc((size_t)calls, sizeof *hits);
    grpc_function_handle_t handle;
    if (hits == NULL || calls <= 0 || trials <= 0) return 2;
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&handle, "examples/pi_trial"));
    for (int i = 0; i < calls; i++) {
        grpc_sessionid_t id;
        MUST(grpc_call_async(&handle, &id, i, trials, &hits[i]));
    }
    MUST(grpc_wait_all());
    for (int i = 0; i < calls; i++) all += hits[i];
    printf("pi is about %.4f after %ld points\n", 4.0 * (double)all / ((double)calls * (double)trials), calls * trials);
    MUST(grpc_function_handle_destruct(&handle));
    MUST(grpc_finalize());
    free(hits);
    return 0;
}
