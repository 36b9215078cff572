/* Time limits of transfers: late [slow]
 *
 * Calls with large arguments and with large results, with limits that are long enough. On slow links, one second is not. */
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

static int set(grpc_session_attr_t_np *attr, grpc_session_attr_name_t_np name, int seconds) {
    return grpc_session_attr_set_np(attr, name, &seconds);
}

int main(int argc, char **argv) {
    static double x[N];
    static char letters[8 * N];
    const grpc_session_attr_name_t_np names[] = {GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_ARGUMENT,
                                                 GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_RESULT};
    grpc_error_t late = argc > 1 && strcmp(argv[1], "slow") == 0 ? GRPC_TIMEOUT_NP : GRPC_NO_ERROR;
    grpc_function_handle_t sum, upper, sleep;
    grpc_session_attr_t_np attr;
    grpc_sessionid_t id;
    double total = 0;
    int length = 0;
    for (int i = 0; i < N; i++) x[i] = 1;
    MUST(grpc_initialize("gridrpc.toml"));
    MUST(grpc_function_handle_default(&sum, "gridrpc/sum"));
    MUST(grpc_function_handle_default(&upper, "gridrpc/upper"));
    MUST(grpc_function_handle_default(&sleep, "gridrpc/sleep"));
    MUST(grpc_session_attr_initialize_np(&sum, &attr));
    /* A limit of one transfer says nothing of the other. */
    for (int transfer = 0; transfer < 2; transfer++) {
        MUST(set(&attr, names[transfer], 1));
        MUST(set(&attr, names[1 - transfer], 60));
        EXPECT(transfer == 0 ? late : GRPC_NO_ERROR, grpc_call_with_attr_np(&sum, &attr, (long)N, x, &total));
        if (transfer == 0 && late != GRPC_NO_ERROR && strstr(grpc_last_error_text_np(), "arguments") == NULL) return 1;
        EXPECT(transfer == 1 ? late : GRPC_NO_ERROR, grpc_call_with_attr_np(&upper, &attr, "text", 8 * N, letters, &length));
        if (transfer == 1 && late != GRPC_NO_ERROR && strstr(grpc_last_error_text_np(), "results") == NULL) return 1;
    }
    if (total != N || length != 4) return printf("%g, %d\n", total, length), 1;
    /* Neither does it limit what the function takes. */
    MUST(set(&attr, names[0], 1));
    MUST(grpc_call_async_with_attr_np(&sleep, &id, &attr, 2));
    MUST(grpc_wait(id));
    MUST(grpc_session_attr_destruct_np(&attr));
    MUST(grpc_finalize());
    puts("as it should be");
    return 0;
}
