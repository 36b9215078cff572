/* Many requests, by name and by a handle of any host. */
#include <OmniRpc.h>
#include <stdio.h>

extern void omrpc_prf(char *message, ...);

int main(int argc, char *argv[]) {
    double sums[20], total = 0;
    OmniRpcRequest requests[20];
    OmniRpcInit(&argc, &argv);
    OmniRpcHandle handle = OmniRpcCreateHandle(NULL, "services");
    for (int i = 0; i < 20; i++)
        requests[i] = i % 2 ? OmniRpcCallAsync("add", (double)i, 1.0, &sums[i]) : OmniRpcCallAsyncByHandle(handle, "add", (double)i, 1.0, &sums[i]);
    int first = OmniRpcWaitAny(20, requests);
    requests[first] = requests[19], requests[19] = NULL;
    if (OmniRpcWaitAll(19, requests) != OMRPC_OK) return 2;
    for (int i = 0; i < 20; i++) total += sums[i];
    printf("%g\n", total);
    if (OmniRpcCall("calc_sin", 0.0, &total) != OMRPC_OK) return 3;
    omrpc_prf("done, sin(0) is %g\n", total);
    OmniRpcDestroyHandle(handle);
    OmniRpcFinalize();
    return 0;
}
