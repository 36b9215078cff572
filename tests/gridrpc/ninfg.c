/* What programs of Ninf-G, OmniRPC and Ninf do, in the words of their manuals (ninfg.idl). */
#include "suite.h"

#include <stdlib.h>

#define NINFG(handle, function)                                                                                        \
    grpc_function_handle_t handle;                                                                                     \
    OK(grpc_function_handle_default(&handle, "ninfg/" function))

static int write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    return file != NULL && fputs(text, file) >= 0 && fclose(file) == 0;
}

/* The content of a file, in memory of the suite's; "" if there is none. */
static const char *text_of(const char *path) {
    static char text[4][256];
    static int next;
    char *own = text[next++ % 4];
    FILE *file = fopen(path, "r");
    own[0] = 0;
    if (file == NULL) return own;
    own[fread(own, 1, sizeof text[0] - 1, file)] = 0;
    fclose(file);
    return own;
}

static void single_elements(void) {
    double result = 0;
    long sum = 1;
    int times = 3;
    BEGIN();
    NINFG(handle, "one");
    OK(grpc_call(&handle, 1.5, &result, &times, &sum));
    EQUAL(9, result);
    EQUAL(4, sum);
}

static void older_words(void) {
    double a[3] = {1, 2, 3}, b[3] = {0};
    BEGIN();
    NINFG(handle, "older");
    OK(grpc_call(&handle, 3, a, b));
    EQUAL(3, b[2]);
}

static void scratch_memory(void) {
    int in[4] = {1, 2, 3, 4}, out[4] = {0};
    BEGIN();
    NINFG(handle, "work");
    OK(grpc_call(&handle, 4, in, NULL, out));
    for (int i = 0; i < 4; i++) EQUAL(i + 1, out[i]);
}

static void complex_numbers(void) {
    scomplex s = {1, 2}, a[2] = {{3, 4}, {5, 6}}, t = {0, 0};
    dcomplex d = {7, 8}, b[2] = {{0, 9}, {0, 10}}, e = {0, 0};
    BEGIN();
    NINFG(handle, "complexes");
    OK(grpc_call(&handle, 2, s, d, a, b, &t, &e));
    EQUAL(2, t.r);
    EQUAL(-2, t.i);
    EQUAL(14, e.r);
    EQUAL(-8, e.i);
    EQUAL(10, b[1].r);
    EQUAL(-10, b[1].i);
}

static void strings_that_are_no_memory(void) {
    char *out = NULL, *again = NULL, *fixed[2] = {NULL, NULL}, *none = (char *)"something";
    BEGIN();
    NINFG(handle, "literal");
    for (int round = 0; round < 3; round++) {
        OK(grpc_call(&handle, "an input", &out, &again, fixed, &none));
        TEXT("an input", out);
        TEXT("an input", again);
        TEXT("a literal", fixed[0]);
        TEXT("a variable", fixed[1]);
        CHECK(none == NULL);
        free(out), free(again), free(fixed[0]), free(fixed[1]);
    }
}

static void arrays_of_strings(void) {
    const char *in[3] = {"one", NULL, ""};
    char *both[3] = {(char *)"first", (char *)"second", NULL}, *out[3] = {NULL, NULL, NULL};
    grpc_sessionid_t id;
    BEGIN();
    NINFG(handle, "made");
    OK(grpc_call_async(&handle, &id, 3, in, both, out));
    in[0] = "changed";
    OK(grpc_wait(id));
    TEXT("ONE", out[0]);
    CHECK(out[1] == NULL);
    TEXT("", out[2]);
    TEXT("first", both[0]);
    TEXT("another", both[1]);
    CHECK(both[2] == NULL);
    free(out[0]), free(out[2]), free(both[0]), free(both[1]);
    OK(grpc_call(&handle, 1, in, both + 2, (char **)NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call(&handle, 1, (char **)NULL, both, out));
    CHECK(strstr(grpc_last_error_text_np(), "'in'") != NULL);
}

static void what_is_null(void) {
    int is_null = -1;
    BEGIN();
    NINFG(handle, "null");
    OK(grpc_call(&handle, NULL, NULL, NULL, NULL, &is_null));
    EQUAL(15, is_null);
    OK(grpc_call(&handle, "", "", "", "", &is_null));
    EQUAL(0, is_null);
}

static void arrays_without_elements(void) {
    int are_null = 0;
    BEGIN();
    NINFG(handle, "empty");
    OK(grpc_call(&handle, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &are_null));
    CHECK(are_null);
}

static void arrays_of_files(void) {
    const char *in[2] = {"in-1", "in-2"}, *both[2] = {"both-1", "both-2"}, *out[2] = {"out-1", "out-2"};
    BEGIN();
    NINFG(handle, "files");
    CHECK(write_text("in-1", "1") && write_text("in-2", "2") && write_text("both-1", "3") && write_text("both-2", "4"));
    OK(grpc_call(&handle, 2, in, both, out));
    TEXT("1", text_of("both-1"));
    TEXT("2", text_of("both-2"));
    TEXT("3", text_of("out-1"));
    TEXT("4", text_of("out-2"));
}

static void open_files(void) {
    char text[64];
    int lines = 0;
    FILE *one, *in[2], *out;
    BEGIN();
    NINFG(handle, "pointers");
    CHECK(write_text("one", "skipped\none\n") && write_text("two", "two\n") && write_text("three", "three\n"));
    one = fopen("one", "r"), in[0] = fopen("two", "r"), in[1] = fopen("three", "r"), out = fopen("all", "w+");
    CHECK(one != NULL && in[0] != NULL && in[1] != NULL && out != NULL);
    CHECK(fgets(text, sizeof text, one) != NULL);
    OK(grpc_call(&handle, one, in, &out, &lines));
    EQUAL(3, lines);
    CHECK(fgets(text, sizeof text, out) != NULL);
    TEXT("one\n", text);
    fclose(one), fclose(in[0]), fclose(in[1]), fclose(out);
    TEXT("one\ntwo\nthree\n", text_of("all"));
}

static char heard[64];

static void tell(char **name, int *at, int *more, char **said) {
    sprintf(heard + strlen(heard), "%d%s ", *at, *name);
    *more = strcmp(*name, "last") != 0;
    *said = (char *)(*more ? "go on" : "enough");
}

static void callbacks_with_strings(void) {
    const char *names[3] = {"first", "last", "never"};
    char *answer = NULL;
    BEGIN();
    NINFG(handle, "told");
    heard[0] = 0;
    OK(grpc_call(&handle, 3, names, &answer, tell));
    TEXT("0first 1last ", heard);
    TEXT("enough", answer);
    free(answer);
}

static void bodies_ask_whether_they_are_cancelled(void) {
    int canceled = -1;
    BEGIN();
    NINFG(handle, "asks");
    OK(grpc_call(&handle, &canceled));
    EQUAL(0, canceled);
}

const test_case ninfg_cases[] = {
    {"Ninf-G: x[], and inputs by pointer", single_elements},
    {"Ninf-G: words of older descriptions", older_words},
    {"Ninf-G: scratch memory is passed as NULL", scratch_memory},
    {"Ninf-G: complex numbers have parts r and i", complex_numbers},
    {"Ninf-G: strings set to inputs, literals, variables and NULL", strings_that_are_no_memory},
    {"Ninf-G: arrays of strings", arrays_of_strings},
    {"Ninf-G: strings and files that are NULL, and that are empty", what_is_null},
    {"Ninf-G: arrays without elements are NULL", arrays_without_elements},
    {"Ninf-G: arrays of files", arrays_of_files},
    {"OmniRPC: open files", open_files},
    {"Ninf-G: callbacks with strings and scalars by pointer", callbacks_with_strings},
    {"Ninf-G: bodies ask whether they are cancelled", bodies_ask_whether_they_are_cancelled},
    {NULL, NULL},
};
