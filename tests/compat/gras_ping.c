/* Basic types, strings, the data of a process, exceptions, names instead of message types. */
#include <gras.h>
#include <stdio.h>
#include <stdlib.h>

XBT_LOG_NEW_DEFAULT_CATEGORY(ping, "A ping and a pong");

typedef struct {
    gras_socket_t sock;
    int pings;
    char *last;
} server_data_t;

int server(int argc, char *argv[]);
int client(int argc, char *argv[]);

static void declare(void) {
    gras_msgtype_declare("ping", gras_datadesc_by_name("int"));
    gras_msgtype_declare("pong", gras_datadesc_by_name("double"));
    gras_msgtype_declare("name", gras_datadesc_by_name("string"));
    gras_msgtype_declare("bye", NULL);
}

static int on_ping(gras_msg_cb_ctx_t ctx, void *payload) {
    server_data_t *globals = gras_userdata_get();
    double half = *(int *)payload / 2.0;
    globals->pings++;
    gras_msg_send(gras_msg_cb_ctx_from(ctx), "pong", &half);
    return 1;
}
static int on_name(gras_msg_cb_ctx_t ctx, void *payload) {
    server_data_t *globals = gras_userdata_get();
    (void)ctx;
    free(globals->last);
    globals->last = *(char **)payload;
    return 1;
}
static int on_bye(gras_msg_cb_ctx_t ctx, void *payload) {
    server_data_t *globals = gras_userdata_get();
    gras_socket_t from = gras_msg_cb_ctx_from(ctx);
    printf("server: %d pings, the last name is %s, %s says bye%s\n", globals->pings, globals->last, gras_socket_peer_name(from),
           payload == NULL ? "" : "?");
    free(globals->last);
    gras_msg_send(from, "bye", NULL);
    globals->pings = -1;
    return 1;
}

int server(int argc, char *argv[]) {
    server_data_t *globals;
    gras_init(&argc, argv);
    globals = gras_userdata_new(server_data_t);
    globals->sock = gras_socket_server((unsigned short)atoi(argv[1]));
    declare();
    gras_cb_register("ping", &on_ping);
    gras_cb_register("name", &on_name);
    gras_cb_register(gras_msgtype_by_name("bye"), &on_bye);
    while (globals->pings >= 0) gras_msg_handle(60.0);
    gras_socket_close(globals->sock);
    free(globals);
    gras_exit();
    return 0;
}

int client(int argc, char *argv[]) {
    xbt_ex_t e;
    volatile int caught = 0;
    char *name;
    double pong, sum = 0, start;
    int i;
    gras_socket_t to, from;
    gras_init(&argc, argv);
    declare();
    to = gras_socket_client(argv[1], (unsigned short)atoi(argv[2]));
    for (i = 1; i <= 3; i++) {
        gras_msg_send(to, gras_msgtype_by_name("ping"), &i);
        gras_msg_wait(60, gras_msgtype_by_name("pong"), &from, &pong);
        sum += pong;
    }
    name = "first";
    gras_msg_send(to, "name", &name);
    name = "second";
    gras_msg_send(to, "name", &name);
    start = gras_os_time();
    TRY {
        gras_msg_wait(0.25, "pong", &from, &pong);
    }
    CATCH(e) {
        caught = e.category == timeout_error && gras_os_time() - start >= 0.25;
        xbt_ex_free(e);
    }
    TRY {
        gras_msg_send(to, "pung", &i);
    }
    CATCH(e) {
        if (caught) printf("client: %g, %s\n", sum, e.msg);
        xbt_ex_free(e);
    }
    gras_msg_send(to, "bye", NULL);
    gras_msg_wait(60, "bye", NULL, NULL);
    gras_socket_close(to);
    gras_exit();
    return 0;
}
