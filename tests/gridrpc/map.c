/* Groups that are mapped together: tests of what grpc_map.h promises. */
#include "suite.h"

#include <stdlib.h>

enum { N = 1000 };

static int is_all(const double *values, double expected) {
    for (int i = 0; i < N; i++)
        if (values[i] != expected) return 0;
    return 1;
}

static void fill(double *values, double value) {
    for (int i = 0; i < N; i++) values[i] = value;
}

#define BUFFERS()                                                                                                      \
    static double x[N], y[N], z[N];                                                                                    \
    double total = -1;                                                                                                 \
    (void)total;                                                                                                       \
    fill(x, 1);                                                                                                        \
    fill(y, 10);                                                                                                       \
    fill(z, 100);                                                                                                      \
    BEGIN();                                                                                                           \
    HANDLE(axpy, "axpy");                                                                                              \
    HANDLE(sum, "sum");                                                                                                \
    (void)sum

static void a_chain(void) {
    int runs = 0;
    BUFFERS();
    grpc_map("auto") {
        runs++;
        grpc_call(&axpy, N, 2.0, x, y);
        grpc_call(&axpy, N, 1.0, y, z);
        grpc_call(&sum, (long)N, z, &total);
    }
    OK(grpc_map_error_np());
    EQUAL(2, runs);
    EQUAL(0, grpc_map_phase_np());
    CHECK(is_all(y, 12));
    CHECK(is_all(z, 112));
    EQUAL(112.0 * N, total);
}

static void calls_that_do_not_wait(void) {
    grpc_sessionid_t ids[2];
    BUFFERS();
    grpc_map("auto") {
        OK(grpc_call_async(&axpy, &ids[0], N, 2.0, x, y));
        OK(grpc_call_async(&axpy, &ids[1], N, 3.0, x, z));
        OK(grpc_wait_and(ids, 2));
        OK(grpc_call(&axpy, N, 1.0, y, z));
    }
    OK(grpc_map_error_np());
    CHECK(is_all(z, 115));
}

/* A call reads the result of an earlier one, and nobody waits in the block; the sessions are waited for after it. */
static void servers_run_ahead(void) {
    grpc_sessionid_t id;
    int came = 0;
    BUFFERS();
    grpc_map("auto") for (int i = 0; i < 5; i++) grpc_call_async(&axpy, &id, N, 1.0, x, y);
    OK(grpc_map_error_np());
    CHECK(is_all(y, 15));
    for (;;) {
        OK(grpc_wait_any(&id));
        if (id == GRPC_SESSIONID_VOID) break;
        CHECK(came++ < 5);
    }
    EQUAL(5, came);
}

static void plain_calls_around(void) {
    BUFFERS();
    OK(grpc_call(&axpy, N, 1.0, x, y));
    grpc_map("auto") { grpc_call(&axpy, N, 1.0, y, z); }
    OK(grpc_call(&sum, (long)N, z, &total));
    EQUAL(111.0 * N, total);
}

static void an_empty_block(void) {
    int runs = 0;
    BEGIN();
    grpc_map("auto") {}
    OK(grpc_map_error_np());
    grpc_map(NULL) {
        grpc_local() runs++;
    }
    OK(grpc_map_error_np());
    EQUAL(1, runs);
}

static void the_programs_own_work(void) {
    int runs = 0;
    double seen = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        grpc_local(grpc_local_reads(y)) {
            runs++;
            seen = y[N - 1];
        }
        grpc_call(&axpy, N, 1.0, x, y);
    }
    OK(grpc_map_error_np());
    EQUAL(1, runs);
    EQUAL(11, seen);
    CHECK(is_all(y, 12));
}

static void work_that_changes_a_buffer(int is_said) {
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        if (is_said) grpc_local_writes(y);
        grpc_local(grpc_local_reads(y)) {
            for (int i = 0; i < N; i++) y[i] *= 2;
        }
        grpc_call(&axpy, N, 1.0, y, z);
    }
    CHECK(is_all(y, 22));
    CHECK(is_all(z, 122));
}

static void work_that_says_what_it_changes(void) { work_that_changes_a_buffer(1); }
static void work_that_does_not_say_what_it_changes(void) { work_that_changes_a_buffer(0); }

static void an_earlier_value(void) {
    double first = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        OK(grpc_fetch(y));
        grpc_local() first = y[0];
        grpc_call(&axpy, N, 1.0, x, y);
    }
    EQUAL(11, first);
    CHECK(is_all(y, 12));
}

static void left_by_break(void) {
    int after = 0;
    BUFFERS();
    for (int i = 0; i < 3; i++) {
        grpc_map("auto") {
            grpc_call(&axpy, N, 1.0, x, y);
            if (i == 1) break;
            grpc_call(&axpy, N, 1.0, x, z);
        }
        after++;
    }
    OK(grpc_map_error_np());
    EQUAL(3, after);
    CHECK(is_all(y, 13));
    CHECK(is_all(z, 102));
}

static void left_by_continue(void) {
    BUFFERS();
    for (int i = 0; i < 3; i++) grpc_map("auto") {
            grpc_call(&axpy, N, 1.0, x, y);
            if (i == 1) continue;
            grpc_call(&axpy, N, 1.0, x, z);
        }
    CHECK(is_all(y, 13));
    CHECK(is_all(z, 102));
}

static int runs_of_return;

static double returns(grpc_function_handle_t *axpy, double *x, double *y) {
    double factor = 1;
    grpc_map("auto") {
        runs_of_return++;
        grpc_local() factor = 3;
        grpc_call(axpy, N, 1.0, x, y);
        grpc_fetch(y);
        return factor * y[0];
    }
    return -1;
}

static void left_by_return(void) {
    BUFFERS();
    runs_of_return = 0;
    EQUAL(33, returns(&axpy, x, y));
    EQUAL(2, runs_of_return);
    EQUAL(0, grpc_map_phase_np());
    CHECK(is_all(y, 11));
}

static void left_by_goto(void) {
    int runs = 0;
    BUFFERS();
    grpc_map("auto") {
        runs++;
        grpc_call(&axpy, N, 1.0, x, y);
        goto out;
    }
    CHECK(!"the block's end is not reached");
out:
    EQUAL(2, runs);
    CHECK(is_all(y, 11));
}

static void a_block_in_a_block(void) {
    int runs = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        grpc_map(NULL) {
            runs++;
            grpc_call(&axpy, N, 1.0, y, z);
        }
        grpc_call(&sum, (long)N, z, &total);
    }
    OK(grpc_map_error_np());
    EQUAL(2, runs);
    EQUAL(111.0 * N, total);
}

static void handles_of_the_block(void) {
    BUFFERS();
    grpc_map("auto") {
        grpc_function_handle_t own;
        OK(grpc_function_handle_default(&own, "gridrpc/sum"));
        grpc_call(&own, (long)N, x, &total);
        OK(grpc_function_handle_destruct(&own));
    }
    OK(grpc_map_error_np());
    EQUAL(N, total);
}

static void parts_of_a_buffer(void) {
    double half = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, N / 2, 1.0, x, y);
        grpc_call(&axpy, N / 2, 2.0, x, y + N / 2);
        grpc_call(&sum, (long)N, y, &total);
        grpc_call(&sum, (long)N / 2, y + N / 4, &half);
    }
    OK(grpc_map_error_np());
    EQUAL(11, y[0]);
    EQUAL(12, y[N - 1]);
    EQUAL(11.0 * N / 2 + 12.0 * N / 2, total);
    EQUAL(11.0 * N / 4 + 12.0 * N / 4, half);
}

static void results_that_stay_remote(void) {
    BUFFERS();
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&axpy, N, 1.0, x, y);
    }
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&axpy, N, 1.0, x, y);
    }
    OK(grpc_call(&sum, (long)N, y, &total));
    EQUAL(12.0 * N, total);
    OK(grpc_fetch(y));
    CHECK(is_all(y, 12));
    OK(grpc_forget_np(y));
}

static void parts_of_what_stays_remote(void) {
    double half = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&axpy, N, 1.0, x, y);
    }
    OK(grpc_call(&sum, (long)N / 2, y + N / 4, &half));
    EQUAL(11.0 * N / 2, half);
    CHECK(is_all(y, 11));
}

static void a_call_that_fails(void) {
    grpc_error_t failed = GRPC_NO_ERROR;
    BUFFERS();
    HANDLE(bad, "exit");
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        failed = grpc_call(&bad, 1);
        grpc_call(&axpy, N, 1.0, y, z);
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, failed);
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    CHECK(is_all(z, 111));
}

static void what_reads_a_failed_result(void) {
    BUFFERS();
    HANDLE(bad, "refuses");
    grpc_map("auto") {
        grpc_error_t failed = grpc_call(&bad, N, y);
        EXPECT(grpc_map_phase_np() == 2 ? GRPC_COMMUNICATION_FAILED : GRPC_NO_ERROR, failed);
        grpc_call(&sum, (long)N, y, &total);
        grpc_call(&axpy, N, 1.0, x, z);
    }
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_map_error_np());
    EQUAL(-1, total);
    CHECK(is_all(z, 101));
    OK(grpc_call(&sum, (long)N, x, &total));
    EQUAL(N, total);
}

/* A variable of a function that the block calls: its result is discarded before the block ends. */
static grpc_error_t two_steps(grpc_function_handle_t *axpy, double *in, double *out) {
    double between[N];
    fill(between, 0);
    grpc_call(axpy, N, 2.0, in, between);
    grpc_call(axpy, N, 1.0, between, out);
    return grpc_forget_np(between);
}

static void buffers_that_end_before_the_block(void) {
    BUFFERS();
    grpc_map("auto") OK(two_steps(&axpy, x, y));
    OK(grpc_map_error_np());
    CHECK(is_all(y, 12));
}

static void what_stays_remote_is_the_programs_once_it_is_fetched(void) {
    BUFFERS();
    grpc_map("auto") {
        grpc_stays_remote(y);
        grpc_call(&axpy, N, 1.0, x, y);
        grpc_local(grpc_local_reads(y)) {}
    }
    fill(y, 0);
    OK(grpc_call(&sum, (long)N, y, &total));
    EQUAL(0, total);
}

static void a_buffer_that_was_written_in_part_since(void) {
    double last = 0;
    BUFFERS();
    grpc_map("auto") {
        grpc_call(&axpy, N, 1.0, x, y);
        grpc_call(&axpy, 10, 1.0, x, y);
        grpc_local(grpc_local_reads(y)) last = y[0] + y[N - 1];
    }
    OK(grpc_map_error_np());
    EQUAL(23, last);
}

static void handles_of_before_the_block_are_destructed_once(void) {
    BUFFERS();
    grpc_map("auto") {
        OK(grpc_call(&axpy, N, 1.0, x, y));
        OK(grpc_function_handle_destruct(&axpy));
    }
    OK(grpc_map_error_np());
    CHECK(is_all(y, 11));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_call(&axpy, N, 1.0, x, y));
}

static void sizes_beyond_memory(void) {
    static float a[4], b[4];
    BUFFERS();
    HANDLE(transpose, "transpose");
    grpc_map("auto") {
        EXPECT(GRPC_RPC_REFUSED, grpc_call(&transpose, 2147483647, 2147483647, a, b));
        grpc_call(&axpy, N, 1.0, x, y);
    }
    EXPECT(GRPC_RPC_REFUSED, grpc_map_error_np());
    CHECK(is_all(y, 11));
}

static void time_limits_hold(void) {
    grpc_sessionid_t id;
    grpc_error_t waited = GRPC_NO_ERROR, called = GRPC_NO_ERROR;
    BEGIN();
    HANDLE(loop, "loop");
    OK(grpc_function_handle_set_timeout_np(&loop, 0.2));
    grpc_map("auto") {
        OK(grpc_call_async(&loop, &id, 1));
        waited = grpc_wait(id);
    }
    EXPECT(GRPC_SESSION_FAILED, waited);
    EXPECT(GRPC_TIMEOUT_NP, grpc_get_error(id));
    EXPECT(GRPC_TIMEOUT_NP, grpc_map_error_np());
    grpc_map("auto") called = grpc_call(&loop, 1);
    EXPECT(GRPC_TIMEOUT_NP, called);
    EXPECT(GRPC_TIMEOUT_NP, grpc_map_error_np());
}

static void the_session_is_not_ended_within(void) {
    BUFFERS();
    grpc_map("auto") {
        EXPECT(GRPC_OTHER_ERROR_CODE, grpc_finalize());
        grpc_call(&axpy, N, 1.0, x, y);
    }
    OK(grpc_map_error_np());
    CHECK(is_all(y, 11));
}

static void a_call_that_was_not_discovered(void) {
    int run = 0;
    BUFFERS();
    grpc_map("auto") {
        run++;
        if (run == 2) grpc_call(&axpy, N, 1.0, x, y);
        grpc_call(&axpy, N, 1.0, y, z);
    }
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "gridrpc/axpy") != NULL);
    CHECK(is_all(y, 11));
    CHECK(is_all(z, 111));
}

static void a_call_that_does_not_come(void) {
    int run = 0;
    BUFFERS();
    grpc_map("auto") {
        run++;
        if (run == 1) grpc_call(&axpy, N, 1.0, x, y);
        grpc_call(&axpy, N, 1.0, x, z);
    }
    EXPECT(GRPC_MAP_DIFFERS_NP, grpc_map_error_np());
    CHECK(is_all(y, 10));
    CHECK(is_all(z, 101));
}

static void a_heuristic_that_is_not_known(void) {
    BUFFERS();
    grpc_map("no-such-heuristic") { grpc_call(&axpy, N, 1.0, x, y); }
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "no-such-heuristic") != NULL);
    CHECK(is_all(y, 11));
}

static void blocks_before_initialize(void) {
    grpc_function_handle_t handle = {0, 0};
    int runs = 0, y;
    grpc_map("auto") {
        runs++;
        EXPECT(GRPC_NOT_INITIALIZED, grpc_call(&handle, 1, &y));
    }
    EXPECT(GRPC_NOT_INITIALIZED, grpc_map_error_np());
    EQUAL(1, runs);
}

static void sessions_are_discovered_as_ended(void) {
    grpc_sessionid_t ids[2], id;
    int results[2] = {0}, rounds = 0;
    BEGIN();
    HANDLE(add, "add");
    grpc_map("auto") {
        for (int i = 0; i < 2; i++) OK(grpc_call_async(&add, &ids[i], i, &results[i]));
        while (grpc_probe(ids[0]) == GRPC_NOT_COMPLETED) {}
        OK(grpc_get_error(ids[0]));
        for (rounds = 0;; rounds++) {
            OK(grpc_wait_any(&id));
            if (id == GRPC_SESSIONID_VOID) break;
        }
    }
    OK(grpc_map_error_np());
    EQUAL(2, rounds);
    EQUAL(1, results[0]);
    EQUAL(2, results[1]);
}
const test_case map_cases[] = {
    {"map: a chain of calls", a_chain},
    {"map: calls that do not wait", calls_that_do_not_wait},
    {"map: servers run ahead, and sessions are waited for outside", servers_run_ahead},
    {"map: plain calls around a block", plain_calls_around},
    {"map: an empty block, and one with work of the program only", an_empty_block},
    {"map: the program's own work reads a result", the_programs_own_work},
    {"map: work that says which buffer it changes", work_that_says_what_it_changes},
    {"map: work that does not say which buffer it changes", work_that_does_not_say_what_it_changes},
    {"map: an earlier value is fetched", an_earlier_value},
    {"map: left by break", left_by_break},
    {"map: left by continue", left_by_continue},
    {"map: left by return, with a value of the second run", left_by_return},
    {"map: left by goto", left_by_goto},
    {"map: a block in a block", a_block_in_a_block},
    {"map: handles made in the block", handles_of_the_block},
    {"map: parts of a buffer", parts_of_a_buffer},
    {"map: results that stay remote", results_that_stay_remote},
    {"map: parts of what stays remote are read by a plain call", parts_of_what_stays_remote},
    {"map: a call that fails", a_call_that_fails},
    {"map: what reads a failed result fails, and everything else goes on", what_reads_a_failed_result},
    {"map: buffers that end before the block are given up", buffers_that_end_before_the_block},
    {"map: what stays remote is the program's once it is fetched",
     what_stays_remote_is_the_programs_once_it_is_fetched},
    {"map: a buffer that was written in part since is read whole", a_buffer_that_was_written_in_part_since},
    {"map: handles of before the block are destructed once", handles_of_before_the_block_are_destructed_once},
    {"map: sizes beyond memory are refused", sizes_beyond_memory},
    {"map: time limits hold", time_limits_hold},
    {"map: grpc_finalize is refused within", the_session_is_not_ended_within},
    {"map: a call that was not discovered", a_call_that_was_not_discovered},
    {"map: a discovered call that does not come", a_call_that_does_not_come},
    {"map: a heuristic that is not known", a_heuristic_that_is_not_known},
    {"map: a block before initialize", blocks_before_initialize},
    {"map: sessions are discovered as ended", sessions_are_discovered_as_ended},
    {NULL, NULL},
};
