/* Data management as in GFD.186 (grpc_data.h). */
#include "suite.h"

#include <stdlib.h>

enum { N = 3000 };

static double x[N], y[N], z[N];
static const size_t extents[] = {N, 0};

/* A list of URIs, ended by NULL. */
#define URIS(name, ...) const char *name[] = {__VA_ARGS__, NULL}

static void fill(void) {
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = 1;
        z[i] = 0;
    }
}

static void memory_in_and_out(void) {
    grpc_data_t in, out;
    void *found = NULL;
    URIS(from, "memory:x");
    URIS(to, "memory:z", "gridloom:");
    const grpc_data_mode_t modes[] = {GRPC_VOLATILE, GRPC_PERSISTENT, GRPC_END_LIST};
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_data_memory_mapping_set("x", x));
    OK(grpc_data_memory_mapping_set("z", z));
    OK(grpc_data_memory_mapping_get("z", &found));
    CHECK(found == z);
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_memory_mapping_get("none", &found));
    OK(grpc_data_init(&in, from, NULL, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_init(&out, from, to, GRPC_DOUBLE, extents, modes));
    OK(grpc_call(&axpy, N, 2.0, &in, &out));
    for (int i = 0; i < N; i++) EQUAL(3.0 * i, z[i]);
    /* A copy also stays on the server. */
    double sum = 0;
    OK(mynetsl("sum", (long)N, &out, &sum));
    EQUAL(1.5 * N * (N - 1), sum);
    OK(grpc_data_unbind(&in));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_unbind(&in));
    OK(grpc_data_free(&out, NULL));
    OK(grpc_data_memory_mapping_set("z", NULL));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_memory_mapping_get("z", &found));
}

static void files_in_and_out(void) {
    grpc_data_t data, copy;
    grpc_data_t *all[] = {&data, &copy, NULL}, *first = NULL;
    URIS(file, "file:data.bin");
    URIS(from, "file:no/such/file", "memory:x");
    URIS(to, "memory:z");
    double sum = 0;
    fill();
    BEGIN();
    OK(grpc_data_memory_mapping_set("x", x));
    OK(grpc_data_memory_mapping_set("z", z));
    OK(grpc_data_init(&data, from, file, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_transfer(&data, NULL, NULL, NULL));
    OK(grpc_data_init(&copy, file, to, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, &first));
    CHECK(first == &data);
    OK(grpc_data_transfer(&copy, NULL, NULL, NULL));
    EQUAL(0, z[1]);
    OK(grpc_data_wait(all, GRPC_WAIT_ANY, &first));
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    EQUAL(N - 1, z[N - 1]);
    OK(mynetsl("sum", (long)N, &copy, &sum));
    EQUAL(0.5 * N * (N - 1), sum);
    /* Only data that exist are deleted. */
    OK(grpc_data_free(&copy, NULL));
    FILE *left = fopen("data.bin", "rb");
    CHECK(left != NULL);
    fclose(left);
    OK(grpc_data_free(&data, NULL));
    CHECK(fopen("data.bin", "rb") == NULL);
}

/* The outputs of a session are put in their places when the session is waited for. */
static void outputs_of_sessions(void) {
    grpc_data_t a, b;
    grpc_sessionid_t first, second;
    grpc_data_t *both[] = {&a, &b, NULL}, *ended = NULL;
    URIS(to, "memory:z");
    URIS(stays, "gridloom:");
    fill();
    BEGIN();
    HANDLE(axpy, "axpy");
    OK(grpc_data_memory_mapping_set("z", z));
    OK(grpc_data_init(&a, NULL, stays, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_init(&b, NULL, to, GRPC_DOUBLE, extents, NULL));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_call_async(&axpy, &first, N, 1.0, x, &a));
    grpc_function_handle_t transpose;
    OK(grpc_function_handle_default(&transpose, "gridrpc/transpose"));
    /* Two floats in the place of a double: memory is not converted. */
    OK(grpc_call_async(&transpose, &first, 2 * N, 1, x, &a));
    OK(grpc_call_async(&transpose, &second, 1, 2 * N, &a, &b));
    OK(grpc_data_wait(both, GRPC_WAIT_ANY, &ended));
    CHECK(ended == &a || ended == &b);
    OK(grpc_wait(second));
    OK(grpc_wait(first));
    EQUAL(N - 1, z[N - 1]);
}

static void erased_after_one_reading(void) {
    grpc_data_t data;
    URIS(to, "gridloom:");
    const grpc_data_mode_t modes[] = {GRPC_STRICTLY_VOLATILE, GRPC_END_LIST};
    double sum = 0;
    fill();
    BEGIN();
    HANDLE(transpose, "transpose");
    OK(grpc_data_init(&data, NULL, to, GRPC_DOUBLE, extents, modes));
    OK(grpc_call(&transpose, 2 * N, 1, x, &data));
    OK(mynetsl("sum", (long)N, &data, &sum));
    EQUAL(0.5 * N * (N - 1), sum);
    EXPECT(GRPC_INVALID_DATA_NP, mynetsl("sum", (long)N, &data, &sum));
}

static void it_is_told(void) {
    grpc_data_t data;
    char *text = NULL;
    URIS(from, "memory:x", "file:x.bin");
    URIS(to, "gridloom:", "memory:z");
    const grpc_data_mode_t modes[] = {GRPC_STICKY, GRPC_UNIQUE_STICKY, GRPC_END_LIST};
    const size_t matrix[] = {3, N / 3, 0};
    double sum = 0;
    fill();
    BEGIN();
    OK(grpc_data_memory_mapping_set("x", x));
    OK(grpc_data_init(&data, from, to, GRPC_DOUBLE, matrix, modes));
#define TELLS(tag, expected)                                                                                           \
    do {                                                                                                               \
        OK(grpc_data_getinfo(&data, tag, NULL, &text));                                                                \
        TEXT(expected, text);                                                                                          \
        free(text);                                                                                                    \
    } while (0)
    TELLS(GRPC_INPUT_URI, "memory:x\nfile:x.bin");
    TELLS(GRPC_OUTPUT_URI, "gridloom:\nmemory:z");
    TELLS(GRPC_MANAGEMENT_MODE, "GRPC_STICKY\nGRPC_UNIQUE_STICKY");
    TELLS(GRPC_TYPE, "GRPC_DOUBLE");
    TELLS(GRPC_DIMENSION, "3\n1000");
    TELLS(GRPC_STATUS, "undefined");
    OK(mynetsl("sum", (long)N, &data, &sum));
    EQUAL(0.5 * N * (N - 1), sum);
    TELLS(GRPC_STATUS, "ready");
    TELLS(GRPC_LOCATIONS_LIST, "client");
    OK(grpc_data_getinfo(&data, GRPC_STATUS, suite_server(), &text));
    TEXT("undefined", text);
    free(text);
    OK(grpc_data_getinfo(&data, GRPC_DATA_HANDLE, NULL, &text));
    CHECK(strncmp(text, "gridloom-", 9) == 0);
    free(text);
}

static void saved_and_loaded(void) {
    static char saved[4096];
    grpc_data_t data, again, other;
    URIS(from, "memory:x");
    double sum = 0;
    char *text = NULL;
    fill();
    BEGIN();
    OK(grpc_data_memory_mapping_set("x", x));
    OK(grpc_data_memory_mapping_set("saved", saved));
    OK(grpc_data_init(&data, from, NULL, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_save(&data, "memory:saved"));
    OK(grpc_data_save(&data, "file:saved.toml"));
    OK(grpc_data_load(&again, "memory:saved"));
    OK(mynetsl("sum", (long)N, &again, &sum));
    EQUAL(0.5 * N * (N - 1), sum);
    /* The same datum, which has been read. */
    OK(grpc_data_getinfo(&data, GRPC_STATUS, NULL, &text));
    TEXT("ready", text);
    free(text);
    OK(grpc_data_unbind(&data));
    OK(grpc_data_unbind(&again));
    OK(grpc_data_load(&other, "file:saved.toml"));
    remove("saved.toml");
    OK(grpc_data_getinfo(&other, GRPC_STATUS, NULL, &text));
    TEXT("undefined", text);
    free(text);
    OK(mynetsl("sum", (long)N, &other, &sum));
    strcpy(saved, "inputs = 3");
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_load(&other, "memory:saved"));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_load(&other, "file:no/such/file"));
}

static void containers(void) {
    grpc_data_t container, data, found;
    const size_t two[] = {2, 0};
    URIS(from, "memory:x");
    double sum = 0;
    fill();
    BEGIN();
    OK(grpc_data_memory_mapping_set("x", x));
    OK(grpc_data_init(&container, NULL, NULL, GRPC_CONTAINER_OF_GRPC_DATA, two, NULL));
    OK(grpc_data_init(&data, from, NULL, GRPC_DOUBLE, extents, NULL));
    OK(grpc_data_container_set(&container, 1, &data));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_container_set(&container, 2, &data));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_container_set(&container, -1, &data));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_container_set(&data, 0, &container));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_container_set(&container, 0, &container));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_container_get(&container, 0, &found));
    OK(grpc_data_unbind(&data));
    OK(grpc_data_container_get(&container, 1, &found));
    OK(mynetsl("sum", (long)N, &found, &sum));
    EQUAL(0.5 * N * (N - 1), sum);
}

static void what_is_wrong(void) {
    grpc_data_t data, none;
    grpc_data_t *all[] = {&data, NULL};
    memset(&none, 0, sizeof none);
    URIS(good, "memory:x");
    const grpc_data_mode_t modes[] = {GRPC_VOLATILE, GRPC_VOLATILE, GRPC_END_LIST};
    fill();
    BEGIN();
    const char *bad[] = {"", "x", "s3://a/b", "memory:", "file://host", "gridloom://server/a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        URIS(list, bad[i]);
        EXPECT(GRPC_INVALID_DATA_NP, grpc_data_init(&data, list, NULL, GRPC_DOUBLE, NULL, NULL));
    }
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_init(&data, NULL, good, GRPC_DOUBLE, NULL, modes));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_init(&data, NULL, NULL, (grpc_data_type_t)99, NULL, NULL));
    EXPECT(GRPC_OTHER_ERROR_CODE, grpc_data_init(NULL, NULL, NULL, GRPC_DOUBLE, NULL, NULL));
    EXPECT(GRPC_INVALID_DATA_NP, grpc_data_transfer(&none, NULL, NULL, NULL));
    OK(grpc_data_init(&data, good, NULL, GRPC_DOUBLE, extents, NULL));
    double sum;
    /* The key has no address. */
    EXPECT(GRPC_INVALID_DATA_NP, mynetsl("sum", (long)N, &data, &sum));
    OK(grpc_data_transfer(&data, NULL, NULL, NULL));
    EXPECT(GRPC_COMMUNICATION_FAILED, grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    CHECK(strstr(grpc_last_error_text_np(), "memory:x") != NULL);
    OK(grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
    OK(grpc_data_memory_mapping_set("x", x));
    EXPECT(GRPC_OTHER_ERROR_CODE, mynetsl("sum", (long)N + 1, &data, &sum));
    OK(grpc_finalize());
    EXPECT(GRPC_NOT_INITIALIZED, grpc_data_wait(all, GRPC_WAIT_ALL, NULL));
}

const test_case data_cases[] = {
    {"data: from memory and to memory", memory_in_and_out},
    {"data: from files and to files", files_in_and_out},
    {"data: what sessions make is put where it has to be", outputs_of_sessions},
    {"data: strictly volatile, it is read once", erased_after_one_reading},
    {"data: what is known is told", it_is_told},
    {"data: descriptions are saved and loaded", saved_and_loaded},
    {"data: containers", containers},
    {"data: what is wrong is told", what_is_wrong},
    {NULL, NULL},
};
