/* Objects of Ninf-G 2, argument stacks, files, and the Ninf functions beside those of GridRPC. argv: configuration, host, two files. */
#include <stdio.h>
#include <stdlib.h>

#include "grpc.h"

int main(int argc, char *argv[]) {
    grpc_object_handle_t_np counter;
    grpc_function_handle_t add, join;
    grpc_error_t result = grpc_initialize(argv[1]);
    double a = 1, b = 2, c = 0;
    long sum = 0;
    int id, sizes[2];
    if (argc != 5 || result != GRPC_OK) return 2;
    if (grpc_object_handle_init_np(&counter, argv[2], 0, "services/counter") != GRPC_OK) return 3;
    if (grpc_invoke_np(&counter, "add", 5, &sum) != GRPC_OK) return 4;
    if ((id = grpc_invoke_async_np(&counter, "add", 7, &sum)) == GRPC_ERROR || grpc_wait(id) != GRPC_OK) return 5;
    if (grpc_object_handle_destruct_np(&counter) != GRPC_OK) return 6;
    grpc_function_handle_default(&add, "services/add");
    grpc_arg_stack *stack = grpc_arg_stack_new(3);
    grpc_arg_stack_push_arg(stack, &a);
    grpc_arg_stack_push_arg(stack, &b);
    grpc_arg_stack_push_arg(stack, &c);
    if ((id = grpc_call_arg_stack_async(&add, stack)) == GRPC_ERROR || grpc_wait_and(&id, 1) != GRPC_OK) return 7;
    grpc_arg_stack_destruct(stack);
    grpc_function_handle_default(&join, "services/join");
    if (grpc_call(&join, argv[3], argv[4], &sizes[0], &sizes[1], "both.txt") == GRPC_ERROR) {
        grpc_perror("join");
        exit(8);
    }
    if (Ninf_call("add", c, 1.0, &b) != NINF_OK) return 9;
    printf("%ld, %g, %d and %d, %g\n", sum, c, sizes[0], sizes[1], b);
    grpc_function_handle_destruct(&add);
    grpc_function_handle_destruct(&join);
    return grpc_finalize();
}
