/* GRAS (SimGrid 2.90 to 3.7) on Gridloom's processes in C (gridloom.h): programs run for real with `gridloom deploy`, and in virtual
 * time with `gridloom simulate`. docs/compat.md describes what it covers.
 *
 *   GRAS_DEFINE_TYPE(s_matrix, struct s_matrix { int lines; int rows; double *ctn GRAS_ANNOTE(size, lines * rows); };)
 *
 *   int client(int argc, char *argv[]) {
 *       gras_init(&argc, argv);
 *       gras_socket_t server = gras_socket_client(argv[1], 4000), from;
 *       gras_msgtype_declare("request", gras_datadesc_by_symbol(s_matrix));
 *       gras_msg_send(server, gras_msgtype_by_name("request"), &matrix);
 *       ...
 *
 *   cc -DGRAS_PROCESSES=client,server -I$(pkg-config --variable=compatdir gridloom) matrix.c ...
 *
 * GRAS_PROCESSES names the process functions, at most eight; the header then defines main. GRAS has a generator for this.
 *
 * A message is sent with its name and an array of its type, so that only programs with this header understand it. Types have to be
 * basic types, "string", or structs of GRAS_DEFINE_TYPE, and arrays of a fixed number of them.
 *
 * Received data are blocks of memory of the library, with all that pointers point to. This header replaces free(), so that programs may
 * free these pointers one by one, as in GRAS: the block is freed with the last of them, or by gras_exit(). A block stays until
 * gras_exit() if its structs have arrays of pointers, or nested structs with pointers.
 *
 * For C99 and later, with GCC or Clang. */
#ifndef GRIDLOOM_GRAS_H
#define GRIDLOOM_GRAS_H

#include <float.h>
#include <limits.h>
#include <unistd.h>

#include "../gridloom.h"
#include "gridloom_compat.h"

/* ---- Exceptions: TRY { ... } CATCH(e) { ... }. Neither block may be left by return, break or goto. ---- */

typedef enum {
    unknown_error,
    arg_error,
    bound_error,
    mismatch_error,
    not_found_error,
    system_error,
    network_error,
    timeout_error,
    thread_error
} xbt_errcat_t;

typedef struct xbt_ex {
    char *msg;
    xbt_errcat_t category;
    int value;
} xbt_ex_t;

/* Variables of a process: in simulation each has its own copy. All files of a program share them. */
#define GRAS_SHARED_ __attribute__((weak))
GRAS_SHARED_ void **gras_catches_;
GRAS_SHARED_ xbt_ex_t gras_thrown_;
GRAS_SHARED_ int gras_is_thrown_;

__attribute__((noinline, noreturn, unused, format(printf, 3, 4))) static void gras_throw_(xbt_errcat_t category, int value,
                                                                                        const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    gras_thrown_.msg = gridloom_copy_(text);
    gras_thrown_.category = category;
    gras_thrown_.value = value;
    gras_is_thrown_ = 1;
    if (gras_catches_ == NULL) {
        fprintf(stderr, "gras.h: uncaught exception: %s\n", text);
        abort();
    }
    __builtin_longjmp(gras_catches_, 1);
}
static inline int gras_catch_(xbt_ex_t *to) {
    int is_thrown = gras_is_thrown_;
    if (is_thrown) *to = gras_thrown_;
    gras_is_thrown_ = 0;
    return is_thrown;
}

#define TRY                                  \
    {                                        \
        void *gras_here_[5];                 \
        void **gras_outer_ = gras_catches_;  \
        gras_catches_ = gras_here_;          \
        if (__builtin_setjmp(gras_here_) == 0)
#define CATCH(exception)           \
        gras_catches_ = gras_outer_;   \
    }                                  \
    if (!gras_catch_(&(exception))) {  \
    } else
#define THROW0(category, value, text) gras_throw_(category, value, "%s", text)
#define THROW1(category, value, ...) gras_throw_(category, value, __VA_ARGS__)
#define THROW2 THROW1
#define THROW3 THROW1
#define THROW_IMPOSSIBLE gras_throw_(unknown_error, 0, "%s:%d: this is impossible", __FILE__, __LINE__)
#define THROW_UNIMPLEMENTED gras_throw_(unknown_error, 0, "%s:%d: this is not implemented", __FILE__, __LINE__)
/* In the text, %s is that of the exception. */
#define RETHROW gras_throw_(gras_thrown_.category, gras_thrown_.value, "%s", gras_thrown_.msg)
#define RETHROW0(text) gras_throw_(gras_thrown_.category, gras_thrown_.value, text, gras_thrown_.msg)
#define RETHROW1(text, first) gras_throw_(gras_thrown_.category, gras_thrown_.value, text, first, gras_thrown_.msg)
#define RETHROW2(text, first, second) gras_throw_(gras_thrown_.category, gras_thrown_.value, text, first, second, gras_thrown_.msg)
static inline void xbt_ex_free(xbt_ex_t exception) { (free)(exception.msg); }

/* Returns a code of gridloom.h, or throws the library's error. */
static inline int64_t gras_or_throw_(int64_t code) {
    if (code == GRIDLOOM_TIMED_OUT) gras_throw_(timeout_error, (int)code, "%s", gridloom_last_error());
    if (code == GRIDLOOM_USAGE || code == GRIDLOOM_LAYOUT) gras_throw_(mismatch_error, (int)code, "%s", gridloom_last_error());
    if (code < 0) gras_throw_(code == GRIDLOOM_CANNOT_LISTEN ? system_error : network_error, (int)code, "%s", gridloom_last_error());
    return code;
}

/* ---- Memory and messages of the log ---- */

#define xbt_malloc(size) malloc(size)
#define xbt_malloc0(size) calloc(1, size)
#define xbt_new(type, count) ((type *)malloc(sizeof(type) * (count)))
#define xbt_new0(type, count) ((type *)calloc(count, sizeof(type)))
#define xbt_strdup(text) gridloom_copy_(text)
#define xbt_free(pointer) gras_free_(pointer)
#define xbt_assert(condition) \
    ((condition) ? (void)0 : gras_throw_(unknown_error, 0, "%s:%d: %s is false", __FILE__, __LINE__, #condition))
#define xbt_assert0(condition, text) ((condition) ? (void)0 : gras_throw_(unknown_error, 0, "%s", text))
#define xbt_assert1(condition, ...) ((condition) ? (void)0 : gras_throw_(unknown_error, 0, __VA_ARGS__))
#define xbt_assert2 xbt_assert1
#define xbt_assert3 xbt_assert1

#define XBT_LOG_NEW_DEFAULT_CATEGORY(name, text) GRIDLOOM_LOG_CATEGORY(name)
#define XBT_LOG_NEW_DEFAULT_SUBCATEGORY(name, parent, text) GRIDLOOM_LOG_CATEGORY(parent.name)
#define XBT_LOG_EXTERNAL_DEFAULT_CATEGORY(name) GRIDLOOM_LOG_CATEGORY(name)
#define GRAS_LOG_(level, ...) gridloom_log(level, gridloom_category_, __VA_ARGS__)
#define DEBUG0(...) GRAS_LOG_(GRIDLOOM_LEVEL_DEBUG, __VA_ARGS__)
#define DEBUG1 DEBUG0
#define DEBUG2 DEBUG0
#define DEBUG3 DEBUG0
#define DEBUG4 DEBUG0
#define VERB0 DEBUG0
#define VERB1 DEBUG0
#define VERB2 DEBUG0
#define VERB3 DEBUG0
#define INFO0(...) GRAS_LOG_(GRIDLOOM_LEVEL_INFO, __VA_ARGS__)
#define INFO1 INFO0
#define INFO2 INFO0
#define INFO3 INFO0
#define INFO4 INFO0
#define INFO5 INFO0
#define INFO6 INFO0
#define WARN0(...) GRAS_LOG_(GRIDLOOM_LEVEL_WARNING, __VA_ARGS__)
#define WARN1 WARN0
#define WARN2 WARN0
#define WARN3 WARN0
#define ERROR0(...) GRAS_LOG_(GRIDLOOM_LEVEL_ERROR, __VA_ARGS__)
#define ERROR1 ERROR0
#define ERROR2 ERROR0
#define CRITICAL0 ERROR0
#define CRITICAL1 ERROR0
#define CRITICAL2 ERROR0

/* ---- Data descriptions ---- */

/* A type that can be sent. */
typedef struct gras_known_ {
    const char *name, *kind;
    size_t bytes;
    int pointers; /* in each element; or GRAS_UNCOUNTED_ */
    struct gras_known_ *next;
} gras_known_;

/* Elements of such a type. */
typedef struct gras_datadesc {
    const gras_known_ *type;
    int count;
    char *name;
    struct gras_datadesc *next;
} *gras_datadesc_type_t;

/* The struct that is sent. GRAS_ENVELOPE_ is its declaration for each type of the payload. */
typedef struct gras_envelope_ {
    const char *gras_message;
    int gras_role, gras_call, gras_count;
    void *gras_body;
} gras_envelope_;
#define GRAS_ENVELOPE_(kind, type)                                                                                  \
    "struct " kind " { char *gras_message; int gras_role, gras_call, gras_count; " type " *gras_body GRIDLOOM_LENGTH(gras_count); }"

GRAS_SHARED_ gras_known_ *gras_all_known_;
GRAS_SHARED_ gras_datadesc_type_t gras_all_described_;

/* The number of an element's pointers depends on the data, or its declaration is not simple. Blocks of such a type stay until
 * gras_exit(). */
enum { GRAS_UNCOUNTED_ = -1 };

static inline int gras_is_word_(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}
static inline int gras_is_basic_(const char *text, size_t length) {
    static const char *const words[] = {"char", "short", "int", "long", "float", "double", "unsigned", "signed", "size_t", "_Bool"};
    size_t at;
    for (at = 0; at < sizeof words / sizeof *words; at++)
        if (gras_is_word_(text, length, words[at])) return 1;
    text += *text == 'u';
    return strncmp(text, "int", 3) == 0 && text[3] >= '0' && text[3] <= '9';
}
static inline int gras_has_no_pointer_(const char *name, size_t length) {
    const gras_known_ *known = gras_all_known_;
    while (known != NULL && !gras_is_word_(name, length, known->name)) known = known->next;
    return known != NULL && known->pointers == 0;
}
/* Returns the number of pointers of a struct if each is a member of its own, to elements without pointers. */
static inline int gras_count_pointers_(const char *text) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    int pointers = 0, stars = 0, depth = 0, is_type_next = 1, is_struct = 0;
    const char *at = strchr(text, '{');
    if (at == NULL) return GRAS_UNCOUNTED_;
    for (at++; *at != '\0' && *at != '}';) {
        size_t length = strspn(at, letters);
        if (length == 0) {
            int is_array_of_pointers = *at == '[' && depth == 0 && stars > 0;
            depth += (*at == '(' || *at == '[') - (*at == ')' || *at == ']');
            if (depth == 0 && (*at == ',' || *at == ';')) stars = 0;
            if (*at == ';') is_type_next = 1;
            if (depth == 0 && *at == '*') pointers++, stars++;
            if (is_array_of_pointers || stars > 1 || *at == '{') return GRAS_UNCOUNTED_;
            at++;
            continue;
        }
        if (is_type_next && gras_is_word_(at, length, "struct")) {
            is_struct = 1;
        } else if (is_type_next && !gras_is_word_(at, length, "const")) {
            if (!(is_struct ? gras_has_no_pointer_(at, length) : gras_is_basic_(at, length))) return GRAS_UNCOUNTED_;
            is_type_next = is_struct = 0;
        }
        at += length;
    }
    /* The text may declare several structs. */
    return strchr(at, '{') == NULL ? pointers : GRAS_UNCOUNTED_;
}

/* Replaces annotations by those of gridloom_layout.h: GRAS_ANNOTE(size, n) by GRIDLOOM_LENGTH(n). */
static inline char *gras_annotated_(const char *text) {
    char *out = (char *)calloc(2, strlen(text) * 2 + 1), *to = out;
    while (*text != '\0') {
        if (strncmp(text, "GRAS_ANNOTE(", 12) == 0) {
            const char *comma = strchr(text, ',');
            to += sprintf(to, "GRIDLOOM_LENGTH(");
            text = comma == NULL ? text + 12 : comma + 1;
            int depth = 1;
            while (*text != '\0' && depth > 0) {
                depth += (*text == '(') - (*text == ')');
                *to++ = *text++;
            }
        } else {
            *to++ = *text++;
        }
    }
    return out;
}
static inline void gras_declare_(gras_known_ *known, const char *raw, const char *expanded, const char *envelope, const char *file, int line) {
    if (raw != NULL) {
        gridloom_declaration type = {NULL, NULL, NULL, file, line, 0, 0, 0};
        /* The text after macro expansion, unless the type has annotations, which are macros themselves and would be lost. */
        char *text = gras_annotated_(strstr(raw, "GRAS_ANNOTE") == NULL ? expanded : raw);
        known->pointers = gras_count_pointers_(text);
        type.text = text;
        gridloom_declare(&type);
        free(text);
    }
    gridloom_declaration message = {known->kind, known->kind, envelope, file, line, sizeof(gras_envelope_), __alignof__(gras_envelope_), 0};
    const gras_known_ *other = gras_all_known_;
    gridloom_declare(&message);
    while (other != NULL && strcmp(other->name, known->name) != 0) other = other->next;
    if (other != NULL) return;
    known->next = gras_all_known_;
    gras_all_known_ = known;
}

/* Annotation of a pointer: the number of elements that it points to. It is read from the type's text; the compiler ignores it. */
#define GRAS_ANNOTE(key, value)
#define GRAS_EXPANDED_(...) #__VA_ARGS__
/* The text may end with a semicolon or not. */
#define GRAS_DEFINE_TYPE(name, ...)                                                                          \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wpedantic\"") __VA_ARGS__;             \
    _Pragma("GCC diagnostic pop") GRAS_DEFINE_(name, #__VA_ARGS__, GRAS_EXPANDED_(__VA_ARGS__))
#define GRAS_DEFINE_(name, raw, expanded)                                                                                       \
    __attribute__((constructor)) static void gras_defines_##name(void) {                                                       \
        static gras_known_ known = {#name, "gras_" #name, sizeof(struct name), 0, NULL};                                        \
        gras_declare_(&known, raw, expanded, GRAS_ENVELOPE_("gras_" #name, "struct " #name), __FILE__, __LINE__);              \
    }
#define GRAS_BASIC_(label, c_type, declared) {{label, "gras_" declared, sizeof(c_type), 0, NULL}, GRAS_ENVELOPE_("gras_" declared, #c_type)}
__attribute__((constructor)) static void gras_defines_basic_types_(void) {
    static struct {
        gras_known_ known;
        const char *envelope;
    } basic[] = {
        GRAS_BASIC_("char", char, "char"), GRAS_BASIC_("short", short, "short"), GRAS_BASIC_("int", int, "int"),
        GRAS_BASIC_("long", long, "long"), GRAS_BASIC_("float", float, "float"), GRAS_BASIC_("double", double, "double"),
        GRAS_BASIC_("unsigned int", unsigned int, "uint"), GRAS_BASIC_("unsigned long", unsigned long, "ulong"),
        GRAS_BASIC_("unsigned short", unsigned short, "ushort"), GRAS_BASIC_("unsigned char", unsigned char, "uchar"),
        {{"string", "gras_string", sizeof(char *), 1, NULL}, GRAS_ENVELOPE_("gras_string", "struct gras_text_")},
    };
    static const gridloom_declaration text = {NULL, NULL, "struct gras_text_ { char *gras_value; };", __FILE__, __LINE__, 0, 0, 0};
    size_t at;
    gridloom_declare(&text);
    for (at = 0; at < sizeof basic / sizeof *basic; at++) gras_declare_(&basic[at].known, NULL, NULL, basic[at].envelope, __FILE__, __LINE__);
}

static inline gras_datadesc_type_t gras_describe_(const char *name, const gras_known_ *type, int count) {
    gras_datadesc_type_t made = (gras_datadesc_type_t)calloc(1, sizeof *made);
    made->type = type, made->count = count, made->name = gridloom_copy_(name);
    made->next = gras_all_described_;
    return gras_all_described_ = made;
}
/* Returns NULL if there is no such type. */
static inline gras_datadesc_type_t gras_datadesc_by_name(const char *name) {
    gras_datadesc_type_t described;
    const gras_known_ *known;
    for (described = gras_all_described_; described != NULL; described = described->next)
        if (strcmp(described->name, name) == 0) return described;
    for (known = gras_all_known_; known != NULL; known = known->next)
        if (strcmp(known->name, strncmp(name, "struct ", 7) == 0 ? name + 7 : name) == 0) return gras_describe_(name, known, 1);
    return NULL;
}
#define gras_datadesc_by_symbol(name) gras_datadesc_by_name(#name)
static inline gras_datadesc_type_t gras_datadesc_array_fixed(const char *name, gras_datadesc_type_t element, long count) {
    if (element == NULL || count < 1 || count > 0x7fffffff / element->count)
        gras_throw_(arg_error, 0, "%s: %ld elements of %s cannot be described", name, count, element == NULL ? "no type" : element->name);
    return gras_describe_(name, element->type, (int)count * element->count);
}
static inline void gras_datadesc_set_const(const char *name, int value) { (void)name, (void)value; }

/* ---- Message types ---- */

typedef struct gras_socket *gras_socket_t;
typedef struct gras_context *gras_msg_cb_ctx_t;
typedef int (*gras_msg_cb_t)(gras_msg_cb_ctx_t context, void *payload);

typedef struct gras_msgtype {
    char *name;
    gras_datadesc_type_t payload, answer;
    int is_rpc;
    gras_msg_cb_t callbacks[8]; /* the last one is called first */
    int callbacks_count;
    struct gras_msgtype *next;
} *gras_msgtype_t;
GRAS_SHARED_ gras_msgtype_t gras_all_types_;

/* Returns the message type; NULL if it is not declared. */
static inline gras_msgtype_t gras_find_type_(const char *name) {
    gras_msgtype_t type = gras_all_types_;
    while (type != NULL && strcmp(type->name, name) != 0) type = type->next;
    return type;
}
static inline gras_msgtype_t gras_msgtype_by_name(const char *name) {
    gras_msgtype_t type = gras_find_type_(name);
    if (type == NULL) gras_throw_(not_found_error, 0, "message type '%s' is not declared", name);
    return type;
}
/* Programs for later versions pass the name in place of the type. */
static inline gras_msgtype_t gras_type_of_(const void *type_or_name) {
    gras_msgtype_t type = gras_all_types_;
    while (type != NULL && type != type_or_name) type = type->next;
    return type != NULL ? type : gras_msgtype_by_name((const char *)type_or_name);
}
static inline void gras_declare_type_(const char *name, gras_datadesc_type_t payload, gras_datadesc_type_t answer, int is_rpc) {
    gras_msgtype_t type = gras_find_type_(name);
    if (type != NULL && type->payload == payload && type->answer == answer && type->is_rpc == is_rpc) return;
    if (type != NULL) gras_throw_(mismatch_error, 0, "message type '%s' is declared with another payload", name);
    type = (gras_msgtype_t)calloc(1, sizeof *type);
    type->name = gridloom_copy_(name), type->payload = payload, type->answer = answer, type->is_rpc = is_rpc;
    type->next = gras_all_types_;
    gras_all_types_ = type;
}
static inline void gras_msgtype_declare(const char *name, gras_datadesc_type_t payload) { gras_declare_type_(name, payload, NULL, 0); }
static inline void gras_msgtype_declare_rpc(const char *name, gras_datadesc_type_t request, gras_datadesc_type_t answer) {
    gras_declare_type_(name, request, answer, 1);
}
static inline void gras_register_(gras_msgtype_t type, gras_msg_cb_t callback) {
    if (type->callbacks_count == 8) gras_throw_(bound_error, 8, "message type '%s' has 8 callbacks already", type->name);
    type->callbacks[type->callbacks_count++] = callback;
}
static inline void gras_unregister_(gras_msgtype_t type, gras_msg_cb_t callback) {
    int from, to = 0;
    for (from = 0; from < type->callbacks_count; from++)
        if (type->callbacks[from] != callback) type->callbacks[to++] = type->callbacks[from];
    type->callbacks_count = to;
}
#define gras_cb_register(type, callback) gras_register_(gras_type_of_(type), callback)
#define gras_cb_unregister(type, callback) gras_unregister_(gras_type_of_(type), callback)

/* ---- Sockets ---- */

struct gras_socket {
    gridloom_peer peer;
    int port, is_server;
    char name[256], process[256];
    struct gras_socket *next;
};
GRAS_SHARED_ gras_socket_t gras_all_sockets_;

static inline gras_socket_t gras_add_socket_(gridloom_peer peer, int port, int is_server) {
    gras_socket_t made = (gras_socket_t)calloc(1, sizeof *made);
    made->peer = peer, made->port = port, made->is_server = is_server;
    if (is_server) {
        snprintf(made->name, sizeof made->name, "%s", gridloom_host());
    } else {
        gridloom_describe(peer, made->process, sizeof made->process);
        const char *host = strchr(made->process, '@');
        snprintf(made->name, sizeof made->name, "%s", host == NULL ? made->process : host + 1);
    }
    made->next = gras_all_sockets_;
    return gras_all_sockets_ = made;
}
/* Returns the socket of a sender. */
static inline gras_socket_t gras_socket_of_(gridloom_peer peer) {
    gras_socket_t socket = gras_all_sockets_;
    while (socket != NULL && (socket->is_server || socket->peer != peer)) socket = socket->next;
    return socket != NULL ? socket : gras_add_socket_(peer, 0, 0);
}
static inline gras_socket_t gras_socket_server(unsigned short port) {
    return gras_add_socket_(-1, (int)gras_or_throw_(gridloom_listen(port)), 1);
}
static inline gras_socket_t gras_socket_server_range(unsigned short from, unsigned short to) {
    while (from < to) {
        int port = gridloom_listen(from++);
        if (port != GRIDLOOM_CANNOT_LISTEN) return gras_add_socket_(-1, (int)gras_or_throw_(port), 1);
    }
    return gras_socket_server(to);
}
/* Waits up to 10 s until somebody listens there. */
static inline gras_socket_t gras_socket_client(const char *host, unsigned short port) {
    gras_socket_t made = gras_add_socket_(gras_or_throw_(gridloom_connect(host, port, 10)), port, 0);
    snprintf(made->name, sizeof made->name, "%s", host);
    return made;
}
#define gras_socket_server_ext(port, buffer, measurement) gras_socket_server(port)
#define gras_socket_client_ext(host, port, buffer, measurement) gras_socket_client(host, port)
static inline void gras_socket_close(gras_socket_t socket) {
    gras_socket_t *link = &gras_all_sockets_;
    while (*link != NULL && *link != socket) link = &(*link)->next;
    if (socket == NULL || *link == NULL) return;
    *link = socket->next;
    if (!socket->is_server) gridloom_close(socket->peer);
    (free)(socket);
}
/* The port of a sender that has connected to this process is not known: 0. */
static inline int gras_socket_my_port(gras_socket_t socket) { return socket->is_server ? socket->port : 0; }
static inline int gras_socket_peer_port(gras_socket_t socket) { return socket->is_server ? 0 : socket->port; }
static inline char *gras_socket_peer_name(gras_socket_t socket) { return socket->name; }
static inline char *gras_socket_peer_proc(gras_socket_t socket) { return socket->process; }

/* ---- Received messages ---- */

enum { GRAS_ONE_WAY_, GRAS_CALL_, GRAS_ANSWER_, GRAS_FAILURE_ };

/* A message, or the action of a timer, that waits to be handled; or a message whose memory the program uses. */
typedef struct gras_received_ {
    gridloom_message *message;
    const gras_known_ *type;
    void (*action)(void);
    long uses;
    struct gras_received_ *next;
} gras_received_;
GRAS_SHARED_ gras_received_ *gras_waiting_, *gras_used_;

struct gras_context {
    gras_socket_t from;
    gras_msgtype_t type;
    int call;
};
static inline gras_socket_t gras_msg_cb_ctx_from(gras_msg_cb_ctx_t context) { return context->from; }

static inline gras_envelope_ *gras_envelope_of_(const gras_received_ *received) { return (gras_envelope_ *)received->message->data; }

static inline void gras_append_(gras_received_ **list, gras_received_ *received) {
    while (*list != NULL) list = &(*list)->next;
    received->next = NULL;
    *list = received;
}
static inline int gras_receive_(gridloom_message *message, void *type) {
    gras_received_ *received = (gras_received_ *)calloc(1, sizeof *received);
    received->message = gridloom_message_keep(message);
    received->type = (const gras_known_ *)type;
    gras_append_(&gras_waiting_, received);
    return 0;
}
/* Ends one use of a message. The last one frees it. */
static inline void gras_release_(gras_received_ *received) {
    gras_received_ **link = &gras_used_;
    if (--received->uses > 0) return;
    while (*link != received) link = &(*link)->next;
    *link = received->next;
    gridloom_message_free(received->message);
    (free)(received);
}
/* Begins the use of a message: by the caller, and by the program for each of its pointers. */
static inline void gras_use_(gras_received_ *received) {
    long pointers = received->type->pointers;
    received->uses = pointers == GRAS_UNCOUNTED_ ? LONG_MAX : 1 + pointers * gras_envelope_of_(received)->gras_count;
    gras_append_(&gras_used_, received);
}
static inline void gras_free_(void *pointer) {
    gras_received_ *received = gras_used_;
    for (; received != NULL; received = received->next) {
        const char *from = (const char *)received->message->data;
        if ((const char *)pointer >= from && (const char *)pointer < from + received->message->size) {
            gras_release_(received);
            return;
        }
    }
    (free)(pointer);
}
#define free(pointer) gras_free_(pointer)

/* ---- Beginning and end ---- */

GRAS_SHARED_ void *gras_userdata_;
static inline void gras_init(int *argc, char **argv) {
    const gras_known_ *known;
    (void)argc, (void)argv;
    for (known = gras_all_known_; known != NULL; known = known->next) gras_or_throw_(gridloom_on(known->kind, gras_receive_, (void *)(uintptr_t)known));
}
static inline void gras_exit(void) {
    gras_received_ **lists[] = {&gras_waiting_, &gras_used_};
    int list;
    for (list = 0; list < 2; list++)
        while (*lists[list] != NULL) {
            gras_received_ *received = *lists[list];
            *lists[list] = received->next;
            gridloom_message_free(received->message);
            (free)(received);
        }
}
static inline void *gras_userdata_get(void) { return gras_userdata_; }
static inline void gras_userdata_set(void *data) { gras_userdata_ = data; }
#define gras_userdata_new(type) (gras_userdata_ = calloc(1, sizeof(type)))

/* ---- Sending and receiving ---- */

static inline void gras_post_(gridloom_peer peer, const char *name, int role, int call, gras_datadesc_type_t payload, const void *data) {
    gras_envelope_ envelope = {name, role, call, payload == NULL ? 0 : payload->count, (void *)(uintptr_t)data};
    gras_or_throw_(gridloom_send(peer, payload == NULL ? "gras_int" : payload->type->kind, &envelope));
}
static inline void gras_send_(gras_socket_t socket, gras_msgtype_t type, const void *payload) {
    if (payload == NULL && type->payload != NULL) gras_throw_(arg_error, 0, "message '%s' needs a payload", type->name);
    gras_post_(socket->peer, type->name, GRAS_ONE_WAY_, 0, type->payload, payload);
}
#define gras_msg_send(socket, type, payload) gras_send_(socket, gras_type_of_(type), payload)

/* Handles what arrives until a deadline; below 0: none. Returns 0 if it has passed. */
static inline int gras_pump_(double deadline) {
    double left = deadline < 0 ? GRIDLOOM_FOREVER : deadline - gridloom_now();
    if (deadline >= 0 && left < 0) return 0;
    return (int)gras_or_throw_(gridloom_handle(left));
}
static inline double gras_deadline_(double seconds) { return seconds < 0 ? -1 : gridloom_now() + seconds; }

/* Checks the type of a payload, and writes it to `to`. */
static inline void gras_take_(gras_received_ *received, gras_datadesc_type_t expected, void *to) {
    gras_envelope_ *envelope = gras_envelope_of_(received);
    if (expected == NULL ? envelope->gras_count != 0 : strcmp(received->type->name, expected->type->name) != 0 || envelope->gras_count != expected->count)
        gras_throw_(mismatch_error, 0, "message '%s' has %d elements of type '%s', but %d of type '%s' are declared", envelope->gras_message,
                    envelope->gras_count, received->type->name, expected == NULL ? 0 : expected->count,
                    expected == NULL ? "none" : expected->type->name);
    if (expected != NULL && to != NULL) memcpy(to, envelope->gras_body, expected->type->bytes * (size_t)expected->count);
}
/* Waits for a message of that name and role. */
static inline gras_received_ *gras_next_(double seconds, const char *name, int role, int call, gridloom_peer from) {
    double deadline = gras_deadline_(seconds);
    for (;;) {
        gras_received_ **link = &gras_waiting_, *received;
        for (; (received = *link) != NULL; link = &received->next) {
            gras_envelope_ *envelope = received->message == NULL ? NULL : gras_envelope_of_(received);
            if (envelope == NULL || strcmp(envelope->gras_message, name) != 0) continue;
            if (envelope->gras_role != role && !(role == GRAS_ANSWER_ && envelope->gras_role == GRAS_FAILURE_)) continue;
            if (role != GRAS_ONE_WAY_ && (envelope->gras_call != call || received->message->from != from)) continue;
            *link = received->next;
            return received;
        }
        if (!gras_pump_(deadline)) gras_throw_(timeout_error, 0, "no message '%s' arrived in %g s", name, seconds);
    }
}
static inline void gras_wait_(double seconds, gras_msgtype_t type, gras_socket_t *from, void *payload) {
    gras_received_ *received = gras_next_(seconds, type->name, GRAS_ONE_WAY_, 0, -1);
    gras_use_(received);
    gras_take_(received, type->payload, payload);
    if (from != NULL) *from = gras_socket_of_(received->message->from);
    gras_release_(received);
}
#define gras_msg_wait(seconds, type, from, payload) gras_wait_(seconds, gras_type_of_(type), from, payload)

/* Calls a message's callbacks until one returns a number other than 0. An exception in a call is sent to its caller. */
static inline void gras_call_back_(gras_received_ *received) {
    gras_envelope_ *envelope = gras_envelope_of_(received);
    gras_msgtype_t type = gras_find_type_(envelope->gras_message);
    gridloom_peer peer = received->message->from;
    if (type == NULL || type->callbacks_count == 0)
        gras_throw_(not_found_error, 0, "message '%s' from %s has no callback", envelope->gras_message, gras_socket_of_(peer)->process);
    struct gras_context context = {gras_socket_of_(peer), type, envelope->gras_call};
    gras_use_(received);
    volatile int at = type->callbacks_count;
    int call = envelope->gras_role == GRAS_CALL_ ? envelope->gras_call : -1;
    xbt_ex_t exception;
    TRY {
        gras_take_(received, type->payload, NULL);
        while (at > 0 && type->callbacks[--at](&context, type->payload == NULL ? NULL : envelope->gras_body) == 0) {
        }
    }
    CATCH(exception) {
        if (call < 0) {
            gras_release_(received);
            RETHROW;
        }
        gras_post_(peer, type->name, GRAS_FAILURE_, call, gras_datadesc_by_name("string"), &exception.msg);
        xbt_ex_free(exception);
    }
    gras_release_(received);
}
/* Handles one message or timer. It throws timeout_error if there is none in time. */
static inline void gras_msg_handle(double seconds) {
    double deadline = gras_deadline_(seconds);
    while (gras_waiting_ == NULL)
        if (!gras_pump_(deadline)) gras_throw_(timeout_error, 0, "no message arrived in %g s", seconds);
    gras_received_ *received = gras_waiting_;
    gras_waiting_ = received->next;
    if (received->message != NULL) {
        gras_call_back_(received);
    } else {
        void (*action)(void) = received->action;
        (free)(received);
        action();
    }
}
static inline void gras_msg_handleall(double seconds) {
    double deadline = gras_deadline_(seconds);
    for (;;) {
        if (gras_waiting_ != NULL) gras_msg_handle(0);
        else if (!gras_pump_(deadline)) return;
    }
}

/* ---- Remote procedure calls ---- */

GRAS_SHARED_ int gras_calls_;
static inline gras_msg_cb_ctx_t gras_call_async_(gras_socket_t server, double seconds, gras_msgtype_t type, const void *request) {
    gras_msg_cb_ctx_t context = (gras_msg_cb_ctx_t)calloc(1, sizeof *context);
    (void)seconds;
    context->from = server, context->type = type, context->call = ++gras_calls_;
    gras_post_(server->peer, type->name, GRAS_CALL_, context->call, type->payload, request);
    return context;
}
static inline void gras_call_wait_(double seconds, gras_msg_cb_ctx_t context, void *answer) {
    gras_received_ *received = gras_next_(seconds, context->type->name, GRAS_ANSWER_, context->call, context->from->peer);
    gras_datadesc_type_t expected = context->type->answer;
    (free)(context);
    gras_use_(received);
    if (gras_envelope_of_(received)->gras_role == GRAS_FAILURE_)
        gras_throw_(unknown_error, 0, "%s", *(char **)gras_envelope_of_(received)->gras_body);
    gras_take_(received, expected, answer);
    gras_release_(received);
}
#define gras_msg_rpc_async_call(server, seconds, type, request) gras_call_async_(server, seconds, gras_type_of_(type), request)
static inline void gras_msg_rpc_async_wait(gras_msg_cb_ctx_t context, void *answer) { gras_call_wait_(-1, context, answer); }
#define gras_msg_rpccall(server, seconds, type, request, answer) \
    gras_call_wait_(seconds, gras_call_async_(server, seconds, gras_type_of_(type), request), answer)
static inline void gras_msg_rpcreturn(double seconds, gras_msg_cb_ctx_t context, const void *answer) {
    (void)seconds;
    gras_post_(context->from->peer, context->type->name, GRAS_ANSWER_, context->call, context->type->answer, answer);
}

/* ---- Timers ---- */

static inline int gras_timer_(void *action) {
    gras_received_ *received = (gras_received_ *)calloc(1, sizeof *received);
    memcpy(&received->action, &action, sizeof action);
    gras_append_(&gras_waiting_, received);
    return 0;
}
static inline void gras_set_timer_(double seconds, int repeats, void (*action)(void)) {
    void *pointer;
    memcpy(&pointer, &action, sizeof pointer);
    gras_or_throw_(gridloom_set_timer(seconds, repeats, gras_timer_, pointer));
}
static inline void gras_timer_delay(double seconds, void (*action)(void)) { gras_set_timer_(seconds, 0, action); }
static inline void gras_timer_repeat(double seconds, void (*action)(void)) { gras_set_timer_(seconds, 1, action); }

/* ---- Time and host ---- */

static inline double gras_os_time(void) { return gridloom_now(); }
static inline void gras_os_sleep(double seconds) { gras_or_throw_(gridloom_sleep(seconds)); }
static inline const char *gras_os_myname(void) { return gridloom_host(); }
static inline int gras_os_getpid(void) { return (int)getpid(); }
static inline int gras_if_SG(void) { return gridloom_is_simulated(); }
static inline int gras_if_RL(void) { return !gridloom_is_simulated(); }

/* Blocks whose time is charged to the simulated host: that of each run, or that of the first. With RUN_ONCE, the simulation runs the
 * block once in a process. They may be nested. */
GRAS_SHARED_ gridloom_measure gras_benches_[16];
GRAS_SHARED_ int gras_benches_count_;
static inline int gras_bench_begin_(const char *name, int once, int *runs) {
    int is_run = runs == NULL || !gridloom_is_simulated() || (*runs)++ == 0;
    if (gras_benches_count_ == 16) gras_throw_(bound_error, 16, "%s: 16 benchmarks are nested", name);
    gras_benches_[gras_benches_count_++] = gridloom_measure_begin(name, once, 0.0);
    return is_run;
}
static inline void gras_bench_end_(void) {
    if (gras_benches_count_ == 0) gras_throw_(arg_error, 0, "a benchmark block ends without a beginning");
    gridloom_measure_end(&gras_benches_[--gras_benches_count_]);
}
#define GRAS_LINE_(line) #line
#define GRAS_PLACE_(line) __FILE__ ":" GRAS_LINE_(line)
#define GRAS_BENCH_ALWAYS_BEGIN() gras_bench_begin_(GRAS_PLACE_(__LINE__), 0, NULL)
#define GRAS_BENCH_ALWAYS_END() gras_bench_end_()
#define GRAS_BENCH_ONCE_RUN_ALWAYS_BEGIN() gras_bench_begin_(GRAS_PLACE_(__LINE__), 1, NULL)
#define GRAS_BENCH_ONCE_RUN_ALWAYS_END() gras_bench_end_()
#define GRAS_BENCH_ONCE_RUN_ONCE_BEGIN() \
    {                                    \
        static int gras_runs_;           \
        if (gras_bench_begin_(GRAS_PLACE_(__LINE__), 1, &gras_runs_)) {
#define GRAS_BENCH_ONCE_RUN_ONCE_END() \
        }                              \
        gras_bench_end_();             \
    }

/* ---- Processes ---- */

/* Runs a process's function. An exception that nothing catches ends it with a failure. */
static inline int gras_run_(int (*function)(int, char **), int argc, char **argv) {
    xbt_ex_t exception;
    volatile int code = 1;
    TRY { code = function(argc, argv); }
    CATCH(exception) { return exception.value == GRIDLOOM_ENDED ? GRIDLOOM_ENDED : gridloom_fail(1, "%s", exception.msg); }
    return code;
}
#ifdef GRAS_PROCESSES
#define GRAS_PROCESS_(function)                                                                        \
    int function(int argc, char **argv);                                                               \
    static int gras_runs_##function(int argc, char **argv) { return gras_run_(function, argc, argv); } \
    __attribute__((weak)) int gras_is_declared_##function;                                             \
    __attribute__((constructor)) static void gras_declares_##function(void) {                         \
        if (!gras_is_declared_##function++) gridloom_declare_process(#function, gras_runs_##function); \
    }
#define GRAS_EACH_1_(function) GRAS_PROCESS_(function)
#define GRAS_EACH_2_(function, ...) GRAS_PROCESS_(function) GRAS_EACH_1_(__VA_ARGS__)
#define GRAS_EACH_3_(function, ...) GRAS_PROCESS_(function) GRAS_EACH_2_(__VA_ARGS__)
#define GRAS_EACH_4_(function, ...) GRAS_PROCESS_(function) GRAS_EACH_3_(__VA_ARGS__)
#define GRAS_EACH_5_(function, ...) GRAS_PROCESS_(function) GRAS_EACH_4_(__VA_ARGS__)
#define GRAS_EACH_6_(function, ...) GRAS_PROCESS_(function) GRAS_EACH_5_(__VA_ARGS__)
#define GRAS_EACH_7_(function, ...) GRAS_PROCESS_(function) GRAS_EACH_6_(__VA_ARGS__)
#define GRAS_EACH_8_(function, ...) GRAS_PROCESS_(function) GRAS_EACH_7_(__VA_ARGS__)
#define GRAS_NINTH_(a, b, c, d, e, f, g, h, ninth, ...) ninth
#define GRAS_EACH_(...)                                                                                                           \
    GRAS_NINTH_(__VA_ARGS__, GRAS_EACH_8_, GRAS_EACH_7_, GRAS_EACH_6_, GRAS_EACH_5_, GRAS_EACH_4_, GRAS_EACH_3_, GRAS_EACH_2_,     \
                GRAS_EACH_1_, 0)                                                                                                  \
    (__VA_ARGS__)
GRAS_EACH_(GRAS_PROCESSES)
__attribute__((weak)) int main(int argc, char **argv) { return gridloom_main(argc, argv); }
#endif

/* ---- Without counterpart: the compiler names the reason ---- */

GRIDLOOM_UNSUPPORTED_(gras_datadesc_type_t gras_datadesc_struct(const char *), "describe structs with GRAS_DEFINE_TYPE");
GRIDLOOM_UNSUPPORTED_(void gras_datadesc_struct_append(gras_datadesc_type_t, const char *, gras_datadesc_type_t),
                      "describe structs with GRAS_DEFINE_TYPE");
GRIDLOOM_UNSUPPORTED_(void gras_datadesc_struct_close(gras_datadesc_type_t), "describe structs with GRAS_DEFINE_TYPE");
GRIDLOOM_UNSUPPORTED_(gras_datadesc_type_t gras_datadesc_ref(const char *, gras_datadesc_type_t),
                      "payloads that are pointers are not supported: send a struct of GRAS_DEFINE_TYPE with the pointer in it");
GRIDLOOM_UNSUPPORTED_(void gras_socket_meas_send(gras_socket_t, unsigned, unsigned long, unsigned long),
                      "measurement sockets are not supported");

#endif
