"""The GridRPC API in Fortran programs: the module grpc, and the examples."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("GRIDLOOM_PROGRAM", str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom"))
SUITE = ROOT / "tests" / "gridrpc"
EXAMPLES = ROOT / "examples" / "gridrpc"
CAPI = ROOT / "target" / "capi"
MODULE = CAPI / "include" / "grpc.f90"
GENERATE = ROOT / "crates" / "gridloom-capi" / "generate"
sys.path.insert(0, str(GENERATE))
import annotations  # noqa: E402

needs_gfortran = pytest.mark.skipif(shutil.which("gfortran") is None, reason="there is no Fortran compiler 'gfortran'")


@pytest.fixture(autouse=True)
def the_program(monkeypatch):
    monkeypatch.setenv("GRIDLOOM_PROGRAM", PROGRAM)
    monkeypatch.delenv("GRIDLOOM_AGENT", raising=False)


def compile_fortran(source, target, *before):
    """Compiles a program with the module and the files that it uses, in its folder."""
    # Numbers that a function has returned unchanged are compared.
    warnings = ["-std=f2018", "-Wall", "-Wextra", "-Werror", "-Wno-compare-reals", "-O2", "-g"]
    library = [f"-L{CAPI}/lib", "-lgridloom", f"-Wl,-rpath,{CAPI}/lib"]
    subprocess.run(["gfortran", *warnings, MODULE, *before, source, "-o", target, *library], check=True, cwd=target.parent)
    return target


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def functions_of(header):
    """Returns the functions and the macros with parameters of a header, which are for programs."""
    text = without_comments(re.split(r"/\* -{4} [^*]*not for programs", header)[0])
    functions = re.findall(r"^(?:const )?\w+ \**(\w+)\(", text, re.MULTILINE)
    return {*functions, *re.findall(r"^#define (grpc_\w+)\b", text, re.MULTILINE)} - {"defined"}


def values_of(header):
    """Returns the numbers that a header defines: macros, and members of enumerations."""
    text = without_comments(header)
    values = {
        name: int(value) for name, value in re.findall(r"#define (GRPC_\w+) \(?(-?\d+)\)?\s*$", text, re.MULTILINE)
    }
    for members in re.findall(r"typedef enum \w+ \{(.*?)\}", text, re.DOTALL):
        value = -1
        for name, given in re.findall(r"(GRPC_\w+)(?: = (\d+))?", members):
            value = int(given) if given else value + 1
            values[name] = value
    return values


def module():
    """Returns the code of the module and of the files that it includes, without continued lines."""
    files = [
        MODULE,
        *(MODULE.parent / name for name in re.findall(r'^include "(.*)"', MODULE.read_text(), re.MULTILINE)),
    ]
    return re.sub(
        r"&\n\s*", "", "".join(path.read_text() for path in [*files, MODULE.parent / "grpc_executable.f90"])
    ).lower()


def public_of(text):
    return set(re.findall(r"\w+", " ".join(re.findall(r"\bpublic :: (.*)", text)))) - set(
        re.findall(r"private :: (.*)", text)
    )


def headers():
    return {path.name: path.read_text() for path in (CAPI / "include").glob("*.h")}


def test_each_function_of_c_is_in_the_module_or_left_out_with_a_reason():
    public, found = public_of(module()), {}
    for name, text in headers().items():
        if name not in annotations.HEADERS_LEFT_OUT:
            found |= dict.fromkeys(functions_of(text), name)
    assert len(found) > 120 and {"grpc_call", "grpc_map", "grpc_data_init", "pushArg"} <= found.keys()
    left_out = {name for name in found if annotations.left_out(name) is not None}
    assert {name for name in found if name not in public} == left_out
    reasons = [*annotations.HEADERS_LEFT_OUT.values(), *annotations.LEFT_OUT.values()]
    assert all(len(reason) > 15 for reason in reasons)
    assert annotations.HEADERS_LEFT_OUT.keys() <= headers().keys()


def test_each_annotation_is_about_something_in_the_headers():
    code = without_comments("".join(headers().values()))
    names = set(re.findall(r"\w+", code))
    for pattern in [*annotations.LEFT_OUT, *annotations.RENAMED, *annotations.PRIVATE, *annotations.FUNCTIONS]:
        assert fnmatch.filter(names, pattern), pattern
    for pattern in annotations.PARAMETERS:
        function, parameter = pattern.split(".")
        assert any(re.search(rf"\b{parameter}\b", code) for _ in fnmatch.filter(names, function)), pattern


def test_numbers_of_c_are_those_of_the_module_and_of_all_headers():
    known = dict(re.findall(r"parameter, public :: (grpc_\w+) = (-?\d+)\n", module()))
    all_values = {}
    for name, text in headers().items():
        for constant, value in values_of(text).items():
            assert all_values.setdefault(constant, value) == value, f"{constant} has another value in {name}"
            if name not in annotations.HEADERS_LEFT_OUT:
                constant = annotations.RENAMED.get(constant, constant)
                assert known[constant.lower()] == str(value), constant
    assert len(known) > 70


def test_the_module_is_made_the_same_again(tmp_path):
    read = sorted((CAPI / "include").glob("*.h"), key=lambda path: path.name.lower())
    command = [sys.executable, GENERATE / "fortran.py", "--module", ROOT / "crates" / "gridloom-capi" / "fortran"]
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, "--out", tmp_path / seed, *read], check=True, env=environment)
    for name in ("grpc_interfaces.f90", "grpc_functions.f90"):
        text = (tmp_path / "1" / name).read_text()
        assert text == (tmp_path / "2" / name).read_text()
        assert sorted(text.splitlines()) == sorted((CAPI / "include" / name).read_text().splitlines())


@pytest.mark.parametrize(
    "declaration, complaint",
    [
        ("int grpc_new_np(long double x);", "'long double x' is none of the declarations"),
        ("int grpc_new_np(const char *name, const double *values);", "grpc_new_np: 'values' has no form in Fortran"),
        ("#define grpc_new_np(x) grpc_old_np(x)", "macros have to be written by hand"),
    ],
)
def test_what_has_no_form_in_fortran_is_refused(tmp_path, declaration, complaint):
    (tmp_path / "grpc_new.h").write_text(f"/* A header. */\n/* A function. */\n{declaration}\n")
    command = [sys.executable, GENERATE / "fortran.py", "--module", tmp_path, "--out", tmp_path]
    done = subprocess.run([*command, tmp_path / "grpc_new.h"], capture_output=True, text=True)
    assert done.returncode != 0 and complaint in done.stderr, done.stderr


@needs_gfortran
def test_calls_of_all_kinds(tmp_path):
    """Functions in Fortran: matrices keep their indices on both sides."""
    shutil.copy(SUITE / "fortran.idl", tmp_path)
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    source = SUITE / "functions.f90"
    sources = [CAPI / "include" / "grpc_executable.f90", source]
    subprocess.run(["gfortran", *options, *sources, "-o", tmp_path / "libfortran.so"], check=True, cwd=tmp_path)
    (tmp_path / "grid.toml").write_text(
        '[local]\nservers = 2\nfunctions = ["fortran.idl"]\nlibraries = ["libfortran.so"]\n'
    )
    program = compile_fortran(SUITE / "calls.f90", tmp_path / "calls", SUITE / "suite.f90")
    command, environment = [program, "grid.toml", "server-1"], {**os.environ, "PWD": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    said = done.stdout.splitlines()
    assert done.returncode == 0 and all(line.startswith("ok ") for line in said), done.stdout + done.stderr
    assert len(said) == (SUITE / "calls.f90").read_text().count('call tell("')


@needs_gfortran
@pytest.mark.parametrize("is_simulated", [False, True])
@pytest.mark.parametrize("name", ["blocks", "objects"])
def test_what_is_beside_the_standard(tmp_path, monkeypatch, name, is_simulated):
    monkeypatch.setenv("GRIDLOOM_FILES", ".")
    for file in ("functions.idl", "ninfg.idl", "ninfg.h", "gridrpc.toml", "platform.toml"):
        shutil.copy(SUITE / file, tmp_path)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", SUITE / "functions.c", "-o", tmp_path / "libgridrpc.so"], check=True)
    program = compile_fortran(SUITE / f"{name}.f90", tmp_path / name, SUITE / "suite.f90")
    simulate = [PROGRAM, "simulate", "-p", tmp_path / "platform.toml", "--execute", "--"] if is_simulated else []
    command = [*simulate, program, "gridrpc.toml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    said = [line for line in done.stdout.splitlines() if line.startswith("ok ")]
    assert done.returncode == 0 and "not ok" not in done.stdout, done.stdout + done.stderr
    assert len(said) == (SUITE / f"{name}.f90").read_text().count('call tell("'), done.stdout + done.stderr


@needs_gfortran
@pytest.mark.parametrize(
    "name, says",
    [
        ("dgesv", "200 equations: info 0, the residual is small"),
        ("pi", r"pi is about 3\.1[34]\d\d after 16000000 points"),
    ],
)
def test_examples_say_what_their_page_says(tmp_path, name, says):
    for file in ("functions.idl", "language.idl", "grid.toml"):
        shutil.copy(EXAMPLES / file, tmp_path)
    library = ["-o", tmp_path / "libexamples.so", "-lm"]
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", EXAMPLES / "functions.c", *library], check=True)
    program = compile_fortran(EXAMPLES / f"{name}.f90", tmp_path / name)
    done = subprocess.run([program, "grid.toml"], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0 and re.fullmatch(says, done.stdout.strip()), done.stdout + done.stderr


COMPLEX = """complex(8) function dotc(n, x, y)
    integer, intent(in) :: n
    complex(8), intent(in) :: x(n), y(n)
    dotc = sum(conjg(x) * y)
end function
complex(4) function mean(n, x)
    integer, intent(in) :: n
    complex(4), intent(in) :: x(n)
    mean = sum(x) / n
end function
"""
DESCRIBED = """Module complex;
FUNCTION dcomplex dotc(IN int n, IN dcomplex x[n], IN dcomplex y[n]) LANGUAGE = "FORTRAN"
Define average(IN int n, IN scomplex x[n], OUT scomplex *value) Calls "FORTRAN" value = mean(n, x);
"""


@needs_gfortran
def test_complex_values_of_functions_are_results(tmp_path):
    (tmp_path / "complex.f90").write_text(COMPLEX)
    (tmp_path / "complex.idl").write_text(DESCRIBED)
    library = tmp_path / "libcomplex.so"
    subprocess.run(["gfortran", "-shared", "-fPIC", tmp_path / "complex.f90", "-o", library], check=True, cwd=tmp_path)
    x, y = np.array([1 + 2j, 3 - 1j]), np.array([2 - 1j, 1j])
    with gl.local(servers=1, functions=[tmp_path / "complex.idl"], libraries=[library]) as grid:
        assert grid.function("complex/dotc")(x, y) == np.vdot(x, y)
        mean = grid.function("complex/average")(x.astype("complex64"))
        assert mean == np.complex64(2 + 0.5j) and mean.dtype == np.complex64


PROJECT = """cmake_minimum_required(VERSION 3.10)
project(trial Fortran)
find_package(gridloom 0.1 REQUIRED)
add_executable(trial trial.f90 ${gridloom_FORTRAN})
target_link_libraries(trial gridloom::gridloom)
"""
TRIAL = """program trial
    use grpc
    print '(a)', grpc_error_string(GRPC_NOT_COMPLETED)
end program
"""


@needs_gfortran
def test_a_cmake_project(tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "trial.f90").write_text(TRIAL)
    build = tmp_path / "build"
    for command in (["-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={CAPI}"], ["--build", build]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([build / "trial"], capture_output=True, text=True).stdout == "GRPC_NOT_COMPLETED\n"
