/* Objects of a DefClass (Ninf-G). A plan, and not installed: classes are read and compiled, and not served yet. */
#ifndef GRIDLOOM_GRPC_OBJECTS_H
#define GRIDLOOM_GRPC_OBJECTS_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Objects (Ninf-G)
 * ----------------------------------------------------------------------------------------------------
 *
 * An object of a DefClass lives in a worker process of one server, with its state, from its handle's making until its
 * end; its methods run one at a time, in the order of the calls, at most once. If its process is lost, so is its state:
 * its calls then give GRPC_INVALID_OBJECT_HANDLE_NP as their sessions' error. */
typedef struct grpc_object_handle_np {
    uint64_t mark_np;
    uint64_t number_np;
} grpc_object_handle_t_np;

/* Makes an object of that class ("module/class", or "class") on some server, or on the one named, and runs its
 * _initialize.
 * @return GRPC_CLASS_NOT_FOUND_NP; GRPC_SERVER_NOT_FOUND; GRPC_RPC_REFUSED, if the server has no slot for it;
 *         GRPC_SESSION_FAILED if _initialize failed. MT-safe. */
grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np *handle, const char *class_name);
grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np *handle, const char *server_name,
                                        const char *class_name);
/* Waits for its methods that were called, runs _finalize and ends the object.
 * @return GRPC_INVALID_OBJECT_HANDLE_NP. MT-safe. */
grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np *handle);
/* Calls a method: as grpc_call and grpc_call_async.
 * @return GRPC_INVALID_OBJECT_HANDLE_NP; GRPC_FUNCTION_NOT_FOUND if the class has no such method. MT-safe. */
grpc_error_t grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method_name, ...);
grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method_name,
                                  grpc_sessionid_t *session_id, ...);
grpc_error_t grpc_invoke_arg_stack_np(grpc_object_handle_t_np *handle, const char *method_name,
                                      grpc_arg_stack_t *stack);
grpc_error_t grpc_invoke_arg_stack_async_np(grpc_object_handle_t_np *handle, const char *method_name,
                                            grpc_sessionid_t *session_id, grpc_arg_stack_t *stack);

#ifdef __cplusplus
}
#endif

#endif
