/* A token is passed around a ring of processes; ring.rs and ring.py are the same in Rust and in Python.
 *
 *   gridloom simulate -p examples/two-sites.toml -d examples/processes/ring.toml -- ./ring
 *   gridloom deploy -d examples/processes/ring.toml -- ./ring
 *
 * Arguments of a process: its port, host and port of the next process, the number of rounds, and `first` for one process.
 */
#include <gridloom.h>
#include <stdio.h>
#include <stdlib.h>

GRIDLOOM_LOG_CATEGORY(ring);

GRIDLOOM_MESSAGE(token, struct token { int round; long steps; });

/* Number of times that the token passed this process. Each simulated process has its own copy. */
static int seen;

GRIDLOOM_PROCESS(member) {
    if (argc < 5) return gridloom_fail(2, "arguments are PORT NEXT_HOST NEXT_PORT ROUNDS [first]");
    int rounds = atoi(argv[4]), is_first = argc > 5;
    if (gridloom_listen(atoi(argv[1])) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    gridloom_peer next = gridloom_connect(argv[2], atoi(argv[3]), 30);
    if (next < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    struct token token = {1, 0};
    if (is_first && gridloom_send(next, "token", &token) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    while (seen < rounds) {
        gridloom_message *got;
        if (gridloom_wait_for("token", GRIDLOOM_ANYONE, 60, &got) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
        token = *(struct token *)got->data;
        gridloom_message_free(got);
        seen++;
        token.steps++;
        gridloom_debug("round %d, step %ld", token.round, token.steps);
        if (is_first && token.round++ == rounds) break;
        if (gridloom_send(next, "token", &token) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    }
    if (seen != rounds) return gridloom_fail(3, "seen %d times, not %d", seen, rounds);
    if (is_first) printf("the token went %ld steps\n", token.steps);
    return 0;
}

GRIDLOOM_MAIN
