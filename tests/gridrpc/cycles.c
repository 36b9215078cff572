/* Sessions that begin and end, many times: what they leave behind.
 *
 *   cycles COUNT
 *
 * After the first tenth, which fills what is kept warm, neither memory nor descriptors nor threads may grow. */
#include <dirent.h>
#include <grpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So much may come and go with the allocator, in KiB. */
enum { SLACK_KIB = 4096 };

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != GRPC_NO_ERROR) {                                                                                 \
            grpc_perror_np(#call);                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

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
    MUST(grpc_call(&scratch, 4, in, out));
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

/* A number of /proc/self/status. */
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

static long descriptors(void) {
    long count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) return -1;
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    long memory = 0, open_files = 0, threads = 0;
    for (int i = 0; i < count; i++) {
        if (i == count / 10) {
            memory = status("VmRSS:");
            open_files = descriptors();
            threads = status("Threads:");
        }
        once();
    }
    long more = status("VmRSS:") - memory, more_files = descriptors() - open_files, more_threads = status("Threads:") - threads;
    printf("%d sessions: %ld KiB, %ld descriptors, %ld threads more\n", count, more, more_files, more_threads);
    if (count < 100) return 0;
    return more > SLACK_KIB || more_files > 0 || more_threads > 0;
}
