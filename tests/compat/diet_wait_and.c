/* diet_wait_and: of more calls than the library remembers errors of, those that have not failed have their results. */
#include <stdio.h>

#include "DIET_client.h"

#define CALLS 300

int main(int argc, char *argv[]) {
    static double factor[CALLS], matrix[CALLS][6];
    static diet_profile_t *profile[CALLS];
    static diet_reqID_t id[CALLS + 2];
    int places[2] = {1, 10}, right = 0;
    if (diet_initialize(argc > 1 ? argv[1] : NULL, argc, argv)) return 1;
    for (int i = 0; i < CALLS; i++) {
        factor[i] = i + 1;
        for (int j = 0; j < 6; j++) matrix[i][j] = j;
        profile[i] = diet_profile_alloc("smprod", 0, 1, 2);
        diet_scalar_set(diet_parameter(profile[i], 0), &factor[i], DIET_VOLATILE, DIET_DOUBLE);
        diet_matrix_set(diet_parameter(profile[i], 1), matrix[i], DIET_VOLATILE, DIET_DOUBLE, 3, 2, DIET_COL_MAJOR);
        diet_scalar_set(diet_parameter(profile[i], 2), NULL, DIET_VOLATILE, DIET_FLOAT);
        if (diet_call_async(profile[i], &id[i]) != 0) return 2;
    }
    diet_profile_t *wrong = diet_profile_alloc("chosen", 0, 0, 1);
    diet_vector_set(diet_parameter(wrong, 0), places, DIET_VOLATILE, DIET_INT, 2);
    diet_scalar_set(diet_parameter(wrong, 1), NULL, DIET_VOLATILE, DIET_INT);
    if (diet_call_async(wrong, &id[CALLS]) != 0) return 3;
    id[CALLS + 1] = id[0];
    printf("%s\n", diet_error_string(diet_wait_and(id, CALLS + 2)));
    for (int i = 0; i < CALLS; i++) {
        float *seconds = NULL;
        diet_scalar_get(diet_parameter(profile[i], 2), &seconds, NULL);
        right += matrix[i][1] == factor[i] && matrix[i][5] == 5 * factor[i] && *seconds == 0.25f;
        free(seconds);
        diet_profile_free(profile[i]);
    }
    diet_profile_free(wrong);
    printf("%d right\n%s\n", right, diet_error_string(diet_wait_and(id, 1)));
    return diet_finalize();
}
