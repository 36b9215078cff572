/* Shared data in the style of OmniStorage: put and got by name, independent of calls. Programs and functions on servers include it;
 * inline bodies of interface descriptions have it without an #include. Link with libgridloom.
 *
 *   OmstWait(OmstPutData("mydat", data, sizeof data, OMST_BROADCAST));      the program, once
 *   OmstWait(OmstGetData("mydat", data, sizeof data));                      each function that it calls
 *
 * The functions of grpc_shared.h do the same with time limits and sizes, and may be mixed with these. Names, hints and the order of
 * arguments are those of the paper (Nakajima and others, Euro-Par 2008). Its sources were not available, so conformance is not claimed.
 *
 * A program calls OmniRpcInit or grpc_initialize first. A function needs neither. Numbers below 0 are errors: the negated code of
 * grpc.h. grpc_last_error_text_np() has the text. */
#ifndef GRIDLOOM_OMST_H
#define GRIDLOOM_OMST_H

#include "grpc_shared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Hints
 * ---------------------------------------------------------------------------------------------------------------- */

/* The readers of a datum. A hint names one of the first three; 0 is OMST_POINT2POINT. Their effects:
 *   OMST_POINT2POINT   none: the datum is stored on one server, and readers get it on request
 *   OMST_BROADCAST     OmstWait also has all servers get it, from one another; readers find it at their server
 *   OMST_ALL_EXCHANGE  none, like OMST_POINT2POINT
 *   OMST_DURABLE_NP    our own, to be OR-ed with one of these: like GRPC_DURABLE_NP of grpc_shared.h
 * A transfer method, also our own, can be OR-ed with it. It selects how the datum is sent to servers that read it:
 *   OMST_DIRECT_NP     from servers that have it, and from no others
 *   OMST_TREE_NP       also from servers that are still receiving it, part by part
 *   OMST_SWARM_NP      in two slices at a time, each from another server
 *   OMST_STORAGE_NP    through a folder that servers share ('gridloom serve --storage')
 * The default is the method that is predicted to take the least time. */
#define OMST_POINT2POINT 1
#define OMST_BROADCAST 2
#define OMST_ALL_EXCHANGE 4
#define OMST_DURABLE_NP 0x100
#define OMST_DIRECT_NP 0x1000
#define OMST_TREE_NP 0x2000
#define OMST_SWARM_NP 0x3000
#define OMST_STORAGE_NP 0x4000

/* ---- Putting and getting
 * -------------------------------------------------------------------------------------------------- */

/* A put in progress, or a get that has ended; NULL is none. */
typedef void *OmstRequest;

/* Starts to put bytes under a name. If the name exists, OmstWait returns the error.
 * @param data  Copied before it returns.
 * @return The request to wait for; NULL if it cannot start. Requests that are not waited for continue until the session ends. MT-safe. */
OmstRequest OmstPutData(const char *id, const void *data, size_t size, int hint);

/* Waits until every program of the user can find the data; with OMST_BROADCAST, until all servers with room have them.
 * @return 0; -GRPC_NAME_EXISTS_NP; -GRPC_INVALID_NAME_NP; -GRPC_NO_ROOM_NP; -GRPC_INVALID_SESSION_ID if it is not a request, or was
 *         waited for. MT-safe. */
int OmstWait(OmstRequest request);

/* Gets the data of that name. Waits until they have been put, up to the limit of OmstSetTimeLimit_np; they are there when it
 * returns.
 * @param size  The exact number of bytes that were put.
 * @return A request, never NULL, for which OmstWait returns 0; -GRPC_SIZE_DIFFERS_NP, and nothing is written; or
 *         -GRPC_NAME_NOT_FOUND_NP, if the name is not put in time. Nothing is left of it if it is not waited for. MT-safe. */
OmstRequest OmstGetData(const char *id, void *data, size_t size);

/* Sets how long OmstGetData waits in this process from now on; our own. The default is GRPC_FOR_EVER_NP; in a function it applies
 * per worker process.
 * @return 0; -GRPC_OTHER_ERROR_CODE if it is not a number. Needs no session. MT-safe. */
int OmstSetTimeLimit_np(double seconds);

#ifdef __cplusplus
}
#endif

#endif
