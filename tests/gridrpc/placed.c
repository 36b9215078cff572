/* Data on servers that the program chooses, the five modes, and uses of a datum that no longer exists (grpc_data.h,
 * grpc_remote.h). */
#include "suite.h"

#include <stdlib.h>

enum { N = 3000 };

static double x[N], z[N];
static const size_t extents[] = {N, 0};
static const double total = 0.5 * N * (N - 1);

#define URIS(name, ...) const char *name[] = {__VA_ARGS__, NULL}
#define MODES(name, ...) const grpc_data_mode_t name[] = {__VA_ARGS__, GRPC_END_LIST}

static void fill(void) {
    for (int i = 0; i < N; i++) {
        x[i] = i;
        z[i] = 0;
    }
}

static int lies_at(grpc_data_t *data, const char *places) {
    char *text = NULL;
    if (grpc_data_getinfo(data, GRPC_LOCATIONS_LIST, NULL, &text) != GRPC_NO_ERROR) return 0;
    int is_so = strcmp(text, places) == 0;
    if (!is_so) printf("# it lies at \"%s\", expected \"%s\"\n", text, places);
    free(text);
    return is_so;
}

/* Sums it up on whichever server is chosen, which must be that one. */
static void sums_there(grpc_data_t *data, const char *server) {
    grpc_sessionid_t id;
    grpc_session_details_np info;
    double sum = 0;
    HANDLE(handle, "sum");
    OK(grpc_call_async(&handle, &id, (long)N, data, &sum));
    OK(grpc_wait(id));
    EQUAL(total, sum);
    OK(grpc_session_details_get_np(id, &info));
    if (server != NULL) TEXT(server, info.server);
}

#define BEGIN_WITH_X()                                                                                                 \
    fill();                                                                                                            \
    BEGIN();                                                                                                           \
    OK(grpc_data_memory_mapping_set("x", x));                                                                          \
    OK(grpc_data_memory_mapping_set("z", z))

/* A result with additional copies on two servers; each copy may be deleted. */
static void copies_on_named_servers(void) {
    grpc_data_t data;
    grpc_data_t *all[] = {&data, NULL};
    grpc_function_handle_t handle;
    URIS(to, "gridloom://server-1", "gridloom://server-3");
    URIS(one, "gridloom://server-1");
    URIS(none, "gridloom://no-such-server");
    MODES(modes, GRPC_STICKY, GRPC_PERSISTENT);
    char *text = NULL;
    BEGIN_WITH_X();
    OK(grpc_data_init(&data, NULL, to, GRPC_DOUBLE, extents, modes));
    OK(grpc_function_handle_init(&handle, "server-2", "gridrpc/transpose"));
    OK(grpc_call(&handle, 2 * N, 1, x, &data));
    CHECK(lies_at(&data, "server-2\nserver-1\nserver-3"));
    OK(grpc_data_getinfo(&data, GRPC_STATUS, "server-3", &text));
    TEXT("ready", text);
    free(text);
    sums_there(&data, NULL);
    OK(grpc_data_free(&data, one));
    CHECK(lies_at(&data, "server-2\nserver-3"));
    OK(grpc_data_transfer(&data, NULL, one, NULL));
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    CHECK(lies_at(&data, "server-2\nserver-3\nserver-1"));
    OK(grpc_data_transfer(&data, NULL, none, NULL));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    CHECK(strstr(grpc_last_error_text_np(), "no-such-server") != NULL);
    sums_there(&data, NULL);
}

/* From the program's memory to a server, where a call then finds it. */
static void memory_to_a_server(void) {
    grpc_data_t data;
    grpc_data_t *all[] = {&data, NULL};
    grpc_function_handle_t handle;
    URIS(from, "memory:x");
    URIS(to, "gridloom://server-2");
    MODES(modes, GRPC_STICKY);
    double sum = 0;
    BEGIN_WITH_X();
    OK(grpc_data_init(&data, from, to, GRPC_DOUBLE, extents, modes));
    OK(grpc_data_transfer(&data, NULL, NULL, NULL));
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    CHECK(lies_at(&data, "client\nserver-2"));
    x[1] = 1e9;
    OK(grpc_function_handle_init(&handle, "server-2", "gridrpc/sum"));
    OK(grpc_call(&handle, (long)N, &data, &sum));
    EQUAL(total, sum);
    OK(grpc_data_free(&data, NULL));
}

/* One copy on one server: calls that read it run there, and it is not copied elsewhere. */
static void unique_where_it_was_made(void) {
    grpc_data_t data, out;
    grpc_data_t *all[] = {&data, NULL};
    grpc_function_handle_t handle;
    grpc_sessionid_t id;
    URIS(to, "gridloom:", "memory:z");
    URIS(other, "gridloom://server-1");
    MODES(modes, GRPC_UNIQUE_STICKY, GRPC_VOLATILE);
    double sum = 0;
    BEGIN_WITH_X();
    OK(grpc_data_init(&data, NULL, to, GRPC_DOUBLE, extents, modes));
    OK(grpc_function_handle_init(&handle, "server-2", "gridrpc/transpose"));
    OK(grpc_call_async(&handle, &id, 2 * N, 1, x, &data));
    /* It need not be there yet. */
    sums_there(&data, "server-2");
    OK(grpc_wait(id));
    EQUAL(N - 1, z[N - 1]);
    CHECK(lies_at(&data, "server-2"));
    for (int i = 0; i < 4; i++) sums_there(&data, "server-2");
    OK(grpc_function_handle_init(&handle, "server-1", "gridrpc/sum"));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_call(&handle, (long)N, &data, &sum));
    CHECK(strstr(grpc_last_error_text_np(), "'server-2'") != NULL);
    CHECK(strstr(grpc_last_error_text_np(), "GRPC_UNIQUE_STICKY") != NULL);
    OK(grpc_data_transfer(&data, NULL, other, NULL));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    CHECK(lies_at(&data, "server-2"));
    /* One call cannot read two such data on different servers. */
    MODES(unique, GRPC_UNIQUE_STICKY);
    HANDLE(axpy, "axpy");
    OK(grpc_data_init(&out, NULL, other, GRPC_DOUBLE, extents, unique));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_call(&axpy, N, 1.0, &data, &out));
    HANDLE(transpose, "transpose");
    OK(grpc_call(&transpose, 2 * N, 1, x, &out));
    CHECK(lies_at(&out, "server-1"));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_call(&axpy, N, 1.0, &data, &out));
    sums_there(&out, "server-1");
}

/* The same with memory of the program: it is sent to its server, and the library keeps no copy. */
static void unique_from_memory(void) {
    grpc_data_t data;
    grpc_data_t *all[] = {&data, NULL};
    URIS(from, "memory:x");
    URIS(to, "gridloom://server-3");
    URIS(back, "memory:z");
    URIS(two, "gridloom://server-1", "gridloom://server-2");
    MODES(modes, GRPC_UNIQUE_STICKY);
    MODES(both, GRPC_UNIQUE_STICKY, GRPC_UNIQUE_STICKY);
    BEGIN_WITH_X();
    OK(grpc_data_init(&data, from, to, GRPC_DOUBLE, extents, modes));
    sums_there(&data, "server-3");
    CHECK(lies_at(&data, "server-3"));
    OK(grpc_data_transfer(&data, NULL, back, NULL));
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    EQUAL(N - 1, z[N - 1]);
    sums_there(&data, "server-3");
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_init(&data, from, two, GRPC_DOUBLE, extents, both));
}

/* Read once, where it is, and then deleted: also for calls that fail, and however it was made. */
static void strictly_volatile(void) {
    grpc_data_t made, put;
    URIS(from, "memory:x");
    URIS(stays, "gridloom:");
    URIS(to, "gridloom://server-2");
    MODES(modes, GRPC_STRICTLY_VOLATILE);
    double sum = 0;
    char *text = NULL;
    BEGIN_WITH_X();
    HANDLE(transpose, "transpose");
    OK(grpc_data_init(&made, NULL, to, GRPC_DOUBLE, extents, modes));
    OK(grpc_call(&transpose, 2 * N, 1, x, &made));
    CHECK(lies_at(&made, "server-2"));
    sums_there(&made, "server-2");
    EXPECT(GRPC_INVALID_DATA_NP, mynetsl("sum", (long)N, &made, &sum));
    OK(grpc_data_getinfo(&made, GRPC_STATUS, NULL, &text));
    TEXT("undefined", text);
    free(text);
    /* A result of it that stays and can be used after it. */
    grpc_remote_t kept;
    OK(grpc_data_init(&put, from, stays, GRPC_DOUBLE, extents, modes));
    OK(grpc_remote_new_np(&kept, NULL));
    OK(grpc_call(&transpose, 2 * N, 1, &put, kept));
    OK(grpc_data_unbind(&put));
    OK(mynetsl("sum", (long)N, kept, &sum));
    EQUAL(total, sum);
}

/* Files of servers: the content is sent from there to where it is used, and back. */
static void files_of_servers(void) {
    grpc_data_t data, again, ints, wrong;
    grpc_data_t *all[] = {&data, NULL};
    URIS(from, "memory:x");
    URIS(file, "file://server-1/placed/x.bin");
    URIS(out, "file://server-1/../x.bin");
    URIS(none, "file://server-1/placed/none.bin");
    const size_t longer[] = {N + 1, 0}, whole[] = {2, N, 0};
    double sum = 0;
    BEGIN_WITH_X();
    OK(grpc_data_init(&data, from, file, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_transfer(&data, NULL, NULL, NULL));
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    OK(grpc_data_init(&again, file, NULL, GRPC_DOUBLE, extents, NULL));
    sums_there(&again, NULL);
    CHECK(lies_at(&again, "server-1"));
    OK(grpc_data_init(&ints, file, NULL, GRPC_INT, whole, NULL));
    OK(mynetsl("sum", (long)N, &ints, &sum));
    EQUAL(total, sum);
    OK(grpc_data_init(&wrong, file, NULL, GRPC_DOUBLE, longer, NULL));
    EXPECT(GRPC_INVALID_DATA_NP, mynetsl("sum", (long)N + 1, &wrong, &sum));
    CHECK(strstr(grpc_last_error_text_np(), "24000") != NULL && strstr(grpc_last_error_text_np(), "24008") != NULL);
    OK(grpc_data_init(&wrong, none, NULL, GRPC_DOUBLE, extents, NULL));
    EXPECT(GRPC_INVALID_DATA_NP, mynetsl("sum", (long)N, &wrong, &sum));
    CHECK(strstr(grpc_last_error_text_np(), "No such file") != NULL);
    OK(grpc_data_init(&wrong, from, out, GRPC_DOUBLE, extents, NULL));
    all[0] = &wrong;
    OK(grpc_data_transfer(&wrong, NULL, NULL, NULL));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    CHECK(strstr(grpc_last_error_text_np(), "Permission denied") != NULL);
    /* A result is sent there from where it was made. */
    URIS(made, "file://server-2/placed/made.bin");
    HANDLE(transpose, "transpose");
    OK(grpc_data_init(&ints, NULL, made, GRPC_DOUBLE, extents, NULL));
    OK(grpc_call(&transpose, 2 * N, 1, &again, &ints));
    OK(grpc_data_init(&wrong, made, NULL, GRPC_DOUBLE, extents, NULL));
    OK(mynetsl("sum", (long)N, &wrong, &sum));
    EQUAL(total, sum);
    OK(grpc_data_free(&ints, NULL));
    OK(grpc_data_free(&data, file));
    OK(grpc_data_init(&wrong, file, NULL, GRPC_DOUBLE, extents, NULL));
    EXPECT(GRPC_INVALID_DATA_NP, mynetsl("sum", (long)N, &wrong, &sum));
}

/* What a later session finds of it: its description, and its content in the file. */
static void found_by_another_session(void) {
    grpc_data_t data, found;
    URIS(from, "memory:x");
    URIS(to, "file://server-1/placed/kept.bin", "gridloom:");
    URIS(file, "file://server-1/placed/kept.bin");
    grpc_data_t *all[] = {&data, NULL};
    BEGIN_WITH_X();
    OK(grpc_data_init(&data, from, to, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_transfer(&data, NULL, NULL, NULL));
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    OK(grpc_data_save(&data, "file://server-1/placed/kept.toml"));
    OK(grpc_finalize());
    BEGIN();
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_load(&found, "file://server-1/placed/none.toml"));
    OK(grpc_data_load(&found, "file://server-1/placed/kept.toml"));
    sums_there(&found, NULL);
    OK(grpc_data_transfer(&found, NULL, file, NULL));
    all[0] = &found;
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    OK(grpc_data_free(&found, NULL));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_load(&found, "file://server-1/placed/kept.bin"));
}

/* A handle that no longer represents a datum is not read as memory. */
static void what_was_freed_or_copied(void) {
    grpc_data_t data, copy;
    grpc_remote_t remote;
    URIS(from, "memory:x");
    double sum = 0;
    BEGIN_WITH_X();
    HANDLE(transpose, "transpose");
#define REFUSED(call, word)                                                                                            \
    do {                                                                                                               \
        EXPECT(GRPC_INVALID_DATA_NP, call);                                                                            \
        CHECK(strstr(grpc_last_error_text_np(), word) != NULL);                                                        \
    } while (0)
    OK(grpc_remote_new_np(&remote, "freed"));
    OK(grpc_remote_put_np(remote, x, sizeof x));
    OK(mynetsl("sum", (long)N, remote, &sum));
    OK(grpc_remote_free_np(remote));
    REFUSED(mynetsl("sum", (long)N, remote, &sum), "freed");
    REFUSED(grpc_call(&transpose, 2 * N, 1, x, remote), "freed");
    OK(grpc_data_init(&data, from, NULL, GRPC_DOUBLE, extents, NULL));
    copy = data;
    REFUSED(mynetsl("sum", (long)N, &copy, &sum), "copy");
    REFUSED(grpc_data_transfer(&copy, NULL, NULL, NULL), "copy");
    sums_there(&data, NULL);
    OK(grpc_data_unbind(&data));
    REFUSED(mynetsl("sum", (long)N, &data, &sum), "freed");
    REFUSED(grpc_data_free(&data, NULL), "freed");
    /* An output argument is memory: another variable may be where a datum was. */
    union {
        grpc_data_t data;
        float y[2 * N];
    } place;
    OK(grpc_data_init(&place.data, from, NULL, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_unbind(&place.data));
    OK(grpc_call(&transpose, 2 * N, 1, x, place.y));
    /* It is memory again when something else is stored there, and a datum when it is initialised again. */
    memset(&data, 0, sizeof data);
    OK(mynetsl("sum", 2L, &data, &sum));
    OK(grpc_data_init(&data, from, NULL, GRPC_DOUBLE, extents, NULL));
    sums_there(&data, NULL);
    OK(grpc_finalize());
    BEGIN();
    REFUSED(mynetsl("sum", (long)N, &data, &sum), "session");
    REFUSED(mynetsl("sum", (long)N, remote, &sum), "freed");
}

static void files_are_as_described(void) {
    grpc_data_t data;
    URIS(file, "file:short.bin");
    const size_t any[] = {0};
    double sum = 0;
    FILE *written = fopen("short.bin", "wb");
    BEGIN_WITH_X();
    CHECK(written != NULL && fwrite(x, sizeof *x, N - 1, written) == N - 1 && fclose(written) == 0);
    OK(grpc_data_init(&data, file, NULL, GRPC_DOUBLE, extents, NULL));
    REFUSED(mynetsl("sum", (long)N, &data, &sum), "'file:short.bin' has 23992 bytes");
    CHECK(strstr(grpc_last_error_text_np(), "3000 of GRPC_DOUBLE, 24000 bytes") != NULL);
    /* For a datum without extents the size of the file counts. */
    OK(grpc_data_init(&data, file, NULL, GRPC_DOUBLE, any, NULL));
    OK(mynetsl("sum", (long)N - 1, &data, &sum));
    EQUAL(total - (N - 1), sum);
    remove("short.bin");
}

const test_case placed_cases[] = {
    {"placed: copies on named servers", copies_on_named_servers},
    {"placed: from memory to a server", memory_to_a_server},
    {"placed: unique and sticky, calls run where it was made", unique_where_it_was_made},
    {"placed: unique and sticky, from memory", unique_from_memory},
    {"placed: strictly volatile, it is erased after its use", strictly_volatile},
    {"placed: files of servers", files_of_servers},
    {"placed: another session finds it", found_by_another_session},
    {"placed: what was freed or copied is told", what_was_freed_or_copied},
    {"placed: files are as described", files_are_as_described},
    {NULL, NULL},
};
