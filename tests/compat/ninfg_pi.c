/* Handles with a host and a port; sessions are results. argv: configuration, hosts. */
#include <stdio.h>
#include <stdlib.h>

#include "grpc.h"

int port = 4000;

int main(int argc, char *argv[]) {
    grpc_function_handle_t handles[4];
    long count[4], sum = 0, times = 20000;
    int ids[4], i, n = argc - 2, result;
    if (grpc_initialize(argv[1]) != GRPC_OK) {
        grpc_perror("grpc_initialize");
        exit(2);
    }
    for (i = 0; i < n; i++)
        if (grpc_function_handle_init(&handles[i], argv[i + 2], port, "services/pi_trial") == GRPC_ERROR) {
            grpc_perror("handle_init");
            exit(2);
        }
    for (i = 0; i < n; i++)
        if ((ids[i] = grpc_call_async(&handles[i], i, times, &count[i])) == GRPC_ERROR) {
            grpc_perror("pi_trial");
            exit(2);
        }
    if (grpc_get_handle(ids[0]) != &handles[0]) exit(3);
    if ((result = grpc_wait_all()) != GRPC_OK) exit(4);
    for (i = 0; i < n; i++) {
        sum += count[i];
        if (grpc_function_handle_destruct(&handles[i]) != GRPC_OK) exit(5);
    }
    printf("PI = %.1f\n", 4.0 * ((double)sum / (double)(times * n)));
    if (grpc_function_handle_init(&handles[0], "no-such-host", 0, "services/add") == GRPC_ERROR)
        printf("%s\n", grpc_error_string(grpc_get_last_error()));
    return grpc_finalize();
}
