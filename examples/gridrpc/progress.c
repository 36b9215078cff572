/* A function that calls the program back while it runs.
 *
 *   progress CONFIGURATION */
#include "example.h"

/* Runs in a thread of the library, one call at a time. */
static void tell(int *percent, double *so_far) { printf("%d %%: %.6f\n", *percent, *so_far); }

int main(int argc, char **argv) {
    grpc_function_handle_t handle;
    double integral = 0;
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&handle, "examples/integrate"));
    MUST(grpc_call(&handle, 1000000, 0.0, 1.0, &integral, tell));
    printf("the integral is %.6f\n", integral);
    MUST(grpc_function_handle_destruct(&handle));
    MUST(grpc_finalize());
    return 0;
}
