/* The conformance suite of the GridRPC API.
 *
 *   suite CONFIGURATION SERVER [WORDS]     all cases, or those whose text contains WORDS
 *
 * Cases wait for events and never for a time; a case that hangs is ended after five minutes, together with the suite. */
#include "suite.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { CASE_SECONDS_MAX = 300 };

const char *suite_config, *suite_program;
static const char *server;
static const char *current = "";
static int failed;
static const char *skipped;

static int fails(const char *file, int line) {
    printf("# %s:%d\n", file, line);
    failed = 1;
    return 0;
}

int suite_code(grpc_error_t expected, grpc_error_t got, const char *call, const char *file, int line) {
    if (expected == got) return 1;
    printf("# %s gave %s (%s), expected", call, grpc_error_string(got), grpc_last_error_text_np());
    printf(" %s\n", grpc_error_string(expected));
    return fails(file, line);
}

int suite_true(int is_true, const char *what, const char *file, int line) {
    if (is_true) return 1;
    printf("# not so: %s\n", what);
    return fails(file, line);
}

int suite_equal(double expected, double got, const char *what, const char *file, int line) {
    if (expected == got || (isnan(expected) && isnan(got))) return 1;
    printf("# %s is %.17g, expected %.17g\n", what, got, expected);
    return fails(file, line);
}

int suite_text(const char *expected, const char *got, const char *what, const char *file, int line) {
    if (got != NULL && strcmp(expected, got) == 0) return 1;
    printf("# %s is \"%s\", expected \"%s\"\n", what, got == NULL ? "(null)" : got, expected);
    return fails(file, line);
}

void suite_skip(const char *why) { skipped = why; }

void suite_fill(double *values, int n, double value) {
    for (int i = 0; i < n; i++) values[i] = value;
}

int suite_is_all(const double *values, int n, double expected) {
    for (int i = 0; i < n; i++)
        if (values[i] != expected) return 0;
    return 1;
}

const char *suite_server(void) { return server; }

/* Runs in a signal handler, where only write() is safe. */
static void hangs(int signal) {
    static const char text[] = "\nBail out! this case hangs: ";
    (void)signal;
    if (write(1, text, sizeof text - 1) < 0 || write(1, current, strlen(current)) < 0) _exit(3);
    _exit(write(1, "\n", 1) < 0 ? 3 : 2);
}

static int run(const test_case *one, int number) {
    current = one->shows;
    failed = 0;
    skipped = NULL;
    alarm(CASE_SECONDS_MAX);
    one->run();
    alarm(0);
    /* Whether or not the case ended its session. */
    grpc_finalize();
    printf("%sok %d - %s%s%s\n", failed ? "not " : "", number, one->shows, skipped == NULL ? "" : " # SKIP ",
           skipped == NULL ? "" : skipped);
    fflush(stdout);
    return failed;
}

int main(int argc, char **argv) {
    const test_case *groups[] = {ogf_cases, session_cases, argument_cases, error_cases, stack_cases, thread_cases,
                                 kind_cases, ninfg_cases,  object_cases,  remote_cases,   shared_cases, data_cases,  placed_cases, map_cases,
                                 block_cases, local_cases, plan_cases, heuristic_cases, graph_cases, debug_cases,   random_cases};
    int count = 0, failures = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: suite CONFIGURATION SERVER [WORDS]\n");
        return 2;
    }
    suite_program = argv[0];
    suite_config = argv[1];
    server = argv[2];
    signal(SIGALRM, hangs);
    /* For files of servers, which offer this folder. */
    setenv("GRIDLOOM_FILES", ".", 0);
    for (size_t group = 0; group < sizeof groups / sizeof *groups; group++)
        for (const test_case *one = groups[group]; one->run != NULL; one++)
            if (argc < 4 || strstr(one->shows, argv[3]) != NULL) failures += run(one, ++count);
    printf("1..%d\n", count);
    return failures > 0 || count == 0;
}
