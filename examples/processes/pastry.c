/* A node of the Pastry overlay network welcomes another with rows of its routing table: the message of section 5 of GRAS's
 * report, 84 bytes on a machine of 32 bits without rows, and 196 bytes a row.
 *
 *   gridloom simulate -p examples/two-sites.toml -d examples/processes/pastry.toml -- ./pastry
 *   gridloom deploy -d examples/processes/pastry.toml -- ./pastry
 */
#include <gridloom.h>
#include <stdio.h>
#include <stdlib.h>

#define PORT 4200
#define COLUMNS 16
#define ROUTES 3
#define LEAVES 16

GRIDLOOM_CONSTANT(COLUMNS);
GRIDLOOM_CONSTANT(ROUTES);
GRIDLOOM_CONSTANT(LEAVES);

GRIDLOOM_MESSAGE(join, struct join { int id; int rows; });
GRIDLOOM_MESSAGE(welcome,
    struct row {
        int which_row;
        int row[COLUMNS][ROUTES];
    };
    struct welcome {
        int id, row_count;
        double time_sent;
        struct row *rows GRIDLOOM_LENGTH(row_count);
        int leaves[LEAVES];
    });

static int route(int row, int column, int which) { return row * 10000 + column * 100 + which; }

GRIDLOOM_PROCESS(node) {
    if (gridloom_listen(PORT) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    for (int left = atoi(argv[1]); left > 0; left--) {
        gridloom_message *got;
        if (gridloom_wait_for("join", GRIDLOOM_ANYONE, 60, &got) < 0) return gridloom_fail(1, "%s", gridloom_last_error());
        struct join *join = got->data;
        struct welcome welcome = {.id = join->id + 1, .row_count = join->rows, .time_sent = gridloom_now()};
        welcome.rows = calloc((size_t)join->rows + 1, sizeof *welcome.rows);
        for (int row = 0; row < join->rows; row++) {
            welcome.rows[row].which_row = row;
            for (int column = 0; column < COLUMNS; column++)
                for (int which = 0; which < ROUTES; which++) welcome.rows[row].row[column][which] = route(row, column, which);
        }
        for (int leaf = 0; leaf < LEAVES; leaf++) welcome.leaves[leaf] = -leaf;
        int code = gridloom_send(got->from, "welcome", &welcome);
        free(welcome.rows);
        gridloom_message_free(got);
        if (code < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    }
    return 0;
}

GRIDLOOM_PROCESS(joiner) {
    gridloom_peer node = gridloom_connect(argv[1], PORT, 30);
    if (node < 0) return gridloom_fail(1, "%s", gridloom_last_error());
    for (int at = 2; at < argc; at++) {
        struct join join = {77, atoi(argv[at])};
        gridloom_message *got;
        if (gridloom_send(node, "join", &join) < 0 || gridloom_wait_for("welcome", node, 60, &got) < 0)
            return gridloom_fail(1, "%s", gridloom_last_error());
        struct welcome *welcome = got->data;
        int wrong = welcome->id != 78 || welcome->row_count != join.rows || welcome->time_sent > gridloom_now();
        for (int row = 0; row < join.rows; row++) {
            wrong += welcome->rows[row].which_row != row;
            for (int column = 0; column < COLUMNS; column++)
                for (int which = 0; which < ROUTES; which++)
                    wrong += welcome->rows[row].row[column][which] != route(row, column, which);
        }
        for (int leaf = 0; leaf < LEAVES; leaf++) wrong += welcome->leaves[leaf] != -leaf;
        if (wrong) return gridloom_fail(3, "%d numbers are wrong", wrong);
        printf("welcome with %d rows, %zu bytes in memory\n", welcome->row_count, got->size);
        gridloom_message_free(got);
    }
    return 0;
}

GRIDLOOM_MAIN
