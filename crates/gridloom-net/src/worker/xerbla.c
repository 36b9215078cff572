/* The error handlers of BLAS and LAPACK, as a shared library. It is loaded globally and before the libraries of functions, so
 * that its handlers replace those of BLAS, which end the process (reference BLAS) or print a line (OpenBLAS). */
#include <stddef.h>

/* Set by the worker. */
void (*gridloom_invalid_parameter)(const char *routine, size_t length, int number);

/* Longer than the names of all routines. */
enum { NAME_MAX_LENGTH = 32 };

/* Some callers pass the length as an `int`, and old C programs pass none. The routine returns after this call. */
void xerbla_(const char *routine, const int *number, unsigned length) {
    size_t end = 0;
    while (end < length && end < NAME_MAX_LENGTH && routine[end] != '\0') end++;
    gridloom_invalid_parameter(routine, end, *number);
}

void cblas_xerbla(int number, const char *routine, const char *form, ...) {
    size_t length = 0;
    (void)form;
    while (routine[length] != '\0') length++;
    gridloom_invalid_parameter(routine, length, number);
}
