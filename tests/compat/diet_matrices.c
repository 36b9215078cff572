/* Matrices and vectors, in both orders; the sizes are those of the profile. */
#include <stdio.h>

#include "DIET_client.h"

static void product(diet_matrix_order_t order) {
    double a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 0, 1, 3}, *c = NULL;
    size_t rows = 0, columns = 0;
    diet_matrix_order_t got = DIET_MATRIX_ORDER_COUNT;
    diet_profile_t *profile = diet_profile_alloc("matprod", 1, 1, 2);
    diet_matrix_set(diet_parameter(profile, 0), a, DIET_VOLATILE, DIET_DOUBLE, 2, 3, order);
    diet_matrix_set(diet_parameter(profile, 1), b, DIET_VOLATILE, DIET_DOUBLE, 3, 2, order);
    diet_matrix_set(diet_parameter(profile, 2), NULL, DIET_VOLATILE, DIET_DOUBLE, 2, 2, order);
    if (!diet_call(profile)) {
        diet_matrix_get(diet_parameter(profile, 2), &c, NULL, &rows, &columns, &got);
        printf("%d x %d, %d: %g %g %g %g\n", (int)rows, (int)columns, got == order, c[0], c[1], c[2], c[3]);
    }
    diet_free_data(diet_parameter(profile, 2));
    free(c);
    diet_profile_free(profile);
}

int main(int argc, char *argv[]) {
    double factor = 3, matrix[] = {1, 2, 3, 4, 5, 6};
    float *seconds = NULL;
    int below = 20, *primes = NULL;
    size_t count = 0;
    if (diet_initialize(argc > 1 ? argv[1] : NULL, argc, argv)) return 1;
    diet_profile_t *profile = diet_profile_alloc("smprod", 0, 1, 2);
    diet_scalar_set(diet_parameter(profile, 0), &factor, DIET_VOLATILE, DIET_DOUBLE);
    diet_matrix_set(diet_parameter(profile, 1), matrix, DIET_VOLATILE, DIET_DOUBLE, 2, 3, DIET_COL_MAJOR);
    diet_scalar_set(diet_parameter(profile, 2), NULL, DIET_VOLATILE, DIET_FLOAT);
    if (!diet_call(profile)) {
        diet_scalar_get(diet_parameter(profile, 2), &seconds, DIET_VOLATILE);
        printf("%g %g %g in %g s\n", matrix[0], matrix[1], matrix[5], *seconds);
    }
    diet_profile_free(profile);
    product(DIET_ROW_MAJOR);
    product(DIET_COL_MAJOR);
    profile = diet_profile_alloc("primes", 0, 0, 1);
    diet_scalar_set(diet_parameter(profile, 0), &below, DIET_VOLATILE, DIET_INT);
    diet_vector_set(diet_parameter(profile, 1), NULL, DIET_VOLATILE, DIET_INT, 0);
    if (!diet_call(profile)) {
        diet_vector_get(diet_parameter(profile, 1), &primes, NULL, &count);
        printf("%d primes, the last is %d\n", (int)count, primes[count - 1]);
    }
    diet_profile_free(profile);
    free(primes);
    free(seconds);
    return diet_finalize();
}
