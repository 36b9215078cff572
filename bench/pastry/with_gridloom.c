/* The exchange with Gridloom's processes. */
#include <gridloom.h>

#include "harness.h"

enum { PORT = 4003 };

/* The other process welcomes back with what it got. */
GRIDLOOM_PROCESS(answer) {
    if (gridloom_listen(PORT) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    gridloom_message *got;
    while (gridloom_wait_for("Welcome", GRIDLOOM_ANYONE, 60, &got) == GRIDLOOM_OK) {
        const struct Welcome *welcome = got->data;
        int is_last = welcome->id < 0;
        int code = gridloom_send(got->from, "Welcome", welcome);
        gridloom_message_free(got);
        if (code < 0 || is_last) return code;
    }
    return gridloom_fail(1, "%s", gridloom_last_error());
}

static int exchange(gridloom_peer peer, const struct Welcome *sent, gridloom_message **got) {
    int code = gridloom_send(peer, "Welcome", sent);
    return code < 0 ? code : gridloom_wait_for("Welcome", peer, 60, got);
}

static int ask(const char *system, int rows, gridloom_peer peer) {
    struct Welcome sent = make_welcome(rows);
    int count = repeats(rows);
    gridloom_message *got;
    double start = gridloom_now(); /* in simulations the virtual time */
    for (int n = 0; n < count; n++) {
        if (exchange(peer, &sent, &got) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
        if (n == 0) must_equal(got->data, &sent);
        gridloom_message_free(got);
    }
    print_measure(system, "round_trip", rows, (gridloom_now() - start) / count * 1e6);
    free(sent.rows);
    return 0;
}

GRIDLOOM_PROCESS(ask) {
    gridloom_peer peer = gridloom_connect(argv[2], PORT, 10);
    if (peer < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    for (int at = 0; at < 4; at++) {
        int code = ask(argv[1], ROW_COUNTS[at], peer);
        if (code != 0) return code;
        }
    struct Welcome last = {.id = -1};
    gridloom_message *got;
    if (exchange(peer, &last, &got) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    gridloom_message_free(got);
    return 0;
}

GRIDLOOM_MAIN
