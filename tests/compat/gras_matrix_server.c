#include "gras_matrix.h"

XBT_LOG_NEW_DEFAULT_CATEGORY(MatMult, "Messages specific to this example");

void register_messages(void) {
    gras_datadesc_type_t matrix_type = gras_datadesc_by_symbol(s_matrix);
    gras_msgtype_declare("answer", matrix_type);
    gras_msgtype_declare("request", gras_datadesc_array_fixed("matrix_t[2]", matrix_type, 2));
}

static int server_cb_request_handler(gras_msg_cb_ctx_t ctx, void *payload_data) {
    gras_socket_t expeditor = gras_msg_cb_ctx_from(ctx);
    matrix_t *data = (matrix_t *)payload_data;
    matrix_t result;
    int i, j, k;
    result.lines = data[0].lines;
    result.rows = data[1].rows;
    result.ctn = xbt_malloc0(sizeof(double) * (size_t)(result.lines * result.rows));
    GRAS_BENCH_ALWAYS_BEGIN();
    for (i = 0; i < result.lines; i++)
        for (j = 0; j < result.rows; j++)
            for (k = 0; k < data[1].lines; k++)
                result.ctn[i * result.rows + j] += data[0].ctn[i * result.rows + k] * data[1].ctn[k * result.rows + j];
    GRAS_BENCH_ALWAYS_END();
    gras_msg_send(expeditor, gras_msgtype_by_name("answer"), &result);
    free(data[0].ctn);
    free(data[1].ctn);
    free(result.ctn);
    gras_socket_close(expeditor);
    return 1;
}

int server(int argc, char *argv[]) {
    gras_socket_t sock;
    gras_init(&argc, argv);
    sock = gras_socket_server((unsigned short)atoi(argv[1]));
    register_messages();
    gras_cb_register(gras_msgtype_by_name("request"), &server_cb_request_handler);
    INFO1("Launch server (port=%d)", gras_socket_my_port(sock));
    gras_msg_handle(600.0);
    gras_socket_close(sock);
    gras_exit();
    return 0;
}
