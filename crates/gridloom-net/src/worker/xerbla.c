/* The error handlers of BLAS and LAPACK, in a shared library of their own: loaded before the libraries of functions, for all of the
 * process, these are found before those of BLAS, which end the process (reference BLAS) or print a line (OpenBLAS). */
#include <stddef.h>

/* Set by the worker. */
void (*gridloom_invalid_parameter)(const char *routine, size_t length, int number);

/* The length is an `int` for some callers. Routines return after this. */
void xerbla_(const char *routine, const int *number, unsigned length) {
    gridloom_invalid_parameter(routine, length, *number);
}

void cblas_xerbla(int number, const char *routine, const char *form, ...) {
    size_t length = 0;
    (void)form;
    while (routine[length] != '\0') length++;
    gridloom_invalid_parameter(routine, length, number);
}
