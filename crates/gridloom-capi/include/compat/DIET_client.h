/* DIET's client interface on a Gridloom grid: a client program for DIET is compiled with this header and linked with
 * libgridloom. docs/compat.md describes what it covers.
 *
 *   profile = diet_profile_alloc("smprod", 0, 1, 2);
 *   diet_scalar_set(diet_parameter(profile, 0), &factor, DIET_VOLATILE, DIET_DOUBLE);
 *   diet_matrix_set(diet_parameter(profile, 1), matrix, DIET_VOLATILE, DIET_DOUBLE, m, n, DIET_COL_MAJOR);
 *   diet_scalar_set(diet_parameter(profile, 2), NULL, DIET_VOLATILE, DIET_FLOAT);
 *   if (diet_call(profile) == 0) diet_scalar_get(diet_parameter(profile, 2), &time, NULL);
 *
 * The function is described in Gridloom's interface language. Its parameters are the profile's, in the same order
 * among those of the same mode, and the extents of arrays:
 *
 *   Define smprod(IN double factor, IN int m, IN int n, INOUT double a[m][n], OUT float *time)
 *
 * Parameters that only name extents are taken from the sizes of the profile's vectors and matrices. Each call compares
 * the profile with the description: number, modes, types and sizes. If they differ, it prints the difference on
 * standard error and returns GRPC_RPC_REFUSED.
 *
 * In C and C++, with GCC or Clang. Any threads may use different profiles at the same time. */
#ifndef GRIDLOOM_DIET_CLIENT_H
#define GRIDLOOM_DIET_CLIENT_H

#include <stdarg.h>
#include <sys/stat.h>

#include "../grpc.h"
#include "gridloom_compat.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef grpc_error_t diet_error_t;
typedef grpc_sessionid_t diet_reqID_t;
typedef grpc_function_handle_t diet_function_handle_t;

typedef enum {
    DIET_CHAR,
    DIET_SHORT,
    DIET_INT,
    DIET_LONGINT,
    DIET_FLOAT,
    DIET_DOUBLE,
    DIET_SCOMPLEX,
    DIET_DCOMPLEX,
    DIET_BASE_TYPE_COUNT
} diet_base_type_t;

typedef enum {
    DIET_SCALAR,
    DIET_VECTOR,
    DIET_MATRIX,
    DIET_STRING,
    DIET_PARAMSTRING,
    DIET_FILE,
    DIET_CONTAINER,
    DIET_DATA_TYPE_COUNT
} diet_data_type_t;

/* Data that are not volatile stay on servers under their identifier (store_id, diet_use_data) until
 * diet_free_persistent_data or diet_finalize. Only this program finds them. Sticky data may be sent to other servers.
 * Scalars, strings and files are always volatile. */
typedef enum {
    DIET_VOLATILE,
    DIET_PERSISTENT_RETURN,
    DIET_PERSISTENT,
    DIET_STICKY,
    DIET_STICKY_RETURN,
    DIET_PERSISTENCE_MODE_COUNT
} diet_persistence_mode_t;

typedef enum { DIET_COL_MAJOR, DIET_ROW_MAJOR, DIET_MATRIX_ORDER_COUNT } diet_matrix_order_t;

typedef struct diet_data_desc {
    char *id;
    diet_persistence_mode_t mode;
    struct {
        diet_data_type_t type;
        diet_base_type_t base_type;
    } generic;
    /* A vector is a matrix of one column. */
    struct {
        struct {
            size_t nb_r, nb_c;
            diet_matrix_order_t order;
        } mat;
    } specific;
} diet_data_desc_t;

typedef struct diet_arg_s {
    diet_data_desc_t desc;
    void *value;
    /* The library's own. */
    void *swapped_np;        /* a matrix in the order of the function */
    grpc_remote_t remote_np; /* data that stay on servers */
    int is_set_np;
    int is_used_np;          /* by diet_use_data */
    int length_np[2];        /* extents that the function determines */
} diet_arg_t;
typedef diet_arg_t diet_data_t;
typedef diet_arg_t diet_data_handle_t;

typedef struct diet_profile_s {
    char *pb_name;
    int last_in, last_inout, last_out;
    diet_arg_t *parameters;
    int dietReqID;
    int nbprocs;
    struct diet_profile_s *next_np;
} diet_profile_t;

#define diet_parameter(profile, n) (&((profile)->parameters[(n)]))

/* Calls that are outstanding, and identifiers of data that stay on servers. All files of a program share them. */
typedef struct diet_stored_ {
    diet_data_desc_t desc;
    grpc_remote_t remote;
    struct diet_stored_ *next;
} diet_stored_;
__attribute__((weak)) pthread_mutex_t diet_lock_ = PTHREAD_MUTEX_INITIALIZER;
__attribute__((weak)) diet_profile_t *diet_outstanding_;
__attribute__((weak)) diet_stored_ *diet_all_stored_;
__attribute__((weak)) int diet_last_id_;

/* ---- Beginning and end ---- */

/* A configuration of DIET names a hierarchy of agents, which has no counterpart; its other settings have no effect. */
static inline diet_error_t diet_initialize(const char *config_file_name, int argc, char **argv) {
    (void)argc, (void)argv;
    return grpc_initialize(gridloom_own_configuration_(config_file_name, "MAName", "traceLevel", "agentType"));
}

static inline diet_error_t diet_finalize(void) {
    pthread_mutex_lock(&diet_lock_);
    diet_outstanding_ = NULL;
    while (diet_all_stored_ != NULL) {
        diet_stored_ *stored = diet_all_stored_;
        diet_all_stored_ = stored->next;
        free(stored->desc.id);
        free(stored);
    }
    pthread_mutex_unlock(&diet_lock_);
    return grpc_finalize();
}

/* ---- Profiles ---- */

static inline int diet_refused_(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline int diet_refused_(const char *name, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "DIET_client.h: %s: ", name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return GRPC_RPC_REFUSED;
}

static inline diet_profile_t *diet_profile_alloc(const char *pb_name, int last_in, int last_inout, int last_out) {
    if (pb_name == NULL || last_in < -1 || last_inout < last_in || last_out < last_inout) {
        diet_refused_(pb_name == NULL ? "NULL" : pb_name, "last_in %d, last_inout %d, last_out %d must be ascending, from -1",
                      last_in, last_inout, last_out);
        return NULL;
    }
    diet_profile_t *profile = (diet_profile_t *)calloc(1, sizeof *profile);
    profile->pb_name = gridloom_copy_(pb_name);
    profile->last_in = last_in, profile->last_inout = last_inout, profile->last_out = last_out;
    profile->parameters = (diet_arg_t *)calloc((size_t)last_out + 2, sizeof *profile->parameters);
    return profile;
}

/* Removes a call from those that are outstanding: the one of that profile, or of that session if `profile` is NULL. Returns its
 * profile; NULL if there is none. */
static inline diet_profile_t *diet_forget_(diet_profile_t *profile, diet_reqID_t id) {
    pthread_mutex_lock(&diet_lock_);
    diet_profile_t **link = &diet_outstanding_;
    while (*link != NULL && (profile != NULL ? *link != profile : (*link)->dietReqID != id)) link = &(*link)->next_np;
    diet_profile_t *found = *link;
    if (found != NULL) *link = found->next_np;
    pthread_mutex_unlock(&diet_lock_);
    return found;
}

/* Does not free values: diet_free_data does. */
static inline int diet_profile_free(diet_profile_t *profile) {
    if (profile == NULL) return 1;
    diet_forget_(profile, GRPC_SESSIONID_VOID);
    for (int at = 0; at <= profile->last_out; at++) {
        free(profile->parameters[at].swapped_np);
        free(profile->parameters[at].desc.id);
    }
    free(profile->parameters);
    free(profile->pb_name);
    free(profile);
    return 0;
}

/* The ranks of a call with diet_parallel_call, if the function runs on ranks (Backend "MPI"). */
static inline int diet_profile_set_nbprocs(diet_profile_t *profile, int nbprocs) { return profile->nbprocs = nbprocs, 0; }
static inline int diet_profile_set_parallel(diet_profile_t *profile) { return (void)profile, 0; }
static inline int diet_profile_set_sequential(diet_profile_t *profile) { return profile->nbprocs = 0, 0; }

/* ---- Arguments ---- */

static inline int diet_set_(diet_arg_t *arg, void *value, diet_persistence_mode_t mode, diet_data_type_t type,
                            diet_base_type_t base_type, size_t rows, size_t columns, diet_matrix_order_t order) {
    if (arg == NULL || (int)mode < 0 || mode >= DIET_PERSISTENCE_MODE_COUNT || base_type >= DIET_BASE_TYPE_COUNT) return 1;
    free(arg->swapped_np);
    free(arg->desc.id);
    memset(arg, 0, sizeof *arg);
    arg->desc.mode = mode;
    arg->desc.generic.type = type, arg->desc.generic.base_type = base_type;
    arg->desc.specific.mat.nb_r = rows, arg->desc.specific.mat.nb_c = columns, arg->desc.specific.mat.order = order;
    arg->value = value;
    arg->is_set_np = 1;
    return 0;
}

static inline int diet_scalar_set(diet_arg_t *arg, void *value, diet_persistence_mode_t mode, diet_base_type_t base_type) {
    return diet_set_(arg, value, mode, DIET_SCALAR, base_type, 1, 1, DIET_ROW_MAJOR);
}
static inline int diet_vector_set(diet_arg_t *arg, void *value, diet_persistence_mode_t mode, diet_base_type_t base_type,
                                  size_t size) {
    return diet_set_(arg, value, mode, DIET_VECTOR, base_type, size, 1, DIET_ROW_MAJOR);
}
static inline int diet_matrix_set(diet_arg_t *arg, void *value, diet_persistence_mode_t mode, diet_base_type_t base_type,
                                  size_t nb_rows, size_t nb_cols, diet_matrix_order_t order) {
    return diet_set_(arg, value, mode, DIET_MATRIX, base_type, nb_rows, nb_cols, order);
}
static inline int diet_string_set(diet_arg_t *arg, const char *value, diet_persistence_mode_t mode) {
    return diet_set_(arg, (void *)value, mode, DIET_STRING, DIET_CHAR, 1, 1, DIET_ROW_MAJOR);
}
static inline int diet_paramstring_set(diet_arg_t *arg, const char *value, diet_persistence_mode_t mode) {
    return diet_set_(arg, (void *)value, mode, DIET_PARAMSTRING, DIET_CHAR, 1, 1, DIET_ROW_MAJOR);
}
/* path  For a result: where to write it; NULL: to a new file in TMPDIR or /tmp. */
static inline int diet_file_set(diet_arg_t *arg, const char *path, diet_persistence_mode_t mode) {
    return diet_set_(arg, (void *)path, mode, DIET_FILE, DIET_CHAR, 1, 1, DIET_ROW_MAJOR);
}

/* `value` is the address of a pointer, which is set to the value. Results were allocated with malloc, unless the program
 * passed its own memory. */
static inline int diet_get_(const diet_arg_t *arg, void *value, diet_persistence_mode_t *mode) {
    if (arg == NULL || !arg->is_set_np) return 1;
    if (value != NULL) memcpy(value, &arg->value, sizeof arg->value);
    if (mode != NULL) *mode = arg->desc.mode;
    return 0;
}
static inline int diet_vector_get_(const diet_arg_t *arg, void *value, diet_persistence_mode_t *mode, size_t *size) {
    if (arg != NULL && size != NULL) *size = arg->length_np[0] > 0 ? (size_t)arg->length_np[0] : arg->desc.specific.mat.nb_r;
    return diet_get_(arg, value, mode);
}
static inline int diet_matrix_get_(const diet_arg_t *arg, void *value, diet_persistence_mode_t *mode, size_t *nb_rows,
                                   size_t *nb_cols, diet_matrix_order_t *order) {
    if (arg == NULL) return 1;
    if (nb_rows != NULL) *nb_rows = arg->length_np[0] > 0 ? (size_t)arg->length_np[0] : arg->desc.specific.mat.nb_r;
    if (nb_cols != NULL) *nb_cols = arg->length_np[1] > 0 ? (size_t)arg->length_np[1] : arg->desc.specific.mat.nb_c;
    if (order != NULL) *order = arg->desc.specific.mat.order;
    return diet_get_(arg, value, mode);
}
static inline int diet_file_get_(const diet_arg_t *arg, void *path, diet_persistence_mode_t *mode, size_t *size) {
    struct stat status;
    if (arg != NULL && size != NULL)
        *size = arg->value != NULL && stat((const char *)arg->value, &status) == 0 ? (size_t)status.st_size : 0;
    return diet_get_(arg, path, mode);
}
/* Macros, because programs pass pointers to pointers of any type, and the constant DIET_VOLATILE for no mode. */
#define diet_scalar_get(arg, value, mode) diet_get_(arg, (void *)(value), (diet_persistence_mode_t *)(mode))
#define diet_string_get(arg, value, mode) diet_get_(arg, (void *)(value), (diet_persistence_mode_t *)(mode))
#define diet_paramstring_get(arg, value, mode) diet_get_(arg, (void *)(value), (diet_persistence_mode_t *)(mode))
#define diet_vector_get(arg, value, mode, size) \
    diet_vector_get_(arg, (void *)(value), (diet_persistence_mode_t *)(mode), size)
#define diet_matrix_get(arg, value, mode, nb_rows, nb_cols, order) \
    diet_matrix_get_(arg, (void *)(value), (diet_persistence_mode_t *)(mode), nb_rows, nb_cols, order)
#define diet_file_get(arg, path, mode, size) \
    diet_file_get_(arg, (void *)(path), (diet_persistence_mode_t *)(mode), size)

/* Frees nothing: as in DIET's last version, values belong to the program, which may pass results to free(). */
static inline int diet_free_data(diet_arg_t *arg) { return arg == NULL; }

/* ---- Data that stay on servers ---- */

static inline diet_stored_ *diet_find_(const char *id) {
    diet_stored_ *stored = diet_all_stored_;
    while (stored != NULL && (id == NULL || strcmp(stored->desc.id, id) != 0)) stored = stored->next;
    return stored;
}

/* Appends the identifier and a note to the file id.txt in the working directory. */
static inline void store_id(const char *id, const char *note) {
    FILE *file = fopen("id.txt", "a");
    if (file == NULL) return;
    fprintf(file, "%s %s\n", id == NULL ? "?" : id, note == NULL ? "" : note);
    fclose(file);
}

/* Passes data that an earlier call of this program left on servers. */
static inline void diet_use_data(diet_arg_t *arg, const char *id) {
    pthread_mutex_lock(&diet_lock_);
    diet_stored_ *stored = diet_find_(id);
    if (stored != NULL) {
        diet_data_desc_t desc = stored->desc;
        diet_set_(arg, NULL, desc.mode, desc.generic.type, desc.generic.base_type, desc.specific.mat.nb_r,
                  desc.specific.mat.nb_c, desc.specific.mat.order);
        arg->desc.id = gridloom_copy_(desc.id);
        arg->remote_np = stored->remote;
        arg->is_used_np = 1;
    } else {
        memset(arg, 0, sizeof *arg);
        diet_refused_("diet_use_data", "no call of this program has left data '%s' on servers", id == NULL ? "NULL" : id);
    }
    pthread_mutex_unlock(&diet_lock_);
}

static inline int diet_free_persistent_data(const char *id) {
    int error = GRPC_INVALID_DATA_NP;
    pthread_mutex_lock(&diet_lock_);
    diet_stored_ *stored = diet_find_(id);
    if (stored != NULL) {
        diet_stored_ **link = &diet_all_stored_;
        while (*link != stored) link = &(*link)->next;
        *link = stored->next;
        error = grpc_remote_free_np(stored->remote);
        free(stored->desc.id);
        free(stored);
    }
    pthread_mutex_unlock(&diet_lock_);
    return error;
}

/* Makes a name for data that stay on servers. */
static inline int diet_store_(diet_arg_t *arg) {
    char id[64];
    diet_stored_ *stored = (diet_stored_ *)calloc(1, sizeof *stored);
    int error = grpc_remote_new_np(&stored->remote, NULL);
    if (error != GRPC_NO_ERROR) return free(stored), error;
    pthread_mutex_lock(&diet_lock_);
    snprintf(id, sizeof id, "DIET-data-%d", ++diet_last_id_);
    arg->desc.id = gridloom_copy_(id);
    arg->remote_np = stored->remote;
    stored->desc = arg->desc;
    stored->desc.id = gridloom_copy_(id);
    stored->next = diet_all_stored_;
    diet_all_stored_ = stored;
    pthread_mutex_unlock(&diet_lock_);
    return GRPC_NO_ERROR;
}

/* ---- Descriptions of functions ---- */

enum { DIET_IN_, DIET_INOUT_, DIET_OUT_ };

/* A parameter of the function, read from its C prototype: "const double *a [m][n]" with mode and order. */
typedef struct diet_formal_ {
    char type[40], name[80], extents[2][80];
    int mode, extents_count, stars, is_file, is_by_columns, is_scratch, is_known;
    int extent_of; /* the argument whose extent it is; -1: none */
    int extent_at;
    diet_arg_t *arg;
} diet_formal_;

static inline void diet_read_formal_(char *text, diet_formal_ *formal) {
    char *note = strstr(text, "/*"), *star, *word;
    memset(formal, 0, sizeof *formal);
    formal->extent_of = -1;
    formal->is_known = strchr(text, '(') == NULL || (note != NULL && strchr(text, '(') > note);
    if (note != NULL) {
        char *extent = note;
        formal->mode = strstr(note, "in and out") != NULL ? DIET_INOUT_ : strstr(note, "out") != NULL ? DIET_OUT_ : DIET_IN_;
        formal->is_file = strstr(note, "path of a file") != NULL;
        formal->is_by_columns = strstr(note, "by columns") != NULL;
        formal->is_scratch = strstr(note, "scratch") != NULL;
        while ((extent = strchr(extent, '[')) != NULL && strchr(extent, ']') != NULL) {
            if (formal->extents_count < 2)
                snprintf(formal->extents[formal->extents_count], sizeof formal->extents[0], "%.*s",
                         (int)(strchr(extent, ']') - extent - 1), extent + 1);
            formal->extents_count++;
            extent = strchr(extent, ']');
        }
        *note = '\0';
    }
    for (star = text; (star = strchr(star, '*')) != NULL; star++) formal->stars++;
    word = text + strlen(text);
    while (word > text && word[-1] == ' ') *--word = '\0';
    while (word > text && word[-1] != ' ' && word[-1] != '*') word--;
    snprintf(formal->name, sizeof formal->name, "%s", word);
    while (word > text && (word[-1] == ' ' || word[-1] == '*')) word--;
    *word = '\0';
    snprintf(formal->type, sizeof formal->type, "%s", strncmp(text, "const ", 6) == 0 ? text + 6 : text);
}

/* Reads "grpc_call(&handle, int n, const double *x [n])". Returns new memory. */
static inline diet_formal_ *diet_read_formals_(char *prototype, size_t *count) {
    size_t room = 1;
    for (char *at = prototype; *at != '\0'; at++) room += *at == ',';
    diet_formal_ *formals = (diet_formal_ *)calloc(room, sizeof *formals);
    char *from = strchr(prototype, ',');
    *count = 0;
    while (from != NULL) {
        int depth = 0, is_note = 0;
        char *to = ++from;
        for (; *to != '\0' && (depth > 0 || is_note || (*to != ',' && *to != ')')); to++) {
            if (to[0] == '/' && to[1] == '*') is_note = 1;
            if (to[0] == '*' && to[1] == '/') is_note = 0;
            if (!is_note) depth += (*to == '(') - (*to == ')');
        }
        char *next = *to == ',' ? to : NULL;
        *to = '\0';
        diet_read_formal_(from + (*from == ' '), &formals[(*count)++]);
        from = next;
    }
    return formals;
}

static inline const char *diet_type_name_(diet_base_type_t type) {
    static const char *const names[] = {"char", "short", "int", "long", "float", "double", "float _Complex", "double _Complex"};
    return names[type];
}
static inline size_t diet_type_bytes_(diet_base_type_t type) {
    static const size_t bytes[] = {sizeof(char), sizeof(short), sizeof(int), sizeof(long), sizeof(float), sizeof(double),
                                   2 * sizeof(float), 2 * sizeof(double)};
    return bytes[type];
}

/* ---- Matching a profile with a function ---- */

static inline size_t diet_elements_(const diet_arg_t *arg) { return arg->desc.specific.mat.nb_r * arg->desc.specific.mat.nb_c; }

/* Reports whether a matrix is in the other order than the function's. */
static inline int diet_is_swapped_(const diet_arg_t *arg, const diet_formal_ *formal) {
    diet_matrix_order_t order = formal->is_by_columns ? DIET_COL_MAJOR : DIET_ROW_MAJOR;
    return formal->extents_count == 2 && arg->desc.generic.type == DIET_MATRIX && arg->desc.specific.mat.order != order;
}

/* Transposes a matrix that is stored as `lines` lines of `length` elements. */
static inline void diet_swap_(void *to, const void *from, size_t lines, size_t length, size_t bytes) {
    for (size_t line = 0; line < lines; line++)
        for (size_t at = 0; at < length; at++)
            memcpy((char *)to + (at * lines + line) * bytes, (const char *)from + (line * length + at) * bytes, bytes);
}

/* Returns the mode that the profile has for an argument. */
static inline int diet_mode_of_(const diet_profile_t *profile, int at) {
    return at <= profile->last_in ? DIET_IN_ : at <= profile->last_inout ? DIET_INOUT_ : DIET_OUT_;
}

/* Assigns arguments to parameters. Parameters that name extents have none where the profile has fewer arguments. */
static inline int diet_match_(diet_profile_t *profile, diet_formal_ *formals, size_t count) {
    static const char *const modes[] = {"IN", "INOUT", "OUT"};
    const char *name = profile->pb_name;
    int next[] = {0, profile->last_in + 1, profile->last_inout + 1};
    const int end[] = {profile->last_in + 1, profile->last_inout + 1, profile->last_out + 1};
    int visible[3] = {0, 0, 0};
    for (size_t at = 0; at < count; at++) {
        diet_formal_ *formal = &formals[at];
        if (!formal->is_known || formal->extents_count > 2)
            return diet_refused_(name, "parameter '%s' has no counterpart in DIET", formal->name[0] ? formal->name : formal->type);
        visible[formal->mode] += !formal->is_scratch;
        for (size_t of = 0; of < count && strcmp(formal->type, "int") == 0 && formal->extents_count == 0; of++)
            for (int extent = 0; extent < formals[of].extents_count; extent++)
                if (formal->extent_of < 0 && !formals[of].is_scratch && strcmp(formals[of].extents[extent], formal->name) == 0)
                    formal->extent_of = (int)of, formal->extent_at = formals[of].extents_count == 1 ? -1 : extent;
    }
    for (size_t at = 0; at < count; at++) {
        diet_formal_ *formal = &formals[at];
        int mode = formal->mode;
        if (formal->is_scratch || (formal->extent_of >= 0 && visible[mode] != end[mode] - (mode == 0 ? 0 : end[mode - 1])))
            continue;
        if (next[mode] == end[mode]) return diet_refused_(name, "the profile has no %s argument for '%s'", modes[mode], formal->name);
        formal->arg = &profile->parameters[next[mode]++];
        formal->extent_of = -1;
        if (!formal->arg->is_set_np)
            return diet_refused_(name, "argument %d is not set", (int)(formal->arg - profile->parameters));
    }
    for (int mode = 0; mode < 3; mode++)
        if (next[mode] != end[mode]) return diet_refused_(name, "the function has no parameter for %s argument %d", modes[mode], next[mode]);
    return GRPC_NO_ERROR;
}

/* Returns the value of an extent: a number, or a parameter; -1 if it is neither, or not known before the call. */
static inline long diet_extent_(const char *text, const diet_formal_ *formals, size_t count) {
    char *end;
    long number = strtol(text, &end, 10);
    if (end != text && *end == '\0') return number;
    for (size_t at = 0; at < count; at++) {
        const diet_formal_ *formal = &formals[at];
        if (strcmp(formal->name, text) != 0 || formal->mode == DIET_OUT_) continue;
        if (formal->arg == NULL && formal->extent_of >= 0) {
            const diet_arg_t *arg = formals[formal->extent_of].arg;
            return arg == NULL ? -1 : formal->extent_at < 0 ? (long)diet_elements_(arg)
                 : (long)(formal->extent_at == 0 ? arg->desc.specific.mat.nb_r : arg->desc.specific.mat.nb_c);
        }
        if (formal->arg == NULL || formal->arg->value == NULL) return -1;
        if (strcmp(formal->type, "int") == 0) return *(const int *)formal->arg->value;
        if (strcmp(formal->type, "long") == 0) return *(const long *)formal->arg->value;
    }
    return -1;
}

/* Compares an argument with its parameter: kind, type, and the number of elements. */
static inline int diet_check_(const diet_profile_t *profile, const diet_formal_ *formal, const diet_formal_ *formals,
                              size_t count) {
    const diet_arg_t *arg = formal->arg;
    const char *name = profile->pb_name;
    int at = (int)(arg - profile->parameters), is_new = formal->mode == DIET_OUT_ && formal->stars == 2;
    diet_data_type_t type = arg->desc.generic.type;
    int is_text = strcmp(formal->type, "char") == 0 && formal->extents_count == 0 && formal->stars > 0 &&
                  (formal->mode == DIET_IN_ || formal->stars == 2);
    int fits = formal->is_file ? type == DIET_FILE
             : is_text ? type == DIET_STRING || type == DIET_PARAMSTRING
             : formal->extents_count == 0 ? type == DIET_SCALAR
             : type == DIET_VECTOR || type == DIET_MATRIX;
    if (!fits || (!formal->is_file && strcmp(formal->type, diet_type_name_(arg->desc.generic.base_type)) != 0))
        return diet_refused_(name, "argument %d differs from parameter '%s' of the function: %s %s%s%s", at, formal->name,
                             formal->is_file ? "a file; its type is" : "its type is", formal->type, formal->stars > 0 ? " *" : "",
                             formal->extents_count > 0 ? ", an array" : "");
    if (formal->mode != DIET_OUT_ && arg->value == NULL && !arg->is_used_np && !(is_text || formal->is_file))
        return diet_refused_(name, "argument %d, '%s', has no value", at, formal->name);
    if (formal->extents_count == 0 || is_new) return GRPC_NO_ERROR;
    long elements = 1;
    for (int extent = 0; extent < formal->extents_count; extent++) {
        long length = diet_extent_(formal->extents[extent], formals, count);
        if (length < 0)
            return diet_refused_(name, "extent '%s' of parameter '%s' must be a number, or the name of another parameter",
                                 formal->extents[extent], formal->name);
        elements *= length;
        if (formal->extents_count == 2 && type == DIET_MATRIX &&
            length != (long)(extent == 0 ? arg->desc.specific.mat.nb_r : arg->desc.specific.mat.nb_c))
            return diet_refused_(name, "argument %d is a matrix of %zu x %zu, but '%s' of '%s' is %ld", at,
                                 arg->desc.specific.mat.nb_r, arg->desc.specific.mat.nb_c, formal->extents[extent], formal->name,
                                 length);
    }
    if (elements != (long)diet_elements_(arg))
        return diet_refused_(name, "argument %d has %zu elements, but '%s' has %ld", at, diet_elements_(arg), formal->name, elements);
    return GRPC_NO_ERROR;
}

/* ---- Calls ---- */

/* True if data that stay on servers are also results of the program. */
static inline int diet_returns_(const diet_arg_t *arg) {
    return arg->desc.mode == DIET_PERSISTENT_RETURN || arg->desc.mode == DIET_STICKY_RETURN;
}

/* Returns the address that the call gets for an argument. */
static inline int diet_address_(diet_arg_t *arg, const diet_formal_ *formal, void **address) {
    size_t bytes = diet_elements_(arg) * diet_type_bytes_(arg->desc.generic.base_type);
    int is_array = formal->extents_count > 0, is_stored = is_array && formal->stars < 2 && arg->desc.mode != DIET_VOLATILE;
    *address = arg->value;
    if (formal->is_file && formal->mode == DIET_OUT_ && arg->value == NULL) {
        const char *folder = getenv("TMPDIR");
        size_t size = strlen(folder == NULL ? "/tmp" : folder) + sizeof "/DIET-XXXXXX";
        char *path = (char *)malloc(size);
        snprintf(path, size, "%s/DIET-XXXXXX", folder == NULL ? "/tmp" : folder);
        int file = gridloom_new_file_(path);
        if (file < 0) return diet_refused_(path, "%s", strerror(errno));
        close(file);
        *address = arg->value = path;
    } else if (formal->stars == 2) {
        *address = &arg->value;
    } else if (arg->is_used_np) {
        if (diet_is_swapped_(arg, formal)) return diet_refused_(arg->desc.id, "the data are in another order than '%s'", formal->name);
        *address = arg->remote_np;
    } else if (is_array || formal->mode == DIET_OUT_) {
        if (diet_is_swapped_(arg, formal)) {
            int by_rows = arg->desc.specific.mat.order == DIET_ROW_MAJOR;
            size_t rows = arg->desc.specific.mat.nb_r, columns = arg->desc.specific.mat.nb_c;
            *address = arg->swapped_np = realloc(arg->swapped_np, bytes + 1);
            if (formal->mode != DIET_OUT_)
                diet_swap_(*address, arg->value, by_rows ? rows : columns, by_rows ? columns : rows,
                           diet_type_bytes_(arg->desc.generic.base_type));
        }
        if (is_stored) {
            int error = arg->remote_np == NULL ? diet_store_(arg) : GRPC_NO_ERROR;
            if (error == GRPC_NO_ERROR && formal->mode != DIET_OUT_) error = grpc_remote_put_np(arg->remote_np, *address, bytes);
            if (error != GRPC_NO_ERROR) return error;
            *address = arg->remote_np;
        }
        if (formal->mode == DIET_OUT_ && arg->value == NULL && (!is_stored || diet_returns_(arg))) {
            arg->value = calloc(1, bytes + 1);
            if (!is_stored && *address == NULL) *address = arg->value;
        }
    }
    return GRPC_NO_ERROR;
}

/* Makes the call, or starts it if `id` is not NULL. */
static inline diet_error_t diet_run_(diet_profile_t *profile, diet_reqID_t *id, int ranks) {
    grpc_function_handle_t handle;
    if (id != NULL) *id = GRPC_SESSIONID_VOID;
    if (profile == NULL) return diet_refused_("diet_call", "the profile is NULL");
    int error = grpc_function_handle_default(&handle, profile->pb_name);
    if (error == GRPC_NO_ERROR && ranks > 0) {
        grpc_handle_attr_t_np attributes;
        grpc_function_handle_get_attr_np(&handle, &attributes);
        grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_MPI_NCPUS, &ranks);
        grpc_function_handle_destruct(&handle);
        error = grpc_function_handle_init_with_attr_np(&handle, &attributes);
        grpc_handle_attr_destruct_np(&attributes);
    }
    if (error != GRPC_NO_ERROR) return grpc_perror_np(profile->pb_name), error;
    int length = grpc_function_handle_prototype_np(&handle, NULL, 0);
    if (length < 0) return grpc_perror_np(profile->pb_name), GRPC_RPC_REFUSED;
    char *prototype = (char *)malloc((size_t)length + 1);
    size_t count = 0;
    grpc_function_handle_prototype_np(&handle, prototype, (size_t)length + 1);
    diet_formal_ *formals = diet_read_formals_(prototype, &count);
    grpc_arg_stack_t *stack = grpc_arg_stack_new((int)count + 1);
    int *sizes = (int *)calloc(count + 1, sizeof *sizes);
    error = diet_match_(profile, formals, count);
    for (size_t at = 0; error == GRPC_NO_ERROR && at < count; at++)
        if (formals[at].arg != NULL) error = diet_check_(profile, &formals[at], formals, count);
    for (size_t at = 0; error == GRPC_NO_ERROR && at < count; at++) {
        void *address = NULL;
        if (formals[at].arg != NULL) {
            error = diet_address_(formals[at].arg, &formals[at], &address);
        } else if (formals[at].extent_of >= 0 && formals[at].mode == DIET_OUT_) {
            int extent = formals[at].extent_at < 0 ? 0 : formals[at].extent_at;
            address = &formals[formals[at].extent_of].arg->length_np[extent];
        } else if (!formals[at].is_scratch) {
            sizes[at] = (int)diet_extent_(formals[at].name, formals, count);
            address = &sizes[at];
        }
        grpc_arg_stack_push_arg(stack, address);
    }
    if (error == GRPC_NO_ERROR && id == NULL) {
        if (grpc_call_arg_stack(&handle, stack) != 0) error = grpc_last_error_get_np();
    } else if (error == GRPC_NO_ERROR) {
        *id = profile->dietReqID = grpc_call_arg_stack_async(&handle, stack);
        if (*id == GRPC_SESSIONID_VOID) error = grpc_last_error_get_np();
    }
    grpc_arg_stack_destruct(stack);
    grpc_function_handle_destruct(&handle);
    free(prototype), free(formals), free(sizes);
    return error;
}

/* Gets results into the program's memory: matrices in the program's order, and data that also stay on servers. */
static inline diet_error_t diet_deliver_(diet_profile_t *profile) {
    int error = GRPC_NO_ERROR;
    for (int at = profile->last_in + 1; at <= profile->last_out; at++) {
        diet_arg_t *arg = &profile->parameters[at];
        size_t size = diet_type_bytes_(arg->desc.generic.base_type);
        void *to = arg->swapped_np != NULL ? arg->swapped_np : arg->value;
        if (arg->remote_np != NULL && (!diet_returns_(arg) || to == NULL)) continue;
        if (arg->remote_np != NULL) {
            int got = grpc_remote_get_np(arg->remote_np, to, diet_elements_(arg) * size);
            if (got != GRPC_NO_ERROR) error = got;
        }
        if (arg->swapped_np != NULL && arg->value != NULL) {
            int by_rows = arg->desc.specific.mat.order == DIET_ROW_MAJOR;
            size_t rows = arg->desc.specific.mat.nb_r, columns = arg->desc.specific.mat.nb_c;
            diet_swap_(arg->value, arg->swapped_np, by_rows ? columns : rows, by_rows ? rows : columns, size);
        }
    }
    return error;
}

static inline diet_error_t diet_call_(diet_profile_t *profile, int ranks) {
    int error = diet_run_(profile, NULL, ranks);
    return error == GRPC_NO_ERROR ? diet_deliver_(profile) : error;
}
static inline diet_error_t diet_call_async_(diet_profile_t *profile, diet_reqID_t *id, int ranks) {
    diet_reqID_t own;
    int error = diet_run_(profile, id == NULL ? &own : id, ranks);
    if (error == GRPC_NO_ERROR) {
        pthread_mutex_lock(&diet_lock_);
        profile->next_np = diet_outstanding_;
        diet_outstanding_ = profile;
        pthread_mutex_unlock(&diet_lock_);
    }
    return error;
}
static inline diet_error_t diet_call(diet_profile_t *profile) { return diet_call_(profile, 0); }
static inline diet_error_t diet_sequential_call(diet_profile_t *profile) { return diet_call_(profile, 0); }
static inline diet_error_t diet_parallel_call(diet_profile_t *profile) { return diet_call_(profile, profile->nbprocs); }
static inline diet_error_t diet_call_async(diet_profile_t *profile, diet_reqID_t *id) { return diet_call_async_(profile, id, 0); }
static inline diet_error_t diet_sequential_call_async(diet_profile_t *profile, diet_reqID_t *id) {
    return diet_call_async_(profile, id, 0);
}
static inline diet_error_t diet_parallel_call_async(diet_profile_t *profile, diet_reqID_t *id) {
    return diet_call_async_(profile, id, profile->nbprocs);
}

/* ---- Waiting ---- */

/* Delivers the results of a session that has ended. */
static inline diet_error_t diet_ended_(diet_reqID_t id, int error) {
    diet_profile_t *profile = diet_forget_(NULL, id);
    return profile != NULL && error == GRPC_NO_ERROR ? diet_deliver_(profile) : error;
}
static inline diet_error_t diet_wait(diet_reqID_t id) { return diet_ended_(id, grpc_wait(id)); }
/* Waits for the requests one by one: after a wait for many together, the library has only the errors of the last ones. */
static inline diet_error_t diet_wait_and(diet_reqID_t *ids, size_t length) {
    int error = grpc_wait_and(ids, 0);
    for (size_t at = 0; at < length; at++)
        if (grpc_probe(ids[at]) == GRPC_INVALID_SESSION_ID) return GRPC_INVALID_SESSION_ID;
    for (size_t at = 0; at < length; at++) {
        int own = grpc_wait(ids[at]);
        /* The request occurs twice, or another thread has waited for it. */
        if (own == GRPC_INVALID_SESSION_ID) continue;
        own = diet_ended_(ids[at], own);
        if (error == GRPC_NO_ERROR) error = own;
    }
    return error;
}
static inline diet_error_t diet_wait_or(diet_reqID_t *ids, size_t length, diet_reqID_t *id) {
    int error = grpc_wait_or(ids, length, id);
    return id == NULL ? error : diet_ended_(*id, error);
}
static inline diet_error_t diet_wait_any(diet_reqID_t *id) {
    int error = grpc_wait_any(id);
    return id == NULL ? error : diet_ended_(*id, error);
}
/* Waits for the calls that are outstanding now. */
static inline diet_error_t diet_wait_all(void) {
    size_t count = 0;
    pthread_mutex_lock(&diet_lock_);
    for (diet_profile_t *profile = diet_outstanding_; profile != NULL; profile = profile->next_np) count++;
    diet_reqID_t *ids = (diet_reqID_t *)malloc((count + 1) * sizeof *ids);
    count = 0;
    for (diet_profile_t *profile = diet_outstanding_; profile != NULL; profile = profile->next_np) ids[count++] = profile->dietReqID;
    pthread_mutex_unlock(&diet_lock_);
    int error = grpc_wait_and(ids, 0);
    for (size_t at = 0; at < count; at++) {
        int own = grpc_wait(ids[at]);
        /* Another thread has waited for it. */
        if (own == GRPC_INVALID_SESSION_ID) continue;
        own = diet_ended_(ids[at], own);
        if (error == GRPC_NO_ERROR) error = own;
    }
    free(ids);
    return error;
}

#define diet_probe grpc_probe
#define diet_probe_or grpc_probe_or
/* The profile of a cancelled call gets no results, and may be used again. */
static inline diet_error_t diet_cancel(diet_reqID_t id) {
    diet_forget_(NULL, id);
    return grpc_cancel(id);
}
static inline diet_error_t diet_cancel_all(void) {
    pthread_mutex_lock(&diet_lock_);
    diet_outstanding_ = NULL;
    pthread_mutex_unlock(&diet_lock_);
    return grpc_cancel_all();
}

#define diet_get_error grpc_get_error
#define diet_get_handle grpc_get_handle
#define diet_get_failed_session grpc_get_failed_sessionid
#define diet_error_string grpc_error_string
#define diet_perror grpc_perror_np
#define diet_get_last_error grpc_last_error_get_np
#define grpc_perror grpc_perror_np
#define grpc_get_last_error grpc_last_error_get_np

/* ---- Without counterpart: the compiler names the reason ---- */

typedef struct diet_wf_desc diet_wf_desc_t;
typedef enum { DIET_WF_DAG, DIET_WF_FUNCTIONAL } wf_level_t;
GRIDLOOM_UNSUPPORTED_(diet_wf_desc_t *diet_wf_profile_alloc(const char *, const char *, wf_level_t),
                      "workflows of DIET are not supported: describe them with grpc_graph.h");
GRIDLOOM_UNSUPPORTED_(diet_error_t diet_wf_call(diet_wf_desc_t *), "workflows of DIET are not supported");
GRIDLOOM_UNSUPPORTED_(void diet_wf_free(diet_wf_desc_t *), "workflows of DIET are not supported");
GRIDLOOM_UNSUPPORTED_(int diet_container_set(diet_arg_t *, diet_persistence_mode_t),
                      "containers of DIET are not supported: pass an array, or use grpc_data_container_set");
GRIDLOOM_UNSUPPORTED_(char **get_diet_services(int *), "the list of services is not available: use 'gridloom functions'");

#ifdef __cplusplus
}
#endif

#endif
