/* Declared graphs: tests of what grpc_graph.h promises. */
#include "suite.h"

#include <stdlib.h>

enum { N = 1000, STEPS = 10 };

static double x[N], y[N], total;

static void fill(void) {
    suite_fill(x, N, 1);
    suite_fill(y, N, 10);
    total = -1;
}

/* A loop whose end depends on its results. */
#define DESCRIBE(name)                                                                                                 \
    grpc_describe(name) {                                                                                              \
        for (int step = 0; step < STEPS; step++) {                                                                     \
            grpc_describe_optional_np(step > 0);                                                                       \
            grpc_call(&axpy, N, 1.0, x, y);                                                                            \
            grpc_call(&sum, (long)N, y, &total);                                                                       \
            grpc_fetch(&total);                                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    OK(grpc_map_error_np())

#define HANDLES()                                                                                                      \
    BEGIN();                                                                                                           \
    HANDLE(axpy, "axpy");                                                                                              \
    HANDLE(sum, "sum")

static void a_loop_that_ends_by_its_results(void) {
    int runs = 0, seen = 0;
    char *plan = NULL;
    fill();
    HANDLES();
    DESCRIBE("steps");
    CHECK(suite_is_all(y, N, 10));
    EQUAL(-1, total);
    grpc_follow("steps", "heft") {
        runs++;
        EQUAL(2, grpc_map_phase_np());
        do {
            OK(grpc_call(&axpy, N, 1.0, x, y));
            OK(grpc_call(&sum, (long)N, y, &total));
            OK(grpc_fetch(&total));
            seen++;
        } while (total < 13.5 * N);
    }
    OK(grpc_map_error_np());
    EQUAL(1, runs);
    EQUAL(4, seen);
    EQUAL(14.0 * N, total);
    CHECK(suite_is_all(y, N, 14));
    OK(grpc_plan_get_np(&plan));
    CHECK(strstr(plan, "\"heuristic\": \"heft\"") != NULL);
    free(plan);
    /* It can be followed any number of times. */
    fill();
    grpc_follow("steps", NULL) {
        OK(grpc_call(&axpy, N, 1.0, x, y));
        OK(grpc_call(&sum, (long)N, y, &total));
    }
    OK(grpc_map_error_np());
    EQUAL(11.0 * N, total);
}

static void differences_are_told(void) {
    fill();
    HANDLES();
    DESCRIBE("steps");
    /* More calls than were declared, and different ones. */
    grpc_follow("steps", "auto") {
        OK(grpc_call(&axpy, N, 1.0, x, y));
        OK(grpc_call(&sum, (long)N, y, &total));
        OK(grpc_call(&axpy, N / 2, 1.0, x, y));
    }
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "call 3") != NULL);
    EQUAL(11.0 * N, total);
    EQUAL(12, y[0]);
    EQUAL(11, y[N - 1]);
    /* The first step must occur. */
    fill();
    grpc_follow("steps", "auto") OK(grpc_call(&axpy, N, 1.0, x, y));
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "call2") != NULL);
    CHECK(suite_is_all(y, N, 11));
}

static void by_another_memory_and_sessions(void) {
    static double z[N], other = 0;
    grpc_sessionid_t ids[2];
    fill();
    HANDLES();
    DESCRIBE("steps");
    suite_fill(z, N, 5);
    grpc_follow("steps", "auto") {
        OK(grpc_call_async(&axpy, &ids[0], N, 3.0, x, z));
        OK(grpc_call_async(&sum, &ids[1], (long)N, z, &other));
        OK(grpc_wait_and(ids, 2));
        OK(grpc_fetch(&other));
        EQUAL(8.0 * N, other);
        grpc_local(grpc_local_reads(z)) CHECK(suite_is_all(z, N, 8));
    }
    OK(grpc_map_error_np());
    CHECK(suite_is_all(z, N, 8) && suite_is_all(y, N, 10));
}

static void saved_and_planned(void) {
    char *graph = NULL, *plan = NULL;
    double seconds = 0;
    size_t calls = 0;
    fill();
    HANDLES();
    DESCRIBE("steps");
    OK(grpc_graph_get_np("steps", &graph));
    CHECK(strstr(graph, "\"format\": \"gridloom graph 1\"") != NULL && strstr(graph, "\"optional\":true") != NULL);
    OK(grpc_graph_save_np("steps", "graph.json"));
    OK(grpc_graph_define_np("copy", graph));
    free(graph);
    OK(grpc_graph_define_np("steps", NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_graph_get_np("steps", &graph));
    CHECK(strstr(grpc_last_error_text_np(), "there are: copy") != NULL);
    OK(grpc_graph_plan_np("file:graph.json", "heft", &plan));
    OK(grpc_plan_predicted_np(plan, &seconds, &calls));
    EQUAL(2 * STEPS, calls);
    CHECK(seconds > 0);
    OK(grpc_plan_define_np("given", plan));
    free(plan);
    grpc_follow("file:graph.json", "given") {
        OK(grpc_call(&axpy, N, 1.0, x, y));
        OK(grpc_call(&sum, (long)N, y, &total));
    }
    OK(grpc_map_error_np());
    EQUAL(11.0 * N, total);
    grpc_follow("copy", "auto") {
        OK(grpc_call(&axpy, N, 1.0, x, y));
        OK(grpc_call(&sum, (long)N, y, &total));
    }
    OK(grpc_map_error_np());
    EQUAL(12.0 * N, total);
    remove("graph.json");
}

static void mistakes(void) {
    int runs = 0;
    char *text = NULL;
    fill();
    HANDLES();
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_describe_optional_np(1));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_graph_get_np("none", &text));
    CHECK(strstr(grpc_last_error_text_np(), "'none'; none was declared") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_graph_define_np("g", "{}"));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_graph_define_np("file:g", NULL));
    grpc_describe("") runs++;
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    grpc_describe(NULL) runs++;
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    EQUAL(0, runs);
    /* Without its graph a block runs call by call. */
    grpc_follow("none", "auto") OK(grpc_call(&axpy, N, 1.0, x, y));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(suite_is_all(y, N, 11));
    DESCRIBE("steps");
    grpc_follow("steps", "no such heuristic") OK(grpc_call(&axpy, N, 1.0, x, y));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(suite_is_all(y, N, 12));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_graph_plan_np("steps", "no such heuristic", &text));
    grpc_map("auto") {
        grpc_describe("inner") runs++;
        EXPECT(GRPC_OTHER_ERROR_CODE, grpc_describe_optional_np(1));
        OK(grpc_call(&axpy, N, 1.0, x, y));
    }
    OK(grpc_map_error_np());
    EQUAL(0, runs);
    CHECK(text == NULL);
}

static int leaves(grpc_function_handle_t *axpy) {
    grpc_follow("one", "auto") {
        grpc_call(axpy, N, 1.0, x, y);
        return 1;
    }
    return 2;
}

static void a_return_ends_it(void) {
    fill();
    HANDLES();
    grpc_describe("one") grpc_call(&axpy, N, 1.0, x, y);
    OK(grpc_map_error_np());
    EQUAL(1, leaves(&axpy));
    OK(grpc_map_error_np());
    EQUAL(0, grpc_map_phase_np());
    CHECK(suite_is_all(y, N, 11));
    /* Inside another block it becomes a part of that block. */
    (void)sum;
    grpc_map("auto") {
        grpc_follow("one", "heft") grpc_call(&axpy, N, 1.0, x, y);
        grpc_call(&axpy, N, 1.0, x, y);
    }
    OK(grpc_map_error_np());
    CHECK(suite_is_all(y, N, 13));
}

const test_case graph_cases[] = {
    {"graph: a loop that ends by its results", a_loop_that_ends_by_its_results},
    {"graph: differences are told", differences_are_told},
    {"graph: by another memory and sessions", by_another_memory_and_sessions},
    {"graph: saved and planned", saved_and_planned},
    {"graph: mistakes", mistakes},
    {"graph: a return ends it", a_return_ends_it},
    {NULL, NULL},
};
