/* Calls that all read one array: it is put once, for all servers, and each call gets it by its name.
 *
 *   GRIDLOOM_GRPC_CONFIG=broadcast.toml ./broadcast */
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
    if (OmstWait(OmstPutData("mydat", data, sizeof data, OMST_BROADCAST)) != 0) {
        fprintf(stderr, "mydat: %s\n", grpc_last_error_text_np());
        return 1;
    }
    for (int i = 0; i < CALLS; i++) requests[i] = OmniRpcCallAsync("foo", i);
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
    grpc_shared_delete_np("mydat");
    printf("%d calls: %.0f\n", CALLS, sum);
    OmniRpcFinalize();
    return sum == 28.0 * N * (N - 1) / 2 ? 0 : 2;
}
