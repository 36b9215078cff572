"""The image functions of the demonstration, against their textbook definitions."""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "demo"))

import demo  # noqa: E402
import enhance  # noqa: E402


def here(name, calls):
    return [getattr(enhance, name)(*arguments) for arguments in calls]


def test_a_constant_image_has_no_detail():
    flat = np.full((9, 11), 100.0)
    assert not enhance.laplacian(flat, 0, 0).any()
    assert not enhance.sobel(flat, 0, 0).any()
    (result,) = demo.enhance_with(here, flat, 1)
    assert np.allclose(result, 255.0 * (100.0 / 255.0) ** 0.5)


def test_an_impulse_shows_each_kernel():
    point = np.zeros((9, 9))
    point[4, 4] = 1.0
    kernel = np.full((3, 3), -1.0)
    kernel[1, 1] = 8.0
    assert np.array_equal(enhance.laplacian(point, 0, 0)[3:6, 3:6], kernel)
    mean, largest = enhance.smooth(point, 0, 0)
    assert np.allclose(mean[2:7, 2:7], 1 / 25) and mean.sum() == pytest.approx(1.0) and largest == pytest.approx(1 / 25)
    assert np.array_equal(enhance.sobel(point, 0, 0)[3:6, 3:6], [[2, 2, 2], [2, 0, 2], [2, 2, 2]])


@pytest.mark.parametrize("strips", [2, 3, 7, 97])
def test_strips_give_the_whole_images_bits(strips):
    image = np.random.default_rng(strips).uniform(0, 255, (97, 61))
    (whole,) = demo.enhance_with(here, image, 1)
    assert np.array_equal(np.concatenate(demo.enhance_with(here, image, strips)), whole)
