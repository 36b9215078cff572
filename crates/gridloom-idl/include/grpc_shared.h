/* Shared data: named bytes that every program of the user can read, even after the program that put them has ended. Included by
 * grpc.h; not part of the standard.
 *
 *   grpc_shared_put_np("mesh", x, sizeof x, 0);             one program puts
 *   grpc_shared_get_np("mesh", x, sizeof x, 60);            another gets, and waits up to a minute
 *
 * They are stored on servers until they are deleted, and never change: a name that is put again gets a new version. All of it needs
 * an agent. Data put by programs in Python and Rust are received in C's memory layout (an array row by row, numbers in this machine's
 * byte order, a text without a NUL), and those programs receive data put by C as bytes.
 *
 * A name is a text of 1 to 1,024 bytes in UTF-8 without control characters; everything else, including NULL, is GRPC_INVALID_NAME_NP.
 * `seconds` is how long a function waits for a name that nobody has put: 0 polls once, GRPC_FOR_EVER_NP has no limit. If the name is
 * not put in time, the error is GRPC_NAME_NOT_FOUND_NP, and its text lists similar names. If the agent is lost, the error is
 * GRPC_COMMUNICATION_FAILED, after up to 10 s in which the agent may return. A name whose servers were all lost is GRPC_INVALID_DATA_NP,
 * and can be put again.
 *
 * Functions that run on servers may call these, too, without grpc_initialize: inline bodies of interface descriptions have them without
 * an #include, and a library that is linked with libgridloom has them like a program. Data that a function gets are first transferred to
 * its server, for all functions there. While the function waits, another call may use its slot. On several ranks (Backend "MPI") and on a
 * server without an agent they return GRPC_NOT_INITIALIZED in functions.
 *
 * In a block of grpc_map they must be inside grpc_local. */
#ifndef GRIDLOOM_GRPC_SHARED_H
#define GRIDLOOM_GRPC_SHARED_H

#include <stddef.h>

#ifndef GRPC_ERROR_NP
#define GRPC_ERROR_NP
typedef int grpc_error_t;
#endif

/* The same definitions as in grpc.h, for functions on servers. */
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
 *   GRPC_REPLACES_NP  an existing name gets a new version; programs that read the old one keep it
 *   GRPC_DURABLE_NP   the servers that keep it have written it to their disks when the put ends, and still have it after a restart:
 *                     on servers with a folder for that (gridloom serve --durable DIR) */
#define GRPC_REPLACES_NP 1
#define GRPC_DURABLE_NP 2

/* Puts bytes under a name. When it returns, every program of the user can find them.
 * @param data   Copied before it returns; may be NULL if there are no bytes.
 * @param flags  As above.
 * @return GRPC_NAME_EXISTS_NP; GRPC_INVALID_NAME_NP; GRPC_NO_ROOM_NP, also if it must be durable and no server has a folder for that;
 *         GRPC_OTHER_ERROR_CODE for other flags. MT-safe. */
grpc_error_t grpc_shared_put_np(const char *name, const void *data, size_t size_bytes, int flags);

/* Same as grpc_shared_put_np, on several servers: the data survive the loss of all but one of them.
 * @param replicas  1 to 16. @return GRPC_NO_ROOM_NP also if fewer servers have room. MT-safe. */
grpc_error_t grpc_shared_put_replicas_np(const char *name, const void *data, size_t size_bytes, int flags, int replicas);

/* ---- Getting
 * ---------------------------------------------------------------------------------------------------------------------- */

/* Gets the current version of a name.
 * @param data        Buffer of exactly `size_bytes` bytes.
 * @param size_bytes  Size of `data`.
 * @param seconds     How long to wait until it has been put: 0 polls once, GRPC_FOR_EVER_NP has no limit.
 * @return GRPC_SIZE_DIFFERS_NP if it has another number of bytes, and nothing is written; GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_get_np(const char *name, void *data, size_t size_bytes, double seconds);

/* Same as grpc_shared_get_np, into newly allocated memory.
 * @param[out] data        The program releases it with free(). A zero byte follows the data.
 * @param[out] size_bytes  Number of bytes, without the zero byte; may be NULL.
 * @param seconds  As in grpc_shared_get_np. @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_get_new_np(const char *name, void **data, size_t *size_bytes, double seconds);

/* Gets a part of the bytes: no others are transferred.
 * @param from_byte   Offset of the first byte, in the bytes that grpc_shared_get_np gets.
 * @param data        Buffer of exactly `size_bytes` bytes.
 * @param size_bytes  Size of `data`.
 * @param seconds     As in grpc_shared_get_np.
 * @return GRPC_SIZE_DIFFERS_NP if there are fewer bytes from that offset on, and nothing is written; GRPC_OTHER_ERROR_CODE if it is an
 *         array that is stored column by column; GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_get_part_np(const char *name, size_t from_byte, void *data, size_t size_bytes, double seconds);

/* Returns the size of the current version. The data are not transferred.
 * @param[out] size_bytes  Number of bytes.
 * @param seconds  As in grpc_shared_get_np. @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_size_np(const char *name, size_t *size_bytes, double seconds);

/* Waits until a name has been put. The data are not transferred.
 * @param seconds  As in grpc_shared_get_np. @return GRPC_NAME_NOT_FOUND_NP. MT-safe. */
grpc_error_t grpc_shared_wait_np(const char *name, double seconds);

/* Reports whether a name has been put.
 * @param[out] exists  1 or 0. @return GRPC_INVALID_NAME_NP. MT-safe. */
grpc_error_t grpc_shared_exists_np(const char *name, int *exists);

/* ---- Without waiting
 * --------------------------------------------------------------------------------------------------------------
 *
 *   grpc_shared_request_np a, b;
 *   grpc_shared_begin_get_np(&a, "a", x, sizeof x, 60);       both are in progress
 *   grpc_shared_begin_get_np(&b, "b", y, sizeof y, 60);
 *   grpc_shared_finish_np(a, GRPC_FOR_EVER_NP);               x has been received
 *   grpc_shared_finish_np(b, GRPC_FOR_EVER_NP);
 *
 * A request is valid until grpc_shared_finish_np returns anything but GRPC_NOT_COMPLETED, or until grpc_finalize. In a function it may
 * end with its call: unfinished puts continue, gets and waits do not. */

/* An operation in progress. Content and memory belong to the library. An OmstRequest is one, too. */
typedef void *grpc_shared_request_np;

/* Starts grpc_shared_put_replicas_np without waiting.
 * @param[out] request  Not written if this fails.
 * @param data  Copied before it returns. @return As grpc_shared_put_np; grpc_shared_finish_np returns most of these. MT-safe. */
grpc_error_t grpc_shared_begin_put_np(grpc_shared_request_np *request, const char *name, const void *data, size_t size_bytes,
                                      int flags, int replicas);

/* Starts grpc_shared_get_np without waiting. In a function the data are transferred for this function alone.
 * @param[out] request  Not written if this fails.
 * @param data     Written by grpc_shared_finish_np, and not before.
 * @param seconds  How long to wait for the name, as in grpc_shared_get_np. MT-safe. */
grpc_error_t grpc_shared_begin_get_np(grpc_shared_request_np *request, const char *name, void *data, size_t size_bytes,
                                      double seconds);

/* Starts grpc_shared_wait_np without waiting. @param[out] request  Not written if this fails. MT-safe. */
grpc_error_t grpc_shared_begin_wait_np(grpc_shared_request_np *request, const char *name, double seconds);

/* Waits until a request has ended, and frees it.
 * @param seconds  How long to wait: 0 polls once, GRPC_FOR_EVER_NP has no limit.
 * @return GRPC_NOT_COMPLETED if it has not ended by then: it continues, and this is not an error of the thread. GRPC_CANCELED_NP.
 *         GRPC_INVALID_SESSION_ID if it is not a request, or is finished. Otherwise the result of the function without "begin_". MT-safe. */
grpc_error_t grpc_shared_finish_np(grpc_shared_request_np request, double seconds);

/* Cancels a request, unless it has ended. If the cancellation is late, the data may have been put. The request still has to be finished.
 * @return GRPC_INVALID_SESSION_ID. MT-safe. */
grpc_error_t grpc_shared_cancel_np(grpc_shared_request_np request);

/* ---- Copies, other users, and the end
 * ----------------------------------------------------------------------------------------------------------------- */

/* Copies the current version to servers, before calls read it there. Copies stay as long as there is room. The servers
 * get them from one another.
 * @param servers  Names of servers, terminated by NULL; NULL: all servers.
 * @return GRPC_NAME_NOT_FOUND_NP; GRPC_OTHER_ERROR_CODE for an unknown server; GRPC_RPC_REFUSED if one has no room.
 *         MT-safe. */
grpc_error_t grpc_shared_place_np(const char *name, const char *const *servers);

/* Shares a name with users, and with no others: their programs read it, and its later versions, as "~OWNER/NAME". Data that they have
 * found already stay readable for them.
 * @param users  Names of users, as 'gridloom keys list' shows them, terminated by NULL. "*" is everybody; "group:NAME" is a group of the
 *               grid's rules, and stands for those who belong to it when they read the name. NULL or an empty list: nobody any more.
 * @return GRPC_NAME_NOT_FOUND_NP; GRPC_RPC_REFUSED if the name belongs to another user; GRPC_OTHER_ERROR_CODE for a group that the
 *         rules do not define, an invalid name of a user, or more than 64 of them. MT-safe. */
grpc_error_t grpc_shared_share_np(const char *name, const char *const *users);

/* Deletes a name. Its bytes are deleted when no program reads them any more.
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
