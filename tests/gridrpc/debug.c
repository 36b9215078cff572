/* The debug mode of blocks: memory whose value is elsewhere shows it, and reads of whole pages of it are found out. */
#include "suite.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Of doubles: of more than four pages, and of less than one. */
enum { LARGE = 4096, SMALL = 100 };

/* Memory whose value is elsewhere. */
static double pattern(void) {
    double value;
    memset(&value, 0xFB, sizeof value);
    return value;
}

static int is_all(const double *values, int n, double expected) {
    for (int i = 0; i < n; i++)
        if (values[i] != expected) return 0;
    return 1;
}

static void fill(double *values, int n, double value) {
    for (int i = 0; i < n; i++) values[i] = value;
}

/* Under valgrind memory is filled, and that is all: a program does not go on precisely where a fault was. */
static int finds_reads(void) {
    const char *loaded = getenv("LD_PRELOAD");
    return loaded == NULL || strstr(loaded, "/vgpreload_") == NULL;
}

/* Whole pages. */
static double *pages(void) {
    static double *memory;
    void *made = NULL;
    if (memory == NULL && posix_memalign(&made, (size_t)sysconf(_SC_PAGESIZE), LARGE * sizeof(double)) == 0) memory = made;
    return memory;
}

#define BUFFERS()                                                                                                      \
    static double x[LARGE], z[LARGE];                                                                                  \
    double *y = pages(), total = -1, seen = 0;                                                                         \
    (void)total, (void)seen;                                                                                           \
    CHECK(y != NULL);                                                                                                  \
    fill(x, LARGE, 1);                                                                                                 \
    fill(y, LARGE, 10);                                                                                                \
    fill(z, LARGE, 100);                                                                                               \
    setenv("GRIDLOOM_GRPC_DEBUG", "1", 1);                                                                             \
    grpc_error_t began = grpc_initialize(suite_config);                                                                \
    unsetenv("GRIDLOOM_GRPC_DEBUG");                                                                                   \
    OK(began);                                                                                                         \
    HANDLE(axpy, "axpy");                                                                                              \
    HANDLE(sum, "sum");                                                                                                \
    (void)sum

/* A block's error and report say which result was read, which call made it, and what should have been said. */
static void reads_are_told(void) {
    char text[8192] = "";
    double again = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, z);
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() {
            seen = y[600];
            again = y[LARGE - 1];
        }
        grpc_call(&sum, (long)LARGE, y, &total);
    }
    if (!finds_reads()) return;
    EQUAL(11, seen);
    EQUAL(11, again);
    EQUAL(11.0 * LARGE, total);
    CHECK(is_all(y, LARGE, 11));
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "the program reads result 'y' of 'gridrpc/axpy' (call 2 of the block)"));
    CHECK(strstr(grpc_last_error_text_np(), "byte 4800 of 32768"));
    CHECK(strstr(grpc_last_error_text_np(), "grpc_local_reads"));
    /* Once for each result. */
    CHECK(strstr(strstr(grpc_last_error_text_np(), "the program") + 1, "the program") == NULL);
    OK(grpc_map_report_np("debug.txt"));
    FILE *file = fopen("debug.txt", "r");
    CHECK(file != NULL);
    CHECK(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    remove("debug.txt");
    CHECK(strstr(text, "3 calls on") != NULL && strstr(text, "the program reads result 'y'") != NULL);
}

static void reads_that_are_said_are_not_told(void) {
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local(grpc_local_reads(y)) seen = y[600];
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_call(&axpy, LARGE / 2, 1.0, x, y + LARGE / 4);
        OK(grpc_fetch(y + LARGE / 2));
        grpc_local() seen += y[LARGE / 2];
    }
    OK(grpc_map_error_np());
    EQUAL(11 + 13, seen);
    EQUAL(12, y[0]);
    EQUAL(13, y[LARGE / 2]);
}

/* What the program writes without a word is its own value, as it would be without the debug mode. */
static void writes_are_told(void) {
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() y[700] = 1000;
        grpc_call(&axpy, LARGE, 1.0, y, z);
    }
    if (!finds_reads()) return;
    EQUAL(1000, y[700]);
    EQUAL(1100, z[700]);
    EQUAL(11, y[701]);
    EQUAL(111, z[701]);
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "result 'y' of 'gridrpc/axpy' (call 1 of the block)"));
}

static void writes_that_are_said_are_not_told(void) {
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local_writes(y);
        grpc_local() fill(y, LARGE, 5);
        grpc_call(&axpy, LARGE, 1.0, y, z);
    }
    OK(grpc_map_error_np());
    CHECK(is_all(y, LARGE, 5));
    CHECK(is_all(z, LARGE, 105));
}

/* Less than a page, and pages that others have a share in: they are filled only. */
static void pages_with_other_data_are_left_alone(void) {
    double small[SMALL];
    double before = 0, first = 0, last = 0, after = 0;
    BUFFERS();
    fill(small, SMALL, 1);
    grpc_map("auto") {
        grpc_call(&axpy, SMALL, 1.0, x, small);
        grpc_call(&axpy, LARGE - 4, 1.0, x, y + 2);
        grpc_local() {
            seen = small[SMALL / 2];
            before = y[1];
            first = y[2];
            last = y[LARGE - 3];
            after = y[LARGE - 2];
        }
    }
    OK(grpc_map_error_np());
    EQUAL(pattern(), seen);
    EQUAL(10, before);
    EQUAL(pattern(), first);
    EQUAL(pattern(), last);
    EQUAL(10, after);
    CHECK(is_all(small, SMALL, 2));
    CHECK(is_all(y + 2, LARGE - 4, 11));
}

/* Parts of one result, between which another lies. */
static void parts_are_brought_together(void) {
    BUFFERS();
    HANDLE(steps, "steps");
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_call(&steps, 1, LARGE / 4, y + LARGE / 2);
        grpc_local() {
            seen = y[LARGE - 1];
            seen += y[0];
            seen += y[LARGE / 2 + 7];
        }
    }
    CHECK(is_all(y, LARGE / 2, 11));
    EQUAL(LARGE / 4 - 1, y[LARGE / 2 + LARGE / 4 - 1]);
    CHECK(is_all(y + LARGE / 2 + LARGE / 4, LARGE / 4, 11));
    if (!finds_reads()) return;
    EQUAL(11 + 11 + 7, seen);
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "(call 1 of the block)") != NULL);
    CHECK(strstr(grpc_last_error_text_np(), "(call 2 of the block)") != NULL);
}

/* A value that was in memory before it was filled. */
static void failed_calls_change_nothing(void) {
    BUFFERS();
    HANDLE(refuses, "refuses");
    grpc_map("auto") {
        grpc_call(&refuses, LARGE, y);
        grpc_call(&refuses, SMALL, z + 5);
        grpc_local() seen = y[0];
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    EQUAL(pattern(), seen);
    CHECK(is_all(y, LARGE, 10));
    CHECK(is_all(z, LARGE, 100));
}

/* The memory is given up, left by return, or its block's session has ended: nothing is closed any more. */
static double leaves(grpc_function_handle_t *axpy, double *x, double *y) {
    grpc_map("auto") {
        grpc_call(axpy, LARGE, 1.0, x, y);
        return 1;
    }
    return 0;
}

static void nothing_stays_closed(void) {
    BUFFERS();
    EQUAL(1, leaves(&axpy, x, y));
    CHECK(is_all(y, LARGE, 11));
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_call(&axpy, LARGE, 1.0, x, z);
        OK(grpc_forget_np(z));
        grpc_local() fill(z, LARGE, 3);
    }
    OK(grpc_map_error_np());
    CHECK(is_all(z, LARGE, 3));
    /* It stays remote, and is filled. */
    EQUAL(pattern(), y[LARGE / 2]);
    OK(grpc_fetch(y));
    CHECK(is_all(y, LARGE, 12));
}

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    _exit(number == SIGSEGV && info->si_addr == (void *)24 ? 42 : 43);
}

/* In a process of its own: reads what is closed, and then what is no memory. */
static void has_a_fault(int has_handler) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    if (!has_handler) action.sa_handler = SIG_DFL, action.sa_flags = 0;
    sigaction(SIGSEGV, &action, NULL);
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() {
            if (finds_reads() && y[600] != 11) _exit(1);
            volatile int *nowhere = (int *)(uintptr_t)24;
            seen = *nowhere;
        }
    }
    _exit(2);
}

static int ends_with(const char *has_handler) {
    char *const command[] = {"suite", (char *)suite_config, (char *)suite_server(), "debug: other faults", NULL};
    int status = 0;
    setenv("GRIDRPC_FAULT", has_handler, 1);
    pid_t child = fork();
    if (child == 0) {
        execve(suite_program, command, environ);
        _exit(127);
    }
    unsetenv("GRIDRPC_FAULT");
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static void other_faults_are_not_touched(void) {
    const char *fault = getenv("GRIDRPC_FAULT");
    if (fault != NULL) {
        has_a_fault(fault[0] == '1');
        return;
    }
    int status = ends_with("1");
    CHECK(WIFEXITED(status));
    EQUAL(42, WEXITSTATUS(status));
    status = ends_with("0");
    CHECK(WIFSIGNALED(status));
    EQUAL(SIGSEGV, WTERMSIG(status));
}

const test_case debug_cases[] = {
    {"debug: reads of what is elsewhere are told, and right", reads_are_told},
    {"debug: reads that are said are not told", reads_that_are_said_are_not_told},
    {"debug: writes into what is elsewhere are told", writes_are_told},
    {"debug: writes that are said are not told", writes_that_are_said_are_not_told},
    {"debug: pages with other data are left alone", pages_with_other_data_are_left_alone},
    {"debug: parts of a result are brought together", parts_are_brought_together},
    {"debug: calls that fail change nothing", failed_calls_change_nothing},
    {"debug: nothing stays closed", nothing_stays_closed},
    {"debug: other faults are not touched", other_faults_are_not_touched},
    {NULL, NULL},
};
