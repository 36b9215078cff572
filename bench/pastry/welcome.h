/* The message with which a node of the Pastry overlay network welcomes another: rows of its routing table, and its leaf
 * set. On a 32-bit machine its size is 84 bytes, and 196 bytes more for each row. */
#ifndef WELCOME_H
#define WELCOME_H

enum { COLUMNS = 16, ROUTES = 3, LEAVES = 16 };

#ifdef GRIDLOOM_MESSAGE
GRIDLOOM_CONSTANT(COLUMNS);
GRIDLOOM_CONSTANT(ROUTES);
GRIDLOOM_CONSTANT(LEAVES);
#else
#define GRIDLOOM_MESSAGE(name, ...) __VA_ARGS__
#define GRIDLOOM_LENGTH(count)
#endif

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

#endif
