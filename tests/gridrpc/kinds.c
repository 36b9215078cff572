/* Parameters of every kind beyond numbers and arrays: files, strings. */
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

/* The content of a file, in memory of the suite's; null if there is none. */
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
    EQUAL(-1, count);
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

const test_case kind_cases[] = {
    {"files: in and out", files_in_and_out},
    {"files: changed in place, read when the call is made", files_that_are_changed},
    {"files: of any size", files_of_any_size},
    {"files: not there, not wanted, not to be read, not to be written", files_that_are_not_there},
    {"strings: made and changed", strings_that_are_made},
    {"strings: of any bytes", strings_of_any_bytes},
    {NULL, NULL},
};
