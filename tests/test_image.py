"""The image enhancement of examples/image: compared with NumPy's, and the same however it runs."""

import importlib.util
import pathlib
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest
from c_library import PROGRAM, ROOT, compile_c, needs_cc, the_library  # noqa: F401 (a fixture)

pytestmark = needs_cc
IMAGE = ROOT / "examples" / "image"


def module(path):
    """A module from its file, since its name may be that of an installed one."""
    spec = importlib.util.spec_from_file_location(f"example_{pathlib.Path(path).stem}", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    library = tmp_path_factory.mktemp("image") / "libimage.so"
    flags = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, IMAGE / "image.c", "-o", library, "-lm"], check=True)
    return library


@pytest.fixture(scope="module")
def image():
    return module(IMAGE / "image.py")


@pytest.fixture(scope="module")
def grid(library):
    with gl.local(functions=[IMAGE / "image.idl"], libraries=[library], servers=2) as grid:
        yield grid


def enhanced(image, grid, picture, strips):
    with grid.group():
        handles = image.record(grid, image.strips_of(picture, strips))
    return np.concatenate([handle.get() for handle in handles])


def textbook(f):
    """The enhancement in NumPy, from its definition."""

    def neighbours(x, reach):
        wide = np.pad(x, reach, mode="edge")
        h, w = x.shape
        offsets = range(2 * reach + 1)
        return np.array([[wide[i : i + h, j : j + w] for j in offsets] for i in offsets])

    near = neighbours(f, 1)
    laplacian = 9 * f - near.sum(axis=(0, 1))
    sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])[:, :, np.newaxis, np.newaxis]
    gradient = abs((near * sobel).sum(axis=(0, 1))) + abs((near * sobel.swapaxes(0, 1)).sum(axis=(0, 1)))
    mean = neighbours(gradient, 2).mean(axis=(0, 1))
    mask = (f + laplacian) * mean / mean.max()
    return 255 * np.sqrt(np.clip(f + mask, 0, 255) / 255)


def test_the_kernels_are_those_of_the_textbook(image, grid):
    picture = np.random.default_rng(1).uniform(0, 255, (41, 33))
    assert np.allclose(enhanced(image, grid, picture, 1), textbook(picture), rtol=0, atol=1e-9)


def test_a_constant_image_has_no_detail(image, grid):
    assert np.allclose(enhanced(image, grid, np.full((9, 11), 100.0), 2), 255 * (100 / 255) ** 0.5)


@pytest.mark.parametrize("strips", [2, 3, 7, 40])
def test_strips_give_the_whole_images_bits(image, grid, strips):
    picture = np.random.default_rng(strips).uniform(0, 255, (37, 29))
    assert np.array_equal(enhanced(image, grid, picture, strips), enhanced(image, grid, picture, 1))


def output(*command, folder):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_programs_in_c_and_python_and_a_simulation_write_the_same_picture(library, tmp_path):
    pixels = np.random.default_rng(3).integers(0, 256, (60, 50), np.uint8)
    (tmp_path / "in.pgm").write_bytes(b"P5\n# a comment\n50 60\n255\n" + pixels.tobytes())
    (tmp_path / "grid.toml").write_text(
        f'[local]\nservers = 2\nfunctions = ["{IMAGE}/image.idl"]\nlibraries = ["{library}"]\n'
    )
    client = compile_c([IMAGE / "client.c"], tmp_path / "client", "-std=c11")
    driver = [sys.executable, IMAGE / "image.py", "--library", library, "--picture", "in.pgm", "--strips", "5"]
    said = output(*driver, "--out", "python.pgm", folder=tmp_path)
    assert said.startswith("60 x 50 pixels, mean ")
    assert output(client, "grid.toml", "in.pgm", "c.pgm", "7", folder=tmp_path).strip() == said.partition(", sha256")[0]
    simulate = [
        PROGRAM,
        "simulate",
        "-p",
        ROOT / "examples" / "two-sites.toml",
        "--execute",
        "--library",
        library,
        "--",
    ]
    assert output(*simulate, *driver, "--out", "simulated.pgm", folder=tmp_path).startswith(said)
    pictures = [(tmp_path / name).read_bytes() for name in ("c.pgm", "python.pgm", "simulated.pgm")]
    assert pictures[0] == pictures[1] == pictures[2] != (tmp_path / "in.pgm").read_bytes()


def test_a_file_that_is_no_picture_is_named(tmp_path, library):
    (tmp_path / "grid.toml").write_text(
        f'[local]\nservers = 1\nfunctions = ["{IMAGE}/image.idl"]\nlibraries = ["{library}"]\n'
    )
    client = compile_c([IMAGE / "client.c"], tmp_path / "client", "-std=c11")
    for content, error in (
        (b"P6\n1 1\n255\n123", "'P5'"),
        (b"P5\n2 2\n255\nabc", "has fewer pixels than its header states"),
    ):
        (tmp_path / "in.pgm").write_bytes(content)
        done = subprocess.run([client, "grid.toml", "in.pgm", "out.pgm"], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 1 and error in done.stderr and "in.pgm" in done.stderr
