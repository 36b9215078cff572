"""Forces in a box of molecules on chares (examples/leanmd/box.py), against all pairs of sites."""

import itertools
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "leanmd"
SIDE_NM, CUTOFF = 1.2, 3.5
#: A chain of bonded atoms at the beginning of the box: types and charges.
CHAIN = [("N3", 0.2), ("CT", 0.1), ("C", 0.5), ("O", -0.5), ("N", -0.4), ("H", 0.3), ("OH", -0.6), ("HO", 0.4)]


@pytest.fixture(scope="module")
def example():
    sys.path.insert(0, str(EXAMPLE))
    import box
    import molecules

    yield box, molecules
    sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A chain and 60 waters, some of which cross the sides of the box."""
    folder, random = tmp_path_factory.mktemp("box"), np.random.default_rng(5)
    places = np.array(list(itertools.product(range(4), repeat=3))) * 0.3 + 0.05
    random.shuffle(places)
    chain = places[0] + 0.11 * np.arange(len(CHAIN))[:, None] * [1, 0.3, -0.2]
    water = np.array([[0, 0, 0], [0.09572, 0, 0], [-0.024, 0.0927, 0], [0.0082, 0.0104, 0]])
    at = np.concatenate([chain, *(place + water for place in places[1:61])])
    lines = [f"{number:5}MOL  A{number:5}{x:14.9f}{y:14.9f}{z:14.9f}" for number, (x, y, z) in enumerate(at)]
    (folder / "box.gro").write_text("\n".join(["a box", str(len(at)), *lines, f"{SIDE_NM} {SIDE_NM} {SIDE_NM}", ""]))
    count = len(CHAIN)
    top = ["[ atoms ] ; a comment"] + [
        f"{at + 1} {kind} 1 A A 1 {charge} 1.0" for at, (kind, charge) in enumerate(CHAIN)
    ]
    top += [
        "[ bonds ]",
        *(f"{at} {at + 1} 1" for at in range(1, count)),
        "[ pairs ]",
        *(f"{at} {at + 3} 1" for at in range(1, count - 2)),
    ]
    (folder / "box.top").write_text("\n".join([*top, "[ system ]", "none"]))
    return folder / "box.gro", folder / "box.top"


def all_pairs(sites, cutoff):
    """Returns forces and energies, for all pairs of sites, by the nearest images."""
    force, energies = np.zeros_like(sites.at), np.zeros(3)
    for one, other in itertools.combinations(range(len(sites.at)), 2):
        way = sites.at[one] - sites.at[other]
        way -= np.round(way / sites.length) * sites.length
        r = np.sqrt(way @ way)
        if r >= cutoff:
            continue
        energies[2] += 1
        bonds = other - one if other < sites.protein else 4
        is_water = one >= sites.protein and (one - sites.protein) // 4 == (other - sites.protein) // 4
        if bonds < 3 or is_water:
            continue
        of_lj, of_charge = (0.5, 1 / 1.2) if bonds == 3 else (1, 1)
        sigma, depth = (sites.sigma[one] + sites.sigma[other]) / 2, np.sqrt(sites.depth[one] * sites.depth[other])
        energy = lambda r: 4 * depth * ((sigma / r) ** 12 - (sigma / r) ** 6)  # noqa: B023, E731
        slope = lambda r: 4 * depth * (12 * sigma**12 / r**13 - 6 * sigma**6 / r**7)  # noqa: B023, E731
        charges = 332.0636 * sites.charge[one] * sites.charge[other] * of_charge
        energies[0] += of_lj * (energy(r) - energy(cutoff) + (r - cutoff) * slope(cutoff))
        energies[1] += charges / r * (1 - r / cutoff) ** 2
        along = of_lj * (slope(r) - slope(cutoff)) + charges * (1 / r**2 - 1 / cutoff**2)
        force[one] += along * way / r
        force[other] -= along * way / r
    return force, energies


def test_forces_are_those_of_all_pairs_of_sites(example, files):
    box, molecules = example
    sites = molecules.read(*files)
    cells = box.Box(sites, 3, CUTOFF)
    on_cells, energies = cells.serial()
    force = np.zeros_like(sites.at)
    for inside, on_cell in zip(cells.inside, on_cells, strict=True):
        force[inside] = on_cell
    expected, expected_energies = all_pairs(sites, CUTOFF)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(force, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(energies, expected_energies, rtol=1e-10)


def run(files, *options, elements=()):
    gro, top = files
    program = [sys.executable, EXAMPLE / "box.py", "--gro", gro, "--top", top, "--cells", "3", "--cutoff", str(CUTOFF)]
    started = [sys.executable, "-m", "gridloom", "chares", "run", *elements, "--"] if elements else []
    return subprocess.run([*started, *program, *options], capture_output=True, text=True)


def test_elements_have_the_bits_of_the_serial_loop_wherever_they_are(files):
    bits = set()
    for elements in [(), ("-n", "2"), ("-n", "3", "--sites", "3", "--latency", "2ms")]:
        done = run(files, "--steps", "3", "--check", elements=elements)
        assert done.returncode == 0, done.stderr
        assert "the serial loop has the same bits" in done.stdout
        bits.add(re.search(r"bits of all forces (\w+)", done.stdout)[1])
    assert len(bits) == 1


def test_files_that_are_something_else_are_named(files, tmp_path):
    gro, top = files
    other = tmp_path / "other"
    for text, wrong in [
        (gro.read_text().replace(f"{SIDE_NM} {SIDE_NM}", f"{SIDE_NM} 2", 1), "is not a cube"),
        ("nothing\nmuch\n", "not a file of positions"),
    ]:
        other.write_text(text)
        done = run((other, top))
        assert done.returncode == 1 and str(other) in done.stderr and wrong in done.stderr
    for text, wrong in [
        (top.read_text().replace(" CT ", " XY "), "no parameters are known of atoms of type XY"),
        ("[ system ]\nnone\n", "no section [ atoms ]"),
    ]:
        other.write_text(text)
        done = run((gro, other))
        assert done.returncode == 1 and str(other) in done.stderr and wrong in done.stderr
    done = run(files, "--cells", "5")
    assert done.returncode == 1 and "give at least 3 cells, and no more than 3" in done.stderr
