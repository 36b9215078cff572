/* A client asks a server to multiply matrices: the program of section 4 of the report on GRAS (INRIA RR-5789), in C. `matmul.py` and
 * `matmul.rs` are the same in Python and Rust, and a client of one language can use a server of another.
 *
 *   make capi
 *   cc -O2 -Itarget/capi/include examples/processes/matmul.c -Ltarget/capi/lib -lgridloom -Wl,-rpath,$PWD/target/capi/lib -o matmul
 *   gridloom simulate -p examples/two-sites.toml -d examples/processes/deployment.toml -- ./matmul
 *   gridloom deploy -d examples/processes/deployment.toml -- ./matmul --set matmul.size=128
 */
#include <gridloom.h>
#include <stdio.h>
#include <stdlib.h>

#define PORT 4002
#define NOTHING_TO_DO 1

GRIDLOOM_LOG_CATEGORY(matmul);

GRIDLOOM_MESSAGE(Multiply, struct Multiply {
    size_t m, k, n;
    double *a GRIDLOOM_LENGTH(m * k);
    double *b GRIDLOOM_LENGTH(k * n);
});
GRIDLOOM_MESSAGE(Product, struct Product { size_t m, n; double *c GRIDLOOM_LENGTH(m * n); });
GRIDLOOM_SIGNAL(Done);

/* Each simulated process has its own copy. */
static int products;

/* The product of an m x k and a k x n matrix. */
static double *multiply(const struct Multiply *work) {
    double *c = calloc(work->m * work->n, sizeof *c);
    for (size_t i = 0; i < work->m; i++)
        for (size_t l = 0; l < work->k; l++)
            for (size_t j = 0; j < work->n; j++) c[i * work->n + j] += work->a[i * work->k + l] * work->b[l * work->n + j];
    return c;
}

static int on_multiply(gridloom_message *message, void *context) {
    const struct Multiply *work = message->data;
    struct Product product = {work->m, work->n, NULL};
    (void)context;
    if (work->m * work->n == 0)
        return gridloom_fail(NOTHING_TO_DO, "nothing to multiply: %zu x %zu times %zu x %zu", work->m, work->k, work->k, work->n);
    GRIDLOOM_MEASURE("multiply", GRIDLOOM_ONCE) { product.c = multiply(work); }
    products++;
    gridloom_debug("a product of %zu rows", product.m);
    int code = gridloom_send(message->from, "Product", &product);
    free(product.c);
    return code;
}

static int on_done(gridloom_message *message, void *is_done) {
    (void)message;
    *(int *)is_done = 1;
    return 0;
}

GRIDLOOM_PROCESS(server) {
    int is_done = 0;
    if (gridloom_listen(PORT) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    gridloom_on("Multiply", on_multiply, NULL);
    gridloom_on("Done", on_done, &is_done);
    while (!is_done)
        if (gridloom_handle(GRIDLOOM_FOREVER) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    gridloom_info("done after %d products", products);
    return 0;
}

GRIDLOOM_PROCESS(client) {
    if (argc != 3) return gridloom_fail(2, "expected a host and a number of rounds");
    int64_t size = 64;
    if (gridloom_config_integer("matmul.size", &size) < 0) return gridloom_fail(2, "%s", gridloom_last_error());
    gridloom_peer server = gridloom_connect(argv[1], PORT, 10);
    if (server < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    size_t n = (size_t)size, count = n * n;
    struct Multiply work = {n, n, n, calloc(count, sizeof(double)), calloc(count, sizeof(double))};
    gridloom_message *got;
    for (int rounds = atoi(argv[2]); products < rounds; products++) {
        /* Small integers: every order of summation gives the same result. */
        for (size_t i = 0; i < count; i++) {
            work.a[i] = (double)((i * 7 + (size_t)products) % 17);
            work.b[i] = (double)((i * 11 + (size_t)products) % 17);
        }
        if (gridloom_send(server, "Multiply", &work) < 0 || gridloom_wait_for("Product", server, 60, &got) < 0)
            return gridloom_fail(1, "%s", gridloom_last_error());
        const struct Product *product = got->data;
        double *expected = multiply(&work);
        for (size_t i = 0; i < count; i++)
            if (product->m != n || product->n != n || product->c[i] != expected[i])
                return gridloom_fail(3, "round %d: element %zu is wrong", products, i);
        free(expected);
        gridloom_message_free(got);
    }
    printf("%d products are right\n", products);
    free(work.a);
    free(work.b);
    return gridloom_send(server, "Done", NULL);
}

GRIDLOOM_MAIN
