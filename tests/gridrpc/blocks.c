/* Blocks of calls in detail: which of them have a place in the plan, and what their report says. */
#include "suite.h"

#include <stdlib.h>

enum { N = 1000, REPORT = 8192 };

static int is_all(const double *values, int n, double expected) {
    for (int i = 0; i < n; i++)
        if (values[i] != expected) return 0;
    return 1;
}

static void fill(double *values, int n, double value) {
    for (int i = 0; i < n; i++) values[i] = value;
}

#define BUFFERS()                                                                                                      \
    static double x[N], y[N], z[N];                                                                                    \
    double total = -1;                                                                                                 \
    (void)total;                                                                                                       \
    fill(x, N, 1);                                                                                                     \
    fill(y, N, 10);                                                                                                    \
    fill(z, N, 100);                                                                                                   \
    BEGIN();                                                                                                           \
    HANDLE(axpy, "axpy");                                                                                              \
    HANDLE(sum, "sum");                                                                                                \
    (void)sum

/* The report of the last block. */
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

/* From server to server, one bound and one not, in the order of the data. */
static void bound_and_late_handles(void) {
    grpc_function_handle_t first, second;
    grpc_sessionid_t id;
    grpc_session_info_np info;
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
    CHECK(is_all(y, N, 13));
    CHECK(is_all(z, N, 113));
    EQUAL(113.0 * N, total);
    OK(grpc_session_info_get_np(id, &info));
    TEXT(suite_server(), info.server);
    /* x, y and z go out, y and z come back, and what is between does not come here. */
    CHECK(strstr(report(), "4 calls on") != NULL);
    CHECK(strstr(report(), "server-1 -> server-2: 8.0 kB") != NULL);
    CHECK(strstr(report(), "server-2 -> client") != NULL);
}

/* Every call of the block is bound to the server that a heuristic would not take for all of them. */
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
    CHECK(is_all(y, N, 10 + 4 * 2));
    CHECK(is_all(z, N, 100 + 4 * 3));
}

/* The second run has another handle than the first. */
static void a_call_that_is_bound_otherwise(void) {
    grpc_function_handle_t bound;
    BUFFERS();
    OK(grpc_function_handle_init(&bound, "server-2", "gridrpc/axpy"));
    grpc_map("auto") OK(grpc_call(grpc_map_phase_np() == 1 ? &axpy : &bound, N, 1.0, x, y));
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "it is bound to 'server-2'") != NULL);
    CHECK(is_all(y, N, 11));
}

const test_case block_cases[] = {
    {"map: calls through bound and late handles", bound_and_late_handles},
    {"map: all calls are bound", all_calls_are_bound},
    {"map: a call that is bound otherwise than it was discovered", a_call_that_is_bound_otherwise},
    {NULL, NULL},
};
