/* Scalars: results that DIET allocates, and results in the program's memory. */
#include <stdio.h>

#include "DIET_client.h"

int main(int argc, char *argv[]) {
    double a = 1.5, b = 2.25, own = 0, *sum = NULL;
    if (argc < 2 || diet_initialize(argv[1], argc, argv)) {
        fprintf(stderr, "DIET initialization failed\n");
        return 1;
    }
    diet_profile_t *profile = diet_profile_alloc("add", 1, 1, 2);
    diet_scalar_set(diet_parameter(profile, 0), &a, DIET_VOLATILE, DIET_DOUBLE);
    diet_scalar_set(diet_parameter(profile, 1), &b, DIET_VOLATILE, DIET_DOUBLE);
    diet_scalar_set(diet_parameter(profile, 2), NULL, DIET_VOLATILE, DIET_DOUBLE);
    if (!diet_call(profile)) {
        diet_scalar_get(diet_parameter(profile, 2), &sum, NULL);
        printf("%g\n", *sum);
    }
    diet_scalar_set(diet_parameter(profile, 2), &own, DIET_VOLATILE, DIET_DOUBLE);
    b = -0.5;
    if (!diet_call(profile)) printf("%g\n", own);
    diet_profile_free(profile);
    free(sum);
    return diet_finalize();
}
