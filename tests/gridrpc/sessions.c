/* The rules of the portable functions (reference, 1.1) and of lifetime and state (1.4). */
#include "suite.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 1.1: return values of each function ------------------------------------------------------------------------- */

static void initialize_twice(void) {
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    EXPECT(GRPC_ALREADY_INITIALIZED, grpc_initialize(suite_config));
    OK(grpc_call(&handle, 1, &y));
    EQUAL(2, y);
}

static void initialize_with_a_broken_file(void) {
    char name[] = "broken.XXXXXX";
    int descriptor = mkstemp(name);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    CHECK(file != NULL);
    fputs("servers = [\n", file);
    fclose(file);
    grpc_error_t error = grpc_initialize(name);
    remove(name);
    EXPECT(GRPC_CONFIGFILE_ERROR, error);
    BEGIN();
}

static void functions_that_nobody_offers(void) {
    grpc_function_handle_t handle;
    BEGIN();
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_default(&handle, "gridrpc/ad"));
    CHECK(strstr(grpc_last_error_text_np(), "gridrpc/add") != NULL);
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_init(&handle, suite_server(), "gridrpc/ad"));
}

static void servers_that_are_not_there(void) {
    grpc_function_handle_t handle;
    BEGIN();
    EXPECT(GRPC_SERVER_NOT_FOUND, grpc_function_handle_init(&handle, "no-such-server", "gridrpc/add"));
}

static void names_without_their_module(void) {
    grpc_function_handle_t handle;
    int y = 0;
    BEGIN();
    OK(grpc_function_handle_default(&handle, "transpose"));
    OK(grpc_function_handle_default(&handle, "add"));
    OK(grpc_call(&handle, 4, &y));
    EQUAL(5, y);
}

static void no_server_named(void) {
    grpc_function_handle_t handle;
    int y = 0;
    BEGIN();
    OK(grpc_function_handle_init(&handle, NULL, "gridrpc/add"));
    OK(grpc_call(&handle, 4, &y));
    EQUAL(5, y);
}

static void memory_that_is_no_handle(void) {
    grpc_function_handle_t handle;
    grpc_sessionid_t id = 9;
    int y;
    BEGIN();
    memset(&handle, 0, sizeof handle);
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&handle, 1, &y));
    memset(&handle, 0x5a, sizeof handle);
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_call_async(&handle, &id, 1, &y));
    EQUAL(GRPC_SESSIONID_VOID, id);
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_destruct(&handle));
}

static void a_handle_that_has_ended(void) {
    grpc_function_handle_t *found;
    grpc_sessionid_t id;
    int y;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 1, &y));
    OK(grpc_function_handle_destruct(&handle));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&handle, 1, &y));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_get_handle(&found, id));
    OK(grpc_wait(id));
    EQUAL(2, y);
}

static void null_pointers(void) {
    grpc_sessionid_t id;
    int y;
    BEGIN();
    HANDLE(handle, "add");
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_function_handle_default(NULL, "gridrpc/add"));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_function_handle_default(&handle, NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call_async(&handle, NULL, 1, &y));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_wait_any(NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_wait_or(&id, 1, NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_get_failed_sessionid(NULL));
}

static void arrays_without_ids(void) {
    grpc_sessionid_t id = 5, one = 1;
    BEGIN();
    OK(grpc_wait_and(&one, 0));
    OK(grpc_wait_or(&one, 0, &id));
    EQUAL(GRPC_SESSIONID_VOID, id);
    id = 5;
    EXPECT(GRPC_NONE_COMPLETED, grpc_probe_or(&one, 0, &id));
    EQUAL(GRPC_SESSIONID_VOID, id);
}

static void the_failed_one_of_several(void) {
    grpc_sessionid_t ids[2], id;
    int y;
    BEGIN();
    HANDLE(bad, "exit");
    HANDLE(loop, "loop");
    OK(grpc_call_async(&bad, &ids[0], 1));
    OK(grpc_call_async(&loop, &ids[1], 0));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait_or(ids, 2, &id));
    EQUAL(ids[0], id);
    STOP(ids[1]);
    HANDLE(good, "add");
    OK(grpc_call_async(&good, &ids[0], 1, &y));
    OK(grpc_call_async(&bad, &ids[1], 1));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait_and(ids, 2));
    EQUAL(2, y);
    OK(grpc_call_async(&bad, &ids[0], 1));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait_any(&id));
    EQUAL(ids[0], id);
}

/* ---- 1.4: lifetime and state ------------------------------------------------------------------------------------- */

static void a_handle_is_used_again(void) {
    BEGIN();
    HANDLE(handle, "add");
    for (int x = 0; x < 20; x++) {
        int y = 0;
        OK(grpc_call(&handle, x, &y));
        EQUAL(x + 1, y);
    }
}

static void several_sessions_of_one_handle(void) {
    enum { SESSIONS = 64 };
    grpc_sessionid_t ids[SESSIONS];
    int results[SESSIONS] = {0};
    BEGIN();
    HANDLE(handle, "add");
    for (int i = 0; i < SESSIONS; i++) OK(grpc_call_async(&handle, &ids[i], i, &results[i]));
    OK(grpc_wait_and(ids, SESSIONS));
    for (int i = 0; i < SESSIONS; i++) EQUAL(i + 1, results[i]);
}

static void copies_of_a_handle(void) {
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    grpc_function_handle_t copy = handle;
    OK(grpc_call(&copy, 1, &y));
    EQUAL(2, y);
    OK(grpc_function_handle_destruct(&copy));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&handle, 1, &y));
}

static void initialized_again(void) {
    grpc_function_handle_t old;
    int y = 0;
    BEGIN();
    OK(grpc_function_handle_default(&old, "gridrpc/add"));
    OK(grpc_finalize());
    EXPECT(GRPC_NOT_INITIALIZED, grpc_call(&old, 1, &y));
    BEGIN();
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&old, 1, &y));
    HANDLE(handle, "add");
    OK(grpc_call(&handle, 1, &y));
    EQUAL(2, y);
}

static void finalized_with_sessions_under_way(void) {
    grpc_sessionid_t id;
    int y = -1;
    BEGIN();
    HANDLE(loop, "loop");
    HANDLE(add, "add");
    OK(grpc_call_async(&loop, &id, 0));
    OK(grpc_call_async(&add, &id, 1, &y));
    OK(grpc_finalize());
    EQUAL(-1, y);
    BEGIN();
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait(id));
}

static void errors_before_initialize(void) {
    grpc_sessionid_t id;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_get_error(1));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_get_failed_sessionid(&id));
    TEXT("GRPC_NOT_INITIALIZED", grpc_error_string(GRPC_NOT_INITIALIZED));
}

static void a_cancelled_session_is_collected(void) {
    grpc_sessionid_t id, failed;
    BEGIN();
    HANDLE(handle, "loop");
    OK(grpc_call_async(&handle, &id, 0));
    OK(grpc_cancel(id));
    OK(grpc_cancel(id));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    EXPECT(GRPC_CANCELED_NP, grpc_get_error(id));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_cancel(id));
    OK(grpc_get_failed_sessionid(&failed));
    EQUAL(id, failed);
}

static void all_are_cancelled(void) {
    grpc_sessionid_t ids[6];
    BEGIN();
    HANDLE(handle, "loop");
    for (int i = 0; i < 6; i++) OK(grpc_call_async(&handle, &ids[i], 0));
    OK(grpc_cancel_all());
    EXPECT(GRPC_SESSION_FAILED, grpc_wait_all());
    for (int i = 0; i < 6; i++) EXPECT(GRPC_CANCELED_NP, grpc_get_error(ids[i]));
    OK(grpc_cancel_all());
}

static void cancelled_after_its_end(void) {
    grpc_sessionid_t id;
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 1, &y));
    while (grpc_probe(id) == GRPC_NOT_COMPLETED) {}
    OK(grpc_cancel(id));
    OK(grpc_wait(id));
    EQUAL(2, y);
}

static void results_are_there_after_a_probe(void) {
    grpc_sessionid_t ids[1], id;
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &ids[0], 1, &y));
    while (grpc_probe(ids[0]) == GRPC_NOT_COMPLETED) {}
    OK(grpc_get_error(ids[0]));
    EQUAL(2, y);
    y = 0;
    OK(grpc_probe(ids[0]));
    EQUAL(0, y);
    OK(grpc_probe_or(ids, 1, &id));
    OK(grpc_wait(ids[0]));
    EQUAL(0, y);
}

static void a_session_is_collected_once(void) {
    grpc_sessionid_t id, any;
    int y;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 1, &y));
    OK(grpc_wait(id));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait(id));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_probe(id));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait_and(&id, 1));
    OK(grpc_wait_any(&any));
    EQUAL(GRPC_SESSIONID_VOID, any);
    OK(grpc_get_error(id));
}

static void an_id_that_stands_twice(void) {
    grpc_sessionid_t ids[3];
    int y[2] = {0};
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &ids[0], 1, &y[0]));
    OK(grpc_call_async(&handle, &ids[1], 2, &y[1]));
    ids[2] = ids[0];
    OK(grpc_wait_and(ids, 3));
    EQUAL(2, y[0]);
    EQUAL(3, y[1]);
}

static void bad_ids_collect_nothing(void) {
    grpc_sessionid_t ids[2];
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &ids[0], 1, &y));
    ids[1] = GRPC_SESSIONID_VOID;
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait_and(ids, 2));
    OK(grpc_wait(ids[0]));
    EQUAL(2, y);
}

static void the_last_256_are_remembered(void) {
    enum { SESSIONS = 300, KEPT = 256 };
    grpc_sessionid_t ids[SESSIONS];
    BEGIN();
    HANDLE(handle, "add");
    for (int i = 0; i < SESSIONS; i++) {
        int y;
        OK(grpc_call_async(&handle, &ids[i], i, &y));
        OK(grpc_wait(ids[i]));
    }
    OK(grpc_get_error(ids[SESSIONS - 1]));
    OK(grpc_get_error(ids[SESSIONS - KEPT]));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_get_error(ids[SESSIONS - KEPT - 1]));
    OK(grpc_session_info_remove_np(ids[SESSIONS - 1]));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_get_error(ids[SESSIONS - 1]));
}

static void all_of_one_handle_run_on_its_server(void) {
    grpc_function_handle_t handle;
    grpc_session_details_np info;
    grpc_sessionid_t ids[8];
    int y[8];
    BEGIN();
    OK(grpc_function_handle_init(&handle, suite_server(), "gridrpc/add"));
    for (int i = 0; i < 8; i++) OK(grpc_call_async(&handle, &ids[i], i, &y[i]));
    OK(grpc_wait_all());
    for (int i = 0; i < 8; i++) {
        OK(grpc_session_details_get_np(ids[i], &info));
        TEXT(suite_server(), info.server);
    }
}

static void a_process_that_ends_takes_its_call_only(void) {
    grpc_function_handle_t bad, good;
    int y = 0;
    BEGIN();
    OK(grpc_function_handle_init(&bad, suite_server(), "gridrpc/exit"));
    OK(grpc_function_handle_init(&good, suite_server(), "gridrpc/add"));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_call(&bad, 1));
    OK(grpc_call(&good, 1, &y));
    EQUAL(2, y);
}

static void a_time_limit(void) {
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "loop");
    OK(grpc_function_handle_set_timeout_np(&handle, 0.2));
    EXPECT(GRPC_TIMEOUT_NP, grpc_call(&handle, 0));
    OK(grpc_call_async(&handle, &id, 0));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    EXPECT(GRPC_TIMEOUT_NP, grpc_get_error(id));
}

/* The server has one slot. */
static void calls_start_by_priority(void) {
    grpc_function_handle_t handles[4];
    grpc_sessionid_t ids[4];
    double total_s[4];
    int const order[4] = {0, 3, 1, 2};
    BEGIN();
    for (int i = 0; i < 4; i++) OK(grpc_function_handle_init(&handles[i], suite_server(), "gridrpc/sleep"));
    OK(grpc_set_priority_np(5));
    OK(grpc_function_handle_set_priority_np(&handles[1], 1));
    OK(grpc_function_handle_set_priority_np(&handles[3], -1));
    for (int i = 0; i < 4; i++) OK(grpc_call_async(&handles[i], &ids[i], 1));
    OK(grpc_wait_all());
    for (int i = 0; i < 4; i++) {
        grpc_session_details_np details;
        OK(grpc_session_details_get_np(ids[i], &details));
        total_s[i] = details.total_s;
    }
    for (int i = 1; i < 4; i++) CHECK(total_s[order[i]] > total_s[order[i - 1]]);
    OK(grpc_function_handle_destruct(&handles[0]));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_set_priority_np(&handles[0], 1));
}

/* The child answers through a pipe, because only the parent checks a case, and is then killed, so that tools which
 * check memory look at the parent only. */
static void a_child_has_no_session(void) {
    grpc_sessionid_t id;
    int y = 0, ends[2];
    char answer = 'n';
    BEGIN();
    CHECK(pipe(ends) == 0);
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 1, &y));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (grpc_call(&handle, 1, &y) == GRPC_NOT_INITIALIZED && grpc_wait(id) == GRPC_NOT_INITIALIZED &&
            grpc_finalize() == GRPC_NOT_INITIALIZED)
            answer = 'y';
        while (write(ends[1], &answer, 1) == 1) kill(getpid(), SIGKILL);
    }
    close(ends[1]);
    CHECK(child > 0 && read(ends[0], &answer, 1) == 1 && waitpid(child, NULL, 0) == child);
    close(ends[0]);
    EQUAL('y', answer);
    OK(grpc_wait(id));
    EQUAL(2, y);
}

/* Returns a large number of calls: smaller for tools that make a program slow. */
static int very_many(void) {
    const char *said = getenv("GRIDRPC_SESSIONS");
    return said == NULL ? 100000 : atoi(said);
}

static void very_many_sessions(void) {
    const int count = very_many();
    grpc_sessionid_t *ids = malloc((size_t)count * sizeof *ids);
    int *results = calloc((size_t)count, sizeof *results), wrong = 0, refused = 0;
    CHECK(ids != NULL && results != NULL);
    BEGIN();
    HANDLE(handle, "add");
    for (int i = 0; i < count; i++) refused += grpc_call_async(&handle, &ids[i], i, &results[i]) != GRPC_NO_ERROR;
    EQUAL(0, refused);
    OK(grpc_wait_all());
    for (int i = 0; i < count; i++) wrong += results[i] != i + 1;
    EQUAL(0, wrong);
    free(ids);
    free(results);
}

/* A program that removes sessions from its array one by one, in the order in which they end. */
static void many_are_drained(void) {
    int left = very_many() / 20, wrong = 0;
    const int count = left;
    grpc_sessionid_t *ids = malloc((size_t)count * sizeof *ids), id;
    int *results = calloc((size_t)count, sizeof *results);
    CHECK(ids != NULL && results != NULL);
    BEGIN();
    HANDLE(handle, "add");
    for (int i = 0; i < count; i++) OK(grpc_call_async(&handle, &ids[i], i, &results[i]));
    while (left > 0) {
        int at = 0;
        OK(left % 2 ? grpc_probe_or(ids, (size_t)left, &id) == GRPC_NO_ERROR ? grpc_wait(id)
                                                                             : grpc_wait_or(ids, (size_t)left, &id)
                    : grpc_wait_or(ids, (size_t)left, &id));
        while (at < left && ids[at] != id) at++;
        CHECK(at < left);
        EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait_or(ids, (size_t)left, &id));
        ids[at] = ids[--left];
    }
    for (int i = 0; i < count; i++) wrong += results[i] != i + 1;
    EQUAL(0, wrong);
    free(ids);
    free(results);
}

/* The duration of a session ends with its task, whenever the program asks. */
static void a_session_ends_when_its_task_does(void) {
    grpc_session_details_np first, second;
    grpc_sessionid_t id;
    int y = 0, z = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 1, &y));
    do OK(grpc_session_details_get_np(id, &first));
    while (!first.is_done && (grpc_probe(id), 1));
    for (int i = 0; i < 20; i++) OK(grpc_call(&handle, i, &z));
    OK(grpc_wait(id));
    OK(grpc_session_details_get_np(id, &second));
    CHECK(first.total_s >= 0);
    EQUAL(first.total_s, second.total_s);
}

/* The session's clock (virtual time in a simulation) and the details of a call agree on the duration of the call. */
static void a_clock_measures_calls(void) {
    grpc_session_details_np details;
    grpc_sessionid_t id;
    int y = 0;
    EQUAL(-1, grpc_now_np());
    CHECK(grpc_last_error_get_np() == GRPC_NOT_INITIALIZED);
    BEGIN();
    HANDLE(handle, "add");
    double begun = grpc_now_np();
    OK(grpc_call_async(&handle, &id, 1, &y));
    OK(grpc_wait(id));
    double ended = grpc_now_np();
    OK(grpc_session_details_get_np(id, &details));
    CHECK(details.total_s > 0 && begun >= 0);
    CHECK(ended - begun > 0.999 * details.total_s);
}

const test_case session_cases[] = {
    {"1.1-1: a second initialize is refused and changes nothing", initialize_twice},
    {"1.1-1: a file that is not as it should be; initialize may be called again", initialize_with_a_broken_file},
    {"1.1-3: a function that nobody offers, and names like it", functions_that_nobody_offers},
    {"1.1-3: a function's name without its module", names_without_their_module},
    {"1.1-4: a server that is not there", servers_that_are_not_there},
    {"1.1-4: no server named is as the default", no_server_named},
    {"1.1-5: memory that is no handle", memory_that_is_no_handle},
    {"1.1-5: a handle that has ended; its sessions go on", a_handle_that_has_ended},
    {"1.1: null pointers are errors", null_pointers},
    {"1.1-10, 14, 15: arrays without ids", arrays_without_ids},
    {"1.1-14, 15, 17: the failed one of several", the_failed_one_of_several},
    {"1.4: a handle is used again", a_handle_is_used_again},
    {"1.4: several sessions of one handle", several_sessions_of_one_handle},
    {"1.4: copies of a handle end together", copies_of_a_handle},
    {"1.4: initialize, finalize, initialize: old handles are none", initialized_again},
    {"1.4: finalize with sessions under way writes nothing", finalized_with_sessions_under_way},
    {"1.4: errors before initialize", errors_before_initialize},
    {"1.4: a cancelled session is collected as failed", a_cancelled_session_is_collected},
    {"1.4: all are cancelled", all_are_cancelled},
    {"1.4: cancelled after its end, a session ends well", cancelled_after_its_end},
    {"1.4: results are there after a probe, and written once", results_are_there_after_a_probe},
    {"1.4: a session is collected once", a_session_is_collected_once},
    {"1.4: an id that stands twice counts once", an_id_that_stands_twice},
    {"1.4: with a bad id nothing is collected", bad_ids_collect_nothing},
    {"1.4: the last 256 sessions are remembered", the_last_256_are_remembered},
    {"1.4: calls through a bound handle run on its server", all_of_one_handle_run_on_its_server},
    {"1.4: a process that ends takes its call only", a_process_that_ends_takes_its_call_only},
    {"1.4: a time limit cancels", a_time_limit},
    {"calls start by priority", calls_start_by_priority},
    {"1.4: a child made by fork has no session, and its parent keeps its own", a_child_has_no_session},
    {"1.4: 100,000 sessions are outstanding", very_many_sessions},
    {"1.4: many sessions are drained by waits for one of them", many_are_drained},
    {"1.4: a session ends when its task does, not when that is asked", a_session_ends_when_its_task_does},
    {"1.4: the session's clock measures calls", a_clock_measures_calls},
    {NULL, NULL},
};
