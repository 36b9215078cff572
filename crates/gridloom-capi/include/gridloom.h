/* Gridloom for C: processes that communicate by typed messages, in the real world and in simulation.
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
 *   gridloom deploy -d DEPLOYMENT -- ./program                   each as a real process
 *
 * Conventions, unless a function's description differs:
 * - Functions that can fail return a negative gridloom_code; gridloom_last_error() returns the text.
 * - Only the thread that runs the process may call functions; other threads get GRIDLOOM_USAGE.
 * - Strings passed to a function end with a NUL and are copied; strings that it returns belong to the library.
 * - "Blocks" means that meanwhile other processes may run, in simulation, and messages arrive. No other function
 *   blocks.
 * - Times are seconds; in simulation, seconds of virtual time.
 * - In simulation each process has its own copy of the program's global and static variables; variables of shared
 *   libraries and thread-local variables are shared by all. A process has a stack of 1 MiB.
 * - When the process's world ends (a kill time, a deadlock), functions return GRIDLOOM_ENDED and the process has to
 *   return. In simulation, a process that calls further functions is unwound. */
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

/* The result of a function. The meaning of a number never changes. */
typedef enum gridloom_code {
    GRIDLOOM_OK = 0,
    GRIDLOOM_TIMED_OUT = -1,      /* nothing arrived in time */
    GRIDLOOM_CLOSED = -2,         /* the connection is closed */
    GRIDLOOM_REMOTE = -3,         /* a callback of the other side failed for a message from this one: see gridloom_remote_code() */
    GRIDLOOM_CANNOT_CONNECT = -4, /* no process listens there, or a firewall blocks the connection */
    GRIDLOOM_CANNOT_LISTEN = -5,  /* the port is in use */
    GRIDLOOM_NO_SUCH_HOST = -6,   /* no host of this name is known */
    GRIDLOOM_TOO_LARGE = -7,      /* the message exceeds the limit */
    GRIDLOOM_ENDED = -8,          /* the process's world ends: return */
    GRIDLOOM_FAILED = -9,         /* any other failure */
    GRIDLOOM_LAYOUT = -10,        /* a message does not match its declaration */
    GRIDLOOM_USAGE = -11          /* a mistake of the program, described by the text */
} gridloom_code;

/* A connection of this process; negative numbers are codes. */
typedef int64_t gridloom_peer;

/* As `from`: any connection. */
#define GRIDLOOM_ANYONE ((gridloom_peer)-1)
/* As a time limit: no limit. Any negative number has the same meaning. */
#define GRIDLOOM_FOREVER (-1.0)

/* ---- The program ---------------------------------------------------------------------------------------------------- */

/* Defines the main function: GRIDLOOM_MAIN alone in a line of one file. */
#define GRIDLOOM_MAIN                                                                                                   \
    int main(int argc, char **argv) { return gridloom_main(argc, argv); }

/* The function that GRIDLOOM_MAIN calls, for a program that has work to do before. Every process sees the global
 * variables with the values that the program has set before.
 * Options of the command line: --set NAME=VALUE, --config FILE, --log LEVELS (see below); others are refused.
 * @return The exit status: in the real world that of the process, in simulation 0 if all ended successfully. Blocks. */
int gridloom_main(int argc, char **argv);

/* Defines a process's function: `GRIDLOOM_PROCESS(server) { ... return 0; }`, with `int argc, char **argv` as in
 * main: argv[0] is the function's name, followed by the deployment's arguments. A nonzero result means that it
 * failed. */
#define GRIDLOOM_PROCESS(function)                                                                                      \
    static int gridloom_process_##function(int, char **);                                                               \
    __attribute__((constructor)) static void gridloom_declares_process_##function(void) {                               \
        gridloom_declare_process(#function, gridloom_process_##function);                                               \
    }                                                                                                                   \
    static int gridloom_process_##function(int argc __attribute__((unused)), char **argv __attribute__((unused)))

typedef int (*gridloom_process_function)(int argc, char **argv);

/* The function that GRIDLOOM_PROCESS calls before main. */
void gridloom_declare_process(const char *function, gridloom_process_function body);

/* The names of the process's function and of its host. */
const char *gridloom_function(void);
const char *gridloom_host(void);

/* Returns 1 if time is virtual, else 0. */
int gridloom_is_simulated(void);

/* ---- Message types ---------------------------------------------------------------------------------------------------
 *
 * GRIDLOOM_MESSAGE(point, struct point { double x, y; });
 *     declares struct point for the compiler, and the message type "point" of it. The text may contain further declarations
 *     before it. Annotations of pointers and unions: gridloom_layout.h. Values of #define'd names must be declared
 *     first: #define WIDTH 16, then GRIDLOOM_CONSTANT(WIDTH); constants of enums in declarations are known.
 * GRIDLOOM_MESSAGE_AS(goal, point);
 *     another message type, "goal", of the struct point that is declared above; for programs in other languages it is a
 *     struct goal with the same fields.
 * GRIDLOOM_SIGNAL(stop);
 *     a message type without data: send it with NULL. For programs in other languages it is a struct without fields.
 * GRIDLOOM_TYPES(enum kind { A, B }; struct part { enum kind kind; });
 *     declarations that messages use.
 *
 * They are used outside of functions. Repeating the same declaration in several files of a program (from a header) is
 * allowed. */
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

/* The data that the macros pass to the library before main; members that do not apply are NULL or 0. */
typedef struct gridloom_declaration {
    const char *kind;    /* the message type */
    const char *name;    /* its struct; without kind and text, a constant */
    const char *text;    /* declarations in C */
    const char *file;    /* the file and line of the declaration */
    int line;
    size_t size;         /* of the struct, according to the compiler */
    size_t align;
    int64_t value;       /* of the constant */
} gridloom_declaration;
void gridloom_declare(const gridloom_declaration *declaration);

/* ---- Connections ---------------------------------------------------------------------------------------------------- */

/* Listens on a port of the process's host; 0 takes any that is free.
 * @return The port, or a code. */
int gridloom_listen(int port);

/* Connects to the process that listens on that port of that host, a host of the deployment. While none listens it
 * retries for `patience` seconds, so that processes may start in any order. Blocks.
 * @return The connection, or a code. */
gridloom_peer gridloom_connect(const char *host, int port, double patience);

/* Closes a connection; messages that were sent still arrive. */
void gridloom_close(gridloom_peer peer);

/* Writes the name of the process at the other end, "function@host", to `text` as snprintf does, and returns its
 * length. */
size_t gridloom_describe(gridloom_peer peer, char *text, size_t size);

/* ---- Messages ------------------------------------------------------------------------------------------------------- */

/* A received message. It is one block of memory: gridloom_message_free() frees `data` and everything that its
 * pointers point to. The program may write to it. */
typedef struct gridloom_message {
    const char *kind;    /* its type */
    gridloom_peer from;
    void *data;          /* its struct; NULL for a signal; the bytes for a type that the program does not declare */
    size_t size;         /* bytes of its memory */
} gridloom_message;

/* Sends a message of a declared type: the struct at `value` with everything that its pointers point to, with the
 * current values. The library keeps no pointer to it. Pointers must be valid or NULL, as for any C function. Blocks
 * while many bytes are in flight. */
int gridloom_send(gridloom_peer peer, const char *kind, const void *value);

/* Sends bytes unchanged, for a receiver that declares no such type. Blocks while many bytes are in flight. */
int gridloom_send_bytes(gridloom_peer peer, const char *kind, const void *bytes, size_t size);

/* Waits for a message of that type, from that connection or GRIDLOOM_ANYONE, at most for this many seconds. Other
 * messages are queued meanwhile.
 * @param[out] message  To be freed with gridloom_message_free(); unchanged on failure.
 * @return GRIDLOOM_OK or a code; GRIDLOOM_REMOTE if a callback of the other side failed for a message from this one.
 *          Blocks. */
int gridloom_wait_for(const char *kind, gridloom_peer from, double seconds, gridloom_message **message);

/* Frees a message; NULL is ignored. */
void gridloom_message_free(gridloom_message *message);

/* Called in a callback, keeps the message after the callback, so that the program has to free it. Returns the
 * message. */
gridloom_message *gridloom_message_keep(gridloom_message *message);

/* ---- Callbacks and timers ------------------------------------------------------------------------------------------- */

/* Handles a message, which is freed when the callback returns. A nonzero result is sent to the sender as an error,
 * with the text of gridloom_fail() if there is one. */
typedef int (*gridloom_callback)(gridloom_message *message, void *context);
/* Handles a timer. After a nonzero result gridloom_handle() returns GRIDLOOM_FAILED. */
typedef int (*gridloom_timer_callback)(void *context);

/* Registers `callback`, which gridloom_handle() then calls for messages of that type. */
int gridloom_on(const char *kind, gridloom_callback callback, void *context);

/* Handles one message that has a callback, or one timer; waits for it at most for this many seconds. Blocks.
 * @return 1 if there was one, 0 if not, or a code. */
int gridloom_handle(double seconds);

/* Handles messages and timers for this many seconds. Blocks. */
int gridloom_handle_for(double seconds);

/* Lets gridloom_handle() call `callback` after this many seconds, and then again at this interval if `repeat`.
 * @return The timer's number, or a code. */
int64_t gridloom_set_timer(double seconds, int repeat, gridloom_timer_callback callback, void *context);

/* Removes a timer. @return 1 if it was set, 0 if not, or a code. */
int gridloom_cancel_timer(int64_t timer);

/* ---- Errors --------------------------------------------------------------------------------------------------------- */

/* Returns the text of the last error of this process, which is valid until the next error. */
const char *gridloom_last_error(void);

/* After GRIDLOOM_REMOTE, returns the result of the other side's callback; 0 if it is not a C program. */
int gridloom_remote_code(void);

/* `return gridloom_fail(CODE, "matrix %d is singular", n);` in a callback or a process sets the text of the error.
 * Returns the code, which should be positive. */
__attribute__((format(printf, 2, 3))) static inline int gridloom_fail(int code, const char *format, ...);
int gridloom_fail_text(int code, const char *text);

/* ---- Time ----------------------------------------------------------------------------------------------------------- */

/* Returns the time: since 1970 in the real world, since the start in simulation. */
double gridloom_now(void);

/* Waits for this many seconds. Messages that arrive meanwhile are queued. Blocks. */
int gridloom_sleep(double seconds);

/* Takes the time of this many floating-point operations on one core of the simulated host; no time in the real world.
 * Blocks. */
int gridloom_compute(double flops);

/* GRIDLOOM_MEASURE("multiply", GRIDLOOM_ONCE) { ... }
 *
 * Times the block on this machine; in simulation it takes as long as the simulated host needs. It must be left by its
 * end only: `break` and `return` charge nothing. A nested block is charged by itself, and not again as part of the
 * outer one.
 *   GRIDLOOM_ALWAYS         each run is timed, and its time is charged
 *   GRIDLOOM_ONCE           the first run of that name is timed; each run is charged the same time
 *   GRIDLOOM_SKIP(flops)    in simulation the block is not run, and this number of floating-point operations is
 *   charged */
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
 * Lines are written to standard error with time, level, category and process. `--log LEVELS`, GRIDLOOM_LOG in the
 * environment, or `log` in the configuration select them: "warning,matmul=debug" selects warnings and errors, and
 * everything of category matmul and its subcategories (matmul.server). The default is info. */
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

/* Writes a line of the log, formatted as by printf; lines beyond 1023 bytes are cut. */
__attribute__((format(printf, 3, 4))) static inline void gridloom_log(int level, const char *category, const char *format, ...);
int gridloom_log_wants(int level, const char *category);
void gridloom_log_text(int level, const char *category, const char *text);

/* ---- Configuration --------------------------------------------------------------------------------------------------
 *
 * Values have names, such as "matrix.size". Their sources, later ones taking precedence, are: a TOML file ([matrix]
 * size = 64) named by GRIDLOOM_CONFIG in the environment or by --config; the environment
 * (GRIDLOOM_SET_MATRIX_SIZE=64); the command line (--set matrix.size=64). */

/* Returns the value as a string, or `otherwise`. The string belongs to the library, and is valid until the process
 * ends. */
const char *gridloom_config(const char *name, const char *otherwise);

/* Converts the value to a number, and writes it to `value` if it exists.
 * @return 1 if it exists, 0 if not, or GRIDLOOM_USAGE if it is not such a number. */
int gridloom_config_integer(const char *name, int64_t *value);
int gridloom_config_number(const char *name, double *value);

/* ---- Arrays that grow -----------------------------------------------------------------------------------------------
 *
 * A GRIDLOOM_ARRAY(type) has `data`, `length` and `capacity`, and may be a field of a message. Initialise it with
 * zeros. An array that was received may grow too: its elements are then moved out of the message. `array` is a
 * pointer to it. */
#define gridloom_array_reserve(array, count)                                                                            \
    ((array)->data =                                                                                                    \
         gridloom_array_grown((array)->data, (array)->length, &(array)->capacity, sizeof *(array)->data, (count)))
#define gridloom_array_push(array, value)                                                                               \
    (gridloom_array_reserve((array), (array)->length + 1), (array)->data[(array)->length++] = (value))
#define gridloom_array_pop(array) ((array)->data[--(array)->length])
#define gridloom_array_free(array)                                                                                      \
    (gridloom_array_drop((array)->data), (array)->data = NULL, (array)->length = (array)->capacity = 0)

/* Returns memory for at least `count` elements, the first `length` of which are preserved. Ends the program if there
 * is none. */
void *gridloom_array_grown(void *data, size_t length, size_t *capacity, size_t element_size, size_t count);
void gridloom_array_drop(void *data);

/* ---- Dictionaries ---------------------------------------------------------------------------------------------------
 *
 * Dictionaries map strings to pointers. A dictionary copies its keys; the memory that the pointers point to belongs
 * to the program. */
typedef struct gridloom_dictionary gridloom_dictionary;
gridloom_dictionary *gridloom_dictionary_new(void);
void gridloom_dictionary_free(gridloom_dictionary *dictionary);
size_t gridloom_dictionary_count(const gridloom_dictionary *dictionary);
/* Sets a value, and returns the previous one, or NULL. */
void *gridloom_dictionary_set(gridloom_dictionary *dictionary, const char *key, void *value);
/* Returns the value, or NULL. */
void *gridloom_dictionary_get(const gridloom_dictionary *dictionary, const char *key);
/* Removes a value and returns it, or NULL. */
void *gridloom_dictionary_remove(gridloom_dictionary *dictionary, const char *key);
/* Returns the first key after `after` in alphabetical order, the very first for NULL; NULL after the last. It is
 * valid until the key is removed:  for (const char *key = NULL; (key = gridloom_dictionary_next(d, key)) != NULL;)
 * ... */
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
