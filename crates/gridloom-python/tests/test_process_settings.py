"""Configuration, log and arguments of processes: the same words in simulation and for real."""

import os
import re
import subprocess
import sys
from pathlib import Path

import gridloom as gl
import pytest

PLATFORM = """
[[host]]
name = "a"
speed = "1Gf"
[[host]]
name = "b"
speed = "1Gf"
[[link]]
name = "l"
bandwidth = "100MBps"
latency = "1ms"
[[route]]
from = "a"
to = "b"
links = ["l"]
"""

ONE = "[[process]]\nhost = 'a'\nfunction = 'one'\n"


def run(folder, world, body, deployment, words=(), options=(), environment=None, before=""):
    """Runs a program; its exit status, the lines that it printed, and what it said on standard error."""
    (folder / "deployment.toml").write_text(deployment)
    (folder / "platform.toml").write_text(PLATFORM)
    (folder / "program.py").write_text(f"import sys\nimport gridloom as gl\n{before}\n{body}\ngl.run_processes()\n")
    command = [Path(gl.__file__).parent / "bin" / "gridloom", world, "-d", "deployment.toml", *options]
    if world == "simulate":
        command += ["-p", "platform.toml"]
    command += ["--", sys.executable, "program.py", *words]
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)
    lines = [line.split("| ", 1)[-1] for line in done.stdout.splitlines()]
    return done.returncode, [line for line in lines if not line.startswith(("simulated", "trace", "link"))], done.stderr


both_worlds = pytest.mark.parametrize("world", ["simulate", "deploy"])

SETTINGS = """
@gl.process
def one(me):
    print(me.config("matrix.size", 3), me.config("matrix.scale", 1.5), me.config("on", False), me.config("name"))
    print(sys.argv[1:])
    for level in ("debug", "info", "warning"):
        me.log(f"said {level}", level, "matmul.server")
        me.log(f"else {level}", level, "other")
"""


def logged(errors):
    """Lines of the log, without times and names."""
    return [line.rsplit(": ", 1)[1] for line in errors.splitlines() if "] one@a: " in line]


@both_worlds
def test_the_command_line_counts_more_than_the_environment_and_that_more_than_the_file(tmp_path, world):
    (tmp_path / "c.toml").write_text("name = 'file'\nlog = 'error'\n[matrix]\nsize = 4\nscale = 2.5\n")
    (tmp_path / "loud.toml").write_text("log = 'debug'\n")
    words = ["--set", "matrix.size=6", "own", "--log=warning,matmul=debug", "--config", "c.toml"]
    environment = {"GRIDLOOM_SET_MATRIX_SIZE": "5", "GRIDLOOM_SET_MATRIX_SCALE": "3.5", "GRIDLOOM_LOG": "debug"}
    code, lines, errors = run(tmp_path, world, SETTINGS, ONE, words, environment=environment)
    assert code == 0, errors
    assert lines == ["6 3.5 False file", "['own']"]
    assert logged(errors) == ["said debug", "said info", "said warning", "else warning"]
    environment = {"GRIDLOOM_CONFIG": "c.toml", "GRIDLOOM_LOG": "warning", "GRIDLOOM_SET_ON": "true"}
    code, lines, errors = run(tmp_path, world, SETTINGS, ONE, environment=environment)
    assert (code, lines) == (0, ["4 2.5 True file", "[]"]), errors
    assert logged(errors) == ["said warning", "else warning"]
    code, _, errors = run(tmp_path, world, SETTINGS, ONE, ["--config=loud.toml"])
    assert logged(errors).count("said debug") == 1
    code, _, errors = run(tmp_path, world, SETTINGS, ONE)
    assert logged(errors) == ["said info", "else info", "said warning", "else warning"]


@both_worlds
def test_wrong_settings_are_refused(tmp_path, world):
    code, _, errors = run(tmp_path, world, SETTINGS, ONE, ["--log", "loud"])
    assert code == 1 and "'loud' is not a log level; levels are debug, info, warning, error" in errors
    code, _, errors = run(tmp_path, world, SETTINGS, ONE, ["--set", "matrix.size=many"])
    assert code == 1 and "the configuration's 'matrix.size' is 'many'; it has to be an integer" in errors


def test_a_program_with_options_of_its_own_reads_the_settings_first(tmp_path):
    before = "import argparse\ngl.processes.read_settings()\nparser = argparse.ArgumentParser()\nparser.add_argument('--own')\n"
    before += "print(parser.parse_args().own)\n"
    words = ["--set", "name=x", "--own", "5"]
    code, lines, errors = run(tmp_path, "simulate", SETTINGS, ONE, words, before=before)
    assert (code, lines) == (0, ["5", "3 1.5 False x", "['--own', '5']"]), errors


TWO = """
@gl.process
def one(me, host, count=3):
    print("one ran")
@gl.process
def two(me):
    print("two ran")
"""


@both_worlds
@pytest.mark.parametrize(
    ("entry", "place", "why"),
    [
        ("function = 'one'", "4:1", "process function 'one' takes host, count=3 behind the process itself; 0 given"),
        ("function = 'one'\narguments = ['a', 1, 2]", "7:13", "process function 'one' takes host, count=3 behind"),
        ("function = 'two'\narguments = ['a']", "7:13", "process function 'two' takes no arguments behind"),
        (
            "function = 'tow'",
            "6:12",
            "the program has no process function 'tow'; it has: one, two; did you mean 'two'?",
        ),
    ],
)
def test_a_deployment_that_does_not_fit_runs_nothing(tmp_path, world, entry, place, why):
    deployment = f"[[process]]\nhost = 'a'\nfunction = 'two'\n[[process]]\nhost = 'b'\n{entry}\n"
    code, lines, errors = run(tmp_path, world, TWO, deployment)
    assert code == 1 and lines == [], (lines, errors)
    assert f"deployment.toml:{place}: {why}" in errors, errors
    if world == "deploy":
        assert "gridloom: nothing else was started" in errors


def test_an_unknown_host_has_a_place_and_near_names(tmp_path):
    deployment = "[[process]]\nhost = 'aa'\nfunction = 'two'\n"
    code, _, errors = run(tmp_path, "simulate", TWO, deployment)
    assert code == 1
    assert "deployment.toml:2:8: the platform has no host 'aa'; it has: a, b; did you mean 'a'?" in errors


FAILING = """
@gl.process
def bad(me):
    me.listen(4000)
    me.wait_for("hello")
    raise ValueError("boom")
@gl.process
def worse(me):
    me.connect("a", 4000).send("hello")
    me.listen(4000)
    me.wait_for("never"){timeout}
"""
PAIR = "[[process]]\nhost = 'a'\nfunction = 'bad'\n[[process]]\nhost = 'b'\nfunction = 'worse'\n"


def test_after_a_failure_the_others_are_ended(tmp_path):
    body = FAILING.replace("{timeout}", "")
    code, _, errors = run(tmp_path, "deploy", body, PAIR, options=["--grace", "0.2"])
    assert code == 1
    assert "gridloom: bad@a ended with exit status: 1\n" in errors
    assert "gridloom: still running: worse@b; they are ended in 0.2 s\n" in errors
    assert "gridloom: ended after the failure: worse@b\n" in errors


def test_a_run_may_be_ended(tmp_path):
    body = '@gl.process\ndef one(me):\n    me.wait_for("never")\n'
    code, _, errors = run(tmp_path, "deploy", body, ONE, options=["--until", "0.5"])
    assert code == 1 and errors.endswith("gridloom: ended at the end of --until: one@a\n"), errors


@both_worlds
def test_every_failure_is_reported_and_its_class_and_status_are_the_same(tmp_path, world):
    both = """
import os, time
def last(me, peer, program):
    # Waits for the other process's end, and until its program has ended and `gridloom deploy` knows that.
    try:
        peer.wait_for("never")
    except gl.ConnectionClosed:
        if me.simulated:
            me.sleep(3)
        while not me.simulated and os.path.exists(f"/proc/{{program}}"):
            time.sleep(0.001)
@gl.process
def bad(me):
    me.listen(4000)
    peer, program = me.wait_for("here")
    peer.send("here", str(os.getpid()))
    {bad}
    raise ValueError("boom")
@gl.process
def worse(me):
    peer = me.connect("a", 4000)
    peer.send("here", str(os.getpid()))
    program = peer.wait_for("here")
    {worse}
    sys.exit(7)
"""
    last = "last(me, peer, int(program))"
    code, _, errors = run(tmp_path, world, both.format(bad="pass", worse=last), PAIR)
    assert code == 1
    assert "ValueError: boom" in errors and "gridloom.errors.ProcessError: " in errors, errors
    if world == "simulate":
        assert re.search(r"gridloom: bad@a, at 0\.00\d+ s:\nTraceback", errors), errors
        assert re.search(r"gridloom: bad@a failed at 0\.00\d+ s: ValueError: boom", errors), errors
        assert re.search(r"gridloom: worse@b failed at 3\.00\d+ s: it called sys.exit\(7\)", errors), errors
    else:
        assert "gridloom: worse@b ended with exit status: 7" in errors
    code, _, errors = run(tmp_path, world, both.format(bad=last, worse="pass"), PAIR)
    assert code == 7, errors


@both_worlds
def test_what_was_awaited_and_what_is_unread_is_reported(tmp_path, world):
    body = """
@gl.message
class A:
    x: int
@gl.process
def bad(me):
    me.listen(4000)
    peer, _ = me.wait_for("first")
    print(me.handle(timeout=0.01), me.unread(), me.waiting())
    for wait in (lambda: me.wait(A, timeout=0.02), lambda: peer.wait_for("x", timeout=0.03)):
        try:
            wait()
        except gl.TimedOut as error:
            print(error)
@gl.process
def worse(me):
    peer = me.connect("a", 4000)
    peer.send("B", b"1")
    peer.send("first")
    try: peer.wait_for("never")
    except gl.ConnectionClosed: pass
"""
    code, lines, errors = run(tmp_path, world, body, PAIR)
    assert code == 0, errors
    assert lines == [
        "False 1 'B' of worse@b {'B': 1}",
        "no message 'A' arrived within 0.02 s; unread: 1 'B' of worse@b",
        "no message 'x' of worse@b arrived within 0.03 s; unread: 1 'B' of worse@b",
    ]


@both_worlds
def test_who_has_ended_is_sent_nothing(tmp_path, world):
    body = """
@gl.process
def bad(me):
    me.listen(4000)
    me.wait_for("x")
    me.wait_for("y")
@gl.process
def worse(me):
    peer = me.connect("a", 4000)
    peer.send("x")
    peer.send("y")
    if me.simulated:
        me.sleep(4)
    else:
        # The socket is in state CLOSE_WAIT once the end of the connection has arrived. Nothing was received before.
        import time
        for _ in range(1000):
            if any(line.split()[3] == "08" for line in open("/proc/self/net/tcp").readlines()[1:] if "0FA0" in line):
                break
            time.sleep(0.01)
    for attempt in (lambda: peer.send("z"), lambda: peer.wait_for("z", timeout=1), lambda: peer.send("z")):
        try:
            attempt()
            print("it went well")
        except gl.ConnectionClosed as error:
            print(error)
"""
    code, lines, errors = run(tmp_path, world, body, PAIR)
    assert code == 0, errors
    assert lines == ["the connection to bad@a:4000 is closed: bad@a:4000 has closed it"] * 3


@both_worlds
def test_numbers_that_cannot_be_meant_are_named(tmp_path, world):
    body = """
@gl.process
def one(me):
    for call in (lambda: me.listen(-1), lambda: me.connect("a", 70000), lambda: me.sleep(1e300)):
        try:
            call()
        except ValueError as error:
            print(type(error).__name__, error)
"""
    code, lines, errors = run(tmp_path, world, body, ONE)
    assert code == 0, errors
    assert lines == [
        "ArgumentError listen: -1 is no port; give a number from 0 to 65535",
        "ArgumentError connect: 70000 is no port; give a number from 0 to 65535",
        "ArgumentError sleep: 1e300 seconds; give a finite time",
    ]


@both_worlds
def test_a_block_may_be_skipped(tmp_path, world):
    body = """
@gl.process
def one(me):
    begun = me.now()
    with me.measure("solve", mode="skip", flops=2e9) as run:
        print(run)
    print(round(me.now() - begun, 6) if me.simulated else "real")
    try:
        with me.measure("solve", mode="skip"):
            pass
    except gl.UsageError as error:
        print(error)
"""
    code, lines, errors = run(tmp_path, world, body, ONE)
    assert code == 0, errors
    wrong = "measure: mode is 'skip', and flops is missing; give flops with mode 'skip', and only there"
    assert lines == (["False", "2.0", wrong] if world == "simulate" else ["True", "real", wrong])
