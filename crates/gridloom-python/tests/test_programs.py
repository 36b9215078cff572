"""`gl.program`: command lines as functions, for real and in simulation."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gridloom as gl
import pytest
from bad_functions import wait_until

TEXT = b"pear\napple\nfig\napple\n"

gl_module = "programs"

order = gl.program(
    "sort {text} -o {ordered}", inputs=["text"], outputs=["ordered"], name="order", work="100*text", sizes={"ordered": "text"}
)
count = gl.program(
    "uniq -c", inputs={"text": "a folder/text.txt"}, stdin="text", stdout="counted", name="count", sizes={"counted": "2*text"}
)
halves = gl.program("split -n l/2 -d {text} part", inputs=["text"], outputs={"first": "part00", "second": "part01"}, name="halves")
nothing = gl.program("true")
say = gl.program(
    "printf '%s|%d|%.1f|{{}}' {word} {number:03d} {real}", parameters={"number": int, "real": float}, stdout="said", name="say"
)
fails = gl.program("sh -c 'echo out of luck; echo no luck >&2; exit $0' {status}", parameters={"status": int}, stdout="luck", name="fails")
absent = gl.program("no-such-program {text}", inputs=["text"])
silent = gl.program("sh -c 'echo x > wrong'", outputs={"right": "out/right"}, name="silent")
slow = gl.program("sh -c 'sleep 1000 & echo $$ $! > {pids}; echo begun >&2; wait'", outputs=["pids"], timeout=0.5, name="slow")
greedy = gl.program([sys.executable, "-c", "x = bytearray(1 << 30)"], memory=256 << 20, name="greedy")
variable = gl.program("sh -c 'printf %s $COLOUR'", stdout="printed", environment={"COLOUR": "red"}, name="variable")
either = gl.program("sh -c 'echo found; exit 1'", stdout="printed", statuses=[0, 1], name="either")
both = gl.program("sh -c 'echo to out; echo to err >&2'", stdout="out", stderr="err", name="both")
here = gl.program("pwd", stdout="where", name="here")
compiled = gl.program("cc -x c -o {made} {source}", inputs=["source"], outputs=["made"], name="compiled")
run = gl.program("{tool} {number}", inputs=["tool"], parameters={"number": int}, stdout="printed", name="run")

# Its working folder's file: number and time, as a number may be given again; first and last byte.
look = gl.program("sh -c 'stat -c \"%i %y\" \"$1\"; head -c 1 \"$1\"; tail -c 1 \"$1\"' sh {text}", inputs=["text"], stdout="seen", name="look")
spoil = gl.program(
    "sh -c 'printf y | dd of=\"$1\" conv=notrunc status=none; touch -r /etc/passwd \"$1\"; wc -c < \"$1\"' sh {text}",
    inputs=["text"],
    stdout="size",
    name="spoil",
)
grow = gl.program("sh -c 'printf z >> \"$1\"' sh {text}", inputs={"text": "same"}, outputs={"longer": "same"}, name="grow")
two = gl.program(
    "sh -c 'cat \"$2\" >> \"$1\"; wc -c < \"$1\"; wc -c < \"$2\"' sh {first} {second}", inputs=["first", "second"], stdout="sizes", name="two"
)
spoil_in_memory = gl.program(
    [
        sys.executable,
        "-c",
        "import mmap; f = open('{text}', 'r+b'); c = mmap.mmap(f.fileno(), 0); print(c[0]); c[0] = 121",
    ],
    inputs=["text"],
    stdout="seen",
    name="spoil_in_memory",
)

ALL = [look, spoil, grow, two, spoil_in_memory, order, count, halves, nothing, say, fails, absent, silent, slow, greedy, variable, either, both, here, compiled, run]


@pytest.fixture(scope="module")
def grid(program):
    with gl.local(servers=2, functions=ALL) as opened:
        yield opened


def test_files_go_in_and_come_out(grid, tmp_path):
    function = grid.function(order)
    assert function.signature == "programs/order(text: file) -> ordered: file"
    assert function(TEXT) == b"apple\napple\nfig\npear\n"
    (tmp_path / "text").write_bytes(TEXT)
    assert function(tmp_path / "text") == function(text=str(tmp_path / "text")) == b"apple\napple\nfig\npear\n"
    assert grid.function(halves)(TEXT) == (b"pear\napple\n", b"fig\napple\n")
    assert grid.function(nothing)() is None
    assert grid.function(both)() == (b"to out\n", b"to err\n")
    with pytest.raises(gl.ArgumentError, match="'nowhere' cannot be read"):
        function("nowhere")


def test_files_stay_on_servers_within_a_group(grid):
    text = b"".join(b"%d\n" % (number * 7919 % 100_000) for number in range(100_000))
    with grid.group() as group:
        counted = grid.function(count)(grid.function(order)(text))
    lines = counted.get().split(b"\n")
    assert len(lines) == 100_001 and lines[0].split() == [b"1", b"0"]
    assert group.report().client_bytes < 2 * len(counted.get()) + len(text)


def test_a_file_that_many_calls_read_is_sent_once(tmp_path, platform):
    path = tmp_path / "database"
    path.write_bytes(bytes(1_000_000))
    content = path.read_bytes()
    with gl.simulate(platform, functions=ALL) as grid:
        ordered = grid.function(order)
        for given in (path, content):
            before = grid.traffic().client_bytes
            with grid.group() as group:
                for _ in range(12):
                    ordered(given)
            group.wait()
            # Each of the three servers gets it once at most.
            assert 1_000_000 <= grid.traffic().client_bytes - before < 3_100_000
        before = grid.traffic().client_bytes
        with grid.group() as group:
            first = ordered.on("s0")(path)
            path.write_bytes(bytes(2_000_000))
            ordered.on("s0")(path)
        group.wait()
        assert first is not None and 3_000_000 <= grid.traffic().client_bytes - before < 3_100_000


def test_a_file_that_the_last_call_had_is_not_written_again(program):
    database, other = b"x" * 1_000_000, b"o" * 1_000_000
    with gl.local(servers=1, functions=ALL) as grid:
        looks, spoils, grows = grid.function(look), grid.function(spoil), grid.function(grow)
        with grid.group():
            seen = [looks(database) for _ in range(3)]
            size = spoils(database)
            after = looks(database)
            between = looks(other)
            last = looks(database)
            longer = grows(database)
            end = looks(database)
        numbers, contents = zip(*(one.get().split(b"\n") for one in (*seen, after, between, last, end)))
        assert len(set(numbers[:3])) == 1 and int(size.get()) == len(database)
        # What one program does to its file is not seen by the next.
        assert contents == (b"xx", b"xx", b"xx", b"xx", b"oo", b"xx", b"xx")
        assert longer.get() == database + b"z"


def test_two_inputs_with_one_datum_are_two_files(grid):
    with grid.group():
        text = grid.function(order)(b"x" * 999_999)
        sizes = [grid.function(two)(text, text) for _ in range(2)]
    assert [one.get().split() for one in sizes] == [[b"2000000", b"1000000"]] * 2


@pytest.mark.parametrize("memory", [False, True])
def test_what_a_program_writes_in_memory_is_not_seen_by_the_next(program, tmp_path, monkeypatch, memory):
    if memory and not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if memory else tmp_path) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        with gl.local(servers=1, functions=ALL) as grid:
            assert folder.encode() in grid.function(here)()
            text = b"x" * 1_000_000
            with grid.group():
                seen = [grid.function(spoil_in_memory)(text) for _ in range(3)]
            assert [one.get() for one in seen] == [b"120\n"] * 3


def test_in_simulation_a_file_that_the_last_call_had_takes_no_time_on_disk(tmp_path):
    (tmp_path / "grid.toml").write_text("""
[[host]]
name = "c"
speed = "1Gf"
properties = { role = "client,agent" }
[[host]]
name = "s"
speed = "1Gf"
properties = { role = "server", slots = 1, disk = "1MBps" }
[[link]]
name = "l"
bandwidth = "100MBps"
latency = "10us"
[[route]]
from = "c"
to = "s"
links = ["l"]
""")
    with gl.simulate(tmp_path / "grid.toml", functions=ALL) as grid:
        looks, database, other = grid.function(look), bytes(1_000_000), bytes(1_000_001)

        def took(*files):
            with grid.group() as group:
                for file in files:
                    looks(file)
            group.wait()
            return group.report().measured_seconds

        assert took(database, database, database) == pytest.approx(1.0, abs=0.1)
        assert took(database, other, database) == pytest.approx(3.0, abs=0.1)


def test_values_are_words_of_their_own(grid):
    assert grid.function(say)("a b; $(rm x) 'c'", 7, 2.55) == b"a b; $(rm x) 'c'|7|2.5|{}"
    with pytest.raises(gl.ArgumentError, match="number"):
        grid.function(say)("a", 1.5, 2.0)
    assert grid.function(variable)() == b"red"


def test_a_program_that_fails_reports_its_status_and_output(grid):
    with pytest.raises(gl.RemoteError) as raised:
        grid.function(fails)(3)
    assert raised.value.kind == "ProgramFailed" and raised.value.traceback == ""
    assert "exited with status 3; its standard error ends with:\nno luck" in raised.value.message
    assert grid.function(fails)(0) == b"out of luck\n"
    assert grid.function(either)() == b"found\n"
    with pytest.raises(gl.RemoteError, match="made no file 'out/right' for its output 'right' .*; in its folder are: wrong"):
        grid.function(silent)()


def test_a_program_that_is_missing_is_named(grid):
    with pytest.raises(
        gl.RemoteError, match=r"on server 'server-\d'.*\n?.*the program 'no-such-program' is missing: it is not in PATH=.*install it"
    ):
        grid.function(absent)(b"")


def test_time_and_memory_have_limits(grid):
    with pytest.raises(gl.RemoteError, match=r"took longer than its limit of 0.5 s \(timeout=\) and was ended; .*\nbegun"):
        grid.function(slow)()
    with pytest.raises(gl.RemoteError, match=r"with a limit of 268435456 bytes on its memory \(memory=\); .*\n(.*\n)*MemoryError"):
        grid.function(greedy)()


def has_ended(stat):
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_time_limit_ends_what_the_program_has_started(tmp_path):
    noted = tmp_path / "pids"
    starts = gl.program(["sh", "-c", f"sleep 1000 & echo $! > '{noted}'; wait"], timeout=0.5, name="starts")
    with pytest.raises(gl.functions.ProgramFailed, match="took longer") as raised:
        starts()
    assert raised.value.status == -9
    # A zombie is gone, too: nobody here reaps what the shell left.
    stat = Path("/proc", noted.read_text().strip(), "stat")
    wait_until(lambda: has_ended(stat))


def test_the_working_folder_goes_with_the_call(grid):
    first, second = (grid.function(here)().decode().strip() for _ in range(2))
    assert first != second and "gridloom-program-" in first
    assert not os.path.exists(first) and not os.path.exists(second)


def test_the_working_folder_goes_with_a_worker_that_is_killed(program, tmp_path):
    noted = tmp_path / "where"
    hangs = gl.program(["sh", "-c", f"pwd > '{noted}.new'; mv '{noted}.new' '{noted}'; sleep 1000"], name="hangs")
    with gl.local(servers=1, functions=[hangs]) as grid:
        call = grid.function(hangs).submit()
        while not noted.exists():
            gl.wait([call], timeout=0.01)
        call.cancel()
        folder = noted.read_text().strip()
        # The next call finds another worker: the server has removed what the first one left.
        with pytest.raises(gl.TimedOut):
            grid.function(hangs)(timeout=0.2)
    assert not os.path.exists(folder)


def test_one_call_compiles_what_another_runs(grid):
    if subprocess.run(["sh", "-c", "command -v cc"], capture_output=True).returncode:
        pytest.skip("there is no C compiler")
    source = b'#include <stdio.h>\n#include <stdlib.h>\nint main(int n, char **a) { printf("%d", 2 * atoi(a[1])); return n - 2; }'
    with grid.group():
        printed = grid.function(run)(grid.function(compiled)(source), 21)
    assert printed.get() == b"42"


def test_it_is_a_plain_function_where_it_is_made(tmp_path):
    assert order(TEXT) == order(text=TEXT) == b"apple\napple\nfig\npear\n"
    (tmp_path / "t").write_bytes(TEXT)
    assert order(tmp_path / "t") == b"apple\napple\nfig\npear\n"
    with pytest.raises(TypeError, match="text"):
        order()
    with pytest.raises(gl.functions.ProgramFailed, match="exited with status 4") as raised:
        fails(4)
    assert (raised.value.status, raised.value.printed) == (4, "no luck")
    with pytest.raises(gl.functions.ProgramFailed, match="input 'text' is no file: expected a path or bytes, got NoneType None"):
        order(None)


def test_modules_offer_programs(program, tmp_path):
    path = tmp_path / "tools.py"
    path.write_text('import gridloom as gl\nlines = gl.program("wc -l", inputs=["text"], stdin="text", stdout="lines")\n')
    with gl.local(servers=1, functions=[path]) as grid:
        assert int(grid.function("tools/wc")(TEXT)) == 4


def test_a_function_around_a_program_gets_bytes(program, tmp_path):
    path = tmp_path / "around.py"
    path.write_text("""import functools
import gridloom as gl
def twice(program):
    @functools.wraps(program)
    def call(text):
        return program(text + text)
    return call
wc = twice(gl.program("wc -l", inputs=["text"], stdin="text", stdout="lines"))
""")
    with gl.local(servers=1, functions=[path]) as grid:
        assert int(grid.function("around/wc")(b"x\n" * 1_000_000)) == 2_000_000


def test_any_function_may_use_one(grid):
    assert grid.run(order, TEXT).get() == b"apple\napple\nfig\npear\n"


def test_in_simulation_sizes_and_work_are_those_declared(platform):
    with gl.simulate(platform, functions=ALL) as grid:
        with grid.group() as group:
            counted = grid.function(count)(grid.function(order)(bytes(10_000_000)))
        assert len(counted.get()) == 20_000_000
        report = group.report()
        # 10 MB go to a server at 10 MB/s and 20 MB come back; 1 Gflop at 1 Gf.
        assert report.measured_seconds == pytest.approx(4.0, rel=0.05)
        assert report.predicted_seconds == pytest.approx(report.measured_seconds, rel=0.05)


def test_a_simulation_that_executes_runs_programs(platform):
    with gl.simulate(platform, functions=ALL, execute=True) as grid:
        with grid.group():
            counted = grid.function(count)(grid.function(order)(TEXT))
        assert counted.get().split() == [b"2", b"apple", b"1", b"fig", b"1", b"pear"]


def test_likely_sizes_are_of_functions_in_python_too(platform):
    def doubled(text: str, times: int) -> bytes:
        return text.encode() * times

    marked = gl.function(sizes={"out0": "text*times"})(doubled)
    with gl.simulate(platform, functions=[marked]) as grid:
        assert len(grid.function(marked)("abc", 5)) == 15
    for sizes, why in (
        ({"out1": "3"}, "no result of that name"),
        ({"out0": "numbers"}, "unknown name"),
        ({"out0": 3}, "expected names of results"),
    ):
        with pytest.raises(gl.InputError, match=why):
            gl.function(sizes=sizes)(doubled)


@pytest.mark.parametrize(
    ("command", "options", "why"),
    [
        ("", {}, "expected a command line"),
        ("sort 'x", {}, "is no command: No closing quotation"),
        ("sort {text} | uniq", {"inputs": ["text"]}, "'|' is for a shell, and none runs the command"),
        ("sort {}", {}, "expected a name in braces"),
        ("awk {print}}", {}, "written twice"),
        ("{tool} x", {"inputs": ["tool"]}, "gives the function no name"),
        ("sort {x}", {"inputs": "x"}, "write \\[...\\] around it"),
        ("sort {x}", {"inputs": {"x": "../x"}}, "within the working folder"),
        ("sort {x}", {"inputs": ["x"], "outputs": ["x"]}, "an input and an output"),
        ("sort {x}", {"inputs": {"x": "a", "y": "a"}}, "two files have the path 'a'"),
        ("sort {x}", {"stdin": "x"}, "stdin='x' is no input; there are none"),
        ("sort {x}", {"stdout": "x"}, "'x' is what the program prints"),
        ("sort", {"parameters": {"x": int}}, "does not stand in the command; it has none"),
        ("sort {x}", {"parameters": {"x": list}}, "expected str, int or float"),
        ("sort {x}", {"inputs": ["x"], "parameters": {"x": str}}, "a parameter and a file"),
        ("sort", {"stdout": "x", "stderr": "x"}, "give each a name"),
        ("sort {x}", {"inputs": ["x"], "work": "3*y"}, "unknown name 'y'"),
        ("sort", {"stdout": "x", "sizes": {"y": "1"}}, "no result of that name"),
    ],
)
def test_mismatches_are_refused_at_their_place(command, options, why):
    with pytest.raises(gl.InputError, match=f"test_programs.py:\\d+: program.*{why.replace('|', '[|]')}"):
        gl.program(command, **options)
    with pytest.raises(gl.UsageError, match="timeout is a number of seconds"):
        gl.program("sort", timeout=-1)
