/* Parameters of all kinds other than numbers and whole arrays: files, strings, slices, arrays of unknown size,
 * callbacks. */
#include "suite.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of the cases, in the folder where the suite runs. */
static int write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return 0;
    fputs(text, file);
    return fclose(file) == 0;
}

/* Returns the content of a file in memory that belongs to the suite; null if there is none. */
static const char *file_text(const char *path) {
    static char text[4096];
    FILE *file = fopen(path, "r");
    if (file == NULL) return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void files_in_and_out(void) {
    int count = 0;
    BEGIN();
    HANDLE(handle, "grep");
    CHECK(write_file("text", "one\ntwo\nthree\n") && write_file("hits", "old\n"));
    OK(grpc_call(&handle, "t", "text", "hits", &count));
    EQUAL(2, count);
    TEXT("two\nthree\n", file_text("hits"));
    TEXT("one\ntwo\nthree\n", file_text("text"));
}

static void files_that_are_changed(void) {
    struct stat about;
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "append");
    CHECK(write_file("log", "one\n") && chmod("log", 0640) == 0);
    OK(grpc_call(&handle, "log", "two"));
    TEXT("one\ntwo\n", file_text("log"));
    CHECK(stat("log", &about) == 0 && (about.st_mode & 0777) == 0640);
    OK(grpc_call_async(&handle, &id, "log", "three"));
    CHECK(write_file("log", "meanwhile\n"));
    OK(grpc_wait(id));
    TEXT("one\ntwo\nthree\n", file_text("log"));
}

static void files_of_any_size(void) {
    enum { LINES = 100000 };
    int count = 0;
    struct stat from, to;
    BEGIN();
    HANDLE(handle, "grep");
    FILE *file = fopen("large", "w");
    CHECK(file != NULL);
    for (int i = 0; i < LINES; i++) fprintf(file, "line %d\n", i);
    CHECK(fclose(file) == 0);
    OK(grpc_call(&handle, "line", "large", "copy", &count));
    EQUAL(LINES, count);
    CHECK(stat("large", &from) == 0 && stat("copy", &to) == 0 && from.st_size == to.st_size);
    CHECK(write_file("large", "") && write_file("copy", ""));
    OK(grpc_call(&handle, "line", "large", "copy", &count));
    EQUAL(0, count);
    TEXT("", file_text("copy"));
}

static void files_that_are_not_there(void) {
    int count = 0;
    BEGIN();
    HANDLE(handle, "grep");
    CHECK(write_file("text", "one\n") && write_file("hits", "old\n"));
    OK(grpc_call(&handle, "t", (char *)NULL, "hits", &count));
    EQUAL(-1, count);
    TEXT("old\n", file_text("hits"));
    OK(grpc_call(&handle, "t", "", "hits", &count));
    EQUAL(0, count);
    TEXT("", file_text("hits"));
    CHECK(write_file("hits", "old\n"));
    OK(grpc_call(&handle, "o", "text", (char *)NULL, &count));
    EQUAL(1, count);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, "t", "no/such/text", "hits", &count));
    CHECK(strstr(grpc_last_error_text_np(), "'no/such/text'") != NULL);
    count = 7;
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, "o", "text", "no/such/hits", &count));
    CHECK(strstr(grpc_last_error_text_np(), "'no/such/hits'") != NULL);
    EQUAL(7, count);
}

static void strings_that_are_made(void) {
    char *both = NULL, *text = (char *)"grid";
    int length = 0;
    BEGIN();
    HANDLE(join, "join");
    HANDLE(shout, "shout");
    OK(grpc_call(&join, "grid", "loom", &both, &length));
    TEXT("gridloom", both);
    EQUAL(8, length);
    free(both);
    OK(grpc_call(&shout, &text));
    TEXT("GRIDGRID", text);
    free(text);
    OK(grpc_call(&join, "", "", &both, &length));
    TEXT("", both);
    free(both);
    OK(grpc_call(&join, "a", "b", (char **)NULL, &length));
    EQUAL(2, length);
}

static void strings_of_any_bytes(void) {
    char *both = NULL;
    int length = 0;
    BEGIN();
    HANDLE(join, "join");
    OK(grpc_call(&join, "gr\xf6\xdf", "e", &both, &length));
    TEXT("gr\xf6\xdf"
         "e",
         both);
    EQUAL(5, length);
    free(both);
}

static void slices_of_vectors(void) {
    double x[10], y[10];
    BEGIN();
    HANDLE(handle, "triple");
    for (int i = 0; i < 10; i++) x[i] = i + 1, y[i] = -1;
    OK(grpc_call(&handle, 10, 2, 9, 3, x, y));
    for (int i = 0; i < 10; i++) EQUAL(i == 2 || i == 5 || i == 8 ? 3.0 * (i + 1) : -1, y[i]);
    OK(grpc_call(&handle, 10, 0, 10, 1, x, y));
    for (int i = 0; i < 10; i++) EQUAL(3.0 * (i + 1), y[i]);
    OK(grpc_call(&handle, 10, 5, 5, 1, (double *)NULL, y));
    EQUAL(18, y[5]);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, 10, 2, 11, 1, x, y));
    CHECK(strstr(grpc_last_error_text_np(), "slice 1 of 'x'") != NULL);
}

/* Ninf-G's manual: an end of 0 is the size of the dimension, a step of 0 is 1. */
static void slices_with_zeros(void) {
    double x[10], y[10];
    BEGIN();
    HANDLE(handle, "triple");
    for (int i = 0; i < 10; i++) x[i] = i + 1, y[i] = -1;
    OK(grpc_call(&handle, 10, 4, 0, 3, x, y));
    for (int i = 0; i < 10; i++) EQUAL(i == 4 || i == 7 ? 3.0 * (i + 1) : -1, y[i]);
    OK(grpc_call(&handle, 10, 2, 5, 0, x, y));
    for (int i = 0; i < 10; i++) EQUAL((i >= 2 && i < 5) || i == 7 ? 3.0 * (i + 1) : -1, y[i]);
}

/* Only with Shrink is just the part sent. The function has the whole array each time. */
static void slices_of_matrices(void) {
    const char *functions[] = {"gridrpc/whole", "gridrpc/block"};
    BEGIN();
    for (int which = 0; which < 2; which++) {
        float a[4][4], b[4][4];
        grpc_function_handle_t handle;
        for (int i = 0; i < 16; i++) a[i / 4][i % 4] = (float)i, b[i / 4][i % 4] = 99;
        OK(grpc_function_handle_default(&handle, (char *)functions[which]));
        OK(grpc_call(&handle, 4, 3, a, b));
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                EQUAL(which == 0 || (i >= 1 && (j == 0 || j == 2)) ? -a[i][j] : 99, b[i][j]);
    }
}

/* The leading dimension of BLAS: columns are not contiguous. */
static void slices_by_columns(void) {
    double a[3 * 4];
    BEGIN();
    HANDLE(handle, "columns");
    for (int i = 0; i < 12; i++) a[i] = i;
    OK(grpc_call(&handle, 4, 2, 3, a));
    for (int i = 0; i < 12; i++) EQUAL(i % 4 < 2 ? -i : i, a[i]);
}

/* Two calls write different parts of one array. */
static void slices_beside_one_another(void) {
    enum { COUNT = 20000 };
    static double x[COUNT], y[COUNT];
    grpc_sessionid_t ids[2];
    BEGIN();
    HANDLE(handle, "triple");
    for (int i = 0; i < COUNT; i++) x[i] = i + 1, y[i] = -1;
    OK(grpc_call_async(&handle, &ids[0], COUNT, 0, COUNT, 2, x, y));
    OK(grpc_call_async(&handle, &ids[1], COUNT, 1, COUNT, 2, x, y));
    OK(grpc_wait_and(ids, 2));
    for (int i = 0; i < COUNT; i++) EQUAL(3.0 * (i + 1), y[i]);
}

static void arrays_of_unknown_size(void) {
    double x[9] = {0, 5, 0, 1, 0, 7, 6, 8, 0}, *peaks = NULL;
    int *where = NULL, count = 0;
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "peaks");
    OK(grpc_call(&handle, 9, x, 2.0, &peaks, &where, &count));
    EQUAL(3, count);
    EQUAL(5, peaks[0]);
    EQUAL(7, peaks[1]);
    EQUAL(8, peaks[2]);
    EQUAL(6, where[4]);
    EQUAL(8, where[5]);
    free(peaks);
    free(where);
    OK(grpc_call_async(&handle, &id, 9, x, 9.0, &peaks, (int **)NULL, &count));
    OK(grpc_wait(id));
    EQUAL(0, count);
    CHECK(peaks != NULL);
    free(peaks);
}

static void large_arrays_of_unknown_size(void) {
    enum { COUNT = 200001 };
    double *x = malloc(COUNT * sizeof *x), *peaks = NULL;
    int *where = NULL, count = 0;
    CHECK(x != NULL);
    for (int i = 0; i < COUNT; i++) x[i] = i % 2 * i;
    BEGIN();
    HANDLE(handle, "peaks");
    OK(grpc_call(&handle, (int)COUNT, x, 0.0, &peaks, &where, &count));
    EQUAL(COUNT / 2, count);
    for (int i = 0; i < count; i++) EQUAL(2 * i + 1, peaks[i]);
    EQUAL(COUNT - 1, where[2 * count - 1]);
    free(peaks);
    free(where);
    free(x);
}

/* Records of the callbacks of "report". */
static struct {
    int rounds, inside, most_inside;
    double last;
    void (*then)(void);
} told;

static void tell(int *round, double *x) {
    told.inside++;
    if (told.inside > told.most_inside) told.most_inside = told.inside;
    told.rounds++;
    told.last = x[2] - *round;
    if (told.then != NULL) told.then();
    told.inside--;
}

static void ask(double *factor, int *calls) {
    *factor = 0.5;
    ++*calls;
}

static void listen(void (*then)(void)) {
    memset(&told, 0, sizeof told);
    told.then = then;
}

static void callbacks_both_ways(void) {
    double sum = 0;
    BEGIN();
    HANDLE(handle, "report");
    listen(NULL);
    OK(grpc_call(&handle, 3, 10, &sum, tell, ask));
    EQUAL(10, told.rounds);
    EQUAL(2, told.last);
    EQUAL(5, sum);
    OK(grpc_call(&handle, 20000, 2, &sum, tell, ask));
    EQUAL(12, told.rounds);
    EQUAL(1, sum);
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, 3, 10, &sum, (void (*)(int *, double *))NULL, ask));
    CHECK(strstr(grpc_last_error_text_np(), "'tell'") != NULL);
}

static void callbacks_one_at_a_time(void) {
    double sums[4] = {0};
    grpc_sessionid_t ids[4];
    BEGIN();
    HANDLE(handle, "report");
    listen(NULL);
    for (int i = 0; i < 4; i++) OK(grpc_call_async(&handle, &ids[i], 3, 10, &sums[i], tell, ask));
    OK(grpc_wait_all());
    for (int i = 0; i < 4; i++) EQUAL(5, sums[i]);
    EQUAL(40, told.rounds);
    EQUAL(1, told.most_inside);
}

static grpc_function_handle_t adding;
static grpc_sessionid_t own;
static int added;
static grpc_error_t waited;

static void call_and_wait(void) {
    grpc_call(&adding, added, &added);
    waited = grpc_wait(own);
}

/* A callback may make calls, but must not wait for the session that waits for it. */
static void callbacks_that_call(void) {
    double sum = 0;
    BEGIN();
    HANDLE(handle, "report");
    OK(grpc_function_handle_default(&adding, "gridrpc/add"));
    listen(call_and_wait);
    own = GRPC_SESSIONID_VOID;
    added = 0;
    OK(grpc_call_async(&handle, &own, 3, 5, &sum, tell, ask));
    OK(grpc_wait(own));
    EQUAL(5, added);
    EXPECT(GRPC_OTHER_ERROR_CODE, waited);
    EQUAL(2.5, sum);
}

/* Both are on one server with one slot: a call that waits for its callback does not occupy the slot. */
static void callbacks_that_call_their_server(void) {
    double sum = 0;
    BEGIN();
    HANDLE(handle, "report");
    grpc_function_handle_t there;
    OK(grpc_function_handle_init(&there, suite_server(), "gridrpc/report"));
    OK(grpc_function_handle_init(&adding, suite_server(), "gridrpc/add"));
    listen(call_and_wait);
    for (int round = 0; round < 3; round++) {
        own = GRPC_SESSIONID_VOID;
        added = 0;
        OK(grpc_call_async(&there, &own, 3, 5, &sum, tell, ask));
        OK(grpc_wait(own));
        EQUAL(5, added);
        EQUAL(2.5, sum);
    }
    OK(grpc_call(&handle, 3, 10, &sum, tell, ask));
}

static void cancel_own(void) { grpc_cancel(own); }

static void callbacks_of_what_is_cancelled(void) {
    double sum = 7;
    BEGIN();
    HANDLE(handle, "report");
    listen(cancel_own);
    OK(grpc_call_async(&handle, &own, 3, 1000000000, &sum, tell, ask));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(own));
    EXPECT(GRPC_CANCELED_NP, grpc_get_error(own));
    EQUAL(7, sum);
}

/* A call that calls back is not run again. */
static void callbacks_at_most_once(void) {
    double sum = 7;
    BEGIN();
    HANDLE(handle, "report");
    listen(NULL);
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_call(&handle, 3, -1, &sum, tell, ask));
    EQUAL(1, told.rounds);
    EQUAL(7, sum);
}

const test_case kind_cases[] = {
    {"files: in and out", files_in_and_out},
    {"files: changed in place, read when the call is made", files_that_are_changed},
    {"files: of any size", files_of_any_size},
    {"files: not there, not wanted, not to be read, not to be written", files_that_are_not_there},
    {"strings: made and changed", strings_that_are_made},
    {"strings: of any bytes", strings_of_any_bytes},
    {"slices: of vectors", slices_of_vectors},
    {"slices: an end and a step of 0", slices_with_zeros},
    {"slices: of matrices, whole or shrunk for the function", slices_of_matrices},
    {"slices: columns that lie apart", slices_by_columns},
    {"slices: two calls in one array", slices_beside_one_another},
    {"VAROUT: arrays of unknown size", arrays_of_unknown_size},
    {"VAROUT: large ones", large_arrays_of_unknown_size},
    {"callbacks: values both ways", callbacks_both_ways},
    {"callbacks: one at a time", callbacks_one_at_a_time},
    {"callbacks: call, and do not wait for their own", callbacks_that_call},
    {"callbacks: call the server that waits for them", callbacks_that_call_their_server},
    {"callbacks: of a call that is cancelled", callbacks_of_what_is_cancelled},
    {"callbacks: at most once", callbacks_at_most_once},
    {NULL, NULL},
};
