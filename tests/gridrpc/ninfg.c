/* Usage patterns of Ninf-G, OmniRPC and Ninf programs, as their manuals describe them (ninfg.idl). */
#define _GNU_SOURCE
#include "suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define NINFG(handle, function)                                                                                        \
    grpc_function_handle_t handle;                                                                                     \
    OK(grpc_function_handle_default(&handle, "ninfg/" function))

static int write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    return file != NULL && fputs(text, file) >= 0 && fclose(file) == 0;
}

/* Returns the content of a file in memory that belongs to the suite; "" if there is none. */
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

/* Waits until a file exists, and removes it. */
static void await_file(const char *path, const char *end) {
    char name[600];
    struct timespec pause = {0, 1000000};
    snprintf(name, sizeof name, "%s%s", path, end);
    while (access(name, F_OK) != 0) nanosleep(&pause, NULL);
    remove(name);
}

/* They can then end by themselves; a body that continues is ended. The worker continues with other calls. */
static void bodies_see_that_they_are_cancelled(void) {
    char path[500], runs[510];
    grpc_sessionid_t id;
    int rounds, y = 0;
    if (getenv("GRIDLOOM_SIMULATE") != NULL) return;
    BEGIN();
    NINFG(handle, "until_canceled");
    HANDLE(add, "add");
    if (getcwd(path, sizeof path - 20) == NULL) return;
    strcat(path, "/canceled");
    for (int lasts = 0; lasts < 2; lasts++) {
        OK(grpc_call_async(&handle, &id, path, lasts, &rounds));
        await_file(path, ".runs");
        OK(grpc_cancel(id));
        await_file(path, ".saw");
        EXPECT(GRPC_SESSION_FAILED, grpc_wait(id));
        EXPECT(GRPC_CANCELED_NP, grpc_get_error(id));
    }
    OK(grpc_function_handle_set_timeout_np(&handle, 0.2));
    /* Until a call has begun before its time limit ended. */
    strcpy(runs, path);
    strcat(runs, ".runs");
    do EXPECT(GRPC_TIMEOUT_NP, grpc_call(&handle, path, 0, &rounds));
    while (access(runs, F_OK) != 0);
    remove(runs);
    await_file(path, ".saw");
    OK(grpc_call(&add, 1, &y));
    EQUAL(2, y);
}

static void attributes_of_handles(void) {
    grpc_handle_attr_t_np attr, own;
    grpc_function_handle_t handle, handles[2];
    grpc_argument_transfer_t_np transfer = GRPC_ARGUMENT_TRANSFER_NOWAIT;
    int port = 0, y = 0;
    void *value = NULL;
    BEGIN();
    OK(grpc_handle_attr_initialize_np(&attr));
    OK(grpc_handle_attr_get_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, &value));
    CHECK(value == NULL);
    OK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, (void *)"gridrpc/none"));
    OK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, (void *)"gridrpc/add"));
    OK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_WAIT_ARG_TRANSFER, &transfer));
    OK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_PORT, &port));
    OK(grpc_handle_attr_get_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, &value));
    TEXT("gridrpc/add", (char *)value);
    OK(grpc_handle_attr_release_np(value));
    OK(grpc_handle_attr_get_np(&attr, GRPC_HANDLE_ATTR_WAIT_ARG_TRANSFER, &value));
    EQUAL(GRPC_ARGUMENT_TRANSFER_NOWAIT, *(grpc_argument_transfer_t_np *)value);
    OK(grpc_handle_attr_release_np(value));
    OK(grpc_function_handle_array_init_with_attr_np(handles, 2, &attr));
    OK(grpc_call(&handles[1], 1, &y));
    EQUAL(2, y);
    OK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_HOSTNAME, (void *)suite_server()));
    OK(grpc_function_handle_init_with_attr_np(&handle, &attr));
    OK(grpc_function_handle_is_ready_np(&handle));
    OK(grpc_function_handle_get_error_np(&handle));
    OK(grpc_function_handle_perror_np(&handle, "a handle"));
    OK(grpc_function_handle_get_attr_np(&handle, &own));
    TEXT("gridrpc/add", own.gha_functionName);
    TEXT(suite_server(), own.gha_remoteHostName);
    OK(grpc_handle_attr_destruct_np(&own));
    OK(grpc_function_handle_destruct(&handle));
    EXPECT(GRPC_INVALID_FUNCTION_HANDLE, grpc_function_handle_is_ready_np(&handle));
    OK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_HOSTNAME, (void *)"nowhere.invalid"));
    EXPECT(GRPC_SERVER_NOT_FOUND, grpc_function_handle_init_with_attr_np(&handle, &attr));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_handle_attr_set_np(&attr, (grpc_handle_attr_name_t_np)99, &port));
    OK(grpc_handle_attr_destruct_np(&attr));
    OK(grpc_function_handle_array_destruct_np(handles, 2));
}

static void attributes_of_objects(void) {
    grpc_handle_attr_t_np attr, own;
    grpc_session_attr_t_np session;
    grpc_object_handle_t_np object, objects[1], *from = NULL;
    grpc_sessionid_t id;
    grpc_arg_stack_t *stack;
    long sum = 0, count = 0;
    int n = 3;
    BEGIN();
    OK(grpc_handle_attr_initialize_np(&attr));
    OK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, (void *)"gridrpc/account"));
    OK(grpc_object_handle_init_with_attr_np(&object, &attr));
    OK(grpc_object_handle_array_init_with_attr_np(objects, 1, &attr));
    OK(grpc_object_handle_is_ready_np(&object));
    OK(grpc_object_handle_get_error_np(&object));
    OK(grpc_object_handle_perror_np(&object, "an object"));
    OK(grpc_object_handle_get_attr_np(&object, &own));
    TEXT("gridrpc/account", own.gha_functionName);
    OK(grpc_handle_attr_destruct_np(&own));
    OK(grpc_session_attr_initialize_with_object_handle_np(&object, &session));
    OK(grpc_invoke_with_attr_np(&object, "add", &session, 1, &sum, &count));
    EQUAL(101, sum);
    OK(grpc_invoke_async_with_attr_np(&object, "add", &id, &session, 2, &sum, &count));
    OK(grpc_object_handle_get_from_session_np(&from, id));
    CHECK(from == &object);
    OK(grpc_wait(id));
    EQUAL(103, sum);
    stack = grpc_arg_stack_new(3);
    grpc_arg_stack_push_arg(stack, &n), grpc_arg_stack_push_arg(stack, &sum), grpc_arg_stack_push_arg(stack, &count);
    EQUAL(0, grpc_invoke_arg_stack_with_attr_np(&object, "add", &session, stack));
    EQUAL(106, sum);
    id = grpc_invoke_arg_stack_async_with_attr_np(&object, "add", &session, stack);
    OK(grpc_wait(id));
    EQUAL(109, sum);
    grpc_arg_stack_destruct(stack);
    OK(grpc_session_attr_destruct_np(&session));
    OK(grpc_handle_attr_destruct_np(&attr));
    OK(grpc_object_handle_destruct_np(&object));
    OK(grpc_object_handle_array_destruct_np(objects, 1));
}

static void attributes_of_sessions(void) {
    grpc_session_attr_t_np attr;
    grpc_function_handle_t *from = NULL;
    grpc_sessionid_t id;
    grpc_arg_stack_t *stack;
    int seconds = 1, x = 5, y = 0;
    void *value = NULL;
    BEGIN();
    HANDLE(add, "add");
    HANDLE(sleep, "sleep");
    OK(grpc_session_attr_initialize_np(&add, &attr));
    OK(grpc_session_attr_get_np(&attr, GRPC_SESSION_ATTR_SESSION_TIMEOUT, &value));
    EQUAL(0, *(int *)value);
    OK(grpc_session_attr_release_np(value));
    OK(grpc_call_with_attr_np(&add, &attr, 1, &y));
    EQUAL(2, y);
    OK(grpc_call_async_with_attr_np(&add, &id, &attr, 2, &y));
    OK(grpc_function_handle_get_from_session_np(&from, id));
    CHECK(from == &add);
    OK(grpc_wait(id));
    EQUAL(3, y);
    stack = grpc_arg_stack_new(2);
    grpc_arg_stack_push_arg(stack, &x), grpc_arg_stack_push_arg(stack, &y);
    EQUAL(0, grpc_call_arg_stack_with_attr_np(&add, &attr, stack));
    EQUAL(6, y);
    id = grpc_call_arg_stack_async_with_attr_np(&add, &attr, stack);
    OK(grpc_wait(id));
    grpc_arg_stack_destruct(stack);
    OK(grpc_session_attr_set_np(&attr, GRPC_SESSION_ATTR_SESSION_TIMEOUT, &seconds));
    EXPECT(GRPC_TIMEOUT_NP, grpc_call_with_attr_np(&sleep, &attr, 60));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_call_with_attr_np(&sleep, NULL, 60));
    OK(grpc_session_attr_destruct_np(&attr));
}

static void what_sessions_were(void) {
    grpc_session_info_t_np *info = NULL;
    grpc_exec_info_t_np own;
    grpc_sessionid_t id, failed;
    int status = 0, y = 0;
    BEGIN();
    HANDLE(add, "add");
    HANDLE(exit, "exit");
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_session_info_get_np(GRPC_SESSIONID_VOID, &info, &status));
    EQUAL(GRPC_SESSION_UNKNOWN_STATUS, status);
    OK(grpc_call_async(&add, &id, 1, &y));
    OK(grpc_wait(id));
    OK(grpc_session_info_get_np(id, NULL, &status));
    EQUAL(GRPC_SESSION_DONE, status);
    OK(grpc_session_info_get_np(id, &info, &status));
    CHECK(info->gei_measureClient.calculationRealTime.tv_sec < 3600);
    EQUAL(0, info->gei_compressionInformation.nElements);
    OK(grpc_session_info_release_np(info));
    OK(grpc_get_info_np(id, &own, &status));
    OK(grpc_get_last_info_np(&own, &status));
    EQUAL(GRPC_SESSION_DONE, status);
    OK(grpc_call_async(&exit, &failed, 1));
    EXPECT(GRPC_SESSION_FAILED, grpc_wait(failed));
    OK(grpc_session_info_get_np(failed, NULL, &status));
    EQUAL(GRPC_SESSION_DOWN, status);
    OK(grpc_call(&add, 1, &y));
    OK(grpc_get_last_info_np(&own, &status));
    EQUAL(GRPC_SESSION_DONE, status);
    OK(grpc_session_info_set_threshold_np(0));
    EXPECT(GRPC_INVALID_SESSION_ID, grpc_session_info_get_np(id, NULL, &status));
}

static volatile sig_atomic_t caught;

static void on_signal(int number) { caught = number; }

static void handlers_of_signals(void) {
    BEGIN();
    OK(grpc_signal_handler_set_np(SIGUSR1, on_signal));
    CHECK(raise(SIGUSR1) == 0);
    EQUAL(SIGUSR1, caught);
    OK(grpc_signal_handler_set_np(SIGUSR1, SIG_DFL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_signal_handler_set_np(SIGKILL, on_signal));
}

static void configurations_of_ninfg(void) {
    grpc_function_handle_t handle;
    char text[256];
    int y = 0;
    BEGIN();
    sprintf(text, "# more servers\n<SERVER>\nhostname  elsewhere.invalid\nport 1\ntag elsewhere\n</SERVER>\n"
                  "<FUNCTION_INFO>\nhostname %s\nfuncname gridrpc/sleep\nsession_timeout 1 sec\n</FUNCTION_INFO>\n", "any");
    CHECK(write_text("more.conf", text));
    OK(grpc_config_file_read_np("more.conf"));
    OK(grpc_function_handle_default(&handle, "gridrpc/sleep"));
    EXPECT(GRPC_TIMEOUT_NP, grpc_call(&handle, 60));
    EXPECT(GRPC_SERVER_NOT_FOUND, grpc_function_handle_init(&handle, "elsewhere", "gridrpc/add"));
    CHECK(write_text("wrong.conf", "<SERVER>\nhostname\n</SERVER>\n"));
    EXPECT(GRPC_CONFIGFILE_ERROR, grpc_config_file_read_np("wrong.conf"));
    CHECK(strstr(grpc_last_error_text_np(), "wrong.conf:2") != NULL);
    EXPECT(GRPC_CONFIGFILE_NOT_FOUND, grpc_config_file_read_np("no/such.conf"));
    OK(grpc_function_handle_default(&handle, "gridrpc/add"));
    OK(grpc_call(&handle, 1, &y));
}

static void names_that_are_no_text(void) {
    grpc_function_handle_t handle;
    grpc_object_handle_t_np object;
    BEGIN();
    EXPECT(GRPC_FUNCTION_NOT_FOUND, grpc_function_handle_default(&handle, "gr\xff"));
    EXPECT(GRPC_SERVER_NOT_FOUND, grpc_function_handle_init(&handle, "gr\xff", "gridrpc/add"));
    EXPECT(GRPC_CLASS_NOT_FOUND_NP, grpc_object_handle_default_np(&object, "gr\xff"));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_function_handle_default(&handle, NULL));
}

static grpc_function_handle_t endless;
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
static grpc_error_t ended_with;

static void *call_endless(void *begun) {
    grpc_error_t error;
    pthread_barrier_wait((pthread_barrier_t *)begun);
    error = grpc_call(&endless, 1);
    pthread_mutex_lock(&ending);
    ended_with = error;
    pthread_mutex_unlock(&ending);
    return NULL;
}

/* grpc_call has no id: this is the only method to end it. */
static void calls_of_other_threads_are_cancelled(void) {
    pthread_t thread;
    pthread_barrier_t begun;
    struct timespec pause = {0, 20000000};
    int over = 0;
    /* In simulation, a body that waits for its cancellation never ends. */
    if (getenv("GRIDLOOM_SIMULATE") != NULL) return;
    BEGIN();
    OK(grpc_function_handle_default(&endless, "gridrpc/loop"));
    pthread_barrier_init(&begun, NULL, 2);
    ended_with = GRPC_NO_ERROR;
    if (pthread_create(&thread, NULL, call_endless, &begun) != 0) return;
    pthread_barrier_wait(&begun);
    /* Until it has begun there is nothing to cancel. */
    while (!over) {
        OK(grpc_cancel_all());
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&ending);
        over = ended_with != GRPC_NO_ERROR;
        pthread_mutex_unlock(&ending);
    }
    pthread_join(thread, NULL);
    EQUAL(GRPC_CANCELED_NP, ended_with);
    pthread_barrier_destroy(&begun);
}

static void calls_as_in_netsolve(void) {
    int y = 0, request;
    BEGIN();
    EQUAL(0, netsl("gridrpc/add()", 1, &y));
    EQUAL(2, y);
    request = netslnb("gridrpc/add()", 2, &y);
    CHECK(request > 0);
    EQUAL(0, netslwt(request));
    EQUAL(3, y);
    EQUAL(-GRPC_INVALID_SESSION_ID, netslpr(request));
    EQUAL(-GRPC_FUNCTION_NOT_FOUND, netsl("gridrpc/nothing()", 1, &y));
    request = netslnb("gridrpc/add()", 3, &y);
    while (netslpr(request) == -GRPC_NOT_COMPLETED) continue;
    EQUAL(4, y);
    EQUAL(0, netslwt(request));
    netslerr(-GRPC_FUNCTION_NOT_FOUND);
}

const test_case ninfg_cases[] = {
    {"Ninf-G: attributes of handles", attributes_of_handles},
    {"Ninf-G: attributes of objects", attributes_of_objects},
    {"Ninf-G: attributes of sessions", attributes_of_sessions},
    {"Ninf-G: what sessions were", what_sessions_were},
    {"Ninf-G: handlers of signals", handlers_of_signals},
    {"Ninf-G: configurations", configurations_of_ninfg},
    {"1.4: names that are no text are nothing's", names_that_are_no_text},
    {"1.4: calls of other threads are cancelled", calls_of_other_threads_are_cancelled},
    {"NetSolve: calls by the name of a problem", calls_as_in_netsolve},
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
    {"Ninf-G: bodies see that they are cancelled", bodies_see_that_they_are_cancelled},
    {NULL, NULL},
};
