/* Strings and files. argv: a configuration of DIET, two files. */
#include <stdio.h>

#include "DIET_client.h"

int main(int argc, char *argv[]) {
    char *echo = NULL, *path = NULL;
    int *size1 = NULL, *size2 = NULL;
    size_t size = 0;
    if (argc != 4 || diet_initialize(argv[1], argc, argv)) return 1;
    diet_profile_t *profile = diet_profile_alloc("echo", 0, 0, 1);
    diet_paramstring_set(diet_parameter(profile, 0), "world", DIET_VOLATILE);
    diet_string_set(diet_parameter(profile, 1), NULL, DIET_VOLATILE);
    if (!diet_call(profile)) {
        diet_string_get(diet_parameter(profile, 1), &echo, DIET_VOLATILE);
        printf("Answer : %s\n", echo);
    }
    diet_profile_free(profile);
    free(echo);

    profile = diet_profile_alloc("join", 1, 1, 4);
    diet_file_set(diet_parameter(profile, 0), argv[2], DIET_PERSISTENT);
    diet_file_set(diet_parameter(profile, 1), argv[3], DIET_VOLATILE);
    diet_scalar_set(diet_parameter(profile, 2), NULL, DIET_VOLATILE, DIET_INT);
    diet_scalar_set(diet_parameter(profile, 3), NULL, DIET_VOLATILE, DIET_INT);
    diet_file_set(diet_parameter(profile, 4), NULL, DIET_VOLATILE);
    if (!diet_call(profile)) {
        diet_scalar_get(diet_parameter(profile, 2), &size1, NULL);
        diet_scalar_get(diet_parameter(profile, 3), &size2, NULL);
        diet_file_get(diet_parameter(profile, 4), &path, NULL, &size);
        printf("sizes %d and %d, together %d\n", *size1, *size2, (int)size);
        remove(path);
    }
    diet_profile_free(profile);
    free(path);
    free(size1);
    free(size2);
    return diet_finalize();
}
