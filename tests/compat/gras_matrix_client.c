#define GRAS_DEFINE_TYPE_EXTERN
#include "gras_matrix.h"

XBT_LOG_EXTERNAL_DEFAULT_CATEGORY(MatMult);

int client(int argc, char *argv[]) {
    xbt_ex_t e;
    gras_socket_t toserver = NULL, from;
    matrix_t request[2], answer;
    int i, j;
    gras_init(&argc, argv);
    gras_os_sleep(1);
    TRY {
        toserver = gras_socket_client(argv[1], (unsigned short)atoi(argv[2]));
    }
    CATCH(e) {
        RETHROW0("Unable to connect to the server: %s");
    }
    register_messages();
    INFO2("Connected to %s:%d", gras_socket_peer_name(toserver), gras_socket_peer_port(toserver));
    for (i = 0; i < 2; i++) {
        request[i].lines = request[i].rows = SIZE;
        request[i].ctn = xbt_malloc0(sizeof(double) * SIZE * SIZE);
    }
    for (i = 0; i < SIZE; i++) {
        request[0].ctn[i * SIZE + i] = 2;
        for (j = 0; j < SIZE; j++) request[1].ctn[i * SIZE + j] = i * SIZE + j;
    }
    gras_msg_send(toserver, gras_msgtype_by_name("request"), &request);
    free(request[0].ctn);
    free(request[1].ctn);
    gras_msg_wait(6000, gras_msgtype_by_name("answer"), &from, &answer);
    for (i = 0; i < SIZE * SIZE; i++) xbt_assert(answer.ctn[i] == 2 * i);
    printf("%d x %d from %s, the last is %g\n", answer.lines, answer.rows, gras_socket_peer_name(from), answer.ctn[SIZE * SIZE - 1]);
    free(answer.ctn);
    gras_socket_close(toserver);
    gras_exit();
    INFO0("Done.");
    return 0;
}
