"""What functions print, and how far they have come: it reaches the program, within bounds."""

import json
import logging
import os
import subprocess
import sys
import threading
import warnings

import gridloom as gl
import pytest

FUNCTIONS = """
import os
import sys
import gridloom as gl

@gl.function
def speak(n: int) -> int:
    print("line", n)
    print("odd", n, file=sys.stderr)
    print("begun", end="")
    return n

@gl.function
def flood(lines: int) -> int:
    for number in range(lines):
        print(f"{number:0999}")
    return lines

@gl.function
def inspect() -> str:
    sys.stdout.reconfigure(line_buffering=True)
    sys.stdout.writelines(["a\\n", "b\\n"])
    print("to bytes", file=sys.stderr, flush=True)
    sys.stdout.buffer.write(b"bytes\\n")
    sys.stdout.flush()
    return f"{sys.stdout.encoding} {sys.stdout.isatty()} {sys.stdout.fileno()} {sys.stderr.fileno()}"

@gl.function
def fork() -> int:
    child = os.fork()
    if child == 0:
        print("of the child")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print("of the parent")
    return 1
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("said") / "spoken.py"
    path.write_text(FUNCTIONS)
    return path


def texts(said, is_error=False):
    return "".join(one.text for one in said if one.text is not None and one.is_error == is_error)


def test_a_listener_receives_lines_of_calls_and_of_groups(file):
    said = []
    with gl.local(1, functions=[file], logs=said.append) as grid:
        speak = grid.function("spoken/speak")
        assert speak(1) == 1
        assert (texts(said), texts(said, True)) == ("line 1\nbegun", "odd 1\n")
        assert {(one.function, one.server, one.label) for one in said} == {
            ("spoken/speak", "server-1", "speak@server-1")
        }
        said.clear()
        with grid.group() as group:
            last = speak(speak(2))
        assert last.get() == 2
        group.wait()
        assert texts(said) == "line 2\nbegun" * 2 and len({one.call for one in said}) == 2


def test_lines_are_shown_with_their_origin(file, capsys):
    def talk(n):
        logging.warning("careful")
        warnings.warn("out of date", stacklevel=1)
        print("by value", n)

    with gl.local(1, functions=[file]) as grid:
        grid.function("spoken/speak")(3)
        grid.run(talk, 4).result()
    out, err = capsys.readouterr()
    assert out == "[speak@server-1] line 3\n[speak@server-1] begun\n[talk@server-1] by value 4\n"
    assert "[speak@server-1] odd 3\n" in err and "[talk@server-1] WARNING:root:careful\n" in err and "out of date" in err


def test_plain_output_is_printed_without_labels(file, capsys):
    def talk():
        print('{"a": 1}\n')
        print("odd", file=sys.stderr)
        print("begun", end="")

    with gl.local(1, functions=[file], logs="plain") as grid:
        grid.function("spoken/speak")(3)
        grid.run(talk).result()
    assert capsys.readouterr() == ('line 3\nbegun{"a": 1}\n\nbegun', "odd 3\nodd\n")
    with pytest.raises(gl.UsageError, match="logs is 'odd'; expected True, False, 'plain' or a function"):
        gl.local(1, logs="odd")


def test_without_logs_nothing_is_shown(file, capfd):
    def talk():
        print("printed")
        print("odd", file=sys.stderr)
        os.write(2, b"as C code does\n")
        os.system("echo another process")

    with gl.local(1, functions=[file], logs=False) as grid:
        grid.function("spoken/speak")(5)
        grid.run(talk).result()
    assert capfd.readouterr() == ("", "")


def test_a_flood_is_bounded_and_the_rest_is_dropped(file, capfd):
    said = []
    with gl.local(1, functions=[file], logs=said.append) as grid:
        assert grid.function("spoken/flood")(20_000) == 20_000
        assert grid.function("spoken/speak")(6) == 6
    heard = texts(said)
    assert heard.startswith(f"{0:0999}\n") and heard.count("the rest is dropped)\n") == 1
    assert 1 << 20 < len(heard) < 10e6 and heard.endswith("line 6\nbegun")
    assert capfd.readouterr() == ("", "")


def test_the_rest_of_a_flood_goes_to_the_log_of_a_server(file):
    program = gl.__path__[0] + "/bin/gridloom"
    serve = [program, "serve", file, "--no-agent", "--json", "--python", sys.executable, "--until-stdin-closes"]
    said = []
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        logged = []
        reader = threading.Thread(target=lambda: logged.extend(server.stderr))
        reader.start()
        address = json.loads(server.stdout.readline())["address"]
        with gl.connect(servers=[address], logs=said.append) as grid:
            assert grid.function("spoken/flood")(20_000) == 20_000
        server.stdin.close()
        reader.join()
    heard = texts(said)
    assert heard.count("the rest goes to the server's log)\n") == 1
    assert len(heard.splitlines()) + len(logged) >= 20_000


def test_the_streams_are_as_others(file, capfd):
    said = []
    with gl.local(1, functions=[file], logs=said.append) as grid:
        assert grid.function("spoken/inspect")() == "utf-8 False 1 2"
    assert texts(said) == "a\nb\n" and "bytes\n" in capfd.readouterr().err


def test_a_forked_child_does_not_print_for_the_call(file, capfd):
    said = []
    with gl.local(1, functions=[file], logs=said.append) as grid:
        assert grid.function("spoken/fork")() == 1
    assert texts(said) == "of the parent\n" and "of the child\n" in capfd.readouterr().err


def test_progress_is_reported_and_ends_whole(file):
    said = []

    def work(rounds):
        for number in range(rounds):
            gl.progress(number + 1, rounds)
        gl.progress(7)

    with gl.local(1, logs=said.append) as grid:
        grid.run(work, 1000).result()
    told = [(one.done, one.total) for one in said]
    assert told[0] == (1, 1000) and (1000, 1000) in told and len(told) < 500
    assert all(one.text is None and not one.is_error for one in said)


def test_progress_outside_a_call_does_nothing_and_refuses_nonsense():
    gl.progress(1, 2)
    for done, total in ((-1, None), (float("nan"), None), (1, float("inf")), ("1", None), (1, "2")):
        with pytest.raises(gl.UsageError, match="progress: (done|total) is"):
            gl.progress(done, total)
    with pytest.raises(gl.UsageError, match="logs is 'yes'; expected True, False, 'plain' or a function"):
        gl.local(1, logs="yes")


def test_a_listener_that_fails_loses_no_call(file, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def fails(said):
        raise ValueError("not heard")

    with gl.local(1, functions=[file], logs=fails) as grid:
        assert grid.function("spoken/speak")(8) == 8
    assert unraisable and all(isinstance(one.exc_value, ValueError) for one in unraisable)


def test_a_nested_call_prints_through_the_call_that_made_it(file):
    said = []

    def outer(n):
        with gl.connect() as grid:
            return grid.function("spoken/speak")(n)

    with gl.local(1, functions=[file], logs=said.append) as grid:
        assert grid.run(outer, 9).result() == 9
    assert "[speak@server-1] line 9\n" in texts(said)


def test_a_bar_is_drawn_where_a_line_can_be_written_over(monkeypatch):
    from gridloom.display.output import Output, Shown

    read, write = os.openpty()
    with os.fdopen(write, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        shown = Shown()
        shown(Output("s", "m/f", 1, done=1.0, total=4.0))
        shown(Output("s", "m/f", 1, done=4.0, total=4.0))
        drawn = ""
        while not drawn.endswith("\n"):
            drawn += os.read(read, 1 << 16).decode()
    os.close(read)
    assert "\rf@s:  25%|#####               | 1/4 [" in drawn and "f@s: 100%|####################| 4/4 [" in drawn
