/* Objects of classes (Ninf-G's DefClass): state on a server, and methods that share it. Included by grpc.h; not of the
 * standard.
 *
 *   grpc_object_handle_t_np counter;
 *   grpc_object_handle_default_np(&counter, "counter");
 *   grpc_invoke_np(&counter, "add", 5, &sum);
 *   grpc_object_handle_destruct_np(&counter);
 *
 * An object is a process of its own on one server, from the making of its handle until its end: it keeps the variables of
 * DefState, those of Globals and those of libraries. Its methods run one at a time, in the order of the calls, and at most
 * once; while one runs it takes one of the server's slots. A method that fails with an error of its own leaves the object
 * as it is. A method that ends the process, or is cancelled or exceeds its time limit while it runs, ends the object. An
 * object that is lost with its process or its server is not made again: its calls then give GRPC_INVALID_OBJECT_HANDLE_NP as their
 * sessions' error.
 *
 * Arguments of methods are those of functions. Remote data go to a method by way of the client, and its results cannot
 * stay remote. In a block of grpc_map, methods run in their order, outside of the plan; an object that is made in one is
 * made in its second run. */
#ifndef GRIDLOOM_GRPC_OBJECTS_H
#define GRIDLOOM_GRPC_OBJECTS_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct grpc_object_handle_np {
    uint64_t mark_np;
    uint64_t number_np;
} grpc_object_handle_t_np;

/* Makes an object of a class and runs its _initialize, on the server that has the fewest of this program's objects for its
 * slots and speed.
 * @param[out] handle  It, until grpc_object_handle_destruct_np or grpc_finalize, which ends it without its _finalize.
 * @param class_name  "module/class", or "class" if no other module has it.
 * @return GRPC_CLASS_NOT_FOUND_NP; GRPC_SERVER_NOT_FOUND, if there is no server; GRPC_RPC_REFUSED, if each keeps as many
 *         objects as it may (256); the error of _initialize, GRPC_TIMEOUT_NP if it took longer than session_timeout of
 *         the configuration. MT-safe. */
grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np *handle, const char *class_name);

/* Likewise, on that server: its name, an address, or a name of the configuration, as for grpc_function_handle_init.
 * @return As above; GRPC_SERVER_NOT_FOUND, if there is no such server. MT-safe. */
grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np *handle, const char *server_name,
                                        const char *class_name);

/* Waits for its methods that were called, runs its _finalize and ends it.
 * @return GRPC_INVALID_OBJECT_HANDLE_NP, if it is none, or the object was lost; the error of _finalize. The handle is
 *         invalid then in each case. MT-safe. */
grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np *handle);

/* The same for arrays: as many objects as there are places, or none. Of grpc_object_handle_array_destruct_np all end, side
 * by side, and the first error is given. MT-safe. */
grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np *handles, size_t count,
                                                 const char *class_name);
grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np *handles, size_t count, const char *server_name,
                                              const char *class_name);
grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np *handles, size_t count);

/* Calls a method, with its arguments as grpc_call passes them, and waits for it.
 * @return GRPC_INVALID_OBJECT_HANDLE_NP; GRPC_FUNCTION_NOT_FOUND, if the class has no such method; else as grpc_call.
 *         MT-safe. */
grpc_error_t grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method_name, ...);

/* Begins a call of a method: its session is waited for as any other. The object's next method runs after it, waited for
 * or not.
 * @param[out] session_id  GRPC_SESSIONID_VOID if there is an error.
 * @return As grpc_invoke_np and grpc_call_async. MT-safe. */
grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method_name,
                                  grpc_sessionid_t *session_id, ...);

/* The same with an argument stack, as grpc_call_arg_stack and grpc_call_arg_stack_async: 0, or the session's id; -1 on an error,
 * which grpc_last_error_get_np gives. MT-safe. */
int grpc_invoke_arg_stack_np(grpc_object_handle_t_np *handle, const char *method_name, grpc_arg_stack_t *stack);
int grpc_invoke_arg_stack_async_np(grpc_object_handle_t_np *handle, const char *method_name, grpc_arg_stack_t *stack);

/* The handle of the object through which a session was begun, as grpc_get_handle gives that of a function.
 * @return GRPC_INVALID_SESSION_ID; GRPC_INVALID_OBJECT_HANDLE_NP, if it was begun through a function, or the object has
 *         ended. MT-safe. */
grpc_error_t grpc_get_object_handle_np(grpc_object_handle_t_np **handle, grpc_sessionid_t session_id);

#ifdef __cplusplus
}
#endif

#endif
