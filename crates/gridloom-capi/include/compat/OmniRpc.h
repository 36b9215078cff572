/* OmniRPC's calls with those that Gridloom's own OmniRpc.h, which it includes, does not have: handles, and messages in the style
 * of printf. docs/compat.md describes what it covers.
 *
 *   handle = OmniRpcCreateHandle("host", "sample");
 *   OmniRpcCallByHandle(handle, "sin", x, &y);
 *   OmniRpcDestroyHandle(handle);
 *
 * In C and C++, with GCC or Clang. Any threads may call all functions at any time. */
#ifndef GRIDLOOM_COMPAT_OMNIRPC_H
#define GRIDLOOM_COMPAT_OMNIRPC_H

#include <stdarg.h>

#include "../OmniRpc.h"
#include "../grpc.h"
#include "gridloom_compat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A module, on a host or on any. */
typedef void *OmniRpcHandle;
typedef struct {
    char host[256], module[256];
} omnirpc_handle_;

/* The function of a thread's current call. */
static __thread grpc_function_handle_t omnirpc_function_ __attribute__((unused));
static __thread grpc_sessionid_t omnirpc_session_ __attribute__((unused));

/* Prints a message on standard error. */
static inline void omrpc_print_(const char *format, va_list arguments) {
    fputs("OmniRPC: ", stderr);
    vfprintf(stderr, format, arguments);
}
__attribute__((weak, format(printf, 1, 2))) void omrpc_prf(char *format, ...);
__attribute__((weak)) void omrpc_prf(char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    omrpc_print_(format, arguments);
    va_end(arguments);
}

static inline int omnirpc_failed_(const char *what) {
    char text[620];
    snprintf(text, sizeof text, "OmniRPC: %s", what);
    grpc_perror_np(text);
    return OMRPC_ERROR;
}

/* Does not contact the host: the first call reports a missing module. With NULL for the host, calls may run on any server;
 * use OmniRpcModuleInit if the module has state. */
static inline OmniRpcHandle OmniRpcCreateHandle(const char *host, const char *module) {
    omnirpc_handle_ *handle = (omnirpc_handle_ *)calloc(1, sizeof *handle);
    if (module == NULL) return free(handle), (OmniRpcHandle)NULL;
    snprintf(handle->host, sizeof handle->host, "%s", host == NULL ? "" : host);
    snprintf(handle->module, sizeof handle->module, "%s", module);
    return handle;
}
static inline void OmniRpcDestroyHandle(OmniRpcHandle handle) { free(handle); }
static inline void OmniRpcDestroyRequest(OmniRpcRequest request) { (void)request; }

static inline int omnirpc_open_(OmniRpcHandle handle, const char *entry) {
    char name[600];
    omnirpc_handle_ *of = (omnirpc_handle_ *)handle;
    if (of == NULL || entry == NULL) {
        fprintf(stderr, "OmniRPC: the handle or the entry is NULL\n");
        return OMRPC_ERROR;
    }
    snprintf(name, sizeof name, "%s/%s", of->module, entry);
    return grpc_function_handle_init(&omnirpc_function_, of->host, name) == GRPC_NO_ERROR ? OMRPC_OK : omnirpc_failed_(name);
}
static inline int omnirpc_ended_(int error) {
    int status = error == GRPC_NO_ERROR ? OMRPC_OK : omnirpc_failed_("a call by a handle");
    grpc_function_handle_destruct(&omnirpc_function_);
    return status;
}
/* A request is the number of a session, as in the library. */
static inline OmniRpcRequest omnirpc_request_(int error) {
    return omnirpc_ended_(error) == OMRPC_OK ? (OmniRpcRequest)(intptr_t)omnirpc_session_ : NULL;
}
#define OmniRpcCallByHandle(...) OMNIRPC_CALL_(__VA_ARGS__, 0)
#define OMNIRPC_CALL_(handle, entry, ...)                                                                              \
    (omnirpc_open_(handle, entry) == OMRPC_OK ? omnirpc_ended_(grpc_call(&omnirpc_function_, __VA_ARGS__)) : OMRPC_ERROR)
#define OmniRpcCallAsyncByHandle(...) OMNIRPC_CALL_ASYNC_(__VA_ARGS__, 0)
#define OMNIRPC_CALL_ASYNC_(handle, entry, ...)                                                                        \
    (omnirpc_open_(handle, entry) == OMRPC_OK                                                                          \
         ? omnirpc_request_(grpc_call_async(&omnirpc_function_, &omnirpc_session_, __VA_ARGS__))                       \
         : (OmniRpcRequest)NULL)

/* ---- Without counterpart: the compiler names the reason ---- */

GRIDLOOM_UNSUPPORTED_(int OmniRpcCallV(char *, va_list), "arguments as a va_list are not supported: use OmniRpcCall or an argument stack");
GRIDLOOM_UNSUPPORTED_(void *OmniRpcCallAsyncV(char *, va_list),
                      "arguments as a va_list are not supported: use OmniRpcCallAsync or an argument stack");
GRIDLOOM_UNSUPPORTED_(void OmniRpcExecInit(int *, char ***), "OmniRPC's calls without an agent are not supported: use OmniRpcInit");
GRIDLOOM_UNSUPPORTED_(int OmniRpcExecLocal(char *, char *, ...), "OmniRPC's calls without an agent are not supported: use OmniRpcCall");
GRIDLOOM_UNSUPPORTED_(int OmniRpcExecRemote(char *, char *, char *, ...),
                      "OmniRPC's calls without an agent are not supported: use OmniRpcCallByHandle");
GRIDLOOM_UNSUPPORTED_(void *OmniRpcExecOnHost(char *, char *), "OmniRPC's calls without an agent are not supported: use OmniRpcCreateHandle");
GRIDLOOM_UNSUPPORTED_(void OmniRpcMpiInit(int *, char ***),
                      "OmniRPC's calls of parallel programs are not supported: describe the function with Backend \"MPI\"");

#ifdef __cplusplus
}
#endif

#endif
