/* Heuristics defined by the program: tests of what grpc_heuristic.h promises. */
#include "suite.h"

#include <math.h>
#include <stdlib.h>

enum { N = 1000, CALLS = 4 };

static double x[N], y[CALLS][N];

static void fill(void) {
    suite_fill(x, N, 1);
    for (int call = 0; call < CALLS; call++) suite_fill(y[call], N, call);
}

/* A block of independent calls; and whether its results are right. */
#define STEP(axpy)                                                                                                     \
    do {                                                                                                               \
        for (int call = 0; call < CALLS; call++) grpc_call(&axpy, N, 1.0, x, y[call]);                                 \
    } while (0)

static int is_right(void) {
    for (int call = 0; call < CALLS; call++)
        if (!suite_is_all(y[call], N, call + 1)) return 0;
    return 1;
}

/* Returns the number of the call's server in the plan of the last block; -1 if there is none. */
static int on(size_t call) {
    char *plan, name[64];
    int length;
    if (grpc_plan_get_np(&plan) != GRPC_NO_ERROR) return -1;
    length = grpc_plan_server_np(plan, call, name, sizeof name);
    free(plan);
    return length > 0 ? name[length - 1] - '1' : -1;
}

/* Settings of the heuristics, and what they report. */
typedef struct asked {
    int runs;
    int first;  /* the server of the first call; the others follow in turn */
    int result; /* the result of the heuristic */
    int is_reversed, is_doubled;
    int wrong;  /* line number of the first failed check */
    grpc_problem_np seen;
    grpc_error_t called;
} asked;

static int in_turn(const grpc_problem_np *problem, int *servers, int *order, void *context) {
    asked *what = context;
    size_t count = problem->calls_count;
    what->runs++;
    what->seen = *problem;
    for (size_t call = 0; call < count; call++) servers[call] = (what->first + (int)call) % (int)problem->servers_count;
    if (what->first < 0) servers[0] = what->first;
    for (size_t call = 0; what->is_reversed && call < count; call++) order[call] = (int)(count - 1 - call);
    if (what->is_doubled) order[0] = order[count - 1];
    return what->result;
}

static void by_a_function_of_the_program(void) {
    asked what = {0};
    what.first = 2;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_heuristic_define_np("in-turn", in_turn, &what, 0));
    grpc_map("in-turn") STEP(axpy);
    OK(grpc_map_error_np());
    CHECK(is_right());
    EQUAL(1, what.runs);
    EQUAL(CALLS, what.seen.calls_count);
    EQUAL(4, what.seen.servers_count);
    for (int call = 0; call < CALLS; call++) EQUAL((2 + call) % 4, on(call));
    /* The same name with another function. */
    what.first = 0;
    what.is_reversed = 1;
    grpc_plan("in-turn") STEP(axpy);
    OK(grpc_map_error_np());
    EQUAL(2, what.runs);
    EQUAL(0, on(0));
    EQUAL(1, on(1));
    OK(grpc_heuristic_define_np("in-turn", NULL, NULL, 0));
    grpc_map("in-turn") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    EQUAL(2, what.runs);
}

#define SEEN(is_so)                                                                                                    \
    do {                                                                                                               \
        if (!(is_so) && what->wrong == 0) what->wrong = __LINE__;                                                      \
    } while (0)

/* Two calls; the second reads the result of the first. */
static int looks(const grpc_problem_np *problem, int *servers, int *order, void *context) {
    asked *what = context;
    int client = (int)problem->servers_count;
    const grpc_problem_call_np *first = &problem->calls[0], *second = &problem->calls[1];
    what->runs++;
    SEEN(problem->calls_count == 2 && strcmp(first->function, "gridrpc/axpy") == 0);
    SEEN(strcmp(second->function, "gridrpc/sum") == 0 && second->work_flops == N && first->work_flops == 2 * N);
    SEEN(first->inputs_count == 2 && first->outputs_count == 1 && second->inputs_count == 1);
    SEEN(second->inputs[0] == first->outputs[0]);
    for (int server = 0; server < client; server++) {
        const grpc_problem_server_np *known = &problem->servers[server];
        SEEN(strncmp(known->name, "server-", 7) == 0 && known->memory_bytes > 0 && known->slots > 0);
        SEEN(known->busy_seconds[0] >= 0 && first->seconds[server] > 0 && first->seconds[server] < HUGE_VAL);
        SEEN(grpc_problem_link_seconds_np(problem, server, server, 1000) == 0);
        SEEN(grpc_problem_link_seconds_np(problem, client, server, 1 << 20) > 0);
    }
    SEEN(grpc_problem_link_seconds_np(problem, client + 1, 0, 1) == HUGE_VAL);
    SEEN(grpc_problem_link_seconds_np(problem, 0, -1, 1) == HUGE_VAL);
    for (size_t number = 0; number < problem->data_count; number++) {
        const grpc_problem_datum_np *datum = &problem->data[number];
        SEEN(datum->size_bytes == N * sizeof(double) || datum->size_bytes == sizeof(double));
        if (datum->producer < 0) SEEN(datum->holders_count == 1 && datum->holders[0] == client && datum->readers > 0);
        if (datum->producer == 1) SEEN(datum->is_wanted && datum->readers == 0);
    }
    SEEN(order[0] == 0 && order[1] == 1);
    servers[0] = servers[1] = 0;
    return 0;
}

static void it_sees_the_block_and_the_grid(void) {
    asked what = {0};
    double total = 0;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    HANDLE(sum, "sum");
    OK(grpc_heuristic_define_np("looks", looks, &what, 5.0));
    grpc_map("looks") {
        grpc_call(&axpy, N, 1.0, x, y[3]);
        grpc_call(&sum, (long)N, y[3], &total);
    }
    OK(grpc_map_error_np());
    EQUAL(0, what.wrong);
    EQUAL(1, what.runs);
    EQUAL(4.0 * N, total);
}

static void what_it_gives_is_checked(void) {
    asked what = {0};
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_heuristic_define_np("own", in_turn, &what, 0));
    what.result = 3;
    grpc_map("own") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "'own': it returned 3") != NULL);
    CHECK(is_right());
    what.result = 0;
    what.first = -7;
    grpc_plan("own") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "server -7 for call 0; servers have the numbers 0 to 3") != NULL);
    what.first = 0;
    what.is_doubled = 1;
    grpc_plan("own") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "an order that does not contain each call exactly once") != NULL);
}

/* An order in which a call precedes one whose result it reads. */
static void an_order_that_cannot_be(void) {
    asked what = {0};
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_heuristic_define_np("own", in_turn, &what, 0));
    what.is_reversed = 1;
    grpc_plan("own") {
        grpc_call(&axpy, N, 1.0, x, y[0]);
        grpc_call(&axpy, N, 1.0, y[0], y[1]);
    }
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "own") != NULL);
}

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_open, is_left;
} gate;

/* Waits until it may continue, and reports that it has. */
static int waits(const grpc_problem_np *problem, int *servers, int *order, void *context) {
    gate *own = context;
    (void)problem;
    (void)order;
    servers[0] = 0;
    pthread_mutex_lock(&own->lock);
    while (!own->is_open) pthread_cond_wait(&own->changed, &own->lock);
    own->is_left = 1;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->lock);
    return 0;
}

static void a_limit_of_time(void) {
    gate own = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_heuristic_define_np("slow", waits, &own, 0.05));
    grpc_map("slow") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "within 0.05 s") != NULL);
    CHECK(is_right());
    pthread_mutex_lock(&own.lock);
    own.is_open = 1;
    pthread_cond_broadcast(&own.changed);
    while (!own.is_left) pthread_cond_wait(&own.changed, &own.lock);
    pthread_mutex_unlock(&own.lock);
}

static int calls(const grpc_problem_np *problem, int *servers, int *order, void *context) {
    asked *what = context;
    grpc_function_handle_t add;
    int two = 0;
    what->runs++;
    (void)order;
    for (size_t call = 0; call < problem->calls_count; call++) servers[call] = 1;
    what->called = grpc_function_handle_default(&add, "gridrpc/add");
    if (what->called == GRPC_NO_ERROR) what->called = grpc_call(&add, 1, &two);
    return two == 2 ? 0 : 9;
}

static void it_may_call_and_maps_again(void) {
    asked what = {0};
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_heuristic_define_np("calls", calls, &what, 0));
    grpc_map("calls") {
        OK(grpc_call(&axpy, N, 1.0, x, y[0]));
        OK(grpc_map_again_np());
        for (int call = 1; call < CALLS; call++) OK(grpc_call(&axpy, N, 1.0, x, y[call]));
    }
    OK(grpc_map_error_np());
    OK(what.called);
    EQUAL(2, what.runs);
    CHECK(is_right());
}

static void names_and_limits(void) {
    BEGIN();
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_heuristic_define_np("heft", in_turn, NULL, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_heuristic_define_np("", in_turn, NULL, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_heuristic_define_np(NULL, in_turn, NULL, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_heuristic_define_np("own", in_turn, NULL, -1));
    CHECK(strstr(grpc_last_error_text_np(), "'own' is -1 s") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_heuristic_define_np("own", in_turn, NULL, HUGE_VAL));
    OK(grpc_heuristic_define_np("none", NULL, NULL, 0));
    OK(grpc_finalize());
    EXPECT(GRPC_NOT_INITIALIZED, grpc_heuristic_define_np("own", in_turn, NULL, 0));
}

const test_case heuristic_cases[] = {
    {"heuristic: by a function of the program", by_a_function_of_the_program},
    {"heuristic: it sees the block and the grid", it_sees_the_block_and_the_grid},
    {"heuristic: what it gives is checked", what_it_gives_is_checked},
    {"heuristic: an order that cannot be", an_order_that_cannot_be},
    {"heuristic: a limit of time", a_limit_of_time},
    {"heuristic: it may call, and maps again", it_may_call_and_maps_again},
    {"heuristic: names and limits", names_and_limits},
    {NULL, NULL},
};
