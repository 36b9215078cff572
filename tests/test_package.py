"""The files that `make capi` installs with the library: manual pages, and files for CMake."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
CAPI = ROOT / "target" / "capi"
MAN = CAPI / "share" / "man"
VERSION = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)


def said(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exported():
    """Returns the functions that the library exports and a header declares."""
    if shutil.which("nm") is None:
        pytest.skip("there is no nm")
    symbols = {
        line.split()[-1] for line in said("nm", "-D", "--defined-only", CAPI / "lib" / "libgridloom.so").splitlines()
    }
    # The internal functions that the macros of grpc_map.h use are not for programs.
    texts = (header.read_text().split("/* ---- What the macros are made of")[0] for header in CAPI.glob("include/*.h"))
    declared = (re.sub(r"^#define .*", "", text, flags=re.MULTILINE) for text in texts)
    # Functions of the C library, to which the library's own pass on calls: words of the headers' texts.
    symbols -= {"read", "write", "send", "recv", "fread", "fwrite"}
    return symbols & {word for text in declared for word in re.findall(r"\w+", text)}


def test_every_function_has_a_page():
    functions = exported()
    assert {"grpc_call", "grpc_wait_or", "pushArg", "gridloom_send", "grpc_fetch"} <= functions
    pages = {path.stem for path in MAN.glob("man3/*.3")}
    assert functions <= pages, functions - pages
    assert {"gridrpc", "gridloom"} <= {path.stem for path in MAN.glob("man7/*.7")}


def test_every_header_is_on_the_page_of_headers():
    page = (ROOT / "docs" / "reference" / "c.md").read_text()
    names = {path.name for path in (CAPI / "include").glob("*.h*")}
    assert "grpc.hpp" in names and {name for name in names if f"[{name}](" not in page} == set()


def test_every_page_says_what_its_function_is_for():
    for path in MAN.glob("man*/*"):
        text = path.read_text()
        name = re.search(r"^\.SH NAME\n((?:.*\n)+?)\.SH", text, re.MULTILINE).group(1)
        names, about = re.split(r"\s-\s", name.replace("\\-", "-"), maxsplit=1)
        assert path.stem in names.replace(",", " ").split() and len(about.strip()) > 2, path.name
        assert f'"Gridloom {VERSION}"' in text


def test_a_page_has_what_the_header_says():
    text = (MAN / "man3" / "grpc_wait_or.3").read_text()
    for part in ("grpc_error_t grpc_wait_or(const grpc_sessionid_t *session_ids", "the first in the array that has ended",
                 r"\fIsession_id\fR", ".SH RETURN VALUE", "MT-safe", ".SH SEE ALSO"):  # fmt: skip
        assert part in text, part


def test_every_command_has_a_page():
    program = ROOT / "target" / "release" / "gridloom"
    if not program.exists():
        pytest.skip("the program is not built")
    commands = re.findall(r"^  (\w+) ", said(program, "--help").split("Options:")[0], re.MULTILINE)
    assert "serve" in commands
    for command in set(commands) - {"help"}:
        options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", said(program, command, "--help"), re.MULTILINE))
        text = (MAN / "man1" / f"gridloom-{command}.1").read_text().replace("\\-", "-")
        assert {option for option in options if option not in text} == set(), command


def test_pages_are_well_formed():
    tools = [tool for tool in ("mandoc", "groff") if shutil.which(tool)]
    if not tools:
        pytest.skip("there is neither mandoc nor groff")
    pages = sorted(path for path in MAN.glob("man*/*") if not path.is_symlink())
    for tool in tools:
        command = {"mandoc": ["mandoc", "-T", "lint"], "groff": ["groff", "-man", "-ww", "-Tutf8", "-z"]}[tool]
        done = subprocess.run([*command, *pages], capture_output=True, text=True, timeout=300)
        assert done.stdout + done.stderr == "", tool


PROJECT = """cmake_minimum_required(VERSION 3.10)
project(trial C)
find_package(gridloom 0.1 REQUIRED)
foreach(kind gridloom static)
  add_executable(with_${kind} trial.c)
  target_link_libraries(with_${kind} gridloom::${kind})
endforeach()
"""
TRIAL = """#include <grpc.h>
#include <stdio.h>
int main(void) { return puts(grpc_error_string(GRPC_NOT_COMPLETED)) < 0; }
"""


def cmake(folder, *more):
    if shutil.which("cmake") is None or shutil.which("cc") is None:
        pytest.skip("there is no cmake, or no C compiler 'cc'")
    return subprocess.run(
        ["cmake", "-S", folder, "-B", folder / "build", *more], capture_output=True, text=True, timeout=300
    )


def test_a_cmake_project_with_the_library_elsewhere(tmp_path):
    shutil.copytree(CAPI, tmp_path / "else where", symlinks=True)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "trial.c").write_text(TRIAL)
    done = cmake(tmp_path, f"-DCMAKE_PREFIX_PATH={tmp_path / 'else where'}")
    assert done.returncode == 0, done.stdout + done.stderr
    said("cmake", "--build", tmp_path / "build")
    for kind in ("gridloom", "static"):
        assert said(tmp_path / "build" / f"with_{kind}") == "GRPC_NOT_COMPLETED\n"


def test_cmake_refuses_another_version(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.replace("gridloom 0.1", "gridloom 0.2"))
    done = cmake(tmp_path, f"-DCMAKE_PREFIX_PATH={CAPI}")
    assert done.returncode != 0 and VERSION in done.stderr


def test_all_files_are_of_one_version():
    pc = (CAPI / "lib" / "pkgconfig" / "gridloom.pc").read_text()
    cmake_version = (CAPI / "lib" / "cmake" / "gridloom" / "gridloomConfigVersion.cmake").read_text()
    assert f"Version: {VERSION}" in pc and f'PACKAGE_VERSION "{VERSION}"' in cmake_version
    config = (CAPI / "lib" / "cmake" / "gridloom" / "gridloomConfig.cmake").read_text()
    assert not [text for text in (pc, cmake_version, config) if re.search(r"@\w+@", text)], "a place is not filled"


def test_installing(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    # Nothing is built here: existing files are installed.
    made = [f"--old-file={name}" for name in ("target/capi/ready", "target/release/gridloom")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said("make", *made, "install", f"PREFIX={tmp_path}/usr", cwd=ROOT, env=environment)
    for name in ("bin/gridloom", "include/grpc.h", "include/compat/ninf-g/grpc.h", "lib/libgridloom.so", "lib/libgridloom.a", "share/man/man3/grpc_call.3",
                 "lib/pkgconfig/gridloom.pc", "lib/cmake/gridloom/gridloomConfig.cmake"):  # fmt: skip
        assert (tmp_path / "usr" / name).exists(), name
