"""``gridloom logs``: what functions have printed at the servers of a grid, also for those who did not call them."""

import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time

import gridloom as gl
import pytest
from bad_functions import wait_until
from gridloom.common import executable

FUNCTIONS = """
import logging
import os
import sys
import time
import warnings
import gridloom as gl

@gl.function
def speak(n: int) -> int:
    print("line", n)
    logging.warning("careful %d", n)
    warnings.warn(f"out of date {n}")
    print("begun", end="")
    return n

@gl.function
def flood(lines: int) -> int:
    for number in range(lines):
        print(f"{number:0999}")
    return lines

@gl.function
def bar() -> int:
    for part in range(101):
        print(f"\\r{part} %", end="", file=sys.stderr)
    print("\\rdone \\x1b[1mat last\\x1b[0m", file=sys.stderr)
    return 0

@gl.function
def crash() -> int:
    print("the last words")
    os.abort()

@gl.function
def hold(gate: str) -> int:
    print("held", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.001)
    return 1
"""


@pytest.fixture
def site(program, monkeypatch, tmp_path):
    """An agent; starts servers of it, and runs commands."""
    monkeypatch.setenv("GRIDLOOM_MODELS", "none")
    site = Site(tmp_path)
    monkeypatch.setenv("GRIDLOOM_AGENT", site.start("agent", "--listen", "127.0.0.1:0"))
    yield site
    for process in site.running:
        process.kill()
        process.communicate()


class Site:
    def __init__(self, folder):
        self.folder, self.running = folder, []
        self.module = folder / "spoken.py"
        self.module.write_text(FUNCTIONS)

    def start(self, *arguments):
        """Start a service; give its address."""
        command = [executable.program() or "gridloom", *arguments, "--json", "--quiet", "--until-stdin-closes"]
        with open(self.folder / "log", "a") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ}
            )
        self.running.append(process)
        return json.loads(process.stdout.readline())["address"]

    def serve(self, name):
        options = ["--listen", "127.0.0.1:0", "--name", name, "--python", sys.executable]
        return self.start("serve", str(self.module), "--run-code", *options)

    def logs(self, *arguments):
        """Run the command; give its exit status, its lines and its errors."""
        command = [executable.program() or "gridloom", "logs", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def lines(self, *arguments):
        code, lines, errors = self.logs("--json", *arguments)
        assert (code, errors) == (0, "")
        return [json.loads(line) for line in lines]

    def follow(self, *arguments):
        command = [executable.program() or "gridloom", "logs", "--follow", "--json", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.running.append(process)
        return process


def texts(lines):
    return [line["text"] for line in lines]


def test_lines_of_calls_that_have_ended_and_of_programs_that_have_gone(site):
    site.serve("one"), site.serve("two")
    began = datetime.datetime.now(datetime.timezone.utc)
    with gl.connect(logs=False) as grid:
        speak = grid.function("spoken/speak")
        speak.on("one")(1), speak.on("two")(2), speak.on("one")(3)
        assert grid.run(print, "by value").result() is None
    with gl.connect(logs=lambda said: None) as grid, pytest.raises(gl.Crashed):
        grid.function("spoken/crash")()
    lines = site.lines()
    assert texts(lines[:4]) == ["line 1", "WARNING:root:careful 1", lines[2]["text"], '  warnings.warn(f"out of date {n}")']
    assert lines[2]["text"].endswith("UserWarning: out of date 1")
    spoken = [line for line in lines if line["text"].startswith(("line", "begun"))]
    assert [(line["server"], line["text"]) for line in spoken] == [
        ("one", "line 1"), ("one", "begun"), ("two", "line 2"), ("two", "begun"), ("one", "line 3"), ("one", "begun")
    ]  # fmt: skip
    assert {(line["function"], line["stream"]) for line in spoken} == {("spoken/speak", "stdout")}
    assert lines[1]["stream"] == "stderr" and len({line["call"] for line in spoken}) == 3
    times = [datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")) for line in lines]
    assert times == sorted(times) and began <= times[0] and times[-1] <= datetime.datetime.now(datetime.timezone.utc)
    assert (lines[-2]["function"], *texts(lines[-2:])) == ("builtins:print", "by value", "the last words")
    # The log of the servers has what no program wanted, as soon as it is printed.
    assert "line 1\n" in (site.folder / "log").read_text()

    assert texts(site.lines("--function", "crash")) == texts(site.lines("--function", "spoken/crash")) == ["the last words"]
    assert texts(site.lines("--function", "print")) == texts(site.lines("--function", "builtins:print")) == ["by value"]
    assert {line["server"] for line in site.lines("--server", "two")} <= {"two"}
    assert texts(site.lines(spoken[2]["call"], "--lines", "2")) == ['  warnings.warn(f"out of date {n}")', "begun"]
    assert site.lines("-n", "3") == site.lines("--tail", "3") == site.lines()[-3:] and site.lines("-n", "0") == []
    _, text, _ = site.logs("--function", "speak", "--server", "one", "--lines", "1")
    call, time = spoken[-1]["call"], spoken[-1]["time"]
    assert re.search(rf"Z \[speak@one {call} [^:]+: python on [^ ]+\] begun$", text[0]) and text[0][:16] == time[:16]


def test_missing_attributes_are_reported(site):
    site.serve("one")
    assert site.logs() == (0, [], "gridloom: no line is kept; output of C code is in the servers' own logs\n")
    code, _, errors = site.logs("--server", "onee")
    assert code == 1 and "no server has the name 'onee'; did you mean one? 'gridloom servers' lists" in errors
    code, _, errors = site.logs("--function", "speek", "--json")
    assert code == 1 and "did you mean spoken/speak?" in json.loads(errors)["error"]


def test_lines_are_followed_as_they_are_printed(site, tmp_path):
    site.serve("one")
    with gl.connect() as grid:
        grid.function("spoken/speak")(1)
        follower = site.follow("--lines", "1")
        assert json.loads(follower.stdout.readline())["text"] == "begun"
        others = site.follow("--function", "hold", "--lines", "0")
        speaking = grid.function("spoken/speak").submit(2)
        assert [json.loads(follower.stdout.readline())["text"] for _ in range(5)][::4] == ["line 2", "begun"]
        speaking.get()
        # A server that comes later, and a call that goes on.
        site.serve("late")
        wait_until(lambda: len(grid.servers()) == 2)
        held = grid.function("spoken/hold").on("late").submit(str(tmp_path / "gate"))
        for process in (follower, others):
            line = json.loads(process.stdout.readline())
            assert (line["server"], line["function"], line["text"]) == ("late", "spoken/hold", "held")
        (tmp_path / "gate").touch()
        assert held.get() == 1
        follower.terminate()
        assert follower.wait() == -signal.SIGTERM and follower.stderr.read() == ""


def test_bars_and_control_characters_and_floods(site):
    site.serve("one")
    with gl.connect(logs=False) as grid:
        grid.function("spoken/bar")()
        assert texts(site.lines()) == ["done \x1b[1mat last\x1b[0m"]
        assert site.logs()[1][0].endswith("] done \\u{1b}[1mat last\\u{1b}[0m")
        grid.function("spoken/flood")(1000)
        lines = texts(site.lines("--function", "flood"))
        # A kilobyte each, of which 64 are kept with their overhead.
        assert 55 <= len(lines) <= 64 and lines[-1] == f"{999:0999}"
        assert [int(line) for line in lines] == list(range(1000 - len(lines), 1000))
        assert texts(site.lines("--function", "bar")) == ["done \x1b[1mat last\x1b[0m"]


def test_servers_without_an_agent_report_theirs(site, monkeypatch):
    monkeypatch.delenv("GRIDLOOM_AGENT")
    address = site.start("serve", str(site.module), "--no-agent", "--listen", "127.0.0.1:0", "--name", "alone", "--python", sys.executable)
    with gl.connect(servers=[address]) as grid:
        grid.function("spoken/speak")(4)
    assert texts(site.lines("--servers", address))[0] == "line 4"


def test_calls_of_any_function_have_its_name(site, tmp_path):
    def held(gate):
        print("held", flush=True)
        while not os.path.exists(gate):
            time.sleep(0.001)

    site.serve("one")
    said = []
    # By value: the server does not find this module.
    held.__module__ = "__main__"
    with gl.connect(logs=said.append) as grid:
        calls = [grid.run(held, tmp_path / "open") for _ in range(2)]
        while not said:
            assert not calls[0].done(), calls[0].exception()
        command = [executable.program() or "gridloom", "calls", "--json"]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["calls"]
        name = "__main__:test_calls_of_any_function_have_its_name.<locals>.held"
        assert {call["function"] for call in told} == {name}
        (tmp_path / "open").touch()
        for call in calls:
            call.get()
    assert {(one.function, one.label) for one in said} == {(name, "held@one")}
    assert texts(site.lines("--function", "held")) == ["held", "held"]
    code, _, errors = site.logs("--function", "unheard")
    assert code == 0 and "no line of function 'unheard' is kept" in errors
