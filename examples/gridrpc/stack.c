/* A program that learns at run time which function to call: it pushes arguments from the command line on a stack.
 *
 *   stack CONFIGURATION NUMBER... */
#include "example.h"

int main(int argc, char **argv) {
    int n = argc > 2 ? argc - 2 : 0;
    double *x = malloc(((size_t)n + 1) * sizeof *x), mean = 0, deviation = 0;
    grpc_function_handle_t handle;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(4);
    if (x == NULL || stack == NULL) return 2;
    for (int i = 0; i < n; i++) x[i] = atof(argv[i + 2]);
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&handle, "examples/mean"));
    /* Scalars are passed by pointer too. */
    grpc_arg_stack_push_arg(stack, &n);
    grpc_arg_stack_push_arg(stack, x);
    grpc_arg_stack_push_arg(stack, &mean);
    grpc_arg_stack_push_arg(stack, &deviation);
    grpc_sessionid_t id = grpc_call_arg_stack_async(&handle, stack);
    if (id == GRPC_SESSIONID_VOID) return grpc_perror_np("mean"), 1;
    MUST(grpc_wait(id));
    printf("mean %g, deviation %g of %d numbers\n", mean, deviation, n);
    grpc_arg_stack_destruct(stack);
    MUST(grpc_function_handle_destruct(&handle));
    MUST(grpc_finalize());
    free(x);
    return 0;
}
