/* See hydropad.h. */
#include "hydropad.h"

#include <stdio.h>
#include <stdlib.h>

void hydropad_must(grpc_error_t error, const char *what) {
    if (error == GRPC_NO_ERROR) return;
    grpc_perror_np(what);
    exit(1);
}

static int option(int argc, char **argv, int at, int otherwise) {
    int value = argc > at ? atoi(argv[at]) : otherwise;
    if (value > 0) return value;
    fprintf(stderr, "usage: %s CONFIGURATION [CELLS [PARTICLES [STEPS]]], numbers above 0\n", argv[0]);
    exit(2);
}

universe hydropad_begin(int argc, char **argv, functions *f) {
    int n = option(argc, argv, 2, 16), m = option(argc, argv, 3, 16), steps = option(argc, argv, 4, 8);
    universe v = new_universe(n, m, concordance(), 1.0 / 31, 1.0 / 31 + 0.004 * steps, steps);
    first_waves(&v, 1);
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&f->grav, "hydropad/grav"));
    MUST(grpc_function_handle_default(&f->initvel, "hydropad/initvel"));
    MUST(grpc_function_handle_default(&f->dark, "hydropad/dark"));
    MUST(grpc_function_handle_default(&f->bary, "hydropad/bary"));
    return v;
}

int hydropad_end(const char *program, universe *v, functions *f) {
    printf("%s: %d steps of %d^3 cells and %d^3 particles, checksum %016llx\n", program, v->steps, v->n, v->m,
           checksum(v));
    MUST(grpc_function_handle_destruct(&f->grav));
    MUST(grpc_function_handle_destruct(&f->initvel));
    MUST(grpc_function_handle_destruct(&f->dark));
    MUST(grpc_function_handle_destruct(&f->bary));
    MUST(grpc_finalize());
    free_universe(v);
    return 0;
}
