/* The enhancement of image.py through GridRPC: writes the same picture.
 *
 *   client CONFIGURATION IN.pgm OUT.pgm [STRIPS]
 *   cc client.c -o client -I../../target/capi/include -L../../target/capi/lib -lgridloom -Wl,-rpath,$PWD/../../target/capi/lib -lm
 *
 * Pictures are binary PGM files of 8 bits. All calls are one group: intermediate images are sent from server to server, and the client
 * gets only the enhanced strips. */
#include <grpc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HALO = 3, STRIPS_MAX = 256 };

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != GRPC_NO_ERROR) {                                                                                 \
            grpc_perror_np(#call);                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void mistake(const char *path, const char *what) {
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static double *image_of(int h, int w) {
    double *made = malloc((size_t)h * (size_t)w * sizeof *made);
    if (made == NULL) mistake("image", "there is not enough memory");
    return made;
}

/* The next number of a PGM file's header, after blanks and comments. */
static int header_number(FILE *in, const char *path) {
    int c = fgetc(in), value = 0, digits = 0;
    while (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = fgetc(in);
        c = fgetc(in);
    }
    for (; c >= '0' && c <= '9' && digits < 6; c = fgetc(in), digits++) value = 10 * value + c - '0';
    if (digits == 0) mistake(path, "its header is not that of a PGM file");
    return value;
}

static double *read_picture(const char *path, int *h, int *w) {
    FILE *in = fopen(path, "rb");
    if (in == NULL) mistake(path, "cannot be read");
    if (fgetc(in) != 'P' || fgetc(in) != '5') mistake(path, "is not a binary PGM file ('P5')");
    *w = header_number(in, path);
    *h = header_number(in, path);
    if (header_number(in, path) != 255 || *w < 1 || *h < 1) mistake(path, "is not a PGM file of 8 bits (largest value 255)");
    double *image = image_of(*h, *w);
    for (long at = 0; at < (long)*h * *w; at++) {
        int c = fgetc(in);
        if (c == EOF) mistake(path, "has fewer pixels than its header states");
        image[at] = c;
    }
    fclose(in);
    return image;
}

/* Writes the picture. @return The mean brightness. */
static double write_picture(const char *path, int h, int w, const double *image) {
    FILE *out = fopen(path, "wb");
    double sum = 0;
    if (out == NULL) mistake(path, "cannot be written");
    fprintf(out, "P5\n%d %d\n255\n", w, h);
    for (long at = 0; at < (long)h * w; at++) {
        double pixel = rint(fmin(fmax(image[at], 0), 255));
        fputc((int)pixel, out);
        sum += pixel;
    }
    int failed = ferror(out);
    if (fclose(out) != 0 || failed) mistake(path, "cannot be written");
    return sum / ((double)h * w);
}

/* A strip: its rows in the whole image, the halo rows before and behind it, of which the mean uses `above` and `below`, and its
 * intermediate images. */
typedef struct {
    int begin, end, top, bottom, above, below;
    double *l, *s, *g, *a, *m, *r;
} strip;

static int cut(int h, int w, int wanted, strip *strips) {
    int made = 0;
    for (int number = 0; number < wanted; number++) {
        int begin = (int)((long)h * number / wanted), end = (int)((long)h * (number + 1) / wanted), rows = end - begin;
        if (rows == 0) continue;
        int top = begin < HALO ? begin : HALO, bottom = h - end < HALO ? h - end : HALO;
        int above = top > 2 ? 2 : top, below = bottom > 2 ? 2 : bottom;
        strips[made++] = (strip){begin, end, top, bottom, above, below, image_of(rows, w), image_of(rows, w),
                                 image_of(rows + above + below, w), image_of(rows, w), image_of(rows, w), image_of(rows, w)};
    }
    return made;
}

enum { LAPLACIAN, SHARPEN, SOBEL, SMOOTH, LARGER, MASK, COMBINE, POWER, FUNCTIONS };
static const char *const NAMES[FUNCTIONS] = {"image/laplacian", "image/sharpen", "image/sobel", "image/smooth",
                                             "image/larger", "image/mask", "image/combine", "image/power"};

/* Records the calls for all strips. `largest` has room for two numbers per strip; p becomes the enhanced image. */
static void enhance(grpc_function_handle_t *f, int w, double *image, const strip *strips, int count, double *largest, double *p) {
    grpc_sessionid_t id;
    for (int i = 0; i < count; i++) {
        const strip *s = &strips[i];
        int rows = s->end - s->begin, high = s->top + rows + s->bottom;
        double *in = image + (long)(s->begin - s->top) * w;
        grpc_stays_remote(s->l, s->s, s->g, s->a);
        MUST(grpc_call_async(&f[LAPLACIAN], &id, high, w, in, s->top, s->bottom, s->l));
        MUST(grpc_call_async(&f[SHARPEN], &id, high, w, in, s->top, s->bottom, s->l, s->s));
        /* The gradient keeps the halo rows that the mean uses. */
        MUST(grpc_call_async(&f[SOBEL], &id, high, w, in, s->top - s->above, s->bottom - s->below, s->g));
        MUST(grpc_call_async(&f[SMOOTH], &id, s->above + rows + s->below, w, s->g, s->above, s->below, s->a, &largest[i]));
    }
    /* A tree: results follow the numbers that they are made of. */
    double *most = largest;
    for (int from = 0, to = count; to - from > 1; from += 2, to++) {
        MUST(grpc_call_async(&f[LARGER], &id, &largest[from], &largest[from + 1], &largest[to]));
        most = &largest[to];
    }
    for (int i = 0; i < count; i++) {
        const strip *s = &strips[i];
        int rows = s->end - s->begin, high = s->top + rows + s->bottom;
        grpc_stays_remote(s->m, s->r);
        MUST(grpc_call_async(&f[MASK], &id, rows, w, s->s, s->a, most, s->m));
        MUST(grpc_call_async(&f[COMBINE], &id, high, w, image + (long)(s->begin - s->top) * w, s->top, s->bottom, s->m, s->r));
        MUST(grpc_call_async(&f[POWER], &id, rows, w, s->r, p + (long)s->begin * w));
    }
    MUST(grpc_wait_all());
}

int main(int argc, char **argv) {
    static strip strips[STRIPS_MAX];
    static double largest[2 * STRIPS_MAX];
    grpc_function_handle_t functions[FUNCTIONS];
    int h, w, wanted = argc > 4 ? atoi(argv[4]) : 8;
    if (argc < 4 || wanted < 1 || wanted > STRIPS_MAX) {
        fprintf(stderr, "usage: %s CONFIGURATION IN.pgm OUT.pgm [STRIPS], with 1 to %d strips\n", argv[0], STRIPS_MAX);
        return 2;
    }
    double *image = read_picture(argv[2], &h, &w), *enhanced = image_of(h, w);
    int count = cut(h, w, wanted, strips);
    MUST(grpc_initialize(argv[1]));
    for (int i = 0; i < FUNCTIONS; i++) MUST(grpc_function_handle_default(&functions[i], NAMES[i]));
    grpc_map("auto") { enhance(functions, w, image, strips, count, largest, enhanced); }
    MUST(grpc_map_error_np());
    printf("%d x %d pixels, mean %.3f\n", h, w, write_picture(argv[3], h, w, enhanced));
    for (int i = 0; i < FUNCTIONS; i++) MUST(grpc_function_handle_destruct(&functions[i]));
    MUST(grpc_finalize());
    return 0;
}
