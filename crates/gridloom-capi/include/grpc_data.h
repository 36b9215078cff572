/* Data management after the proposal GFD.186: an extension, not of GFD.52. Included by grpc.h.
 *
 * Its names follow what is generally known of the proposal. Its text was not at hand, so conformance is not claimed.
 *
 * A grpc_data_t describes a datum: where it can be read (input URIs), where it has to be put (output URIs), type,
 * extents, and how each output is managed. `&data` stands for an argument in calls as a grpc_remote_t does
 * (grpc_remote.h). A call that reads it before it has a value takes it from the first input that has it. As an
 * output of a call, its value stays on the server; the thread that learns of the session's end also puts it to its
 * outputs, as it writes results. It is the program's memory and the library's content, known by its address from grpc_data_init
 * (or _load, _container_get) until _unbind, _free or grpc_finalize: do not copy it. A call that is given one that was
 * freed, or is of an earlier session, is GRPC_INVALID_DATA_NP, as is a copy of one as an input. (A copy that is only
 * written is taken for memory.)
 *
 * URIs
 *   memory:KEY, memory:0x7f..   memory of the client: of a key of grpc_data_memory_mapping_set, or an address
 *   file:PATH, file:///PATH     a file of the client
 *   file://SERVER/PATH          a file of that server, in the folder that it offers
 *   gridloom:                   the stores of the grid: where it was made, or with the client until it is read
 *   gridloom://SERVER           the store of that server
 * Others (s3:, http:) are GRPC_INVALID_DATA_NP. SERVER is what grpc_function_handle_init takes. A datum that
 * was described with extents has to be as long as the file that it is read from. Files of servers are those of servers that offer them:
 * `GRIDLOOM_FILES=FOLDER gridloom serve ... --builtin files`; their paths are relative to FOLDER and lead to nothing
 * outside of it but by links in it. That server reads them, and has their content then; a file is written from where its
 * content is.
 *
 * Modes, of copies that are put to the store of a server
 *   GRPC_VOLATILE, GRPC_PERSISTENT  a copy for calls that run there, given up when others need the room. A datum that
 *                                   was made on a server stays there all the same until it is freed
 *   GRPC_STICKY                     it stays there until the datum is freed, or that server is named to grpc_data_free;
 *                                   it may be copied. It counts against the server's memory, which may be too small
 *   GRPC_UNIQUE_STICKY              the same, and there is no other copy: calls that read it run there, and are
 *                                   GRPC_INVALID_DATA_NP if they are bound to another server, or read two such data of
 *                                   two servers; it cannot be put to a second server
 *   GRPC_STRICTLY_VOLATILE          likewise, and it is erased when the first call that reads it needs it no more: from
 *                                   the stores of servers and of the client. The results of that call cannot be
 *                                   made again, then, if their server is lost. Servers write no data to disks
 * The latter two count for all of a datum, whichever output has them; at most one server may be named. A call that reads
 * such a datum waits until it is known where it is made, not until it is made. With `gridloom:` its place is where it is made;
 * a datum that the program gives itself stays with the client, and each call gets it as an argument that the server erases
 * at the call's end. A value for the client's memory or files comes there, and no copy of it stays in the library.
 * Such calls fail if the server is lost, as those of a handle that is bound to it, and the datum is lost with it. Other
 * data are made again elsewhere if their calls can run again, and are lost otherwise. */
#ifndef GRIDLOOM_GRPC_DATA_H
#define GRIDLOOM_GRPC_DATA_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Content and name are the library's. */
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
    GRPC_VOLATILE,          /* may be dropped as soon as it was used */
    GRPC_STRICTLY_VOLATILE, /* is erased right after the call; never written to a disk, nor copied elsewhere */
    GRPC_STICKY,            /* stays where it is until it is freed; copies elsewhere may be made */
    GRPC_UNIQUE_STICKY,     /* the same, and there are no copies: calls that read it run there */
    GRPC_PERSISTENT,        /* is kept somewhere; may move and be copied */
    GRPC_END_LIST           /* ends a list of modes */
} grpc_data_mode_t;

typedef enum grpc_completion_mode { GRPC_WAIT_ALL, GRPC_WAIT_ANY } grpc_completion_mode_t;

typedef enum grpc_data_info_type {
    GRPC_DATA_HANDLE,       /* a name, of this program */
    GRPC_INPUT_URI,         /* one a line, as are the following */
    GRPC_OUTPUT_URI,
    GRPC_MANAGEMENT_MODE,
    GRPC_TYPE,
    GRPC_DIMENSION,
    GRPC_LOCATIONS_LIST,    /* the server that made it, or "client", and servers to which it was put */
    GRPC_STATUS             /* "ready", "under way", "lost: ...", "undefined" */
} grpc_data_info_type_t;

/* Describes a datum; nothing is moved.
 * @param input_URIs, output_URIs  End with NULL; NULL: none. A datum without inputs is an output of calls, or is given
 *                                 by one.
 * @param dimensions   Extents, outermost first, end with 0; NULL: a scalar, or a size that follows from the input. A
 *                     file, and a text in memory, have the size of their content.
 * @param output_modes One for each output URI, end with GRPC_END_LIST; NULL: GRPC_VOLATILE.
 * @return GRPC_INVALID_DATA_NP if a URI is malformed, its kind is not known, or the lists do not fit each other.
 *         MT-safe. */
grpc_error_t grpc_data_init(grpc_data_t *data, const char **input_URIs, const char **output_URIs, grpc_data_type_t type,
                            const size_t *dimensions, const grpc_data_mode_t *output_modes);

/* Gives an address a key for memory: URIs, until it is given another or NULL. MT-safe. */
grpc_error_t grpc_data_memory_mapping_set(const char *key, void *data);
/* The address of a key. @return GRPC_INVALID_DATA_NP if there is none. MT-safe. */
grpc_error_t grpc_data_memory_mapping_get(const char *key, void **data);

/* Copies a datum from the first of these inputs from which it can be read (NULL: its own value, or input) to all of
 * these outputs (NULL: its own). Inputs are read at once; outputs are written by grpc_data_wait, without which they are not.
 * @param output_modes  As many as outputs, or NULL: GRPC_VOLATILE. They count for the stores of servers, for this time.
 * @return GRPC_INVALID_DATA_NP; grpc_data_wait tells of later failures. MT-safe. */
grpc_error_t grpc_data_transfer(grpc_data_t *data, const char **input_URIs, const char **output_URIs,
                                const grpc_data_mode_t *output_modes);

/* Waits for the transfers under way of all of these data, or of any one, and writes their outputs.
 * @param data  Ends with NULL.
 * @param[out] returned  The first in the list with ended or failed transfers; NULL for none; may be NULL.
 * @return GRPC_INVALID_DATA_NP; GRPC_COMMUNICATION_FAILED if a transfer failed. MT-safe. */
grpc_error_t grpc_data_wait(grpc_data_t **data, grpc_completion_mode_t mode, grpc_data_t **returned);

/* Writes the description of a datum, not its content, to a file:, file://SERVER/ or memory: URI (a key or address with
 * room for 4096 bytes), and makes a datum of one. Within the session that saved it, it is the same datum while that is
 * described. Elsewhere it has no value, the same outputs, and as inputs the files to which the datum had been put when it
 * was saved, then its inputs; addresses are left out. So another client can find, by a file on a server, what was put to
 * a file on a server: such files outlive the program. Data in stores do not.
 * @return GRPC_INVALID_DATA_NP; GRPC_OTHER_ERROR_CODE if it cannot be written. MT-safe. */
grpc_error_t grpc_data_save(grpc_data_t *data, const char *URI_output);
grpc_error_t grpc_data_load(grpc_data_t *data, const char *URI_input);

/* What is known of a datum, as text.
 * @param server_name  For GRPC_STATUS: on that server; NULL: anywhere.
 * @param[out] info    The program frees it with free(). MT-safe. */
grpc_error_t grpc_data_getinfo(grpc_data_t *data, grpc_data_info_type_t info_tag, const char *server_name, char **info);

/* Puts a datum into a container (GRPC_CONTAINER_OF_GRPC_DATA, one extent: its size) at a rank from 0, and gives it from
 * there. MT-safe. */
grpc_error_t grpc_data_container_set(grpc_data_t *container, int rank, grpc_data_t *data);
grpc_error_t grpc_data_container_get(grpc_data_t *container, int rank, grpc_data_t *data);

/* Forgets the description. The value stays while a container, or a datum that was loaded of it, has it. MT-safe. */
grpc_error_t grpc_data_unbind(grpc_data_t *data);

/* Deletes the datum at these places (end with NULL; NULL: everywhere that Gridloom put it), and with all of them
 * forgets the description. A client's memory is never freed, nor a file deleted, here or on a server, that this datum did
 * not write. MT-safe. */
grpc_error_t grpc_data_free(grpc_data_t *data, const char **URI_locations);

#ifdef __cplusplus
}
#endif

#endif
