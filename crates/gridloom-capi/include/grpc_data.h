/* Data management as in the proposal GFD.186: an extension, which is not part of GFD.52. Included by grpc.h.
 *
 * The names follow what is generally known of the proposal. Its text was not available, so conformance is not
 * claimed.
 *
 * A grpc_data_t describes a datum: where it can be read (input URIs), where it has to be put (output URIs), type,
 * extents, and how each output is managed. `&data` is passed as an argument in calls like a grpc_remote_t
 * (grpc_remote.h). A call that reads it before it has a value takes the value from the first input that has it. As an
 * output of a call, its value stays on the server; the thread that learns of the session's end also puts it to its
 * outputs, when it writes results. Its memory belongs to the program and its content to the library, and it is
 * identified by its address from grpc_data_init (or _load, _container_get) until _unbind, _free or grpc_finalize: do
 * not copy it. A call that gets a freed datum, or one of an earlier session, fails with GRPC_INVALID_DATA_NP, as does
 * a call with a copy as an input. (A copy that is only written is treated as memory.)
 *
 * URIs
 *   memory:KEY, memory:0x7f..   memory of the client: of a key of grpc_data_memory_mapping_set, or an address
 *   file:PATH, file:///PATH     a file of the client
 *   file://SERVER/PATH          a file of that server, in the folder that it offers
 *   gridloom:                   the stores of the grid: where it was made, or with the client until it is read
 *   gridloom://SERVER           the store of that server
 * Others (s3:, http:) are GRPC_INVALID_DATA_NP. SERVER has the forms that grpc_function_handle_init accepts. The size
 * of a datum that was described with extents must be that of the file from which it is read. Files of servers require
 * servers that offer them: `GRIDLOOM_FILES=FOLDER gridloom serve ... --builtin files`; their paths are relative to
 * FOLDER and can leave it only through links in it. That server reads them, and has their content then; a file is
 * written from where its content is.
 *
 * Modes, of copies that are put to the store of a server
 *   GRPC_VOLATILE, GRPC_PERSISTENT  a copy for calls that run there, dropped when other data need the room. A datum
 *   that
 *                                   was made on a server nevertheless stays there until it is freed
 *   GRPC_STICKY                     it stays there until the datum is freed, or that server is named to
 *   grpc_data_free;
 *                                   it may be copied. It counts against the server's memory, which may be too small
 *   GRPC_UNIQUE_STICKY              the same, and there is no other copy: calls that read it run there, and fail with
 *                                   GRPC_INVALID_DATA_NP if they are bound to another server, or read two such data of
 *                                   two servers; it cannot be put to a second server
 *   GRPC_STRICTLY_VOLATILE          the same, and it is erased when the first call that reads it no longer needs it:
 *   from
 *                                   the stores of servers and of the client. So the results of that call cannot be
 *                                   made again if their server is lost. Servers write no data to disks
 * The latter two apply to a whole datum, whichever output has them; at most one server may be named. A call that
 * reads such a datum waits until it is known where it is made, not until it is made. With `gridloom:` its place is
 * where it is made; a datum that the program provides itself stays with the client, and each call gets it as an
 * argument that the server erases at the call's end. A value for the client's memory or files is stored there, and
 * the library keeps no copy of it. Such calls fail if the server is lost, like those of a handle that is bound to it,
 * and the datum is lost with it. Other data are made again on another server if their calls can run again, and are
 * lost otherwise. */
#ifndef GRIDLOOM_GRPC_DATA_H
#define GRIDLOOM_GRPC_DATA_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Content and name belong to the library. */
typedef struct grpc_data {
    uint64_t mark_np;
    uint64_t number_np;
} grpc_data_t;

typedef enum grpc_data_type {
    GRPC_BOOL,
    GRPC_CHAR,
    GRPC_SHORT,
    GRPC_INT,
    GRPC_LONG,
    GRPC_FLOAT,
    GRPC_DOUBLE,
    GRPC_COMPLEX,       /* of two floats */
    GRPC_DOUBLE_COMPLEX,
    GRPC_STRING,
    GRPC_FILE,
    GRPC_CONTAINER_OF_GRPC_DATA
} grpc_data_type_t;

typedef enum grpc_data_mode {
    GRPC_VOLATILE,          /* may be dropped as soon as it has been used */
    GRPC_STRICTLY_VOLATILE, /* erased right after the call; never written to a disk, nor copied elsewhere */
    GRPC_STICKY,            /* stays where it is until it is freed; may be copied elsewhere */
    GRPC_UNIQUE_STICKY,     /* the same, and there are no copies: calls that read it run there */
    GRPC_PERSISTENT,        /* kept somewhere; may move and be copied */
    GRPC_END_LIST           /* ends a list of modes */
} grpc_data_mode_t;

typedef enum grpc_completion_mode { GRPC_WAIT_ALL, GRPC_WAIT_ANY } grpc_completion_mode_t;

typedef enum grpc_data_info_type {
    GRPC_DATA_HANDLE,       /* a name in this program */
    GRPC_INPUT_URI,         /* one per line, as for the following */
    GRPC_OUTPUT_URI,
    GRPC_MANAGEMENT_MODE,
    GRPC_TYPE,
    GRPC_DIMENSION,
    GRPC_LOCATIONS_LIST,    /* the server that made it, or "client", and servers to which it was put */
    GRPC_STATUS             /* "ready", "under way", "lost: ...", "undefined" */
} grpc_data_info_type_t;

/* Describes a datum; nothing is transferred.
 * @param input_URIs, output_URIs  End with NULL; NULL: none. A datum without inputs is an output of calls, or its
 *          value is set by one.
 * @param dimensions   Extents, outermost first, end with 0; NULL: a scalar, or a size that follows from the input. A
 *          file, and a string in memory, have the size of their content.
 * @param output_modes One for each output URI, end with GRPC_END_LIST; NULL: GRPC_VOLATILE.
 * @return GRPC_INVALID_DATA_NP if a URI is malformed, its kind is unknown, or the lists do not match each other.
 *          MT-safe. */
grpc_error_t grpc_data_init(grpc_data_t *data, const char **input_URIs, const char **output_URIs, grpc_data_type_t type,
                            const size_t *dimensions, const grpc_data_mode_t *output_modes);

/* Assigns a key for memory: URIs to an address, until the key gets another address or NULL. MT-safe. */
grpc_error_t grpc_data_memory_mapping_set(const char *key, void *data);
/* Returns the address of a key. @return GRPC_INVALID_DATA_NP if there is none. MT-safe. */
grpc_error_t grpc_data_memory_mapping_get(const char *key, void **data);

/* Copies a datum from the first of these inputs from which it can be read (NULL: its own value, or input) to all of
 * these outputs (NULL: its own). Inputs are read at once; outputs are written by grpc_data_wait, and not without it.
 * @param output_modes  As many as outputs, or NULL: GRPC_VOLATILE. They apply to the stores of servers, for this
 *          transfer.
 * @return GRPC_INVALID_DATA_NP; grpc_data_wait reports later failures. MT-safe. */
grpc_error_t grpc_data_transfer(grpc_data_t *data, const char **input_URIs, const char **output_URIs,
                                const grpc_data_mode_t *output_modes);

/* Waits for the outstanding transfers of all of these data, or of any one, and writes their outputs.
 * @param data  Ends with NULL.
 * @param[out] returned  The first in the list with ended or failed transfers; NULL for none; may be NULL.
 * @return GRPC_INVALID_DATA_NP; GRPC_COMMUNICATION_FAILED if a transfer failed. MT-safe. */
grpc_error_t grpc_data_wait(grpc_data_t **data, grpc_completion_mode_t mode, grpc_data_t **returned);

/* Writes the description of a datum, not its content, to a file:, file://SERVER/ or memory: URI (a key or address
 * with room for 4096 bytes), and makes a datum from one. Within the session that saved it, it is the same datum while
 * that is described. Elsewhere it has no value and the same outputs; its inputs are the files to which the datum had
 * been put when it was saved, followed by the datum's inputs; addresses are left out. So another client can find,
 * through a file on a server, what was put to a file on a server: such files outlive the program. Data in stores do
 * not.
 * @return GRPC_INVALID_DATA_NP; GRPC_OTHER_ERROR_CODE if it cannot be written. MT-safe. */
grpc_error_t grpc_data_save(grpc_data_t *data, const char *URI_output);
grpc_error_t grpc_data_load(grpc_data_t *data, const char *URI_input);

/* Returns information about a datum, as a string. MT-safe.
 * @param server_name  For GRPC_STATUS: on that server; NULL: anywhere.
 * @param[out] info    The program frees it with free(). */
grpc_error_t grpc_data_getinfo(grpc_data_t *data, grpc_data_info_type_t info_tag, const char *server_name, char **info);

/* Puts a datum into a container (GRPC_CONTAINER_OF_GRPC_DATA, one extent: its size) at a rank, counted from 0, and
 * returns it from there. MT-safe. */
grpc_error_t grpc_data_container_set(grpc_data_t *container, int rank, grpc_data_t *data);
grpc_error_t grpc_data_container_get(grpc_data_t *container, int rank, grpc_data_t *data);

/* Removes the description. The value stays while a container, or a datum that was loaded from it, has it. MT-safe. */
grpc_error_t grpc_data_unbind(grpc_data_t *data);

/* Deletes the datum at these places (end with NULL; NULL: everywhere that Gridloom put it). If these are all places,
 * also removes the description. A client's memory is never freed, and a file that this datum did not write is never
 * deleted, here or on a server. MT-safe. */
grpc_error_t grpc_data_free(grpc_data_t *data, const char **URI_locations);

#ifdef __cplusplus
}
#endif

#endif
