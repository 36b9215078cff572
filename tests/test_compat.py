"""Headers for programs of DIET, Ninf, early Ninf-G, OmniRPC and GRAS: programs in the shape of theirs, for real and in
simulation."""

import os
import shutil
import socket
import subprocess

import pytest
from c_library import CAPI, ROOT, compile_c, needs_cc, the_library  # noqa: F401 (a fixture)
from parts import PROGRAM, address_in, parts

COMPAT = ROOT / "tests" / "compat"
PLATFORM = ROOT / "tests" / "gridrpc" / "platform.toml"
HEADERS = CAPI / "include" / "compat"
# In simulation, servers have the names of their hosts, and no ports.
NAMES = ["server-1", "server-2"]

pytestmark = needs_cc

# Arguments, in which {0} and {1} are two servers, and the output.
PROGRAMS = {
    "diet_scalars.c": (["client.cfg"], "3.75\n1\n"),
    "diet_matrices.c": (
        ["client.cfg"],
        "3 6 18 in 0.25 s\n2 x 2, 1: 8 9 20 18\n2 x 2, 1: 11 14 18 22\n8 primes, the last is 19\n",
    ),
    "diet_texts.c": (["client.cfg", "one.txt", "two.txt"], "Answer : hello world\nsizes 4 and 7, together 11\n"),
    "diet_async.c": (
        ["client.cfg"],
        "1 5.25\n2 10.25\n3 15.25\n4 20.25\n5 25.25\nGRPC_INVALID_SESSION_ID\nGRPC_FUNCTION_NOT_FOUND\n",
    ),
    "diet_wait_and.c": (["client.cfg"], "GRPC_SESSION_FAILED\n300 right\nGRPC_INVALID_SESSION_ID\n"),
    "diet_wait_all.c": (["client.cfg"], "0: 20, 2\n0: 200\n0: 200, GRPC_INVALID_SESSION_ID\n"),
    "diet_persistent.cc": (
        ["client.cfg"],
        "at the client: 2\n20 10 40 30\n-1 at the client, then 10\n-1 at the client, then 10\n20 at the client, then 10\n"
        + "GRPC_RPC_REFUSED\n" * 4,
    ),
    "ninf_mmul.c": (["-server", "{0}"], "1 2 2\nGRPC_FUNCTION_NOT_FOUND\n"),
    "ninf_pi.c": (["{0}", "{1}"], "2 answers, none left\nPI = 3.1\nGRPC_SERVER_NOT_FOUND\n"),
    "ninf_executables.c": ([], "20.25 1.5 3.5, 1\n"),
    "ninfg_pi.c": (["ninfg.conf", "{0}", "{1}"], "PI = 3.1\nGRPC_SERVER_NOT_FOUND\n"),
    "ninfg_farm.c": (["ninfg.conf"], "10 calls, 45, 1\n6\n"),
    "ninfg_objects.c": (["ninfg.conf", "{0}", "one.txt", "two.txt"], "12, 3, 4 and 7, 4\n"),
    "omnirpc_handles.c": (["{0}"], "3 3.5\n"),
    "omnirpc_sweep.c": ([], "210\n"),
}
# Texts on standard error.
ERRORS = {
    "diet_persistent.cc": [
        "diet_use_data: no call of this program has left data 'DIET-data-1' on servers",
        "smprod: argument 1 differs from parameter 'a' of the function: its type is double *, an array",
        "smprod: the profile has no INOUT argument for 'a'",
        "matprod: argument 1 is a matrix of 2 x 2, but 'k' of 'b' is 1",
    ],
    "diet_async.c": ["no_such_service: GRPC_FUNCTION_NOT_FOUND"],
    "ninf_executables.c": ["a session that was waited for: GRPC_INVALID_SESSION_ID"],
    "omnirpc_handles.c": ["OmniRPC: services/no_such_entry: GRPC_FUNCTION_NOT_FOUND", "OmniRPC: 2 calls"],
    "omnirpc_sweep.c": ["OmniRPC: done, sin(0) is 0"],
}


def options(name):
    folder = HEADERS / "ninf-g" if name.startswith("ninfg") else HEADERS
    if name.endswith(".cc"):
        return [f"-I{folder}", "-std=c++17"], "c++"
    return [f"-I{folder}", "-std=c99"], "cc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compat")
    for name in ("services.idl", "client.cfg", "ninfg.conf"):
        shutil.copy(COMPAT / name, folder)
    (folder / "one.txt").write_text("abc\n")
    (folder / "two.txt").write_text("defghi\n")
    return folder


@pytest.fixture(scope="module")
def grid(folder):
    """Starts an agent and two servers; returns the agent's address and theirs."""
    with parts(folder) as start:
        agent = address_in(start("agent", "--listen", "127.0.0.1:0")[1])
        what = ["services.idl", "--agent", agent, "--models", "none"]
        yield agent, [address_in(start("serve", *what, "--name", name)[1]) for name in NAMES]


def run(folder, name, servers, *before, **environment):
    arguments, expected = PROGRAMS[name]
    flags, compiler = options(name)
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no compiler '{compiler}'")
    program = compile_c([COMPAT / name], folder / name.replace(".", "_"), *flags, compiler=compiler)
    done = subprocess.run(
        [*before, program, *(argument.format(*servers) for argument in arguments)],
        capture_output=True, text=True, timeout=120, cwd=folder, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done, expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_for_real(folder, grid, name):
    agent, servers = grid
    done, expected = run(folder, name, servers, GRIDLOOM_AGENT=agent)
    assert done.stdout == expected, done.stderr
    assert [text for text in ERRORS.get(name, []) if text not in done.stderr] == [], done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_in_simulation(folder, name):
    simulate = [PROGRAM, "simulate", "-p", PLATFORM, "--functions", "services.idl", "--execute", "--"]
    done, expected = run(folder, name, NAMES, *simulate)
    assert done.stdout.startswith(expected), done.stdout + done.stderr


# The other one passes 0 as a mode, which is C only.
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"diet_async.c"}))
def test_a_program_compiles_as_cpp(folder, name):
    """With optimisation, as the headers promise for C++."""
    if shutil.which("c++") is None:
        pytest.skip("there is no compiler 'c++'")
    flags = [
        f"-I{HEADERS / 'ninf-g' if name.startswith('ninfg') else HEADERS}",
        "-std=c++17",
        "-O2",
        "-Wno-write-strings",
    ]
    compile_c(["-x", "c++", COMPAT / name, "-x", "none"], folder / "as_cpp", *flags, compiler="c++")


UNSUPPORTED = {
    "DIET_client.h": ("diet_container_set(NULL, DIET_VOLATILE)", "containers of DIET are not supported"),
    "ninf.h": ('Ninf_local_exec("stub")', "serve the function with 'gridloom serve'"),
    "OmniRpc.h": ('OmniRpcExecLocal("program", "function")', "OmniRPC's calls without an agent are not supported"),
}


@pytest.mark.parametrize("header", UNSUPPORTED)
def test_the_compiler_names_what_is_not_supported(tmp_path, header):
    call, reason = UNSUPPORTED[header]
    (tmp_path / "call.c").write_text(f'#include "{header}"\nint main(void) {{ {call}; return 0; }}\n')
    command = ["cc", f"-I{HEADERS}", "-c", tmp_path / "call.c", "-o", tmp_path / "call.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and reason in done.stderr, done.stderr


def test_several_files_share_their_calls(folder, grid, tmp_path):
    """A file starts a call, and another one waits for it."""
    (tmp_path / "begin.c").write_text(
        """#include "DIET_client.h"
diet_profile_t *profile;
double values[] = {1, 2, 3, 4, 5, 6}, factor = 2;
int begin(void) {
    diet_reqID_t id;
    profile = diet_profile_alloc("smprod", 0, 1, 2);
    diet_scalar_set(diet_parameter(profile, 0), &factor, DIET_VOLATILE, DIET_DOUBLE);
    diet_matrix_set(diet_parameter(profile, 1), values, DIET_VOLATILE, DIET_DOUBLE, 2, 3, DIET_COL_MAJOR);
    diet_scalar_set(diet_parameter(profile, 2), NULL, DIET_VOLATILE, DIET_FLOAT);
    return diet_call_async(profile, &id) ? -1 : id;
}
"""
    )
    (tmp_path / "end.c").write_text(
        """#include <stdio.h>
#include "DIET_client.h"
extern double values[];
int begin(void);
int main(int argc, char **argv) {
    if (diet_initialize(NULL, argc, argv) || diet_wait(begin())) return 1;
    printf("%g %g\\n", values[1], values[5]);
    return diet_finalize();
}
"""
    )
    program = compile_c([tmp_path / "begin.c", tmp_path / "end.c"], tmp_path / "two", f"-I{HEADERS}", "-std=c99")
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=120, env={**os.environ, "GRIDLOOM_AGENT": grid[0]}
    )
    assert done.stdout == "4 12\n", done.stderr


# Sources, process functions, and the lines of output.
GRAS = {
    "matrix": (["gras_matrix_client.c", "gras_matrix_server.c"], ["16 x 16 from server-1, the last is 510"]),
    "ping": (
        ["gras_ping.c"],
        [
            "client: 3, message type 'pung' is not declared",
            "server: 3 pings, the last name is second, desk says bye",
        ],
    ),
    "rpc": (["gras_rpc.c"], ["client: 6.5 15.5, '!now' is refused", "client: ticks arrived", "server: 1"]),
    "nested": (
        ["gras_nested.c"],
        [f"server: {text}" for text in ["8", "blocks none", "second", "four", "part two", "321"]],
    ),
}


def compile_gras(folder, sources, *more):
    flags = [f"-I{HEADERS}", "-std=c99", "-DGRAS_PROCESSES=client,server", *more]
    return compile_c([COMPAT / source for source in sources], folder / "gras", *flags)


@pytest.mark.parametrize("name", GRAS)
@pytest.mark.parametrize("before", [["simulate", "-p", PLATFORM], ["deploy"]], ids=["in simulation", "for real"])
@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
def test_a_program_of_gras(tmp_path, name, before, optimisation):
    sources, expected = GRAS[name]
    program = compile_gras(tmp_path, sources, optimisation)
    command = [PROGRAM, *before, "-d", COMPAT / "gras_matrix.toml", "--", program]
    # glibc overwrites memory that is freed, so that its later use is noticed.
    freed = {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **freed})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("| ")[-1] for line in done.stdout.splitlines()]
    assert [line for line in expected if line not in lines] == [], done.stdout + done.stderr


def test_an_exception_of_gras_that_nothing_catches_is_a_failure(tmp_path):
    program = compile_c([COMPAT / "gras_failing.c"], tmp_path / "gras", f"-I{HEADERS}", "-DGRAS_PROCESSES=client")
    (tmp_path / "one.toml").write_text('[[process]]\nhost = "desk"\nfunction = "client"\n')
    command = [PROGRAM, "simulate", "-p", PLATFORM, "-d", tmp_path / "one.toml", "--", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "no message arrived in 0.1 s" in done.stderr, done.stdout + done.stderr


# Stubs: a host is a folder and a loopback address.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
unset GRIDLOOM_KEYS GRIDLOOM_AGENT
export PATH="FOLDER:$PATH" HOME="FOLDER/$2" XDG_STATE_HOME="FOLDER/$2"
mkdir -p "$HOME"; cd "$HOME"
exec sh -c "$3"
"""
SRUN = """#!/bin/sh
test "$1" = --jobid=77 || exit 9
while [ "$1" != sh ]; do shift; done
unset GRIDLOOM_KEYS GRIDLOOM_AGENT
export HOME="FOLDER/home"; mkdir -p "$HOME"
exec "$@"
"""


@pytest.mark.parametrize("by", ["ssh", "srun"])
def test_processes_run_on_the_hosts_of_a_file(tmp_path, monkeypatch, by):
    program = compile_gras(tmp_path, GRAS["matrix"][0])
    stub = tmp_path / by
    stub.write_text({"ssh": SSH, "srun": SRUN}[by].replace("FOLDER", str(tmp_path)))
    stub.chmod(0o755)
    (tmp_path / "gridloom").symlink_to(PROGRAM)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    pid = os.getpid()
    addresses = [f"127.{192 + pid % 32}.{pid >> 5 & 255}.{1 + (pid >> 13 & 127) * 2 + number}" for number in range(2)]
    host = '[[host]]\nname = "{}"\nspeed = "1Gf"\nproperties = {{ address = "{}", folder = ".." }}\n'
    (tmp_path / "grid.toml").write_text(host.format("server-1", addresses[0]) + host.format("desk", addresses[1]))
    with socket.socket() as free:
        free.bind((addresses[0], 0))
        port = free.getsockname()[1]
    deployment = (COMPAT / "gras_matrix.toml").read_text().replace("4000", str(port))
    (tmp_path / "processes.toml").write_text(deployment)
    command = [PROGRAM, "deploy", "-d", tmp_path / "processes.toml", "--hosts", tmp_path / "grid.toml"]
    command += ["--slurm"] if by == "srun" else []
    done = subprocess.run([*command, "--", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "client@desk| 16 x 16 from server-1, the last is 510\n", done.stderr
