/* Gridloom for C: processes that talk by typed messages, for real and in simulation.
 *
 *   #include <gridloom.h>
 *
 *   GRIDLOOM_MESSAGE(matrix, struct matrix { int rows, columns; double *data GRIDLOOM_LENGTH(rows * columns); });
 *
 *   GRIDLOOM_PROCESS(server) {
 *       gridloom_message *got;
 *       gridloom_listen(4000);
 *       if (gridloom_wait_for("matrix", GRIDLOOM_ANYONE, GRIDLOOM_FOREVER, &got) != GRIDLOOM_OK) return 1;
 *       struct matrix *matrix = got->data;
 *       ...
 *       gridloom_message_free(got);
 *       return 0;
 *   }
 *
 *   GRIDLOOM_MAIN
 *
 *   cc -Iinclude program.c -Llib -lgridloom -o program
 *   gridloom simulate -p PLATFORM -d DEPLOYMENT -- ./program     all processes in one, in virtual time
 *   gridloom deploy -d DEPLOYMENT -- ./program                   each for real
 *
 * Conventions, unless a function says otherwise:
 * - Functions that can fail return a negative gridloom_code; gridloom_last_error() has the text.
 * - Functions may be called by the thread that runs the process only; others get GRIDLOOM_USAGE.
 * - Texts given to a function end with a NUL and are copied; texts that it returns belong to the library.
 * - "Blocks" says that other processes may run meanwhile, in simulation, and messages arrive. Nothing else blocks.
 * - Times are seconds, of virtual time in simulation.
 * - In simulation each process has its own copy of the program's global and static variables; what is in shared libraries
 *   and thread-local variables is shared by all. A process has a stack of 1 MiB.
 * - When the process's world ends (a kill time, a deadlock), functions give GRIDLOOM_ENDED and the process has to return.
 *   In simulation, a process that calls further functions is unwound.
 */
#ifndef GRIDLOOM_H
#define GRIDLOOM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gridloom_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns. A number never gets another meaning. */
typedef enum gridloom_code {
    GRIDLOOM_OK = 0,
    GRIDLOOM_TIMED_OUT = -1,      /* nothing came in time */
    GRIDLOOM_CLOSED = -2,         /* the connection is closed */
    GRIDLOOM_REMOTE = -3,         /* a callback of the other side failed for a message of this one: see gridloom_remote_code() */
    GRIDLOOM_CANNOT_CONNECT = -4, /* no process listens there, or a firewall bars the way */
    GRIDLOOM_CANNOT_LISTEN = -5,  /* the port is taken */
    GRIDLOOM_NO_SUCH_HOST = -6,   /* no host of this name is known */
    GRIDLOOM_TOO_LARGE = -7,      /* the message exceeds the limit */
    GRIDLOOM_ENDED = -8,          /* the process's world ends: return */
    GRIDLOOM_FAILED = -9,         /* what fits nowhere else */
    GRIDLOOM_LAYOUT = -10,        /* a message is not as its declaration says */
    GRIDLOOM_USAGE = -11          /* the program's mistake: the text says which */
} gridloom_code;

/* A connection of this process; negative numbers are codes. */
typedef int64_t gridloom_peer;

/* As `from`: any connection. */
#define GRIDLOOM_ANYONE ((gridloom_peer)-1)
/* As a time limit: none. So is any negative number. */
#define GRIDLOOM_FOREVER (-1.0)

/* ---- The program ---------------------------------------------------------------------------------------------------- */

/* The main function: GRIDLOOM_MAIN alone in a line of one file. */
#define GRIDLOOM_MAIN                                                                                                   \
    int main(int argc, char **argv) { return gridloom_main(argc, argv); }

/* What GRIDLOOM_MAIN calls, for a program that has work to do before. Every process finds the global variables as the program
 * set them before.
 * Options of the command line: --set NAME=VALUE, --config FILE, --log LEVELS (see below); others are refused.
 * @return The exit status: for real that of the process, in simulation 0 if all ended well. Blocks. */
int gridloom_main(int argc, char **argv);

/* A process's function: `GRIDLOOM_PROCESS(server) { ... return 0; }`, with `int argc, char **argv` as main has them:
 * argv[0] is the function's name, then come the deployment's arguments. A result that is not 0 says that it failed. */
#define GRIDLOOM_PROCESS(function)                                                                                      \
    static int gridloom_process_##function(int, char **);                                                               \
    __attribute__((constructor)) static void gridloom_declares_process_##function(void) {                               \
        gridloom_declare_process(#function, gridloom_process_##function);                                               \
    }                                                                                                                   \
    static int gridloom_process_##function(int argc __attribute__((unused)), char **argv __attribute__((unused)))

typedef int (*gridloom_process_function)(int argc, char **argv);

/* What GRIDLOOM_PROCESS calls before main. */
void gridloom_declare_process(const char *function, gridloom_process_function body);

/* The process's function's name, and its host's. */
const char *gridloom_function(void);
const char *gridloom_host(void);

/* 1 if time is virtual, else 0. */
int gridloom_is_simulated(void);

/* ---- Message types ---------------------------------------------------------------------------------------------------
 *
 * GRIDLOOM_MESSAGE(point, struct point { double x, y; });
 *     declares struct point for the compiler, and it as the message type "point". The text may hold further declarations
 *     before it. Annotations of pointers and unions: gridloom_layout.h. Numbers of #define'd names must be made known
 *     first: #define WIDTH 16, then GRIDLOOM_CONSTANT(WIDTH); constants of enums in declarations are known.
 * GRIDLOOM_MESSAGE_AS(goal, point);
 *     another message type, "goal", of the struct point that is declared above; for programs in other languages it is a
 *     struct goal with the same fields.
 * GRIDLOOM_SIGNAL(stop);
 *     a message type without data: send it with NULL. For programs in other languages it is a struct without fields.
 * GRIDLOOM_TYPES(enum kind { A, B }; struct part { enum kind kind; });
 *     declarations that messages use.
 *
 * Each stands outside of functions. The same declaration in several files of a program (a header's) is one. */
#define GRIDLOOM_MESSAGE(name, ...)                                                                                     \
    __VA_ARGS__;                                                                                                        \
    GRIDLOOM_DECLARES_(name, {#name, #name, #__VA_ARGS__, __FILE__, __LINE__, sizeof(struct name), GRIDLOOM_ALIGN_(name), 0})
#define GRIDLOOM_MESSAGE_AS(kind, name)                                                                                 \
    GRIDLOOM_DECLARES_(kind, {#kind, #name, NULL, __FILE__, __LINE__, sizeof(struct name), GRIDLOOM_ALIGN_(name), 0})
#define GRIDLOOM_SIGNAL(kind) GRIDLOOM_DECLARES_(kind, {#kind, NULL, NULL, __FILE__, __LINE__, 0, 0, 0})
#define GRIDLOOM_TYPES(...)                                                                                             \
    __VA_ARGS__                                                                                                         \
    GRIDLOOM_DECLARES_AT_(__COUNTER__, {NULL, NULL, #__VA_ARGS__, __FILE__, __LINE__, 0, 0, 0})
#define GRIDLOOM_CONSTANT(constant)                                                                                     \
    GRIDLOOM_DECLARES_AT_(__COUNTER__, {NULL, #constant, NULL, __FILE__, __LINE__, 0, 0, (constant)})

#define GRIDLOOM_DECLARES_AT_(number, ...) GRIDLOOM_DECLARES_(number, __VA_ARGS__)
#define GRIDLOOM_DECLARES_(name, ...)                                                                                   \
    __attribute__((constructor)) static void gridloom_declares_##name(void) {                                           \
        static const gridloom_declaration declaration = __VA_ARGS__;                                                    \
        gridloom_declare(&declaration);                                                                                 \
    }                                                                                                                   \
    struct gridloom_takes_a_semicolon_
#ifdef __cplusplus
#define GRIDLOOM_ALIGN_(name) alignof(struct name)
#else
#define GRIDLOOM_ALIGN_(name) _Alignof(struct name)
#endif

/* What the macros tell the library before main; members that do not apply are NULL or 0. */
typedef struct gridloom_declaration {
    const char *kind;    /* the message type */
    const char *name;    /* its struct; without kind and text, a constant */
    const char *text;    /* declarations, as C */
    const char *file;    /* where they stand */
    int line;
    size_t size;         /* of the struct, as the compiler has it */
    size_t align;
    int64_t value;       /* of the constant */
} gridloom_declaration;
void gridloom_declare(const gridloom_declaration *declaration);

/* ---- Connections ---------------------------------------------------------------------------------------------------- */

/* Listens on a port of the process's host; 0 takes any that is free.
 * @return The port, or a code. */
int gridloom_listen(int port);

/* Connects to the process that listens on that port of that host, a host of the deployment. Tries again for `patience`
 * seconds while none listens, so that processes may start in any order. Blocks.
 * @return The connection, or a code. */
gridloom_peer gridloom_connect(const char *host, int port, double patience);

/* Closes a connection; what was sent still arrives. */
void gridloom_close(gridloom_peer peer);

/* The process at the other end, "function@host", written to `text` as snprintf does; its length. */
size_t gridloom_describe(gridloom_peer peer, char *text, size_t size);

/* ---- Messages ------------------------------------------------------------------------------------------------------- */

/* A received message. It is one piece of memory: `data` and whatever its pointers lead to end with
 * gridloom_message_free(). They may be written to. */
typedef struct gridloom_message {
    const char *kind;    /* its type */
    gridloom_peer from;
    void *data;          /* its struct; NULL for a signal; the bytes for a type that the program does not declare */
    size_t size;         /* bytes of its memory */
} gridloom_message;

/* Sends a message of a declared type: the struct at `value` with all that its pointers lead to, as they are now. Nothing
 * of it is kept. Pointers must be valid or NULL, as for any function of C. Blocks while much is on its way. */
int gridloom_send(gridloom_peer peer, const char *kind, const void *value);

/* Sends bytes as they are, for a receiver that declares no such type. Blocks likewise. */
int gridloom_send_bytes(gridloom_peer peer, const char *kind, const void *bytes, size_t size);

/* Waits for a message of that type, from that connection or GRIDLOOM_ANYONE, for so long at most. Other messages wait
 * meanwhile.
 * @param[out] message  To be freed with gridloom_message_free(); unchanged on failure.
 * @return GRIDLOOM_OK or a code; GRIDLOOM_REMOTE if a callback of the other side failed for a message of this one. Blocks. */
int gridloom_wait_for(const char *kind, gridloom_peer from, double seconds, gridloom_message **message);

/* Frees a message; NULL is nothing. */
void gridloom_message_free(gridloom_message *message);

/* In a callback: the message outlives it, and has to be freed. Returns it. */
gridloom_message *gridloom_message_keep(gridloom_message *message);

/* ---- Callbacks and timers ------------------------------------------------------------------------------------------- */

/* Handles a message, which is freed when the callback returns. A result that is not 0 goes to the sender as an error, with the
 * text of gridloom_fail() if there is one. */
typedef int (*gridloom_callback)(gridloom_message *message, void *context);
/* Handles a timer. A result that is not 0 is what gridloom_handle() then gives, as GRIDLOOM_FAILED. */
typedef int (*gridloom_timer_callback)(void *context);

/* From now on gridloom_handle() calls `callback` for messages of that type. */
int gridloom_on(const char *kind, gridloom_callback callback, void *context);

/* Handles one message that has a callback, or one timer; waits for it for so long at most. Blocks.
 * @return 1 if there was one, 0 if not, or a code. */
int gridloom_handle(double seconds);

/* Handles messages and timers for so long. Blocks. */
int gridloom_handle_for(double seconds);

/* Calls `callback`, from gridloom_handle(), after so many seconds, and then every so many if `repeat`.
 * @return The timer's number, or a code. */
int64_t gridloom_set_timer(double seconds, int repeat, gridloom_timer_callback callback, void *context);

/* Forgets a timer. @return 1 if it was set, 0 if not, or a code. */
int gridloom_cancel_timer(int64_t timer);

/* ---- Errors --------------------------------------------------------------------------------------------------------- */

/* The text of the last error of this process; valid until its next. */
const char *gridloom_last_error(void);

/* After GRIDLOOM_REMOTE: what the other side's callback returned; 0 if it is no C program. */
int gridloom_remote_code(void);

/* `return gridloom_fail(CODE, "matrix %d is singular", n);` in a callback or a process: the text for the error. Returns the
 * code, which should be positive. */
__attribute__((format(printf, 2, 3))) static inline int gridloom_fail(int code, const char *format, ...);
int gridloom_fail_text(int code, const char *text);

/* ---- Time ----------------------------------------------------------------------------------------------------------- */

/* The time: since 1970 for real, since the beginning in simulation. */
double gridloom_now(void);

/* Waits for so long. Messages that come meanwhile wait too. Blocks. */
int gridloom_sleep(double seconds);

/* Takes the time of so many floating-point operations on one core of the simulated host; no time for real. Blocks. */
int gridloom_compute(double flops);

/* GRIDLOOM_MEASURE("multiply", GRIDLOOM_ONCE) { ... }
 *
 * Times the block on this machine; in simulation it takes as long as the simulated host needs. Leave it by its end only:
 * `break` and `return` charge nothing. A block within another is charged by itself, and not to the other again.
 *   GRIDLOOM_ALWAYS         each run is timed, and its time charged
 *   GRIDLOOM_ONCE           the first run of that name is timed; each is charged as much
 *   GRIDLOOM_SKIP(flops)    in simulation the block is not run, and so many floating-point operations are charged */
#define GRIDLOOM_MEASURE(name, ...)                                                                                     \
    for (gridloom_measure gridloom_measured_ = gridloom_measure_begin((name), __VA_ARGS__); gridloom_measured_.runs;    \
         gridloom_measure_end(&gridloom_measured_))
#define GRIDLOOM_ALWAYS 0, 0.0
#define GRIDLOOM_ONCE 1, 0.0
#define GRIDLOOM_SKIP(flops) 2, (flops)

/* A block that is being measured. */
typedef struct gridloom_measure {
    const char *name;
    int how;
    int runs;
    uint64_t began_ns;
} gridloom_measure;
gridloom_measure gridloom_measure_begin(const char *name, int how, double flops);
void gridloom_measure_end(gridloom_measure *measure);

/* ---- Log ------------------------------------------------------------------------------------------------------------
 *
 * GRIDLOOM_LOG_CATEGORY(matmul.server);     outside of functions, once in a file
 * gridloom_info("%d products", n);          also gridloom_debug, gridloom_warning, gridloom_error
 *
 * Lines go to standard error with time, level, category and process. `--log LEVELS`, GRIDLOOM_LOG in the environment, or
 * `log` in the configuration choose among them: "warning,matmul=debug" is warnings and errors, and everything of
 * category matmul and those below it (matmul.server). Without it: info. */
#define GRIDLOOM_LOG_CATEGORY(category) __attribute__((unused)) static const char gridloom_category_[] = #category
#define gridloom_debug(...) gridloom_log(GRIDLOOM_LEVEL_DEBUG, gridloom_category_, __VA_ARGS__)
#define gridloom_info(...) gridloom_log(GRIDLOOM_LEVEL_INFO, gridloom_category_, __VA_ARGS__)
#define gridloom_warning(...) gridloom_log(GRIDLOOM_LEVEL_WARNING, gridloom_category_, __VA_ARGS__)
#define gridloom_error(...) gridloom_log(GRIDLOOM_LEVEL_ERROR, gridloom_category_, __VA_ARGS__)

typedef enum gridloom_level {
    GRIDLOOM_LEVEL_DEBUG = 0,
    GRIDLOOM_LEVEL_INFO = 1,
    GRIDLOOM_LEVEL_WARNING = 2,
    GRIDLOOM_LEVEL_ERROR = 3
} gridloom_level;

/* A line of the log, as printf writes it; lines beyond 1023 bytes are cut. */
__attribute__((format(printf, 3, 4))) static inline void gridloom_log(int level, const char *category, const char *format, ...);
int gridloom_log_wants(int level, const char *category);
void gridloom_log_text(int level, const char *category, const char *text);

/* ---- Configuration --------------------------------------------------------------------------------------------------
 *
 * Values by name, such as "matrix.size". The last of these counts: a TOML file ([matrix] size = 64) named by GRIDLOOM_CONFIG
 * in the environment or by --config; the environment (GRIDLOOM_SET_MATRIX_SIZE=64); the command line
 * (--set matrix.size=64). */

/* The value as text, or `otherwise`. Belongs to the library, until the process ends. */
const char *gridloom_config(const char *name, const char *otherwise);

/* The value as a number, written to `value` if there is one.
 * @return 1 if there is, 0 if not, or GRIDLOOM_USAGE if it is no such number. */
int gridloom_config_integer(const char *name, int64_t *value);
int gridloom_config_number(const char *name, double *value);

/* ---- Arrays that grow -----------------------------------------------------------------------------------------------
 *
 * A GRIDLOOM_ARRAY(type) has `data`, `length` and `capacity`, and may be a field of a message. Begin with all zero. An
 * array that was received may grow too: its elements then move out of the message. `array` is a pointer to it. */
#define gridloom_array_reserve(array, count)                                                                            \
    ((array)->data =                                                                                                    \
         gridloom_array_grown((array)->data, (array)->length, &(array)->capacity, sizeof *(array)->data, (count)))
#define gridloom_array_push(array, value)                                                                               \
    (gridloom_array_reserve((array), (array)->length + 1), (array)->data[(array)->length++] = (value))
#define gridloom_array_pop(array) ((array)->data[--(array)->length])
#define gridloom_array_free(array)                                                                                      \
    (gridloom_array_drop((array)->data), (array)->data = NULL, (array)->length = (array)->capacity = 0)

/* Memory for `count` elements at least, with the first `length` of them as they were. Ends the program if there is none. */
void *gridloom_array_grown(void *data, size_t length, size_t *capacity, size_t element_size, size_t count);
void gridloom_array_drop(void *data);

/* ---- Dictionaries ---------------------------------------------------------------------------------------------------
 *
 * Pointers by text. The dictionary copies keys; what the pointers lead to stays the program's. */
typedef struct gridloom_dictionary gridloom_dictionary;
gridloom_dictionary *gridloom_dictionary_new(void);
void gridloom_dictionary_free(gridloom_dictionary *dictionary);
size_t gridloom_dictionary_count(const gridloom_dictionary *dictionary);
/* Sets a value; the one before it, or NULL. */
void *gridloom_dictionary_set(gridloom_dictionary *dictionary, const char *key, void *value);
/* The value, or NULL. */
void *gridloom_dictionary_get(const gridloom_dictionary *dictionary, const char *key);
/* Removes a value and returns it, or NULL. */
void *gridloom_dictionary_remove(gridloom_dictionary *dictionary, const char *key);
/* The first key behind `after` in alphabetical order, the very first for NULL; NULL behind the last. Valid until the key is
 * removed:  for (const char *key = NULL; (key = gridloom_dictionary_next(d, key)) != NULL;) ... */
const char *gridloom_dictionary_next(const gridloom_dictionary *dictionary, const char *after);

/* --------------------------------------------------------------------------------------------------------------------- */

static inline int gridloom_fail(int code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return gridloom_fail_text(code, text);
}

static inline void gridloom_log(int level, const char *category, const char *format, ...) {
    char text[1024];
    va_list arguments;
    if (!gridloom_log_wants(level, category)) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    gridloom_log_text(level, category, text);
}

#ifdef __cplusplus
}
#endif

#endif
