"""The C examples of the GridRPC API, and HydroPad, in the real world and in simulation."""

import re
import shutil
import subprocess

import pytest
from c_library import ROOT, compile_c, needs_cc, the_library  # noqa: F401 (a fixture)
from parts import PROGRAM

EXAMPLES = ROOT / "examples" / "gridrpc"
PLATFORM = ROOT / "tests" / "gridrpc" / "platform.toml"

pytestmark = needs_cc


@pytest.fixture(autouse=True)
def files(monkeypatch):
    monkeypatch.setenv("GRIDLOOM_FILES", ".")


SAYS = {
    "pi": ([], r"pi is about 3\.1[34]\d\d after 16000000 points"),
    "workers": ([], r"pi is about 3\.1[34]\d\d after 20 calls on 4 workers"),
    "dgesv": ([], r"200 equations: info 0, the residual is small"),
    "remote": ([], r"info 0, mean 24\.75"),
    "stack": (["1", "2", "3", "4"], r"mean 2\.5, deviation 1\.29099 of 4 numbers"),
    "cancel": (
        [],
        "the trial was first\nthe search: GRPC_SESSION_FAILED, GRPC_CANCELED_NP\n"
        "with a limit: GRPC_TIMEOUT_NP\nfailed: the first session",
    ),
    "progress": ([], r"(\d+ %: \d\.\d{6}\n){10}the integral is 3\.141593"),
    "objects": (
        [],
        r"the largest eigenvalue of the Hilbert matrix of 400 is 2\.353606432, after 20 steps\n"
        r"4 objects made 80 products",
    ),
    "files": (["double", "functions.c", "hits.txt"], r"[1-9]\d* lines have 'double' in them"),
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    for name in ("functions.idl", "language.idl", "functions.c", "grid.toml"):
        shutil.copy(EXAMPLES / name, folder)
    source = EXAMPLES / "functions.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", source, "-o", folder / "libexamples.so", "-lm"], check=True)
    return folder


@pytest.fixture(scope="module")
def hydropad(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hydropad")
    sources = EXAMPLES / "hydropad"
    for name in ("hydropad.idl", "grid.toml", "sites.toml"):
        shutil.copy(sources / name, folder)
    kernels = [sources / name for name in ("fft.c", "gravity.c", "matter.c", "gas.c")]
    flags = ["-O2", "-ffp-contract=off"]
    library = ["-shared", "-fPIC", "-o", folder / "libhydropad.so"]
    subprocess.run(["cc", *flags, *kernels, *library, "-lm"], check=True)
    more = [sources / "hydropad.c", sources / "cosmology.c"]
    for name in ("plain", "mapped", "adaptive"):
        compile_c([sources / f"{name}.c", *more], folder / name, "-std=c11", "-D_POSIX_C_SOURCE=200809L")
    for name in ("check", "serial"):
        subprocess.run(["cc", *flags, sources / f"{name}.c", *kernels, more[1], "-o", folder / name, "-lm"], check=True)
    return folder


def physics(folder, program, *before, options=("grid.toml",)):
    done = subprocess.run(
        [*before, folder / program, *options], capture_output=True, text=True, cwd=folder, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.search(rf"^{program}: 8 steps of 16\^3 cells .* checksum ([0-9a-f]{{16}})$", done.stdout, re.MULTILINE)[1]


def test_hydropad_has_the_same_physics_however_it_is_mapped(hydropad):
    """Plain, mapped, and mapped in groups of fixed and of adaptive size: bitwise equal to the serial program, in the
    real world and in simulation."""
    simulate = [PROGRAM, "simulate", "-p", PLATFORM, "--execute", "--"]
    programs = ("plain", "mapped", "adaptive")
    sums = [physics(hydropad, program, *before) for before in ([], simulate) for program in programs]
    sums += [physics(hydropad, "mapped", *simulate, options=("grid.toml", "16", "16", "8", "3"))]
    sums += [physics(hydropad, "serial", options=())]
    assert len(set(sums)) == 1, sums


def test_a_mapped_hydropad_keeps_its_data_off_a_slow_client(hydropad):
    """Returns the virtual seconds on a grid with a distant client."""

    def simulated(program):
        command = [PROGRAM, "simulate", "-p", "sites.toml", "--execute", "--", hydropad / program, "grid.toml"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=hydropad, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return float(re.search(r"^simulated ([\d.]+) s$", done.stdout + done.stderr, re.MULTILINE)[1])

    assert simulated("mapped") < simulated("adaptive") < simulated("plain")


def test_hydropad_kernels_are_right(hydropad):
    subprocess.run([hydropad / "check"], check=True, cwd=hydropad, timeout=300)


@pytest.mark.parametrize("name", SAYS)
def test_examples_say_what_their_page_says(examples, name):
    program = compile_c([EXAMPLES / f"{name}.c"], examples / name, "-std=c99")
    arguments, expected = SAYS[name]
    done = subprocess.run([program, "grid.toml", *arguments], capture_output=True, text=True, cwd=examples, timeout=300)
    assert done.returncode == 0 and re.fullmatch(expected, done.stdout.strip()), done.stdout + done.stderr
    if name == "files":
        told = [line for line in (examples / "functions.c").read_text().splitlines() if "double" in line]
        assert (examples / "hits.txt").read_text().splitlines() == told


def test_a_program_with_remote_data_runs_unchanged_in_simulation(examples):
    program = compile_c([EXAMPLES / "remote.c"], examples / "simulated", "-std=c99")
    simulate = [PROGRAM, "simulate", "-p", PLATFORM, "--execute", "--"]
    done = subprocess.run([*simulate, program, "grid.toml"], capture_output=True, text=True, cwd=examples, timeout=300)
    assert done.returncode == 0 and "info 0, mean 24.75" in done.stdout, done.stdout + done.stderr
