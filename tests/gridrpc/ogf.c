/* The 50 cases in the groups of the OGF interoperability test of GridRPC systems, rewritten (reference, 1.8):
 * initialize 2, finalize 2, handles 9, call 4, wait 13, probe 8, cancel 5, errors 7. */
#include "suite.h"

/* ---- initialize -------------------------------------------------------------------------------------------------- */

static void initialize_reads_a_file(void) { BEGIN(); }

static void initialize_misses_a_file(void) {
    EXPECT(GRPC_CONFIGFILE_NOT_FOUND, grpc_initialize("/nowhere/there/is/no/such/file"));
}

/* ---- finalize ---------------------------------------------------------------------------------------------------- */

static void finalize_ends(void) {
    BEGIN();
    OK(grpc_finalize());
}

static void finalize_uninitialized(void) { EXPECT(GRPC_NOT_INITIALIZED, grpc_finalize()); }

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static void handle_default(void) {
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_function_handle_destruct(&handle));
}

static void handle_default_uninitialized(void) {
    grpc_function_handle_t handle;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_function_handle_default(&handle, "gridrpc/add"));
}

static void handle_init(void) {
    grpc_function_handle_t handle;
    int y = 0;
    BEGIN();
    OK(grpc_function_handle_init(&handle, suite_server(), "gridrpc/add"));
    OK(grpc_call(&handle, 41, &y));
    EQUAL(42, y);
    OK(grpc_function_handle_destruct(&handle));
}

static void handle_init_uninitialized(void) {
    grpc_function_handle_t handle;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_function_handle_init(&handle, suite_server(), "gridrpc/add"));
}

static void handle_destruct(void) {
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_function_handle_destruct(&handle));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_destruct(&handle));
}

static void handle_destruct_uninitialized(void) {
    grpc_function_handle_t handle = {0, 0};
    EXPECT(GRPC_NOT_INITIALIZED, grpc_function_handle_destruct(&handle));
}

static void get_handle(void) {
    grpc_function_handle_t *found = NULL;
    grpc_sessionid_t id;
    int y = 0, z = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 1, &y));
    OK(grpc_get_handle(&found, id));
    CHECK(found == &handle);
    OK(grpc_wait(id));
    OK(grpc_call(found, 2, &z));
    EQUAL(2, y);
    EQUAL(3, z);
}

static void get_handle_uninitialized(void) {
    grpc_function_handle_t *found;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_get_handle(&found, 1));
}

static void get_handle_of_no_session(void) {
    grpc_function_handle_t *found;
    BEGIN();
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_get_handle(&found, GRPC_SESSIONID_VOID));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_get_handle(&found, 123456));
}

/* ---- call -------------------------------------------------------------------------------------------------------- */

static void call(void) {
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call(&handle, 100, &y));
    EQUAL(101, y);
}

static void call_uninitialized(void) {
    grpc_function_handle_t handle = {0, 0};
    int y;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_call(&handle, 1, &y));
}

static void call_async(void) {
    grpc_sessionid_t id = GRPC_SESSIONID_VOID;
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 100, &y));
    CHECK(id != GRPC_SESSIONID_VOID);
    OK(grpc_wait(id));
    EQUAL(101, y);
}

static void call_async_uninitialized(void) {
    grpc_function_handle_t handle = {0, 0};
    grpc_sessionid_t id;
    int y;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_call_async(&handle, &id, 1, &y));
}

/* ---- wait -------------------------------------------------------------------------------------------------------- */

enum { COUNT = 4 };

/* Starts COUNT calls of add, each through a handle of its own. */
static int begin_all(grpc_function_handle_t *handles, grpc_sessionid_t *ids, int *results) {
    for (int i = 0; i < COUNT; i++) {
        if (grpc_function_handle_default(&handles[i], "gridrpc/add") != GRPC_NO_ERROR) return 0;
        if (grpc_call_async(&handles[i], &ids[i], 10 * i, &results[i]) != GRPC_NO_ERROR) return 0;
    }
    return 1;
}

static int has_all(const int *results) {
    for (int i = 0; i < COUNT; i++)
        if (results[i] != 10 * i + 1) return 0;
    return 1;
}

static int place_of(const grpc_sessionid_t *ids, grpc_sessionid_t id) {
    for (int i = 0; i < COUNT; i++)
        if (ids[i] == id) return i;
    return -1;
}

#define BEGIN_ALL()                                                                                                    \
    grpc_function_handle_t handles[COUNT];                                                                             \
    grpc_sessionid_t ids[COUNT];                                                                                       \
    int results[COUNT] = {0};                                                                                          \
    BEGIN();                                                                                                           \
    CHECK(begin_all(handles, ids, results))

static void wait_for_one(void) {
    BEGIN_ALL();
    for (int i = COUNT; i-- > 0;) OK(grpc_wait(ids[i]));
    CHECK(has_all(results));
}

static void wait_uninitialized(void) { EXPECT(GRPC_NOT_INITIALIZED, grpc_wait(1)); }

static void wait_for_none(void) {
    BEGIN();
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait(GRPC_SESSIONID_VOID));
}

static void wait_and(void) {
    BEGIN_ALL();
    OK(grpc_wait_and(ids, COUNT));
    CHECK(has_all(results));
}

static void wait_and_uninitialized(void) {
    grpc_sessionid_t ids[1] = {1};
    EXPECT(GRPC_NOT_INITIALIZED, grpc_wait_and(ids, 1));
}

/* It would hang if it waited: a call that loops is among them. */
static void wait_and_with_a_bad_id(void) {
    grpc_sessionid_t ids[2];
    BEGIN();
    HANDLE(handle, "loop");
    OK(grpc_call_async(&handle, &ids[0], 0));
    ids[1] = GRPC_SESSIONID_VOID;
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait_and(ids, 2));
    STOP(ids[0]);
}

static void wait_or(void) {
    int has_come[COUNT] = {0};
    BEGIN_ALL();
    for (size_t left = COUNT; left > 0; left--) {
        grpc_sessionid_t id = GRPC_SESSIONID_VOID, open[COUNT];
        size_t count = 0;
        for (int i = 0; i < COUNT; i++)
            if (!has_come[i]) open[count++] = ids[i];
        OK(grpc_wait_or(open, count, &id));
        CHECK(place_of(ids, id) >= 0 && !has_come[place_of(ids, id)]);
        has_come[place_of(ids, id)] = 1;
    }
    CHECK(has_all(results));
}

static void wait_or_uninitialized(void) {
    grpc_sessionid_t ids[1] = {1}, id;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_wait_or(ids, 1, &id));
}

static void wait_or_with_a_bad_id(void) {
    grpc_sessionid_t ids[2], id;
    BEGIN();
    HANDLE(handle, "loop");
    OK(grpc_call_async(&handle, &ids[0], 0));
    ids[1] = GRPC_SESSIONID_VOID;
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait_or(ids, 2, &id));
    STOP(ids[0]);
}

static void wait_all(void) {
    BEGIN_ALL();
    OK(grpc_wait_all());
    CHECK(has_all(results));
    OK(grpc_wait_all());
}

static void wait_all_uninitialized(void) { EXPECT(GRPC_NOT_INITIALIZED, grpc_wait_all()); }

static void wait_any(void) {
    grpc_sessionid_t id;
    int came = 0;
    BEGIN_ALL();
    for (;;) {
        OK(grpc_wait_any(&id));
        if (id == GRPC_SESSIONID_VOID) break;
        CHECK(place_of(ids, id) >= 0);
        ids[place_of(ids, id)] = GRPC_SESSIONID_VOID;
        came++;
    }
    EQUAL(COUNT, came);
    CHECK(has_all(results));
}

static void wait_any_uninitialized(void) {
    grpc_sessionid_t id;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_wait_any(&id));
}

/* ---- probe ------------------------------------------------------------------------------------------------------- */

static void probe_of_what_has_ended(void) {
    grpc_sessionid_t id;
    grpc_error_t probed;
    int y = 0;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 6, &y));
    while ((probed = grpc_probe(id)) == GRPC_NOT_COMPLETED) {}
    OK(probed);
    OK(grpc_wait(id));
    EQUAL(7, y);
}

static void probe_of_what_runs(void) {
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "loop");
    OK(grpc_call_async(&handle, &id, 0));
    EXPECT(GRPC_NOT_COMPLETED, grpc_probe(id));
    STOP(id);
}

static void probe_uninitialized(void) { EXPECT(GRPC_NOT_INITIALIZED, grpc_probe(1)); }

static void probe_of_none(void) {
    BEGIN();
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_probe(GRPC_SESSIONID_VOID));
}

static void probe_or_finds_one(void) {
    grpc_sessionid_t ids[2], id;
    grpc_error_t probed;
    int y = 0;
    BEGIN();
    HANDLE(loop, "loop");
    HANDLE(add, "add");
    OK(grpc_call_async(&loop, &ids[0], 0));
    OK(grpc_call_async(&add, &ids[1], 6, &y));
    while ((probed = grpc_probe_or(ids, 2, &id)) == GRPC_NONE_COMPLETED) {}
    OK(probed);
    EQUAL(ids[1], id);
    OK(grpc_wait(id));
    STOP(ids[0]);
}

static void probe_or_finds_none(void) {
    grpc_sessionid_t ids[2], id = 77;
    BEGIN();
    HANDLE(handle, "loop");
    for (int i = 0; i < 2; i++) OK(grpc_call_async(&handle, &ids[i], 0));
    EXPECT(GRPC_NONE_COMPLETED, grpc_probe_or(ids, 2, &id));
    EQUAL(GRPC_SESSIONID_VOID, id);
    for (int i = 0; i < 2; i++) STOP(ids[i]);
}

static void probe_or_uninitialized(void) {
    grpc_sessionid_t ids[1] = {1}, id;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_probe_or(ids, 1, &id));
}

static void probe_or_with_a_bad_id(void) {
    grpc_sessionid_t ids[2], id;
    int y;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &ids[0], 1, &y));
    ids[1] = GRPC_SESSIONID_VOID;
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_probe_or(ids, 2, &id));
    OK(grpc_wait(ids[0]));
}

/* ---- cancel ------------------------------------------------------------------------------------------------------ */

static void cancel(void) {
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "loop");
    OK(grpc_call_async(&handle, &id, 0));
    OK(grpc_cancel(id));
    grpc_wait(id);
}

static void cancel_uninitialized(void) { EXPECT(GRPC_NOT_INITIALIZED, grpc_cancel(1)); }

static void cancel_of_none(void) {
    BEGIN();
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_cancel(GRPC_SESSIONID_VOID));
}

static void cancel_all(void) {
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "loop");
    for (int i = 0; i < COUNT; i++) OK(grpc_call_async(&handle, &id, 0));
    OK(grpc_cancel_all());
    grpc_wait_all();
    OK(grpc_wait_any(&id));
    EQUAL(GRPC_SESSIONID_VOID, id);
}

static void cancel_all_uninitialized(void) { EXPECT(GRPC_NOT_INITIALIZED, grpc_cancel_all()); }

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void error_string(void) {
    TEXT("GRPC_NO_ERROR", grpc_error_string(GRPC_NO_ERROR));
    TEXT("GRPC_SESSION_FAILED", grpc_error_string(GRPC_SESSION_FAILED));
}

static void error_string_of_no_code(void) {
    TEXT("GRPC_UNKNOWN_ERROR_CODE", grpc_error_string(-1));
    TEXT("GRPC_UNKNOWN_ERROR_CODE", grpc_error_string(1000));
}

static void error_of_what_runs(void) {
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "loop");
    OK(grpc_call_async(&handle, &id, 0));
    OK(grpc_get_error(id));
    STOP(id);
}

static void error_of_what_failed(void) {
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "exit");
    OK(grpc_call_async(&handle, &id, 1));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    CHECK(grpc_get_error(id) != GRPC_NO_ERROR);
    CHECK(grpc_get_error(id) != GRPC_INVALID_SESSION_ID);
}

static void error_of_none(void) {
    BEGIN();
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_get_error(GRPC_SESSIONID_VOID));
}

static void failed_session_of_none(void) {
    grpc_sessionid_t id = 5;
    int y;
    BEGIN();
    HANDLE(handle, "add");
    OK(grpc_call_async(&handle, &id, 1, &y));
    OK(grpc_wait_all());
    OK(grpc_get_failed_sessionid(&id));
    EQUAL(GRPC_SESSIONID_VOID, id);
}

static void failed_sessions_come_once(void) {
    grpc_sessionid_t ids[3], id;
    int came = 0;
    BEGIN();
    HANDLE(handle, "exit");
    for (int i = 0; i < 3; i++) OK(grpc_call_async(&handle, &ids[i], 1));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait_all());
    for (;;) {
        OK(grpc_get_failed_sessionid(&id));
        if (id == GRPC_SESSIONID_VOID) break;
        CHECK(came < 3 && (id == ids[0] || id == ids[1] || id == ids[2]));
        CHECK(grpc_get_error(id) != GRPC_NO_ERROR);
        came++;
    }
    EQUAL(3, came);
}

const test_case ogf_cases[] = {
    {"OGF initialize 1: a configuration file is read", initialize_reads_a_file},
    {"OGF initialize 2: a file that is not there", initialize_misses_a_file},
    {"OGF finalize 1: a session ends", finalize_ends},
    {"OGF finalize 2: before initialize", finalize_uninitialized},
    {"OGF handles 1: a default handle", handle_default},
    {"OGF handles 2: a default handle before initialize", handle_default_uninitialized},
    {"OGF handles 3: a handle of a named server", handle_init},
    {"OGF handles 4: a handle of a named server before initialize", handle_init_uninitialized},
    {"OGF handles 5: a handle ends once", handle_destruct},
    {"OGF handles 6: a handle's end before initialize", handle_destruct_uninitialized},
    {"OGF handles 7: a session's handle is the program's own and calls again", get_handle},
    {"OGF handles 8: a session's handle before initialize", get_handle_uninitialized},
    {"OGF handles 9: a session's handle of no session", get_handle_of_no_session},
    {"OGF call 1: a call", call},
    {"OGF call 2: a call before initialize", call_uninitialized},
    {"OGF call 3: a call that does not wait", call_async},
    {"OGF call 4: a call that does not wait before initialize", call_async_uninitialized},
    {"OGF wait 1: for sessions one by one, in another order", wait_for_one},
    {"OGF wait 2: before initialize", wait_uninitialized},
    {"OGF wait 3: for no session", wait_for_none},
    {"OGF wait 4: for all of an array", wait_and},
    {"OGF wait 5: for all of an array before initialize", wait_and_uninitialized},
    {"OGF wait 6: for all of an array with a bad id", wait_and_with_a_bad_id},
    {"OGF wait 7: for one of an array", wait_or},
    {"OGF wait 8: for one of an array before initialize", wait_or_uninitialized},
    {"OGF wait 9: for one of an array with a bad id", wait_or_with_a_bad_id},
    {"OGF wait 10: for all, and for none", wait_all},
    {"OGF wait 11: for all before initialize", wait_all_uninitialized},
    {"OGF wait 12: for any, until none is left", wait_any},
    {"OGF wait 13: for any before initialize", wait_any_uninitialized},
    {"OGF probe 1: of a session that has ended", probe_of_what_has_ended},
    {"OGF probe 2: of a session that runs", probe_of_what_runs},
    {"OGF probe 3: before initialize", probe_uninitialized},
    {"OGF probe 4: of no session", probe_of_none},
    {"OGF probe 5: of an array of which one has ended", probe_or_finds_one},
    {"OGF probe 6: of an array of which none has ended", probe_or_finds_none},
    {"OGF probe 7: of an array before initialize", probe_or_uninitialized},
    {"OGF probe 8: of an array with a bad id", probe_or_with_a_bad_id},
    {"OGF cancel 1: a session", cancel},
    {"OGF cancel 2: before initialize", cancel_uninitialized},
    {"OGF cancel 3: no session", cancel_of_none},
    {"OGF cancel 4: all", cancel_all},
    {"OGF cancel 5: all before initialize", cancel_all_uninitialized},
    {"OGF errors 1: names of codes", error_string},
    {"OGF errors 2: names of numbers that are no codes", error_string_of_no_code},
    {"OGF errors 3: of a session that runs", error_of_what_runs},
    {"OGF errors 4: of a session that failed", error_of_what_failed},
    {"OGF errors 5: of no session", error_of_none},
    {"OGF errors 6: no session failed", failed_session_of_none},
    {"OGF errors 7: three failed sessions are told once each", failed_sessions_come_once},
    {NULL, NULL},
};
