/* Beyond the standard: argument stacks, arrays of handles, time limits, texts of errors. Included by grpc.h.
 *
 * Names, and what the functions do, are those of Ninf-G 5 and NetSolve 2 where a function says so; no other system need
 * have them. */
#ifndef GRIDLOOM_GRPC_EXTENSIONS_H
#define GRIDLOOM_GRPC_EXTENSIONS_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Argument stacks
 * ---------------------------------------------------------------------------------------------------
 *
 * For programs that learn at run time how many arguments there are. Everything is pushed as a pointer, scalars too:
 * what follows from that is the trap of changing from grpc_call. The first argument is pushed first. A string is pushed
 * as the char * itself. The stack is unchanged by a call and may be used again;
 * it is the program's, and one thread's at a time. */

/* Ninf-G's form. */
typedef struct grpc_arg_stack grpc_arg_stack_t;

/* Makes a stack.
 * @param max_arguments  How many it holds, above 0.
 * @return It; NULL if there is no memory or the number is not above 0. Needs no grpc_initialize. MT-safe. */
grpc_arg_stack_t *grpc_arg_stack_new(int max_arguments);
/* Pushes an argument. @return 0, or -1 if the stack is full or NULL. */
int grpc_arg_stack_push_arg(grpc_arg_stack_t *stack, void *argument);
/* Takes the last argument from a stack. @return What was pushed last; NULL if it is empty. */
void *grpc_arg_stack_pop_arg(grpc_arg_stack_t *stack);
/* Ends a stack. @return 0, or -1 for NULL. */
int grpc_arg_stack_destruct(grpc_arg_stack_t *stack);
/* Calls with the arguments of a stack, as grpc_call does. @return 0, or -1 on an error, which grpc_last_error_get_np gives. */
int grpc_call_arg_stack(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);
/* The same without waiting, as grpc_call_async. @return The session id, or -1 on an error. */
int grpc_call_arg_stack_async(grpc_function_handle_t *handle, grpc_arg_stack_t *stack);

/* NetSolve's form: the same under other names, and the call gives a code. */
typedef grpc_arg_stack_t ArgStack;

ArgStack *newArgStack(int max_arguments);
int pushArg(ArgStack *stack, void *argument);
void *popArg(ArgStack *stack);
int destructArgStack(ArgStack *stack);
/* Calls with the arguments of a stack. @return As grpc_call. */
grpc_error_t grpc_call_argstack(grpc_function_handle_t *handle, ArgStack *stack);
/* The same without waiting. @return The session id, or GRPC_SESSIONID_VOID on an error. */
grpc_sessionid_t grpc_call_argstack_async(grpc_function_handle_t *handle, ArgStack *stack);

/* ---- Errors (after Ninf-G)
 * ---------------------------------------------------------------------------------------------- */

/* The text of this thread's last error, with the value, the limit and the remedy; "" if there was none. It is the
 * library's, until the thread's next error. Needs no grpc_initialize. MT-safe. */
const char *grpc_last_error_text_np(void);
/* The code of this thread's last error; GRPC_NO_ERROR if there was none. Needs no grpc_initialize. MT-safe. */
grpc_error_t grpc_last_error_get_np(void);
/* Writes "TEXT: NAME OF THE CODE: TEXT OF THE ERROR" to standard error; the last error stays. Needs no grpc_initialize.
 * MT-safe. */
grpc_error_t grpc_perror_np(const char *text);
/* The text of a session's error, as grpc_get_error gives its code; "" if it has none. Of those that are kept for
 * grpc_get_failed_sessionid only, as many texts are kept as 4 MiB hold. It is the library's, until the thread asks for
 * another. MT-safe. */
const char *grpc_session_error_text_np(grpc_sessionid_t session_id);

/* ---- Sessions
 * ----------------------------------------------------------------------------------------------------------- */

/* What a session was, or is: times in seconds; -1 where they are not known. */
typedef struct grpc_session_details_np {
    grpc_error_t error;
    int is_done;
    char server[256];   /* that ran it, or "" */
    double transfer_s;  /* until its arguments were at the server */
    double queue_s;     /* until it ran */
    double run_s;
    double total_s;     /* from the call until the program could know of its end */
} grpc_session_details_np;

/* What is known of a session. @return GRPC_INVALID_SESSION_ID, unless it is outstanding or remembered. MT-safe. */
grpc_error_t grpc_session_details_get_np(grpc_sessionid_t session_id, grpc_session_details_np *info);
/* Forgets a session that was waited for. @return GRPC_INVALID_SESSION_ID. (Ninf-G) MT-safe. */
grpc_error_t grpc_session_info_remove_np(grpc_sessionid_t session_id);

/* Calls through this handle are cancelled after so many seconds, of virtual time in simulation; their error is
 * GRPC_TIMEOUT_NP. 0: no limit. Overrides session_timeout of the configuration.
 * @return GRPC_INVALID_FUNCTION_HANDLE. MT-safe. */
grpc_error_t grpc_function_handle_set_timeout_np(grpc_function_handle_t *handle, double seconds);
/* The function's signature as `gridloom functions` prints it, to `text` as snprintf does; its length. MT-safe. */
int grpc_function_handle_signature_np(grpc_function_handle_t *handle, char *text, size_t size);
/* The call as a program in C makes it, likewise: what is passed behind the handle, in that order and of those types; extents
 * are in comments. Also -1 if C cannot pass one of its arguments. MT-safe. */
int grpc_function_handle_prototype_np(grpc_function_handle_t *handle, char *text, size_t size);

/* ---- Arrays of handles (Ninf-G)
 * ------------------------------------------------------------------------------------------
 *
 * Makes or ends `count` handles at once; if one cannot be made none is. One handle does as well here: it may have many
 * sessions. Errors as for one. MT-safe. */
grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t *handles, size_t count,
                                                   const char *func_name);
grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t *handles, size_t count, const char *server_name,
                                                const char *func_name);
grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t *handles, size_t count);

#ifdef __cplusplus
}
#endif

#endif
