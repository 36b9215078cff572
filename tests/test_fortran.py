"""The GridRPC API in Fortran programs: the module grpc, and the examples."""

import os
import pathlib
import re
import shutil
import subprocess

import gridloom as gl
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("GRIDLOOM_PROGRAM", str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom"))
SUITE = ROOT / "tests" / "gridrpc"
EXAMPLES = ROOT / "examples" / "gridrpc"
CAPI = ROOT / "target" / "capi"
MODULE = CAPI / "include" / "grpc.f90"

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


# Headers other than grpc.h, each with the functions that are not for Fortran because macros are made of them.
BESIDE = {
    "grpc_map.h": {"grpc_map_begin_np", "grpc_map_leave_np", "grpc_local_np", "grpc_fetch_all_np", "grpc_written_np", "grpc_stays_remote_np"},
    "grpc_plan.h": {"grpc_plan_begin_np"},
    "grpc_heuristic.h": set(),
    "grpc_graph.h": {"grpc_describe_begin_np", "grpc_follow_begin_np"},
    "grpc_remote.h": set(),
    "grpc_data.h": set(),
    "grpc_objects.h": set(),
    # Fortran gets values, and nothing that must be released.
    "grpc_ninfg.h": {"grpc_handle_attr_release_np", "grpc_session_attr_release_np", "grpc_session_info_release_np"},
}


# Headers whose constants are all in the module.
WITH_VALUES = {"grpc_objects.h", "grpc_ninfg.h"}


def values_of(header):
    """Returns the numbers that a header without comments defines: macros, and members of enumerations."""
    values = {name.lower(): value for name, value in re.findall(r"#define (GRPC_\w+) (\d+)$", header, re.MULTILINE)}
    for members in re.findall(r"typedef enum \w+ \{(.*?)\}", header, re.DOTALL):
        value = -1
        for name, given in re.findall(r"(GRPC_\w+)(?: = (\d+))?", members):
            value = int(given) if given else value + 1
            values[name.lower()] = str(value)
    return values


def test_the_module_has_what_the_header_has():
    files = re.findall(r'include "(.*)"', MODULE.read_text())
    text = "".join((MODULE.parent / file).read_text() for file in files)
    module = re.sub(r"&\n\s*", "", text).lower()
    header = (CAPI / "include" / "grpc.h").read_text()
    constants = re.findall(r"#define (GRPC_\w+) \(?(-?\d+)\)?", header)
    assert len(constants) > 20
    for name, value in constants:
        assert f"parameter, public :: {name.lower()} = {value}\n" in module, name
    public = set(re.findall(r"grpc_\w+", "\n".join(re.findall(r"public :: (.*)", module))))
    functions = set(re.findall(r"\b(grpc_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)))
    assert len(functions) == 20 and functions <= public, functions - public
    for beside, without in BESIDE.items():
        header = re.sub(r"/\*.*?\*/", "", (CAPI / "include" / beside).read_text(), flags=re.DOTALL)
        functions = {name for name in re.findall(r"^(?:grpc_error_t|int|double|void) (grpc_\w+)\(", header, re.MULTILINE)} - without
        assert functions and functions <= public, functions - public
        public_constants = re.findall(r"parameter, public :: (grpc_\w+) = (-?\d+)\n", module)
        known = values_of(header)
        assert known.items() <= dict(public_constants).items() or beside not in WITH_VALUES, known


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
