/* Ninf-G's features beyond the standard and grpc_extensions.h: attributes of handles and sessions, records of
 * sessions, signal handlers, configuration files. Included by grpc.h; programs written for Ninf-G 2, 4 and 5 use
 * them.
 *
 * Many of them describe how Ninf-G starts a job for each handle and transfers arguments. Here servers are already
 * running, and arguments are copied before a call returns. Settings without a meaning here are stored and returned,
 * and have no effect; the description of each attribute states whether it has one. */
#ifndef GRIDLOOM_GRPC_NINFG_H
#define GRIDLOOM_GRPC_NINFG_H

#include "grpc.h"

#include "grpc_extensions.h"
#include "grpc_objects.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Configuration files
 * ------------------------------------------------------------------------------------------------------ */

/* Reads another configuration, of either form (grpc_initialize), during the session: its servers' names, time
 * limits and numbers of ranks apply to handles that are made from then on.
 * @return GRPC_CONFIGFILE_NOT_FOUND; GRPC_CONFIGFILE_ERROR. MT-safe. */
grpc_error_t grpc_config_file_read_np(const char *config_file_name);

/* ---- Attributes of handles
 * ------------------------------------------------------------------------------------------------------- */

/* When grpc_call_async returns. All three have the same effect: inputs are copied before it returns. */
typedef enum grpc_argument_transfer_e_np {
    GRPC_ARGUMENT_TRANSFER_WAIT = 1,
    GRPC_ARGUMENT_TRANSFER_NOWAIT = 2,
    GRPC_ARGUMENT_TRANSFER_COPY = 3
} grpc_argument_transfer_t_np;

/* Settings with which a handle is made. Strings belong to the library; NULL if there are none. */
typedef struct grpc_handle_attr_s_np {
    char *gha_remoteHostName;
    int gha_remotePortNo;
    char *gha_jobManager;
    char *gha_subject;
    char *gha_functionName;
    int gha_jobStartTimeout;
    int gha_jobStopTimeout;
    grpc_argument_transfer_t_np gha_waitArgTransfer;
    char *gha_queueName;
    int gha_mpiNcpus;
} grpc_handle_attr_t_np;

/* Names of the attributes. Each comment begins with the type of the value that is passed by pointer. */
typedef enum grpc_handle_attr_name_e_np {
    GRPC_HANDLE_ATTR_HOSTNAME,          /* char *: the server's, as for grpc_function_handle_init */
    GRPC_HANDLE_ATTR_PORT,              /* int *: the server's, if it is not 0 */
    GRPC_HANDLE_ATTR_JOBMANAGER,        /* char *; without meaning */
    GRPC_HANDLE_ATTR_SUBJECT,           /* char *; without meaning */
    GRPC_HANDLE_ATTR_FUNCNAME,          /* char *: of the function, or of the class */
    GRPC_HANDLE_ATTR_JOBSTARTTIMEOUT,   /* int *; without meaning */
    GRPC_HANDLE_ATTR_JOBSTOPTIMEOUT,    /* int *; without meaning */
    GRPC_HANDLE_ATTR_WAIT_ARG_TRANSFER, /* grpc_argument_transfer_t_np *; without meaning */
    GRPC_HANDLE_ATTR_QUEUENAME,         /* char *; without meaning */
    GRPC_HANDLE_ATTR_MPI_NCPUS          /* int *: ranks of each call, if the function runs on ranks (Backend "MPI"); 0 for those of
                                           the configuration (mpi_runNoOfCPUs), or else of the server, which is the most */
} grpc_handle_attr_name_t_np;

/* Clears all attributes. @return GRPC_OTHER_ERROR_CODE for NULL. MT-safe. */
grpc_error_t grpc_handle_attr_initialize_np(grpc_handle_attr_t_np *attr);
/* Frees the memory of attributes. MT-safe. */
grpc_error_t grpc_handle_attr_destruct_np(grpc_handle_attr_t_np *attr);
/* Sets an attribute to a copy of a value. MT-safe.
 * @param value  By its type: a string, or a pointer to a number. */
grpc_error_t grpc_handle_attr_set_np(grpc_handle_attr_t_np *attr, grpc_handle_attr_name_t_np name, void *value);
/* Returns a copy of an attribute. MT-safe.
 * @param[out] value  By its type; NULL for a string that is not set. To be freed with grpc_handle_attr_release_np. */
grpc_error_t grpc_handle_attr_get_np(grpc_handle_attr_t_np *attr, grpc_handle_attr_name_t_np name, void **value);
/* Frees a copy that grpc_handle_attr_get_np has returned. NULL is ignored. MT-safe. */
grpc_error_t grpc_handle_attr_release_np(void *value);

/* Makes a handle of the function, or of an object of the class, that the attributes name, on the server that they
 * name, or on any. Otherwise the same as without attributes. MT-safe. */
grpc_error_t grpc_function_handle_init_with_attr_np(grpc_function_handle_t *handle, grpc_handle_attr_t_np *attr);
grpc_error_t grpc_function_handle_array_init_with_attr_np(grpc_function_handle_t *handles, size_t count,
                                                          grpc_handle_attr_t_np *attr);
grpc_error_t grpc_object_handle_init_with_attr_np(grpc_object_handle_t_np *handle, grpc_handle_attr_t_np *attr);
grpc_error_t grpc_object_handle_array_init_with_attr_np(grpc_object_handle_t_np *handles, size_t count,
                                                        grpc_handle_attr_t_np *attr);

/* Returns the attributes of a handle: its function or class, and its server if it is bound to one. MT-safe.
 * @param[out] attr  Written to; grpc_handle_attr_destruct_np frees its memory. */
grpc_error_t grpc_function_handle_get_attr_np(grpc_function_handle_t *handle, grpc_handle_attr_t_np *attr);
grpc_error_t grpc_object_handle_get_attr_np(grpc_object_handle_t_np *handle, grpc_handle_attr_t_np *attr);

/* ---- Handles
 * ------------------------------------------------------------------------------------------------------------------- */

/* The same as grpc_get_handle and grpc_get_object_handle_np. MT-safe. */
grpc_error_t grpc_function_handle_get_from_session_np(grpc_function_handle_t **handle, grpc_sessionid_t session_id);
grpc_error_t grpc_object_handle_get_from_session_np(grpc_object_handle_t_np **handle, grpc_sessionid_t session_id);

/* Reports whether calls can be made through a handle now.
 * @return GRPC_NO_ERROR; GRPC_INVALID_FUNCTION_HANDLE or GRPC_INVALID_OBJECT_HANDLE_NP; GRPC_SERVER_NOT_FOUND, if its
 *          server does not exist. MT-safe. */
grpc_error_t grpc_function_handle_is_ready_np(grpc_function_handle_t *handle);
grpc_error_t grpc_object_handle_is_ready_np(grpc_object_handle_t_np *handle);

/* Returns the error of a handle: the same as the function above. MT-safe. */
grpc_error_t grpc_function_handle_get_error_np(grpc_function_handle_t *handle);
grpc_error_t grpc_object_handle_get_error_np(grpc_object_handle_t_np *handle);
/* Writes "TEXT: NAME OF THAT ERROR" to standard error. MT-safe. */
grpc_error_t grpc_function_handle_perror_np(grpc_function_handle_t *handle, const char *text);
grpc_error_t grpc_object_handle_perror_np(grpc_object_handle_t_np *handle, const char *text);

/* ---- Attributes of sessions
 * ------------------------------------------------------------------------------------------------------ */

/* Settings with which a call is made. Times are in seconds; 0 is none.
 *
 * A call with a transfer that takes longer than its limit fails with GRPC_TIMEOUT_NP. The limit of arguments counts
 * from when they are sent, again for each server to which the call is sent, and includes the time that they wait for
 * room there. It is up to 0.1 s longer, because servers report received arguments periodically. Arguments up to 32
 * KiB are sent with the call itself and do not count. Neither limit applies to calls of a grpc_map block and those
 * with remote data: these have only the limit of the session. */
typedef struct grpc_session_attr_s_np {
    grpc_argument_transfer_t_np gsa_waitArgTransfer;
    int gsa_timeout;
    int gsa_transferTimeout_argument;
    int gsa_transferTimeout_result;
    int gsa_transferTimeout_cbArgument;
    int gsa_transferTimeout_cbResult;
} grpc_session_attr_t_np;

typedef enum grpc_session_attr_name_e_np {
    GRPC_SESSION_ATTR_WAIT_ARG_TRANSFER,                  /* grpc_argument_transfer_t_np *; without meaning */
    GRPC_SESSION_ATTR_SESSION_TIMEOUT,                    /* int *: seconds that the call may take */
    GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_ARGUMENT,          /* int *: seconds until the arguments are at the server */
    GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_RESULT,            /* int *: seconds from the function's end until its results are at the client */
    GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_ARGUMENT, /* int *; without meaning: the session's limit applies */
    GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_RESULT    /* the same */
} grpc_session_attr_name_t_np;

/* Sets all attributes to those of calls through this handle. MT-safe. */
grpc_error_t grpc_session_attr_initialize_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr);
grpc_error_t grpc_session_attr_initialize_with_object_handle_np(grpc_object_handle_t_np *handle,
                                                                grpc_session_attr_t_np *attr);
/* The same as for attributes of handles. MT-safe. */
grpc_error_t grpc_session_attr_destruct_np(grpc_session_attr_t_np *attr);
grpc_error_t grpc_session_attr_set_np(grpc_session_attr_t_np *attr, grpc_session_attr_name_t_np name, void *value);
grpc_error_t grpc_session_attr_get_np(grpc_session_attr_t_np *attr, grpc_session_attr_name_t_np name, void **value);
grpc_error_t grpc_session_attr_release_np(void *value);

/* Make calls with attributes; otherwise as grpc_call, grpc_call_async, grpc_call_arg_stack and related functions.
 * MT-safe. */
grpc_error_t grpc_call_with_attr_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr, ...);
grpc_error_t grpc_call_async_with_attr_np(grpc_function_handle_t *handle, grpc_sessionid_t *session_id,
                                          grpc_session_attr_t_np *attr, ...);
int grpc_call_arg_stack_with_attr_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr,
                                     grpc_arg_stack_t *stack);
int grpc_call_arg_stack_async_with_attr_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr,
                                           grpc_arg_stack_t *stack);
grpc_error_t grpc_invoke_with_attr_np(grpc_object_handle_t_np *handle, const char *method_name,
                                      grpc_session_attr_t_np *attr, ...);
grpc_error_t grpc_invoke_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method_name,
                                            grpc_sessionid_t *session_id, grpc_session_attr_t_np *attr, ...);
int grpc_invoke_arg_stack_with_attr_np(grpc_object_handle_t_np *handle, const char *method_name,
                                       grpc_session_attr_t_np *attr, grpc_arg_stack_t *stack);
int grpc_invoke_arg_stack_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method_name,
                                             grpc_session_attr_t_np *attr, grpc_arg_stack_t *stack);

/* ---- Records of sessions
 * --------------------------------------------------------------------------------------------------------- */

#define GRPC_SESSION_DONE 1
#define GRPC_SESSION_ARG_IS_NOT_TRANSMITED 2
#define GRPC_SESSION_EXECUTING 3
#define GRPC_SESSION_DOWN 4 /* it failed */
#define GRPC_SESSION_UNKNOWN_STATUS 5

/* Measured where the function ran. Only calculationRealTime is known; the others are 0. */
typedef struct grpc_exec_info_executable_s_np {
    int callbackNtimesCalled;
    struct timeval transferArgumentToRemoteRealTime, transferArgumentToRemoteCpuTime;
    struct timeval transferFileToRemoteRealTime, transferFileToRemoteCpuTime;
    struct timeval calculationRealTime, calculationCpuTime;
    struct timeval transferResultToClientRealTime, transferResultToClientCpuTime;
    struct timeval transferFileToClientRealTime, transferFileToClientCpuTime;
    struct timeval callbackTransferArgumentToClientRealTime, callbackTransferArgumentToClientCpuTime;
    struct timeval callbackCalculationRealTime, callbackCalculationCpuTime;
    struct timeval callbackTransferResultToRemoteRealTime, callbackTransferResultToRemoteCpuTime;
} grpc_exec_info_executable_t_np;

/* Measured by the client. Only calculationRealTime is known: from the call to its end. */
typedef struct grpc_exec_info_client_s_np {
    int callbackNtimesCalled;
    struct timeval remoteMachineInfoRequestRealTime, remoteMachineInfoRequestCpuTime;
    struct timeval remoteClassInfoRequestRealTime, remoteClassInfoRequestCpuTime;
    struct timeval gramInvokeRealTime, gramInvokeCpuTime;
    struct timeval transferArgumentToRemoteRealTime, transferArgumentToRemoteCpuTime;
    struct timeval calculationRealTime, calculationCpuTime;
    struct timeval transferResultToClientRealTime, transferResultToClientCpuTime;
    struct timeval callbackTransferArgumentToClientRealTime, callbackTransferArgumentToClientCpuTime;
    struct timeval callbackCalculationRealTime, callbackCalculationCpuTime;
    struct timeval callbackTransferResultToRemoteRealTime, callbackTransferResultToRemoteCpuTime;
} grpc_exec_info_client_t_np;

/* Nothing is compressed. */
typedef struct grpc_compression_info_s_np {
    int valid;
    size_t originalNbytes, compressionNbytes;
    struct timeval compressionRealTime, compressionCpuTime;
    struct timeval decompressionRealTime, decompressionCpuTime;
} grpc_compression_info_t_np;

typedef struct grpc_session_info_s_np {
    grpc_exec_info_executable_t_np gei_measureExecutable;
    grpc_exec_info_client_t_np gei_measureClient;
    struct {
        int nElements; /* 0 */
        grpc_compression_info_t_np *toRemote;
        grpc_compression_info_t_np *toClient;
    } gei_compressionInformation;
} grpc_session_info_t_np;

typedef grpc_session_info_t_np grpc_exec_info_t_np;

/* Names of fields in earlier versions. */
#define transferArgumentRealTime transferArgumentToRemoteRealTime
#define transferArgumentCpuTime transferArgumentToRemoteCpuTime
#define transferFileClientToRemoteRealTime transferFileToRemoteRealTime
#define transferFileClientToRemoteCpuTime transferFileToRemoteCpuTime
#define transferResultRealTime transferResultToClientRealTime
#define transferResultCpuTime transferResultToClientCpuTime
#define transferFileRemoteToClientRealTime transferFileToClientRealTime
#define transferFileRemoteToClientCpuTime transferFileToClientCpuTime
#define callbackTransferArgumentRealTime callbackTransferArgumentToClientRealTime
#define callbackTransferArgumentCpuTime callbackTransferArgumentToClientCpuTime
#define callbackTransferResultRealTime callbackTransferResultToRemoteRealTime
#define callbackTransferResultCpuTime callbackTransferResultToRemoteCpuTime
#define executableRealTime calculationRealTime
#define executableCpuTime calculationCpuTime
#define clientRealTime calculationRealTime
#define clientCpuTime calculationCpuTime

/* Returns the record of a session.
 * @param[out] info  New memory, to be freed with grpc_session_info_release_np; NULL if only the status is wanted.
 * @param[out] status  One of the above; may be NULL. GRPC_SESSION_UNKNOWN_STATUS with an error.
 * @return GRPC_INVALID_SESSION_ID, unless it is outstanding or remembered. MT-safe. */
grpc_error_t grpc_session_info_get_np(grpc_sessionid_t session_id, grpc_session_info_t_np **info, int *status);
/* Frees a record that grpc_session_info_get_np has returned. MT-safe. */
grpc_error_t grpc_session_info_release_np(grpc_session_info_t_np *info);
/* Writes the same into memory of the program (earlier versions); both pointers may be NULL. MT-safe. */
grpc_error_t grpc_get_info_np(grpc_sessionid_t session_id, grpc_exec_info_t_np *info, int *status);
/* Does this for the session that this thread started last, including a grpc_call.
 * @return GRPC_INVALID_SESSION_ID if it started none. MT-safe. */
grpc_error_t grpc_get_last_info_np(grpc_exec_info_t_np *info, int *status);
/* Sets how many sessions are remembered from then on after they were waited for: save_session_info. Negative: all.
 * MT-safe. */
grpc_error_t grpc_session_info_set_threshold_np(int count);

/* ---- Signals
 * ------------------------------------------------------------------------------------------------------------------- */

/* Sets the program's handler of a signal, by sigaction. The library's threads block all signals, so it runs on a
 * thread of the program.
 * @return GRPC_OTHER_ERROR_CODE, if there is no such signal or it cannot be handled. MT-safe. */
grpc_error_t grpc_signal_handler_set_np(int signal_number, void (*handler)(int));

#define grpc_get_last_error_np grpc_last_error_get_np

#ifdef __cplusplus
}
#endif

#endif
