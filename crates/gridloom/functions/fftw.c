/* FFTW's plans as plain functions, compiled on the server's machine (crates/gridloom/src/builtin/fftw.rs). FFTW's header is not
 * needed: the parts used here have not changed since FFTW 3.0.
 *
 * Plans are estimated, not measured, so that every call takes equally long. Inputs are preserved: transforms to real numbers, which
 * overwrite their inputs, work on a copy. Without elements there is no plan, and nothing to do. */
#include <stddef.h>
#include <string.h>

#define FFTW_ESTIMATE (1U << 6)
#define FFTW_PRESERVE_INPUT (1U << 4)

#define TRANSFORMS(fftw, real)                                                                                         \
    typedef real fftw##_complex_type[2];                                                                               \
    void *fftw##_plan_dft(int, const int *, fftw##_complex_type *, fftw##_complex_type *, int, unsigned);              \
    void *fftw##_plan_dft_r2c(int, const int *, real *, fftw##_complex_type *, unsigned);                              \
    void *fftw##_plan_dft_c2r(int, const int *, fftw##_complex_type *, real *, unsigned);                              \
    void fftw##_execute(void *);                                                                                       \
    void fftw##_destroy_plan(void *);                                                                                  \
                                                                                                                       \
    static void fftw##_run(void *plan) {                                                                               \
        if (plan == NULL) return;                                                                                      \
        fftw##_execute(plan);                                                                                          \
        fftw##_destroy_plan(plan);                                                                                     \
    }                                                                                                                  \
                                                                                                                       \
    void gridloom_##fftw##_dft(int rank, int n0, int n1, int n2, int sign, void *x, void *y) {                         \
        int n[3] = {n0, n1, n2};                                                                                       \
        if (n0 <= 0 || n1 <= 0 || n2 <= 0) return;                                                                     \
        fftw##_run(fftw##_plan_dft(rank, n, x, y, sign < 0 ? -1 : 1, FFTW_ESTIMATE | FFTW_PRESERVE_INPUT));            \
    }                                                                                                                  \
                                                                                                                       \
    void gridloom_##fftw##_dft_r2c(int rank, int n0, int n1, int n2, void *x, void *y) {                               \
        int n[3] = {n0, n1, n2};                                                                                       \
        if (n0 <= 0 || n1 <= 0 || n2 <= 0) return;                                                                     \
        fftw##_run(fftw##_plan_dft_r2c(rank, n, x, y, FFTW_ESTIMATE | FFTW_PRESERVE_INPUT));                           \
    }                                                                                                                  \
                                                                                                                       \
    void gridloom_##fftw##_dft_c2r(int rank, int n0, int n1, int n2, const void *x, void *work, void *y) {             \
        int n[3] = {n0, n1, n2};                                                                                       \
        if (n0 <= 0 || n1 <= 0 || n2 <= 0) return;                                                                     \
        size_t last = (size_t)n[rank - 1] / 2 + 1, all = (size_t)n0 * (size_t)n1 * (size_t)n2;                         \
        memcpy(work, x, all / (size_t)n[rank - 1] * last * sizeof(fftw##_complex_type));                               \
        fftw##_run(fftw##_plan_dft_c2r(rank, n, work, y, FFTW_ESTIMATE));                                              \
    }

#ifdef DOUBLE
TRANSFORMS(fftw, double)
#endif
#ifdef SINGLE
TRANSFORMS(fftwf, float)
#endif
