/* diet_wait_all waits for the calls that are outstanding, and for no other. */
#include <stdio.h>

#include "grpc.h"

static int with_another_call(int error);
/* A call that starts while diet_wait_all waits. */
#define grpc_wait(id) with_another_call(grpc_wait(id))
#define grpc_wait_all() with_another_call(grpc_wait_all())
#include "DIET_client.h"
#undef grpc_wait
#undef grpc_wait_all

#define CALLS 2

static double factors[] = {10, 100}, matrices[CALLS][4] = {{1, 2, 3, 4}, {1, 2, 3, 4}};
static float *seconds[CALLS];
static diet_profile_t *profiles[CALLS];
static diet_reqID_t ids[CALLS];

static void start(int call) {
    if (profiles[call] == NULL) {
        profiles[call] = diet_profile_alloc("smprod", 0, 1, 2);
        diet_scalar_set(diet_parameter(profiles[call], 0), &factors[call], DIET_VOLATILE, DIET_DOUBLE);
        diet_matrix_set(diet_parameter(profiles[call], 1), matrices[call], DIET_VOLATILE, DIET_DOUBLE, 2, 2, DIET_COL_MAJOR);
        diet_scalar_set(diet_parameter(profiles[call], 2), NULL, DIET_VOLATILE, DIET_FLOAT);
    }
    if (diet_call_async(profiles[call], &ids[call]) != 0) exit(2);
}
static int with_another_call(int error) {
    if (profiles[1] == NULL) start(1);
    return error;
}

int main(int argc, char *argv[]) {
    int error;
    if (diet_initialize(argc > 1 ? argv[1] : NULL, argc, argv)) return 1;
    start(0);
    error = diet_wait_all();
    printf("%d: %g, %g\n", error, matrices[0][1], matrices[1][1]);
    error = diet_wait(ids[1]);
    printf("%d: %g\n", error, matrices[1][1]);
    /* Cancelled, and used again. */
    start(0);
    diet_cancel(ids[0]);
    start(0);
    error = diet_wait_all();
    printf("%d: %g, %s\n", error, matrices[0][1], diet_error_string(diet_probe(ids[0])));
    for (int call = 0; call < CALLS; call++) {
        diet_scalar_get(diet_parameter(profiles[call], 2), &seconds[call], NULL);
        free(seconds[call]);
        diet_profile_free(profiles[call]);
    }
    return diet_finalize();
}
