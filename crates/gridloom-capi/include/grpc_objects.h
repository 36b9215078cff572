/* Objects of classes (Ninf-G's DefClass): state on a server, and methods that share it. Included by grpc.h; not part
 * of the standard.
 *
 *   grpc_object_handle_t_np counter;
 *   grpc_object_handle_default_np(&counter, "counter");
 *   grpc_invoke_np(&counter, "add", 5, &sum);
 *   grpc_object_handle_destruct_np(&counter);
 *
 * An object is a separate process on one server, from when its handle is made until it ends: it keeps the variables
 * of DefState, those of Globals and those of libraries. Its methods run one at a time, in the order of the calls, and
 * at most once; while one runs it takes one of the server's slots. If a method fails with an error of its own, the
 * object is not affected. If a method ends the process, or is cancelled or exceeds its time limit while it runs, the
 * object ends. An object that is lost with its process or its server is not made again: its calls then have the error
 * GRPC_INVALID_OBJECT_HANDLE_NP.
 *
 * Arguments of methods are those of functions. Remote data are sent to a method through the client, and its results
 * cannot stay remote. In a block of grpc_map, methods run in their order, outside of the plan; an object that is made
 * in a block is made in its second run. */
#ifndef GRIDLOOM_GRPC_OBJECTS_H
#define GRIDLOOM_GRPC_OBJECTS_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An object of a class. Its memory belongs to the program and its content to the library; copies are the same handle. */
typedef struct grpc_object_handle_np {
    uint64_t mark_np;
    uint64_t number_np;
} grpc_object_handle_t_np;

/* Makes an object of a class and runs its _initialize, on the server that has the fewest of this program's objects
 * for its slots and speed.
 * @param[out] handle  The handle, until grpc_object_handle_destruct_np or grpc_finalize, which ends it without its
 *          _finalize.
 * @param class_name  "module/class", or "class" if no other module has it.
 * @return GRPC_CLASS_NOT_FOUND_NP; GRPC_SERVER_NOT_FOUND, if there is no server; GRPC_RPC_REFUSED, if each server has
 *          its maximum of objects (256); the error of _initialize, GRPC_TIMEOUT_NP if it took longer than
 *          session_timeout of the configuration. MT-safe. */
grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np *handle, const char *class_name);

/* Does the same on that server: its name, an address, or a name of the configuration, as for
 * grpc_function_handle_init.
 * @return As above; GRPC_SERVER_NOT_FOUND, if there is no such server. MT-safe. */
grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np *handle, const char *server_name,
                                        const char *class_name);

/* Waits for its methods that were called, runs its _finalize and ends it.
 * @return GRPC_INVALID_OBJECT_HANDLE_NP, if it is not a handle, or if the object was lost; the error of _finalize.
 *          The handle is invalid afterwards in each case. MT-safe. */
grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np *handle);

/* Do the same for arrays: either all objects are made, or none. grpc_object_handle_array_destruct_np ends all of them
 * concurrently, and returns the first error. MT-safe. */
grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np *handles, size_t count,
                                                 const char *class_name);
grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np *handles, size_t count, const char *server_name,
                                              const char *class_name);
grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np *handles, size_t count);

/* Calls a method, with its arguments as for grpc_call, and waits for it.
 * @return GRPC_INVALID_OBJECT_HANDLE_NP; GRPC_FUNCTION_NOT_FOUND, if the class has no such method; else as grpc_call.
 *          MT-safe. */
grpc_error_t grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method_name, ...);

/* Starts a call of a method: its session is waited for like any other. The object's next method runs after it,
 * whether it is waited for or not.
 * @param[out] session_id  GRPC_SESSIONID_VOID if there is an error.
 * @return As grpc_invoke_np and grpc_call_async. MT-safe. */
grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method_name,
                                  grpc_sessionid_t *session_id, ...);

/* Do the same with an argument stack, as grpc_call_arg_stack and grpc_call_arg_stack_async: return 0, or the
 * session's id; -1 on an error, see grpc_last_error_get_np. MT-safe. */
int grpc_invoke_arg_stack_np(grpc_object_handle_t_np *handle, const char *method_name, grpc_arg_stack_t *stack);
int grpc_invoke_arg_stack_async_np(grpc_object_handle_t_np *handle, const char *method_name, grpc_arg_stack_t *stack);

/* Returns the handle of the object through which a session was started, as grpc_get_handle does for a function.
 * @return GRPC_INVALID_SESSION_ID; GRPC_INVALID_OBJECT_HANDLE_NP, if it was started through a function, or the object
 *          has ended. MT-safe. */
grpc_error_t grpc_get_object_handle_np(grpc_object_handle_t_np **handle, grpc_sessionid_t session_id);

#ifdef __cplusplus
}
#endif

#endif
