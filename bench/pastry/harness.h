/* The common parts of all programs of the comparison: values, clock, and output of measurements. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "welcome.h"

static const int ROW_COUNTS[] = {0, 10, 100, 1000};

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns the number of exchanges of one run. The environment variable PASTRY_REPEATS limits it for slow links. */
static inline int repeats(int rows) {
    const char *most = getenv("PASTRY_REPEATS");
    int count = 20000 / (rows + 10) + 20;
    return most && atoi(most) > 0 && atoi(most) < count ? atoi(most) : count;
}

/* Returns about a quarter of that number, for longer operations. */
static inline int fewer_repeats(int rows) { return repeats(4 * rows + 30); }

static inline struct Welcome make_welcome(int rows) {
    struct Welcome welcome = {.id = 77, .row_count = rows, .time_sent = 12.5};
    welcome.rows = rows ? (struct Row *)calloc((size_t)rows, sizeof(struct Row)) : NULL;
    for (int n = 0; n < rows; n++) {
        welcome.rows[n].which_row = n;
        for (int column = 0; column < COLUMNS; column++)
            for (int route = 0; route < ROUTES; route++)
                welcome.rows[n].row[column][route] = route * 7919 + n * 48 + column;
    }
    for (int leaf = 0; leaf < LEAVES; leaf++) welcome.leaves[leaf] = leaf * 7919 + 3;
    return welcome;
}

/* Returns a checksum of the message: the received message must equal the sent one. */
static inline long check_sum(const struct Welcome *welcome) {
    long sum = welcome->id + welcome->row_count + (long)(2 * welcome->time_sent);
    for (int n = 0; n < welcome->row_count; n++) {
        sum += welcome->rows[n].which_row;
        for (int cell = 0; cell < COLUMNS * ROUTES; cell++)
            sum += (long)(cell + 1) * welcome->rows[n].row[cell / ROUTES][cell % ROUTES];
    }
    for (int leaf = 0; leaf < LEAVES; leaf++) sum += (long)(leaf + 1) * welcome->leaves[leaf];
    return sum;
}

static inline void must_equal(const struct Welcome *got, const struct Welcome *sent) {
    if (check_sum(got) != check_sum(sent)) {
        fprintf(stderr, "what came is not what was sent\n");
        exit(1);
    }
}

/* One line a measure: system, what, rows, microseconds. */
static inline void print_measure(const char *system, const char *what, int rows, double us) {
    printf("%s %s %d %.4f\n", system, what, rows, us);
    fflush(stdout);
}

#endif
