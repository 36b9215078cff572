/* Passing of arguments (reference, 1.2). */
#include "suite.h"

#include <math.h>
#include <stdlib.h>

static void scalars_by_value(void) {
    double sums[7];
    const double terms[7] = {-3, -300, -70000, -5e12, 4e9, 0.1f, 0.1};
    double sum = 0;
    BEGIN();
    HANDLE(handle, "kinds");
    OK(grpc_call(&handle, (char)-3, (short)-300, -70000, -5000000000000L, 4000000000U, 0.1f, 0.1, sums));
    for (int i = 0; i < 7; i++) EQUAL(sum += terms[i], sums[i]);
}

static void scalars_by_pointer(void) {
    /* Each has a neighbour that must not change. */
    signed char c[2] = {9, 9};
    short s[2] = {9, 9};
    int i[2] = {41, 9};
    long l[2] = {9, 9};
    float f[2] = {9, 9};
    double d[2] = {3, 9};
    BEGIN();
    HANDLE(handle, "pointers");
    OK(grpc_call(&handle, &c[0], &s[0], &i[0], &l[0], &f[0], &d[0]));
    EQUAL(1, c[0]);
    EQUAL(2, s[0]);
    EQUAL(42, i[0]);
    EQUAL(3, l[0]);
    EQUAL(4.5, f[0]);
    EQUAL(1.5, d[0]);
    EQUAL(9 + 9 + 9 + 9 + 9 + 9, c[1] + s[1] + i[1] + l[1] + f[1] + d[1]);
}

static void arrays_in_and_out(void) {
    double x[3] = {1, 2, 3}, y[4] = {10, 20, 30, 40};
    BEGIN();
    HANDLE(handle, "axpy");
    OK(grpc_call(&handle, 3, 2.0, x, y));
    EQUAL(12, y[0]);
    EQUAL(24, y[1]);
    EQUAL(36, y[2]);
    EQUAL(40, y[3]);
    EQUAL(3, x[2]);
}

static void arrays_row_by_row(void) {
    float a[2][3] = {{1, 2, 3}, {4, 5, 6}}, b[3][2];
    BEGIN();
    HANDLE(handle, "transpose");
    OK(grpc_call(&handle, 2, 3, a, b));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) EQUAL(a[i][j], b[j][i]);
}

/* Fortran gets the memory unchanged. */
static void arrays_column_by_column(void) {
    double a[6] = {1, 2, 3, 4, 5, 6}, element = 0;
    BEGIN();
    HANDLE(handle, "corner");
    OK(grpc_call(&handle, 2, 3, a, &element));
    EQUAL(2, element);
}

static void arrays_without_elements(void) {
    double x[1] = {1}, y[1] = {5}, sum = 7;
    BEGIN();
    HANDLE(axpy, "axpy");
    HANDLE(total, "sum");
    OK(grpc_call(&axpy, 0, 2.0, x, y));
    EQUAL(5, y[0]);
    OK(grpc_call(&total, 0L, (double *)NULL, &sum));
    EQUAL(0, sum);
}

static void negative_sizes(void) {
    double x[1] = {1}, y[1] = {5};
    BEGIN();
    HANDLE(handle, "axpy");
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, -1, 2.0, x, y));
    CHECK(strstr(grpc_last_error_text_np(), "-1") != NULL);
    EQUAL(5, y[0]);
}

static void inputs_that_are_missing(void) {
    double y[2] = {5, 5};
    BEGIN();
    HANDLE(handle, "axpy");
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, 2, 1.0, (double *)NULL, y));
    CHECK(strstr(grpc_last_error_text_np(), "'x'") != NULL);
}

static void results_that_are_not_wanted(void) {
    float a[2] = {1, 2};
    BEGIN();
    HANDLE(handle, "transpose");
    OK(grpc_call(&handle, 1, 2, a, (float *)NULL));
}

static void texts(void) {
    signed char letters[8];
    int length = 0;
    BEGIN();
    HANDLE(handle, "upper");
    OK(grpc_call(&handle, "grid", 8, letters, &length));
    TEXT("GRID", (const char *)letters);
    EQUAL(4, length);
    OK(grpc_call(&handle, "", 8, letters, &length));
    TEXT("", (const char *)letters);
    EQUAL(0, length);
}

/* A scratch argument has a place among the arguments, and the value in it is ignored. */
static void scratch_has_a_place(void) {
    int x[4] = {1, 2, 3, 4}, y[4];
    BEGIN();
    HANDLE(handle, "scratch");
    OK(grpc_call(&handle, 4, x, NULL, y));
    for (int i = 0; i < 4; i++) EQUAL(4 - i, y[i]);
    OK(grpc_call(&handle, 4, x, (int *)1, y));
    for (int i = 0; i < 4; i++) EQUAL(4 - i, y[i]);
}

/* Inputs are read before the call returns. */
static void inputs_may_be_changed_at_once(void) {
    enum { COUNT = 1 << 20 };
    double *x = malloc(COUNT * sizeof *x), sums[8];
    grpc_sessionid_t ids[8];
    CHECK(x != NULL);
    BEGIN();
    HANDLE(handle, "sum");
    for (int k = 0; k < 8; k++) {
        for (long i = 0; i < COUNT; i++) x[i] = k;
        OK(grpc_call_async(&handle, &ids[k], (long)COUNT, x, &sums[k]));
    }
    for (long i = 0; i < COUNT; i++) x[i] = NAN;
    free(x);
    OK(grpc_wait_and(ids, 8));
    for (int k = 0; k < 8; k++) EQUAL((double)k * COUNT, sums[k]);
}

/* Results are stored through the pointers of the call when its session is waited for. */
static void results_come_with_the_wait(void) {
    double x[2] = {1, 1}, first[2] = {1, 1}, second[2] = {10, 10};
    grpc_sessionid_t ids[2];
    BEGIN();
    HANDLE(handle, "axpy");
    OK(grpc_call_async(&handle, &ids[0], 2, 1.0, x, first));
    OK(grpc_call_async(&handle, &ids[1], 2, 1.0, x, second));
    OK(grpc_wait(ids[1]));
    EQUAL(11, second[1]);
    EQUAL(1, first[1]);
    OK(grpc_wait(ids[0]));
    EQUAL(2, first[1]);
}

static void in_place_twice(void) {
    double x[2] = {1, 2};
    BEGIN();
    HANDLE(handle, "axpy");
    OK(grpc_call(&handle, 2, 1.0, x, x));
    EQUAL(2, x[0]);
    EQUAL(4, x[1]);
}

static void inputs_stay_if_a_call_fails(void) {
    double y[2] = {1, 2};
    BEGIN();
    HANDLE(handle, "axpy");
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, -2, 1.0, y, y));
    EQUAL(1, y[0]);
    EQUAL(2, y[1]);
}

/* More bytes than 32 bits can count. */
static void large_arrays(void) {
    const long count = (1L << 29) + 3;
    double sum = 0;
    double *x = calloc((size_t)count, sizeof *x);
    if (x == NULL || getenv("GRIDRPC_LARGE") == NULL) {
        suite_skip("needs 9 GiB of memory, servers with memory = \"8GiB\", and GRIDRPC_LARGE in the environment");
        free(x);
        return;
    }
    x[count - 1] = 3;
    BEGIN();
    HANDLE(handle, "sum");
    OK(grpc_call(&handle, count, x, &sum));
    EQUAL(3, sum);
    free(x);
}

const test_case argument_cases[] = {
    {"1.2: scalars by value, promoted as C does", scalars_by_value},
    {"1.2: scalars by pointer, and nothing beside them", scalars_by_pointer},
    {"1.2: arrays in and out, and nothing beyond their size", arrays_in_and_out},
    {"1.2: arrays row by row", arrays_row_by_row},
    {"1.2: arrays for Fortran, memory as it is", arrays_column_by_column},
    {"1.2: arrays without elements", arrays_without_elements},
    {"1.2: negative sizes are refused", negative_sizes},
    {"1.2: inputs that are missing are refused", inputs_that_are_missing},
    {"1.2: results that are not wanted", results_that_are_not_wanted},
    {"1.2: texts", texts},
    {"1.2: scratch memory is not passed", scratch_has_a_place},
    {"1.2: inputs may be changed when the call has returned", inputs_may_be_changed_at_once},
    {"1.2: results come with the wait", results_come_with_the_wait},
    {"1.2: the same memory is read and written", in_place_twice},
    {"1.2: what goes in place stays if the call is refused", inputs_stay_if_a_call_fails},
    {"1.2: sizes of 64 bits", large_arrays},
    {NULL, NULL},
};
