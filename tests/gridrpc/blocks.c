/* Blocks of calls in detail: which calls are part of the plan, and what the report contains. */
#include "suite.h"

#include <stdlib.h>

enum { N = 1000, REPORT = 8192 };

#define BUFFERS()                                                                                                      \
    static double x[N], y[N], z[N];                                                                                    \
    double total = -1;                                                                                                 \
    (void)total;                                                                                                       \
    suite_fill(x, N, 1);                                                                                                     \
    suite_fill(y, N, 10);                                                                                                    \
    suite_fill(z, N, 100);                                                                                                   \
    BEGIN();                                                                                                           \
    HANDLE(axpy, "axpy");                                                                                              \
    HANDLE(sum, "sum");                                                                                                \
    (void)sum

/* Returns the report of the last block. */
static const char *report(void) {
    static char text[REPORT];
    const char *name = "blocks.txt";
    text[0] = '\0';
    if (grpc_map_report_np(name) != GRPC_NO_ERROR) return text;
    FILE *file = fopen(name, "r");
    if (file == NULL) return text;
    text[fread(text, 1, REPORT - 1, file)] = '\0';
    fclose(file);
    remove(name);
    return text;
}

/* From server to server, with one bound handle and one unbound, in the order of the data. */
static void bound_and_late_handles(void) {
    grpc_function_handle_t first, second;
    grpc_sessionid_t id;
    grpc_session_details_np info;
    BUFFERS();
    OK(grpc_function_handle_init(&first, suite_server(), "gridrpc/axpy"));
    OK(grpc_function_handle_init(&second, "server-2", "gridrpc/axpy"));
    grpc_map("auto") {
        OK(grpc_call(&axpy, N, 2.0, x, y));
        OK(grpc_call_async(&first, &id, N, 1.0, x, y));
        OK(grpc_call(&second, N, 1.0, y, z));
        OK(grpc_wait(id));
        OK(grpc_call(&sum, (long)N, z, &total));
    }
    OK(grpc_map_error_np());
    CHECK(suite_is_all(y, N, 13));
    CHECK(suite_is_all(z, N, 113));
    EQUAL(113.0 * N, total);
    OK(grpc_session_details_get_np(id, &info));
    TEXT(suite_server(), info.server);
    /* x, y and z are sent, y and z are returned, and intermediate values are not. */
    CHECK(strstr(report(), "4 calls on") != NULL);
    /* y is sent directly; if links were measured on a busy machine, the plan may send it through the client. */
    CHECK(strstr(report(), "server-1 -> server-2: 8.0 kB") != NULL || strstr(report(), "client -> server-2: 16.0 kB") != NULL);
    CHECK(strstr(report(), "server-2 -> client") != NULL);
}

/* Every call of the block is bound to a server that a heuristic would not choose for all of them. */
static void all_calls_are_bound(void) {
    grpc_function_handle_t bound;
    static const char *heuristics[] = {"auto", "heft", "min-min", "random"};
    BUFFERS();
    OK(grpc_function_handle_init(&bound, "server-3", "gridrpc/axpy"));
    for (int i = 0; i < 4; i++) {
        grpc_map(heuristics[i]) for (int k = 0; k < 5; k++) OK(grpc_call(&bound, N, 1.0, x, k % 2 ? y : z));
        OK(grpc_map_error_np());
        CHECK(strstr(report(), "5 calls on 1 server,") != NULL);
        CHECK(strstr(report(), "server-3") != NULL);
    }
    CHECK(suite_is_all(y, N, 10 + 4 * 2));
    CHECK(suite_is_all(z, N, 100 + 4 * 3));
}

/* The second run uses another handle than the first. */
static void a_call_that_is_bound_otherwise(void) {
    grpc_function_handle_t bound;
    BUFFERS();
    OK(grpc_function_handle_init(&bound, "server-2", "gridrpc/axpy"));
    grpc_map("auto") OK(grpc_call(grpc_map_phase_np() == 1 ? &axpy : &bound, N, 1.0, x, y));
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "it is bound to 'server-2'") != NULL);
    CHECK(suite_is_all(y, N, 11));
}

/* The first result of transpose() is read in three other shapes; only its last value is sent to the client. */
static void results_in_another_shape(void) {
    static float a[N], b[N], c[N], d[N];
    for (int i = 0; i < N; i++) a[i] = (float)i;
    BEGIN();
    HANDLE(transpose, "transpose");
    grpc_map("auto") {
        OK(grpc_call(&transpose, 2, N / 2, a, b));
        OK(grpc_call(&transpose, 4, N / 4, b, c));
        OK(grpc_call(&transpose, 5, N / 5, c, d));
    }
    OK(grpc_map_error_np());
    for (int i = 0; i < N; i++) {
        int in_c = i % 5 * (N / 5) + i / 5, in_b = in_c % 4 * (N / 4) + in_c / 4, in_a = in_b % 2 * (N / 2) + in_b / 2;
        EQUAL(in_a, d[i]);
    }
    /* One array is sent, and three results are returned. */
    CHECK(strstr(report(), "moved: 16.0 kB over client links") != NULL);
}

/* A routine with arrays by columns: its result is by rows in memory, and is transposed where it is made. */
static void results_by_columns_in_another_shape(void) {
    double a[6], b[6];
    float c[6], d[6];
    BEGIN();
    HANDLE(steps, "steps");
    HANDLE(axpy, "axpy");
    HANDLE(transpose, "transpose");
    for (int i = 0; i < 6; i++) b[i] = 0, c[i] = (float)i;
    grpc_map("auto") {
        OK(grpc_call(&steps, 2, 3, a));
        OK(grpc_call(&axpy, 6, 1.0, a, b));
        OK(grpc_call(&transpose, 3, 2, c, d));
        OK(grpc_call(&transpose, 3, 2, d, c));
    }
    OK(grpc_map_error_np());
    for (int i = 0; i < 6; i++) {
        EQUAL(10 * (i / 3) + i % 3, b[i]);
        int in_d = i % 3 * 2 + i / 3;
        EQUAL(in_d % 3 * 2 + in_d / 3, c[i]);
    }
}

/* A remote result is read in another shape, by a later block and by a plain call. */
static void staying_results_in_another_shape(void) {
    static float a[N], b[N], c[N], d[N];
    for (int i = 0; i < N; i++) a[i] = (float)i;
    BEGIN();
    HANDLE(transpose, "transpose");
    grpc_map("auto") {
        grpc_stays_remote(b);
        OK(grpc_call(&transpose, 2, N / 2, a, b));
    }
    grpc_map("auto") OK(grpc_call(&transpose, N / 2, 2, b, c));
    OK(grpc_map_error_np());
    CHECK(memcmp(a, c, sizeof a) == 0);
    grpc_map("auto") {
        OK(grpc_call(&transpose, 1, N, b, c));
        OK(grpc_call(&transpose, 4, N / 4, b, d));
    }
    OK(grpc_map_error_np());
    EQUAL(N / 2, c[1]);
    EQUAL(N / 8, d[1]);
    OK(grpc_call(&transpose, 1, N, b, c));
    EQUAL(1, c[2]);
    OK(grpc_forget_np(b));
}

/* A call that fails after a fifth of a second at the latest. */
#define STALLS(stalls)                                                                                                 \
    HANDLE(stalls, "stalls");                                                                                          \
    OK(grpc_function_handle_set_timeout_np(&stalls, 0.2))

static void failed_calls_change_nothing(void) {
    BUFFERS();
    STALLS(stalls);
    HANDLE(refuses, "refuses");
    OK(grpc_call(&axpy, N, 1.0, x, y));
    EXPECT(GRPC_TIMEOUT_NP, grpc_call(&stalls, N, y));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_call(&refuses, N, y));
    CHECK(suite_is_all(y, N, 11));
}

/* The same in a block. The previous value was never at the client, and calls in the block that read the failed one
 * fail. */
static void failed_calls_of_a_block_change_nothing(void) {
    grpc_sessionid_t id;
    BUFFERS();
    STALLS(stalls);
    HANDLE(refuses, "refuses");
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        grpc_call(&stalls, N, y);
        grpc_call(&sum, (long)N, y, &total);
        grpc_call(&axpy, N, 1.0, x, z);
        OK(grpc_call_async(&refuses, &id, N, z));
        grpc_call(&refuses, N / 2, z + N / 4);
    }
    EXPECT(GRPC_TIMEOUT_NP, grpc_map_error_np());
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    EQUAL(-1, total);
    CHECK(suite_is_all(y, N, 11));
    CHECK(suite_is_all(z, N, 101));
}

/* The rest of the previous value is fetched before the block's end. */
static void failed_calls_on_a_part(void) {
    double last = 0;
    BUFFERS();
    HANDLE(refuses, "refuses");
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        grpc_call(&refuses, N / 2, y);
        grpc_fetch(y + N - 1);
        grpc_local() last = y[N - 1];
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    EQUAL(11, last);
    CHECK(suite_is_all(y, N, 11));
}

static void tell(int *round, double *x) { (void)round, (void)x; }

static void ask(double *factor, int *calls) { *factor = 1, ++*calls; }

/* Calls outside of the plan that use results made on servers. */
static void failed_calls_outside_of_the_plan(void) {
    grpc_sessionid_t id;
    double other = 0;
    BUFFERS();
    HANDLE(ends, "report");
    grpc_map("auto") {
        grpc_call(&sum, (long)N, x, &total);
        OK(grpc_call_async(&ends, &id, 3, -1, &total, tell, ask));
        grpc_call(&sum, 1L, &total, &other);
        grpc_call(&ends, 3, -1, &other, tell, ask);
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    EQUAL(N, total);
    EQUAL(N, other);
}

/* Parts that others have written since then are not restored. */
static void failed_calls_that_were_written_over(void) {
    BUFFERS();
    HANDLE(refuses, "refuses");
    HANDLE(steps, "steps");
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        grpc_call(&refuses, N, y);
        /* It reads a value that was not made. */
        grpc_call(&axpy, N / 2, 1.0, x, y);
        grpc_call(&axpy, N, 1.0, x, z);
        grpc_call(&refuses, N, z);
        grpc_call(&steps, 2, 5, z + 10);
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    CHECK(suite_is_all(y, N, 11));
    CHECK(suite_is_all(z, 10, 101));
    EQUAL(0, z[10]);
    EQUAL(14, z[19]);
    CHECK(suite_is_all(z + 20, N - 20, 101));
}

/* A remote result in a block whose call for a new value fails, and in a plain call. */
static void failed_calls_on_what_stays_remote(void) {
    grpc_sessionid_t id;
    BUFFERS();
    STALLS(stalls);
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&axpy, N, 1.0, x, y);
    }
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&stalls, N, y);
    }
    EXPECT(GRPC_TIMEOUT_NP, grpc_map_error_np());
    EXPECT(GRPC_TIMEOUT_NP, grpc_call(&stalls, N, y));
    OK(grpc_call_async(&stalls, &id, N, y));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    OK(grpc_call(&sum, (long)N, y, &total));
    EQUAL(11.0 * N, total);
    OK(grpc_fetch(y));
    CHECK(suite_is_all(y, N, 11));
}

static void mapped_again_when_asked(void) {
    int runs = 0;
    BUFFERS();
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_again_np());
    grpc_map("auto") {
        runs++;
        OK(grpc_call(&axpy, N, 1.0, x, y));
        OK(grpc_map_again_np());
        OK(grpc_call(&axpy, N, 1.0, y, z));
        OK(grpc_call(&sum, (long)N, z, &total));
        EXPECT(runs == 1 ? GRPC_NO_ERROR : GRPC_OTHER_ERROR_CODE, grpc_map_again_np());
    }
    OK(grpc_map_error_np());
    CHECK(suite_is_all(y, N, 11));
    CHECK(suite_is_all(z, N, 111));
    EQUAL(111.0 * N, total);
    CHECK(strstr(report(), "the rest was mapped again: 1 time\n") != NULL);
    /* No calls were mapped together. */
    grpc_map("no such heuristic") {
        grpc_call(&axpy, N, 1.0, x, y);
        EXPECT(grpc_map_phase_np() == 1 ? GRPC_NO_ERROR : GRPC_OTHER_ERROR_CODE, grpc_map_again_np());
    }
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(suite_is_all(y, N, 12));
}

/* Results that are on servers, and results that are still being computed. */
static void mapped_again_while_calls_run(void) {
    grpc_sessionid_t ids[3];
    BUFFERS();
    grpc_map("heft") {
        grpc_stays_remote(y);
        OK(grpc_call_async(&axpy, &ids[0], N, 1.0, x, y));
        OK(grpc_call_async(&axpy, &ids[1], N, 1.0, x, z));
        OK(grpc_map_again_np());
        OK(grpc_call_async(&axpy, &ids[2], N, 1.0, y, z));
        OK(grpc_map_again_np());
        OK(grpc_call(&sum, (long)N, z, &total));
    }
    OK(grpc_map_error_np());
    OK(grpc_wait_all());
    EQUAL(112.0 * N, total);
    CHECK(suite_is_all(z, N, 112));
    CHECK(suite_is_all(y, N, 10));
    OK(grpc_fetch(y));
    CHECK(suite_is_all(y, N, 11));
}

const test_case block_cases[] = {
    {"map: mapped again when asked", mapped_again_when_asked},
    {"map: mapped again while calls run", mapped_again_while_calls_run},
    {"map: calls through bound and late handles", bound_and_late_handles},
    {"map: all calls are bound", all_calls_are_bound},
    {"map: a call that is bound otherwise than it was discovered", a_call_that_is_bound_otherwise},
    {"map: results are read in another shape where they are", results_in_another_shape},
    {"map: results by columns are read in another shape", results_by_columns_in_another_shape},
    {"map: what stays remote is read in another shape", staying_results_in_another_shape},
    {"map: plain calls that fail change nothing", failed_calls_change_nothing},
    {"map: calls of a block that fail change nothing", failed_calls_of_a_block_change_nothing},
    {"map: calls that fail outside of the plan", failed_calls_outside_of_the_plan},
    {"map: calls that fail on a part", failed_calls_on_a_part},
    {"map: calls that fail and were written over", failed_calls_that_were_written_over},
    {"map: calls that fail on what stays remote", failed_calls_on_what_stays_remote},
    {NULL, NULL},
};
