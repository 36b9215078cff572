/* Data management after the proposal GFD.186: not of GFD.52. A plan: nothing of it is there yet. */
#ifndef GRIDLOOM_GRPC_DATA_H
#define GRIDLOOM_GRPC_DATA_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Data management: an extension after GFD.186
 * ------------------------------------------------------------------------
 *
 * Its names follow what is known of the proposal. Its text was not at hand: that this conforms to it is not claimed.
 *
 * A grpc_data_t describes a datum: where it can be read (input URIs), where it has to be put (output URIs), type,
 * extents, and how each output is managed. `&data` stands for an argument in calls as a grpc_remote_t does. It is the
 * program's memory and the library's content, known by its address from grpc_data_init (or _load, _container_get) until
 * _unbind or _free: do not copy it.
 *
 * URIs
 *   memory:KEY, memory:0x7f..       memory of the client: of a key of grpc_data_memory_mapping_set, or an address
 *   file:PATH, file://SERVER/PATH   a file of the client, or of a server that allows it (`gridloom serve --files
 *                                   FOLDER`)
 *   gridloom://SERVER               that server's store; gridloom:// some server's
 *   s3://BUCKET/KEY, http(s)://...  storage that all can reach, as far as the build and the servers' configuration
 *                                   have it */
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
    GRPC_DATA_HANDLE,       /* its name, by which another client finds it */
    GRPC_INPUT_URI,         /* one a line, as are the following */
    GRPC_OUTPUT_URI,
    GRPC_MANAGEMENT_MODE,
    GRPC_TYPE,
    GRPC_DIMENSION,
    GRPC_LOCATIONS_LIST,    /* servers that hold it */
    GRPC_STATUS             /* "ready", "under way", "lost: ...", "undefined" */
} grpc_data_info_type_t;

/* Describes a datum; nothing is moved.
 * @param input_URIs, output_URIs  End with NULL; NULL: none. A datum without inputs is an output of calls, or is given
 *                                 by one.
 * @param dimensions   Extents, outermost first, end with 0; NULL: a scalar, or a size that follows from the input.
 * @param output_modes One for each output URI, end with GRPC_END_LIST; NULL: GRPC_VOLATILE.
 * @return GRPC_INVALID_DATA_NP if a URI is malformed, its kind is not known, or the lists do not fit each other.
 *         MT-safe. */
grpc_error_t grpc_data_init(grpc_data_t *data, const char **input_URIs, const char **output_URIs, grpc_data_type_t type,
                            const size_t *dimensions, const grpc_data_mode_t *output_modes);

/* Gives an address a key for memory: URIs, until it is given another or NULL. MT-safe. */
grpc_error_t grpc_data_memory_mapping_set(const char *key, void *data);
/* The address of a key. @return GRPC_INVALID_DATA_NP if there is none. MT-safe. */
grpc_error_t grpc_data_memory_mapping_get(const char *key, void **data);

/* Begins to move or copy a datum from one of these inputs (NULL: its own) to all of these outputs, and returns. Memory
 * that is read or written stays unchanged until grpc_data_wait.
 * @return GRPC_INVALID_DATA_NP; what fails later, grpc_data_wait tells. MT-safe. */
grpc_error_t grpc_data_transfer(grpc_data_t *data, const char **input_URIs, const char **output_URIs,
                                const grpc_data_mode_t *output_modes);

/* Waits for the transfers under way of all of these data, or of any one.
 * @param data  Ends with NULL.
 * @param[out] returned  The first in the list whose transfers have ended, or have failed; may be NULL.
 * @return GRPC_INVALID_DATA_NP; GRPC_COMMUNICATION_FAILED if a transfer failed. MT-safe. */
grpc_error_t grpc_data_wait(grpc_data_t *const *data, grpc_completion_mode_t mode, grpc_data_t **returned);

/* Writes the description of a datum, not its content, to a file: or memory: URI (a key or address with room for 4096
 * bytes), and makes a datum of one. A datum that servers keep is thereby found by another client. MT-safe. */
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

/* Forgets the description; the datum stays where servers keep it. MT-safe. */
grpc_error_t grpc_data_unbind(grpc_data_t *data);

/* Deletes the datum at these places (end with NULL; NULL: everywhere that Gridloom put it), and with all of them
 * forgets the description. A client's memory is never freed, nor a file deleted that it did not write. MT-safe. */
grpc_error_t grpc_data_free(grpc_data_t *data, const char **URI_locations);

#ifdef __cplusplus
}
#endif

#endif
