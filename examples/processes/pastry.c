/* A node joins the overlay network Pastry and is welcomed with rows of a routing table: the message of section 5 of the report
 * on GRAS (INRIA RR-5789), 84 bytes on i386 without rows. `pastry.rs` and `pastry.py` are the same in Rust and Python.
 *
 *   gridloom simulate -p examples/two-sites.toml -d examples/processes/pastry.toml -- ./pastry
 *   gridloom deploy -d examples/processes/pastry.toml -- ./pastry
 */
#include <gridloom.h>
#include <stdio.h>
#include <stdlib.h>

#define PORT 4003
#define COLUMNS 16
#define ROUTES 3
#define LEAVES 16

GRIDLOOM_CONSTANT(COLUMNS);
GRIDLOOM_CONSTANT(ROUTES);
GRIDLOOM_CONSTANT(LEAVES);

GRIDLOOM_MESSAGE(Join, struct Join { int id, rows_wanted; });
GRIDLOOM_MESSAGE(Welcome,
    struct Row {
        int which_row;
        int row[COLUMNS][ROUTES];
    };
    struct Welcome {
        int id, row_count;
        double time_sent;
        struct Row *rows GRIDLOOM_LENGTH(row_count);
        int leaves[LEAVES];
    });

/* An entry of a node's routing table: the node to contact for an identifier with this prefix. */
static int route(int id, int row, int column, int way) { return id * 1000 + row * 100 + column * ROUTES + way; }

/* The node that others join. Its argument is the number of nodes that join. */
GRIDLOOM_PROCESS(node) {
    if (gridloom_listen(PORT) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    for (int guests = argc > 1 ? atoi(argv[1]) : 1; guests > 0; guests--) {
        gridloom_message *got;
        if (gridloom_wait_for("Join", GRIDLOOM_ANYONE, 60, &got) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
        const struct Join *join = got->data;
        struct Welcome welcome = {.id = join->id, .row_count = join->rows_wanted, .time_sent = gridloom_now()};
        welcome.rows = calloc((size_t)welcome.row_count + 1, sizeof *welcome.rows);
        for (int row = 0; row < welcome.row_count; row++) {
            welcome.rows[row].which_row = row;
            for (int column = 0; column < COLUMNS; column++)
                for (int way = 0; way < ROUTES; way++) welcome.rows[row].row[column][way] = route(join->id, row, column, way);
        }
        for (int leaf = 0; leaf < LEAVES; leaf++) welcome.leaves[leaf] = join->id - LEAVES / 2 + leaf;
        int code = gridloom_send(got->from, "Welcome", &welcome);
        free(welcome.rows);
        gridloom_message_free(got);
        if (code < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    }
    return 0;
}

/* A node that joins. Arguments: the host that it joins, its identifier, the number of rows that it wants. */
GRIDLOOM_PROCESS(guest) {
    if (argc != 4) return gridloom_fail(2, "expected a host, an identifier and a number of rows");
    struct Join join = {atoi(argv[2]), atoi(argv[3])};
    gridloom_message *got;
    gridloom_peer node = gridloom_connect(argv[1], PORT, 10);
    if (node < 0 || gridloom_send(node, "Join", &join) < 0 || gridloom_wait_for("Welcome", node, 60, &got) < 0)
        return gridloom_fail(1, "%s", gridloom_last_error());
    const struct Welcome *welcome = got->data;
    int wrong = welcome->id != join.id || welcome->row_count != join.rows_wanted || welcome->time_sent > gridloom_now();
    for (int row = 0; row < welcome->row_count; row++) {
        wrong += welcome->rows[row].which_row != row;
        for (int column = 0; column < COLUMNS; column++)
            for (int way = 0; way < ROUTES; way++)
                wrong += welcome->rows[row].row[column][way] != route(join.id, row, column, way);
    }
    if (wrong) return gridloom_fail(3, "%d numbers are wrong", wrong);
    printf("node %d is welcome: %d rows, leaves %d to %d\n", welcome->id, welcome->row_count, welcome->leaves[0],
           welcome->leaves[LEAVES - 1]);
    gridloom_message_free(got);
    return 0;
}

GRIDLOOM_MAIN
