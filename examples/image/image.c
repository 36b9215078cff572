/* The kernels of image.idl: combined spatial enhancement (R. C. Gonzalez, R. E. Woods, Digital Image Processing, chapter 3).
 *
 *   L = 8 f - the eight neighbours    S = f + L            G = |Sobel x| + |Sobel y|    A = mean of G over 5 x 5 pixels
 *   M = S A / max(A)                  R = f + M            P = 255 (R / 255)^(1/2), with R limited to 0..255
 *
 * Brightness is from 0 to 255. The edges of the image are replicated. The order of operations is the same for each pixel, so strips give
 * the bits of the whole image: the Laplacian needs one halo row of f on each side, A needs three. */
#include "image.h"

#include <math.h>

static int within(int at, int count) { return at < 0 ? 0 : at < count ? at : count - 1; }

/* The pixel there, or the nearest one in the image. */
static double pixel(int h, int w, const double *f, int row, int column) {
    return f[(long)within(row, h) * w + within(column, w)];
}

void image_laplacian(int h, int w, const double *f, int top, int bottom, double *l) {
    for (int row = top; row < h - bottom; row++)
        for (int column = 0; column < w; column++) {
            double sum = 8 * pixel(h, w, f, row, column);
            for (int down = -1; down <= 1; down++)
                for (int right = -1; right <= 1; right++)
                    if (down || right) sum -= pixel(h, w, f, row + down, column + right);
            *l++ = sum;
        }
}

void image_add(int h, int w, const double *f, int top, int bottom, const double *more, double *sum) {
    for (long at = (long)top * w; at < (long)(h - bottom) * w; at++) *sum++ = f[at] + *more++;
}

void image_sobel(int h, int w, const double *f, int top, int bottom, double *g) {
    for (int row = top; row < h - bottom; row++)
        for (int column = 0; column < w; column++) {
            double at[3][3];
            for (int down = 0; down < 3; down++)
                for (int right = 0; right < 3; right++) at[down][right] = pixel(h, w, f, row + down - 1, column + right - 1);
            double x = (at[0][2] + 2 * at[1][2] + at[2][2]) - (at[0][0] + 2 * at[1][0] + at[2][0]);
            double y = (at[2][0] + 2 * at[2][1] + at[2][2]) - (at[0][0] + 2 * at[0][1] + at[0][2]);
            *g++ = fabs(x) + fabs(y);
        }
}

void image_smooth(int h, int w, const double *g, int top, int bottom, double *a, double *largest) {
    *largest = 0;
    for (int row = top; row < h - bottom; row++)
        for (int column = 0; column < w; column++) {
            double sum = 0;
            for (int down = -2; down <= 2; down++)
                for (int right = -2; right <= 2; right++) sum += pixel(h, w, g, row + down, column + right);
            *a = sum / 25;
            *largest = fmax(*largest, *a++);
        }
}

void image_larger(const double *x, const double *y, double *most) { *most = fmax(*x, *y); }

void image_mask(int h, int w, const double *s, const double *a, const double *largest, double *m) {
    for (long at = 0; at < (long)h * w; at++) m[at] = *largest > 0 ? s[at] * a[at] / *largest : 0;
}

void image_power(int h, int w, const double *r, double *p) {
    for (long at = 0; at < (long)h * w; at++) p[at] = 255 * sqrt(fmin(fmax(r[at], 0), 255) / 255);
}
