"""Shared data in C: examples modelled on OmniRPC and OmniStorage, functions that put and get, and parts of a grid
that are missing."""

import ctypes.util
import os
import re
import shutil
import subprocess
import sys
import time

import gridloom as gl
import numpy as np
import pytest
from c_library import CAPI, LIBRARY, ROOT, compile_c, needs_cc, the_library  # noqa: F401 (a fixture)
from parts import PROGRAM, address_in, parts

EXAMPLES = ROOT / "examples" / "omnirpc"
PYTHON = sys.executable

pytestmark = needs_cc


def run(program, *arguments, **environment):
    environment = {**os.environ, **environment}
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture
def start(tmp_path):
    """Yields a function that starts parts of a grid and returns the process and its address. The parts end with
    the test."""
    with parts(tmp_path) as start_part:

        def start(*arguments):
            process, said = start_part(*arguments)
            return process, address_in(said)

        yield start


@pytest.fixture
def agent(start):
    return start("agent", "--listen", "127.0.0.1:0")


def serve(start, address, *what, name="s0", slots=2):
    return start("serve", *what, "--agent", address, "--name", name, "--slots", str(slots), "--models", "none")


@pytest.mark.parametrize("name", ["array", "broadcast"])
def test_the_examples(tmp_path, name):
    """Examples with a grid of their own."""
    program = compile_c([EXAMPLES / f"{name}.c"], tmp_path / name, "-std=c99")
    done = run(program, GRIDLOOM_GRPC_CONFIG=str(EXAMPLES / f"{name}.toml"))
    assert (done.returncode, done.stdout) == (0, "8 calls: 139998600000\n"), done.stderr


def test_the_examples_leave_nothing_on_a_grid_that_continues(tmp_path, start, agent):
    """The hint copies the data to all servers."""
    for number in range(2):
        serve(start, agent[1], EXAMPLES / "array.idl", name=f"a{number}")
    array = compile_c([EXAMPLES / "array.c"], tmp_path / "array", "-std=c99")
    for _ in range(2):
        assert run(array, GRIDLOOM_AGENT=agent[1]).returncode == 0
    with gl.connect(agent[1]) as grid:
        assert grid.names() == []


def test_the_page_on_shared_data(tmp_path):
    page = (ROOT / "docs" / "shared-data.md").read_text()
    (tmp_path / "page.c").write_text(re.search(r"```c\n(#include.*?)```", page, re.DOTALL)[1])
    # Its own grid offers linear algebra.
    page = compile_c([tmp_path / "page.c"], tmp_path / "page")
    assert run(page, GRIDLOOM_BLAS=gl.blas_library() or "").stdout == "5\n"


SHARES = """#include <grpc.h>
#include <stdio.h>
int main(void) {
    const char *users[] = {"bert", "group:climate", NULL}, *unknown[] = {"group:climat", NULL};
    if (grpc_initialize(NULL) != 0 || grpc_shared_put_np("mesh", "1", 1, 0) != 0) return 1;
    if (grpc_shared_share_np("mesh", users) != 0) return 2;
    if (grpc_shared_share_np("mesh", unknown) != GRPC_OTHER_ERROR_CODE) return 3;
    puts(grpc_last_error_text_np());
    return grpc_finalize();
}
"""


def test_a_program_shares_with_users_and_groups(tmp_path, start):
    rules = tmp_path / "rules.toml"
    rules.write_text("[groups]\nclimate = ['anna']\n")
    rules.chmod(0o600)
    _, address = start("agent", "--listen", "127.0.0.1:0", "--rules", rules)
    serve(start, address, "--no-functions")
    (tmp_path / "shares.c").write_text(SHARES)
    program = compile_c([tmp_path / "shares.c"], tmp_path / "shares", "-std=c99")
    done = run(program, GRIDLOOM_AGENT=address)
    assert done.returncode == 0 and "define no group 'climat'; did you mean 'climate'?" in done.stdout, done.stderr
    with gl.connect(address) as grid:
        assert [(one.name, one.readers) for one in grid.names()] == [("mesh", ("bert", "group:climate"))]


HINTS = """#include <OmniRpc.h>
#include <omst.h>
#include <stdio.h>
int main(int argc, char **argv) {
    static double data[100000];
    OmniRpcInit(&argc, &argv);
    if (OmstWait(OmstPutData("all", data, sizeof data, OMST_BROADCAST)) != 0) return 1;
    if (OmstWait(OmstPutData("one", data, sizeof data, OMST_POINT2POINT)) != 0) return 2;
    if (OmstWait(OmstPutData("exchanged", data, sizeof data, OMST_ALL_EXCHANGE)) != 0) return 3;
    OmniRpcFinalize();
    return 0;
}
"""


def test_hints(tmp_path, start, agent):
    for number in range(3):
        serve(start, agent[1], "--no-functions", name=f"s{number}")
    (tmp_path / "hints.c").write_text(HINTS)
    program = compile_c([tmp_path / "hints.c"], tmp_path / "hints", "-std=c99")
    assert run(program, GRIDLOOM_AGENT=agent[1]).returncode == 0
    with gl.connect(agent[1]) as grid:
        copies = {one.name: len(one.servers) for one in grid.names()}
    assert copies == {"all": 3, "one": 1, "exchanged": 1}


def test_hints_take_virtual_time(tmp_path):
    (tmp_path / "hints.c").write_text(HINTS)
    program = compile_c([tmp_path / "hints.c"], tmp_path / "hints", "-std=c99")
    done = run(PROGRAM, "simulate", "-p", ROOT / "examples" / "two-sites.toml", "--", program)
    assert done.returncode == 0, done.stderr
    seconds = float(re.search(r"^simulated ([\d.]+) s$", done.stdout, re.MULTILINE)[1])
    # 800,000 bytes, over the link between the sites at least once.
    assert seconds > 0.01, done.stdout


def test_a_grid_that_is_not_there_ends_the_program(tmp_path):
    (tmp_path / "hints.c").write_text(HINTS)
    program = compile_c([tmp_path / "hints.c"], tmp_path / "hints", "-std=c99")
    done = run(program, GRIDLOOM_AGENT="127.0.0.1:1")
    assert done.returncode == 1 and done.stderr.startswith("OmniRpcInit: GRPC_"), done.stderr
    assert "127.0.0.1:1" in done.stderr


DURABLE = """#include <grpc.h>
#include <omst.h>
static int fails;
static double got(const char *name) {
    double x = -1;
    fails += grpc_shared_get_np(name, &x, sizeof x, 60) != 0;
    return x;
}
int main(int argc, char **argv) {
    double one = 1, two = 2, four = 4;
    grpc_remote_t remote;
    (void)argc;
    if (grpc_initialize(NULL) != 0) return 1;
    if (argv[1][0] == 'p') {
        fails += grpc_shared_put_np("program", &four, sizeof four, 0) != 0;
        fails += grpc_shared_put_np("program", &one, sizeof one, GRPC_DURABLE_NP | GRPC_REPLACES_NP) != 0;
        fails += OmstWait(OmstPutData("omst", &two, sizeof two, OMST_POINT2POINT | OMST_DURABLE_NP)) != 0;
        fails += grpc_remote_new_np(&remote, NULL) != 0 || grpc_remote_put_np(remote, &four, sizeof four) != 0;
        fails += grpc_remote_share_np(remote, "remote", GRPC_DURABLE_NP) != 0;
    } else {
        printf("%g %g %g %g\\n", got("program"), got("omst"), got("function"), got("remote"));
    }
    if (grpc_finalize() != 0) return 3;
    return fails;
}
"""
INSIDE = """Module inside;

Define puts(IN string name, IN int n, IN double x[n], OUT int *code, OUT string why)
{
    *code = OmstWait(OmstPutData(name, x, n * sizeof *x, OMST_POINT2POINT));
    *why = strdup(*code == 0 ? "" : grpc_last_error_text_np());
}

Define gets(IN string name, IN int n, IN double seconds, OUT double x[n], OUT int *code, OUT string why)
{
    OmstSetTimeLimit_np(seconds);
    *code = OmstWait(OmstGetData(name, x, n * sizeof *x));
    *why = strdup(*code == 0 ? "" : grpc_last_error_text_np());
}

Define every(IN string name, OUT double *sum)
"all functions of grpc_shared.h; the same bytes again are not an error, as of a call that is run again"
{
    double x[3] = {1, 2, 3}, y[3] = {0}, *fresh = NULL;
    size_t size = 0;
    int exists = 0;
    const char *servers[] = {getenv("GRIDLOOM_SERVER"), NULL}, *users[] = {"bert", NULL};
    *sum = -1;
    if (grpc_shared_exists_np(name, &exists) != 0 || exists) return;
    if (grpc_shared_put_np(name, x, sizeof x, 0) != 0 || grpc_shared_put_np(name, x, sizeof x, 0) != 0) return;
    if (grpc_shared_put_np(name, y, sizeof y, 0) != GRPC_NAME_EXISTS_NP) return;
    if (grpc_last_error_get_np() != GRPC_NAME_EXISTS_NP || grpc_shared_wait_np(name, 0) != 0) return;
    if (grpc_shared_exists_np(name, &exists) != 0 || !exists) return;
    if (grpc_shared_size_np(name, &size, 0) != 0 || size != sizeof x || grpc_shared_place_np(name, servers) != 0) return;
    if (grpc_shared_get_np(name, y, sizeof y, GRPC_FOR_EVER_NP) != 0 || memcmp(x, y, sizeof x) != 0) return;
    if (grpc_shared_get_new_np(name, (void **)&fresh, &size, 0) != 0 || size != sizeof x) return;
    if (grpc_shared_share_np(name, users) != 0 || grpc_shared_share_np("nowhere", users) != GRPC_NAME_NOT_FOUND_NP) return;
    if (grpc_shared_delete_np(name) != 0 || grpc_shared_delete_np(name) != GRPC_NAME_NOT_FOUND_NP) return;
    *sum = fresh[0] + fresh[1] + fresh[2];
    free(fresh);
}

Define together(IN string a, IN string b, IN int n, OUT double sum[n], OUT int *code, OUT string why)
"gets two at the same time, and begins a get that it leaves"
{
    grpc_shared_request_np first, second, left, puts;
    double *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    *code = grpc_shared_begin_get_np(&left, "nowhere", x, sizeof *x, GRPC_FOR_EVER_NP);
    if (*code == 0) *code = grpc_shared_begin_get_np(&first, a, x, n * sizeof *x, GRPC_FOR_EVER_NP);
    if (*code == 0) *code = grpc_shared_begin_get_np(&second, b, y, n * sizeof *y, GRPC_FOR_EVER_NP);
    if (*code == 0) *code = grpc_shared_finish_np(first, GRPC_FOR_EVER_NP);
    if (*code == 0) *code = grpc_shared_finish_np(second, GRPC_FOR_EVER_NP);
    if (*code == 0 && grpc_shared_finish_np(left, 0) != GRPC_NOT_COMPLETED) *code = -1;
    for (int i = 0; i < n; i++) sum[i] = x[i] + y[i];
    if (*code == 0) *code = grpc_shared_begin_put_np(&puts, "sum", sum, n * sizeof *sum, GRPC_REPLACES_NP, 1);
    if (*code == 0) *code = grpc_shared_finish_np(puts, GRPC_FOR_EVER_NP);
    *why = strdup(*code == 0 ? "" : grpc_last_error_text_np());
    free(x);
    free(y);
}

Define keeps(IN string name, IN double x, OUT int *code, OUT string why)
{
    *code = grpc_shared_put_np(name, &x, sizeof x, GRPC_DURABLE_NP | GRPC_REPLACES_NP);
    *why = strdup(*code == 0 ? "" : grpc_last_error_text_np());
}

Define guards(IN string name, OUT int *code, OUT char around[24])
"gets 8 bytes into the middle"
{
    memset(around, 7, 24);
    *code = OmstWait(OmstGetData(name, around + 8, 8));
}
"""


@pytest.fixture
def inside(tmp_path):
    (tmp_path / "inside.idl").write_text(INSIDE)
    return tmp_path / "inside.idl"


def test_functions_put_and_get(start, agent, inside):
    for number in range(2):
        serve(start, agent[1], inside, name=f"s{number}")
    x = np.arange(50_000.0)
    with gl.connect(agent[1]) as grid:
        puts, gets = grid.function("inside/puts"), grid.function("inside/gets")
        assert puts.on("s0")("x", x) == (0, "")
        assert grid.names()[0].servers == ("s0",), "it stays at the function's server"
        got, code, why = gets.on("s1")("x", x.size, -1.0)
        assert (code, why) == (0, "") and np.array_equal(got, x)
        assert sorted(grid.names()[0].servers) == ["s0", "s1"], "it came to the function's server"
        # Python and C see the same bytes.
        assert grid.get("x") == x.tobytes()
        grid.put("matrix", np.asfortranarray(x[:6].reshape(2, 3)))
        assert np.array_equal(gets("matrix", 6, -1.0)[0], x[:6]), "row by row"
        assert grid.function("inside/every")("every") == 6


def test_functions_get_several_at_the_same_time(start, agent, inside):
    """The function releases its slot: the data that it waits for are put by calls on the same server."""
    serve(start, agent[1], inside, slots=1)
    x = np.arange(50_000.0)
    with gl.connect(agent[1]) as grid:
        sums = [grid.function("inside/together").submit("a", "b", x.size) for _ in range(2)]
        puts = grid.function("inside/puts")
        assert puts("b", 2 * x)[0] == puts("a", x)[0] == 0
        for one in sums:
            got, code, why = one.result(60)
            assert (code, why) == (0, "") and np.array_equal(got, 3 * x)
        # The same process has more calls while a request of the first is left.
        _, code, why = grid.function("inside/together")("a", "a", 3)
        assert code == 25 and why.startswith("'a' has 400000 bytes, and the memory for it 24")
        assert grid.get("sum") == (3 * x).tobytes()


def test_durable_data_of_functions_and_programs_are_there_again(tmp_path, start, agent, inside):
    (tmp_path / "durable.c").write_text(DURABLE)
    program = compile_c([tmp_path / "durable.c"], tmp_path / "durable", "-std=c99")
    disk = ["--durable", tmp_path / "disk"]
    server, _ = serve(start, agent[1], inside, *disk)
    with gl.connect(agent[1]) as grid:
        assert grid.function("inside/keeps")("function", 3.0) == (0, "")
    done = run(program, "put", GRIDLOOM_AGENT=agent[1])
    assert done.returncode == 0, done.stdout + done.stderr
    server.kill()
    server.wait()
    serve(start, agent[1], inside, *disk)
    done = run(program, "get", GRIDLOOM_AGENT=agent[1])
    assert (done.returncode, done.stdout) == (0, "1 2 3 4\n"), done.stderr


def test_durable_data_need_a_folder(start, agent, inside):
    serve(start, agent[1], inside)
    with gl.connect(agent[1]) as grid:
        code, why = grid.function("inside/keeps")("function", 3.0)
        assert code == 26 and "--durable" in why


def test_what_functions_have_got_is_kept_by_none_of_them(start, agent, inside):
    """Their workers keep one session each, and have no more work."""
    serve(start, agent[1], inside)
    x = np.arange(50_000.0)
    with gl.connect(agent[1]) as grid:
        grid.put("x", x)
        got = [grid.function("inside/gets").submit("x", x.size, -1.0) for _ in range(4)]
        assert all(one.result(60)[1] == 0 for one in got)
        del got
        grid.delete("x")
        until = time.monotonic() + 60
        while any(load[-1] for load in grid._raw.loads(5.0).values()):
            assert time.monotonic() < until, "bytes are left of a name that was deleted"


def test_what_fails_in_functions_has_codes_and_texts(start, agent, inside):
    serve(start, agent[1], inside)
    with gl.connect(agent[1]) as grid:
        puts, gets = grid.function("inside/puts"), grid.function("inside/gets")
        puts("mydat", np.zeros(2))
        exists = "shared data named 'mydat' exist already; put them with replace, or under another name"
        assert puts("mydat", np.zeros(2)) == (-22, exists)
        assert puts("", np.zeros(2))[0] == -24 and "1025 bytes" in puts("n" * 1025, np.zeros(2))[1]
        _, code, why = gets("mydat", 3, -1.0)
        assert code == -25 and why.startswith("'mydat' has 16 bytes, and the memory for it 24")
        _, code, why = gets("mydata", 3, 0.05)
        assert (code, why) == (-23, "no shared data are named 'mydata'; did you mean 'mydat'?")
        code, around = grid.function("inside/guards")("mydat")
        assert code == -25 and (around == 7).all(), "nothing was written"
        puts("eight", np.ones(1))
        code, around = grid.function("inside/guards")("eight")
        assert code == 0 and (np.delete(around, range(8, 16)) == 7).all() and around[8:16].view(float)[0] == 1


def test_a_function_that_waits_for_a_name_keeps_no_slot(start, agent, inside):
    """One slot: all of these calls wait for the last one."""
    serve(start, agent[1], inside, slots=1)
    with gl.connect(agent[1]) as grid:
        gets = grid.function("inside/gets")
        waiting = [gets.submit("later", 2, -1.0) for _ in range(8)]
        assert grid.function("inside/puts")("later", np.ones(2))[0] == 0
        assert [one.result(60)[1] for one in waiting] == [0] * 8


BESIDE = """#include <omst.h>
double beside(const char *name);
double beside(const char *name) { double x = 0; return OmstWait(OmstGetData(name, &x, sizeof x)) == 0 ? x : -1; }
"""


OBJECT = """#include <grpc.h>
int main(void) {
    grpc_object_handle_t_np keeps;
    double got = 0;
    if (grpc_initialize(NULL) != 0 || grpc_object_handle_default_np(&keeps, "classes/keeps") != 0) return 1;
    if (grpc_invoke_np(&keeps, "get", "seven", &got) != 0 || grpc_object_handle_destruct_np(&keeps) != 0) return 2;
    printf("%g\\n", got);
    return grpc_finalize();
}
"""


def test_libraries_of_functions_get_shared_data(tmp_path, start, agent):
    """A library linked with libgridloom, an object that is compiled separately, a body in C++, and a method of an
    object."""
    (tmp_path / "beside.c").write_text(BESIDE)
    compile_c([tmp_path / "beside.c"], tmp_path / "libbeside.so", "-shared", "-fPIC")
    subprocess.run(["cc", "-c", "-fPIC", f"-I{CAPI}/include", tmp_path / "beside.c", "-o", tmp_path / "beside.o"], check=True)
    # Another name, so that both can be loaded.
    subprocess.run(["objcopy", "--redefine-sym", "beside=apart", tmp_path / "beside.o"], check=True)
    (tmp_path / "libraries.idl").write_text(
        'Module libraries;\nDefine linked(IN string name, OUT double *x) Calls "C" x = beside(name);\n'
    )
    (tmp_path / "objects.idl").write_text(
        "Module objects;\nGlobals { double apart(const char *); }\n"
        'Define apart(IN string name, OUT double *x) Required "beside.o" { *x = apart(name); }\n'
    )
    (tmp_path / "cpp.idl").write_text(
        "Module cpp;\nGlobals {\n#include <omst.h>\n#include <vector>\n}\n"
        'Define cpp(IN string name, OUT double *x) Language "C++"\n'
        "{ std::vector<double> y(1); *x = OmstWait(OmstGetData(name, y.data(), 8)) == 0 ? y[0] : -1; }\n"
    )
    files = [tmp_path / "libraries.idl", tmp_path / "objects.idl"]
    functions = ["libraries/linked", "objects/apart"]
    (tmp_path / "classes.idl").write_text(
        "Module classes;\nDefClass keeps {\n  DefState { double x; }\n"
        '  DefMethod get(IN string name, OUT double *got) { if (OmstWait(OmstGetData(name, &x, sizeof x)) != 0) x = -1; *got = x; }\n}\n'
    )
    files.append(tmp_path / "classes.idl")
    if shutil.which("c++") is not None:
        files.append(tmp_path / "cpp.idl")
        functions.append("cpp/cpp")
    serve(start, agent[1], *files, "--library", tmp_path / "libbeside.so")
    with gl.connect(agent[1]) as grid:
        grid.put("seven", 7.0)
        assert [grid.function(name)("seven") for name in functions] == [7] * len(functions)
        (tmp_path / "object.c").write_text(OBJECT)
        done = run(compile_c([tmp_path / "object.c"], tmp_path / "object"), GRIDLOOM_AGENT=agent[1])
        assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


MODULE = """Module keeps;
Globals { static double table[4]; static int times, sum; }

Define Initialize(IN int n, WORK double w[n], IN double values[n], IN string name)
{
    if (n > 4 || strcmp(name, "table") != 0) abort();
    memcpy(table, values, n * sizeof *table);
    times++;
    sum = 0;
}

Define look(IN int i, OUT double *value, OUT int *initialised, OUT int *calls)
{
    *value = table[i];
    *initialised = times;
    *calls = ++sum;
}

Define die() { abort(); }
"""
MODULES = """#include <OmniRpc.h>
#include <grpc.h>
static int fails;
static void look(const char *when) {
    double value = -1;
    int times = -1, calls = -1;
    if (OmniRpcCall("keeps/look", 1, &value, &times, &calls) != OMRPC_OK) fails++;
    printf("%s: %g, %d times, call %d\\n", when, value, times, calls);
    fflush(stdout);
}
int main(int argc, char **argv) {
    double first[] = {1, 2}, second[] = {3, 4, 5}, many[5] = {0};
    OmniRpcInit(&argc, &argv);
    look("before");
    if (OmniRpcModuleInit("keeps", 2, NULL, first, "table") != OMRPC_OK) return 1;
    look("initialised");
    look("again");
    if (OmniRpcCall("keeps/die") != OMRPC_ERROR) return 2;
    look("a new process");
    if (OmniRpcModuleInit("keeps", 3, NULL, second, "table") != OMRPC_OK) return 3;
    look("others");
    getchar();
    look("after another program");
    look("and again");
    if (OmniRpcModuleInit("keeps", 5, NULL, many, "table") != OMRPC_OK) return 4;
    if (OmniRpcCall("keeps/look", 0, first, &argc, &argc) != OMRPC_ERROR) return 5;
    if (OmniRpcModuleInit("no_such_module", 1) != OMRPC_ERROR || OmniRpcModuleInit(NULL) != OMRPC_ERROR) return 6;
    OmniRpcFinalize();
    return fails;
}
"""


def test_a_module_is_initialised_in_each_process(tmp_path, start, agent):
    (tmp_path / "keeps.idl").write_text(MODULE)
    (tmp_path / "modules.c").write_text(MODULES)
    serve(start, agent[1], tmp_path / "keeps.idl", slots=1)
    program = compile_c([tmp_path / "modules.c"], tmp_path / "modules")
    environment = {**os.environ, "GRIDLOOM_AGENT": agent[1]}
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as running:
        said = [running.stdout.readline() for _ in range(5)]
        # It has other arguments, and is initialised in the same process.
        other = subprocess.run([program], input="\n", capture_output=True, text=True, env=environment, timeout=60)
        assert other.returncode == 0 and other.stdout.startswith("before: 4, "), other.stdout + other.stderr
        rest, _ = running.communicate("\n", timeout=60)
    assert running.returncode == 0
    assert said == [
        "before: 0, 0 times, call 1\n",
        "initialised: 2, 1 times, call 1\n",
        "again: 2, 1 times, call 2\n",
        "a new process: 2, 1 times, call 1\n",
        "others: 4, 2 times, call 1\n",
    ]
    assert re.fullmatch(r"after another program: 4, \d+ times, call 1\nand again: 4, \d+ times, call 2\n", rest), rest
    with gl.connect(agent[1]) as grid:
        assert grid.names() == [], "arguments end with the session"
        look = grid.function("keeps/look")
        assert look(0)[0] >= 0, "a program that says nothing calls as before"
        grid.initialize_module("keeps", np.array([7.0, 8.0]), name="table")
        assert [look(1)[0], look(1)[2]] == [8, 2]
        with pytest.raises(gl.ArgumentError, match="values"):
            grid.initialize_module("keeps", np.zeros((2, 2)), name="table")
        with pytest.raises(gl.UnknownName, match="no_such_module/Initialize"):
            grid.initialize_module("no_such_module")
    with gl.connect(agent[1]) as grid:
        assert grid.names() == []


FORTRAN = """program shares
    use, intrinsic :: iso_c_binding
    use grpc
    implicit none
    type(grpc_remote_t) :: a, b
    real(c_double) :: x(4) = [1, 2, 3, 4], y(4) = 0
    if (grpc_initialize() /= GRPC_NO_ERROR) stop 1
    if (grpc_remote_new_np(a) /= GRPC_NO_ERROR .or. grpc_remote_new_np(b) /= GRPC_NO_ERROR) stop 2
    if (grpc_remote_put_np(a, x, c_sizeof(x)) /= GRPC_NO_ERROR) stop 3
    if (grpc_remote_share_np(a, "x") /= GRPC_NO_ERROR) stop 4
    if (grpc_remote_share_np(a, "x") /= GRPC_NAME_EXISTS_NP) stop 5
    if (grpc_remote_share_np(a, "x", replaces=.true.) /= GRPC_NO_ERROR) stop 6
    if (grpc_remote_find_shared_np(b, "x", 0.0_c_double) /= GRPC_NO_ERROR) stop 7
    if (grpc_remote_find_shared_np(a, "y", 0.0_c_double) /= GRPC_NAME_NOT_FOUND_NP) stop 8
    if (grpc_remote_get_np(b, y, c_sizeof(y)) /= GRPC_NO_ERROR) stop 9
    if (sum(abs(x - y)) > 0) stop 10
    if (grpc_finalize() /= GRPC_NO_ERROR) stop 11
end program
"""


def test_handles_in_fortran_are_shared(tmp_path, start, agent):
    if shutil.which("gfortran") is None:
        pytest.skip("there is no Fortran compiler 'gfortran'")
    if not any(map(ctypes.util.find_library, ("openblas", "lapack"))):
        pytest.skip("there is no library of LAPACK")
    serve(start, agent[1], "builtin:lapack")
    (tmp_path / "shares.f90").write_text(FORTRAN)
    command = ["gfortran", "-Wall", "-Werror", CAPI / "include" / "grpc.f90", "shares.f90", "-o", "shares", *LIBRARY]
    subprocess.run(command, check=True, cwd=tmp_path)
    done = run(tmp_path / "shares", GRIDLOOM_AGENT=agent[1])
    assert done.returncode == 0, done.stderr


GONE = """#include <grpc.h>
#include <omst.h>
int main(void) {
    int x = 1;
    if (grpc_initialize(NULL) != 0 || grpc_shared_put_np("x", &x, sizeof x, 0) != 0) return 1;
    puts("put");
    fflush(stdout);
    getchar();
    printf("%s\\n", grpc_error_string(grpc_shared_get_np("x", &x, sizeof x, 60)));
    printf("%s\\n", grpc_error_string(grpc_shared_put_np("y", &x, sizeof x, 0)));
    printf("%s\\n", grpc_error_string(-OmstWait(OmstPutData("z", &x, sizeof x, OMST_BROADCAST))));
    printf("%s\\n", grpc_last_error_text_np());
    return grpc_finalize();
}
"""


def test_an_agent_that_is_gone_is_reported(tmp_path, start, agent):
    serve(start, agent[1], "--no-functions")
    (tmp_path / "gone.c").write_text(GONE)
    program = compile_c([tmp_path / "gone.c"], tmp_path / "gone")
    environment = {**os.environ, "GRIDLOOM_AGENT": agent[1]}
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout.readline() == "put\n"
        agent[0].kill()
        agent[0].wait()
        said, _ = running.communicate("\n", timeout=120)
    *codes, text = said.splitlines()
    assert running.returncode == 0 and codes == ["GRPC_COMMUNICATION_FAILED"] * 3, said
    assert "shared names need an agent" in text


def test_servers_without_an_agent_have_none(tmp_path, start, inside):
    _, address = start("serve", inside, "--no-agent", "--listen", "127.0.0.1:0", "--name", "s0", "--models", "none")
    with gl.connect(servers=[address]) as grid:
        _, code, why = grid.function("inside/gets")("x", 1, 0.0)
    assert code == -1 and why == "a function accesses shared data through its server's agent: this server has none"


# With `--execute`, functions use the shared data of the simulated grid.

SIMULATED = ROOT / "examples" / "two-sites.toml"
#: Bytes per second of the link between the sites.
BETWEEN = 6.25e6


def simulated(inside):
    return gl.simulate(SIMULATED, functions=[inside], execute=True)


def test_simulated_functions_put_and_get(inside):
    x = np.arange(50_000.0)
    with simulated(inside) as grid:
        puts, gets = grid.function("inside/puts"), grid.function("inside/gets")
        assert puts.on("desk")("x", x) == (0, "")
        assert grid.names()[0].servers == ("desk",), "it stays at the function's server"
        began = grid.now()
        first = gets.on("cluster-1")("x", x.size, -1.0)
        took = grid.now() - began
        assert first[1:] == (0, "") and np.array_equal(first[0], x)
        # The function gets the data over the link, with a latency of 20 ms, and the program the result.
        assert 2 * x.nbytes / BETWEEN < took < 2 * x.nbytes / BETWEEN + 0.5, took
        assert sorted(grid.names()[0].servers) == ["cluster-1", "desk"], "it came to the function's server"
        began = grid.now()
        assert np.array_equal(gets.on("cluster-1")("x", x.size, -1.0)[0], x)
        assert grid.now() - began < took - 0.9 * x.nbytes / BETWEEN, "its server has it already"
        assert grid.get("x") == x.tobytes()
        grid.put("matrix", np.asfortranarray(x[:6].reshape(2, 3)))
        assert np.array_equal(gets("matrix", 6, -1.0)[0], x[:6]), "row by row"


def test_simulated_functions_fail_as_real_ones(inside):
    with simulated(inside) as grid:
        puts, gets = grid.function("inside/puts"), grid.function("inside/gets")
        puts("mydat", np.zeros(2))
        assert puts("mydat", np.zeros(2))[0] == -22 and puts("mydat", np.ones(2))[0] == -22
        assert puts("", np.zeros(2))[0] == -24
        _, code, why = gets("mydat", 3, -1.0)
        assert code == -25 and why.startswith("'mydat' has 16 bytes, and the memory for it 24")
        began = grid.now()
        _, code, why = gets("mydata", 3, 0.5)
        assert (code, why) == (-23, "no shared data are named 'mydata'; did you mean 'mydat'?")
        assert 0.5 <= grid.now() - began < 1, "the limit is virtual time"
        code, around = grid.function("inside/guards")("mydat")
        assert code == -25 and (around == 7).all(), "nothing was written"


def test_simulated_functions_wait_for_one_another(inside):
    """More calls than slots wait for the last one, and one gets two at the same time."""
    x = np.arange(50_000.0)
    with simulated(inside) as grid:
        gets = grid.function("inside/gets")
        waiting = [gets.submit("later", 2, -1.0) for _ in range(40)]
        grid.advance(10)
        assert not any(one.done() for one in waiting)
        assert grid.function("inside/puts")("later", np.ones(2))[0] == 0
        assert [one.result()[1] for one in waiting] == [0] * 40
        grid.put("a", x)
        grid.put("b", 2 * x)
        total, code, why = grid.function("inside/together").on("cluster-2")("a", "b", x.size)
        assert (code, why) == (0, "") and np.array_equal(total, 3 * x)
        assert grid.get("sum") == (3 * x).tobytes()


def test_a_simulated_function_gets_before_it_computes_and_puts_after(tmp_path):
    """The pipeline takes the time of both stages."""
    (tmp_path / "stages.idl").write_text(
        """Module stages;
Define stage(IN string from, IN string to, IN double work) CalcOrder work
{
    double x = 0;
    OmstSetTimeLimit_np(-1);
    if (*from != 0 && OmstWait(OmstGetData(from, &x, sizeof x)) != 0) abort();
    x += 1;
    if (OmstWait(OmstPutData(to, &x, sizeof x, OMST_POINT2POINT)) != 0) abort();
}
"""
    )
    with gl.simulate(SIMULATED, functions=[tmp_path / "stages.idl"], execute=True) as grid:
        stage = grid.function("stages/stage")
        began = grid.now()
        calls = [stage.on("desk").submit("one", "two", 80e9), stage.on("cluster-1").submit("", "one", 400e9)]
        [call.result() for call in calls]
        assert 20 < grid.now() - began < 21, "10 s for each stage"
        assert np.frombuffer(grid.get("two"))[0] == 2


def test_a_simulated_server_that_is_lost_takes_its_functions_along(tmp_path, inside):
    """The call, which waits in a function, runs again on the server that is left."""
    faults = tmp_path / "crash.faults"
    faults.write_text("at 5s off cluster-1\nat 5s off cluster-2\n")
    (tmp_path / "waits.py").write_text(
        f"""import gridloom as gl, numpy as np
with gl.local(functions=[{str(inside)!r}]) as grid:
    waits = grid.function("inside/gets").submit("x", 2, -1.0)
    grid.advance(20)
    grid.put("x", np.ones(2))
    print(waits.result()[1])
"""
    )
    done = run(PROGRAM, "simulate", "-p", SIMULATED, "--execute", "--faults", faults, "--", PYTHON, tmp_path / "waits.py")
    assert done.returncode == 0 and done.stdout.startswith("0\n"), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["array", "broadcast"])
def test_the_examples_in_simulation(tmp_path, name):
    program = compile_c([EXAMPLES / f"{name}.c"], tmp_path / name, "-std=c99")
    simulate = [PROGRAM, "simulate", "-p", SIMULATED, "--execute", "--functions", EXAMPLES / f"{name}.idl", "--"]
    done, again = run(*simulate, program), run(*simulate, program)
    assert done.returncode == 0 and done.stdout.startswith("8 calls: 139998600000\n"), done.stdout + done.stderr
    assert done.stdout == again.stdout, "the same events at the same times"


METHODS = """#include <OmniRpc.h>
#include <omst.h>
#include <stdio.h>
#include <stdlib.h>
enum { N = 1 << 20, READERS = 6 };
int main(int argc, char **argv) {
    const int methods[] = {OMST_DIRECT_NP, OMST_TREE_NP, OMST_SWARM_NP, OMST_STORAGE_NP};
    static double data[N];
    OmniRpcInit(&argc, &argv);
    for (int i = 0; i < N; i++) data[i] = i % 7;
    for (int m = 0; m < 4; m++) {
        double sums[READERS];
        OmniRpcRequest requests[READERS];
        char name[16];
        snprintf(name, sizeof name, "data %d", m);
        for (int i = 0; i < READERS; i++) requests[i] = OmniRpcCallAsync("sum_of", name, N, &sums[i]);
        if (OmstWait(OmstPutData(name, data, sizeof data, OMST_POINT2POINT | methods[m])) != 0) return 1;
        if (OmniRpcWaitAll(READERS, requests) != OMRPC_OK) return 2;
        for (int i = 0; i < READERS; i++) printf("%.0f ", sums[i]);
        grpc_shared_delete_np(name);
    }
    puts("");
    OmniRpcFinalize();
    return 0;
}
"""
SUM = """Module sums;
Define sum_of(IN string name, IN int n, OUT double *sum) CalcOrder n
{
    double *x = malloc(n * sizeof *x);
    *sum = 0;
    if (OmstWait(OmstGetData(name, x, n * sizeof *x)) != 0) abort();
    for (int i = 0; i < n; i++) *sum += x[i];
    free(x);
}
"""


def test_workers_in_simulation_get_data_by_all_methods(tmp_path):
    (tmp_path / "methods.c").write_text(METHODS)
    (tmp_path / "sums.idl").write_text(SUM)
    program = compile_c([tmp_path / "methods.c"], tmp_path / "methods", "-std=c99")
    simulate = [PROGRAM, "simulate", "-p", SIMULATED, "--execute", "--functions", tmp_path / "sums.idl", "--"]
    done, again = run(*simulate, program), run(*simulate, program)
    expected = f"{sum(i % 7 for i in range(1 << 20))} " * 24
    assert done.returncode == 0 and done.stdout.startswith(expected), done.stdout + done.stderr
    assert done.stdout == again.stdout
    seconds = float(re.search(r"^simulated ([\d.]+) s$", done.stdout, re.MULTILINE)[1])
    assert seconds > 4 * (8 << 20) / BETWEEN, "all methods send the data to the other site"
