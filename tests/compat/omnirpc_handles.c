/* Calls by a handle of a module on a host. argv: the host. */
#include <OmniRpc.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char *argv[]) {
    OmniRpcHandle handle;
    OmniRpcRequest request;
    double sum = 0, other = 0;
    OmniRpcInit(&argc, &argv);
    if (argc != 2 || (handle = OmniRpcCreateHandle(argv[1], "services")) == NULL) return 2;
    if (OmniRpcCallByHandle(handle, "add", 1.0, 2.0, &sum) != OMRPC_OK) return 3;
    request = OmniRpcCallAsyncByHandle(handle, "add", sum, 0.5, &other);
    if (request == NULL || OmniRpcWait(request) != OMRPC_OK) return 4;
    printf("%g %g\n", sum, other);
    if (OmniRpcCallByHandle(handle, "no_such_entry") != OMRPC_ERROR) return 5;
    omrpc_prf("%d calls\n", 2);
    OmniRpcDestroyHandle(handle);
    OmniRpcFinalize();
    return 0;
}
