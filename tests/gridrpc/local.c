/* Blocks as the papers print them: the program reads results in grpc_local, and passes scalars on by value, without
 * having declared it. */
#include "suite.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Numbers of doubles: many pages, and less than one. */
enum { LARGE = 40000, SMALL = 100 };

#define BUFFERS()                                                                                                      \
    static double x[LARGE], y[LARGE];                                                                                  \
    double total = -1;                                                                                                 \
    (void)total;                                                                                                       \
    suite_fill(x, LARGE, 1);                                                                                           \
    suite_fill(y, LARGE, 10);                                                                                          \
    BEGIN();                                                                                                           \
    HANDLE(axpy, "axpy");                                                                                              \
    HANDLE(sum, "sum");                                                                                                \
    (void)sum

/* The same array as a variable of the program, from malloc, at an address inside it, and on the stack. */
static void any_memory_is_read(void) {
    double local[LARGE];
    BUFFERS();
    double *heap = malloc(2 * LARGE * sizeof *heap), *small = malloc(SMALL * sizeof *small);
    CHECK(heap != NULL && small != NULL);
    double *places[] = {y, heap, heap + LARGE - 7, local, small};
    for (int i = 0; i < 5; i++) {
        double *at = places[i], first = 0, middle = 0, last = 0;
        int n = at == small ? SMALL : LARGE;
        suite_fill(at, n, 10);
        grpc_map("auto") {
            grpc_call(&axpy, n, 1.0, x, at);
            grpc_local() first = at[0], middle = at[n / 2], last = at[n - 1];
            grpc_call(&axpy, n, 1.0, x, at);
        }
        OK(grpc_map_error_np());
        EQUAL(11, first);
        EQUAL(11, middle);
        EQUAL(11, last);
        CHECK(suite_is_all(at, n, 12));
    }
    free(heap);
    free(small);
}

/* Each end of an array, alone: nothing else has opened its page. */
static void both_ends_are_read(void) {
    BUFFERS();
    for (int end = 0; end < 2; end++) {
        double seen = 0, *at = &y[end * (LARGE - 1)];
        suite_fill(y, LARGE, 10);
        grpc_map("auto") {
            grpc_call(&axpy, LARGE, 1.0, x, y);
            grpc_local() seen = *at;
        }
        OK(grpc_map_error_np());
        EQUAL(11, seen);
    }
}

/* Two results and other data in the same pages: reading one of them leaves the other to be fetched. */
static void neighbours_share_pages(void) {
    static struct {
        double before[3], a[LARGE - 1], between, b[LARGE + 5], after[3];
    } all;
    double a = 0, b = 0, other = 0;
    BUFFERS();
    for (int order = 0; order < 3; order++) {
        suite_fill(all.a, LARGE - 1, 10);
        suite_fill(all.b, LARGE, 20);
        all.between = 5;
        grpc_map("auto") {
            grpc_call(&axpy, LARGE - 1, 1.0, x, all.a);
            grpc_call(&axpy, LARGE, 1.0, x, all.b);
            grpc_local() {
                if (order == 0) a = all.a[0], b = all.b[0];
                if (order == 1) b = all.b[LARGE - 1], a = all.a[LARGE - 2];
                if (order == 2) other = all.between, all.between = 6, b = all.b[0], a = all.a[LARGE - 2];
            }
        }
        OK(grpc_map_error_np());
        EQUAL(11, a);
        EQUAL(21, b);
        CHECK(suite_is_all(all.a, LARGE - 1, 11));
        CHECK(suite_is_all(all.b, LARGE, 21));
        EQUAL(order == 2 ? 6 : 5, all.between);
        a = b = 0;
    }
    EQUAL(5, other);
}

static void waited_sessions_are_read(void) {
    grpc_sessionid_t ids[2];
    double small[SMALL], seen = 0, of_small = 0;
    BUFFERS();
    suite_fill(small, SMALL, 10);
    grpc_map("auto") {
        OK(grpc_call_async(&axpy, &ids[0], LARGE, 1.0, x, y));
        OK(grpc_call_async(&axpy, &ids[1], SMALL, 1.0, x, small));
        OK(grpc_wait_and(ids, 2));
        grpc_local() seen = y[1000], of_small = small[1];
    }
    OK(grpc_map_error_np());
    EQUAL(11, seen);
    EQUAL(11, of_small);
}

/* Unannounced changes are the program's, and the rest of the array is the result. */
static void changes_are_kept(void) {
    double before = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() {
            y[700] = 1000;
            before = y[701];
        }
        grpc_call(&sum, (long)LARGE, y, &total);
    }
    EQUAL(11, before);
    EQUAL(1000, y[700]);
    EQUAL(11.0 * (LARGE - 1) + 1000, total);
}

/* A result of a result: the value, and a branch that depends on it. */
static void scalars_are_passed_on(void) {
    int is_large = 0;
    grpc_sessionid_t id;
    BUFFERS();
    total = 3;
    grpc_map("auto") {
        grpc_call(&sum, (long)SMALL, x, &total);
        grpc_call(&axpy, SMALL, total, x, y);
        grpc_call_async(&sum, &id, (long)SMALL, y, &total);
        grpc_wait(id);
        if (total > 100) is_large = 1;
        grpc_local() if (total > 100) is_large |= 2;
    }
    EQUAL(3, is_large);
    EQUAL(SMALL * 110.0, total);
    EQUAL(110, y[0]);
    /* The plan was made for another value. */
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "'alpha'") != NULL);
}

static double sum_of(grpc_function_handle_t *sum, int n, const double *x) {
    double total = -1;
    grpc_call(sum, (long)n, x, &total);
    return total;
}

static double first_of(grpc_function_handle_t *axpy, const double *x) {
    double y[SMALL];
    grpc_sessionid_t id;
    suite_fill(y, SMALL, 10);
    grpc_call_async(axpy, &id, SMALL, 1.0, x, y);
    grpc_wait(id);
    return y[0] + y[SMALL - 1];
}

static void functions_have_results(void) {
    double sums[2] = {0, 0}, first = 0;
    BUFFERS();
    grpc_map("auto") {
        sums[0] = sum_of(&sum, 10, x);
        first = first_of(&axpy, x);
        sums[1] = sum_of(&sum, 20, x);
        grpc_call(&axpy, SMALL, 1.0, x, y);
    }
    OK(grpc_map_error_np());
    EQUAL(10, sums[0]);
    EQUAL(20, sums[1]);
    EQUAL(22, first);
    EQUAL(11, y[0]);
}

__attribute__((noinline)) static void starts(grpc_function_handle_t *axpy, const double *x) {
    double y[SMALL];
    grpc_sessionid_t id;
    suite_fill(y, SMALL, 10);
    grpc_call_async(axpy, &id, SMALL, 1.0, x, y);
}

/* A function that has returned has no memory for results. */
static void memory_that_is_gone_is_refused(void) {
    BUFFERS();
    grpc_map("auto") {
        starts(&axpy, x);
        grpc_call(&axpy, LARGE, 1.0, x, y);
    }
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "result 'y' of 'gridrpc/axpy' (call 1 of the block)") != NULL);
    CHECK(strstr(grpc_last_error_text_np(), "a function that had returned") != NULL);
    CHECK(suite_is_all(y, LARGE, 11));
    EXPECT(GRPC_NO_ERROR, grpc_wait_all());
}

static jmp_buf out;

__attribute__((noinline)) static void leaves(grpc_function_handle_t *axpy, double *x, double *y, int phase) {
    grpc_map("auto") {
        grpc_call(axpy, LARGE, 1.0, x, y);
        if (grpc_map_phase_np() == phase) longjmp(out, 1);
    }
}

/* After a jump out of a block, in either of its runs, calls are made again. */
static void jumps_are_noticed(void) {
    BUFFERS();
    for (int phase = 1; phase <= 2; phase++) {
        suite_fill(y, LARGE, 10);
        if (setjmp(out) == 0) leaves(&axpy, x, y, phase);
        suite_fill(y, LARGE, 10);
        OK(grpc_call(&axpy, LARGE, 5.0, x, y));
        CHECK(suite_is_all(y, LARGE, 15));
        EQUAL(0, grpc_map_phase_np());
        EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
        CHECK(strstr(grpc_last_error_text_np(), "was left by longjmp") != NULL);
        CHECK(strstr(grpc_last_error_text_np(), "local.c:") != NULL);
        grpc_map("auto") grpc_call(&axpy, LARGE, 1.0, x, y);
        OK(grpc_map_error_np());
        CHECK(suite_is_all(y, LARGE, 16));
    }
}

/* The system writes a result to a file, and reads a file into memory that a result belongs to. */
static void the_system_reads_results(void) {
    double back[4] = {0, 0, 0, 0}, rest = 0;
    const size_t bytes = LARGE * sizeof(double);
    BUFFERS();
    remove("local.bin");
    for (int how = 0; how < 2; how++) {
        long written = 0;
        suite_fill(y, LARGE, 10 + how);
        grpc_map("auto") {
            grpc_call(&axpy, LARGE, 1.0, x, y);
            grpc_local() {
                FILE *file = how == 0 ? fopen("local.bin", "wb") : NULL;
                int number = how == 1 ? open("local.bin", O_WRONLY | O_TRUNC) : -1;
                if (file != NULL) written = (long)fwrite(y, 1, bytes, file);
                if (file != NULL) fclose(file);
                if (number >= 0) written = (long)write(number, y, bytes);
                if (number >= 0) close(number);
            }
        }
        OK(grpc_map_error_np());
        EQUAL(bytes, written);
        FILE *file = fopen("local.bin", "rb");
        CHECK(file != NULL && fread(back, sizeof *back, 4, file) == 4);
        fclose(file);
        CHECK(suite_is_all(back, 4, 11 + how));
    }
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() {
            int number = open("local.bin", O_RDONLY);
            if (number >= 0 && read(number, y, 4 * sizeof *y) > 0) rest = y[4];
            if (number >= 0) close(number);
        }
    }
    CHECK(suite_is_all(y, 4, 12));
    EQUAL(13, rest);
    remove("local.bin");
}

/* A child sees the memory that its parent would see. It ends by a signal, so that tools which check memory look at its parent only. */
static void children_see_results(void) {
    int status = -1;
    BUFFERS();
    fflush(stdout);
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() {
            pid_t child = fork();
            if (child == 0) kill(getpid(), y[1000] == 11 && y[LARGE - 1] == 11 ? SIGKILL : SIGTERM);
            if (child > 0) waitpid(child, &status, 0);
        }
    }
    OK(grpc_map_error_np());
    CHECK(WIFSIGNALED(status));
    EQUAL(SIGKILL, WTERMSIG(status));
}

/* A call that fails leaves the value from before, for grpc_local too. */
static void failed_calls_leave_the_value(void) {
    double seen = 0;
    BUFFERS();
    HANDLE(refuses, "refuses");
    grpc_map("auto") {
        grpc_call(&refuses, LARGE, y);
        grpc_local() seen = y[1000];
    }
    CHECK(grpc_map_error_np() != GRPC_NO_ERROR);
    EQUAL(10, seen);
    CHECK(suite_is_all(y, LARGE, 10));
}

/* A loop that waits for a result never ends while calls are discovered: it is named. */
static void endless_loops_are_named(void) {
    char text[2048] = "";
    int calls = 0;
    BUFFERS();
    fflush(stderr);
    int own = dup(2), file = open("local.txt", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(own >= 0 && file >= 0 && dup2(file, 2) == 2);
    grpc_describe("endless") {
        do {
            grpc_call(&sum, (long)1, x, &total);
        } while (total < 10 && ++calls < 10001);
    }
    dup2(own, 2);
    close(own);
    CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    remove("local.txt");
    CHECK(strstr(text, "'sum' of 'gridrpc/sum' at 0x") != NULL && strstr(text, "local.c:") != NULL);
    CHECK(strstr(text, "never ends") != NULL);
}

/* The debug mode reports memory that moves between the two runs of a block. */
static void moved_memory_is_told(void) {
    double *held[2] = {NULL, NULL};
    int runs = 0;
    static double x[SMALL];
    suite_fill(x, SMALL, 1);
    setenv("GRIDLOOM_GRPC_DEBUG", "1", 1);
    grpc_error_t began = grpc_initialize(suite_config);
    unsetenv("GRIDLOOM_GRPC_DEBUG");
    OK(began);
    HANDLE(axpy, "axpy");
    grpc_map("auto") {
        double *y = held[runs] = malloc(SMALL * sizeof *y);
        suite_fill(y, SMALL, 10);
        grpc_call(&axpy, SMALL, 1.0, x, y);
        runs++;
    }
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "argument 'y' of 'gridrpc/axpy' (call 1 of the block) is at") != NULL);
    CHECK(suite_is_all(held[1], SMALL, 11));
    free(held[0]);
    free(held[1]);
}

const test_case local_cases[] = {
    {"local: results in any memory are read", any_memory_is_read},
    {"local: both ends of a result are read", both_ends_are_read},
    {"local: results share pages with each other and with other data", neighbours_share_pages},
    {"local: results of sessions that were waited for are read", waited_sessions_are_read},
    {"local: changes that were not declared are kept", changes_are_kept},
    {"local: scalars are passed on by value", scalars_are_passed_on},
    {"local: functions that the block calls have results in their variables", functions_have_results},
    {"local: memory of a function that has returned is refused", memory_that_is_gone_is_refused},
    {"local: a block that is left by longjmp has ended", jumps_are_noticed},
    {"local: the system reads results and writes over them", the_system_reads_results},
    {"local: children see results", children_see_results},
    {"local: a call that fails leaves the value from before", failed_calls_leave_the_value},
    {"local: a loop that waits for a result is named", endless_loops_are_named},
    {"local: the debug mode reports memory that has moved", moved_memory_is_told},
    {NULL, NULL},
};
