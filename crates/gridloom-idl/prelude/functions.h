/* The declarations of grpc_shared.h and omst.h for compiled bodies: the worker that loads their library sets the variable to its own
   functions (gridloom-capi/src/grpc/worker_functions.rs). */
#ifdef __cplusplus
extern "C" {
#endif

struct gridloom_functions_np {
    size_t size;
    int (*last_error)(void);
    const char *(*last_error_text)(void);
    grpc_error_t (*shared_put)(const char *, const void *, size_t, int, int);
    grpc_error_t (*shared_get)(const char *, void *, size_t, double);
    grpc_error_t (*shared_get_new)(const char *, void **, size_t *, double);
    grpc_error_t (*shared_size)(const char *, size_t *, double);
    grpc_error_t (*shared_wait)(const char *, double);
    grpc_error_t (*shared_exists)(const char *, int *);
    grpc_error_t (*shared_place)(const char *, const char *const *);
    grpc_error_t (*shared_delete)(const char *);
    OmstRequest (*omst_put)(const char *, const void *, size_t, int);
    int (*omst_wait)(OmstRequest);
    OmstRequest (*omst_get)(const char *, void *, size_t);
    int (*omst_limit)(double);
    grpc_error_t (*shared_get_part)(const char *, size_t, void *, size_t, double);
    grpc_error_t (*shared_begin_put)(grpc_shared_request_np *, const char *, const void *, size_t, int, int);
    grpc_error_t (*shared_begin_get)(grpc_shared_request_np *, const char *, void *, size_t, double);
    grpc_error_t (*shared_begin_wait)(grpc_shared_request_np *, const char *, double);
    grpc_error_t (*shared_finish)(grpc_shared_request_np, double);
    grpc_error_t (*shared_cancel)(grpc_shared_request_np);
    grpc_error_t (*shared_share)(const char *, const char *const *);
};
__attribute__((weak)) const struct gridloom_functions_np *gridloom_functions_np = 0;

#define GRIDLOOM_WEAK_ __attribute__((weak))
#define GRIDLOOM_WORKER_(function, arguments, otherwise)                                                                 \
    return gridloom_functions_np != 0 && gridloom_functions_np->size >= sizeof *gridloom_functions_np                   \
               ? gridloom_functions_np->function arguments                                                              \
               : (otherwise)

GRIDLOOM_WEAK_ grpc_error_t grpc_last_error_get_np(void) { GRIDLOOM_WORKER_(last_error, (), GRPC_NOT_INITIALIZED); }
GRIDLOOM_WEAK_ const char *grpc_last_error_text_np(void) {
    GRIDLOOM_WORKER_(last_error_text, (), "shared data need a worker of a server: this process is none, or one of several ranks");
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_put_np(const char *name, const void *data, size_t size_bytes, int flags) {
    GRIDLOOM_WORKER_(shared_put, (name, data, size_bytes, flags, 1), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_put_replicas_np(const char *name, const void *data, size_t size_bytes, int flags,
                                                        int replicas) {
    GRIDLOOM_WORKER_(shared_put, (name, data, size_bytes, flags, replicas), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_get_np(const char *name, void *data, size_t size_bytes, double seconds) {
    GRIDLOOM_WORKER_(shared_get, (name, data, size_bytes, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_get_new_np(const char *name, void **data, size_t *size_bytes, double seconds) {
    GRIDLOOM_WORKER_(shared_get_new, (name, data, size_bytes, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_get_part_np(const char *name, size_t from_byte, void *data, size_t size_bytes,
                                                    double seconds) {
    GRIDLOOM_WORKER_(shared_get_part, (name, from_byte, data, size_bytes, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_begin_put_np(grpc_shared_request_np *request, const char *name, const void *data,
                                                     size_t size_bytes, int flags, int replicas) {
    GRIDLOOM_WORKER_(shared_begin_put, (request, name, data, size_bytes, flags, replicas), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_begin_get_np(grpc_shared_request_np *request, const char *name, void *data,
                                                     size_t size_bytes, double seconds) {
    GRIDLOOM_WORKER_(shared_begin_get, (request, name, data, size_bytes, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_begin_wait_np(grpc_shared_request_np *request, const char *name, double seconds) {
    GRIDLOOM_WORKER_(shared_begin_wait, (request, name, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_finish_np(grpc_shared_request_np request, double seconds) {
    GRIDLOOM_WORKER_(shared_finish, (request, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_cancel_np(grpc_shared_request_np request) {
    GRIDLOOM_WORKER_(shared_cancel, (request), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_size_np(const char *name, size_t *size_bytes, double seconds) {
    GRIDLOOM_WORKER_(shared_size, (name, size_bytes, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_wait_np(const char *name, double seconds) {
    GRIDLOOM_WORKER_(shared_wait, (name, seconds), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_exists_np(const char *name, int *exists) {
    GRIDLOOM_WORKER_(shared_exists, (name, exists), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_place_np(const char *name, const char *const *servers) {
    GRIDLOOM_WORKER_(shared_place, (name, servers), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_share_np(const char *name, const char *const *users) {
    GRIDLOOM_WORKER_(shared_share, (name, users), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ grpc_error_t grpc_shared_delete_np(const char *name) {
    GRIDLOOM_WORKER_(shared_delete, (name), GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ OmstRequest OmstPutData(const char *id, const void *data, size_t size, int hint) {
    GRIDLOOM_WORKER_(omst_put, (id, data, size, hint), NULL);
}
GRIDLOOM_WEAK_ int OmstWait(OmstRequest request) { GRIDLOOM_WORKER_(omst_wait, (request), -GRPC_NOT_INITIALIZED); }
GRIDLOOM_WEAK_ OmstRequest OmstGetData(const char *id, void *data, size_t size) {
    GRIDLOOM_WORKER_(omst_get, (id, data, size), (OmstRequest)~(size_t)GRPC_NOT_INITIALIZED);
}
GRIDLOOM_WEAK_ int OmstSetTimeLimit_np(double seconds) { GRIDLOOM_WORKER_(omst_limit, (seconds), -GRPC_NOT_INITIALIZED); }

/* OmniRPC's output of functions. */
GRIDLOOM_WEAK_ void omrpc_prf(char *format, ...) {
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    __builtin_va_end(arguments);
}

#ifdef __cplusplus
}
#endif
