/* Runs cases one after the other and says how each went, as the Test Anything Protocol has it. */
#ifndef SUITE_H
#define SUITE_H

#include <grpc.h>
#include <stdio.h>
#include <string.h>

/* A case: what it shows, which begins with its place in the reference (OGF group, or rule), and how. */
typedef struct test_case {
    const char *shows;
    void (*run)(void);
} test_case;

/* Each file's cases end with {NULL, NULL}. */
extern const test_case ogf_cases[], session_cases[], argument_cases[], error_cases[], stack_cases[], thread_cases[],
    kind_cases[], ninfg_cases[], object_cases[], remote_cases[], shared_cases[], data_cases[], placed_cases[], map_cases[], block_cases[], plan_cases[], heuristic_cases[], graph_cases[], debug_cases[],
    random_cases[];

/* The current case cannot be run, for this reason. */
void suite_skip(const char *why);

/* The configuration that the suite was started with. */
extern const char *suite_config;
/* The suite itself, by its path. */
extern const char *suite_program;

/* A check of the current case; where one fails the case ends. All macros do: their functions say why and give 0. */
int suite_code(grpc_error_t expected, grpc_error_t got, const char *call, const char *file, int line);
int suite_true(int is_true, const char *what, const char *file, int line);
int suite_equal(double expected, double got, const char *what, const char *file, int line);
int suite_text(const char *expected, const char *got, const char *what, const char *file, int line);

#define EXPECT(code, call)                                                                                             \
    do {                                                                                                               \
        if (!suite_code((code), (call), #call, __FILE__, __LINE__)) return;                                            \
    } while (0)
#define OK(call) EXPECT(GRPC_NO_ERROR, call)
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!suite_true((what) != 0, #what, __FILE__, __LINE__)) return;                                               \
    } while (0)
#define EQUAL(expected, got)                                                                                           \
    do {                                                                                                               \
        if (!suite_equal((double)(expected), (double)(got), #got, __FILE__, __LINE__)) return;                         \
    } while (0)
#define TEXT(expected, got)                                                                                            \
    do {                                                                                                               \
        if (!suite_text((expected), (got), #got, __FILE__, __LINE__)) return;                                          \
    } while (0)

/* A handle of one of the suite's functions, "add"; and the beginning of every case that has a session. */
#define BEGIN() OK(grpc_initialize(suite_config))
#define HANDLE(handle, function)                                                                                       \
    grpc_function_handle_t handle;                                                                                     \
    OK(grpc_function_handle_default(&handle, "gridrpc/" function))
/* What a session says last that was cancelled, or never begun. */
#define STOP(id)                                                                                                       \
    do {                                                                                                               \
        OK(grpc_cancel(id));                                                                                           \
        EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));                                                                    \
    } while (0)

/* What cases begin with and look for: all values are that one. */
void suite_fill(double *values, int n, double value);
int suite_is_all(const double *values, int n, double expected);

/* The name of a server of the grid; the suite's own copy. */
const char *suite_server(void);

#endif
