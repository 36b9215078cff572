/* A client has a server multiply matrices: the program of section 4 of GRAS's report, for real and in simulation.
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
#define WRONG_SHAPE 1

GRIDLOOM_LOG_CATEGORY(matmul);

GRIDLOOM_MESSAGE(matrix, struct matrix { int rows, columns; double *data GRIDLOOM_LENGTH(rows * columns); });
GRIDLOOM_MESSAGE(multiply, struct multiply { struct matrix a, b; });
GRIDLOOM_MESSAGE_AS(product, matrix);
GRIDLOOM_SIGNAL(done);

/* Each simulated process has its own. */
static int products;

static double *at(const struct matrix *matrix, int row, int column) { return &matrix->data[row * matrix->columns + column]; }

static struct matrix new_matrix(int rows, int columns) {
    struct matrix matrix = {rows, columns, calloc((size_t)rows * columns, sizeof(double))};
    return matrix;
}

static int on_multiply(gridloom_message *message, void *context) {
    const struct multiply *call = message->data;
    (void)context;
    if (call->a.columns != call->b.rows)
        return gridloom_fail(WRONG_SHAPE, "%d columns times %d rows", call->a.columns, call->b.rows);
    struct matrix product = new_matrix(call->a.rows, call->b.columns);
    GRIDLOOM_MEASURE("multiply", GRIDLOOM_ONCE) {
        for (int i = 0; i < product.rows; i++)
            for (int k = 0; k < call->a.columns; k++)
                for (int j = 0; j < product.columns; j++)
                    *at(&product, i, j) += *at(&call->a, i, k) * *at(&call->b, k, j);
    }
    products++;
    gridloom_debug("a product of %d rows", product.rows);
    int code = gridloom_send(message->from, "product", &product);
    free(product.data);
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
    gridloom_on("multiply", on_multiply, NULL);
    gridloom_on("done", on_done, &is_done);
    while (!is_done)
        if (gridloom_handle(GRIDLOOM_FOREVER) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    gridloom_info("done after %d products", products);
    return 0;
}

GRIDLOOM_PROCESS(client) {
    if (argc != 3) return gridloom_fail(2, "arguments are the server's host and the number of rounds");
    int rounds = atoi(argv[2]);
    int64_t size = 64;
    if (gridloom_config_integer("matmul.size", &size) < 0) return gridloom_fail(2, "%s", gridloom_last_error());
    gridloom_peer server = gridloom_connect(argv[1], PORT, 10);
    if (server < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    int n = (int)size;
    struct multiply call = {new_matrix(n, n), new_matrix(n, n)};
    gridloom_message *got;
    for (; products < rounds; products++) {
        /* b is twice the unit matrix, so that the product is known. */
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) *at(&call.a, i, j) = products + i * 0.5 - j, *at(&call.b, i, j) = i == j ? 2 : 0;
        if (gridloom_send(server, "multiply", &call) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
        if (gridloom_wait_for("product", server, 60, &got) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
        const struct matrix *product = got->data;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                if (*at(product, i, j) != 2 * *at(&call.a, i, j)) return gridloom_fail(3, "row %d, column %d is wrong", i, j);
        gridloom_message_free(got);
    }
    call.b.rows--;
    gridloom_send(server, "multiply", &call);
    if (gridloom_wait_for("product", server, 60, &got) != GRIDLOOM_REMOTE || gridloom_remote_code() != WRONG_SHAPE)
        return gridloom_fail(3, "matrices that do not fit were multiplied: %s", gridloom_last_error());
    printf("%d products are right\n", products);
    gridloom_send(server, "done", NULL);
    free(call.a.data);
    free(call.b.data);
    return 0;
}

GRIDLOOM_MAIN
