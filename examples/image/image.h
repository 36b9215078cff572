/* The functions of image.c, which image.idl describes. Images have h rows of w columns. */
#ifndef IMAGE_H
#define IMAGE_H

void image_laplacian(int h, int w, const double *f, int top, int bottom, double *l);
void image_add(int h, int w, const double *f, int top, int bottom, const double *more, double *sum);
void image_sobel(int h, int w, const double *f, int top, int bottom, double *g);
void image_smooth(int h, int w, const double *g, int top, int bottom, double *a, double *largest);
void image_larger(const double *x, const double *y, double *most);
void image_mask(int h, int w, const double *s, const double *a, const double *largest, double *m);
void image_power(int h, int w, const double *r, double *p);

#endif
