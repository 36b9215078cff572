"""Combined spatial enhancement of an image (Gonzalez & Woods, *Digital Image Processing*, chapter 3), as functions.

Every function works on whole images and on horizontal strips alike. A strip includes halo rows of its neighbours;
``top`` and ``bottom`` are the numbers of input rows to leave out of the result. Edges of the image are replicated, and
the order of operations is the same for each pixel at any position, so strips give the whole image's bits.
"""

import gridloom as gl
import numpy as np

Image = gl.Array["float64", "h", "w"]
Cut = gl.Array["float64", "h-top-bottom", "w"]


def _shifted(image, down, right):
    """The image moved by whole pixels, its edges replicated."""
    h, w = image.shape
    rows = np.clip(np.arange(h) - down, 0, h - 1)
    columns = np.clip(np.arange(w) - right, 0, w - 1)
    return image[rows][:, columns]


def _cut(image, top, bottom):
    return np.ascontiguousarray(image[top : image.shape[0] - bottom])


@gl.function(work="18*h*w")
def laplacian(f: Image, top: int, bottom: int) -> Cut:
    """Laplacian over the eight neighbours."""
    total = 8.0 * f
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            if down or right:
                total = total - _shifted(f, down, right)
    return _cut(total, top, bottom)


@gl.function(work="2*h*w")
def sharpen(f: Image, laplace: Cut, top: int, bottom: int) -> Cut:
    """The image with its Laplacian added."""
    return _cut(f, top, bottom) + laplace


@gl.function(work="22*h*w")
def sobel(f: Image, top: int, bottom: int) -> Cut:
    """Magnitude of the gradient: |Sobel x| + |Sobel y|."""
    s = {(d, r): _shifted(f, d, r) for d in (-1, 0, 1) for r in (-1, 0, 1)}
    x = (s[-1, -1] + 2.0 * s[0, -1] + s[1, -1]) - (s[-1, 1] + 2.0 * s[0, 1] + s[1, 1])
    y = (s[-1, -1] + 2.0 * s[-1, 0] + s[-1, 1]) - (s[1, -1] + 2.0 * s[1, 0] + s[1, 1])
    return _cut(np.abs(x) + np.abs(y), top, bottom)


@gl.function(work="51*h*w")
def smooth(g: Image, top: int, bottom: int) -> tuple[Cut, float]:
    """Mean over 5 by 5 pixels, and its largest value."""
    total = np.zeros_like(g)
    for down in range(-2, 3):
        for right in range(-2, 3):
            total = total + _shifted(g, down, right)
    mean = _cut(total / 25.0, top, bottom)
    return mean, float(mean.max())


@gl.function(work="1")
def larger(a: float, b: float) -> float:
    """The larger of two numbers."""
    return max(a, b)


@gl.function(work="2*h*w")
def mask(s: Image, a: Image, largest: float) -> Image:
    """Sharpened image times smoothed gradient, scaled."""
    return s * a / largest if largest > 0.0 else s * 0.0


@gl.function(work="2*h*w")
def combine(f: Image, m: gl.Array["float64", "h-top-bottom", "w"], top: int, bottom: int) -> Cut:
    """The image with the mask added."""
    return _cut(f, top, bottom) + m


@gl.function(work="30*h*w")
def power(r: Image) -> Image:
    """Power-law transformation with exponent 0.5."""
    return 255.0 * (np.clip(r, 0.0, 255.0) / 255.0) ** 0.5
