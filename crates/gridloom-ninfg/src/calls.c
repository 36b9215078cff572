/* The variadic functions of grpc_ninfg.h. They read their arguments as those of grpc.h do (gridloom-grpc). */
#include "ninfg_calls.h"

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
