"""Whole libraries: every offered routine, with random arguments, against SciPy."""

import os
import pathlib
import re
import subprocess
import zlib

import gridloom as gl
import numpy as np
import pytest

scipy_fft = pytest.importorskip("scipy.fft", reason="there is no SciPy to compare with")
import libraries_blas  # noqa: E402
import libraries_lapack  # noqa: E402

PROGRAM = os.environ.get("GRIDLOOM_PROGRAM", str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom"))
CHECKS = {"blas": libraries_blas.CHECKS, "lapack": libraries_lapack.CHECKS}
#: Number of sets of random arguments with which each routine is checked.
TIMES = 8


def shipped():
    """OpenBLAS from the tests' requirements."""
    scipy_openblas32 = pytest.importorskip("scipy_openblas32", reason="there is no package scipy-openblas32")
    return ["--library", str(pathlib.Path(scipy_openblas32.get_lib_dir()) / "libscipy_openblas.so")]


def shipped_transforms():
    """FFTW from the tests' requirements: the package pyfftw contains both precisions."""
    pyfftw = pytest.importorskip("pyfftw", reason="there is no package pyfftw")
    folder = pathlib.Path(pyfftw.__file__).parents[1] / "pyfftw.libs"
    found = [path for kind in ("libfftw3-", "libfftw3f-") for path in folder.glob(f"{kind}*.so*")]
    if len(found) != 2:
        pytest.skip(f"{folder} has no libfftw3 and libfftw3f")
    return [word for path in found for word in ("--library", str(path))]


def start(processes, *arguments):
    command = [PROGRAM, *arguments, "--json", "--quiet", "--until-stdin-closes"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    processes.append(subprocess.Popen(command, **pipes, text=True, env=environment))
    return processes[-1].stdout.readline()


@pytest.fixture(scope="module")
def serving():
    """Makes a grid with one server that is started with these options."""
    grids, processes = {}, []

    def serve(*options):
        if options not in grids:
            own = []
            processes.append(own)
            address = re.search(r'"address":\s*"([^"]+)"', start(own, "agent", "--listen", "127.0.0.1:0")).group(1)
            if not start(own, "serve", *options, "--agent", address, "--models", "none"):
                said = own[-1].communicate()[1]
                if "no library found" in said or "C compiler" in said:
                    grids[options] = said.strip()
                else:
                    raise AssertionError(said)
            else:
                grids[options] = gl.connect(address)
        if isinstance(grids[options], str):
            pytest.skip(grids[options])
        return grids[options]

    yield serve
    for grid in grids.values():
        if not isinstance(grid, str):
            grid.close()
    for process in [process for own in processes for process in reversed(own)]:
        process.stdin.close()
        process.wait(timeout=60)


def described(name):
    shown = subprocess.run(
        [PROGRAM, "idl", "show", "--builtin", name], capture_output=True, text=True, check=True
    ).stdout
    return [line.split("(")[0].split("/")[1] for line in shown.splitlines()]


@pytest.mark.parametrize("library", CHECKS)
def test_every_routine_has_a_check(library):
    assert sorted(described(library)) == sorted(CHECKS[library])


@pytest.mark.parametrize("where", ["the system's", "shipped"])
@pytest.mark.parametrize("library, routine", [(library, name) for library in CHECKS for name in CHECKS[library]])
def test_routines_match_scipy(serving, library, routine, where):
    grid = serving(*(shipped() if where == "shipped" else []), "--builtin", "blas", "--builtin", "lapack")
    check, letter = CHECKS[library][routine]
    call = grid.function(f"{library}/{routine}")
    # The same arguments in each run.
    for seed in range(TIMES):
        check(call, libraries_blas.Random(letter, zlib.crc32(f"{routine} {seed}".encode())), routine)


KINDS = {"fftw": (np.float64, np.complex128, 1e-12), "fftwf": (np.float32, np.complex64, 1e-5)}


@pytest.mark.parametrize("where", ["the system's", "shipped"])
@pytest.mark.parametrize("module", KINDS)
@pytest.mark.parametrize("shape", [(1,), (16,), (15,), (4, 5), (6, 1), (3, 4, 6), (2, 3, 7)])
def test_transforms_match_scipy(serving, module, shape, where):
    grid = serving(*(shipped_transforms() if where == "shipped" else []), "--builtin", "fftw")
    real, kind, digits = KINDS[module]
    if f"{module}/dft_1d" not in grid.functions():
        pytest.skip(f"there is no library for {module}")
    random = np.random.default_rng(len(shape))
    x = np.asarray(random.standard_normal(shape) + 1j * random.standard_normal(shape), kind)
    count = x.size

    def near(got, expected):
        assert got.dtype == (kind if np.iscomplexobj(expected) else real) and got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=0, atol=digits * count)

    transform = grid.function(f"{module}/dft_{len(shape)}d")
    forward = transform(-1, x)
    near(forward, scipy_fft.fftn(x))
    near(transform(1, forward), count * x)
    half = grid.function(f"{module}/dft_r2c_{len(shape)}d")(x.real.copy())
    near(half, scipy_fft.rfftn(x.real))
    kept = half.copy()
    near(grid.function(f"{module}/dft_c2r_{len(shape)}d")(*shape, half), count * x.real)
    assert (half == kept).all()


def test_a_wrong_argument_is_reported(serving):
    grid = serving(*shipped(), "--builtin", "blas", "--builtin", "lapack")
    with pytest.raises(
        gl.ArgumentError, match=r"'b' has shape \[4, 1\], expected .*\[3, 1\]|\(n = 3 from argument 'a'\)"
    ):
        grid.function("lapack/dgesv")(np.eye(3), np.ones((4, 1)))
    with pytest.raises(gl.ArgumentError, match="one ASCII letter"):
        grid.function("blas/dgemv")("NT", 1.0, np.eye(2), np.ones(2), 0.0, np.ones(2))
    # An error that LAPACK itself reports.
    *_, info = grid.function("lapack/dpotrf")("U", -np.eye(3))
    assert info == 1
