/* Shared data (grpc_shared.h), and the APIs of OmniStorage and OmniRPC (omst.h, OmniRpc.h). */
#include "suite.h"

#include <OmniRpc.h>
#include <omst.h>
#include <stdlib.h>

enum { N = 200000, LONGEST = 1024 };

static double x[N], y[N];

static void fill(void) {
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = -1;
    }
}

static void puts_gets_and_deletes(void) {
    size_t size = 0;
    int exists = -1;
    char *text = NULL;
    fill();
    BEGIN();
    OK(grpc_shared_exists_np("x", &exists));
    EQUAL(0, exists);
    OK(grpc_shared_put_np("x", x, sizeof x, 0));
    OK(grpc_shared_exists_np("x", &exists));
    EQUAL(1, exists);
    OK(grpc_shared_wait_np("x", 0));
    OK(grpc_shared_size_np("x", &size, 0));
    EQUAL(sizeof x, size);
    OK(grpc_shared_get_np("x", y, sizeof y, GRPC_FOR_EVER_NP));
    CHECK(memcmp(x, y, sizeof x) == 0);
    OK(grpc_shared_delete_np("x"));
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_delete_np("x"));
    OK(grpc_shared_exists_np("x", &exists));
    EQUAL(0, exists);
    OK(grpc_shared_put_np("words", "some words", 10, 0));
    OK(grpc_shared_get_new_np("words", (void **)&text, &size, 0));
    TEXT("some words", text);
    EQUAL(10, size);
    free(text);
    OK(grpc_shared_get_part_np("words", 5, y, 5, 0));
    CHECK(memcmp("words", y, 5) == 0);
    OK(grpc_shared_get_part_np("words", 10, NULL, 0, 0));
    EXPECT(GRPC_SIZE_DIFFERS_NP, grpc_shared_get_part_np("words", 6, y, 5, 0));
    CHECK(strstr(grpc_last_error_text_np(), "'words' has 4 bytes from byte 6 on, and the memory for them 5") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_get_part_np("words", 5, NULL, 5, 0));
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_get_part_np("word", 5, y, 5, 0));
    OK(grpc_shared_put_np("nothing", NULL, 0, 0));
    OK(grpc_shared_get_np("nothing", NULL, 0, 0));
    OK(grpc_shared_get_new_np("nothing", (void **)&text, NULL, 0));
    TEXT("", text);
    free(text);
}

static void a_size_that_differs(void) {
    int place[4] = {7, 7, 7, 7}, three[3] = {1, 2, 3};
    BEGIN();
    OK(grpc_shared_put_np("three", three, sizeof three, 0));
    EXPECT(GRPC_SIZE_DIFFERS_NP, grpc_shared_get_np("three", place, 2 * sizeof *place, 0));
    CHECK(strstr(grpc_last_error_text_np(), "'three' has 12 bytes, and the memory for it 8") != NULL);
    EXPECT(GRPC_SIZE_DIFFERS_NP, grpc_shared_get_np("three", place, sizeof place, 0));
    EQUAL(-GRPC_SIZE_DIFFERS_NP, OmstWait(OmstGetData("three", place, 0)));
    EQUAL(-GRPC_SIZE_DIFFERS_NP, OmstWait(OmstGetData("three", place, 11)));
    for (int i = 0; i < 4; i++) EQUAL(7, place[i]);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_get_np("three", NULL, sizeof three, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_put_np("null", NULL, 4, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_get_new_np("three", NULL, NULL, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_size_np("three", NULL, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_exists_np("three", NULL));
    OK(grpc_shared_get_np("three", place, sizeof three, 0));
    EQUAL(6, place[0] + place[1] + place[2]);
    EQUAL(7, place[3]);
}

static void what_is_no_name(void) {
    static char longest[LONGEST + 2];
    const char *wrong[] = {NULL, "", longest, "a\nb", "\xff\xfe", "\x01"};
    int exists = 0;
    BEGIN();
    memset(longest, 'n', LONGEST + 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OmstRequest request;
        EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_put_np(wrong[i], "", 1, 0));
        EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_get_np(wrong[i], &exists, 4, 0));
        EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_exists_np(wrong[i], &exists));
        EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_wait_np(wrong[i], GRPC_FOR_EVER_NP));
        EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_place_np(wrong[i], NULL));
        EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_delete_np(wrong[i]));
        EQUAL(-GRPC_INVALID_NAME_NP, OmstWait(OmstGetData(wrong[i], &exists, 4)));
        /* The wait reports what the grid refuses. */
        request = OmstPutData(wrong[i], "", 1, OMST_POINT2POINT);
        EQUAL(-GRPC_INVALID_NAME_NP, request == NULL ? -grpc_last_error_get_np() : OmstWait(request));
    }
    longest[LONGEST] = 0;
    OK(grpc_shared_put_np(longest, "12", 2, 0));
    OK(grpc_shared_delete_np(longest));
}

static void versions(void) {
    int one = 1, two = 2, got = 0;
    BEGIN();
    OK(grpc_shared_put_np("v", &one, sizeof one, 0));
    EXPECT(GRPC_NAME_EXISTS_NP, grpc_shared_put_np("v", &two, sizeof two, 0));
    EQUAL(-GRPC_NAME_EXISTS_NP, OmstWait(OmstPutData("v", &two, sizeof two, OMST_BROADCAST)));
    OK(grpc_shared_get_np("v", &got, sizeof got, 0));
    EQUAL(1, got);
    OK(grpc_shared_put_np("v", &two, sizeof two, GRPC_REPLACES_NP));
    OK(grpc_shared_get_np("v", &got, sizeof got, 0));
    EQUAL(2, got);
}

/* Figure 4 of the paper on OmniStorage: a get is waited for, as a put is. */
static void gets_are_requests(void) {
    OmstRequest req;
    double value = 1.5, got = 0;
    BEGIN();
    req = OmstPutData("mydat", &value, sizeof value, OMST_BROADCAST);
    EQUAL(0, OmstWait(req));
    req = OmstGetData("mydat", &got, sizeof got);
    EQUAL(0, OmstWait(req));
    EQUAL(1.5, got);
    /* It has ended, and may be waited for again. */
    EQUAL(0, OmstWait(req));
    req = OmstGetData("mydat", &got, 1);
    CHECK(req != NULL);
    EQUAL(-GRPC_SIZE_DIFFERS_NP, OmstWait(req));
}

static void names_that_nobody_puts(void) {
    int got = 0;
    BEGIN();
    OK(grpc_shared_put_np("mydat", &got, sizeof got, 0));
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_get_np("mydata", &got, sizeof got, 0));
    CHECK(strstr(grpc_last_error_text_np(), "did you mean 'mydat'?") != NULL);
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_get_np("mydata", &got, sizeof got, 0.05));
    CHECK(strstr(grpc_last_error_text_np(), "did you mean 'mydat'?") != NULL);
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_wait_np("nowhere", 0.05));
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_place_np("nowhere", NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_wait_np("nowhere", 0.0 / (got * 1.0)));
    EQUAL(0, OmstSetTimeLimit_np(0.05));
    EQUAL(-GRPC_NAME_NOT_FOUND_NP, OmstWait(OmstGetData("nowhere", &got, sizeof got)));
    EQUAL(-GRPC_OTHER_ERROR_CODE, OmstSetTimeLimit_np(0.0 / (got * 1.0)));
    EQUAL(0, OmstSetTimeLimit_np(GRPC_FOR_EVER_NP));
}

static void copies_on_servers(void) {
    const char *one[] = {suite_server(), NULL}, *wrong[] = {"no-such-server", NULL}, *none[] = {NULL};
    fill();
    BEGIN();
    OK(grpc_shared_put_np("placed", x, sizeof x, 0));
    OK(grpc_shared_place_np("placed", one));
    OK(grpc_shared_put_replicas_np("twice", x, sizeof x, 0, 2));
    EXPECT(GRPC_NO_ROOM_NP, grpc_shared_put_replicas_np("often", x, sizeof x, 0, 16));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_put_replicas_np("never", x, sizeof x, 0, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_put_replicas_np("never", x, sizeof x, 0, -1));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_put_replicas_np("never", x, sizeof x, 0, 17));
    OK(grpc_shared_place_np("placed", NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_place_np("placed", wrong));
    CHECK(strstr(grpc_last_error_text_np(), "no-such-server") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_place_np("placed", none));
}

/* The rules of no grid of the tests define a group. */
static void sharing_with_users(void) {
    const char *one[] = {"bert", NULL}, *all[] = {"*", NULL}, *nobody[] = {NULL}, *group[] = {"bert", "group:climate", NULL};
    const char *wrong[] = {"a\nb", NULL}, *many[66];
    for (int i = 0; i < 65; i++) many[i] = "bert";
    many[65] = NULL;
    BEGIN();
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_share_np("shared", one));
    OK(grpc_shared_put_np("shared", "1", 1, 0));
    OK(grpc_shared_share_np("shared", one));
    OK(grpc_shared_share_np("shared", all));
    OK(grpc_shared_share_np("shared", nobody));
    OK(grpc_shared_share_np("shared", NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_share_np("shared", group));
    CHECK(strstr(grpc_last_error_text_np(), "the rules of the grid define no group 'climate'") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_share_np("shared", wrong));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_share_np("shared", many));
    CHECK(strstr(grpc_last_error_text_np(), "65 users one by one, and the limit is 64") != NULL);
    EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_share_np(NULL, one));
}

/* A result becomes shared, and a shared datum becomes an argument: neither passes through the program. */
static void arguments_of_calls(void) {
    grpc_remote_t made, found, bytes, nothing;
    double total = 0, back[4];
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    HANDLE(sum, "sum");
    OK(grpc_remote_new_np(&made, NULL));
    OK(grpc_remote_new_np(&found, NULL));
    OK(grpc_remote_new_np(&bytes, NULL));
    OK(grpc_remote_new_np(&nothing, NULL));
    OK(grpc_remote_put_np(made, x, sizeof x));
    OK(grpc_call(&axpy, N, 2.0, x, made));
    OK(grpc_remote_share_np(made, "made", 0));
    EXPECT(GRPC_NAME_EXISTS_NP, grpc_remote_share_np(made, "made", 0));
    OK(grpc_remote_share_np(made, "made", 1));
    OK(grpc_remote_free_np(made));
    OK(grpc_remote_find_shared_np(found, "made", 0));
    OK(grpc_call(&sum, (long)N, found, &total));
    EQUAL(1.5 * N * (N - 1.0), total);
    OK(grpc_shared_get_np("made", y, sizeof y, 0));
    EQUAL(3, y[1]);
    /* Its version stays; bytes can be an argument, too. */
    OK(grpc_shared_put_np("made", x, 4 * sizeof *x, 1));
    OK(grpc_call(&sum, (long)N, found, &total));
    EQUAL(1.5 * N * (N - 1.0), total);
    OK(grpc_remote_find_shared_np(bytes, "made", 0));
    OK(grpc_call(&sum, 4L, bytes, &total));
    EQUAL(6, total);
    OK(grpc_remote_get_np(bytes, back, sizeof back));
    EQUAL(3, back[3]);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&sum, 5L, bytes, &total));
    /* Bytes that no call has read yet. */
    OK(grpc_remote_put_np(bytes, x, 3 * sizeof *x));
    OK(grpc_remote_share_np(bytes, "three", 0));
    OK(grpc_shared_get_np("three", back, 3 * sizeof *x, 0));
    EQUAL(2, back[2]);
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_share_np(nothing, "nothing", 0));
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_remote_find_shared_np(nothing, "nothing", 0.05));
    EXPECT(GRPC_INVALID_NAME_NP, grpc_remote_find_shared_np(nothing, NULL, 0));
    EXPECT(GRPC_INVALID_NAME_NP, grpc_remote_share_np(bytes, "", 0));
    OK(grpc_remote_free_np(nothing));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_remote_share_np(nothing, "nothing", 0));
}

static void without_a_session(void) {
    grpc_shared_request_np request;
    int got = 0;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_shared_put_np("x", "", 1, 0));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_shared_get_np("x", &got, 1, 0));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_shared_share_np("x", NULL));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_shared_begin_put_np(&request, "x", "", 1, 0, 1));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_shared_begin_get_np(&request, "x", &got, 1, 0));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_shared_finish_np(NULL, 0));
    EXPECT(GRPC_NOT_INITIALIZED, grpc_shared_cancel_np(NULL));
    CHECK(OmstPutData("x", "", 1, OMST_BROADCAST) == NULL);
    EXPECT(GRPC_NOT_INITIALIZED, grpc_last_error_get_np());
    EQUAL(-GRPC_NOT_INITIALIZED, OmstWait(NULL));
    EQUAL(-GRPC_NOT_INITIALIZED, OmstWait(OmstGetData("x", &got, 1)));
    EQUAL(OMRPC_ERROR, OmniRpcCall("gridrpc/add", 1, &got));
    CHECK(OmniRpcCallAsync("gridrpc/add", 1, &got) == NULL);
    EQUAL(OMRPC_ERROR, OmniRpcWait(NULL));
    EQUAL(OMRPC_ERROR, OmniRpcProbe(NULL));
    OmniRpcFinalize();
    EXPECT(GRPC_NOT_INITIALIZED, grpc_last_error_get_np());
}

static void begun_puts(void) {
    enum { PUTS = 20 };
    const int hints[] = {0, OMST_POINT2POINT | OMST_SWARM_NP, OMST_BROADCAST | OMST_TREE_NP, OMST_ALL_EXCHANGE | OMST_DIRECT_NP,
                         OMST_STORAGE_NP};
    const int wrong[] = {-1, 3, 8, OMST_BROADCAST | 512, OMST_BROADCAST | OMST_ALL_EXCHANGE, OMST_BROADCAST | 0x5000};
    OmstRequest requests[PUTS];
    char name[32];
    fill();
    BEGIN();
    for (int i = 0; i < PUTS; i++) {
        snprintf(name, sizeof name, "part %d", i);
        requests[i] = OmstPutData(name, x + i, 100000 * sizeof *x, hints[i % 5]);
        CHECK(requests[i] != NULL);
        /* It was copied. */
        x[i] = -5;
    }
    for (int i = PUTS; i-- > 0;) EQUAL(0, OmstWait(requests[i]));
    for (int i = 0; i < PUTS; i++) {
        snprintf(name, sizeof name, "part %d", i);
        EQUAL(0, OmstWait(OmstGetData(name, y, 100000 * sizeof *y)));
        EQUAL(i, y[0]);
        EQUAL(99999 + i, y[99999]);
    }
    EQUAL(-GRPC_INVALID_SESSION_ID, OmstWait(requests[0]));
    EQUAL(-GRPC_INVALID_SESSION_ID, OmstWait(NULL));
    EQUAL(-GRPC_INVALID_SESSION_ID, OmstWait(&requests));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(OmstPutData("hinted", "", 1, wrong[i]) == NULL);
        EXPECT(GRPC_OTHER_ERROR_CODE, grpc_last_error_get_np());
    }
    CHECK(OmstPutData("hinted", NULL, 1, 0) == NULL);
    /* A request that is not waited for and does not end: the session ends first. */
    CHECK(OmstPutData("late", x, sizeof x, 0) != NULL);
}

static void begun_gets_puts_and_waits(void) {
    enum { PARTS = 12, SIZE = 10000 };
    grpc_shared_request_np waits[PARTS], gets[PARTS], puts[PARTS], other;
    char name[32];
    fill();
    BEGIN();
    /* All requests begin before anything is available. */
    for (int i = 0; i < PARTS; i++) {
        snprintf(name, sizeof name, "begun %d", i);
        OK(grpc_shared_begin_wait_np(&waits[i], name, GRPC_FOR_EVER_NP));
        OK(grpc_shared_begin_get_np(&gets[i], name, y + i * SIZE, SIZE * sizeof *y, GRPC_FOR_EVER_NP));
    }
    EXPECT(GRPC_NOT_COMPLETED, grpc_shared_finish_np(gets[0], 0));
    EXPECT(GRPC_NOT_COMPLETED, grpc_shared_finish_np(waits[PARTS - 1], 0.01));
    for (int i = 0; i < PARTS; i++) {
        snprintf(name, sizeof name, "begun %d", i);
        OK(grpc_shared_begin_put_np(&puts[i], name, x + i, SIZE * sizeof *x, 0, 1 + i % 2));
        /* It was copied. */
        x[i] = -5;
    }
    for (int i = PARTS; i-- > 0;) {
        OK(grpc_shared_finish_np(puts[i], GRPC_FOR_EVER_NP));
        OK(grpc_shared_finish_np(waits[i], GRPC_FOR_EVER_NP));
    }
    EQUAL(-1, y[0]);
    while (grpc_shared_finish_np(gets[0], 0) == GRPC_NOT_COMPLETED) continue;
    for (int i = 1; i < PARTS; i++) OK(grpc_shared_finish_np(gets[i], GRPC_FOR_EVER_NP));
    for (int i = 0; i < PARTS; i++) {
        EQUAL(i, y[i * SIZE]);
        EQUAL(SIZE - 1 + i, y[i * SIZE + SIZE - 1]);
    }
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_shared_finish_np(gets[0], 0));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_shared_cancel_np(gets[0]));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_shared_finish_np(NULL, 0));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_shared_finish_np(&other, 0));
    /* A request of omst.h can be used here, too, and vice versa. */
    OK(grpc_shared_finish_np(OmstPutData("of omst.h", x, 8, OMST_POINT2POINT), GRPC_FOR_EVER_NP));
    OK(grpc_shared_begin_put_np(&other, "for omst.h", x, 8, 0, 1));
    EQUAL(0, OmstWait(other));
    /* These end with the session. */
    OK(grpc_shared_begin_get_np(&other, "nowhere", y, 8, GRPC_FOR_EVER_NP));
    OK(grpc_shared_begin_put_np(&other, "late", x, sizeof x, 0, 1));
}

static void what_fails_after_it_has_begun(void) {
    grpc_shared_request_np request = &request, first = &first;
    double place[2] = {7, 7}, zero = 0;
    BEGIN();
    OK(grpc_shared_put_np("mydat", x, sizeof *x, 0));
    OK(grpc_shared_begin_put_np(&request, "mydat", x, 2 * sizeof *x, 0, 1));
    EXPECT(GRPC_NAME_EXISTS_NP, grpc_shared_finish_np(request, GRPC_FOR_EVER_NP));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_shared_finish_np(request, GRPC_FOR_EVER_NP));
    OK(grpc_shared_begin_put_np(&request, "mydat", x, sizeof *x, GRPC_REPLACES_NP, 16));
    EXPECT(GRPC_NO_ROOM_NP, grpc_shared_finish_np(request, GRPC_FOR_EVER_NP));
    OK(grpc_shared_begin_get_np(&request, "mydat", place, sizeof place, 0));
    EXPECT(GRPC_SIZE_DIFFERS_NP, grpc_shared_finish_np(request, GRPC_FOR_EVER_NP));
    CHECK(strstr(grpc_last_error_text_np(), "'mydat' has 8 bytes, and the memory for it 16") != NULL);
    EQUAL(7, place[0]);
    OK(grpc_shared_begin_get_np(&request, "mydata", place, 8, 0.05));
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_finish_np(request, GRPC_FOR_EVER_NP));
    CHECK(strstr(grpc_last_error_text_np(), "did you mean 'mydat'?") != NULL);
    OK(grpc_shared_begin_wait_np(&request, "mydata", 0));
    EXPECT(GRPC_NAME_NOT_FOUND_NP, grpc_shared_finish_np(request, GRPC_FOR_EVER_NP));
    OK(grpc_shared_begin_get_np(&request, "nowhere", place, 8, GRPC_FOR_EVER_NP));
    OK(grpc_shared_cancel_np(request));
    OK(grpc_shared_cancel_np(request));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_finish_np(request, 0.0 / zero));
    EXPECT(GRPC_CANCELED_NP, grpc_shared_finish_np(request, GRPC_FOR_EVER_NP));
    EQUAL(7, place[0]);
    /* These do not begin. */
    request = first;
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_begin_put_np(&request, "mydat", x, 8, 4, 1));
    CHECK(strstr(grpc_last_error_text_np(), "flags 4") != NULL);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_put_np("mydat", x, 8, -1));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_begin_put_np(&request, "mydat", x, 8, 0, 17));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_begin_put_np(&request, "mydat", NULL, 8, 0, 1));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_begin_put_np(NULL, "mydat", x, 8, 0, 1));
    EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_begin_put_np(&request, NULL, x, 8, 0, 1));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_begin_get_np(&request, "mydat", NULL, 8, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_begin_get_np(&request, "mydat", place, 8, 0.0 / zero));
    EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_begin_get_np(&request, NULL, place, 8, 0));
    EXPECT(GRPC_INVALID_NAME_NP, grpc_shared_begin_wait_np(&request, NULL, 0));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_shared_begin_wait_np(NULL, "mydat", 0));
    CHECK(request == first);
}

/* Real servers have no folder for durable data; those in simulation have disks. */
static void durable_data(void) {
    grpc_error_t first, second;
    double got = 0;
    x[0] = 7;
    BEGIN();
    first = grpc_shared_put_np("durable", x, sizeof *x, GRPC_DURABLE_NP);
    CHECK(first == GRPC_NO_ERROR || first == GRPC_NO_ROOM_NP);
    second = -OmstWait(OmstPutData("durable, too", x, sizeof *x, OMST_BROADCAST | OMST_DURABLE_NP));
    EQUAL(first, second);
    if (first == GRPC_NO_ERROR) {
        OK(grpc_shared_put_np("durable", x, sizeof *x, GRPC_DURABLE_NP | GRPC_REPLACES_NP));
        OK(grpc_shared_get_np("durable", &got, sizeof got, 0));
        EQUAL(7, got);
    } else {
        CHECK(strstr(grpc_last_error_text_np(), "--durable") != NULL);
    }
}

static void calls_after_omnirpc(void) {
    enum { CALLS = 12 };
    OmniRpcRequest requests[CALLS], other;
    int results[CALLS] = {0}, result = 0, ended = 0;
    BEGIN();
    OmniRpcInit(NULL, NULL);
    EQUAL(OMRPC_OK, OmniRpcCall("gridrpc/add", 41, &result));
    EQUAL(42, result);
    EQUAL(OMRPC_OK, OmniRpcCall("add", 1, &result));
    EQUAL(2, result);
    for (int i = 0; i < CALLS; i++) requests[i] = OmniRpcCallAsync("add", i, &results[i]);
    EQUAL(OMRPC_OK, OmniRpcWaitAll(CALLS, requests));
    for (int i = 0; i < CALLS; i++) EQUAL(i + 1, results[i]);
    EQUAL(OMRPC_ERROR, OmniRpcWait(requests[0]));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_last_error_get_np());
    EQUAL(OMRPC_ERROR, OmniRpcWaitAll(CALLS, requests));
    for (int i = 0; i < CALLS; i++) requests[i] = OmniRpcCallAsync("add", i * i, &results[i]);
    for (int i = 0; i < CALLS; i++) {
        int at = OmniRpcWaitAny(CALLS, requests);
        CHECK(at >= 0 && at < CALLS && requests[at] != NULL);
        EQUAL(at * at + 1, results[at]);
        requests[at] = NULL;
        ended++;
    }
    EQUAL(CALLS, ended);
    EQUAL(OMRPC_ERROR, OmniRpcWaitAny(CALLS, requests));
    EQUAL(OMRPC_ERROR, OmniRpcWaitAny(1, NULL));
    EQUAL(OMRPC_ERROR, OmniRpcWaitAll(-1, requests));
    EQUAL(OMRPC_OK, OmniRpcWaitAll(0, NULL));
    other = OmniRpcCallAsync("add", 5, &result);
    while (OmniRpcProbe(other) == 0) continue;
    EQUAL(6, result);
    EQUAL(OMRPC_OK, OmniRpcWait(other));
    EQUAL(OMRPC_ERROR, OmniRpcProbe(other));
    EQUAL(OMRPC_ERROR, OmniRpcWait(NULL));
    EQUAL(OMRPC_ERROR, OmniRpcWait(&result));
    EQUAL(OMRPC_ERROR, OmniRpcCall("no_such_entry", 1));
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_last_error_get_np());
    CHECK(OmniRpcCallAsync("no_such_entry", 1) == NULL);
    CHECK(OmniRpcCallAsync(NULL) == NULL);
    /* The index of a call that fails is reported all the same. */
    requests[0] = NULL;
    requests[1] = OmniRpcCallAsync("gridrpc/exit", 3);
    EQUAL(1, OmniRpcWaitAny(2, requests));
    requests[1] = OmniRpcCallAsync("gridrpc/exit", 3);
    EQUAL(OMRPC_ERROR, OmniRpcWait(requests[1]));
    OmniRpcFinalize();
    EXPECT(GRPC_NOT_INITIALIZED, grpc_finalize());
}

static void options_of_omnirpc(void) {
    char name[] = "program", first[] = "1", file[] = "--hostfile", hosts[] = "hosts.xml", debug[] = "--debug", last[] = "--size";
    char *words[] = {name, debug, first, file, hosts, last, file, NULL}, **argv = words;
    int argc = 7;
    BEGIN();
    OmniRpcInit(&argc, &argv);
    EQUAL(4, argc);
    TEXT("1", argv[1]);
    TEXT("--size", argv[2]);
    /* Without a file after it, the option belongs to the program. */
    TEXT("--hostfile", argv[3]);
    CHECK(argv[4] == NULL);
    OmniRpcFinalize();
}

static void in_a_block(void) {
    int y = 0, got = 0;
    BEGIN();
    HANDLE(add, "add");
    grpc_map("auto") {
        grpc_error_t first = grpc_shared_put_np("in a block", "1", 1, 1);
        if (grpc_map_phase_np() == 1) EXPECT(GRPC_OTHER_ERROR_CODE, first);
        OK(grpc_call(&add, 1, &y));
        grpc_local(grpc_local_reads(&y)) {
            OK(grpc_shared_put_np("y", &y, sizeof y, 0));
            OK(grpc_shared_get_np("y", &got, sizeof got, 0));
        }
    }
    OK(grpc_map_error_np());
    EQUAL(2, got);
}

const test_case shared_cases[] = {
    {"shared: put, get, size, delete", puts_gets_and_deletes},
    {"shared: a size that differs is an error, and nothing is written", a_size_that_differs},
    {"shared: what is no name", what_is_no_name},
    {"shared: a name that exists, and its next version", versions},
    {"shared: gets are requests", gets_are_requests},
    {"shared: names that nobody puts", names_that_nobody_puts},
    {"shared: copies on servers", copies_on_servers},
    {"shared: with other users", sharing_with_users},
    {"shared: results and arguments of calls", arguments_of_calls},
    {"shared: without a session", without_a_session},
    {"shared: puts that have begun (OmniStorage)", begun_puts},
    {"shared: gets, puts and waits that have begun", begun_gets_puts_and_waits},
    {"shared: what fails after it has begun", what_fails_after_it_has_begun},
    {"shared: durable data", durable_data},
    {"shared: calls after OmniRPC", calls_after_omnirpc},
    {"shared: options of OmniRPC", options_of_omnirpc},
    {"shared: in a block, within grpc_local", in_a_block},
    {NULL, NULL},
};
