/* An object whose server is lost.
 *
 *   lost_object CONFIGURATION
 *
 * Prints the object's server. Continues when it gets the next line of its input: calls the object again, makes
 * another one, and calls that. */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>

int main(int argc, char **argv) {
    grpc_object_handle_t_np first, second;
    grpc_session_details_np info;
    grpc_sessionid_t id;
    long sum = 0, count = 0;
    char line[64];
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_object_handle_default_np(&first, "account"));
    MUST(grpc_invoke_async_np(&first, "add", &id, 1, &sum, &count));
    MUST(grpc_wait(id));
    MUST(grpc_session_details_get_np(id, &info));
    printf("lives on %s\n", info.server);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return 2;
    printf("%s\n", grpc_error_string(grpc_invoke_np(&first, "add", 1, &sum, &count)));
    printf("%s\n", grpc_error_string(grpc_object_handle_destruct_np(&first)));
    MUST(grpc_object_handle_default_np(&second, "account"));
    MUST(grpc_invoke_np(&second, "add", 2, &sum, &count));
    printf("another has %ld\n", sum);
    MUST(grpc_object_handle_destruct_np(&second));
    MUST(grpc_finalize());
    return 0;
}
