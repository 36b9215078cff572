/* The functions that functions.idl describes. cc -shared -fPIC -O1 -o libgridrpc.so functions.c */
#include <ctype.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void gridrpc_add(int x, int *y) { *y = x + 1; }

void gridrpc_sleep(int seconds) {
    struct timespec left = {seconds, 0};
    while (nanosleep(&left, &left) != 0) {}
}

void gridrpc_exit(int status) { _exit(status); }

void gridrpc_refuses(int n, double *y) {
    (void)n;
    (void)y;
    _exit(1);
}

void gridrpc_loop(int ignored) {
    (void)ignored;
    for (;;) pause();
}

void gridrpc_kinds(signed char c, short s, int i, long l, unsigned u, float f, double d, double *sums) {
    double terms[7] = {c, s, i, (double)l, u, f, d}, sum = 0;
    for (int k = 0; k < 7; k++) sums[k] = sum += terms[k];
}

void gridrpc_pointers(signed char *c, short *s, int *i, long *l, float *f, double *d) {
    *c = 1;
    *s = 2;
    *i += 1;
    *l = 3;
    *f = 4.5f;
    *d /= 2;
}

void gridrpc_axpy(int n, double alpha, const double *x, double *y) {
    for (int i = 0; i < n; i++) y[i] += alpha * x[i];
}

double gridrpc_sum(long n, const double *x) {
    double sum = 0;
    for (long i = 0; i < n; i++) sum += x[i];
    return sum;
}

void gridrpc_transpose(int m, int n, const float *a, float *b) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) b[j * m + i] = a[i * n + j];
}

void gridrpc_corner_(const int *m, const int *n, const double *a, double *element) {
    *element = *m * *n > 1 ? a[1] : 0;
}

int gridrpc_upper(const char *text, int n, signed char *letters) {
    int length = (int)strlen(text);
    for (int i = 0; i < n; i++) letters[i] = i < length ? (signed char)toupper((unsigned char)text[i]) : 0;
    return length;
}

void gridrpc_scratch(int n, const int *x, int *w, int *y) {
    memcpy(w, x, (size_t)n * sizeof *w);
    for (int i = 0; i < n; i++) y[i] = w[n - 1 - i];
}

int gridrpc_grep(const char *pattern, const char *text, const char *hits) {
    char line[1024];
    int count = 0;
    FILE *in = text == NULL ? NULL : fopen(text, "r"), *out;
    if (in == NULL) return -1;
    out = hits == NULL ? NULL : fopen(hits, "w");
    while (fgets(line, sizeof line, in) != NULL)
        if (strstr(line, pattern) != NULL) {
            if (out != NULL) fputs(line, out);
            count++;
        }
    if (out != NULL) fclose(out);
    fclose(in);
    return count;
}

void gridrpc_append(const char *log, const char *line) {
    FILE *out = fopen(log, "a");
    if (out == NULL) return;
    fprintf(out, "%s\n", line);
    fclose(out);
}

int gridrpc_join(const char *first, const char *second, char **both) {
    *both = malloc(strlen(first) + strlen(second) + 1);
    strcpy(*both, first);
    strcat(*both, second);
    return (int)strlen(*both);
}

void gridrpc_shout(char **text) {
    size_t length = strlen(*text);
    *text = realloc(*text, 2 * length + 1);
    for (size_t i = 0; i < 2 * length; i++) (*text)[i] = (char)toupper((unsigned char)(*text)[i % length]);
    (*text)[2 * length] = 0;
}

void gridrpc_triple(int n, const double *x, double *y) {
    for (int i = 0; i < n; i++) y[i] = x[i] == 0 && y[i] == 0 ? 1 : 3 * x[i];
}

void gridrpc_negate(int count, const float *a, float *b) {
    for (int i = 0; i < count; i++) b[i] = -a[i];
}

void gridrpc_columns_(const int *ld, const int *m, const int *n, double *a) {
    for (int j = 0; j < *n; j++)
        for (int i = 0; i < *m; i++) a[j * *ld + i] = -a[j * *ld + i];
}

int gridrpc_peaks(int n, const double *x, double floor, double **peaks, int **where) {
    int count = 0;
    *peaks = malloc((size_t)n * sizeof **peaks);
    *where = malloc((size_t)n * 2 * sizeof **where);
    for (int i = 1; i < n - 1; i++)
        if (x[i] > floor && x[i] > x[i - 1] && x[i] > x[i + 1]) {
            (*peaks)[count] = x[i];
            (*where)[2 * count] = i - 1;
            (*where)[2 * count + 1] = i + 1;
            count++;
        }
    return count;
}

void gridrpc_report(int n, int rounds, double *sum, void (*tell)(int *, double *), void (*ask)(double *, int *)) {
    double *x = malloc((size_t)n * sizeof *x), factor = -1;
    int calls = 0;
    *sum = 0;
    for (int round = 0; round < (rounds < 0 ? 1 : rounds); round++) {
        for (int i = 0; i < n; i++) x[i] = round + i;
        tell(&round, x);
        ask(&factor, &calls);
        *sum += factor;
    }
    free(x);
    if (rounds < 0) _exit(1);
    if (calls != rounds) *sum = NAN;
}

void gridrpc_steps(int m, int n, double *a) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) a[j * m + i] = 10 * i + j;
}

void gridrpc_stalls(int n, double *y) {
    (void)n;
    (void)y;
    for (;;) pause();
}

/* A library's own state, which belongs to its process. */
int gridrpc_next(void) {
    static int number;
    return ++number;
}

void gridrpc_copy(int n, const double *a, double *b) {
    for (int i = 0; i < n; i++) b[i] = a[i];
}
