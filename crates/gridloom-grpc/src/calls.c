/* The variadic functions of grpc.h. They read their arguments as described by the function's signature (calls.h).
 *
 * Compiled with -fexceptions: a simulated process that continues after its end is unwound through these frames. */
#include "calls.h"

int gridloom_map_next(grpc_mapped_np *mapped) { return gridloom_grpc_map_next(mapped, GRIDLOOM_POINTER()); }

grpc_error_t gridloom_variadic_grpc_call(grpc_function_handle_t *handle, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    grpc_error_t error = gridloom_grpc_open(handle, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, handle);
    gridloom_read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_run(&call, slots);
}

grpc_error_t gridloom_variadic_grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session_id, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    if (session_id != NULL) *session_id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open(handle, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, session_id);
    gridloom_read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_begin(&call, slots, session_id);
}

grpc_error_t gridloom_variadic_mynetsl(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, function);
    gridloom_read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_run(&call, slots);
}

grpc_sessionid_t gridloom_variadic_mynetslnb(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    grpc_sessionid_t id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return -error;
    va_start(arguments, function);
    gridloom_read_all(&call, &arguments, slots);
    va_end(arguments);
    error = gridloom_grpc_begin(&call, slots, &id);
    return error == GRPC_NO_ERROR ? id : -error;
}

grpc_error_t gridloom_variadic_grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    grpc_error_t error = gridloom_grpc_open_method(handle, method, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, method);
    gridloom_read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_run(&call, slots);
}

grpc_error_t gridloom_variadic_grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method,
                                                    grpc_sessionid_t *session_id, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    if (session_id != NULL) *session_id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_method(handle, method, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, session_id);
    gridloom_read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_begin(&call, slots, session_id);
}

int gridloom_variadic_netsl(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return -error;
    READ(function);
    return -gridloom_grpc_run(&call, slots);
}

int gridloom_variadic_netslnb(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    gridloom_grpc_enter(GRIDLOOM_POINTER());
    grpc_sessionid_t id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return -error;
    READ(function);
    error = gridloom_grpc_begin(&call, slots, &id);
    return error == GRPC_NO_ERROR ? id : -error;
}
