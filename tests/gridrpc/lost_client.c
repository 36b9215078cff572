/* Data that outlive their client.
 *
 *   lost_client make   makes a datum, puts it to a file of server-1 and its description beside it
 *   lost_client        finds both, in another process, and says what it found */
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
        /* A loaded datum's files are not its own: they stay. */
        MUST(grpc_data_free(&data, NULL));
    }
    MUST(grpc_finalize());
    return 0;
}
