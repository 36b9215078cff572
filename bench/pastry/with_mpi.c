/* The exchange with MPI: packed, since a pointer inside a message has no datatype that two processes share. */
#include <mpi.h>

#include "harness.h"

static MPI_Datatype row_type;

static int pack(const struct Welcome *welcome, char **buffer, int *room) {
    int size, part, at = 0;
    MPI_Pack_size(2 + LEAVES, MPI_INT, MPI_COMM_WORLD, &size);
    MPI_Pack_size(1, MPI_DOUBLE, MPI_COMM_WORLD, &part);
    size += part;
    MPI_Pack_size(welcome->row_count, row_type, MPI_COMM_WORLD, &part);
    size += part;
    if (size > *room) {
        *buffer = (char *)realloc(*buffer, (size_t)size);
        *room = size;
    }
    MPI_Pack(&welcome->id, 1, MPI_INT, *buffer, *room, &at, MPI_COMM_WORLD);
    MPI_Pack(&welcome->row_count, 1, MPI_INT, *buffer, *room, &at, MPI_COMM_WORLD);
    MPI_Pack(&welcome->time_sent, 1, MPI_DOUBLE, *buffer, *room, &at, MPI_COMM_WORLD);
    MPI_Pack(welcome->rows, welcome->row_count, row_type, *buffer, *room, &at, MPI_COMM_WORLD);
    MPI_Pack(welcome->leaves, LEAVES, MPI_INT, *buffer, *room, &at, MPI_COMM_WORLD);
    return at;
}

static struct Welcome unpack(const char *buffer, int size) {
    struct Welcome welcome;
    int at = 0;
    MPI_Unpack(buffer, size, &at, &welcome.id, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Unpack(buffer, size, &at, &welcome.row_count, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Unpack(buffer, size, &at, &welcome.time_sent, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    welcome.rows = (struct Row *)malloc((size_t)welcome.row_count * sizeof(struct Row));
    MPI_Unpack(buffer, size, &at, welcome.rows, welcome.row_count, row_type, MPI_COMM_WORLD);
    MPI_Unpack(buffer, size, &at, welcome.leaves, LEAVES, MPI_INT, MPI_COMM_WORLD);
    return welcome;
}

static void send_welcome(const struct Welcome *welcome, int to, char **buffer, int *room) {
    int size = pack(welcome, buffer, room);
    MPI_Send(*buffer, size, MPI_PACKED, to, 0, MPI_COMM_WORLD);
}

static struct Welcome receive_welcome(int from, char **buffer, int *room) {
    MPI_Status status;
    int size;
    MPI_Probe(from, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_PACKED, &size);
    if (size > *room) {
        *buffer = (char *)realloc(*buffer, (size_t)size);
        *room = size;
    }
    MPI_Recv(*buffer, size, MPI_PACKED, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return unpack(*buffer, size);
}

/* The other process welcomes back with what it got. */
static void answer(int exchanges, char **buffer, int *room) {
    for (int n = 0; n < exchanges; n++) {
        struct Welcome welcome = receive_welcome(0, buffer, room);
        send_welcome(&welcome, 0, buffer, room);
        free(welcome.rows);
    }
}

static void time_coding(const char *system, int rows, int count) {
    struct Welcome sent = make_welcome(rows);
    char *buffer = NULL;
    int size = 0, room = 0;
    double start = seconds();
    for (int n = 0; n < count; n++) size = pack(&sent, &buffer, &room);
    print_measure(system, "encode", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) {
        struct Welcome got = unpack(buffer, size);
        free(got.rows);
    }
    print_measure(system, "decode", rows, (seconds() - start) / count * 1e6);
    free(buffer);
    free(sent.rows);
}

static void ask(const char *system, int rows, char **buffer, int *room) {
    struct Welcome sent = make_welcome(rows);
    int count = repeats(rows);
    double start = seconds();
    for (int n = 0; n < count; n++) {
        send_welcome(&sent, 1, buffer, room);
        struct Welcome got = receive_welcome(1, buffer, room);
        if (n == 0) must_equal(&got, &sent);
        free(got.rows);
    }
    print_measure(system, "round_trip", rows, (seconds() - start) / count * 1e6);
    time_coding(system, rows, count);
    free(sent.rows);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Type_contiguous(1 + COLUMNS * ROUTES, MPI_INT, &row_type);
    MPI_Type_commit(&row_type);
    int rank, room = 0;
    char *buffer = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int at = 0; at < 4; at++) {
        if (rank == 0)
            ask(argv[1], ROW_COUNTS[at], &buffer, &room);
        else
            answer(repeats(ROW_COUNTS[at]), &buffer, &room);
    }
    free(buffer);
    MPI_Finalize();
    return 0;
}
