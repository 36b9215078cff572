/* OmniRPC's calls on a Gridloom grid: a program for OmniRPC is compiled with this header and linked with libgridloom.
 *
 *   #include <OmniRpc.h>
 *
 *   OmniRpcRequest requests[8];
 *   OmniRpcInit(&argc, &argv);
 *   for (int i = 0; i < 8; i++) requests[i] = OmniRpcCallAsync("foo", n, data, i);
 *   OmniRpcWaitAll(8, requests);
 *   OmniRpcFinalize();
 *
 * Arguments follow the entry's name as they follow the handle in grpc_call (grpc.h), and the memory of results
 * belongs to the call until it has been waited for. All functions of grpc.h may be mixed with these in the same
 * session. Shared data: omst.h.
 *
 * Programs for OmniRPC do not check whether a call succeeded, because its library ends them if one does not. This
 * library continues: an error is printed on standard error when it occurs, the function returns OMRPC_ERROR or NULL,
 * and grpc_last_error_get_np() returns the code. */
#ifndef GRIDLOOM_OMNIRPC_H
#define GRIDLOOM_OMNIRPC_H

#ifdef __cplusplus
extern "C" {
#endif

#define OMRPC_OK 0
#define OMRPC_ERROR (-1)

/* A call that was started; NULL is none. */
typedef void *OmniRpcRequest;

/* Begins the session, as grpc_initialize(NULL) does: the grid is that of GRIDLOOM_GRPC_CONFIG or GRIDLOOM_AGENT, or
 * one on this machine. OmniRPC's own options, --hostfile FILE and --debug, are removed from the program's arguments
 * and have no effect. If the grid cannot be reached, the function prints the reason and ends the program with status
 * 1, as OmniRPC does. An existing session is kept.
 * @param argc, argv  The arguments of main, or NULL. Not MT-safe: no other function may run meanwhile. */
void OmniRpcInit(int *argc, char ***argv);

/* Ends the session, as grpc_finalize does. Not MT-safe: no other function may run meanwhile. */
void OmniRpcFinalize(void);

/* Runs the entry Initialize of a module in each worker process before the first call there that this program makes of
 * the module's entries, and again in a process that was restarted: the state of the module's Globals then lasts from
 * call to call. Another program's calls may run in the same process in between; then Initialize runs again before the
 * next call of this program. The arguments, all of them IN, are sent to all servers at once as shared data, which
 * OmniRpcFinalize deletes. It may be called again with other arguments.
 * @return OMRPC_OK; OMRPC_ERROR also if the module has no Initialize, if there is no agent, or in simulation. If
 *          Initialize fails before a call, the call fails. MT-safe. */
int OmniRpcModuleInit(char *module, ...);

/* Calls an entry and waits for its end.
 * @param entry  "foo", or "module/foo" if several modules have a foo.
 * @return OMRPC_OK or OMRPC_ERROR. MT-safe. */
int OmniRpcCall(char *entry, ...);

/* Starts a call. @return A request to wait for; NULL if it cannot start. MT-safe. */
OmniRpcRequest OmniRpcCallAsync(char *entry, ...);

/* Waits for a call. Afterwards its results are available, and the request is no longer valid.
 * @return OMRPC_OK or OMRPC_ERROR, also for an invalid request. MT-safe. */
int OmniRpcWait(OmniRpcRequest request);

/* Reports whether a call has ended. It still has to be waited for. @return 1 or 0; OMRPC_ERROR for an invalid
 * request. MT-safe. */
int OmniRpcProbe(OmniRpcRequest request);

/* Waits for all of these calls. @return OMRPC_OK; OMRPC_ERROR if one failed, after all have ended. MT-safe. */
int OmniRpcWaitAll(int n, OmniRpcRequest requests[]);

/* Waits for one of these calls. NULL entries are skipped: the program may replace a call that has ended by NULL.
 * @return Its index in the array, also if it failed; OMRPC_ERROR if there is none, or if one is invalid. MT-safe. */
int OmniRpcWaitAny(int n, OmniRpcRequest requests[]);

#ifdef __cplusplus
}
#endif

#endif
