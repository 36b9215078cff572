/* Data that stay where they are made, as in the direct-communication component for NetSolve. Included by grpc.h; not
 * part of the standard.
 *
 *   grpc_remote_t a;
 *   grpc_remote_new_np(&a, "A");
 *   mynetsl("A", n, x, a);              the result stays where it is made ...
 *   mynetsl("B", n, a, y);              ... and is sent from there to where B runs, not through the client
 *   grpc_remote_free_np(a);
 *
 * A grpc_remote_t can replace an argument that is passed by pointer (an array, an OUT or INOUT scalar) in any call:
 * grpc_call, grpc_call_async, argument stacks, mynetsl. As an input it is the value that it has when the call is
 * made, as an output it refers to the result from then on, as INOUT both. Outstanding calls keep the value that they
 * were given. Its value need not exist yet: a call that reads it waits. An argument that is passed by value cannot be
 * remote, nor can a string. A call may read an array as another one with the same number of bytes, which are taken
 * from memory unchanged; if the type differs it is sent through the client. A call through a handle that is bound to
 * a server fails if the server is lost.
 *
 * A freed handle is not memory: a call that gets one fails with GRPC_INVALID_DATA_NP.
 *
 * If two threads pass the same handle to calls as an output at the same time, it refers to one of the two results.
 *
 * Names belong to the client: only it registers and resolves them, so no server's end affects them. If the servers of
 * a value are lost, it is computed again if its calls can run again. Otherwise each use of it is
 * GRPC_INVALID_DATA_NP. */
#ifndef GRIDLOOM_GRPC_REMOTE_H
#define GRIDLOOM_GRPC_REMOTE_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Content and memory belong to the library. */
typedef struct grpc_remote_np *grpc_remote_t;

/* Makes a handle without a value.
 * @param[out] remote  The handle, until grpc_remote_free_np or grpc_finalize.
 * @param name  A name for grpc_remote_find_np; NULL: none.
 * @return GRPC_INVALID_DATA_NP if the name is in use. MT-safe. */
grpc_error_t grpc_remote_new_np(grpc_remote_t *remote, const char *name);

/* Returns the handle of that name. @return GRPC_INVALID_DATA_NP if there is none. MT-safe. */
grpc_error_t grpc_remote_find_np(grpc_remote_t *remote, const char *name);

/* Sets its value: `size_bytes` bytes at `data`, which are copied. They are sent with the calls that read them, as an
 * array of the type and extents in the call's signature. MT-safe. */
grpc_error_t grpc_remote_put_np(grpc_remote_t remote, const void *data, size_t size_bytes);

/* Waits for its value and writes it to `data`.
 * @param size_bytes  Size of `data`.
 * @return GRPC_INVALID_DATA_NP if it is not a handle, has no value, or its value is lost; GRPC_SESSION_FAILED if the
 *          call that should have made it failed; GRPC_OTHER_ERROR_CODE if its value is larger, in which case nothing
 *          is written. MT-safe. */
grpc_error_t grpc_remote_get_np(grpc_remote_t remote, void *data, size_t size_bytes);

/* Returns the size of its value, which need not exist yet; 0 if it has none. MT-safe. */
grpc_error_t grpc_remote_size_np(grpc_remote_t remote, size_t *size_bytes);

/* Waits until its value is made, without transferring it. @return As grpc_remote_get_np. MT-safe. */
grpc_error_t grpc_remote_wait_np(grpc_remote_t remote);

/* Puts its value under a name of shared data (grpc_shared.h): a result is sent directly from its server to the one
 * that stores it. A value from grpc_remote_put_np is an array of char there. Waits until every program of the user finds it.
 * @param flags  As for grpc_shared_put_np.
 * @return As grpc_shared_put_np; GRPC_INVALID_DATA_NP if it has no value. MT-safe. */
grpc_error_t grpc_remote_share_np(grpc_remote_t remote, const char *name, int flags);

/* Makes its value the current version of a name of shared data. Nothing is transferred: calls that read it get it
 * from the servers that store it. The version is kept while the handle has it.
 * @param seconds  How long to wait for the name, as for grpc_shared_get_np.
 * @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_remote_find_shared_np(grpc_remote_t remote, const char *name, double seconds);

/* Releases its value everywhere and ends the handle; outstanding calls keep the data that they read. MT-safe. */
grpc_error_t grpc_remote_free_np(grpc_remote_t remote);

/* Calls the function of that name, "module/function", "function" or NetSolve's "function()", as grpc_call does with a
 * handle made by grpc_function_handle_default for this call. mynetslnb starts it; its session is waited for with
 * mynetslwt or grpc_wait.
 * @return As grpc_call; for mynetslnb the session id, or minus the code on an error. MT-safe. */
grpc_error_t mynetsl(const char *function, ...);
grpc_sessionid_t mynetslnb(const char *function, ...);
grpc_error_t mynetslwt(grpc_sessionid_t session_id);

/* Do the same in the style of NetSolve and GridSolve: a status is 0 on success, and minus a code of grpc.h otherwise.
 * netslnb starts a request and returns its number, above 0. netslpr probes it: 0 if it has ended, -GRPC_NOT_COMPLETED
 * while it runs. netslwt waits for it. netslerr prints the meaning of a status on standard error. MT-safe. */
int netsl(const char *problem, ...);
int netslnb(const char *problem, ...);
int netslpr(int request);
int netslwt(int request);
void netslerr(int status);

#ifdef __cplusplus
}
#endif

#endif
