/* Random programs, run call by call and in blocks of grpc_map: both leave the same bytes in memory. */
#include "suite.h"

#include <stdlib.h>

enum { POOL = 64, STEPS = 40, LOG = 2 * STEPS, PROGRAMS = 100 };

/* The data of a program. */
typedef struct world {
    double pool[POOL];
    double log[LOG];
    int logged;
    grpc_sessionid_t outstanding[STEPS];
    int sessions;
    int n, x;   /* the range that was used last */
    int unsaid; /* the program changed data without declaring it */
} world;

typedef struct handles {
    grpc_function_handle_t axpy, sum, transpose, bound;
} handles;

static uint64_t state;

static int draw(int below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)below);
}

/* Draws a range of `n` elements that does not overlap with the range at `x`. */
static int draw_other(int n, int x) {
    int y;
    do y = draw(POOL - n + 1);
    while (abs(x - y) < n);
    return y;
}

/* Without a block all calls wait, so that each sees the results of the calls before it. */
static grpc_error_t make(world *w, int is_mapped, grpc_function_handle_t *handle, int n, int x, int y) {
    int waits = draw(2);
    if (!is_mapped || waits) return grpc_call(handle, n, 0.5, w->pool + x, w->pool + y);
    return grpc_call_async(handle, &w->outstanding[w->sessions++], n, 0.5, w->pool + x, w->pool + y);
}

static void wait_for_one(world *w) {
    int one = draw(STEPS);
    if (one >= w->sessions) return;
    OK(grpc_wait(w->outstanding[one]));
    w->outstanding[one] = w->outstanding[--w->sessions];
}

/* The program's own work: reads a range, and changes it in every second case. */
static void work(world *w, int is_mapped, int n, int x) {
    int changes = draw(2), says = draw(2);
    for (int i = x; i < x + n; i++) OK(grpc_fetch(w->pool + i));
    w->unsaid |= changes && !says;
    if (changes && says && is_mapped)
        for (int i = x; i < x + n; i++) OK(grpc_local_writes(w->pool + i));
    grpc_local() {
        if (n > 0) w->log[w->logged++] = w->pool[x];
        for (int i = x; i < x + n && changes; i++) w->pool[i] += 1 + i;
    }
}

/* The range that was used last is often used again, so that results are read whole and in parts. */
static void step(world *w, handles *h, int is_mapped) {
    int is_last = draw(2), n = is_last ? w->n : draw(12);
    int x = is_last ? w->x : draw(POOL - n + 1), y = draw_other(n, x);
    switch (draw(12)) {
    case 0:
        work(w, is_mapped, n, x);
        break;
    case 1:
        OK(make(w, is_mapped, &h->bound, n, x, y));
        break;
    case 2:
        OK(grpc_call(&h->sum, (long)n, w->pool + x, w->pool + draw(POOL)));
        break;
    case 3:
        /* Doubles as floats, in another shape: 2 x n of 4 bytes. */
        OK(grpc_call(&h->transpose, 2, n, (float *)(w->pool + x), (float *)(w->pool + y)));
        break;
    case 4:
        wait_for_one(w);
        break;
    default:
        OK(make(w, is_mapped, &h->axpy, n, x, y));
    }
    w->n = n;
    w->x = draw(2) ? x : y;
}

static void run(world *w, handles *h, uint64_t seed, int is_mapped) {
    state = seed;
    w->sessions = w->n = w->x = w->unsaid = 0;
    for (int i = 0; i < STEPS; i++) step(w, h, is_mapped);
}

static void random_programs(void) {
    static world plain, mapped;
    handles h;
    BEGIN();
    OK(grpc_function_handle_default(&h.axpy, "gridrpc/axpy"));
    OK(grpc_function_handle_default(&h.sum, "gridrpc/sum"));
    OK(grpc_function_handle_default(&h.transpose, "gridrpc/transpose"));
    /* If servers may be lost, calls that are bound to one would fail. */
    if (getenv("GRIDRPC_SERVERS_FAIL") != NULL)
        OK(grpc_function_handle_default(&h.bound, "gridrpc/axpy"));
    else
        OK(grpc_function_handle_init(&h.bound, suite_server(), "gridrpc/axpy"));
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        plain.logged = mapped.logged = 0;
        for (int i = 0; i < POOL; i++) plain.pool[i] = mapped.pool[i] = i;
        run(&plain, &h, seed, 0);
        grpc_map("auto") { run(&mapped, &h, seed, 1); }
        if (!mapped.unsaid || grpc_map_error_np() != GRPC_MAP_DIFFERS_NP) OK(grpc_map_error_np());
        OK(grpc_wait_all());
        for (int i = 0; i < POOL; i++)
            if (memcmp(&plain.pool[i], &mapped.pool[i], sizeof(double)) != 0) {
                printf("# program %d: element %d is %.17g, expected %.17g\n", (int)seed, i, mapped.pool[i],
                       plain.pool[i]);
                CHECK(!"the same memory");
            }
        CHECK(plain.logged == mapped.logged);
        CHECK(memcmp(plain.log, mapped.log, sizeof plain.log) == 0);
    }
}

const test_case random_cases[] = {
    {"map: random programs leave the same memory as call after call", random_programs},
    {NULL, NULL},
};
