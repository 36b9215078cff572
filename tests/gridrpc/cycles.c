/* Sessions that begin and end many times, and many calls in one session: checks that they leave nothing behind.
 *
 *   cycles SESSIONS CALLS [LEAK]
 *
 * The first third fills caches. After it, neither memory nor descriptors nor threads may grow with the number of
 * rounds. Some resources are released in the background, so a small surplus does not count as growth. Memory is
 * counted by the allocator, to the byte, if it supports this; LEAK bytes per round are leaked on purpose, to check
 * that the test detects it. */
#define _GNU_SOURCE
#include <dirent.h>
#include "../../examples/gridrpc/example.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Allowed growth: allocated bytes per round, and memory that the system has assigned permanently; descriptors and
 * threads of connections that end. */
enum { SLACK_BYTES = 256, SLACK_KIB = 4096, SLACK_FILES = 64, SLACK_THREADS = 32, SMALLEST = 100 };

static grpc_function_handle_t shared, wrong;
static size_t leak;
static void *volatile lost;

/* A session with a call that waits, some that do not, one that fails, and one that nobody waits for. */
static void once(void) {
    grpc_function_handle_t add, bad, scratch;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(2);
    grpc_sessionid_t ids[3], id;
    int x = 5, y[5] = {0}, in[4] = {1, 2, 3, 4}, out[4];
    MUST(grpc_initialize(NULL));
    MUST(grpc_function_handle_default(&add, "gridrpc/add"));
    MUST(grpc_function_handle_default(&scratch, "gridrpc/scratch"));
    MUST(grpc_call(&add, 1, &y[0]));
    MUST(grpc_call(&scratch, 4, in, NULL, out));
    for (int i = 0; i < 3; i++) MUST(grpc_call_async(&add, &ids[i], i, &y[i]));
    MUST(grpc_wait_and(ids, 2));
    MUST(grpc_wait_any(&id));
    grpc_arg_stack_push_arg(stack, &x);
    grpc_arg_stack_push_arg(stack, &y[3]);
    MUST(grpc_call_argstack(&add, stack));
    if (y[0] != 1 || y[1] != 2 || y[2] != 3 || y[3] != 6 || out[0] != 4) exit(2);
    if (grpc_function_handle_default(&bad, "gridrpc/none") != GRPC_FUNCTION_NOT_FOUND) exit(2);
    MUST(grpc_call_async(&add, &id, 7, &y[4]));
    grpc_arg_stack_destruct(stack);
    MUST(grpc_finalize());
}

/* Returns a number from /proc/self/status. */
static long status(const char *name) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) return -1;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) value = atol(line + strlen(name));
    fclose(file);
    return value;
}

/* Returns the number of allocated bytes; 0 if it is unknown. */
static long given(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();
    return (long)(info.uordblks + info.hblkhd);
#else
    return 0;
#endif
}

static long descriptors(void) {
    long count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) return -1;
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

/* A call that waits and calls that do not, up to ten of them outstanding, one of which fails before it is sent. */
static void calls(void) {
    grpc_sessionid_t ids[10], id;
    int y[10];
    for (int i = 0; i < 10; i++) {
        MUST(grpc_call(&shared, i, &y[i]));
        MUST(grpc_call_async(&shared, &ids[i], i, &y[i]));
    }
    if (grpc_call_async(&wrong, &id, -1, 1.0, NULL, NULL) != GRPC_OTHER_ERROR_CODE) exit(2);
    MUST(grpc_wait_or(ids, 10, &id));
    MUST(grpc_wait_all());
}

/* Calls whose results stay on the server, through handles and as managed data. */
static void remotes(void) {
    double x[8] = {1}, y[8] = {0}, sum = 0;
    const char *from[] = {"memory:x", NULL};
    const size_t extents[] = {8, 0};
    grpc_data_t data;
    grpc_remote_t a;
    MUST(grpc_remote_new_np(&a, "a"));
    MUST(grpc_remote_put_np(a, y, sizeof y));
    MUST(grpc_data_memory_mapping_set("x", x));
    MUST(grpc_data_init(&data, from, NULL, GRPC_DOUBLE, extents, NULL));
    MUST(mynetsl("axpy", 8, 2.0, &data, a));
    MUST(mynetsl("sum", 8L, a, &sum));
    MUST(grpc_remote_get_np(a, y, sizeof y));
    if (sum != 2 || y[0] != 2) exit(2);
    MUST(grpc_data_free(&data, NULL));
    MUST(grpc_remote_free_np(a));
}

/* Waits until there are no more threads than at an earlier time; threads that end in the background hold memory until
 * then. */
static void settle(long threads) {
    struct timespec pause = {0, 1000000};
    for (int i = 0; i < 5000 && status("Threads:") > threads; i++) nanosleep(&pause, NULL);
}

/* Runs it `count` times. Returns whether something has grown. Connections that are just being closed hold up to some
 * 100 KB, so the rounds that count wait for their threads, and the lowest of many rounds is compared with the lowest of
 * as many rounds at the end of the first third. */
static int grows(const char *what, void (*run)(void), int count) {
    long before = LONG_MAX, after = LONG_MAX, memory = 0, files = 0, threads = 0, fewest = LONG_MAX;
    int warm = count / 3, window = count / 10;
    for (int i = 0; i < count; i++) {
        if (i == warm) {
            settle(fewest);
            memory = status("VmRSS:");
            files = descriptors();
            threads = status("Threads:");
        }
        run();
        lost = leak == 0 ? NULL : memset(malloc(leak), 1, leak);
        int is_first = i >= warm - window && i < warm, is_last = i >= count - window;
        if (is_first || is_last) settle(fewest);
        long now = status("Threads:"), bytes = given();
        if (now < fewest) fewest = now;
        if (is_first && bytes < before) before = bytes;
        if (is_last && bytes < after) after = bytes;
    }
    settle(fewest);
    long bytes = window > 0 ? (after - before) / (count - warm) : 0;
    memory = status("VmRSS:") - memory;
    files = descriptors() - files;
    threads = status("Threads:") - threads;
    printf("%d %s: %ld bytes each, %ld KiB, %ld descriptors, %ld threads more\n", count, what, bytes, memory, files,
           threads);
    return count >= SMALLEST &&
           (bytes > SLACK_BYTES || memory > SLACK_KIB || files > SLACK_FILES || threads > SLACK_THREADS);
}

int main(int argc, char **argv) {
    leak = argc > 3 ? (size_t)atol(argv[3]) : 0;
    int has_grown = grows("sessions", once, argc > 1 ? atoi(argv[1]) : 1000);
    MUST(grpc_initialize(NULL));
    MUST(grpc_function_handle_default(&shared, "gridrpc/add"));
    MUST(grpc_function_handle_default(&wrong, "gridrpc/axpy"));
    has_grown |= grows("times ten calls of each kind", calls, argc > 2 ? atoi(argv[2]) : 5000);
    has_grown |= grows("times calls with remote data", remotes, argc > 2 ? atoi(argv[2]) / 5 : 1000);
    MUST(grpc_finalize());
    return has_grown;
}
