/* Pi by Monte Carlo with several handles: a handle gets the next call when its last one is done.
 *
 *   workers CONFIGURATION */
#include "example.h"

enum { WORKERS = 4, CALLS = 20, TRIALS = 500000 };

/* The state of a worker. */
typedef struct worker {
    grpc_function_handle_t handle;
    grpc_sessionid_t id;
    long hits;
} worker;

static void begin(worker *one, int seed) {
    MUST(grpc_call_async(&one->handle, &one->id, seed, (long)TRIALS, &one->hits));
}

int main(int argc, char **argv) {
    worker workers[WORKERS];
    long all = 0;
    int begun = 0, done = 0;
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    for (int i = 0; i < WORKERS; i++) {
        MUST(grpc_function_handle_default(&workers[i].handle, "examples/pi_trial"));
        begin(&workers[i], begun++);
    }
    while (done < CALLS) {
        grpc_function_handle_t *handle;
        grpc_sessionid_t id;
        MUST(grpc_wait_any(&id));
        MUST(grpc_get_handle(&handle, id));
        /* The handle is the first field of its worker, so its address is the worker's. */
        worker *one = (worker *)handle;
        all += one->hits;
        done++;
        if (begun < CALLS) begin(one, begun++);
    }
    double pi = 4.0 * (double)all / ((double)CALLS * TRIALS);
    printf("pi is about %.4f after %d calls on %d workers\n", pi, CALLS, WORKERS);
    for (int i = 0; i < WORKERS; i++) MUST(grpc_function_handle_destruct(&workers[i].handle));
    MUST(grpc_finalize());
    return 0;
}
