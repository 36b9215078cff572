/* GridRPC as in Ninf-G 1 and 2.0 to 2.2, before the standard: GRPC_OK and GRPC_ERROR, a port for a handle's server, sessions as
 * results of asynchronous calls. Programs include it as grpc.h, with its folder before that of Gridloom's own grpc.h.
 * docs/compat.md describes what it covers.
 *
 *   grpc_function_handle_init(&handle, host, port, "pi/pi_trial");
 *   if ((id = grpc_call_async(&handle, seed, times, &count)) == GRPC_ERROR) grpc_perror("pi_trial");
 *
 * Functions that differ from the standard are macros; all others are those of the standard. The Ninf functions
 * of Ninf-G 1 are included (ninf.h). In C and C++, with GCC or Clang. */
#ifndef GRIDLOOM_NINFG_GRPC_H
#define GRIDLOOM_NINFG_GRPC_H

#include "../ninf.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GRPC_OK 0
#define GRPC_ERROR (-1)

typedef grpc_arg_stack_t grpc_arg_stack;
typedef exec_info nsapi_exec_info_t;
#define grpc_get_info Ninf_get_info
#define grpc_get_last_info Ninf_get_last_info

/* A handle is bound to the server at HOST:PORT, or if the grid has none there, to the first of HOST that has the function: Ninf-G
 * ignores the port, or expects that of Globus. The job manager of "HOST/jobmanager-pbs" has no meaning. */
static inline const char *ninfg_host_(char *text, size_t size, const char *host, int port) {
    if (host == NULL) host = "";
    int length = (int)strcspn(host, "/");
    if (port <= 0 || length == 0 || memchr(host, ':', (size_t)length) != NULL) snprintf(text, size, "%.*s", length, host);
    else snprintf(text, size, "%.*s:%d", length, host, port);
    return text;
}
static inline int ninfg_function_(grpc_function_handle_t *handle, const char *host, int port, const char *name) {
    char text[300];
    int error = grpc_function_handle_init(handle, ninfg_host_(text, sizeof text, host, port), name);
    if (error == GRPC_SERVER_NOT_FOUND && port > 0)
        error = grpc_function_handle_init(handle, ninfg_host_(text, sizeof text, host, 0), name);
    return ninf_status_(error);
}
static inline int ninfg_object_(grpc_object_handle_t_np *handle, const char *host, int port, const char *name) {
    char text[300];
    int error = grpc_object_handle_init_np(handle, ninfg_host_(text, sizeof text, host, port), name);
    if (error == GRPC_SERVER_NOT_FOUND && port > 0)
        error = grpc_object_handle_init_np(handle, ninfg_host_(text, sizeof text, host, 0), name);
    return ninf_status_(error);
}
static inline int ninfg_functions_(grpc_function_handle_t *handles, int count, const char *host, int port, const char *name) {
    int at;
    for (at = 0; at < count; at++)
        if (ninfg_function_(&handles[at], host, port, name) != GRPC_OK) {
            if (at > 0) grpc_function_handle_array_destruct_np(handles, (size_t)at);
            return GRPC_ERROR;
        }
    return GRPC_OK;
}
static inline int ninfg_objects_(grpc_object_handle_t_np *handles, int count, const char *host, int port, const char *name) {
    int at;
    for (at = 0; at < count; at++)
        if (ninfg_object_(&handles[at], host, port, name) != GRPC_OK) {
            if (at > 0) grpc_object_handle_array_destruct_np(handles, (size_t)at);
            return GRPC_ERROR;
        }
    return GRPC_OK;
}
static inline grpc_function_handle_t *ninfg_handle_(int session) {
    grpc_function_handle_t *handle = NULL;
    return grpc_get_handle(&handle, session) == GRPC_NO_ERROR ? handle : NULL;
}
static inline void *ninfg_attribute_(grpc_handle_attr_t_np *attributes, grpc_handle_attr_name_t_np name) {
    void *value = NULL;
    return grpc_handle_attr_get_np(attributes, name, &value) == GRPC_NO_ERROR ? value : NULL;
}

/* ---- Beginning, end and handles ---- */

/* A configuration of Ninf-G 1 has no effect: it names information servers. */
#define grpc_initialize(name) \
    ninf_status_(grpc_initialize(gridloom_own_configuration_(name, "serverhost", "ldaphost", "ldapport")))
#define grpc_finalize() ninf_status_(grpc_finalize())
#define grpc_function_handle_default(handle, name) ninf_status_(grpc_function_handle_default(handle, name))
#define grpc_function_handle_init(handle, host, port, name) ninfg_function_(handle, host, port, name)
#define grpc_function_handle_destruct(handle) ninf_status_(grpc_function_handle_destruct(handle))
#define grpc_function_handle_array_default_np(handles, count, name) \
    ninf_status_(grpc_function_handle_array_default_np(handles, (size_t)(count), name))
#define grpc_function_handle_array_init_np(handles, count, host, port, name) ninfg_functions_(handles, count, host, port, name)
#define grpc_function_handle_array_destruct_np(handles, count) \
    ninf_status_(grpc_function_handle_array_destruct_np(handles, (size_t)(count)))
#define grpc_object_handle_default_np(handle, name) ninf_status_(grpc_object_handle_default_np(handle, name))
#define grpc_object_handle_init_np(handle, host, port, name) ninfg_object_(handle, host, port, name)
#define grpc_object_handle_destruct_np(handle) ninf_status_(grpc_object_handle_destruct_np(handle))
#define grpc_object_handle_array_init_np(handles, count, host, port, name) ninfg_objects_(handles, count, host, port, name)
#define grpc_object_handle_array_destruct_np(handles, count) \
    ninf_status_(grpc_object_handle_array_destruct_np(handles, (size_t)(count)))
#define grpc_get_handle(session) ninfg_handle_(session)
#define grpc_handle_attr_get_np(attributes, name) ninfg_attribute_(attributes, name)
#define grpc_function_handle_perror grpc_function_handle_perror_np

/* ---- Calls ---- */

#define grpc_call(...) ninf_status_(grpc_call(__VA_ARGS__))
#define grpc_call_async(...) NINFG_ASYNC_(__VA_ARGS__, 0)
#define NINFG_ASYNC_(handle, ...) ninf_started_(grpc_call_async(handle, &ninf_session_, __VA_ARGS__))
#define grpc_invoke_np(...) ninf_status_(grpc_invoke_np(__VA_ARGS__))
#define grpc_invoke_async_np(...) NINFG_INVOKE_ASYNC_(__VA_ARGS__, 0)
#define NINFG_INVOKE_ASYNC_(handle, method, ...) \
    ninf_started_(grpc_invoke_async_np(handle, method, &ninf_session_, __VA_ARGS__))

/* ---- Sessions ---- */

#define grpc_probe(session) Ninf_session_probe(session)
#define grpc_cancel(session) Ninf_session_cancel(session)
#define grpc_wait(session) Ninf_wait(session)
#define grpc_wait_all() Ninf_wait_all()
#define grpc_wait_and(sessions, count) Ninf_wait_and(sessions, count)
#define grpc_wait_or(sessions, count, session) ninf_wait_or_in_(sessions, count, session)
#define grpc_wait_any(session) ninf_wait_any_(session)
#define grpc_get_info_np(session, info) ninf_status_(grpc_get_info_np(session, info, NULL))
#define grpc_get_last_info_np(info) ninf_status_(grpc_get_last_info_np(info, NULL))
#define grpc_session_info_remove_np(session) Ninf_session_remove(session)

/* ---- Errors: the codes are those of the standard ---- */

#define grpc_perror grpc_perror_np
#define grpc_get_last_error grpc_last_error_get_np

#ifdef __cplusplus
}
#endif

#endif
