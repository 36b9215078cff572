/* GridRPC for C: the portable functions of the standard (GFD.52), on a Gridloom grid.
 *
 *   #include <grpc.h>
 *
 *   grpc_function_handle_t handle;
 *   double sum;
 *   grpc_initialize(NULL);
 *   grpc_function_handle_default(&handle, "docs/dot");
 *   grpc_call(&handle, 3, x, y, &sum);
 *   grpc_function_handle_destruct(&handle);
 *   grpc_finalize();
 *
 *   cc program.c $(pkg-config --cflags --libs gridloom) -o program
 *
 * This header includes others with functions beyond the standard: grpc_extensions.h (argument stacks of Ninf-G and
 * NetSolve, arrays of handles, time limits, texts of errors), grpc_objects.h (objects of classes), grpc_ninfg.h
 * (attributes), grpc_remote.h (data that stay on servers), grpc_shared.h (data with names that all programs of the
 * grid find), grpc_data.h (data management), grpc_map.h (blocks of calls that are mapped together), grpc_plan.h
 * (their plans), grpc_heuristic.h (heuristics defined by the program), grpc_graph.h (calls that are described
 * beforehand). Their names end in _np, Ninf-G's mark of functions that are not portable, unless programs of another
 * system use another name.
 *
 * Conventions
 * - Programs must compare errors by name: other systems use other numbers.
 * - Every function except grpc_error_string returns GRPC_NOT_INITIALIZED before grpc_initialize and after
 *   grpc_finalize. It returns GRPC_OTHER_ERROR_CODE for errors without a code of their own, such as a null pointer.
 *   Neither is listed below. On an error nothing is written through pointers, unless a function's description
 *   differs. grpc_last_error_text_np() returns the text of the thread's last error; GRPC_NOT_COMPLETED and
 *   GRPC_NONE_COMPLETED are results, and do not count as errors there.
 * - Strings passed to a function are copied.
 * - "MT-safe" functions may be called by any threads at any time. All functions are MT-safe, except grpc_initialize
 *   and grpc_finalize; if two threads wait for the same session, one gets its result and the other
 *   GRPC_INVALID_SESSION_ID.
 * - A child made by fork() has no session: it gets GRPC_NOT_INITIALIZED and may call grpc_initialize. The library
 *   does not change signal handling.
 *
 * Arguments of a call
 *   The function's signature, which servers publish, determines the arguments after the handle: one argument for each
 *   parameter, in the same order:
 *     IN scalar              its value, as C passes it to a function without a prototype: char and short as int, float
 *                            as double
 *     OUT, INOUT scalar      a pointer to it
 *     array, of any mode     a pointer to its first element; the signature's extents determine the number of elements that
 *                            are read or written, row by row ("C") or column by column ("FORTRAN") as the function
 *                            declares: memory is passed unchanged
 *     array with slices      a pointer to the whole array; with Shrink "yes" nothing outside of the slices is read or written
 *     VAROUT array           a pointer to a pointer, which is set to a new array; the program passes that to free()
 *     IN string              char *, which ends in a NUL; for a Python function it must be UTF-8, or the call fails with
 *                            GRPC_OTHER_ERROR_CODE; NULL arrives as NULL
 *     OUT, INOUT string      char **, set to a new string, which the program passes to free(), or to NULL; the old string of an
 *                            INOUT still belongs to the program
 *     filename               char *, a path: IN files are read before the call returns, OUT files are written beside their
 *                            path and renamed with the results; NULL is no file, or one that is not wanted, and arrives as
 *                            NULL; "" is an empty file, or one that is made and not wanted
 *     filepointer            FILE *, open: the rest of its content is sent
 *     array of strings       char **, an array of pointers as above; results are set like those of an OUT string
 *     array of filenames     char **, an array of paths as above
 *     array of filepointers  FILE **; a result is written to the file, which is then rewound, or to a new tmpfile()
 *                            if the entry is NULL
 *     WORK                   anything, usually NULL: it is ignored
 *     callback               a pointer to a function, after all other arguments. It is called while the call runs, by a
 *                            thread of the library or, in simulation, by one that waits or probes. It gets pointers to
 *                            arrays that belong to it until it returns. One callback runs at a time; it must not wait for
 *                            the session that it serves
 *   For a Python function, arrays are row by row. Sizes that its arrays name but its parameters do not are passed,
 *   too:
 *   as int64_t, after the other inputs, in the order in which they are first named. Making a handle of a function
 *   that has
 *   any other parameters (bytes) fails with GRPC_RPC_REFUSED.
 *   As with printf, nothing checks that the program passes what the signature requires. `gridloom functions` shows
 *   signatures. NULL for an OUT argument means that the result is not wanted, and it is not written. NULL for any
 *   other
 *   argument is GRPC_OTHER_ERROR_CODE, unless it is an array without elements.
 *
 * Lifetime
 *   Inputs are read, and copied if necessary, before the call returns, including grpc_call_async: the memory may be
 *   changed or freed afterwards. Results are written through the pointers passed to the call, by the thread that
 *   learns of the session's end: in grpc_wait*, or in a grpc_probe* that reports it. These pointers, and the handle,
 *   must
 *   stay valid until then. */
#ifndef GRIDLOOM_GRPC_H
#define GRIDLOOM_GRPC_H

/* Headers that Ninf-G's header includes, on which programs written for it rely. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Complex numbers of interface descriptions. C99's float _Complex and double _Complex may be passed as well. */
#ifndef GRPC_COMPLEX_NP
#define GRPC_COMPLEX_NP
typedef struct scomplex {
    float r, i;
} scomplex;
typedef struct dcomplex {
    double r, i;
} dcomplex;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A function of the grid, bound to a server or not. Its memory belongs to the program and its content to the library;
 * zeros are not a valid handle. It may be copied: copies refer to the same handle, and all end with the first
 * grpc_function_handle_destruct. */
typedef struct grpc_function_handle {
    uint64_t mark_np;
    uint64_t number_np;
} grpc_function_handle_t;

/* A call that was started: above 0. It is outstanding from the call until it is waited for. */
typedef int grpc_sessionid_t;

/* One of the codes below. */
#ifndef GRPC_ERROR_NP
#define GRPC_ERROR_NP
typedef int grpc_error_t;
#endif

#define GRPC_SESSIONID_VOID (-1) /* no session */

#define GRPC_NO_ERROR 0
#define GRPC_NOT_INITIALIZED 1
#define GRPC_ALREADY_INITIALIZED 2
#define GRPC_CONFIGFILE_NOT_FOUND 3
#define GRPC_CONFIGFILE_ERROR 4
#define GRPC_SERVER_NOT_FOUND 5
#define GRPC_FUNCTION_NOT_FOUND 6
#define GRPC_INVALID_FUNCTION_HANDLE 7
#define GRPC_INVALID_SESSION_ID 8
#define GRPC_RPC_REFUSED 9           /* the server does not accept the call */
#define GRPC_COMMUNICATION_FAILED 10 /* the agent, the server or its worker process was lost */
#define GRPC_SESSION_FAILED 11
#define GRPC_NOT_COMPLETED 12
#define GRPC_NONE_COMPLETED 13
#define GRPC_INVALID_OBJECT_HANDLE_NP 14
#define GRPC_CLASS_NOT_FOUND_NP 15
#define GRPC_TIMEOUT_NP 16
#define GRPC_CANCELED_NP 17
#define GRPC_OTHER_ERROR_CODE 18
#define GRPC_UNKNOWN_ERROR_CODE 19
#define GRPC_INVALID_DATA_NP 20      /* no such remote datum, or it is lost */
#define GRPC_MAP_DIFFERS_NP 21       /* from grpc_map_error_np: calls of a block differed from those discovered */
#define GRPC_NAME_EXISTS_NP 22       /* shared data have that name already, or are being put */
#define GRPC_NAME_NOT_FOUND_NP 23    /* no shared data have that name, or did not get it in time */
#define GRPC_INVALID_NAME_NP 24      /* it cannot name shared data */
#define GRPC_SIZE_DIFFERS_NP 25      /* the size of shared data differs from that of the program's memory */
#define GRPC_NO_ROOM_NP 26           /* no server has room for shared data, or the agent for their name */
#define GRPC_LAST_ERROR_CODE 27      /* the highest */

/* ---- Beginning and end
 * ------------------------------------------------------------------------------------------------- */

/* Reads the configuration and connects to the grid. The first existing source counts: the file named here, the one
 * named by GRIDLOOM_GRPC_CONFIG in the environment, no file. If no file names an agent, it is that of GRIDLOOM_AGENT;
 * without it an embedded grid is started, which ends with the session. Under `gridloom simulate` and `gridloom
 * testbed` the grid is theirs.
 *
 * NG_CONFIG_FILE names a file, too. A file of Ninf-G (client.conf) is accepted: its servers, ports, time limits
 * and numbers of ranks are used; the rest is listed once on standard error. Otherwise the file is TOML; everything may be
 * left out, and an unknown key is an error:
 *   agent = "host:7711"            or servers = ["host:7801", ...], without an agent
 *   argument_transfer = "copy"     also "wait" and "nowait", as in Ninf-G, which have the same effect here
 *   session_timeout = 30.0         seconds that a call may take; 0: no limit
 *   transfer_timeout_argument = 10.0   seconds until its arguments are at the server, and
 *   transfer_timeout_result = 10.0     until its results are back; 0: no limit (grpc_ninfg.h)
 *   save_session_info = 256        sessions that grpc_get_error remembers after their wait; negative: all
 *   [local]                        the embedded grid: servers = 4, slots = 1, functions = ["my.idl"],
 *                                  libraries = ["libmy.so"], memory = "4GiB", python = "python3"; paths are relative
 *                                  to the file
 *   [map]                          of grpc_map: heuristic = "auto" for blocks that name none, debug = false
 *   [server.NAME]                  address = "host:7801": a name for grpc_function_handle_init
 *
 * @param config_file_name  NULL or "": no file is named.
 * @return GRPC_CONFIGFILE_NOT_FOUND; GRPC_CONFIGFILE_ERROR, if it does not have the form above;
 *          GRPC_ALREADY_INITIALIZED, and nothing changes; GRPC_OTHER_ERROR_CODE if the grid cannot be reached or
 *          started. After an error it may be called again.
 * Not MT-safe: no other function may run meanwhile. */
grpc_error_t grpc_initialize(const char *config_file_name);

/* Cancels outstanding calls without waiting for their results, frees everything, and ends the embedded grid. Handles,
 * sessions and the library's strings are no longer valid; results that were not waited for are never written.
 * grpc_initialize may follow.
 * Not MT-safe: no other function may run or wait meanwhile. */
grpc_error_t grpc_finalize(void);

/* ---- Handles
 * ----------------------------------------------------------------------------------------------------------- */

/* Makes a handle of a function whose server is chosen for each call (late binding): several calls through it may run
 * at once, on several servers.
 * @param handle     Written to. Its previous content is ignored: destruct a handle before it is made again.
 * @param func_name  "module/function", or "function" if only one module has it.
 * @return GRPC_SERVER_NOT_FOUND, if the grid has no server; GRPC_FUNCTION_NOT_FOUND, whose text suggests similar
 *          functions; GRPC_RPC_REFUSED. */
grpc_error_t grpc_function_handle_default(grpc_function_handle_t *handle, const char *func_name);

/* Makes a handle of a function on a server: all calls through it run there, as many at a time as the server has
 * slots, in order. If the server is lost its calls fail.
 * @param server_name  The name of a server or of a [server.NAME] of the configuration; "host:port"; or "host", for
 *          the first of its servers that offers the function. NULL or "": as grpc_function_handle_default.
 * @return As above; GRPC_FUNCTION_NOT_FOUND also if only other servers offer it. */
grpc_error_t grpc_function_handle_init(grpc_function_handle_t *handle, const char *server_name, const char *func_name);

/* Ends a handle. Sessions that were started through it continue and have to be waited for.
 * @return GRPC_INVALID_FUNCTION_HANDLE, also for one that has ended. */
grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t *handle);

/* Returns the handle through which a session was started: the pointer that the program passed to the call, which it
 * may use for further calls.
 * @param[out] handle  That pointer.
 * @return GRPC_INVALID_SESSION_ID, unless it is outstanding or remembered (grpc_get_error);
 *          GRPC_INVALID_FUNCTION_HANDLE if the handle has ended. */
grpc_error_t grpc_get_handle(grpc_function_handle_t **handle, grpc_sessionid_t session_id);

/* ---- Calls
 * ------------------------------------------------------------------------------------------------------------- */

/* Calls a function and waits for its end; results are available when it returns. For the arguments see the beginning
 * of this header, or the manual page gridrpc(7).
 * @return GRPC_INVALID_FUNCTION_HANDLE; GRPC_SERVER_NOT_FOUND, GRPC_FUNCTION_NOT_FOUND, if no server offers it any
 *          more; GRPC_RPC_REFUSED; GRPC_COMMUNICATION_FAILED, also if the function crashed; GRPC_TIMEOUT_NP;
 *          GRPC_SESSION_FAILED, if the function failed otherwise. After an error the content of OUT arguments is
 *          undefined; INOUT arguments are unchanged. */
grpc_error_t grpc_call(grpc_function_handle_t *handle, ...);

/* Starts a call and does not wait for its end. There may be very many; the grid decides how many run at a time.
 * @param[out] session_id  The session to wait for; GRPC_SESSIONID_VOID on an error. Ids are not reused while they are
 *          known.
 * @return As grpc_call for errors that are found before the call is sent. The wait reports later ones. */
grpc_error_t grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session_id, ...);

/* ---- Probing
 * -------------------------------------------------------------------------------------------------------------
 *
 * When a probe reports that a session has ended, its results have been written, and it still has to be waited for. */

/* Reports whether a session has ended.
 * @return GRPC_NO_ERROR if it has ended, successfully or not; GRPC_NOT_COMPLETED; GRPC_INVALID_SESSION_ID, also for
 *          one that was waited for. */
grpc_error_t grpc_probe(grpc_sessionid_t session_id);

/* Reports whether one of these sessions has ended: the first in the array that has.
 * @param[out] session_id  That session; GRPC_SESSIONID_VOID with GRPC_NONE_COMPLETED.
 * @return GRPC_NONE_COMPLETED, also for an empty array; GRPC_INVALID_SESSION_ID if one of them is invalid, whatever
 *          the others are. */
grpc_error_t grpc_probe_or(const grpc_sessionid_t *session_ids, size_t length, grpc_sessionid_t *session_id);

/* ---- Cancelling
 * --------------------------------------------------------------------------------------------------------- */

/* Requests the cancellation of a session, and returns at once. It still has to be waited for; the wait returns
 * GRPC_SESSION_FAILED, and grpc_get_error then GRPC_CANCELED_NP, unless it had ended before. A running native
 * function is ended with its worker process.
 * @return GRPC_INVALID_SESSION_ID, also for one that was waited for. */
grpc_error_t grpc_cancel(grpc_sessionid_t session_id);

/* Requests the same for all outstanding sessions, including those of other threads; there may be none. Calls for
 * which other threads wait in grpc_call end with GRPC_CANCELED_NP. */
grpc_error_t grpc_cancel_all(void);

/* ---- Waiting
 * ------------------------------------------------------------------------------------------------------------
 *
 * A session is waited for once: then it is no longer outstanding, its results are written, and its id is known only
 * to grpc_get_error, grpc_get_handle and grpc_get_failed_sessionid. An invalid id, such as GRPC_SESSIONID_VOID, is an
 * error at once: nothing is waited for then, and every session stays outstanding. An id that occurs twice in an array
 * counts once. */

/* Waits for a session.
 * @return GRPC_SESSION_FAILED, see grpc_get_error; GRPC_INVALID_SESSION_ID. */
grpc_error_t grpc_wait(grpc_sessionid_t session_id);

/* Waits for all of these; with an empty array it returns at once.
 * @return GRPC_SESSION_FAILED if one failed, after all have ended; GRPC_INVALID_SESSION_ID if one is invalid. */
grpc_error_t grpc_wait_and(const grpc_sessionid_t *session_ids, size_t length);

/* Waits for one of these: the first in the array that has ended. The others stay outstanding.
 * @param[out] session_id  That session, also with GRPC_SESSION_FAILED; GRPC_SESSIONID_VOID for an empty array.
 * @return GRPC_SESSION_FAILED if that one failed; GRPC_INVALID_SESSION_ID if one is invalid. */
grpc_error_t grpc_wait_or(const grpc_sessionid_t *session_ids, size_t length, grpc_sessionid_t *session_id);

/* Waits for all sessions that are outstanding when it is called, including those of other threads.
 * @return GRPC_NO_ERROR also if there is none; GRPC_SESSION_FAILED if one failed, after all have ended. */
grpc_error_t grpc_wait_all(void);

/* Waits for one of the sessions that are outstanding when it is called: the oldest that has ended.
 * @param[out] session_id  That session, also with GRPC_SESSION_FAILED; GRPC_SESSIONID_VOID, with GRPC_NO_ERROR, if
 *          there is none. */
grpc_error_t grpc_wait_any(grpc_sessionid_t *session_id);

/* ---- Errors
 * ------------------------------------------------------------------------------------------------------------- */

/* Takes one failed session of those that were waited for, oldest first; each is returned once, to any thread. Call it
 * until it returns GRPC_SESSIONID_VOID. The last 1,048,576 are kept.
 * @param[out] session_id  That session; GRPC_SESSIONID_VOID if none is left. */
grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t *session_id);

/* Returns the error of a session, which need not have ended. Sessions that were waited for are remembered until
 * save_session_info others were waited for, and failed ones until grpc_get_failed_sessionid has returned them, if
 * that is later.
 * @return The session's error: GRPC_NO_ERROR while it runs and if it ended successfully; GRPC_CANCELED_NP,
 *          GRPC_TIMEOUT_NP, GRPC_COMMUNICATION_FAILED, GRPC_RPC_REFUSED, GRPC_FUNCTION_NOT_FOUND,
 *          GRPC_SESSION_FAILED; or GRPC_INVALID_SESSION_ID. */
grpc_error_t grpc_get_error(grpc_sessionid_t session_id);

/* Returns the name of a code: "GRPC_NOT_COMPLETED"; for an invalid number, "GRPC_UNKNOWN_ERROR_CODE". Needs no
 * grpc_initialize. The string belongs to the library and is constant, although the standard's type is not. */
char *grpc_error_string(grpc_error_t error_code);

#ifdef __cplusplus
}
#endif

#include "grpc_data.h"
#include "grpc_extensions.h"
#include "grpc_graph.h"
#include "grpc_heuristic.h"
#include "grpc_map.h"
#include "grpc_ninfg.h"
#include "grpc_objects.h"
#include "grpc_plan.h"
#include "grpc_remote.h"
#include "grpc_shared.h"

#endif
