/* The annealing of protein.py through GridRPC: prints the same energies.
 *
 *   client CONFIGURATION [RESIDUES [CHAINS [ROUNDS [SWEEPS [SEED]]]]]
 *   cc client.c -o client -I../../target/capi/include -L../../target/capi/lib -lgridloom -Wl,-rpath,$PWD/../../target/capi/lib -lm
 *
 * Both halves of the chains are sent from server to server in each round. All rounds are one group, so the client only sends the first chains
 * and gets the last energies. */
#include <grpc.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double HOT = 0.7, COLD = 0.002;

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != GRPC_NO_ERROR) {                                                                                 \
            grpc_perror_np(#call);                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double *numbers(size_t count) {
    double *made = calloc(count, sizeof *made);
    if (made == NULL) {
        fprintf(stderr, "cannot allocate %zu numbers\n", count);
        exit(1);
    }
    return made;
}

static int option(int argc, char **argv, int at, int otherwise) {
    int value = argc > at ? atoi(argv[at]) : otherwise;
    if (value > 0) return value;
    fprintf(stderr, "usage: %s CONFIGURATION [RESIDUES [CHAINS [ROUNDS [SWEEPS [SEED]]]]], numbers above 0\n", argv[0]);
    exit(2);
}

static int chains_of_a_half(int chains) {
    if (chains % 2 == 0) return chains / 2;
    fprintf(stderr, "CHAINS is %d; it must be an even number, since the chains are cut into two halves\n", chains);
    exit(2);
}

/* The kinds of residues of the Fibonacci sequence, 1 for A and -1 for B: S(k) = S(k-2) S(k-1), from A and B. */
static double *fibonacci(int residues) {
    double *before = numbers((size_t)residues), *last = numbers((size_t)residues), *next = numbers((size_t)residues);
    int short_one = 1, long_one = 1;
    before[0] = 1;
    last[0] = -1;
    while (long_one < residues) {
        int sum = short_one + long_one;
        if (sum > residues) {
            fprintf(stderr, "there is no Fibonacci sequence of %d residues; choose 13, 21, 34 or 55\n", residues);
            exit(2);
        }
        memcpy(next, before, (size_t)short_one * sizeof *next);
        memcpy(next + short_one, last, (size_t)long_one * sizeof *next);
        double *free_one = before;
        before = last, last = next, next = free_one;
        short_one = long_one, long_one = sum;
    }
    free(before), free(next);
    return last;
}

static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A chain with random directions, and a width of proposals of 1: a row of `row` numbers. */
static void first_chain(double *chain, int row, int seed, int number) {
    const double pi = 3.141592653589793;
    uint64_t of_chain = mixed(mixed(mixed((uint64_t)seed) + UINT64_MAX) + (uint64_t)number);
    for (int v = 0; v < row - 1; v++) chain[v] = pi * (2 * ((double)(mixed(of_chain + (uint64_t)v) >> 11) * 0x1p-53) - 1);
    chain[row - 1] = 1;
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv) {
    int n = option(argc, argv, 2, 13), chains = chains_of_a_half(option(argc, argv, 3, 96)), rounds = option(argc, argv, 4, 20);
    int sweeps = option(argc, argv, 5, 64), seed = option(argc, argv, 6, 1), row = 2 * n - 1;
    double *kinds = fibonacci(n), *energies = numbers(2 * (size_t)chains), *halves[2], *crossed[2];
    grpc_function_handle_t anneal, cross;
    grpc_sessionid_t id;
    for (int half = 0; half < 2; half++) {
        halves[half] = numbers((size_t)chains * row);
        crossed[half] = numbers((size_t)chains * row);
        for (int c = 0; c < chains; c++) first_chain(halves[half] + (size_t)c * row, row, seed, half * chains + c);
    }
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&anneal, "protein/anneal"));
    MUST(grpc_function_handle_default(&cross, "protein/cross"));
    grpc_map("auto") {
        double *now[2] = {halves[0], halves[1]}, *next[2] = {crossed[0], crossed[1]};
        grpc_stays_remote(halves[0], halves[1], crossed[0], crossed[1]);
        for (int round = 0; round < rounds; round++) {
            double temperature = HOT * pow(COLD / HOT, round / fmax(rounds - 1, 1));
            for (int half = 0; half < 2; half++)
                MUST(grpc_call_async(&anneal, &id, n, chains, kinds, sweeps, temperature, (long)seed + half, (long)round, now[half],
                                     energies + half * chains));
            if (round == rounds - 1) break;
            for (int half = 0; half < 2; half++)
                MUST(grpc_call_async(&cross, &id, n, chains, kinds, (long)seed, (long)round, half, now[0], now[1], next[half]));
            for (int half = 0; half < 2; half++) {
                double *swapped = now[half];
                now[half] = next[half], next[half] = swapped;
            }
        }
        MUST(grpc_wait_all());
    }
    MUST(grpc_map_error_np());
    qsort(energies, 2 * (size_t)chains, sizeof *energies, by_value);
    printf("lowest energy of %d chains: %.4f\nmedian: %.4f\n", 2 * chains, energies[0], (energies[chains - 1] + energies[chains]) / 2);
    MUST(grpc_function_handle_destruct(&anneal));
    MUST(grpc_function_handle_destruct(&cross));
    MUST(grpc_finalize());
    return 0;
}
