"""Combined spatial enhancement of a photograph in horizontal strips, with kernels in C.

    cc -O2 -ffp-contract=off -shared -fPIC -o libimage.so examples/image/image.c -lm
    python examples/image/image.py --library ./libimage.so [--picture FILE] [--strips 8] [--out enhanced.pgm]

All calls are one group: strips with halo rows are sent to servers, eight calls per strip run on them, and only the enhanced strips return.
Strips give the same bits as the whole image. Without --picture, the photograph is the retina that scikit-image ships (CC0). The
program runs unchanged on an embedded local grid, under ``gridloom simulate`` and under ``gridloom testbed run``.
"""

import argparse
import hashlib
import importlib.util
import pathlib

import gridloom as gl
import numpy as np

FUNCTIONS = pathlib.Path(__file__).resolve().parent / "image.idl"
#: Rows of the neighbours that a strip needs on each side: two for the mean over 5 x 5 pixels, one for the gradient.
HALO = 3


def photograph(path=None):
    """Brightness of a picture, float64[rows, columns] in 0..255; by default of the retina of scikit-image."""
    from PIL import Image

    if path is None:
        spec = importlib.util.find_spec("skimage")
        if spec is None:
            raise SystemExit(
                "the photograph is part of the package scikit-image: pip install --no-deps scikit-image, or name a file with --picture"
            )
        path = pathlib.Path(spec.submodule_search_locations[0]) / "data" / "retina.jpg"
    return np.asarray(Image.open(path).convert("L"), dtype=np.float64)


def strips_of(image, count):
    """Strips with halo rows: a list of (rows, halo rows above, halo rows below)."""
    height = len(image)
    bounds = [height * number // count for number in range(count + 1)]
    cut = [
        (begin, end, max(0, begin - HALO), min(height, end + HALO))
        for begin, end in zip(bounds, bounds[1:])
        if begin < end
    ]
    return [(image[first:last], begin - first, last - end) for begin, end, first, last in cut]


def record(grid, strips):
    """Record the calls: returns handles of the enhanced strips."""
    f = {
        name: grid.function(f"image/{name}")
        for name in ("laplacian", "sharpen", "sobel", "smooth", "larger", "mask", "combine", "power")
    }
    sharp, smooth = [], []
    for rows, top, bottom in strips:
        sharp.append(f["sharpen"](rows, top, bottom, f["laplacian"](rows, top, bottom)))
        # The gradient keeps the halo rows that the mean uses.
        above, below = min(top, 2), min(bottom, 2)
        smooth.append(f["smooth"](f["sobel"](rows, top - above, bottom - below), above, below))
    largest = [most for _, most in smooth]
    while len(largest) > 1:
        left = largest[len(largest) // 2 * 2 :]
        largest = [f["larger"](x, y) for x, y in zip(largest[0::2], largest[1::2])] + left
    masks = [f["mask"](s, a, largest[0]) for s, (a, _) in zip(sharp, smooth)]
    return [f["power"](f["combine"](rows, top, bottom, m)) for (rows, top, bottom), m in zip(strips, masks)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, help="the compiled image.c, for an embedded grid")
    parser.add_argument("--picture", type=pathlib.Path, help="a file of any format that Pillow reads")
    parser.add_argument("--strips", type=int, default=8)
    parser.add_argument("--servers", type=int, default=2, help="number of servers of an embedded grid")
    parser.add_argument("--out", type=pathlib.Path, help="where to write the enhanced picture")
    options = parser.parse_args()
    image = photograph(options.picture)
    libraries = [options.library] if options.library else []
    with gl.local(functions=[FUNCTIONS], libraries=libraries, servers=options.servers) as grid:
        with grid.group():
            handles = record(grid, strips_of(image, options.strips))
        enhanced = np.concatenate([handle.get() for handle in handles])
        if grid.simulated and not enhanced.any():
            print("simulated: no picture, since functions were not run ('--execute' runs them)")
            return
        pixels = np.clip(np.rint(enhanced), 0, 255).astype(np.uint8)
        print(
            f"{image.shape[0]} x {image.shape[1]} pixels, mean {pixels.mean():.3f}, sha256 {hashlib.sha256(pixels.tobytes()).hexdigest()[:16]}"
        )
        if options.out:
            from PIL import Image

            Image.fromarray(pixels).save(options.out)


if __name__ == "__main__":
    main()
