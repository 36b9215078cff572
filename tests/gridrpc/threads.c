/* Concurrency that threads may use (reference, 1.5): all functions at the same time, except initialize and finalize. */
#include "suite.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 8, CALLS = 200 };

/* A thread's share of the work; `wrong` is the line of the first failed check, or 0. */
typedef struct part {
    grpc_function_handle_t *shared;
    int number;
    int wrong;
} part;

/* Runs a thread for each part. Returns the line of the first failed check. */
static int run_all(void *(*body)(void *), grpc_function_handle_t *shared) {
    pthread_t threads[THREADS];
    part parts[THREADS];
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        parts[i] = (part){shared, i, 0};
        if (pthread_create(&threads[i], NULL, body, &parts[i]) != 0) return -1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (wrong == 0) wrong = parts[i].wrong;
    }
    return wrong;
}

#define MUST(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            own->wrong = __LINE__;                                                                                     \
            return NULL;                                                                                               \
        }                                                                                                              \
    } while (0)

static void *calls(void *argument) {
    part *own = argument;
    grpc_function_handle_t handle;
    for (int i = 0; i < CALLS; i++) {
        int x = own->number * CALLS + i, y = 0;
        MUST(grpc_function_handle_default(&handle, "gridrpc/add") == GRPC_NO_ERROR);
        MUST(grpc_call(i % 2 ? &handle : own->shared, x, &y) == GRPC_NO_ERROR && y == x + 1);
        MUST(grpc_function_handle_destruct(&handle) == GRPC_NO_ERROR);
    }
    return NULL;
}

static void *waits(void *argument) {
    part *own = argument;
    grpc_sessionid_t ids[CALLS], id;
    int y[CALLS] = {0};
    for (int i = 0; i < CALLS; i++) MUST(grpc_call_async(own->shared, &ids[i], i, &y[i]) == GRPC_NO_ERROR);
    for (int left = CALLS; left > CALLS / 2; left--) {
        MUST(grpc_wait_or(ids, (size_t)left, &id) == GRPC_NO_ERROR);
        for (int i = 0; i < left; i++)
            if (ids[i] == id) {
                ids[i] = ids[left - 1];
                break;
            }
    }
    MUST(grpc_wait_and(ids, CALLS / 2) == GRPC_NO_ERROR);
    for (int i = 0; i < CALLS; i++) MUST(y[i] == i + 1);
    return NULL;
}

static grpc_sessionid_t contended;
static int contended_result;
static atomic_int winners;

/* One of all threads gets the session; when the others return, its result is there. */
static void *contends(void *argument) {
    part *own = argument;
    grpc_error_t error = grpc_wait(contended);
    MUST(error == GRPC_NO_ERROR || error == GRPC_INVALID_SESSION_ID);
    MUST(contended_result == 2);
    atomic_fetch_add(&winners, error == GRPC_NO_ERROR);
    return NULL;
}

static void *fails_differently(void *argument) {
    part *own = argument;
    grpc_error_t last;
    for (int i = 0; i < CALLS; i++) {
        grpc_error_t expected = own->number % 2 ? GRPC_INVALID_SESSION_ID : GRPC_FUNCTION_NOT_FOUND;
        grpc_function_handle_t handle;
        if (own->number % 2)
            grpc_wait(GRPC_SESSIONID_VOID);
        else
            grpc_function_handle_default(&handle, "gridrpc/none");
        last = grpc_last_error_get_np();
        MUST(last == expected);
    }
    return NULL;
}

static void threads_call(void) {
    BEGIN();
    HANDLE(handle, "add");
    EQUAL(0, run_all(calls, &handle));
}

static void threads_wait(void) {
    BEGIN();
    HANDLE(handle, "add");
    EQUAL(0, run_all(waits, &handle));
}

static void threads_wait_for_one(void) {
    BEGIN();
    HANDLE(handle, "add");
    for (int round = 0; round < CALLS; round++) {
        contended_result = 0;
        atomic_store(&winners, 0);
        OK(grpc_call_async(&handle, &contended, 1, &contended_result));
        EQUAL(0, run_all(contends, &handle));
        EQUAL(1, atomic_load(&winners));
    }
}

static void threads_have_their_own_errors(void) {
    BEGIN();
    EQUAL(0, run_all(fails_differently, NULL));
}

/* Returns the signals that a thread of this process blocks. */
static unsigned long long blocked(const char *thread) {
    char name[300], line[200];
    unsigned long long mask = 0;
    FILE *file;
    snprintf(name, sizeof name, "/proc/self/task/%s/status", thread);
    if ((file = fopen(name, "r")) == NULL) return ~0ULL;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0) mask = strtoull(line + 7, NULL, 16);
    fclose(file);
    return mask;
}

/* True if the system has begun to remove a thread: it lists an ended thread for a moment longer. */
static int is_leaving(const char *thread) {
    enum { EXITING = 4 };
    char name[300], line[1024], *rest;
    unsigned flags = EXITING;
    FILE *file;
    snprintf(name, sizeof name, "/proc/self/task/%s/stat", thread);
    if ((file = fopen(name, "r")) == NULL) return 1;
    /* After its name: its state, five numbers, the flags. */
    if (fgets(line, sizeof line, file) != NULL && (rest = strrchr(line, ')')) != NULL)
        sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags);
    fclose(file);
    return (flags & EXITING) != 0;
}

/* Counts the threads, and those that accept one of a program's usual signals. */
static int count_threads(int *taking) {
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE};
    int count = 0;
    DIR *all = opendir("/proc/self/task");
    *taking = 0;
    if (all == NULL) return -1;
    for (struct dirent *thread; (thread = readdir(all)) != NULL;) {
        unsigned long long mask;
        int takes = 0;
        if (thread->d_name[0] == '.' || is_leaving(thread->d_name)) continue;
        count++;
        mask = blocked(thread->d_name);
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) takes |= !(mask >> (signals[i] - 1) & 1);
        *taking += takes;
    }
    closedir(all);
    return count;
}

/* The library's threads accept no signals, so that handlers run on the program's threads; and they end with
 * grpc_finalize. */
static void the_librarys_own_threads(void) {
    int taking, before, during, y = 0;
    grpc_sessionid_t id;
    before = count_threads(&taking);
    EQUAL(before, taking);
    BEGIN();
    HANDLE(add, "add");
    OK(grpc_call_async(&add, &id, 1, &y));
    OK(grpc_wait(id));
    during = count_threads(&taking);
    CHECK(during > before || getenv("GRIDLOOM_SIMULATE") != NULL);
    EQUAL(before, taking);
    OK(grpc_finalize());
    EQUAL(before, count_threads(&taking));
    EQUAL(before, taking);
}

const test_case thread_cases[] = {
    {"1.5: the library's own threads", the_librarys_own_threads},
    {"1.5: threads call, through one handle and through their own", threads_call},
    {"1.5: threads wait for their own sessions", threads_wait},
    {"1.5: threads wait for the same session, and one gets it", threads_wait_for_one},
    {"1.5: threads have their own last error", threads_have_their_own_errors},
    {NULL, NULL},
};
