/* Asynchronous calls: results are in the program's memory after the wait, without a get. Errors have codes and names. */
#include <stdio.h>

#include "DIET_client.h"

#define CALLS 5

int main(int argc, char *argv[]) {
    double factor[CALLS], matrix[CALLS][6];
    float *seconds = NULL;
    diet_profile_t *profile[CALLS];
    diet_reqID_t id[CALLS] = {0}, first = 0;
    if (diet_initialize(argc > 1 ? argv[1] : NULL, argc, argv)) return 1;
    for (int i = 0; i < CALLS; i++) {
        factor[i] = i + 1;
        for (int j = 0; j < 6; j++) matrix[i][j] = j;
        profile[i] = diet_profile_alloc("smprod", 0, 1, 2);
        diet_scalar_set(diet_parameter(profile[i], 0), &factor[i], 0, DIET_DOUBLE);
        diet_matrix_set(diet_parameter(profile[i], 1), matrix[i], 0, DIET_DOUBLE, 3, 2, DIET_COL_MAJOR);
        diet_scalar_set(diet_parameter(profile[i], 2), NULL, 0, DIET_FLOAT);
        if (diet_call_async(profile[i], &id[i]) != 0) return 2;
    }
    if (diet_wait_or(id, CALLS, &first) != 0) return 3;
    for (int i = 0; i < CALLS; i++)
        if (id[i] == first) id[i] = id[CALLS - 1];
    if (diet_wait_and(id, CALLS - 1) != 0) return 4;
    for (int i = 0; i < CALLS; i++) {
        diet_scalar_get(diet_parameter(profile[i], 2), &seconds, NULL);
        printf("%g %g\n", matrix[i][1], matrix[i][5] + *seconds);
        free(seconds);
        diet_profile_free(profile[i]);
    }
    printf("%s\n", diet_error_string(diet_probe(id[0])));
    diet_profile_t *unknown = diet_profile_alloc("no_such_service", 0, 0, 0);
    diet_scalar_set(diet_parameter(unknown, 0), &factor[0], DIET_VOLATILE, DIET_DOUBLE);
    printf("%s\n", diet_error_string(diet_call(unknown)));
    diet_profile_free(unknown);
    return diet_finalize();
}
