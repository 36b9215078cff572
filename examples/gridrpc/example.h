/* Shared by all programs of this folder: an unexpected error ends the program. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <grpc.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != GRPC_NO_ERROR) {                                                                                 \
            grpc_perror_np(#call);                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
