/* The variadic functions of grpc.h. They read their arguments as described by the function's signature (calls.h).
 *
 * Compiled with -fexceptions: a simulated process that continues after its end is unwound through these frames. */
#include "calls.h"

#include <stdarg.h>

/* Returns the next argument. `arguments` is a pointer because a va_list is indeterminate after a function has used
 * it. */
static gridloom_slot next_slot(uint8_t read, va_list *arguments) {
    gridloom_slot slot = {0};
    switch (read) {
    case GRIDLOOM_READ_INT: slot.integer = va_arg(*arguments, int); break;
    case GRIDLOOM_READ_UNSIGNED: slot.natural = va_arg(*arguments, unsigned); break;
    case GRIDLOOM_READ_INT64: slot.integer = va_arg(*arguments, int64_t); break;
    case GRIDLOOM_READ_UINT64: slot.natural = va_arg(*arguments, uint64_t); break;
    case GRIDLOOM_READ_DOUBLE: slot.real = va_arg(*arguments, double); break;
    case GRIDLOOM_READ_LONG_DOUBLE: slot.long_real = va_arg(*arguments, long double); break;
    case GRIDLOOM_READ_COMPLEX_FLOAT: slot.complex_float = va_arg(*arguments, float _Complex); break;
    case GRIDLOOM_READ_COMPLEX_DOUBLE: slot.complex_double = va_arg(*arguments, double _Complex); break;
    case GRIDLOOM_READ_COMPLEX_LONG_DOUBLE:
        slot.complex_long_double = va_arg(*arguments, long double _Complex);
        break;
    default: slot.pointer = va_arg(*arguments, void *); break;
    }
    return slot;
}

/* The library opens no call with more than GRIDLOOM_ARGUMENTS_MAX arguments. */
static void read_all(const gridloom_open_call *call, va_list *arguments, gridloom_slot *slots) {
    for (size_t i = 0; i < call->count; i++) slots[i] = next_slot(call->reads[i], arguments);
}

grpc_error_t gridloom_variadic_grpc_call(grpc_function_handle_t *handle, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open(handle, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, handle);
    read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_run(&call, slots);
}

grpc_error_t gridloom_variadic_grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session_id, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    if (session_id != NULL) *session_id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open(handle, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, session_id);
    read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_begin(&call, slots, session_id);
}

grpc_error_t gridloom_variadic_mynetsl(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, function);
    read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_run(&call, slots);
}

grpc_sessionid_t gridloom_variadic_mynetslnb(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_sessionid_t id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return -error;
    va_start(arguments, function);
    read_all(&call, &arguments, slots);
    va_end(arguments);
    error = gridloom_grpc_begin(&call, slots, &id);
    return error == GRPC_NO_ERROR ? id : -error;
}

grpc_error_t gridloom_variadic_grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_method(handle, method, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, method);
    read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_run(&call, slots);
}

grpc_error_t gridloom_variadic_grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method,
                                                    grpc_sessionid_t *session_id, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    if (session_id != NULL) *session_id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_method(handle, method, &call);
    if (error != GRPC_NO_ERROR) return error;
    va_start(arguments, session_id);
    read_all(&call, &arguments, slots);
    va_end(arguments);
    return gridloom_grpc_begin(&call, slots, session_id);
}

/* Reads the arguments of an open call, which follow `last`. */
#define READ(last)                                                                                                     \
    va_start(arguments, last);                                                                                         \
    read_all(&call, &arguments, slots);                                                                                \
    va_end(arguments)

int gridloom_variadic_netsl(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return -error;
    READ(function);
    return -gridloom_grpc_run(&call, slots);
}

int gridloom_variadic_netslnb(const char *function, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_sessionid_t id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_named(function, &call);
    if (error != GRPC_NO_ERROR) return -error;
    READ(function);
    error = gridloom_grpc_begin(&call, slots, &id);
    return error == GRPC_NO_ERROR ? id : -error;
}

int gridloom_variadic_OmniRpcModuleInit(char *module, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_module(module, &call);
    if (error == GRPC_NO_ERROR) {
        READ(module);
        error = gridloom_grpc_initialize_module(&call, slots);
    }
    return gridloom_omnirpc_status(module, error);
}

int gridloom_variadic_OmniRpcCall(char *entry, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_named(entry, &call);
    if (error == GRPC_NO_ERROR) {
        READ(entry);
        error = gridloom_grpc_run(&call, slots);
    }
    return gridloom_omnirpc_status(entry, error);
}

void *gridloom_variadic_OmniRpcCallAsync(char *entry, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_sessionid_t id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_named(entry, &call);
    if (error == GRPC_NO_ERROR) {
        READ(entry);
        error = gridloom_grpc_begin(&call, slots, &id);
    }
    /* A session's id is greater than 0. */
    return gridloom_omnirpc_status(entry, error) == 0 ? (void *)(intptr_t)id : NULL;
}

grpc_error_t gridloom_variadic_grpc_call_with_attr_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open(handle, &call);
    if (error == GRPC_NO_ERROR) error = gridloom_grpc_within(&call, attr);
    if (error != GRPC_NO_ERROR) return error;
    READ(attr);
    return gridloom_grpc_run(&call, slots);
}

grpc_error_t gridloom_variadic_grpc_call_async_with_attr_np(grpc_function_handle_t *handle, grpc_sessionid_t *session_id,
                                                            grpc_session_attr_t_np *attr, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    if (session_id != NULL) *session_id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open(handle, &call);
    if (error == GRPC_NO_ERROR) error = gridloom_grpc_within(&call, attr);
    if (error != GRPC_NO_ERROR) return error;
    READ(attr);
    return gridloom_grpc_begin(&call, slots, session_id);
}

grpc_error_t gridloom_variadic_grpc_invoke_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                                        grpc_session_attr_t_np *attr, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_method(handle, method, &call);
    if (error == GRPC_NO_ERROR) error = gridloom_grpc_within(&call, attr);
    if (error != GRPC_NO_ERROR) return error;
    READ(attr);
    return gridloom_grpc_run(&call, slots);
}

grpc_error_t gridloom_variadic_grpc_invoke_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                                              grpc_sessionid_t *session_id, grpc_session_attr_t_np *attr,
                                                              ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    if (session_id != NULL) *session_id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_method(handle, method, &call);
    if (error == GRPC_NO_ERROR) error = gridloom_grpc_within(&call, attr);
    if (error != GRPC_NO_ERROR) return error;
    READ(attr);
    return gridloom_grpc_begin(&call, slots, session_id);
}
