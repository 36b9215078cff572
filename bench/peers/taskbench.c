/* Task Bench with MPI, beside examples/taskbench/taskbench.rs: the same arguments, graphs and output. See bench/taskbench.py.

   Each rank has a run of neighbouring points. In each step it posts a receive for each input of its tasks from another rank and a send
   for each output to one, waits for all, checks the inputs, and runs its tasks. Inputs of its own are copied. */
#include "../../examples/taskbench/kernel.c"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH_MAX = 128, CELLS = 64, CALIBRATIONS = 20, CALIBRATION_ITERATIONS = 10000 };
enum pattern { NONE, STENCIL, TREE, FFT, ALL_TO_ALL, PATTERNS };
static const char *names[PATTERNS] = {"none", "stencil", "tree", "fft", "all-to-all"};

typedef struct {
    int first, stride, count;
} points;

typedef struct {
    int step, point;
} output;

static enum pattern pattern = STENCIL;
static int width = 32, rank, ranks;

static void fail(const char *why) {
    fprintf(stderr, "taskbench: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int width_at(int step) {
    return pattern == TREE && step < 30 && 1 << step < width ? 1 << step : width;
}

static points around(int at, int stride) {
    int first = at >= stride ? at - stride : at, last = at + stride < width ? at + stride : at;
    return (points){first, stride, (last - first) / stride + 1};
}

static points partners(int step, int at) {
    int rounds = 1;
    switch (pattern) {
    case ALL_TO_ALL: return (points){0, 1, width};
    case FFT:
        while (1 << rounds < width) rounds++;
        return around(at, 1 << (step - 1) % rounds);
    default: return around(at, 1);
    }
}

static points inputs(int step, int at) {
    if (step == 0 || pattern == NONE) return (points){0, 1, 0};
    return pattern == TREE ? (points){at / 2, 1, 1} : partners(step, at);
}

static points outputs(int step, int at) {
    if (pattern == NONE) return (points){0, 1, 0};
    if (pattern != TREE) return partners(step + 1, at);
    int left = width_at(step + 1) - 2 * at;
    return (points){2 * at, 1, left < 0 ? 0 : left > 2 ? 2 : left};
}

/* The first point of a rank: the first ranks have one more where they cannot have as many. */
static int first_of(int of) {
    int each = width / ranks, more = width % ranks;
    return of * each + (of < more ? of : more);
}

static int rank_of(int point) {
    int of = 0;
    while (first_of(of + 1) <= point) of++;
    return of;
}

static double cells[WIDTH_MAX][CELLS] __attribute__((aligned(64)));
static output sent[2][WIDTH_MAX], received[WIDTH_MAX][WIDTH_MAX];
static MPI_Request requests[2 * WIDTH_MAX * WIDTH_MAX];
static int owners[WIDTH_MAX];

static void step_of(int step, long iterations) {
    int first = first_of(rank), last = first_of(rank + 1), waiting = 0;
    output *before = sent[(step + 1) % 2], *now = sent[step % 2];
    for (int at = first; at < last && at < width_at(step); at++) {
        points in = inputs(step, at);
        for (int i = 0; i < in.count; i++) {
            int from = in.first + i * in.stride;
            if (owners[from] != rank)
                MPI_Irecv(&received[at][i], sizeof(output), MPI_BYTE, owners[from], from * WIDTH_MAX + at, MPI_COMM_WORLD,
                          &requests[waiting++]);
            else
                received[at][i] = before[from];
        }
    }
    for (int at = first; step > 0 && at < last && at < width_at(step - 1); at++) {
        points out = outputs(step - 1, at);
        for (int i = 0; i < out.count; i++) {
            int to = out.first + i * out.stride;
            if (owners[to] != rank)
                MPI_Isend(&before[at], sizeof(output), MPI_BYTE, owners[to], at * WIDTH_MAX + to, MPI_COMM_WORLD,
                          &requests[waiting++]);
        }
    }
    MPI_Waitall(waiting, requests, MPI_STATUSES_IGNORE);
    for (int at = first; at < last && at < width_at(step); at++) {
        points in = inputs(step, at);
        for (int i = 0; i < in.count; i++)
            if (received[at][i].step != step - 1 || received[at][i].point != in.first + i * in.stride)
                fail("a task got another input than the pattern names");
        compute(cells[at], iterations);
        now[at] = (output){step, at};
    }
}

static double iteration_ns(void) {
    double least = 1e9;
    for (int i = 0; i < CALIBRATIONS; i++) {
        double began = MPI_Wtime();
        compute(cells[0], CALIBRATION_ITERATIONS);
        double ns = (MPI_Wtime() - began) * 1e9 / CALIBRATION_ITERATIONS;
        least = ns < least ? ns : least;
    }
    return least;
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *rounds = NULL;
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "--width")) width = atoi(words[i + 1]);
        else if (!strcmp(words[i], "--rounds")) rounds = words[i + 1];
        else if (!strcmp(words[i], "--pattern")) {
            pattern = NONE;
            while (pattern < PATTERNS && strcmp(names[pattern], words[i + 1])) pattern++;
        } else pattern = PATTERNS;
    }
    if (pattern == PATTERNS || width < ranks || width > WIDTH_MAX || !rounds)
        fail("--pattern none|stencil|tree|fft|all-to-all --width POINTS --rounds ITERATIONS:STEPS,...");
    for (int point = 0; point < width; point++) owners[point] = rank_of(point);
    double ns = iteration_ns();
    if (rank == 0) printf("{\"iteration_ns\": %g, \"rounds\": [", ns);
    const char *comma = "";
    for (char *round = strtok(rounds, ","); round; round = strtok(NULL, ",")) {
        long iterations, tasks = 0;
        int steps;
        if (sscanf(round, "%ld:%d", &iterations, &steps) != 2) fail("--rounds ITERATIONS:STEPS,...");
        for (int step = 0; step < steps; step++) tasks += width_at(step);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        for (int step = 0; step < steps; step++) step_of(step, iterations);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("%s{\"iterations\": %ld, \"steps\": %d, \"tasks\": %ld, \"seconds\": %.9f}", comma, iterations, steps, tasks,
                   MPI_Wtime() - began);
        comma = ", ";
    }
    if (rank == 0) printf("]}\n");
    MPI_Finalize();
    return 0;
}
