/* Data that stay on the servers where they are made (grpc_remote.h). */
#include "suite.h"

enum { N = 5000 };

static double x[N], y[N], z[N];

static void fill(void) {
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = 1;
        z[i] = 0;
    }
}

/* y := 2 y + y, four times, without a value at the client in between. */
static void a_chain_of_calls(void) {
    grpc_remote_t a;
    grpc_sessionid_t ids[4];
    size_t size = 0;
    fill();
    BEGIN();
    HANDLE(handle, "axpy");
    OK(grpc_remote_new_np(&a, NULL));
    OK(grpc_remote_put_np(a, x, sizeof x));
    for (int i = 0; i < 4; i++) OK(grpc_call_async(&handle, &ids[i], N, 2.0, a, a));
    OK(grpc_remote_size_np(a, &size));
    EQUAL(sizeof x, size);
    OK(grpc_wait_and(ids, 4));
    OK(grpc_remote_wait_np(a));
    OK(grpc_remote_get_np(a, z, sizeof z));
    for (int i = 0; i < N; i++) EQUAL(81.0 * i, z[i]);
    OK(grpc_remote_free_np(a));
}

static void both_ways_in_one_call(void) {
    grpc_remote_t total, sums;
    double got = 0, all[7] = {0};
    fill();
    BEGIN();
    HANDLE(sum, "sum");
    HANDLE(kinds, "kinds");
    OK(grpc_remote_new_np(&total, "total"));
    OK(grpc_remote_new_np(&sums, "sums"));
    /* A scalar and an array that stay on the server, beside others that are returned. */
    OK(grpc_call(&sum, (long)N, x, total));
    OK(grpc_remote_get_np(total, &got, sizeof got));
    EQUAL(N * (N - 1) / 2.0, got);
    OK(grpc_call(&kinds, (char)1, (short)2, 3, 4L, 5U, 6.0f, 7.0, sums));
    OK(grpc_call(&sum, 7L, sums, &got));
    EQUAL(1 + 3 + 6 + 10 + 15 + 21 + 28, got);
    OK(grpc_remote_get_np(sums, all, sizeof all));
    EQUAL(28, all[6]);
}

static void scalars_that_are_changed(void) {
    grpc_remote_t i, d;
    signed char c = 0;
    short s = 0;
    int changed = 0, first = 41;
    long l = 0;
    float f = 0;
    double half = 0, whole = 3;
    BEGIN();
    HANDLE(handle, "pointers");
    OK(grpc_remote_new_np(&i, NULL));
    OK(grpc_remote_new_np(&d, NULL));
    OK(grpc_remote_put_np(i, &first, sizeof first));
    OK(grpc_remote_put_np(d, &whole, sizeof whole));
    OK(grpc_call(&handle, &c, &s, i, &l, &f, d));
    OK(grpc_call(&handle, &c, &s, i, &l, &f, d));
    OK(grpc_remote_get_np(i, &changed, sizeof changed));
    OK(grpc_remote_get_np(d, &half, sizeof half));
    EQUAL(43, changed);
    EQUAL(0.75, half);
    EQUAL(3, l);
    EQUAL(4.5, f);
}

/* Shapes do not matter in memory: an array of two rows can be one of three, and bytes are whatever the call declares. */
static void other_views(void) {
    grpc_remote_t a;
    float in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
    int ints[6];
    BEGIN();
    HANDLE(transpose, "transpose");
    HANDLE(scratch, "scratch");
    OK(grpc_remote_new_np(&a, NULL));
    OK(grpc_call(&transpose, 2, 3, in, a));
    OK(grpc_call(&transpose, 2, 3, a, out));
    const float again[6] = {1, 5, 4, 3, 2, 6};
    for (int k = 0; k < 6; k++) EQUAL(again[k], out[k]);
    OK(grpc_call(&scratch, 6, a, NULL, ints));
    memcpy(out, ints, sizeof out);
    EQUAL(1, out[5]);
    EQUAL(4, out[4]);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&transpose, 2, 2, a, out));
    CHECK(strstr(grpc_last_error_text_np(), "24") != NULL);
}

static void by_a_stack_and_a_bound_handle(void) {
    int n = N;
    double alpha = 3, *values = x;
    grpc_function_handle_t handle;
    grpc_remote_t a;
    ArgStack *stack = newArgStack(4);
    fill();
    BEGIN();
    OK(grpc_function_handle_init(&handle, suite_server(), "gridrpc/axpy"));
    OK(grpc_remote_new_np(&a, NULL));
    OK(grpc_remote_put_np(a, y, sizeof y));
    pushArg(stack, &n);
    pushArg(stack, &alpha);
    pushArg(stack, values);
    pushArg(stack, a);
    grpc_sessionid_t id = grpc_call_argstack_async(&handle, stack);
    CHECK(id != GRPC_SESSIONID_VOID);
    OK(grpc_wait(id));
    grpc_session_details_np info;
    OK(grpc_session_details_get_np(id, &info));
    TEXT(suite_server(), info.server);
    OK(grpc_remote_get_np(a, z, sizeof z));
    EQUAL(3.0 * (N - 1) + 1, z[N - 1]);
    /* An argument that is passed by value, other than by a stack, cannot be remote. */
    popArg(stack);
    pushArg(stack, z);
    destructArgStack(stack);
}

static void what_failed_is_told(void) {
    grpc_remote_t a;
    grpc_sessionid_t id, failed;
    double sum;
    int y_ = 0;
    BEGIN();
    HANDLE(loop, "loop");
    HANDLE(total, "sum");
    HANDLE(add, "add");
    OK(grpc_remote_new_np(&a, "A"));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_call(&total, 1L, a, &sum));
    CHECK(strstr(grpc_last_error_text_np(), "'A'") != NULL);
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_wait_np(a));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_remote_put_np(a, NULL, 8));
    /* Refused by the server: a negative number of elements. */
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&total, -1L, a, &sum));
    OK(grpc_remote_free_np(a));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_free_np(a));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_size_np(NULL, NULL));
    OK(grpc_remote_new_np(&a, "A"));
    OK(mynetsl("add", 1, a));
    grpc_sessionid_t other = mynetslnb("gridrpc/add()", 4, &y_);
    CHECK(other > 0);
    OK(mynetslwt(other));
    EQUAL(5, y_);
    EQUAL(-GRPC_FUNCTION_NOT_FOUND, mynetslnb("gridrpc/none", 4));
    EXPECT(GRPC_FUNCTION_NOT_FOUND, mynetsl("none()", 4));
    OK(grpc_call_async(&loop, &id, 0));
    STOP(id);
    OK(grpc_get_failed_sessionid(&failed));
    EQUAL(id, failed);
}

/* A call that makes a remote result is probed, cancelled and waited for like any other. */
static void sessions_are_the_same(void) {
    grpc_remote_t a;
    grpc_sessionid_t id;
    double mine[4] = {1, 1, 1, 1};
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_remote_new_np(&a, NULL));
    OK(grpc_remote_put_np(a, y, 4 * sizeof *y));
    OK(grpc_call_async(&axpy, &id, 4, 1.0, a, mine));
    while (grpc_probe(id) == GRPC_NOT_COMPLETED) {}
    OK(grpc_get_error(id));
    EQUAL(2, mine[3]);
    OK(grpc_cancel(id));
    OK(grpc_wait(id));
    OK(grpc_get_error(id));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait(id));
    OK(grpc_call_async(&axpy, &id, 4, 1.0, a, a));
    OK(grpc_remote_free_np(a));
    OK(grpc_wait(id));
}

/* The routine uses columns; programs in C use rows, wherever the array is. */
static void routines_by_columns(void) {
    double rows[6] = {0}, brought[6] = {0}, total = 0;
    grpc_remote_t a;
    BEGIN();
    HANDLE(steps, "steps");
    OK(grpc_call(&steps, 2, 3, rows));
    EQUAL(2, rows[2]);
    EQUAL(10, rows[3]);
    OK(grpc_remote_new_np(&a, "A"));
    OK(grpc_call(&steps, 2, 3, a));
    OK(grpc_remote_get_np(a, brought, sizeof brought));
    CHECK(memcmp(rows, brought, sizeof rows) == 0);
    /* As another array with as many elements: the first four in the program's memory. */
    HANDLE(axpy, "axpy");
    OK(grpc_call(&axpy, 6, 1.0, a, brought));
    EQUAL(20, brought[3]);
    HANDLE(sum, "sum");
    OK(grpc_call(&sum, 6L, a, &total));
    EQUAL(36, total);
}

static void time_limits_hold(void) {
    grpc_remote_t a;
    grpc_sessionid_t id;
    fill();
    BEGIN();
    HANDLE(stalls, "stalls");
    OK(grpc_function_handle_set_timeout_np(&stalls, 0.2));
    OK(grpc_remote_new_np(&a, "A"));
    OK(grpc_remote_put_np(a, y, sizeof y));
    EXPECT(GRPC_TIMEOUT_NP, grpc_call(&stalls, N, a));
    OK(grpc_remote_put_np(a, y, sizeof y));
    OK(grpc_call_async(&stalls, &id, N, a));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    EXPECT(GRPC_TIMEOUT_NP, grpc_get_error(id));
    EXPECT(GRPC_SESSION_FAILED, grpc_remote_wait_np(a));
}

static void they_end_with_the_session(void) {
    grpc_remote_t a;
    fill();
    BEGIN();
    OK(grpc_remote_new_np(&a, "A"));
    OK(grpc_remote_put_np(a, y, sizeof y));
    OK(mynetsl("axpy", N, 1.0, x, a));
    OK(grpc_finalize());
    EXPECT(GRPC_NOT_INITIALIZED, grpc_remote_wait_np(a));
    BEGIN();
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_wait_np(a));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_find_np(&a, "A"));
}

const test_case remote_cases[] = {
    {"remote: a chain of calls that do not wait", a_chain_of_calls},
    {"remote: results that stay beside results that come", both_ways_in_one_call},
    {"remote: scalars that are changed", scalars_that_are_changed},
    {"remote: memory is read as each call has it", other_views},
    {"remote: by an argument stack and a bound handle", by_a_stack_and_a_bound_handle},
    {"remote: what is not there, and what failed, is told", what_failed_is_told},
    {"remote: sessions are as others", sessions_are_the_same},
    {"remote: routines by columns", routines_by_columns},
    {"remote: time limits hold", time_limits_hold},
    {"remote: they end with the session", they_end_with_the_session},
    {NULL, NULL},
};
