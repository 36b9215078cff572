/* Shared data: bytes with names that every program of the grid finds, also after the one that put them has ended. Included by
 * grpc.h; not of the standard.
 *
 *   grpc_shared_put_np("mesh", x, sizeof x, 0);             one program puts
 *   grpc_shared_get_np("mesh", x, sizeof x, 60);            another gets, and waits for it up to a minute
 *
 * They live on servers until they are deleted, and never change: a name that is put again gets a new version. All of it needs
 * an agent. What programs in Python and Rust put is got as C has it in memory (an array row by row, numbers in this machine's byte
 * order, a text without a NUL), and they get what C puts as bytes.
 *
 * A name is a text of 1 to 1,024 bytes in UTF-8 without control characters; everything else, NULL too, is GRPC_INVALID_NAME_NP.
 * `seconds` is how long a function waits for a name that nobody has put: 0 asks once, GRPC_FOR_EVER_NP has no end. Where it
 * does not come in time that is GRPC_NAME_NOT_FOUND_NP, and the text of the error has names like it. An agent that is not there
 * is GRPC_COMMUNICATION_FAILED, after up to 10 s in which it may come back. A name of which all servers were lost is GRPC_INVALID_DATA_NP, and can be put again.
 *
 * Functions that servers run may call these, too, without grpc_initialize: inline bodies of interface descriptions have them without
 * an #include, and a library that is linked with libgridloom has them as a program has. What a function gets comes to its server first,
 * for all functions there. While it waits another call may have its slot. On several ranks (Backend "MPI"), on a server without an
 * agent and in simulation they are GRPC_NOT_INITIALIZED in functions.
 *
 * In a block of grpc_map they stand within grpc_local. */
#ifndef GRIDLOOM_GRPC_SHARED_H
#define GRIDLOOM_GRPC_SHARED_H

#include <stddef.h>

#ifndef GRPC_ERROR_NP
#define GRPC_ERROR_NP
typedef int grpc_error_t;
#endif

/* As in grpc.h, for functions on servers. */
#ifndef GRPC_NAME_EXISTS_NP
#ifndef GRPC_NO_ERROR
#define GRPC_NO_ERROR 0
#endif
#define GRPC_NOT_INITIALIZED 1
#define GRPC_INVALID_SESSION_ID 8
#define GRPC_COMMUNICATION_FAILED 10
#define GRPC_NOT_COMPLETED 12
#define GRPC_CANCELED_NP 17
#define GRPC_OTHER_ERROR_CODE 18
#define GRPC_INVALID_DATA_NP 20
#define GRPC_NAME_EXISTS_NP 22
#define GRPC_NAME_NOT_FOUND_NP 23
#define GRPC_INVALID_NAME_NP 24
#define GRPC_SIZE_DIFFERS_NP 25
#define GRPC_NO_ROOM_NP 26
#endif

#define GRPC_FOR_EVER_NP (-1.0)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Putting
 * ---------------------------------------------------------------------------------------------------------------------- */

/* Flags of a put, which may be OR-ed; 0 is none of them.
 *   GRPC_REPLACES_NP  a name that exists gets a new version; programs that read the old one keep it
 *   GRPC_DURABLE_NP   the servers that keep it have written it to their disks when the put ends, and have it again after a restart:
 *                     on servers with a folder for that (gridloom serve --durable DIR) */
#define GRPC_REPLACES_NP 1
#define GRPC_DURABLE_NP 2

/* Puts so many bytes under a name. When it returns, every program finds it.
 * @param data   Copied before it returns; may be NULL if there are no bytes.
 * @param flags  As above.
 * @return GRPC_NAME_EXISTS_NP; GRPC_INVALID_NAME_NP; GRPC_NO_ROOM_NP, also if it is to be durable and no server has a folder for that;
 *         GRPC_OTHER_ERROR_CODE for other flags. MT-safe. */
grpc_error_t grpc_shared_put_np(const char *name, const void *data, size_t size_bytes, int flags);

/* The same on so many servers: the data survive the loss of all but one of them.
 * @param replicas  1 to 16. @return GRPC_NO_ROOM_NP also if fewer servers have room. MT-safe. */
grpc_error_t grpc_shared_put_replicas_np(const char *name, const void *data, size_t size_bytes, int flags, int replicas);

/* ---- Getting
 * ---------------------------------------------------------------------------------------------------------------------- */

/* Gets the current version of a name.
 * @param data        Its place, of exactly as many bytes.
 * @param size_bytes  Of `data`.
 * @param seconds     How long to wait until it has been put: 0 asks once, GRPC_FOR_EVER_NP has no end.
 * @return GRPC_SIZE_DIFFERS_NP if it has more bytes or fewer, and nothing is written; GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_get_np(const char *name, void *data, size_t size_bytes, double seconds);

/* The same to new memory.
 * @param[out] data        The program gives it to free(). A zero byte follows the data.
 * @param[out] size_bytes  How many bytes there are, without that one; may be NULL.
 * @param seconds  As of grpc_shared_get_np. @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_get_new_np(const char *name, void **data, size_t *size_bytes, double seconds);

/* Gets some of its bytes: no others move.
 * @param from_byte   The first of them, of the bytes that grpc_shared_get_np gets.
 * @param data        Its place, of exactly as many bytes.
 * @param size_bytes  Of `data`.
 * @param seconds     As of grpc_shared_get_np.
 * @return GRPC_SIZE_DIFFERS_NP if it has fewer bytes from there on, and nothing is written; GRPC_OTHER_ERROR_CODE if it is an array
 *         that lies column by column; GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_get_part_np(const char *name, size_t from_byte, void *data, size_t size_bytes, double seconds);

/* How many bytes the current version has. The data stay where they are.
 * @param[out] size_bytes  As many.
 * @param seconds  As of grpc_shared_get_np. @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_size_np(const char *name, size_t *size_bytes, double seconds);

/* Waits until a name has been put. The data stay where they are.
 * @param seconds  As of grpc_shared_get_np. @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_wait_np(const char *name, double seconds);

/* Whether a name has been put.
 * @param[out] exists  1 or 0. @return GRPC_INVALID_NAME_NP. MT-safe. */
grpc_error_t grpc_shared_exists_np(const char *name, int *exists);

/* ---- Without waiting
 * --------------------------------------------------------------------------------------------------------------
 *
 *   grpc_shared_request_np a, b;
 *   grpc_shared_begin_get_np(&a, "a", x, sizeof x, 60);       both are on their way
 *   grpc_shared_begin_get_np(&b, "b", y, sizeof y, 60);
 *   grpc_shared_finish_np(a, GRPC_FOR_EVER_NP);               x is there
 *   grpc_shared_finish_np(b, GRPC_FOR_EVER_NP);
 *
 * A request lives until grpc_shared_finish_np gives anything but GRPC_NOT_COMPLETED, or grpc_finalize. In a function it may end with
 * its call: puts that are not finished go on, gets and waits do not. */

/* Something that has begun. Content and memory are the library's. An OmstRequest is one, too. */
typedef void *grpc_shared_request_np;

/* Begins what grpc_shared_put_replicas_np does.
 * @param[out] request  Not written if this fails.
 * @param data  Copied before it returns. @return As grpc_shared_put_np, of which grpc_shared_finish_np gives most. MT-safe. */
grpc_error_t grpc_shared_begin_put_np(grpc_shared_request_np *request, const char *name, const void *data, size_t size_bytes,
                                      int flags, int replicas);

/* Begins what grpc_shared_get_np does. In a function the data come to the function alone.
 * @param[out] request  Not written if this fails.
 * @param data     Written by grpc_shared_finish_np, and not before.
 * @param seconds  How long to wait for the name, as of grpc_shared_get_np. MT-safe. */
grpc_error_t grpc_shared_begin_get_np(grpc_shared_request_np *request, const char *name, void *data, size_t size_bytes,
                                      double seconds);

/* Begins what grpc_shared_wait_np does. @param[out] request  Not written if this fails. MT-safe. */
grpc_error_t grpc_shared_begin_wait_np(grpc_shared_request_np *request, const char *name, double seconds);

/* Waits until a request has ended, and frees it.
 * @param seconds  How long to wait: 0 asks once, GRPC_FOR_EVER_NP has no end.
 * @return GRPC_NOT_COMPLETED if it has not ended by then: it goes on, and is no error of the thread. GRPC_CANCELED_NP.
 *         GRPC_INVALID_SESSION_ID if it is no request, or is finished. Otherwise what the function without "begin_" gives. MT-safe. */
grpc_error_t grpc_shared_finish_np(grpc_shared_request_np request, double seconds);

/* Ends a request, unless it has ended. What is put may be there all the same, if this comes late. The request still has to be finished.
 * @return GRPC_INVALID_SESSION_ID. MT-safe. */
grpc_error_t grpc_shared_cancel_np(grpc_shared_request_np request);

/* ---- Copies, and the end
 * ----------------------------------------------------------------------------------------------------------------- */

/* Takes copies of the current version to servers, before calls read it there. They stay as long as there is room. The servers
 * get them from one another.
 * @param servers  Names of servers, end with NULL; NULL: all servers.
 * @return GRPC_NAME_NOT_FOUND_NP; GRPC_OTHER_ERROR_CODE for a server that is not there; GRPC_RPC_REFUSED if one has no room.
 *         MT-safe. */
grpc_error_t grpc_shared_place_np(const char *name, const char *const *servers);

/* Gives up a name. Its bytes go when no program reads them any more.
 * @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_delete_np(const char *name);

/* ---- Errors in functions; not for programs, for which grpc_extensions.h has these
 * ----------------------------------------------------------------------------------------------------------------------- */

const char *grpc_last_error_text_np(void);
grpc_error_t grpc_last_error_get_np(void);

#ifdef __cplusplus
}
#endif

#endif
