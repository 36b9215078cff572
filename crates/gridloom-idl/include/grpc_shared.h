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

/* Puts so many bytes under a name. When it returns, every program finds it.
 * @param data      Copied before it returns; may be NULL if there are no bytes.
 * @param replaces  If it is not 0, a name that exists gets a new version. Programs that read the old one keep it.
 * @return GRPC_NAME_EXISTS_NP; GRPC_INVALID_NAME_NP; GRPC_NO_ROOM_NP. MT-safe. */
grpc_error_t grpc_shared_put_np(const char *name, const void *data, size_t size_bytes, int replaces);

/* The same on so many servers: the data survive the loss of all but one of them.
 * @param replicas  1 to 16. @return GRPC_NO_ROOM_NP also if fewer servers have room. MT-safe. */
grpc_error_t grpc_shared_put_replicas_np(const char *name, const void *data, size_t size_bytes, int replaces, int replicas);

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
