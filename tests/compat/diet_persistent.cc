// Data that stay on servers, and profiles that differ from the description. C++.
#include <cstdio>
#include <initializer_list>

#include "DIET_client.h"

static double matrix[] = {1, 2, 3, 4}, unit[] = {0, 1, 1, 0};

static diet_profile_t *product(const char *id) {
    diet_profile_t *profile = diet_profile_alloc("matprod", 1, 1, 2);
    diet_use_data(diet_parameter(profile, 0), id);
    diet_matrix_set(diet_parameter(profile, 1), unit, DIET_VOLATILE, DIET_DOUBLE, 2, 2, DIET_ROW_MAJOR);
    diet_matrix_set(diet_parameter(profile, 2), NULL, DIET_PERSISTENT_RETURN, DIET_DOUBLE, 2, 2, DIET_ROW_MAJOR);
    return profile;
}

int main(int argc, char *argv[]) {
    double factor = 10, *result = NULL;
    float *seconds = NULL;
    if (diet_initialize(argc > 1 ? argv[1] : NULL, argc, argv)) return 1;
    diet_profile_t *scaled = diet_profile_alloc("smprod", 0, 1, 2);
    diet_scalar_set(diet_parameter(scaled, 0), &factor, DIET_VOLATILE, DIET_DOUBLE);
    diet_matrix_set(diet_parameter(scaled, 1), matrix, DIET_PERSISTENT, DIET_DOUBLE, 2, 2, DIET_ROW_MAJOR);
    diet_scalar_set(diet_parameter(scaled, 2), NULL, DIET_VOLATILE, DIET_FLOAT);
    if (diet_call(scaled)) return 2;
    store_id(scaled->parameters[1].desc.id, "scaled");
    printf("at the client: %g\n", matrix[1]);
    diet_profile_t *second = product(scaled->parameters[1].desc.id);
    if (diet_call(second)) return 3;
    diet_matrix_get(diet_parameter(second, 2), &result, NULL, NULL, NULL, NULL);
    printf("%g %g %g %g\n", result[0], result[1], result[2], result[3]);
    free(result);
    for (diet_persistence_mode_t mode : {DIET_PERSISTENT, DIET_STICKY, DIET_STICKY_RETURN}) {
        double *value = NULL;
        diet_profile_t *left = product(scaled->parameters[1].desc.id);
        diet_matrix_set(diet_parameter(left, 2), NULL, mode, DIET_DOUBLE, 2, 2, DIET_ROW_MAJOR);
        if (diet_call(left)) return 4;
        diet_matrix_get(diet_parameter(left, 2), &value, NULL, NULL, NULL, NULL);
        diet_profile_t *back = product(left->parameters[2].desc.id);
        if (diet_call(back)) return 5;
        diet_matrix_get(diet_parameter(back, 2), &result, NULL, NULL, NULL, NULL);
        printf("%g at the client, then %g\n", value == NULL ? -1 : value[0], result[0]);
        free(value), free(result);
        diet_profile_free(left), diet_profile_free(back);
    }
    diet_free_persistent_data(scaled->parameters[1].desc.id);
    diet_profile_t *third = product(scaled->parameters[1].desc.id);
    printf("%s\n", diet_error_string(diet_call(third)));
    diet_matrix_set(diet_parameter(scaled, 1), matrix, DIET_VOLATILE, DIET_FLOAT, 2, 2, DIET_ROW_MAJOR);
    printf("%s\n", diet_error_string(diet_call(scaled)));
    diet_scalar_get(diet_parameter(scaled, 2), &seconds, NULL);
    diet_profile_t *few = diet_profile_alloc("smprod", 0, 0, 1);
    diet_scalar_set(diet_parameter(few, 0), &factor, DIET_VOLATILE, DIET_DOUBLE);
    diet_scalar_set(diet_parameter(few, 1), NULL, DIET_VOLATILE, DIET_FLOAT);
    printf("%s\n", diet_error_string(diet_call(few)));
    diet_matrix_set(diet_parameter(second, 0), matrix, DIET_VOLATILE, DIET_DOUBLE, 4, 1, DIET_ROW_MAJOR);
    printf("%s\n", diet_error_string(diet_call(second)));
    diet_profile_t *const all[] = {scaled, second, third, few};
    for (diet_profile_t *profile : all) diet_profile_free(profile);
    free(seconds);
    return diet_finalize();
}
