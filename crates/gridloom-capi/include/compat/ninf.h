/* Ninf's client interface (version 1, and the Ninf functions of Ninf-G 1) on a Gridloom grid. docs/compat.md describes what
 * it covers.
 *
 *   argc = Ninf_parse_arg(argc, argv);
 *   if (Ninf_call("mmul/mmul", n, a, b, c) == NINF_ERROR) Ninf_perror("mmul");
 *
 * Descriptions of Ninf are accepted as they are. A name is "function", "module/function", or either after
 * "ninf://HOST:PORT/", which names a server of the grid. The grid is that of grpc_initialize(NULL): GRIDLOOM_AGENT names its
 * agent. The session begins with the first call and ends with the program. Arguments are those of grpc_call.
 *
 * In C and C++, with GCC or Clang. Any threads may call all functions, except Ninf_parse_arg and Ninf_set_server. */
#ifndef GRIDLOOM_NINF_H
#define GRIDLOOM_NINF_H

#include "../grpc.h"
#include "gridloom_compat.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NINF_OK 0
#define NINF_ERROR (-1)
#ifndef TRUE
#define TRUE 1
#define FALSE 0
#endif

/* The server of names without one: "HOST" or "HOST:PORT". All files of a program share it. */
__attribute__((weak)) char ninf_server_[300];
__attribute__((weak)) pthread_mutex_t ninf_lock_ = PTHREAD_MUTEX_INITIALIZER;

static inline void Ninf_set_server(const char *server, const char *port) {
    snprintf(ninf_server_, sizeof ninf_server_, port == NULL || *port == '\0' ? "%s" : "%s:%s", server, port);
}

/* Removes -server SERVER and -port PORT from the arguments; without them, NINF_SERVER and NINF_SERVER_PORT of the environment
 * count. Returns the new number of arguments. */
static inline int Ninf_parse_arg(int argc, char **argv) {
    const char *server = getenv("NINF_SERVER"), *port = getenv("NINF_SERVER_PORT");
    int to = 1, from;
    for (from = 1; from < argc; from++) {
        if (strcmp(argv[from], "-server") == 0 && from + 1 < argc) server = argv[++from];
        else if (strcmp(argv[from], "-port") == 0 && from + 1 < argc) port = argv[++from];
        else argv[to++] = argv[from];
    }
    if (server != NULL) Ninf_set_server(server, port);
    if (to < argc) argv[to] = NULL;
    return argc == 0 ? 0 : to;
}
#define Ninf_parse_args Ninf_parse_arg

/* ---- Calls ---- */

static inline void ninf_end_(void) { grpc_finalize(); }

/* Begins the session, unless it has begun. */
static inline int ninf_begin_(void) {
    pthread_mutex_lock(&ninf_lock_);
    int error = grpc_initialize(NULL);
    if (error == GRPC_NO_ERROR) atexit(ninf_end_);
    pthread_mutex_unlock(&ninf_lock_);
    return error == GRPC_ALREADY_INITIALIZED ? GRPC_NO_ERROR : error;
}

/* Makes a handle of the function that a name refers to. */
static inline int ninf_handle_(grpc_function_handle_t *handle, const char *entry) {
    char server[300];
    const char *name = entry == NULL ? "" : entry;
    if (ninf_begin_() != GRPC_NO_ERROR) return NINF_ERROR;
    snprintf(server, sizeof server, "%s", ninf_server_);
    if (strncmp(name, "ninf://", 7) == 0) {
        const char *end = strchr(name += 7, '/');
        snprintf(server, sizeof server, "%.*s", end == NULL ? 0 : (int)(end - name), name);
        if (end != NULL) name = end + 1;
    }
    return grpc_function_handle_init(handle, server, name) == GRPC_NO_ERROR ? NINF_OK : NINF_ERROR;
}

typedef struct {
    grpc_function_handle_t handle_np;
} Ninf_executable_t;

/* The function and the session of a thread's current call. */
static __thread grpc_function_handle_t ninf_current_ __attribute__((unused));
static __thread grpc_sessionid_t ninf_session_ __attribute__((unused));

static inline int ninf_open_(const char *entry) { return ninf_handle_(&ninf_current_, entry); }
static inline int ninf_ended_(int error) {
    grpc_function_handle_destruct(&ninf_current_);
    return error == GRPC_NO_ERROR ? NINF_OK : NINF_ERROR;
}
static inline int ninf_status_(int error) { return error == GRPC_NO_ERROR ? NINF_OK : NINF_ERROR; }
static inline int ninf_started_(int error) { return error == GRPC_NO_ERROR ? ninf_session_ : NINF_ERROR; }

/* Macros, since only they can pass on any arguments. The 0 that they add is not read. They return NINF_OK or NINF_ERROR, the
 * asynchronous ones a session above 0 or NINF_ERROR. */
#define Ninf_call(...) NINF_CALL_(__VA_ARGS__, 0)
#define NINF_CALL_(entry, ...) \
    (ninf_open_(entry) == NINF_OK ? ninf_ended_(grpc_call(&ninf_current_, __VA_ARGS__)) : NINF_ERROR)
#define Ninf_call_async(...) NINF_CALL_ASYNC_(__VA_ARGS__, 0)
#define NINF_CALL_ASYNC_(entry, ...)                                                                                  \
    (ninf_open_(entry) == NINF_OK                                                                                     \
         ? (ninf_ended_(grpc_call_async(&ninf_current_, &ninf_session_, __VA_ARGS__)) == NINF_OK ? ninf_session_      \
                                                                                                 : NINF_ERROR)        \
         : NINF_ERROR)

/* Returns NULL if there is no such function. Ninf_executable_finalize frees it. */
static inline Ninf_executable_t *Ninf_get_executable(const char *entry) {
    Ninf_executable_t *executable = (Ninf_executable_t *)calloc(1, sizeof *executable);
    if (ninf_handle_(&executable->handle_np, entry) == NINF_OK) return executable;
    free(executable);
    return NULL;
}
static inline grpc_function_handle_t *ninf_of_(Ninf_executable_t *executable) {
    return executable == NULL ? NULL : &executable->handle_np;
}
#define Ninf_call_executable(...) NINF_CALL_EXECUTABLE_(__VA_ARGS__, 0)
#define NINF_CALL_EXECUTABLE_(executable, ...) ninf_status_(grpc_call(ninf_of_(executable), __VA_ARGS__))
#define Ninf_call_executable_async(...) NINF_CALL_EXECUTABLE_ASYNC_(__VA_ARGS__, 0)
#define NINF_CALL_EXECUTABLE_ASYNC_(executable, ...) \
    ninf_started_(grpc_call_async(ninf_of_(executable), &ninf_session_, __VA_ARGS__))
static inline int Ninf_executable_finalize(Ninf_executable_t *executable) {
    int error = grpc_function_handle_destruct(ninf_of_(executable));
    free(executable);
    return ninf_status_(error);
}
static inline Ninf_executable_t *Ninf_get_executable_from_session(int session) {
    grpc_function_handle_t *handle = NULL;
    return grpc_get_handle(&handle, session) == GRPC_NO_ERROR ? (Ninf_executable_t *)(void *)handle : NULL;
}

struct ninf_stub_information;
/* Reports whether the function exists; the description itself is not available. */
static inline int Ninf_get_stub(const char *entry, int *types, struct ninf_stub_information **stub) {
    grpc_function_handle_t handle;
    (void)types;
    if (stub != NULL) *stub = NULL;
    if (ninf_handle_(&handle, entry) != NINF_OK) return NINF_ERROR;
    return ninf_status_(grpc_function_handle_destruct(&handle));
}

/* ---- Waiting ---- */

static inline int Ninf_wait(int session) { return ninf_status_(grpc_wait(session)); }
static inline int Ninf_wait_all(void) { return ninf_status_(grpc_wait_all()); }
static inline int Ninf_wait_and(int *sessions, int count) { return ninf_status_(grpc_wait_and(sessions, (size_t)count)); }

/* Ninf returns the session, Ninf-G 1 writes it through another argument and returns the status. 0 is no session. */
static inline int ninf_waited_(int *to, int session, int error) {
    if (session == GRPC_SESSIONID_VOID) session = 0;
    if (to != NULL) *to = session;
    if (error != GRPC_NO_ERROR) return NINF_ERROR;
    return to == NULL ? session : NINF_OK;
}
static inline int ninf_wait_any_(int *to) {
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    int error = grpc_wait_any(&session);
    return ninf_waited_(to, session, error);
}
static inline int ninf_wait_or_in_(int *sessions, int count, int *to) {
    grpc_sessionid_t session = GRPC_SESSIONID_VOID;
    int error = grpc_wait_or(sessions, (size_t)count, &session);
    return ninf_waited_(to, session, error);
}
static inline int ninf_wait_or_(int *sessions, int count) { return ninf_wait_or_in_(sessions, count, NULL); }
#define Ninf_wait_any(...) ninf_wait_any_((int *)(__VA_ARGS__ + 0))
#define Ninf_wait_or(...) NINF_FOURTH_(__VA_ARGS__, ninf_wait_or_in_, ninf_wait_or_, 0)(__VA_ARGS__)
#define NINF_FOURTH_(first, second, third, fourth, ...) fourth

/* 1 if the session has ended, 0 while it runs, NINF_ERROR if there is none. */
static inline int Ninf_session_probe(int session) {
    int error = grpc_probe(session);
    return error == GRPC_NO_ERROR ? 1 : error == GRPC_NOT_COMPLETED ? 0 : NINF_ERROR;
}
#define Ninf_is_done Ninf_session_probe
static inline int Ninf_session_cancel(int session) { return ninf_status_(grpc_cancel(session)); }
static inline int Ninf_session_remove(int session) { return ninf_status_(grpc_session_info_remove_np(session)); }

/* ---- Errors and times ---- */

/* Codes are those of grpc.h. */
#define Ninf_perror grpc_perror_np
#define Ninf_error_string grpc_error_string
#define Ninf_get_error grpc_get_error
#define Ninf_get_last_error grpc_last_error_get_np

/* Times in seconds; -1 if they are unknown. */
typedef struct ninf_exec_info {
    double fore_time, exec_time, back_time, client_exec_time;
    char hostname[256];
    int port;
} exec_info;

/* Returns memory of the thread, until its next call of either; NULL if the session is not known. */
static inline exec_info *Ninf_get_info(int session) {
    static __thread exec_info info;
    grpc_session_details_np details;
    if (grpc_session_details_get_np(session, &details) != GRPC_NO_ERROR) return NULL;
    info.fore_time = details.transfer_s, info.back_time = -1;
    info.exec_time = details.run_s, info.client_exec_time = details.total_s;
    snprintf(info.hostname, sizeof info.hostname, "%s", details.server);
    return &info;
}
static inline double ninf_seconds_(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }
static inline exec_info *Ninf_get_last_info(void) {
    static __thread exec_info info;
    grpc_exec_info_t_np last;
    if (grpc_get_last_info_np(&last, NULL) != GRPC_NO_ERROR) return NULL;
    info.fore_time = info.back_time = -1;
    info.exec_time = ninf_seconds_(last.gei_measureExecutable.calculationRealTime);
    info.client_exec_time = ninf_seconds_(last.gei_measureClient.calculationRealTime);
    return &info;
}

/* ---- Without counterpart: the compiler names the reason ---- */

GRIDLOOM_UNSUPPORTED_(int Ninf_local_exec(const char *, ...),
                      "Ninf_local_exec runs a stub of Ninf: serve the function with 'gridloom serve', and use Ninf_call");
GRIDLOOM_UNSUPPORTED_(int Ninf_transaction_begin(void), "Ninf's transactions are not supported: use grpc_map.h");
GRIDLOOM_UNSUPPORTED_(int Ninf_transaction_end(void), "Ninf's transactions are not supported: use grpc_map.h");
GRIDLOOM_UNSUPPORTED_(int Ninf_call_body(struct ninf_stub_information *, ...),
                      "stubs are not available: use Ninf_get_executable and Ninf_call_executable");

#ifdef __cplusplus
}
#endif

#endif
