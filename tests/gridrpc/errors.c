/* Codes and their names (reference, 1.3). */
#include "suite.h"

#define NAMED(code)                                                                                                    \
    { code, #code }

static const struct {
    grpc_error_t code;
    const char *name;
} codes[] = {
    NAMED(GRPC_NO_ERROR), NAMED(GRPC_NOT_INITIALIZED), NAMED(GRPC_ALREADY_INITIALIZED),
    NAMED(GRPC_CONFIGFILE_NOT_FOUND), NAMED(GRPC_CONFIGFILE_ERROR), NAMED(GRPC_SERVER_NOT_FOUND),
    NAMED(GRPC_FUNCTION_NOT_FOUND), NAMED(GRPC_INVALID_FUNCTION_HANDLE),
    NAMED(GRPC_INVALID_SESSION_ID), NAMED(GRPC_RPC_REFUSED), NAMED(GRPC_COMMUNICATION_FAILED),
    NAMED(GRPC_SESSION_FAILED), NAMED(GRPC_NOT_COMPLETED), NAMED(GRPC_NONE_COMPLETED),
    NAMED(GRPC_INVALID_OBJECT_HANDLE_NP), NAMED(GRPC_CLASS_NOT_FOUND_NP), NAMED(GRPC_TIMEOUT_NP),
    NAMED(GRPC_CANCELED_NP), NAMED(GRPC_OTHER_ERROR_CODE), NAMED(GRPC_UNKNOWN_ERROR_CODE),
    NAMED(GRPC_INVALID_DATA_NP), NAMED(GRPC_MAP_DIFFERS_NP), NAMED(GRPC_LAST_ERROR_CODE),
};

enum { CODES = sizeof codes / sizeof *codes };

static void names(void) {
    for (int i = 0; i < CODES; i++) TEXT(codes[i].name, grpc_error_string(codes[i].code));
}

static void codes_differ(void) {
    for (int i = 0; i < CODES; i++) {
        CHECK(codes[i].code <= GRPC_LAST_ERROR_CODE);
        for (int j = 0; j < i; j++) CHECK(codes[i].code != codes[j].code);
    }
    EQUAL(0, GRPC_NO_ERROR);
    EQUAL(-1, GRPC_SESSIONID_VOID);
}

static void no_codes(void) {
    const grpc_error_t none[] = {-1, 1000, GRPC_LAST_ERROR_CODE + 1, -2147483647};
    for (int i = 0; i < 4; i++) TEXT("GRPC_UNKNOWN_ERROR_CODE", grpc_error_string(none[i]));
}

static void the_last_error(void) {
    grpc_error_t last = GRPC_NO_ERROR;
    BEGIN();
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_wait(GRPC_SESSIONID_VOID));
    last = grpc_last_error_get_np();
    EQUAL(GRPC_INVALID_SESSION_ID, last);
    CHECK(strstr(grpc_last_error_text_np(), "-1") != NULL);
}

/* A text that is not UTF-8 is shown as far as possible, and the original error is kept. */
static void an_error_is_told_whatever_the_text(void) {
    grpc_error_t last;
    EXPECT(GRPC_NOT_INITIALIZED, grpc_wait(1));
    OK(grpc_perror_np("caf\xe9"));
    OK(grpc_perror_np(NULL));
    last = grpc_last_error_get_np();
    EQUAL(GRPC_NOT_INITIALIZED, last);
}

static void a_sessions_text(void) {
    grpc_sessionid_t id;
    BEGIN();
    HANDLE(handle, "exit");
    OK(grpc_call_async(&handle, &id, 3));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_get_error(id));
    CHECK(strstr(grpc_session_error_text_np(id), "gridrpc/exit") != NULL);
}

const test_case error_cases[] = {
    {"1.3: each code's text is its name", names},
    {"1.3: codes differ and none is above the last", codes_differ},
    {"1.3: numbers that are no codes", no_codes},
    {"1.3: the last error, as code and text", the_last_error},
    {"1.3: a session's error in words", a_sessions_text},
    {"1.3: an error is told whatever the text beside it", an_error_is_told_whatever_the_text},
    {NULL, NULL},
};
