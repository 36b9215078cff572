/* The program cancels a call, and a time limit ends another.
 *
 *   cancel CONFIGURATION */
#include "example.h"

int main(int argc, char **argv) {
    grpc_function_handle_t search, trial;
    grpc_sessionid_t ids[2], id;
    double found;
    long hits = 0;
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&search, "examples/search"));
    MUST(grpc_function_handle_default(&trial, "examples/pi_trial"));

    /* Two attempts at one problem: the program takes the first result and cancels the other call. */
    MUST(grpc_call_async(&search, &ids[0], 1, &found));
    MUST(grpc_call_async(&trial, &ids[1], 1, 1000L, &hits));
    MUST(grpc_wait_or(ids, 2, &id));
    printf("%s was first\n", id == ids[0] ? "the search" : "the trial");
    MUST(grpc_cancel(id == ids[0] ? ids[1] : ids[0]));
    grpc_error_t waited = grpc_wait(ids[0]);
    printf("the search: %s, %s\n", grpc_error_string(waited), grpc_error_string(grpc_get_error(ids[0])));

    /* A time limit for all calls of this handle. */
    MUST(grpc_function_handle_set_timeout_np(&search, 0.5));
    printf("with a limit: %s\n", grpc_error_string(grpc_call(&search, 2, &found)));

    while (grpc_get_failed_sessionid(&id) == GRPC_NO_ERROR && id != GRPC_SESSIONID_VOID)
        printf("failed: the %s session\n", id == ids[0] ? "first" : "another");
    MUST(grpc_finalize());
    return 0;
}
