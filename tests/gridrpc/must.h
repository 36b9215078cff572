/* For programs of their own, beside the suite. */
#ifndef MUST_H
#define MUST_H

#include <grpc.h>
#include <stdlib.h>

/* What fails ends the program, with its text. */
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != GRPC_NO_ERROR) {                                                                                 \
            grpc_perror_np(#call);                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
