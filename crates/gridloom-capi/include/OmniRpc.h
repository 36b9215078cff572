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
 * Arguments follow the entry's name as they follow the handle in grpc_call (grpc.h), and the memory of results belongs to the call until
 * it was waited for. All functions of grpc.h may be mixed with these, within the same session. Shared data: omst.h.
 *
 * Programs for OmniRPC do not ask whether a call succeeded, as its library ends them if one does not. This one goes on: an error is
 * said on standard error when it happens, the function gives OMRPC_ERROR or NULL, and grpc_last_error_get_np() has the code. */
#ifndef GRIDLOOM_OMNIRPC_H
#define GRIDLOOM_OMNIRPC_H

#ifdef __cplusplus
extern "C" {
#endif

#define OMRPC_OK 0
#define OMRPC_ERROR (-1)

/* A call that has begun; NULL is none. */
typedef void *OmniRpcRequest;

/* Begins the session, as grpc_initialize(NULL) does: the grid is that of GRIDLOOM_GRPC_CONFIG or GRIDLOOM_AGENT, or one on this
 * machine. OmniRPC's own options, --hostfile FILE and --debug, are taken out of the program's and mean nothing. If the grid cannot be
 * reached it says why, and ends the program with status 1, as OmniRPC does. A session that there is already stays.
 * @param argc, argv  Those of main, or NULL. Not MT-safe: no other function runs meanwhile. */
void OmniRpcInit(int *argc, char ***argv);

/* Ends the session, as grpc_finalize does. Not MT-safe: no other function runs meanwhile. */
void OmniRpcFinalize(void);

/* Has the entry Initialize of a module run in each worker process before the first call that this program makes of the module's entries
 * there, and again in a process that was started anew: what the module's Globals have then lasts from call to call. Another program's
 * calls may run in the same process in between; then it runs again before the next call of this one. The arguments, all of them
 * IN, go to all servers at once, as shared data, which OmniRpcFinalize deletes. It may be called again with others.
 * @return OMRPC_OK; OMRPC_ERROR also if the module has no Initialize, there is no agent, or in simulation. A call before which
 *         Initialize fails, fails. MT-safe. */
int OmniRpcModuleInit(char *module, ...);

/* Calls an entry and waits for its end.
 * @param entry  "foo", or "module/foo" where several modules have a foo.
 * @return OMRPC_OK or OMRPC_ERROR. MT-safe. */
int OmniRpcCall(char *entry, ...);

/* Begins a call. @return What to wait for; NULL if it cannot begin. MT-safe. */
OmniRpcRequest OmniRpcCallAsync(char *entry, ...);

/* Waits for a call; its results are there then, and the request is none any more.
 * @return OMRPC_OK or OMRPC_ERROR, also for what is no request. MT-safe. */
int OmniRpcWait(OmniRpcRequest request);

/* Whether a call has ended. It still has to be waited for. @return 1 or 0; OMRPC_ERROR for what is no request. MT-safe. */
int OmniRpcProbe(OmniRpcRequest request);

/* Waits for all of these calls. @return OMRPC_OK; OMRPC_ERROR if one failed, after all have ended. MT-safe. */
int OmniRpcWaitAll(int n, OmniRpcRequest requests[]);

/* Waits for one of these calls. NULL stands for none: the program may put it in the place of a call that has ended.
 * @return Its place in the array, also if it failed; OMRPC_ERROR if there is none, or one is no request. MT-safe. */
int OmniRpcWaitAny(int n, OmniRpcRequest requests[]);

#ifdef __cplusplus
}
#endif

#endif
