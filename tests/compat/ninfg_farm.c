/* A farm of calls: the next call to the handle whose call has ended; 0 when none is left. */
#include <stdio.h>
#include <stdlib.h>

#include "grpc.h"

int main(int argc, char *argv[]) {
    grpc_function_handle_t handles[3];
    double sums[3], total = 0;
    int ids[3], i, submitted, id, code;
    if (argc < 2 || grpc_initialize(argv[1]) != GRPC_OK) return 2;
    if (grpc_function_handle_array_default_np(handles, 3, "services/add") != GRPC_OK) return 3;
    for (submitted = 0; submitted < 3; submitted++)
        ids[submitted] = grpc_call_async(&handles[submitted], (double)submitted, 0.0, &sums[submitted]);
    while ((code = grpc_wait_any(&id)) != GRPC_ERROR && id != 0) {
        for (i = 0; i < 3 && ids[i] != id; i++) {
        }
        total += sums[i];
        if (submitted < 10) {
            ids[i] = grpc_call_async(&handles[i], (double)submitted, 0.0, &sums[i]);
            submitted++;
        }
    }
    printf("%d calls, %g, %d\n", submitted, total, code == GRPC_OK);
    if (grpc_probe(12345) != NINF_ERROR || grpc_wait(12345) != GRPC_ERROR || grpc_cancel(12345) != GRPC_ERROR) return 4;
    ids[0] = grpc_call_async(&handles[0], 1.0, 1.0, &sums[0]);
    ids[1] = grpc_call_async(&handles[1], 2.0, 2.0, &sums[1]);
    if (grpc_wait_or(ids, 2, &id) != GRPC_OK || grpc_wait(id == ids[0] ? ids[1] : ids[0]) != GRPC_OK) return 5;
    printf("%g\n", sums[0] + sums[1]);
    if (grpc_function_handle_array_destruct_np(handles, 3) != GRPC_OK) return 6;
    return grpc_finalize();
}
