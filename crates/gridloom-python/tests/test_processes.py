"""Processes that talk by messages: the same programs for real and in simulation."""

import json
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


def run(folder, world, program, *processes, options=(), typed=None):
    """Runs a program of processes (function, host, arguments); its exit status, output and errors."""
    text = "".join(
        f"[[process]]\nhost = '{host}'\nfunction = '{function}'\narguments = {list(arguments)}\n"
        for function, host, *arguments in processes
    )
    (folder / "deployment.toml").write_text(text)
    (folder / "platform.toml").write_text(PLATFORM)
    (folder / "program.py").write_text("import gridloom as gl\n" + program + "\ngl.run_processes()\n")
    gridloom = Path(gl.__file__).parent / "bin" / "gridloom"
    command = [gridloom, world, "-d", "deployment.toml"]
    if world == "simulate":
        command += ["-p", "platform.toml", "--report", "report.json", *options]
    command += ["--", sys.executable, "program.py"]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, cwd=folder, timeout=120)
    lines = [line.split("| ", 1)[-1] for line in done.stdout.splitlines()]
    return done.returncode, [line for line in lines if not line.startswith(("simulated", "trace", "link"))], done.stderr


TALK = """
@gl.process
def server(me):
    me.listen(4000)
    ticks = []
    me.every(0.05, lambda: ticks.append(me.now()))
    @me.on("double")
    def double(client, payload):
        client.send("result", payload + payload)
    @me.on("fail")
    def fail(client, payload):
        raise ValueError("no such thing")
    gone = []
    me.on_close(lambda client, why: gone.append(client.name))
    while not gone or len(ticks) < 2:
        me.handle(timeout=1)
    print(gone[0], "has gone;", me.waiting())

@gl.process
def client(me, word):
    server = me.connect("a", 4000)
    server.send("ignored", b"x")
    server.send("double", word)
    print(server.wait_for("result", timeout=30).decode())
    server.send("fail")
    try:
        server.wait_for("result", timeout=30)
    except gl.RemoteError as error:
        print(error)
    try:
        me.wait_for("nothing", timeout=0.02)
    except gl.TimedOut as error:
        print(error)
    try:
        me.connect("nowhere", 1)
    except gl.ConnectError as error:
        print(error)
    server.close()
"""


@pytest.mark.parametrize("world", ["simulate", "deploy"])
def test_messages_handlers_timers_and_errors_are_the_same_in_both_worlds(program, tmp_path, world):
    code, lines, errors = run(tmp_path, world, TALK, ("server", "a"), ("client", "b", "ab"))
    assert code == 0, errors
    expected = [
        "abab",
        "server@a:4000 failed: ValueError: no such thing",
        "no message 'nothing' arrived within 0.02 s",
        "no host 'nowhere' is known; known are a, b",
        "client@b has gone; {'ignored': 1}",
    ]
    assert sorted(lines) == sorted(expected)
    assert "message 'fail' of client@b failed: ValueError: no such thing" in errors


def test_a_simulation_takes_the_time_of_the_platform_and_replays(program, tmp_path):
    hashes = set()
    for _ in range(2):
        code, lines, errors = run(tmp_path, "simulate", TALK, ("server", "a"), ("client", "b", "ab"))
        assert code == 0, errors
        report = json.loads((tmp_path / "report.json").read_text())
        hashes.add(report["trace_hash"])
        assert 0.1 <= report["seconds"] < 2.0
    assert len(hashes) == 1


MEASURED = """
@gl.process
def collector(me, clients):
    me.listen(1)
    for _ in range(2 * int(clients)):
        me.wait_for("part")

@gl.process
def worker(me):
    collector = me.connect("a", 1)
    for part in range(2):
        with me.measure("assemble"):
            total = sum(i * i for i in range(1000))
        with me.measure("solve", mode="once"):
            total = sum(i * i for i in range(1000))
        collector.send("part", str(total).encode())
"""


def test_measured_blocks_are_recorded_and_replayed(program, tmp_path):
    workers = 60
    processes = [("collector", "a", str(workers)), *[("worker", "b")] * workers]

    def simulate(*options):
        code, _, errors = run(tmp_path, "simulate", MEASURED, *processes, options=options)
        report = json.loads((tmp_path / "report.json").read_text()) if code == 0 else None
        return report and (report["trace_hash"], report["seconds"]), errors

    recorded, errors = simulate("--record", "measures")
    assert recorded, errors
    assert [simulate("--replay", "measures")[0] for _ in range(2)] == [recorded, recorded]
    lines = (tmp_path / "measures").read_text().splitlines()
    assert lines[0] == "gridloom-measures 1" and len(lines) == 2 + 4 * workers
    fewer = [line for line in lines if not line.startswith('7\t"worker@b"\t"solve"')]
    (tmp_path / "measures").write_text("\n".join(fewer))
    replayed, errors = simulate("--replay", "measures")
    assert replayed is None
    assert "the measured block 'solve', run 1, of process 7, worker@b; it has none of it" in errors


TRACED = """
import numpy as np

@gl.message
class Scale:
    factor: float
    word: str
    data: gl.Array["float64", "m", "n"]

@gl.process
def server(me):
    me.listen(1)
    for _ in range(3):
        client, scale = me.wait(Scale)
    me.compute(1e9)
    client.send(Scale(1.5, "done", np.zeros((1, 2))))

@gl.process
def client(me):
    server = me.connect("a", 1)
    for n in (2, 3, 100):
        server.send(Scale(2.0, f"number {n}", np.full((2, n), 7.0)))
        me.sleep(0.5)
    server.wait(Scale)
"""


def test_a_trace_shows_states_and_messages_by_meaning(program, tmp_path):
    processes = [("server", "a"), ("client", "b")]
    code, _, errors = run(tmp_path, "simulate", TRACED, *processes, options=["--trace", "trace.json"])
    assert code == 0, errors
    events = json.loads((tmp_path / "trace.json").read_text())
    sent = [event["args"] for event in events if event["ph"] == "X" and event["name"] == "send Scale"]
    fields = [(message["word"], message["factor"]) for message in (args["message"] for args in sent)]
    assert fields == [("number 2", 2.0), ("number 3", 2.0), ("number 100", 2.0), ("done", 1.5)]
    assert sent[1]["message"]["data"] == [7.0] * 6 and sent[1]["to"] == "server@a"
    assert sent[2]["message"]["data"] == {"dtype": "float64", "shape": [2, 100], "first": [7.0] * 8}
    arrows = [[event["id"] for event in events if event["ph"] == kind] for kind in "sf"]
    assert len(arrows[0]) == 4 and sorted(arrows[0]) == sorted(arrows[1])
    states = {event["name"] for event in events if event["ph"] == "B"}
    assert {"computing", "waiting", "sleeping", "Scale"} <= states


def test_a_trace_that_finds_no_room_is_an_error(program, tmp_path):
    code, _, errors = run(tmp_path, "simulate", TRACED, ("server", "a"), ("client", "b"), options=["--trace", "/dev/full"])
    assert code == 1 and "cannot write the trace to /dev/full: No space left" in errors
    grid = "with gl.local(servers=1) as grid:\n    print(grid.now() >= 0)\n"
    (tmp_path / "grid.py").write_text("import gridloom as gl\n" + grid)
    gridloom = Path(gl.__file__).parent / "bin" / "gridloom"
    command = [gridloom, "simulate", "-p", "platform.toml", "--trace", "/dev/full", "--", sys.executable, "grid.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert "cannot write the trace to /dev/full: No space left" in done.stderr
    assert done.returncode == 1, done.stdout
    # A program that looks after its log has it there, and nowhere else.
    kept = "import logging\nlogging.basicConfig(filename='kept.log', format='%(levelname)s %(name)s: %(message)s')\n"
    (tmp_path / "grid.py").write_text(kept + "import gridloom as gl\n" + grid)
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    line = "ERROR gridloom.session: cannot write the trace to /dev/full: No space left"
    assert (tmp_path / "kept.log").read_text().startswith(line) and "No space left" not in done.stderr, done.stderr


def test_a_deadlock_reports_the_cycle(program, tmp_path):
    body = """
@gl.process
def listener(me):
    me.listen(1)
    client, _ = me.wait_for("hello")
    client.wait_for("more")

@gl.process
def handler(me):
    server = me.connect("a", 1)
    server.send("hello")
    me.on("never", lambda peer, payload: None)
    me.handle()
"""
    code, _, errors = run(tmp_path, "simulate", body, ("listener", "a"), ("handler", "b"))
    assert code == 1
    assert "listener on a waits for a message 'more' of handler@b" in errors
    assert "handler on b waits for a message\n" in errors


def test_pdb_stops_in_processes_and_steps_over_calls_that_wait(program, tmp_path):
    body = """
@gl.process
def listener(me):
    me.listen(1)
    breakpoint()
    client, _ = me.wait_for("hello")
    client.send("hello", b"2")

@gl.process
def asker(me):
    server = me.connect("a", 1)
    server.send("hello")
    breakpoint()
    payload = server.wait_for("hello")
    print("got", payload)
"""
    # The listener steps into its wait; meanwhile the asker stops, and sends nothing more until it goes on.
    typed = "n\nn\np me.now() > 0\n" + 6 * "c\n"
    code, lines, errors = run(tmp_path, "simulate", body, ("listener", "a"), ("asker", "b"), typed=typed)
    out = "\n".join(lines)
    assert code == 0, out + errors
    assert "program.py(8)listener()" in out and "program.py(15)asker()" in out and "True" in out, out
    assert "got b'2'" in out


@pytest.mark.parametrize("world", ["simulate", "deploy"])
def test_a_process_that_raises_is_named(program, tmp_path, world):
    body = "@gl.process\ndef bad(me):\n    raise KeyError('oh')\n"
    code, _, errors = run(tmp_path, world, body, ("bad", "a"))
    assert code != 0
    assert "KeyError: 'oh'" in errors and "bad@a" in errors


def test_measured_and_modelled_work_takes_time(program, tmp_path):
    body = (
        "@gl.process\ndef worker(me):\n    begin = me.now()\n    me.compute(2e9)\n"
        "    with me.measure('sum'):\n        sum(range(10**6))\n    me.sleep(0.5)\n"
        "    assert me.simulated and me.now() - begin > 2.5, me.now()\n    print('measured')\n"
    )
    code, lines, errors = run(tmp_path, "simulate", body, ("worker", "a"))
    assert (code, lines) == (0, ["measured"]), errors


def test_mistakes_are_named(program, tmp_path):
    body = "@gl.process\ndef known(me):\n    pass\n"
    code, _, errors = run(tmp_path, "simulate", body, ("unknown", "a"))
    assert code != 0 and "no process function 'unknown'; it has: known" in errors
    code, _, errors = run(tmp_path, "simulate", body, ("known", "c"))
    assert code != 0 and "the platform has no host 'c'" in errors
    with pytest.raises(gl.UsageError, match="started by a deployment"):
        gl.run_processes()


TYPED = """
import numpy as np

@gl.message
class Block:
    row: int
    data: gl.Array["float64", "m", "n"]

@gl.message
class Bye:
    pass

@gl.message(name="Block")
class OtherBlock:
    row: str

@gl.process
def server(me):
    me.listen(4000)
    going = [True]
    @me.on(Block)
    def block(client, block):
        block.data *= 2
        me.send(client, Block(block.row + 1, block.data))
    @me.on(Bye)
    def bye(client, bye):
        going[0] = bye != Bye()
    while going[0]:
        me.handle()
    print("server ends;", me.waiting())

@gl.process
def client(me):
    server = me.connect("a", 4000)
    server.send(Block(1, np.arange(6.0).reshape(2, 3)))
    back = server.wait(Block, timeout=30)
    print(back.row, back.data.tolist())
    for wrong in (lambda: server.send(OtherBlock("x")), lambda: server.send(OtherBlock("y")),
                  lambda: server.send("Block", b"hostile")):
        wrong()
        try:
            server.wait(Block, timeout=30)
        except gl.RemoteError as error:
            print(error)
    for bad in (Block("1", back.data), Block(1, back.data[0]), 5):
        try:
            server.send(bad)
        except (gl.ArgumentError, gl.InputError) as error:
            print(type(error).__name__, error)
    server.send(Block(7, np.empty((0, 3))))
    peer, back = me.wait(Block)
    print(peer is server, back.row, back.data.shape)
    server.send(Bye())
"""


@pytest.mark.parametrize("world", ["simulate", "deploy"])
def test_typed_messages_and_their_errors_are_the_same_in_both_worlds(program, tmp_path, world):
    code, lines, errors = run(tmp_path, world, TYPED, ("server", "a"), ("client", "b"))
    assert code == 0, errors
    differently = (
        "server@a:4000 failed: message 'Block': sender and receiver declare it differently: 'Block.m' exists for the receiver "
        "only; 'Block.n' exists for the receiver only; 'Block.row' is 'char *row' for the sender and 'int64_t row' for the "
        "receiver; 'Block.data' exists for the receiver only"
    )
    expected = [
        "2 [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]",
        differently,
        differently,
        "server@a:4000 failed: message 'Block': raw bytes were received under its name, which is that of a typed message: "
        "send an object of that type, or use another name for bytes",
        "ArgumentError message 'Block', field 'row': expected an integer, got '1' (str)",
        "ArgumentError message 'Block', field 'data': it has shape [3], expected [m, n]",
        "InputError <class 'int'> is no message type; put @gridloom.message before its class",
        "True 8 (0, 3)",
        "server ends; {}",
    ]
    assert sorted(lines) == sorted(expected)
    assert f"message 'Block' of client@b {differently.split(' ', 1)[1]}" in errors


def test_a_wrong_message_that_was_waited_for_is_gone_and_the_next_is_read(program, tmp_path):
    body = (
        "@gl.message\nclass Word:\n    text: str\n"
        "@gl.process\ndef server(me):\n    me.listen(4000)\n"
        "    try:\n        me.wait(Word)\n    except gl.ArgumentError as error:\n        print(error.kind, error)\n"
        "    print(me.wait(Word)[1])\n"
        "@gl.process\ndef client(me):\n    server = me.connect('a', 4000)\n"
        "    server.send('Word', b'x')\n    server.send(Word('right'))\n"
    )
    code, lines, errors = run(tmp_path, "simulate", body, ("server", "a"), ("client", "b"))
    assert code == 0, errors
    wrong = "Word message 'Word': raw bytes were received under its name, which is that of a typed message: send an object "
    wrong += "of that type, or use another name for bytes"
    assert lines == [wrong, "Word(text='right')"]


def test_the_second_message_of_a_type_is_shorter_by_its_declaration(program, tmp_path):
    body = (
        "@gl.message\nclass Word:\n    text: str\n"
        "@gl.process\ndef server(me):\n    me.listen(4000)\n"
        "    print([b'struct Word' in me.wait_for('Word')[1] for _ in range(3)])\n"
        "@gl.process\ndef client(me):\n    server = me.connect('a', 4000)\n"
        "    try:\n        server.send(Word(1))\n    except gl.ArgumentError:\n        pass\n"
        "    for _ in range(3):\n        server.send(Word('a'))\n"
    )
    code, lines, errors = run(tmp_path, "simulate", body, ("server", "a"), ("client", "b"))
    assert (code, lines) == (0, ["[True, False, False]"]), errors


LEAVING = """
import sys
@gl.process
def server(me):
    me.listen(4000)
    client, _ = me.wait_for("hi")
    client.send("unread", b"x")
    me.sleep(0.6)
    me.log(f"got {len(me.wait_for('big', timeout=5)[1])}")
    for _ in range(2):
        try:
            client.wait_for("more", timeout=20)
        except gl.ConnectionClosed:
            me.log("closed")
@gl.process
def client(me, how):
    server = me.connect("b", 4000)
    server.send("hi")
    me.sleep(0.3)
    server.send("big", bytes(300_000))
    if how == "close":
        server.close()
        try:
            server.wait_for("more", timeout=20)
        except gl.ConnectionClosed:
            me.log("closed here")
    if how == "exit":
        sys.exit(0)
    if how == "fail":
        sys.exit(3)
"""


@pytest.mark.parametrize("world", ["simulate", "deploy"])
@pytest.mark.parametrize("how", ["close", "return", "exit", "fail"])
def test_what_was_sent_arrives_however_the_sender_leaves(program, tmp_path, world, how):
    status, _, errors = run(tmp_path, world, LEAVING, ("server", "b"), ("client", "a", how))
    assert (status == 0) == (how != "fail"), errors
    assert "got 300000" in errors
    assert errors.count("server@b: closed") == 2, errors
    assert errors.count("closed here") == (how == "close"), errors


NUMBERS = """
@gl.process
def asks(me):
    nan, inf = float("nan"), float("inf")
    calls = [lambda: me.sleep(nan), lambda: me.compute(inf), lambda: me.wait_for("x", timeout=nan),
             lambda: me.handle(nan), lambda: me.handle_for(nan), lambda: me.after(nan, print), lambda: me.every(0, print)]
    for call in calls:
        try:
            call()
        except gl.UsageError as error:
            me.log(f"told {error}")
    def tick():
        ticks.append(me.now())
        me.sleep(0.02)
    ticks = []
    me.every(0.01, tick)
    me.handle_for(0.3)
    me.log(f"ended {len(ticks) < 30}")
    with me.measure("outer"):
        begin = me.now()
        with me.measure("inner"):
            sum(range(3_000_000))
        inner = me.now() - begin
    me.log(f"once {me.now() - begin < 1.5 * inner or not me.simulated}")
"""


@pytest.mark.parametrize("world", ["simulate", "deploy"])
def test_numbers_that_cannot_be_meant_and_timers_that_are_late(program, tmp_path, world):
    status, _, errors = run(tmp_path, world, NUMBERS, ("asks", "a"))
    assert status == 0, errors
    assert errors.count("told ") == 7, errors
    assert "ended True" in errors and "once True" in errors, errors
