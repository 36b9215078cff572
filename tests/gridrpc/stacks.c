/* Argument stacks in both forms, and other variants (reference, 1.6). */
#include "suite.h"

static void as_ninf_g(void) {
    int n = 2, more = 0;
    double alpha = 3, x[2] = {1, 2}, y[2] = {10, 10};
    grpc_arg_stack_t *stack = grpc_arg_stack_new(4);
    CHECK(stack != NULL);
    EQUAL(0, grpc_arg_stack_push_arg(stack, &n));
    EQUAL(0, grpc_arg_stack_push_arg(stack, &alpha));
    EQUAL(0, grpc_arg_stack_push_arg(stack, x));
    EQUAL(0, grpc_arg_stack_push_arg(stack, y));
    EQUAL(-1, grpc_arg_stack_push_arg(stack, &more));
    BEGIN();
    HANDLE(handle, "axpy");
    EQUAL(0, grpc_call_arg_stack(&handle, stack));
    EQUAL(13, y[0]);
    grpc_sessionid_t id = grpc_call_arg_stack_async(&handle, stack);
    CHECK(id != GRPC_SESSIONID_VOID);
    OK(grpc_wait(id));
    EQUAL(16, y[0]);
    EQUAL(22, y[1]);
    EQUAL(0, grpc_arg_stack_destruct(stack));
}

static void what_was_pushed_last_is_popped_first(void) {
    int a, b;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(2);
    CHECK(stack != NULL);
    CHECK(grpc_arg_stack_pop_arg(stack) == NULL);
    EQUAL(0, grpc_arg_stack_push_arg(stack, &a));
    EQUAL(0, grpc_arg_stack_push_arg(stack, &b));
    CHECK(grpc_arg_stack_pop_arg(stack) == &b);
    CHECK(grpc_arg_stack_pop_arg(stack) == &a);
    CHECK(grpc_arg_stack_pop_arg(stack) == NULL);
    EQUAL(0, grpc_arg_stack_destruct(stack));
    EQUAL(-1, grpc_arg_stack_destruct(NULL));
    CHECK(grpc_arg_stack_new(0) == NULL);
}

static void too_few_arguments(void) {
    grpc_error_t last;
    int x = 1;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(2);
    CHECK(stack != NULL);
    BEGIN();
    HANDLE(handle, "add");
    EQUAL(0, grpc_arg_stack_push_arg(stack, &x));
    EQUAL(-1, grpc_call_arg_stack(&handle, stack));
    last = grpc_last_error_get_np();
    EQUAL(GRPC_OTHER_ERROR_CODE, last);
    EQUAL(-1, grpc_call_arg_stack_async(&handle, stack));
    EQUAL(0, grpc_arg_stack_destruct(stack));
}

static void as_netsolve(void) {
    int x = 5, y = 0, z = 0;
    ArgStack *stack = newArgStack(8);
    CHECK(stack != NULL);
    EQUAL(0, pushArg(stack, &x));
    EQUAL(0, pushArg(stack, &y));
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_argstack(&handle, stack));
    EQUAL(6, y);
    CHECK(popArg(stack) == &y);
    EQUAL(0, pushArg(stack, &z));
    grpc_sessionid_t id = grpc_call_argstack_async(&handle, stack);
    CHECK(id != GRPC_SESSIONID_VOID);
    OK(grpc_wait(id));
    EQUAL(6, z);
    EQUAL(0, destructArgStack(stack));
}

static void arrays_of_handles(void) {
    grpc_function_handle_t handles[3];
    grpc_sessionid_t ids[3];
    int y[3];
    BEGIN();
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_array_default_np(handles, 3, "gridrpc/none"));
    OK(grpc_function_handle_array_default_np(handles, 3, "gridrpc/add"));
    for (int i = 0; i < 3; i++) OK(grpc_call_async(&handles[i], &ids[i], i, &y[i]));
    OK(grpc_wait_all());
    for (int i = 0; i < 3; i++) EQUAL(i + 1, y[i]);
    OK(grpc_function_handle_array_destruct_np(handles, 3));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_destruct(&handles[2]));
}

static void as_the_netsolve_component(void) {
    double x[3] = {1, 2, 3}, y[3] = {1, 1, 1}, z[3] = {0, 0, 0}, wrong[1];
    grpc_remote_t a;
    size_t size = 0;
    BEGIN();
    OK(grpc_remote_new_np(&a, "A"));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_get_np(a, z, sizeof z));
    OK(grpc_remote_put_np(a, y, sizeof y));
    OK(mynetsl("gridrpc/axpy()", 3, 2.0, x, a));
    EQUAL(1, y[0]);
    OK(grpc_remote_size_np(a, &size));
    EQUAL(sizeof y, size);
    OK(mynetsl("axpy", 3, 1.0, a, z));
    EQUAL(3, z[0]);
    EQUAL(7, z[2]);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_remote_get_np(a, wrong, sizeof wrong));
    OK(grpc_remote_get_np(a, z, sizeof z));
    EQUAL(5, z[1]);
    grpc_remote_t again, other;
    OK(grpc_remote_find_np(&again, "A"));
    CHECK(again == a);
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_new_np(&other, "A"));
    OK(grpc_remote_free_np(a));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_find_np(&again, "A"));
}

const test_case stack_cases[] = {
    {"1.6: a stack as Ninf-G has it", as_ninf_g},
    {"1.6: what was pushed last is popped first", what_was_pushed_last_is_popped_first},
    {"1.6: too few arguments", too_few_arguments},
    {"1.6: a stack as NetSolve has it", as_netsolve},
    {"1.6: arrays of handles as Ninf-G has them", arrays_of_handles},
    {"NetSolve component: a result stays remote and is read there", as_the_netsolve_component},
    {NULL, NULL},
};
