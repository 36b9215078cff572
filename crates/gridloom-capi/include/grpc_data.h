/* Data management after the proposal GFD.186: an extension, not of GFD.52. Included by grpc.h.
 *
 * Its names follow what is generally known of the proposal, whose text was not at hand: that this conforms to it is not
 * claimed.
 *
 * A grpc_data_t describes a datum: where it can be read (input URIs), where it has to be put (output URIs), type,
 * extents, and how each output is managed. `&data` stands for an argument in calls as a grpc_remote_t does
 * (grpc_remote.h). Read by a call before it has a value, it is read from its first input from which it can be. As an
 * output, its value is put to its outputs by who learns of the session's end, as results are written, and stays
 * on the server besides. It is the program's memory and the library's content, known by its address from grpc_data_init
 * (or _load, _container_get) until _unbind, _free or grpc_finalize: do not copy it.
 *
 * URIs
 *   memory:KEY, memory:0x7f..   memory of the client: of a key of grpc_data_memory_mapping_set, or an address
 *   file:PATH, file:///PATH     a file of the client
 *   gridloom:                   the stores of the grid: where it was made, or with the client until it is read
 * Others (files and stores of a server by its name, s3:, http:) are GRPC_INVALID_DATA_NP.
 *
 * Modes, and which promise is not kept
 *   GRPC_VOLATILE, GRPC_PERSISTENT  kept while the datum is; it may move and be copied
 *   GRPC_STICKY                     as GRPC_PERSISTENT: where it was made it may be dropped, if there are copies
 *   GRPC_UNIQUE_STICKY              as GRPC_PERSISTENT: calls that read it may run elsewhere, on a copy
 *   GRPC_STRICTLY_VOLATILE          released when the first call that reads it needs it no more; a copy goes to where
 *                                   that runs. Servers write no data to disks
 * The mode of any output counts for all of the datum. */
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
    GRPC_LOCATIONS_LIST,    /* the server that made it, or "client" */
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
 * @param output_modes  As many as outputs, or NULL; they change nothing.
 * @return GRPC_INVALID_DATA_NP; what fails later, grpc_data_wait tells. MT-safe. */
grpc_error_t grpc_data_transfer(grpc_data_t *data, const char **input_URIs, const char **output_URIs,
                                const grpc_data_mode_t *output_modes);

/* Waits for the transfers under way of all of these data, or of any one, and writes their outputs.
 * @param data  Ends with NULL.
 * @param[out] returned  The first in the list whose transfers have ended, or have failed; NULL for none; may be NULL.
 * @return GRPC_INVALID_DATA_NP; GRPC_COMMUNICATION_FAILED if a transfer failed. MT-safe. */
grpc_error_t grpc_data_wait(grpc_data_t **data, grpc_completion_mode_t mode, grpc_data_t **returned);

/* Writes the description of a datum, not its content, to a file: or memory: URI (a key or address with room for 4096
 * bytes), and makes a datum of one. Within the program that saved it, it is the same datum while that is described;
 * elsewhere it has the same inputs and outputs, and no value. (Another client cannot find data that servers keep.)
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
 * forgets the description. A client's memory is never freed, nor a file deleted that it did not write. MT-safe. */
grpc_error_t grpc_data_free(grpc_data_t *data, const char **URI_locations);

#ifdef __cplusplus
}
#endif

#endif
