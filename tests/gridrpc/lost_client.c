/* Data that outlive their client.
 *
 *   lost_client make   makes a datum, and puts it with its description into files of server-1
 *   lost_client        finds both, in another process, and prints what it found */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>

enum { N = 4000 };

static double x[N];

int main(int argc, char **argv) {
    const char *description = "file://server-1/found/sum.toml";
    const char *to[] = {"file://server-1/found/sum.bin", "gridloom:", NULL};
    const size_t extents[] = {N, 0};
    grpc_data_t data;
    double sum = 0;
    (void)argv;
    MUST(grpc_initialize(NULL));
    if (argc > 1) {
        for (int i = 0; i < N; i++) x[i] = i;
        MUST(grpc_data_init(&data, NULL, to, GRPC_DOUBLE, extents, NULL));
        MUST(mynetsl("transpose", 2 * N, 1, x, &data));
        MUST(grpc_data_save(&data, description));
    } else {
        MUST(grpc_data_load(&data, description));
        MUST(mynetsl("sum", (long)N, &data, &sum));
        printf("%g\n", sum);
        /* The files of a loaded datum do not belong to it: they are kept. */
        MUST(grpc_data_free(&data, NULL));
    }
    MUST(grpc_finalize());
    return 0;
}
