"""The GridRPC API in C programs: the conformance suite, in the real world and in simulation."""

import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
from c_library import CAPI, ROOT, compile_c, needs_cc, the_library
from gridrpc_suite import SUITE, agent, files, passes, serve, served, start, suite
from parts import PROGRAM, address_in, parts

EXAMPLES = ROOT / "examples" / "gridrpc"
GROUPS = {"initialize": 2, "finalize": 2, "handles": 9, "call": 4, "wait": 13, "probe": 8, "cancel": 5, "errors": 7}

# Fixtures.
__all__ = ["agent", "files", "serve", "served", "start", "suite", "the_library"]
pytestmark = needs_cc


def counts(said):
    """Counts the cases of each OGF group."""
    groups = re.findall(r"^ok \d+ - OGF (\w+) \d+:[^#\n]*$", said, re.MULTILINE)
    return {group: groups.count(group) for group in groups}


# Hundreds of cases, each of which has a time limit of its own.
@pytest.mark.timeout(900)
def test_the_suite_passes_for_real(suite):
    assert counts(passes(suite)) == GROUPS and sum(GROUPS.values()) == 50


@pytest.mark.timeout(900)
def test_the_suite_passes_in_simulation(suite):
    simulate = [PROGRAM, "simulate", "-p", suite / "platform.toml", "--execute", "--"]
    assert counts(passes(suite, *simulate)) == GROUPS


# With 10 and 25, a server is lost when a plan that names it is on its way.
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5, 10, 25])
def test_blocks_survive_the_loss_of_servers(suite, monkeypatch, seed):
    """Random programs in blocks, while servers are killed, hang and restart: the memory is the same, and there is
    no error."""
    monkeypatch.setenv("GRIDRPC_SERVERS_FAIL", "1")
    drawn = random.Random(seed)
    lost = drawn.sample(["server-1", "server-2", "server-3", "server-4"], 3)
    times = [drawn.uniform(0.02, 1.5) for _ in lost]
    kinds = ["kill", "kill", "hang"]
    faults = [f"at {at:.3f}s {drawn.choice(kinds)} {name}" for at, name in zip(times, lost, strict=True)]
    faults += [f"at 2s restart {name}" for name in lost]
    scenario = suite / f"{seed}.faults"
    scenario.write_text("\n".join(faults))
    simulate = [PROGRAM, "simulate", "-p", suite / "platform.toml", "--execute", "--faults", scenario, "--"]
    command = [*simulate, suite / "suite", suite / "gridrpc.toml", "server-1", "map: random"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=suite, timeout=300)
    said = scenario.read_text() + done.stdout + done.stderr
    assert done.returncode == 0 and "\nok 1" in "\n" + done.stdout, said
    # The faults occurred while it ran.
    assert float(re.search(r"^simulated ([\d.]+) s$", said, re.MULTILINE)[1]) > max(times), said


def test_a_failed_case_is_reported(suite):
    """The suite can fail: with a server's name that does not exist."""
    command = [suite / "suite", suite / "gridrpc.toml", "no-such-server", "OGF handles 3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=suite, timeout=120)
    assert done.returncode == 1 and "not ok 1 - OGF handles 3" in done.stdout and "GRPC_SERVER_NOT_FOUND" in done.stdout


UNFINISHED = """#include <grpc.h>
int main(int argc, char **argv) {
    grpc_function_handle_t handle;
    int y = 0;
    if (grpc_initialize(argv[argc - 1]) || grpc_function_handle_default(&handle, "gridrpc/add")) return 1;
    return grpc_call(&handle, 1, &y);
}
"""


def test_a_simulated_program_that_does_not_finalize_has_a_report(suite):
    source = suite / "unfinished.c"
    source.write_text(UNFINISHED)
    program = compile_c([source], suite / "unfinished", "-std=c99")
    simulate = [PROGRAM, "simulate", "-p", suite / "platform.toml", "--execute", "--report", suite / "unfinished.json", "--"]
    done = subprocess.run([*simulate, program, "gridrpc.toml"], capture_output=True, text=True, cwd=suite, timeout=120)
    assert done.returncode == 0 and re.search(r"^simulated [\d.]+ s$", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert (suite / "unfinished.json").exists() and "no grid was used" not in done.stdout + done.stderr


MPI_H = """static int MPI_COMM_WORLD, MPI_BYTE;
#define MPI_Init(argc, argv) 0
#define MPI_Comm_rank(all, rank) (*(rank) = atoi(getenv("RANK")))
#define MPI_Comm_size(all, size) (*(size) = atoi(getenv("RANKS")))
#define MPI_Bcast(what, count, type, rank, all) ((void)(what))
#define MPI_Abort(all, status) exit(status)
#define MPI_Finalized(is_over) (*(is_over) = MPI_COMM_WORLD + MPI_BYTE)
#define MPI_Finalize() 0
"""
RANKS = """#include <grpc.h>
int main(int argc, char **argv) {
    grpc_handle_attr_t_np attr;
    grpc_function_handle_t handle;
    if (grpc_initialize(argv[argc - 1]) || grpc_handle_attr_initialize_np(&attr)) return 1;
    grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, (void *)"ranks/size");
    for (int ranks = -1; ranks <= 4; ranks++) {
        int size = -1, *told = NULL;
        grpc_error_t error;
        grpc_handle_attr_t_np known;
        grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_MPI_NCPUS, &ranks);
        error = grpc_function_handle_init_with_attr_np(&handle, &attr);
        if (error == GRPC_NO_ERROR) error = grpc_call(&handle, &size);
        if (grpc_function_handle_get_attr_np(&handle, &known) == GRPC_NO_ERROR) {
            grpc_handle_attr_get_np(&known, GRPC_HANDLE_ATTR_MPI_NCPUS, (void **)&told);
            grpc_handle_attr_destruct_np(&known);
        }
        printf("%d: %s, %d ranks, the handle has %d\\n", ranks, grpc_error_string(error), size, told == NULL ? -1 : *told);
        grpc_handle_attr_release_np(told);
    }
    grpc_handle_attr_destruct_np(&attr);
    return grpc_finalize();
}
"""


# Ranks that cannot communicate.
MPIRUN = """#!/bin/sh
export RANKS="$2"
shift 2
for rank in $(seq 1 $((RANKS - 1))); do RANK=$rank "$@" & done
RANK=0 "$@"
status=$?
wait
exit $status
"""
RANKS_IDL = """Module ranks;
Define size(OUT int *size) Backend "MPI" { MPI_Comm_size(MPI_COMM_WORLD, size); }
Define other(OUT int *size) Backend "MPI" { MPI_Comm_size(MPI_COMM_WORLD, size); }
Define asks(OUT int *rounds) Backend "MPI"
{
    char name[500];
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "%s/runs-%d", getenv("SAID"), rank);
    if (!grpc_is_canceled_np(NULL)) fclose(fopen(name, "w"));
    while (!grpc_is_canceled_np(NULL)) usleep(1000);
    snprintf(name, sizeof name, "%s/saw-%d", getenv("SAID"), rank);
    fclose(fopen(name, "w"));
}
"""
CANCELS = """#include <grpc.h>
static void await(const char *name) {
    while (access(name, F_OK) != 0) usleep(1000);
}
int main(void) {
    grpc_function_handle_t handle;
    grpc_sessionid_t id;
    int rounds = -1;
    if (grpc_initialize("grid.toml") || grpc_function_handle_default(&handle, "ranks/asks")) return 1;
    if (grpc_call_async(&handle, &id, &rounds) != GRPC_NO_ERROR) return 2;
    await("runs-0"), await("runs-1");
    if (grpc_cancel(id) != GRPC_NO_ERROR) return 3;
    await("saw-0"), await("saw-1");
    if (grpc_wait(id) != GRPC_SESSION_FAILED || grpc_get_error(id) != GRPC_CANCELED_NP) return 4;
    return grpc_finalize();
}
"""


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    """Builds a folder with functions that run on ranks, and the command that starts the ranks."""
    tmp_path = tmp_path / "of ranks"
    tmp_path.mkdir()
    for name, text in {
        "mpi.h": MPI_H,
        "mpicc": '#!/bin/sh\nexec cc -I"$(dirname "$0")" "$@"\n',
        "mpirun": MPIRUN,
        "ranks.idl": RANKS_IDL,
        "grid.toml": '[local]\nservers = 1\nfunctions = ["ranks.idl"]\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("GRIDLOOM_MPIRUN", str(tmp_path / "mpirun"))
    monkeypatch.setenv("GRIDLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SAID", str(tmp_path))
    return tmp_path


def test_ranks_see_that_their_call_is_cancelled(ranks, monkeypatch):
    monkeypatch.setenv("GRIDLOOM_MPI_RANKS", "2")
    (ranks / "cancels.c").write_text(CANCELS)
    program = compile_c([ranks / "cancels.c"], ranks / "cancels")
    done = subprocess.run([program], capture_output=True, text=True, cwd=ranks, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_handle_reports_on_how_many_ranks_its_calls_run(ranks, monkeypatch):
    tmp_path = ranks
    monkeypatch.setenv("GRIDLOOM_MPI_RANKS", "3")
    (tmp_path / "ranks.c").write_text(RANKS)
    program = compile_c([tmp_path / "ranks.c"], tmp_path / "ranks", "-std=c99")
    done = subprocess.run([program, "grid.toml"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    right = "GRPC_NO_ERROR"
    assert done.stdout.splitlines() == [
        "-1: GRPC_OTHER_ERROR_CODE, -1 ranks, the handle has -1",
        f"0: {right}, 3 ranks, the handle has 0",
        f"1: {right}, 1 ranks, the handle has 1",
        f"2: {right}, 2 ranks, the handle has 2",
        f"3: {right}, 3 ranks, the handle has 3",
        "4: GRPC_COMMUNICATION_FAILED, -1 ranks, the handle has 4",
    ], done.stdout + done.stderr
    assert "the call wants 4, and this server has at most 3 (GRIDLOOM_MPI_RANKS)" in done.stderr


CONFIGURED = """#include <grpc.h>
static void show(const char *server, const char *function, int ranks) {
    grpc_handle_attr_t_np attr;
    grpc_function_handle_t handle;
    int size = -1, error = grpc_handle_attr_initialize_np(&attr);
    grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, (void *)function);
    grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_MPI_NCPUS, &ranks);
    if (server != NULL) grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_HOSTNAME, (void *)server);
    if (error == GRPC_NO_ERROR) error = grpc_function_handle_init_with_attr_np(&handle, &attr);
    if (error == GRPC_NO_ERROR) error = grpc_call(&handle, &size);
    printf("%s %s: %s, %d\\n", server == NULL ? "any" : server, function, grpc_error_string(error), size);
    grpc_handle_attr_destruct_np(&attr);
}
int main(void) {
    grpc_function_handle_t handle;
    int size = -1;
    if (grpc_initialize("client.conf") || grpc_function_handle_default(&handle, "ranks/size")) return 1;
    if (grpc_call(&handle, &size) != GRPC_NO_ERROR || size != 2) return 2;
    show(NULL, "ranks/other", 0);
    show("big", "ranks/size", 0);
    show("big", "ranks/other", 0);
    show("big", "ranks/other", 3);
    show("server-1", "ranks/size", 0);
    if (grpc_config_file_read_np("more.conf") != GRPC_NO_ERROR) return 3;
    show("big", "ranks/size", 0);
    show("server-1", "ranks/size", 0);
    if (grpc_config_file_read_np("wrong.conf") != GRPC_CONFIGFILE_ERROR) return 4;
    fprintf(stderr, "%s\\n", grpc_last_error_text_np());
    return grpc_finalize();
}
"""
CLIENT_CONF = """<SERVER>
    hostname 127.0.0.1
    tag big
    mpi_runNoOfCPUs 2
    mpi_runNoOfCPUs ranks/other=1
</SERVER>
"""


def test_a_configuration_of_ninf_g_sets_the_number_of_ranks(ranks, monkeypatch):
    monkeypatch.setenv("GRIDLOOM_MPI_RANKS", "3")
    (ranks / "configured.c").write_text(CONFIGURED)
    (ranks / "client.conf").write_text(CLIENT_CONF)
    (ranks / "more.conf").write_text("<SERVER_DEFAULT>\nmpi_runNoOfCPUs 1\n</SERVER_DEFAULT>\n")
    (ranks / "wrong.conf").write_text("<SERVER>\nhostname a\nmpi_runNoOfCPUs none\n</SERVER>\n")
    program = compile_c([ranks / "configured.c"], ranks / "configured", "-std=c99")
    with parts(ranks) as start:
        agent = address_in(start("agent", "--listen", "127.0.0.1:0")[1])
        start("serve", "ranks.idl", "--agent", agent, "--models", "none", "--name", "server-1")
        monkeypatch.setenv("GRIDLOOM_AGENT", agent)
        done = subprocess.run([program], capture_output=True, text=True, cwd=ranks, timeout=120)
    right = "GRPC_NO_ERROR"
    assert done.returncode == 0 and done.stdout.splitlines() == [
        f"any ranks/other: {right}, 1",
        f"big ranks/size: {right}, 2",
        f"big ranks/other: {right}, 1",
        f"big ranks/other: {right}, 3",
        f"server-1 ranks/size: {right}, 3",
        f"big ranks/size: {right}, 2",
        f"server-1 ranks/size: {right}, 1",
    ], done.stdout + done.stderr
    assert (
        "wrong.conf:3: mpi_runNoOfCPUs is a number of ranks from 1" in done.stderr
        and "no meaning here" not in done.stderr
    )


MIXED = """import gridloom as gl

@gl.function
def outer(x: gl.Array["float64", "m"], y: gl.Array["float64", "n"]) -> gl.Array["float64", "m", "n"]:
    # Column by column: the client receives it row by row.
    return (x[:, None] * y[None, :]).copy(order="F")

@gl.function
def fails(x: float) -> None:
    raise ValueError(x)
"""


def test_functions_of_both_kinds_from_one_program(suite):
    (suite / "mixed.py").write_text(MIXED)
    (suite / "mixed.toml").write_text(
        "[local]\nservers = 2\nfunctions = ['functions.idl', 'mixed.py']\nlibraries = ['libgridrpc.so']\n"
        f"python = '{sys.executable}'\n"
    )
    program = compile_c([SUITE / "mixed.c"], suite / "mixed", "-std=c99")
    done = subprocess.run([program, "mixed.toml"], capture_output=True, text=True, cwd=suite, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stdout + done.stderr)


@pytest.mark.parametrize(
    "compiler, options",
    [("cc", ["-ansi", "-pedantic"]), ("cc", ["-std=c99", "-pedantic"]), ("cc", ["-std=gnu17"]), ("c++", ["-std=c++98", "-pedantic"])],
)
def test_the_headers_are_read_by_older_standards(tmp_path, compiler, options):
    """Programs from Ninf-G's time: without C99's inline functions, C++ comments and 64-bit types."""
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no compiler '{compiler}'")
    for header in ("grpc.h", "grpc_executable.h", "grpc_shared.h", "omst.h", "OmniRpc.h"):
        source = tmp_path / ("a.c" if compiler == "cc" else "a.cc")
        source.write_text(f"#include <{header}>\nint main(void) {{ return 0; }}\n")
        checks = [*options, "-Wall", "-Werror", "-fsyntax-only", f"-I{CAPI}/include"]
        subprocess.run([compiler, *checks, source], check=True)


@pytest.mark.parametrize("standard", ["c++11", "c++17"])
def test_the_header_for_cpp(suite, standard):
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler 'c++'")
    program = compile_c([SUITE / "cpp.cc"], suite / "cpp", f"-std={standard}", compiler="c++")
    subprocess.run([program, suite / "gridrpc.toml"], cwd=suite, check=True, timeout=120)


def test_a_block_continues_when_a_server_is_killed(suite, agent, serve, monkeypatch):
    """Results that only the lost server had are computed again; the program gets no error."""
    servers = {name: serve(name) for name in ("server-1", "server-2", "server-3")}
    monkeypatch.setenv("GRIDLOOM_AGENT", agent)
    program = compile_c([SUITE / "lost_block.c"], suite / "lost_block", "-std=c99")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=suite) as running:
        servers[running.stdout.readline().strip()].kill()
        said, _ = running.communicate("\n", timeout=120)
    assert running.returncode == 0, said
    report = (suite / "lost_block.txt").read_text()
    # The call that the server ran, and the next one if it was sent there before the loss was noticed.
    assert "lost server" in report and re.search(r"^(1 call|2 calls) ran again elsewhere", report, re.MULTILINE), report


@pytest.mark.parametrize("heuristic, stays", [("heft", False), ("round-robin", True)])
def test_a_block_is_mapped_again_when_its_server_becomes_slow(suite, heuristic, stays):
    """In virtual time: server-1 is the fastest, and slows down to a twentieth of its speed after the first second."""
    hosts = "".join(
        f"[[host]]\nname = '{name}'\nspeed = '{speed}'\nproperties = {{ role = '{role}' }}\n"
        for name, speed, role in [("desk", "1Gf", "client, agent"), ("server-1", "4Mf", "server"), ("server-2", "2Mf", "server")]
    )
    profile = "[[profile]]\nhost = 'server-1'\nkind = 'speed'\nevents = [[0, 1], [1, 0.05]]\n"
    (suite / "slows.toml").write_text(f"{hosts}[[star]]\nbandwidth = '10Gbps'\nlatency = '50us'\n{profile}")
    program = compile_c([SUITE / "again.c"], suite / "again", "-std=c99")
    simulate = [PROGRAM, "simulate", "-p", "slows.toml", "--execute", "--", program, "gridrpc.toml", heuristic]
    done = subprocess.run(simulate, capture_output=True, text=True, cwd=suite, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    on = {int(server): int(count) for server, count in re.findall(r"^server-(\d): (\d+)$", done.stdout, re.MULTILINE)}
    report = (suite / "again.txt").read_text()
    assert ("mapped again" in report) is not stays, report
    assert (on == {1: 20, 2: 20, 3: 0, 4: 0}) if stays else (on[1] > 10 and on[2] > 10), done.stdout + report


def test_calls_of_a_block_that_are_bound_fail_with_their_server(suite, agent, serve, monkeypatch):
    """Calls that are bound to the lost server fail, with the calls that read their results; all others complete."""
    servers = {name: serve(name) for name in ("server-1", "server-2")}
    monkeypatch.setenv("GRIDLOOM_AGENT", agent)
    program = compile_c([SUITE / "lost_bound.c"], suite / "lost_bound", "-std=c99")
    command = [program, "server-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=suite) as running:
        assert running.stdout.readline() == "made\n"
        servers["server-1"].kill()
        said, _ = running.communicate("\n", timeout=120)
    assert running.returncode == 0, said


def test_the_static_library_and_pkg_config(suite, served, monkeypatch):
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config")
    monkeypatch.setenv("GRIDLOOM_AGENT", served)
    monkeypatch.setenv("PKG_CONFIG_PATH", str(CAPI / "lib" / "pkgconfig"))

    def asked(*what):
        printed = subprocess.run(["pkg-config", *what, "gridloom"], capture_output=True, check=True).stdout
        # It escapes blanks, and each byte of other characters.
        return [os.fsdecode(word.encode("latin-1")) for word in shlex.split(printed.decode("latin-1"))]

    program = suite / "static"
    private = [flag for flag in asked("--static", "--libs") if flag != "-lgridloom"]
    sources = [SUITE / "cycles.c", "-std=c99", "-D_POSIX_C_SOURCE=200809L"]
    library = CAPI / "lib" / "libgridloom.a"
    subprocess.run(["cc", *sources, *asked("--cflags"), library, *private, "-o", program], check=True)
    subprocess.run([program, "2", "2"], check=True, cwd=suite, timeout=120)


@pytest.fixture
def lost(suite):
    return compile_c([SUITE / "lost.c"], suite / "lost", "-std=c99")


def goes_on_without(servers, program, names, line):
    """Kills the server that the program names first, lets the program continue, and returns its further output."""
    program = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server = servers[re.fullmatch(names, program.stdout.readline()).group(1)]
    server.kill()
    server.wait()
    said, errors = program.communicate(line, timeout=120)
    assert program.returncode == 0, errors
    return said, errors


@pytest.mark.parametrize("left", [1, 0])
def test_a_remote_datum_outlives_its_server(suite, lost, agent, serve, monkeypatch, left):
    """It is made again on the remaining server; if none remains, it is lost."""
    monkeypatch.setenv("GRIDLOOM_AGENT", agent)
    servers = {name: serve(name) for name in ("server-1", "server-2")[: left + 1]}
    said, errors = goes_on_without(servers, lost, r"made on (server-\d)\n", "0\n")
    assert said.strip() == ("3 at the client, 12000 in all" if left else "GRPC_INVALID_DATA_NP"), said + errors


def test_an_object_is_lost_with_its_server(suite, agent, serve, monkeypatch):
    """Its calls fail, its process has ended, and the next object is made on another server."""
    monkeypatch.setenv("GRIDLOOM_AGENT", agent)
    servers = {name: serve(name) for name in ("server-1", "server-2")}
    program = compile_c([SUITE / "lost_object.c"], suite / "lost_object", "-std=c99")
    said, errors = goes_on_without(servers, program, r"lives on (server-\d)\n", "\n")
    lost = "GRPC_INVALID_OBJECT_HANDLE_NP\n"
    assert said == f"{lost}{lost}another has 102\n", said + errors


def test_a_remote_datum_outlives_its_simulated_server(suite, lost):
    def run(*faults):
        command = [PROGRAM, "simulate", "-p", "platform.toml", *faults, "--execute", "--", lost, "gridrpc.toml"]
        done = subprocess.run(command, input="3\n", capture_output=True, text=True, cwd=suite, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    whole = run()
    assert "3 at the client, 12000 in all" in whole
    made_on = re.search(r"made on (server-\d)\n", whole).group(1)
    (suite / "lost.faults").write_text(f"at 1.5s kill {made_on}\n")
    assert "3 at the client, 12000 in all" in run("--faults", "lost.faults")


def test_transfers_have_time_limits(suite):
    program = compile_c([SUITE / "late.c"], suite / "late", "-std=c99")
    platform = (suite / "platform.toml").read_text()
    assert '"1Gbps"' in platform
    (suite / "slow.toml").write_text(platform.replace('"1Gbps"', '"1Mbps"'))
    simulate = [PROGRAM, "simulate", "--execute", "-p"]
    for command in ([*simulate, "platform.toml", "--", program], [*simulate, "slow.toml", "--", program, "slow"]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=suite, timeout=120)
        assert done.returncode == 0 and "as it should be\n" in done.stdout, done.stdout + done.stderr


def test_a_transfer_to_a_server_that_is_stopped_ends_at_its_limit(suite, agent, serve, monkeypatch):
    server = serve("server-1")
    monkeypatch.setenv("GRIDLOOM_AGENT", agent)
    program = compile_c([SUITE / "late.c"], suite / "late", "-std=c99")
    with subprocess.Popen([program, "stopped"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=suite) as running:
        assert running.stdout.readline() == "stop it\n"
        server.send_signal(signal.SIGSTOP)
        try:
            running.stdin.write("\n")
            running.stdin.flush()
            said = running.stdout.readline()
        finally:
            server.send_signal(signal.SIGCONT)
        rest, _ = running.communicate("\n", timeout=120)
    assert running.returncode == 0 and said + rest == "go on\nas it should be\n", said + rest


def test_another_client_finds_what_was_put_on_a_server(suite, served, monkeypatch):
    """A datum in a file of a server is still there when the client that put it there has ended."""
    monkeypatch.setenv("GRIDLOOM_AGENT", served)
    program = compile_c([SUITE / "lost_client.c"], suite / "lost_client", "-std=c99")
    subprocess.run([program, "make"], check=True, cwd=suite, timeout=120)
    for _ in range(2):
        done = subprocess.run([program], capture_output=True, text=True, check=True, cwd=suite, timeout=120)
        assert done.stdout == "7.998e+06\n"


NAMED = """#include <grpc.h>
#include <stdio.h>
int main(int argc, char **argv) {
    if (grpc_initialize(NULL) != GRPC_NO_ERROR) return 1;
    for (int i = 1; i < argc; i++) {
        grpc_function_handle_t handle;
        double x[3] = {1, 2, 3}, y[3] = {4, 5, 6}, dot = -1;
        grpc_error_t error = grpc_function_handle_init(&handle, argv[i], "named/dot");
        if (error == GRPC_NO_ERROR && grpc_call(&handle, 3, x, y, &dot) != GRPC_NO_ERROR) return 2;
        printf("%s -> %s\\n", argv[i], error == GRPC_NO_ERROR && dot == 32 ? "ok" : grpc_last_error_text_np());
        if (error == GRPC_NO_ERROR) grpc_function_handle_destruct(&handle);
    }
    return grpc_finalize() != GRPC_NO_ERROR;
}
"""
DOT = """Module named;
Define dot(IN int n, IN double x[n], IN double y[n], OUT double *s) { *s = 0; for (int i = 0; i < n; i++) *s += x[i] * y[i]; }
"""


@pytest.fixture
def named(tmp_path):
    """Yields a function that runs a program with names of servers, after `command`, and returns the answer for each."""
    (tmp_path / "named.idl").write_text(DOT)
    (tmp_path / "named.c").write_text(NAMED)
    (tmp_path / "own.toml").write_text("[local]\nservers = 2\nfunctions = ['named.idl']\n")
    program = compile_c([tmp_path / "named.c"], tmp_path / "named", "-std=c99")

    def run(*names, command=(), **environment):
        environment = {**os.environ, **environment}
        done = subprocess.run([*command, program, *names], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(line.split(" -> ") for line in done.stdout.splitlines()[: len(names)])

    yield run


def here_and_there(folder, client):
    """Writes a platform with two servers, whose client is on that host. Returns the command that simulates it."""
    roles = {"here": "server", "there": "server"}
    roles[client] = f"{roles[client]}, client, agent" if client in roles else "client, agent"
    hosts = "".join(f"[[host]]\nname = '{name}'\nspeed = '1Gf'\nproperties = {{ role = '{role}' }}\n" for name, role in roles.items())
    (folder / "named.toml").write_text(f"{hosts}[[star]]\nbandwidth = '1Gbps'\nlatency = '50us'\n")
    return [PROGRAM, "simulate", "-p", "named.toml", "--functions", "named.idl", "--execute", "--"]


LOCAL_NAMES = ["localhost", "127.0.0.1", "localhost:4000", "127.0.0.1:4000", "::1"]


def test_localhost_is_the_host_of_the_program(named, tmp_path):
    own = named(*LOCAL_NAMES[:2], GRIDLOOM_GRPC_CONFIG="own.toml")
    assert set(own.values()) == {"ok"}, own
    beside = named(*LOCAL_NAMES, "there", "there:4000", command=here_and_there(tmp_path, "here"), GRIDLOOM_AGENT="any:1")
    assert set(beside.values()) == {"ok"}, beside


def test_localhost_without_a_server_there(named, tmp_path):
    """As for real, unless the program would start a grid of its own, on its own machine."""
    command = here_and_there(tmp_path, "desk")
    own = named(*LOCAL_NAMES, "here", "desk", command=command, GRIDLOOM_GRPC_CONFIG="own.toml")
    assert own.pop("desk").startswith("there is no server 'desk'; servers are here, there")
    assert set(own.values()) == {"ok"}, own
    other = named("localhost", "elsewhere:4000", command=command, GRIDLOOM_AGENT="any:1")
    assert other == {
        "localhost": "there is no server 'localhost' on the program's simulated host 'desk'; servers are here, there",
        "elsewhere:4000": "there is no server 'elsewhere:4000'; servers are here, there",
    }
