/* Extensions of the standard: argument stacks, arrays of handles, time limits, texts of errors. Included by grpc.h.
 *
 * If a function's description names Ninf-G 5 or NetSolve 2, its name and effect are those of that system; no other
 * system need have it. */
#ifndef GRIDLOOM_GRPC_EXTENSIONS_H
#define GRIDLOOM_GRPC_EXTENSIONS_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Argument stacks
 * ---------------------------------------------------------------------------------------------------
 *
 * For programs that learn at run time how many arguments there are. Everything is pushed as a pointer, including
 * scalars, which is easily overlooked when changing from grpc_call. The first argument is pushed first. A string is
 * pushed as the char * itself. The stack is not changed by a call and may be used again; it belongs to the program,
 * and only one thread may use it at a time. */

/* Ninf-G's functions. */
typedef struct grpc_arg_stack grpc_arg_stack_t;

/* Makes a stack.
 * @param max_arguments  Its capacity, above 0.
 * @return The stack; NULL if there is no memory or the number is not above 0. Needs no grpc_initialize. MT-safe. */
grpc_arg_stack_t *grpc_arg_stack_new(int max_arguments);
/* Pushes an argument. @return 0, or -1 if the stack is full or NULL. */
int grpc_arg_stack_push_arg(grpc_arg_stack_t *stack, void *argument);
/* Takes the last argument from a stack. @return The argument that was pushed last; NULL if the stack is empty. */
void *grpc_arg_stack_pop_arg(grpc_arg_stack_t *stack);
/* Ends a stack. @return 0, or -1 for NULL. */
int grpc_arg_stack_destruct(grpc_arg_stack_t *stack);
/* Calls a function with the arguments of a stack, as grpc_call does. @return 0, or -1 on an error; see
 * grpc_last_error_get_np. */
int grpc_call_arg_stack(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);
/* Does the same without waiting, as grpc_call_async. @return The session id, or -1 on an error. */
int grpc_call_arg_stack_async(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);

/* NetSolve's functions: the same with other names, except that the call returns a code. */
typedef grpc_arg_stack_t ArgStack;

ArgStack *newArgStack(int max_arguments);
int pushArg(ArgStack *stack, void *argument);
void *popArg(ArgStack *stack);
int destructArgStack(ArgStack *stack);
/* Calls a function with the arguments of a stack. @return As grpc_call. */
grpc_error_t grpc_call_argstack(grpc_function_handle_t *handle, ArgStack *stack);
/* Does the same without waiting. @return The session id, or GRPC_SESSIONID_VOID on an error. */
grpc_sessionid_t grpc_call_argstack_async(grpc_function_handle_t *handle, ArgStack *stack);

/* ---- Errors (after Ninf-G)
 * ---------------------------------------------------------------------------------------------- */

/* Returns the text of this thread's last error, with the value, the limit and the remedy; "" if there was none. It
 * belongs to the library, and is valid until the thread's next error. Needs no grpc_initialize. MT-safe. */
const char *grpc_last_error_text_np(void);
/* Returns the code of this thread's last error; GRPC_NO_ERROR if there was none. Needs no grpc_initialize. MT-safe. */
grpc_error_t grpc_last_error_get_np(void);
/* Writes "TEXT: NAME OF THE CODE: TEXT OF THE ERROR" to standard error; the last error is not changed. Needs no
 * grpc_initialize. MT-safe. */
grpc_error_t grpc_perror_np(const char *text);
/* Returns the text of a session's error, whose code grpc_get_error returns; "" if it has none. For sessions that are
 * kept only for grpc_get_failed_sessionid, the total size of the texts is limited to 4 MiB. The text belongs to the
 * library, and is valid until the thread requests another one. MT-safe. */
const char *grpc_session_error_text_np(grpc_sessionid_t session_id);

/* ---- Sessions
 * ----------------------------------------------------------------------------------------------------------- */

/* Details of a session: times in seconds; -1 if they are unknown. */
typedef struct grpc_session_details_np {
    grpc_error_t error;
    int is_done;
    char server[256];   /* the server that ran it, or "" */
    double transfer_s;  /* until its arguments were at the server */
    double queue_s;     /* until it ran */
    double run_s;
    double total_s;     /* from the call until the program could learn of its end */
} grpc_session_details_np;

/* Returns the details of a session. @return GRPC_INVALID_SESSION_ID, unless it is outstanding or remembered. MT-safe. */
grpc_error_t grpc_session_details_get_np(grpc_sessionid_t session_id, grpc_session_details_np *info);
/* Forgets a session that was waited for. @return GRPC_INVALID_SESSION_ID. (Ninf-G) MT-safe. */
grpc_error_t grpc_session_info_remove_np(grpc_sessionid_t session_id);

/* Returns the time in seconds: since 1970, or virtual time in a simulation. A program that adapts to the duration of its
 * calls should measure them with this function, so that it behaves the same in each simulated run. Returns -1 if there is
 * no session; grpc_last_error_get_np then returns GRPC_NOT_INITIALIZED. MT-safe. */
double grpc_now_np(void);

/* Sets a time limit, in seconds (of virtual time in simulation), after which calls through this handle are cancelled;
 * their error is GRPC_TIMEOUT_NP. 0: no limit. Overrides session_timeout of the configuration.
 * @return GRPC_INVALID_FUNCTION_HANDLE. MT-safe. */
grpc_error_t grpc_function_handle_set_timeout_np(grpc_function_handle_t *handle, double seconds);
/* Sets the priority of calls through this handle: among the waiting calls of one user at a server, those with the lowest
 * number start first; the default is 0. It changes nothing for other users, whose turns do not depend on priorities.
 * `gridloom calls` shows it. @return GRPC_INVALID_FUNCTION_HANDLE. MT-safe. */
grpc_error_t grpc_function_handle_set_priority_np(grpc_function_handle_t *handle, int priority);
/* Sets the priority of all calls that the process makes from now on through handles without a priority of their own, and of
 * the groups of grpc_map.h. Until it is set, the priority is 0 in a program; in a function, it is that of the running call. MT-safe. */
grpc_error_t grpc_set_priority_np(int priority);
/* Writes the function's signature, as printed by `gridloom functions`, to `text` as snprintf does. Returns its
 * length. MT-safe. */
int grpc_function_handle_signature_np(grpc_function_handle_t *handle, char *text, size_t size);
/* Writes the call as a C program makes it, in the same way: the arguments after the handle, in their order and with
 * their types; extents are in comments. Returns -1 also if C cannot pass one of the arguments. MT-safe. */
int grpc_function_handle_prototype_np(grpc_function_handle_t *handle, char *text, size_t size);

/* ---- Arrays of handles (Ninf-G)
 * ------------------------------------------------------------------------------------------
 *
 * These functions make or end `count` handles at once; if one cannot be made none is. In Gridloom a single handle is
 * as good, because it may have many sessions. Errors are the same as for one handle. MT-safe. */
grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t *handles, size_t count,
                                                   const char *func_name);
grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t *handles, size_t count, const char *server_name,
                                                const char *func_name);
grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t *handles, size_t count);

#ifdef __cplusplus
}
#endif

#endif
