/* Objects of classes (grpc_objects.h): their methods share state, run in order and at most once. */
#include "suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N = 5000 };

static double x[N], y[N];

static void fill(void) {
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = 0;
    }
}

#define OBJECT(object)                                                                                                 \
    grpc_object_handle_t_np object;                                                                                    \
    OK(grpc_object_handle_default_np(&object, "account"))

static void state_is_each_objects_own(void) {
    long sum = 0, count = 0;
    BEGIN();
    OBJECT(a);
    OBJECT(b);
    OK(grpc_invoke_np(&a, "add", 5, &sum, &count));
    EQUAL(105, sum);
    OK(grpc_invoke_np(&b, "add", 1, &sum, &count));
    EQUAL(101, sum);
    OK(grpc_invoke_np(&a, "add", -10, &sum, &count));
    EQUAL(95, sum);
    EQUAL(2, count);
    OK(grpc_object_handle_destruct_np(&a));
    OK(grpc_invoke_np(&b, "add", 1, &sum, &count));
    EQUAL(102, sum);
    OK(grpc_object_handle_destruct_np(&b));
}

/* By a library's functions: the library's variables belong to the object, too. */
static void methods_of_a_library(void) {
    grpc_object_handle_t_np objects[2];
    int number = 0;
    BEGIN();
    OK(grpc_object_handle_array_init_np(objects, 2, suite_server(), "gridrpc/plain"));
    OK(grpc_invoke_np(&objects[0], "next", &number));
    OK(grpc_invoke_np(&objects[0], "next", &number));
    EQUAL(2, number);
    OK(grpc_invoke_np(&objects[1], "next", &number));
    EQUAL(1, number);
    OK(grpc_object_handle_array_destruct_np(objects, 2));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_invoke_np(&objects[1], "next", &number));
}

/* The calls do not wait for each other; large arguments arrive later than small ones. */
static void methods_run_in_order(void) {
    enum { CALLS = 30 };
    grpc_sessionid_t ids[3 * CALLS];
    long sums[CALLS], counts[CALLS];
    double first[CALLS] = {0}, all[CALLS][2];
    fill();
    BEGIN();
    OBJECT(a);
    for (int i = 0; i < CALLS; i++) {
        x[1] = i;
        OK(grpc_invoke_async_np(&a, "keep", &ids[3 * i], N, x));
        OK(grpc_invoke_async_np(&a, "scale", &ids[3 * i + 1], 2.0, 2, all[i]));
        OK(grpc_invoke_async_np(&a, "add", &ids[3 * i + 2], 1, &sums[i], &counts[i]));
    }
    OK(grpc_wait_and(ids, 3 * CALLS));
    for (int i = 0; i < CALLS; i++) {
        first[i] = all[i][1];
        EQUAL(2 * i, first[i]);
        EQUAL(103 + 3 * i, sums[i]);
        EQUAL(i + 1, counts[i]);
    }
}

static void they_spread_over_servers(void) {
    grpc_object_handle_t_np objects[4];
    grpc_session_details_np infos[4];
    long sum, count;
    BEGIN();
    OK(grpc_object_handle_array_default_np(objects, 4, "account"));
    for (int i = 0; i < 4; i++) {
        grpc_sessionid_t id;
        OK(grpc_invoke_async_np(&objects[i], "add", &id, i, &sum, &count));
        OK(grpc_wait(id));
        OK(grpc_session_details_get_np(id, &infos[i]));
        for (int j = 0; j < i; j++) CHECK(strcmp(infos[i].server, infos[j].server) != 0);
    }
    OK(grpc_object_handle_array_destruct_np(objects, 4));
    OK(grpc_object_handle_init_np(objects, suite_server(), "account"));
    grpc_sessionid_t id;
    OK(grpc_invoke_async_np(objects, "add", &id, 0, &sum, &count));
    OK(grpc_wait(id));
    OK(grpc_session_details_get_np(id, infos));
    TEXT(suite_server(), infos[0].server);
}

static void an_end_waits_for_calls(void) {
    char path[] = "/tmp/gridrpc-object-XXXXXX", text[32] = "";
    grpc_sessionid_t ids[3];
    long sum, count;
    int file = mkstemp(path);
    CHECK(file >= 0);
    close(file);
    BEGIN();
    OBJECT(a);
    OK(grpc_invoke_async_np(&a, "add", &ids[0], 1, &sum, &count));
    OK(grpc_invoke_async_np(&a, "at_end", &ids[1], path));
    OK(grpc_invoke_async_np(&a, "add", &ids[2], 6, &sum, &count));
    OK(grpc_object_handle_destruct_np(&a));
    FILE *said = fopen(path, "r");
    int got = said != NULL && fgets(text, sizeof text, said) != NULL;
    if (said != NULL) fclose(said);
    unlink(path);
    CHECK(got);
    TEXT("107\n", text);
    OK(grpc_wait_and(ids, 3));
    EQUAL(107, sum);
}

static void what_is_none_is_told(void) {
    grpc_object_handle_t_np a, zeros = {0, 0}, b;
    grpc_function_handle_t function;
    grpc_sessionid_t id = 7;
    long sum, count;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_object_handle_default_np(&a, "account"));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_invoke_np(&zeros, "add", 1, &sum, &count));
    BEGIN();
    EXPECT(GRPC_CLASS_NOT_FOUND_NP, grpc_object_handle_default_np(&a, "acount"));
    CHECK(strstr(grpc_last_error_text_np(), "did you mean 'gridrpc/account'") != NULL);
    EXPECT(GRPC_CLASS_NOT_FOUND_NP, grpc_object_handle_default_np(&a, "gridrpc/add"));
    EXPECT(GRPC_SERVER_NOT_FOUND, grpc_object_handle_init_np(&a, "nowhere", "account"));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_object_handle_default_np(NULL, "account"));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_object_handle_default_np(&a, NULL));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_invoke_np(&zeros, "add", 1, &sum, &count));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_object_handle_destruct_np(&zeros));
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_default(&function, "gridrpc/account.add"));
    CHECK(strstr(grpc_last_error_text_np(), "is a method") != NULL);
    OK(grpc_object_handle_default_np(&a, "gridrpc/account"));
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_invoke_np(&a, "ad", 1, &sum, &count));
    CHECK(strstr(grpc_last_error_text_np(), "are add, ") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_invoke_np(&a, "_finalize"));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_invoke_np(&a, NULL));
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_invoke_async_np(&a, "ad", &id, 1, &sum, &count));
    EQUAL(GRPC_SESSIONID_VOID, id);
    b = a;
    OK(grpc_object_handle_destruct_np(&a));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_object_handle_destruct_np(&a));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_invoke_np(&b, "add", 1, &sum, &count));
}

/* The handle of a session is that of its object. */
static void sessions_know_their_object(void) {
    grpc_object_handle_t_np *through = NULL;
    grpc_function_handle_t *function = NULL;
    grpc_sessionid_t id, other;
    long sum, count;
    int y = 0;
    BEGIN();
    OBJECT(a);
    HANDLE(add, "add");
    OK(grpc_invoke_async_np(&a, "add", &id, 1, &sum, &count));
    OK(grpc_call_async(&add, &other, 1, &y));
    OK(grpc_get_object_handle_np(&through, id));
    CHECK(through == &a);
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_get_object_handle_np(&through, other));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_get_handle(&function, id));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_get_object_handle_np(&through, 12345));
    OK(grpc_wait_all());
    OK(grpc_object_handle_destruct_np(&a));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_get_object_handle_np(&through, id));
}

/* The object is lost with its process, and nothing else is. */
static void a_crash_ends_the_object(void) {
    grpc_object_handle_t_np a, b;
    grpc_sessionid_t ids[3];
    long sum = 0, count = 0;
    BEGIN();
    OK(grpc_object_handle_init_np(&a, suite_server(), "account"));
    OK(grpc_object_handle_init_np(&b, suite_server(), "account"));
    OK(grpc_invoke_async_np(&a, "add", &ids[0], 1, &sum, &count));
    OK(grpc_invoke_async_np(&a, "leave", &ids[1], 3));
    OK(grpc_invoke_async_np(&a, "add", &ids[2], 1, &sum, &count));
    OK(grpc_wait(ids[0]));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(ids[1]));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_get_error(ids[1]));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(ids[2]));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_get_error(ids[2]));
    EQUAL(101, sum);
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_invoke_np(&a, "add", 1, &sum, &count));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_object_handle_destruct_np(&a));
    OK(grpc_invoke_np(&b, "add", 1, &sum, &count));
    EQUAL(101, sum);
    OK(grpc_object_handle_destruct_np(&b));
}

static void what_waits_can_be_cancelled(void) {
    grpc_sessionid_t runs, waits;
    long sum = 0, count = 0;
    BEGIN();
    OBJECT(a);
    OK(grpc_invoke_async_np(&a, "never", &runs, 0));
    OK(grpc_invoke_async_np(&a, "add", &waits, 1, &sum, &count));
    STOP(waits);
    EXPECT(GRPC_CANCELED_NP, grpc_get_error(waits));
    /* The running method is stopped together with its process. */
    OK(grpc_invoke_async_np(&a, "add", &waits, 1, &sum, &count));
    STOP(runs);
    EXPECT(GRPC_CANCELED_NP, grpc_get_error(runs));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(waits));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_get_error(waits));
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_object_handle_destruct_np(&a));
    EQUAL(0, count);
}

static void by_an_argument_stack(void) {
    grpc_sessionid_t id;
    long sum = 0, count = 0;
    int n = 7;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(3);
    EQUAL(0, grpc_arg_stack_push_arg(stack, &n));
    EQUAL(0, grpc_arg_stack_push_arg(stack, &sum));
    EQUAL(0, grpc_arg_stack_push_arg(stack, &count));
    BEGIN();
    OBJECT(a);
    EQUAL(0, grpc_invoke_arg_stack_np(&a, "add", stack));
    EQUAL(107, sum);
    id = grpc_invoke_arg_stack_async_np(&a, "add", stack);
    OK(grpc_wait(id));
    EQUAL(114, sum);
    EQUAL(-1, grpc_invoke_arg_stack_async_np(&a, "sub", stack));
    EQUAL(GRPC_FUNCTION_NOT_FOUND, grpc_last_error_get_np());
    EQUAL(0, grpc_arg_stack_destruct(stack));
}

static int told;

static void tell(int *at, int *more) {
    told += *at;
    *more = *at < 3;
}

static void methods_call_back(void) {
    long sum = 0, count = 0;
    told = 0;
    BEGIN();
    OBJECT(a);
    OK(grpc_invoke_np(&a, "tell", 10, tell));
    EQUAL(0 + 1 + 2 + 3, told);
    OK(grpc_invoke_np(&a, "add", 0, &sum, &count));
    EQUAL(104, sum);
}

static void remote_data_are_read(void) {
    grpc_remote_t r;
    fill();
    BEGIN();
    OBJECT(a);
    HANDLE(axpy, "axpy");
    OK(grpc_remote_new_np(&r, "r"));
    OK(grpc_remote_put_np(r, y, sizeof y));
    OK(grpc_call(&axpy, N, 2.0, x, r));
    OK(grpc_invoke_np(&a, "keep", N, r));
    OK(grpc_invoke_np(&a, "scale", 0.5, N, y));
    EQUAL(N - 1, y[N - 1]);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_invoke_np(&a, "scale", 0.5, N, r));
}

/* An existing object, and one that is made in the block; when the block ends, both have been called once for each
 * call. */
static void in_a_mapped_block(void) {
    long sum = 0, own = 0, count = 0, last = 0;
    fill();
    BEGIN();
    OBJECT(a);
    HANDLE(axpy, "axpy");
    grpc_map("auto") {
        grpc_object_handle_t_np b;
        OK(grpc_object_handle_default_np(&b, "account"));
        OK(grpc_call(&axpy, N, 2.0, x, y));
        OK(grpc_invoke_np(&a, "keep", N, y));
        OK(grpc_invoke_np(&b, "add", 1, &own, &count));
        OK(grpc_invoke_np(&a, "scale", 2.0, N, y));
        OK(grpc_call(&axpy, N, 1.0, x, y));
        OK(grpc_invoke_np(&a, "add", 1, &sum, &count));
        OK(grpc_object_handle_destruct_np(&b));
    }
    OK(grpc_map_error_np());
    EQUAL(101, sum);
    EQUAL(101, own);
    EQUAL(5.0 * (N - 1), y[N - 1]);
    OK(grpc_invoke_np(&a, "add", 1, &last, &count));
    EQUAL(102, last);
    EQUAL(2, count);
}

static void they_end_with_the_session(void) {
    grpc_sessionid_t id;
    long sum, count;
    BEGIN();
    OBJECT(a);
    OK(grpc_invoke_async_np(&a, "never", &id, 0));
    OK(grpc_finalize());
    BEGIN();
    EXPECT(GRPC_INVALID_OBJECT_HANDLE_NP, grpc_invoke_np(&a, "add", 1, &sum, &count));
    /* Their slots are free again. */
    grpc_object_handle_t_np more[4];
    OK(grpc_object_handle_array_default_np(more, 4, "account"));
    for (int i = 0; i < 4; i++) OK(grpc_invoke_np(&more[i], "add", 1, &sum, &count));
}

enum { THREADS = 4, EACH = 20 };

static void *adds(void *object) {
    long sum, count, failures = 0;
    for (int i = 0; i < EACH; i++) failures += grpc_invoke_np(object, "add", 1, &sum, &count) != GRPC_NO_ERROR;
    return (void *)failures;
}

static void from_many_threads(void) {
    pthread_t threads[THREADS];
    long sum = 0, count = 0;
    BEGIN();
    OBJECT(a);
    for (int i = 0; i < THREADS; i++) EQUAL(0, pthread_create(&threads[i], NULL, adds, &a));
    for (int i = 0; i < THREADS; i++) {
        void *failures;
        EQUAL(0, pthread_join(threads[i], &failures));
        CHECK(failures == NULL);
    }
    OK(grpc_invoke_np(&a, "add", 0, &sum, &count));
    EQUAL(100 + THREADS * EACH, sum);
    EQUAL(THREADS * EACH + 1, count);
}

const test_case object_cases[] = {
    {"objects: state is each one's own", state_is_each_objects_own},
    {"objects: methods of a library", methods_of_a_library},
    {"objects: methods run in the order of the calls", methods_run_in_order},
    {"objects: spread over servers, or on the one named", they_spread_over_servers},
    {"objects: an end waits for calls, and runs _finalize", an_end_waits_for_calls},
    {"objects: what is none is told", what_is_none_is_told},
    {"objects: sessions know their object", sessions_know_their_object},
    {"objects: a crash ends the object and nothing else", a_crash_ends_the_object},
    {"objects: a method that waits can be cancelled, one that runs ends the object", what_waits_can_be_cancelled},
    {"objects: by an argument stack", by_an_argument_stack},
    {"objects: methods call back", methods_call_back},
    {"objects: methods read remote data", remote_data_are_read},
    {"objects: in a mapped block", in_a_mapped_block},
    {"objects: they end with the session", they_end_with_the_session},
    {"objects: one object from many threads", from_many_threads},
    {NULL, NULL},
};
