/* Shared data after OmniStorage: put and got by name, apart from calls. Programs and functions on servers include it; inline
 * bodies of interface descriptions have it without an #include. Link with libgridloom.
 *
 *   OmstWait(OmstPutData("mydat", data, sizeof data, OMST_BROADCAST));      the program, once
 *   OmstGetData("mydat", data, sizeof data);                                each function that it calls
 *
 * The functions of grpc_shared.h do the same with time limits and sizes, and may be mixed with these. Names, hints and the order of
 * arguments are those of the paper (Nakajima and others, Euro-Par 2008). Its sources were not at hand, so conformance is not claimed.
 *
 * A program calls OmniRpcInit or grpc_initialize first. A function needs neither. Numbers below 0 are errors: minus a code of
 * grpc.h. grpc_last_error_text_np() has the text. */
#ifndef GRIDLOOM_OMST_H
#define GRIDLOOM_OMST_H

#include "grpc_shared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Hints
 * ---------------------------------------------------------------------------------------------------------------- */

/* The readers of a datum. A hint names one of the first three; 0 is OMST_POINT2POINT. What it changes:
 *   OMST_POINT2POINT   nothing: the datum goes to one server, and readers get it when they ask
 *   OMST_BROADCAST     OmstWait also has all servers get it, from one another; readers find it at their server
 *   OMST_ALL_EXCHANGE  nothing, as OMST_POINT2POINT
 *   OMST_DURABLE_NP    of our own, to be OR-ed with one of these: as GRPC_DURABLE_NP of grpc_shared.h
 * A method of transfer, of our own too, can be OR-ed with it: how the datum gets to servers that read it.
 *   OMST_DIRECT_NP     from servers that have it, and from no others
 *   OMST_TREE_NP       also from servers that it comes to, part by part
 *   OMST_SWARM_NP      in two slices at a time, each from another server
 *   OMST_STORAGE_NP    through a folder that servers share ('gridloom serve --storage')
 * Without one, it is the one that takes the least time, as predicted. */
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

/* A put that has begun; NULL is none. */
typedef void *OmstRequest;

/* Begins to put so many bytes under a name. A name that exists is an error; OmstWait tells it.
 * @param data  Copied before it returns.
 * @return What to wait for; NULL if it cannot begin. Requests that are not waited for go on until the session ends. MT-safe. */
OmstRequest OmstPutData(const char *id, const void *data, size_t size, int hint);

/* Waits until every program finds what was put; with OMST_BROADCAST, until all servers have it that have room.
 * @return 0; -GRPC_NAME_EXISTS_NP; -GRPC_INVALID_NAME_NP; -GRPC_NO_ROOM_NP; -GRPC_INVALID_SESSION_ID if it is no request, or was
 *         waited for. MT-safe. */
int OmstWait(OmstRequest request);

/* Gets what has that name. Waits until somebody has put it, no longer than OmstSetTimeLimit_np says.
 * @param size  Exactly as many bytes as were put.
 * @return 0; -GRPC_SIZE_DIFFERS_NP, and nothing is written; -GRPC_NAME_NOT_FOUND_NP, if it does not come in time. MT-safe. */
int OmstGetData(const char *id, void *data, size_t size);

/* How long OmstGetData waits, of this process, from here on; of our own. It begins with GRPC_FOR_EVER_NP, in a function with each
 * worker process.
 * @return 0; -GRPC_OTHER_ERROR_CODE for what is no number. Needs no session. MT-safe. */
int OmstSetTimeLimit_np(double seconds);

#ifdef __cplusplus
}
#endif

#endif
