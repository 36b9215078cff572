/* Declarations for the bodies of remote functions: the headers that Ninf-G's header of this name includes, its complex numbers, its
 * error codes, and whether the call was cancelled. Inline bodies of interface descriptions have all of this without an
 * #include; sources that are compiled separately (Required) include it.
 *
 *   cc -fPIC -c solver.c $(pkg-config --cflags gridloom)
 *
 * It is for the server's side only: programs that call functions include grpc.h. */
#ifndef GRIDLOOM_GRPC_EXECUTABLE_H
#define GRIDLOOM_GRPC_EXECUTABLE_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef GRPC_COMPLEX_NP
#define GRPC_COMPLEX_NP
/* These types are left out if the description defines types with these names. */
#ifndef GRIDLOOM_OWN_SCOMPLEX
typedef struct scomplex {
    float r, i;
} scomplex;
#endif
#ifndef GRIDLOOM_OWN_DCOMPLEX
typedef struct dcomplex {
    double r, i;
} dcomplex;
#endif
#endif

#ifndef GRPC_ERROR_NP
#define GRPC_ERROR_NP
typedef int grpc_error_t;
#endif
#ifndef GRPC_NO_ERROR
#define GRPC_NO_ERROR 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Reports whether this call was cancelled: by grpc_cancel, by a time limit, or with its program. A function that polls this should
 * return soon afterwards; its results are not used. It has one second for that, then its process is killed. The process of a function
 * that has not polled before the cancellation is killed at once. Any thread of the function may poll. On several ranks (Backend "MPI")
 * each rank on the server's machine may poll; the first rank always may. Ranks learn of the cancellation at different moments, so if
 * all ranks have to agree, the first has to notify the others. In simulation a function runs in one moment of virtual time, at which
 * its call is not cancelled.
 * @param[out] error  GRPC_NO_ERROR; may be NULL. @return 1 if it was cancelled, else 0. */
int grpc_is_canceled_np(grpc_error_t *error);

#ifdef __cplusplus
}
#endif

#endif
