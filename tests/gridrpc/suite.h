/* Runs cases one after the other and reports each result in the Test Anything Protocol. */
#ifndef SUITE_H
#define SUITE_H

#include <grpc.h>
#include <stdio.h>
#include <string.h>

/* A case: its title, which begins with its place in the reference (OGF group, or rule), and its function. */
typedef struct test_case {
    const char *shows;
    void (*run)(void);
} test_case;

/* Each file's cases end with {NULL, NULL}. */
extern const test_case ogf_cases[], session_cases[], argument_cases[], error_cases[], stack_cases[], thread_cases[],
    kind_cases[], ninfg_cases[], object_cases[], remote_cases[], shared_cases[], data_cases[], placed_cases[], map_cases[], block_cases[], local_cases[], plan_cases[], heuristic_cases[], graph_cases[], debug_cases[],
    random_cases[];

/* Skips the current case, for this reason. */
void suite_skip(const char *why);

/* The configuration with which the suite was started. */
extern const char *suite_config;
/* The path of the suite itself. */
extern const char *suite_program;

/* Checks of the current case; the case ends at the first that fails. So do all macros: their functions print the
 * reason and return 0. */
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

/* The beginning of every case that has a session; and a handle of one of the suite's functions, such as "add". */
#define BEGIN() OK(grpc_initialize(suite_config))
#define HANDLE(handle, function)                                                                                       \
    grpc_function_handle_t handle;                                                                                     \
    OK(grpc_function_handle_default(&handle, "gridrpc/" function))
/* Cancels a session, whose last status must then be an error. */
#define STOP(id)                                                                                                       \
    do {                                                                                                               \
        OK(grpc_cancel(id));                                                                                           \
        EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));                                                                    \
    } while (0)

/* Fills an array with one value, or checks that all its values are that one. */
void suite_fill(double *values, int n, double value);
int suite_is_all(const double *values, int n, double expected);

/* Returns the name of a server of the grid; the string belongs to the suite. */
const char *suite_server(void);

#endif
