/* Time limits of transfers.
 *
 *   late            in simulation: calls with large arguments and with large results, within their limits of a second
 *   late slow       the same on slow links, where a second is not enough
 *   late stopped    in the real world: prints when its server has to be stopped and when to be continued, and waits
 *   for a line each time */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>
#include <string.h>

enum { N = 100000 };

#define EXPECT(code, call)                                                                                             \
    do {                                                                                                               \
        grpc_error_t got_ = (call);                                                                                    \
        if (got_ != (code))                                                                                            \
            return printf("%s gave %s: %s\n", #call, grpc_error_string(got_), grpc_last_error_text_np()), 1;           \
    } while (0)

static double x[N];
static char letters[8 * N];
static grpc_function_handle_t sum, upper, sleep_;
static grpc_session_attr_t_np attr;

static int set(grpc_session_attr_name_t_np name, int seconds) {
    return grpc_session_attr_set_np(&attr, name, &seconds);
}

static const grpc_session_attr_name_t_np names[] = {GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_ARGUMENT,
                                                    GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_RESULT};

/* A limit of one transfer applies neither to the other transfer nor to the function's run time. */
static int in_virtual_time(grpc_error_t late) {
    grpc_sessionid_t id;
    double total = 0;
    int length = 0;
    for (int transfer = 0; transfer < 2; transfer++) {
        MUST(set(names[transfer], 1));
        MUST(set(names[1 - transfer], 60));
        EXPECT(transfer == 0 ? late : GRPC_NO_ERROR, grpc_call_with_attr_np(&sum, &attr, (long)N, x, &total));
        if (transfer == 0 && late != GRPC_NO_ERROR && strstr(grpc_last_error_text_np(), "arguments") == NULL) return 1;
        EXPECT(transfer == 1 ? late : GRPC_NO_ERROR, grpc_call_with_attr_np(&upper, &attr, "text", 8 * N, letters, &length));
        if (transfer == 1 && late != GRPC_NO_ERROR && strstr(grpc_last_error_text_np(), "results") == NULL) return 1;
    }
    if (total != N || length != 4) return printf("%g, %d\n", total, length), 1;
    MUST(set(names[0], 1));
    MUST(grpc_call_async_with_attr_np(&sleep_, &id, &attr, 2));
    MUST(grpc_wait(id));
    return 0;
}

static int told(const char *what) {
    puts(what);
    fflush(stdout);
    return getchar() == '\n';
}

/* A running server meets limits of a minute; a stopped server does not. */
static int with_a_stopped_server(void) {
    double total = 0;
    int length = 0;
    MUST(set(names[0], 60));
    MUST(set(names[1], 60));
    MUST(grpc_call_with_attr_np(&sum, &attr, (long)N, x, &total));
    MUST(grpc_call_with_attr_np(&upper, &attr, "text", 8 * N, letters, &length));
    if (total != N || length != 4 || !told("stop it")) return printf("%g, %d\n", total, length), 1;
    MUST(set(names[0], 1));
    EXPECT(GRPC_TIMEOUT_NP, grpc_call_with_attr_np(&sum, &attr, (long)N, x, &total));
    if (strstr(grpc_last_error_text_np(), "arguments") == NULL || !told("go on")) return 1;
    MUST(set(names[0], 60));
    total = 0;
    MUST(grpc_call_with_attr_np(&sum, &attr, (long)N, x, &total));
    return total != N;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int failed;
    for (int i = 0; i < N; i++) x[i] = 1;
    MUST(grpc_initialize("gridrpc.toml"));
    MUST(grpc_function_handle_default(&sum, "gridrpc/sum"));
    MUST(grpc_function_handle_default(&upper, "gridrpc/upper"));
    MUST(grpc_function_handle_default(&sleep_, "gridrpc/sleep"));
    MUST(grpc_session_attr_initialize_np(&sum, &attr));
    failed = strcmp(how, "stopped") == 0 ? with_a_stopped_server()
                                         : in_virtual_time(strcmp(how, "slow") == 0 ? GRPC_TIMEOUT_NP : GRPC_NO_ERROR);
    if (failed) return printf("%s\n", grpc_last_error_text_np()), 1;
    MUST(grpc_session_attr_destruct_np(&attr));
    MUST(grpc_finalize());
    puts("as it should be");
    return 0;
}
