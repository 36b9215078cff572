/* Plans of blocks: tests of what grpc_plan.h promises. */
#include "suite.h"

#include <math.h>
#include <stdlib.h>

enum { N = 1000, NAME = 64 };

static double x[N], y[N], z[N];

static void fill(void) {
    suite_fill(x, N, 1);
    suite_fill(y, N, 10);
    suite_fill(z, N, 100);
}

/* A block with two calls that are part of a plan, and its results. */
#define STEP(axpy)                                                                                                     \
    do {                                                                                                               \
        grpc_call(&axpy, N, 2.0, x, y);                                                                                \
        grpc_call(&axpy, N, 1.0, y, z);                                                                                \
    } while (0)
#define RIGHT() (suite_is_all(y, N, 12) && suite_is_all(z, N, 112))

/* Returns whether the plan has the call on that server. */
static int is_on(const char *plan, size_t call, const char *server) {
    char name[NAME];
    return grpc_plan_server_np(plan, call, name, sizeof name) > 0 && strcmp(name, server) == 0;
}

/* Returns the content of a file; NULL if there is none. */
static char *content(const char *name) {
    FILE *file = fopen(name, "r");
    char *text;
    long size;
    if (file == NULL) return NULL;
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    text = calloc((size_t)size + 1, 1);
    if (text != NULL && fread(text, 1, (size_t)size, file) != (size_t)size) text[0] = '\0';
    fclose(file);
    return text;
}

static void planned_and_not_called(void) {
    int runs = 0, seen = 0;
    double seconds = -1, needed = -1, call_by_call = -1, available = -1;
    size_t calls = 0;
    char *plan = NULL;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    grpc_plan("heft") {
        runs++;
        STEP(axpy);
        grpc_local() seen++;
        if (runs > 0) break;
        runs += 10;
    }
    OK(grpc_map_error_np());
    EQUAL(1, runs);
    EQUAL(0, seen);
    EQUAL(0, grpc_map_phase_np());
    CHECK(suite_is_all(y, N, 10) && suite_is_all(z, N, 100));
    OK(grpc_plan_get_np(&plan));
    OK(grpc_plan_predicted_np(plan, &seconds, &calls));
    CHECK(seconds > 0);
    EQUAL(2, calls);
    OK(grpc_plan_client_memory_np(plan, &needed, &call_by_call, &available));
    CHECK(needed >= 2 * sizeof y && needed <= call_by_call && available > needed);
    OK(grpc_plan_client_memory_np(plan, NULL, NULL, NULL));
    CHECK(strstr(plan, "\"heuristic\": \"heft\"") != NULL && strstr(plan, "\"problem\": ") != NULL);
    free(plan);
    /* The plan as text. */
    OK(grpc_map_report_np("plan.txt"));
    char *words = content("plan.txt");
    CHECK(words != NULL && strstr(words, "plan by heft: 2 tasks on") == words);
    free(words);
    remove("plan.txt");
}

static void saved_edited_and_run(void) {
    char *plan = NULL, *moved = NULL, *ran = NULL;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    grpc_plan("auto") STEP(axpy);
    OK(grpc_map_error_np());
    OK(grpc_plan_save_np("plan.json"));
    plan = content("plan.json");
    CHECK(plan != NULL);
    OK(grpc_plan_move_np(plan, 0, "server-3", &moved));
    CHECK(is_on(moved, 0, "server-3"));
    free(plan);
    OK(grpc_plan_move_np(moved, 1, "server-4", &plan));
    OK(grpc_plan_define_np("spread", plan));
    grpc_map("spread") STEP(axpy);
    OK(grpc_map_error_np());
    CHECK(RIGHT());
    OK(grpc_plan_get_np(&ran));
    CHECK(is_on(ran, 0, "server-3") && is_on(ran, 1, "server-4"));
    free(ran);
    free(moved);
    free(plan);
    /* The file is unchanged, and can be used as well. */
    fill();
    grpc_map("file:plan.json") STEP(axpy);
    OK(grpc_map_error_np());
    CHECK(RIGHT());
    remove("plan.json");
}

static void the_plan_of_a_block_that_ran(void) {
    char *plan = NULL;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    grpc_map("heft") STEP(axpy);
    OK(grpc_map_error_np());
    OK(grpc_plan_get_np(&plan));
    OK(grpc_plan_define_np("again", plan));
    fill();
    grpc_map("again") STEP(axpy);
    OK(grpc_map_error_np());
    CHECK(RIGHT());
    /* Only the types of arguments count. */
    fill();
    grpc_map("again") {
        grpc_call(&axpy, N, 5.0, x, z);
        grpc_call(&axpy, N, 0.0, z, y);
    }
    OK(grpc_map_error_np());
    CHECK(suite_is_all(z, N, 105) && suite_is_all(y, N, 10));
    OK(grpc_plan_define_np("again", NULL));
    grpc_map("again") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "'again'") != NULL);
    free(plan);
}

/* Each call runs by itself then, and its results are right. */
static void a_plan_that_does_not_fit(void) {
    char *plan = NULL;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    grpc_plan("heft") grpc_call(&axpy, N, 2.0, x, y);
    OK(grpc_map_error_np());
    OK(grpc_plan_get_np(&plan));
    OK(grpc_plan_define_np("one", plan));
    free(plan);
    grpc_map("one") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "'one'") != NULL);
    CHECK(RIGHT());
    grpc_plan("one") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_get_np(&plan));
    fill();
    grpc_map("file:no/such/plan.json") STEP(axpy);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_map_error_np());
    CHECK(strstr(grpc_last_error_text_np(), "no/such/plan.json") != NULL);
    CHECK(RIGHT());
}

static void mistakes(void) {
    char *plan = NULL, *moved = NULL, name[NAME];
    double seconds;
    BEGIN();
    HANDLE(axpy, "axpy");
    fill();
    /* Calls that are not part of a plan. */
    grpc_plan("auto") {}
    OK(grpc_map_error_np());
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_get_np(&plan));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_save_np("none.json"));
    CHECK(fopen("none.json", "r") == NULL);
    grpc_plan(NULL) STEP(axpy);
    OK(grpc_map_error_np());
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_get_np(NULL));
    OK(grpc_plan_get_np(&plan));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_define_np("heft", plan));
    CHECK(strstr(grpc_last_error_text_np(), "take another name") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_define_np("auto[a=1]", plan));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_define_np("", plan));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_define_np("file:a", plan));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_define_np(NULL, plan));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_define_np("a", "no plan"));
    CHECK(strstr(grpc_last_error_text_np(), "the plan") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_move_np(plan, 2, "server-1", &moved));
    CHECK(strstr(grpc_last_error_text_np(), "task 2") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_move_np(plan, 0, "nobody", &moved));
    CHECK(strstr(grpc_last_error_text_np(), "nobody") != NULL);
    CHECK(moved == NULL);
    EQUAL(-1, grpc_plan_server_np(plan, 2, name, sizeof name));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_predicted_np("{}", &seconds, NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_plan_client_memory_np("{}", &seconds, NULL, NULL));
    OK(grpc_plan_predicted_np(plan, NULL, NULL));
    free(plan);
}

static void in_a_block_it_is_refused(void) {
    int runs = 0;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    grpc_map("auto") {
        grpc_plan("auto") runs++;
        STEP(axpy);
    }
    OK(grpc_map_error_np());
    EQUAL(0, runs);
    CHECK(RIGHT());
    /* In the opposite case the inner block joins. */
    grpc_plan("auto") {
        runs++;
        grpc_map("heft") STEP(axpy);
    }
    OK(grpc_map_error_np());
    EQUAL(1, runs);
    CHECK(RIGHT());
}

static void without_a_session(void) {
    int runs = 0;
    char *plan = NULL;
    grpc_plan("auto") runs++;
    EQUAL(0, runs);
    EXPECT(GRPC_NOT_INITIALIZED, grpc_map_error_np());
    EXPECT(GRPC_NOT_INITIALIZED, grpc_plan_get_np(&plan));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_plan_define_np("a", NULL));
}

/* The function continues after the block. */
static int leaves(grpc_function_handle_t *axpy) {
    grpc_plan("auto") {
        grpc_call(axpy, N, 2.0, x, y);
        return 1;
    }
    return 2;
}

static void a_return_ends_the_block(void) {
    char *plan = NULL;
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    EQUAL(2, leaves(&axpy));
    OK(grpc_map_error_np());
    OK(grpc_plan_get_np(&plan));
    CHECK(strstr(plan, "gridrpc/axpy") != NULL);
    free(plan);
    EQUAL(10, y[0]);
}

const test_case plan_cases[] = {
    {"plan: a block is planned, and not called", planned_and_not_called},
    {"plan: saved, edited, and run", saved_edited_and_run},
    {"plan: of a block that ran", the_plan_of_a_block_that_ran},
    {"plan: one that does not fit is an error of the block", a_plan_that_does_not_fit},
    {"plan: mistakes", mistakes},
    {"plan: none in a block", in_a_block_it_is_refused},
    {"plan: none without a session", without_a_session},
    {"plan: a return ends the block", a_return_ends_the_block},
    {NULL, NULL},
};
