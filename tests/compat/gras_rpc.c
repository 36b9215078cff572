/* Remote procedure calls with their exceptions, timers, and blocks that the simulation runs once. */
#include <gras.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS 3

GRAS_DEFINE_TYPE(s_work,
struct s_work {
    double numbers[WORDS];
    char *text;
};)

static int is_over, ticks, runs;
static gras_socket_t caller;

int server(int argc, char *argv[]);
int client(int argc, char *argv[]);

static void declare(void) {
    gras_msgtype_declare_rpc("add", gras_datadesc_by_symbol(s_work), gras_datadesc_by_name("double"));
    gras_msgtype_declare("ticks", gras_datadesc_by_name("int"));
    gras_msgtype_declare("stop", NULL);
}

static int on_add(gras_msg_cb_ctx_t ctx, void *payload) {
    struct s_work *work = payload;
    double sum = 0;
    int i;
    caller = gras_msg_cb_ctx_from(ctx);
    if (work->text[0] == '!') THROW1(arg_error, 7, "'%s' is refused", work->text);
    GRAS_BENCH_ONCE_RUN_ONCE_BEGIN();
    runs++;
    GRAS_BENCH_ONCE_RUN_ONCE_END();
    for (i = 0; i < WORDS; i++) sum += work->numbers[i];
    gras_msg_rpcreturn(60, ctx, &sum);
    free(work->text);
    return 1;
}
static int on_stop(gras_msg_cb_ctx_t ctx, void *payload) {
    (void)ctx, (void)payload;
    is_over = 1;
    return 1;
}
static void tick(void) {
    ticks++;
    if (caller != NULL) gras_msg_send(caller, "ticks", &ticks);
}

int server(int argc, char *argv[]) {
    gras_socket_t sock;
    gras_init(&argc, argv);
    sock = gras_socket_server_range(4100, 4105);
    declare();
    gras_cb_register("add", &on_add);
    gras_cb_register("stop", &on_stop);
    gras_timer_repeat(0.05, tick);
    while (!is_over) gras_msg_handle(60);
    printf("server: %d\n", runs == (gras_if_SG() ? 1 : 2));
    gras_socket_close(sock);
    gras_exit();
    return 0;
}

int client(int argc, char *argv[]) {
    xbt_ex_t e;
    struct s_work work = {{1, 2, 3.5}, "please"};
    double first = 0, second = 0;
    int ticked = 0;
    gras_msg_cb_ctx_t call;
    gras_socket_t to, from;
    gras_init(&argc, argv);
    declare();
    to = gras_socket_client(argv[1], 4100);
    call = gras_msg_rpc_async_call(to, 60, "add", &work);
    work.numbers[0] = 10;
    gras_msg_rpccall(to, 60, gras_msgtype_by_name("add"), &work, &second);
    gras_msg_rpc_async_wait(call, &first);
    work.text = "!now";
    TRY {
        gras_msg_rpccall(to, 60, "add", &work, &second);
    }
    CATCH(e) {
        printf("client: %g %g, %s\n", first, second, e.msg);
        xbt_ex_free(e);
    }
    while (ticked < 4) gras_msg_wait(60, "ticks", &from, &ticked);
    printf("client: ticks arrived\n");
    gras_msg_send(to, "stop", NULL);
    gras_socket_close(to);
    gras_exit();
    return 0;
}
