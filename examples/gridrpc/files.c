/* A function reads a file and writes a file. The contents are transferred; the program chooses the names.
 *
 *   files CONFIGURATION PATTERN TEXT HITS */
#include "example.h"

int main(int argc, char **argv) {
    grpc_function_handle_t handle;
    int count = -1;
    if (argc != 5) return fprintf(stderr, "usage: files CONFIGURATION PATTERN TEXT HITS\n"), 2;
    MUST(grpc_initialize(argv[1]));
    MUST(grpc_function_handle_default(&handle, "examples/grep_lines"));
    MUST(grpc_call(&handle, argv[2], argv[3], argv[4], &count));
    printf("%d lines have '%s' in them\n", count, argv[2]);
    MUST(grpc_function_handle_destruct(&handle));
    MUST(grpc_finalize());
    return 0;
}
