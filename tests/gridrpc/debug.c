/* The debug mode of blocks: memory whose value is elsewhere has a pattern, and reads of whole pages of it are
 * detected. */
#include "suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Numbers of doubles: more than four pages, and less than one. */
enum { LARGE = 4096, SMALL = 100 };

/* Returns the pattern of memory whose value is elsewhere. */
static double pattern(void) {
    double value;
    memset(&value, 0xFB, sizeof value);
    return value;
}

/* Under valgrind memory is only filled: a program does not continue precisely at the faulting instruction. */
static int finds_reads(void) {
    const char *loaded = getenv("LD_PRELOAD");
    return loaded == NULL || strstr(loaded, "/vgpreload_") == NULL;
}

/* Returns memory of whole pages. */
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
    suite_fill(x, LARGE, 1);                                                                                                 \
    suite_fill(y, LARGE, 10);                                                                                                \
    suite_fill(z, LARGE, 100);                                                                                               \
    setenv("GRIDLOOM_GRPC_DEBUG", "1", 1);                                                                             \
    grpc_error_t began = grpc_initialize(suite_config);                                                                \
    unsetenv("GRIDLOOM_GRPC_DEBUG");                                                                                   \
    OK(began);                                                                                                         \
    HANDLE(axpy, "axpy");                                                                                              \
    HANDLE(sum, "sum");                                                                                                \
    (void)sum

/* A block's error and report name the result that was read, the call that made it, and what the program should have
 * declared. */
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
    CHECK(suite_is_all(y, LARGE, 11));
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

/* A value that the program writes without declaring it is its own, as it would be without the debug mode. */
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
        grpc_local() suite_fill(y, LARGE, 5);
        grpc_call(&axpy, LARGE, 1.0, y, z);
    }
    OK(grpc_map_error_np());
    CHECK(suite_is_all(y, LARGE, 5));
    CHECK(suite_is_all(z, LARGE, 105));
}

/* Memory of less than a page, and pages that other data share, are filled only. */
static void pages_with_other_data_are_left_alone(void) {
    static double small[SMALL];
    double before = 0, first = 0, last = 0, after = 0;
    BUFFERS();
    suite_fill(small, SMALL, 1);
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
    CHECK(suite_is_all(small, SMALL, 2));
    CHECK(suite_is_all(y + 2, LARGE - 4, 11));
}

/* Parts of one result, with another result between them. */
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
    CHECK(suite_is_all(y, LARGE / 2, 11));
    EQUAL(LARGE / 4 - 1, y[LARGE / 2 + LARGE / 4 - 1]);
    CHECK(suite_is_all(y + LARGE / 2 + LARGE / 4, LARGE / 4, 11));
    if (!finds_reads()) return;
    EQUAL(11 + 11 + 7, seen);
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "(call 1 of the block)") != NULL);
    CHECK(strstr(grpc_last_error_text_np(), "(call 2 of the block)") != NULL);
}

/* A thread's part of a result, and a pipe. */
typedef struct reader {
    const double *values;
    int n, ends[2], is_right;
    double first;
} reader;

enum { READERS = 4, HUGE_PART = 1 << 19 };

/* A system call reports closed memory without a fault: the first value that it reads there must be the right one. */
static void *reads_when_open(void *data) {
    reader *own = data;
    const double *last = own->values + own->n - 1;
    double seen = 0;
    while (write(own->ends[1], last, sizeof *last) != (ssize_t)sizeof *last) sched_yield();
    own->is_right = read(own->ends[0], &seen, sizeof seen) == (ssize_t)sizeof seen && seen == own->first + own->n - 1;
    for (int i = 0; i < own->n; i++) own->is_right &= own->values[i] == own->first + i;
    return NULL;
}

static void *reads_at_once(void *data) {
    reader *own = data;
    own->is_right = 1;
    for (int i = 0; i < own->n; i++) own->is_right &= own->values[i] == own->first + i;
    return NULL;
}

/* Each thread sees the value or waits for it, whichever reads first. */
static void threads_read_values(void) {
    reader readers[READERS];
    pthread_t threads[READERS];
    void *made = NULL;
    BUFFERS();
    HANDLE(steps, "steps");
    CHECK(posix_memalign(&made, (size_t)sysconf(_SC_PAGESIZE), (size_t)READERS * HUGE_PART * sizeof(double)) == 0);
    double *all = made;
    for (int k = 0; k < READERS; k++) {
        readers[k] = (reader){all + k * HUGE_PART, HUGE_PART, {-1, -1}, 0, k * HUGE_PART};
        CHECK(pipe(readers[k].ends) == 0);
    }
    grpc_map("auto") {
        grpc_call(&steps, 1, READERS * HUGE_PART, all);
        grpc_local() {
            if (!finds_reads()) OK(grpc_fetch(all));
            for (int k = 0; k < READERS; k++)
                pthread_create(&threads[k], NULL, k == READERS - 1 ? reads_when_open : reads_at_once, &readers[k]);
            for (int k = 0; k < READERS; k++) pthread_join(threads[k], NULL);
        }
    }
    for (int k = 0; k < READERS; k++) {
        CHECK(close(readers[k].ends[0]) == 0 && close(readers[k].ends[1]) == 0);
        CHECK(readers[k].is_right);
    }
    free(made);
    if (finds_reads()) EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
}

/* It cannot be written while it is closed: other threads may have read the pattern. */
static void shared_memory_is_told(void) {
    BUFFERS();
    FILE *file = tmpfile();
    CHECK(file != NULL && ftruncate(fileno(file), LARGE * sizeof(double)) == 0);
    y = mmap(NULL, LARGE * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    fclose(file);
    CHECK(y != MAP_FAILED);
    suite_fill(y, LARGE, 10);
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() seen = y[600];
    }
    int is_right = suite_is_all(y, LARGE, 11);
    munmap(y, LARGE * sizeof(double));
    CHECK(is_right);
    if (!finds_reads()) return;
    EQUAL(11, seen);
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "byte 4800 of 32768"));
    CHECK(strstr(grpc_last_error_text_np(), "opened before it was written"));
}

static void tell(int *round, double *value) { (void)round, (void)value; }

static void ask(double *factor, int *calls) { *factor = 1, ++*calls; }

/* Part of a fetched result that calls outside of the plan should have overwritten, but did not. */
static void parts_that_are_put_back_are_brought(void) {
    grpc_sessionid_t id;
    BUFFERS();
    HANDLE(ends, "report");
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_call(&ends, 3, -1, y + 7, tell, ask);
        OK(grpc_call_async(&ends, &id, 3, -1, y + LARGE / 2, tell, ask));
        grpc_local() seen = y[LARGE - 1];
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    CHECK(suite_is_all(y, LARGE, 11));
    if (finds_reads()) EQUAL(11, seen);
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
    CHECK(suite_is_all(y, LARGE, 10));
    CHECK(suite_is_all(z, LARGE, 100));
}

/* The memory is freed, the block is left by return, or its session has ended: nothing remains closed. */
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
    CHECK(suite_is_all(y, LARGE, 11));
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_call(&axpy, LARGE, 1.0, x, z);
        OK(grpc_forget_np(z));
        grpc_local() suite_fill(z, LARGE, 3);
    }
    OK(grpc_map_error_np());
    CHECK(suite_is_all(z, LARGE, 3));
    /* It stays remote, and its memory is filled. */
    EQUAL(pattern(), y[LARGE / 2]);
    OK(grpc_fetch(y));
    CHECK(suite_is_all(y, LARGE, 12));
}

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    _exit(number == SIGSEGV && info->si_addr == (void *)24 ? 42 : 43);
}

/* In a child process: reads closed memory, and then an invalid address. */
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

/* A fault on a page that was opened before the handler looked. */
static void faults_late(double *value) {
    struct sigaction action;
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGSEGV;
    info.si_code = SEGV_ACCERR;
    info.si_addr = value;
    if (sigaction(SIGSEGV, NULL, &action) == 0 && (action.sa_flags & SA_SIGINFO) != 0)
        action.sa_sigaction(SIGSEGV, &info, NULL);
}

static void late_faults_are_not_passed_on(void) {
    struct sigaction action;
    BUFFERS();
    for (int round = 0; round < 3 && finds_reads(); round++) {
        grpc_map("auto") {
            grpc_call(&axpy, LARGE, 1.0, x, y);
            grpc_local() {
                seen = y[600];
                faults_late(y + 600);
            }
        }
        EQUAL(11 + round, seen);
    }
    CHECK(sigaction(SIGSEGV, NULL, &action) == 0);
    CHECK(!finds_reads() || (action.sa_flags & SA_SIGINFO) != 0);
}

/* Returns whether the thread that handles faults blocks all other signals; -1 if there is no such thread. */
static int takes_no_signals(void) {
    char path[300], line[300] = "";
    DIR *threads = opendir("/proc/self/task");
    int takes_none = -1;
    for (struct dirent *one; threads != NULL && (one = readdir(threads)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/task/%.200s/status", one->d_name);
        FILE *file = fopen(path, "r");
        int is_own = 0;
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            unsigned long long blocked;
            is_own |= strncmp(line, "Name:\tgridloom-guard", 20) == 0;
            if (!is_own || sscanf(line, "SigBlk: %llx", &blocked) != 1) continue;
            const unsigned long long faults = 1ULL << (SIGSEGV - 1) | 1ULL << (SIGBUS - 1);
            takes_none = (blocked & 1ULL << (SIGALRM - 1)) != 0 && (blocked & faults) == 0;
        }
        if (file != NULL) fclose(file);
    }
    if (threads != NULL) closedir(threads);
    return takes_none;
}

/* Returns whether a block's read is detected, and the value is right. */
static int finds_a_read(double *x, double *y) {
    grpc_function_handle_t axpy;
    double seen = 0;
    setenv("GRIDLOOM_GRPC_DEBUG", "1", 1);
    if (grpc_initialize(suite_config) != GRPC_NO_ERROR) return 0;
    if (grpc_function_handle_default(&axpy, "gridrpc/axpy") != GRPC_NO_ERROR) return 0;
    suite_fill(y, LARGE, 10);
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() seen = y[600];
    }
    int is_told = grpc_map_error_np() == GRPC_MAP_DIFFERS_NP && seen == 11;
    return (is_told || !finds_reads()) && suite_is_all(y, LARGE, 11) && grpc_finalize() == GRPC_NO_ERROR;
}

/* A child's own thread handles its faults. It ends by a signal, so that tools which check memory look at its parent
 * only. */
static void a_child_has_its_own(void) {
    int ends[2];
    char answer = 'n';
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, LARGE, 1.0, x, y);
        grpc_local() seen = y[600];
    }
    if (finds_reads()) EQUAL(1, takes_no_signals());
    OK(grpc_finalize());
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (finds_a_read(x, y) && (!finds_reads() || takes_no_signals() == 1)) answer = 'y';
        while (write(ends[1], &answer, 1) == 1) kill(getpid(), SIGKILL);
    }
    close(ends[1]);
    CHECK(child > 0 && read(ends[0], &answer, 1) == 1 && waitpid(child, NULL, 0) == child);
    close(ends[0]);
    EQUAL('y', answer);
}

const test_case debug_cases[] = {
    {"debug: reads of what is elsewhere are told, and right", reads_are_told},
    {"debug: reads that are said are not told", reads_that_are_said_are_not_told},
    {"debug: writes into what is elsewhere are told", writes_are_told},
    {"debug: writes that are said are not told", writes_that_are_said_are_not_told},
    {"debug: pages with other data are left alone", pages_with_other_data_are_left_alone},
    {"debug: parts of a result are brought together", parts_are_brought_together},
    {"debug: threads read values", threads_read_values},
    {"debug: shared memory is told", shared_memory_is_told},
    {"debug: parts that are put back are brought", parts_that_are_put_back_are_brought},
    {"debug: calls that fail change nothing", failed_calls_change_nothing},
    {"debug: nothing stays closed", nothing_stays_closed},
    {"debug: other faults are not touched", other_faults_are_not_touched},
    {"debug: late faults are not passed on", late_faults_are_not_passed_on},
    {"debug: a child has its own session and thread", a_child_has_its_own},
    {NULL, NULL},
};
