/* Calls that all read one array: each is sent with it.
 *
 *   GRIDLOOM_GRPC_CONFIG=array.toml ./array */
#include <OmniRpc.h>
#include <omst.h>
#include <stdio.h>

enum { CALLS = 8, N = 100000 };

static double data[N];

int main(int argc, char **argv) {
    OmniRpcRequest requests[CALLS];
    double sum = 0;
    OmniRpcInit(&argc, &argv);
    for (int i = 0; i < N; i++) data[i] = i;
    for (int i = 0; i < CALLS; i++) requests[i] = OmniRpcCallAsync("foo", N, data, i);
    if (OmniRpcWaitAll(CALLS, requests) != OMRPC_OK) return 1;
    for (int i = 0; i < CALLS; i++) {
        char name[32];
        double one = 0;
        snprintf(name, sizeof name, "sum %d", i);
        if (OmstWait(OmstGetData(name, &one, sizeof one)) != 0) return 1;
        /* Names outlive the program. */
        grpc_shared_delete_np(name);
        sum += one;
    }
    printf("%d calls: %.0f\n", CALLS, sum);
    OmniRpcFinalize();
    return sum == 28.0 * N * (N - 1) / 2 ? 0 : 2;
}
