/* The variadic functions of grpc_ninfg.h, under names to which the exported symbols jump, and what they call. */
#ifndef GRIDLOOM_NINFG_CALLS_H
#define GRIDLOOM_NINFG_CALLS_H

#include <calls.h>
#include <grpc_ninfg.h>

/* Sets the time limits of attributes for an open call; after an error the call is closed. */
grpc_error_t gridloom_grpc_within(gridloom_open_call *call, const grpc_session_attr_t_np *attr);

grpc_error_t gridloom_variadic_grpc_call_with_attr_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr, ...);
grpc_error_t gridloom_variadic_grpc_call_async_with_attr_np(grpc_function_handle_t *handle, grpc_sessionid_t *session_id,
                                                            grpc_session_attr_t_np *attr, ...);
grpc_error_t gridloom_variadic_grpc_invoke_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                                        grpc_session_attr_t_np *attr, ...);
grpc_error_t gridloom_variadic_grpc_invoke_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                                              grpc_sessionid_t *session_id, grpc_session_attr_t_np *attr,
                                                              ...);

#endif
