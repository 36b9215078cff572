"""The toy protein of examples/protein: its energies, and the same result however it runs."""

import re
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest
from c_library import PROGRAM, ROOT, compile_c, needs_cc, the_library  # noqa: F401 (a fixture)

pytestmark = needs_cc
PROTEIN = ROOT / "examples" / "protein"
SMALL = ["--chains", "16", "--rounds", "5", "--sweeps", "16"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    library = tmp_path_factory.mktemp("protein") / "libprotein.so"
    flags = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, PROTEIN / "protein.c", "-o", library, "-lm"], check=True)
    return library


@pytest.fixture(scope="module")
def protein():
    sys.path.insert(0, str(PROTEIN))
    import protein

    yield protein
    sys.path.remove(str(PROTEIN))


def energy(kinds, angles):
    """The AB model, written down from its definition."""
    polar, azimuth = angles[0:-1:2], angles[1:-1:2]
    bonds = np.stack([np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)], axis=1)
    at = np.concatenate([np.zeros((1, 3)), np.cumsum(bonds, axis=0)])
    i, j = np.triu_indices(len(kinds), k=2)
    r = np.linalg.norm(at[i] - at[j], axis=1)
    attraction = (1 + kinds[i] + kinds[j] + 5 * kinds[i] * kinds[j]) / 8
    return np.sum(1 - np.sum(bonds[1:] * bonds[:-1], axis=1)) / 4 + np.sum(4 * (r**-12 - attraction * r**-6))


def test_energies_are_those_of_the_model(library, protein):
    kinds = protein.fibonacci(13)
    with gl.local(functions=[PROTEIN / "protein.idl"], libraries=[library], servers=2) as grid:
        with grid.group():
            halves, energies = protein.record(grid, kinds, protein.chains(16, 13, 1), 16, 5, 1)
        states = np.concatenate([half.get() for half in halves])
        found = np.concatenate([one.get() for one in energies])
    assert np.allclose(found, [energy(kinds, state) for state in states], rtol=1e-9)
    first = np.concatenate(protein.chains(16, 13, 1))
    assert found.min() < min(energy(kinds, state) for state in first)


def test_the_result_does_not_depend_on_where_the_calls_run(library):
    program = [sys.executable, PROTEIN / "protein.py", "--library", library, *SMALL]
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
    outputs = []
    for command in (program, [*simulate, *program]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(
            re.findall(r"^lowest energy of 16 chains: (-?[\d.]+)\nmedian: (-?[\d.]+)$", done.stdout, re.MULTILINE)
        )
    assert outputs[0] and outputs[0] == outputs[1]


def test_programs_in_c_and_python_print_the_same_energies(library, tmp_path):
    (tmp_path / "grid.toml").write_text(
        f'[local]\nservers = 2\nfunctions = ["{PROTEIN}/protein.idl"]\nlibraries = ["{library}"]\n'
    )
    client = compile_c([PROTEIN / "client.c"], tmp_path / "client", "-std=c11")
    odd = subprocess.run([client, "grid.toml", "13", "5"], capture_output=True, text=True, cwd=tmp_path)
    assert odd.returncode == 2 and "CHAINS is 5" in odd.stderr
    numbers = ["13", "16", "5", "16", "3"]
    names = ["--residues", "--chains", "--rounds", "--sweeps", "--seed"]
    options = [word for pair in zip(names, numbers) for word in pair]
    commands = [client, "grid.toml", *numbers], [sys.executable, PROTEIN / "protein.py", "--library", library, *options]
    outputs = []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] and outputs[0].startswith("lowest energy of 16 chains: ")
