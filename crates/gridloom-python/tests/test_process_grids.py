"""Processes that use a grid beside their messages: the same programs in simulation and for real."""

import json
import subprocess
import sys
from pathlib import Path

import gridloom as gl

PLATFORM = """
[[host]]
name = "a"
speed = "1Gf"
[[host]]
name = "b"
speed = "1Gf"
properties = { role = "none" }
[[host]]
name = "server-1"
speed = "10Gf"
[[host]]
name = "server-2"
speed = "10Gf"
[[star]]
name = "lan"
hosts = ["a", "b", "server-1", "server-2"]
bandwidth = "100MBps"
latency = "1ms"
"""

PROGRAM = """
import gridloom as gl
import numpy as np

@gl.process
def collector(me):
    me.listen(4000)
    for _ in range(2):
        peer, payload = me.wait_for("done")
        print(peer.name, payload.decode(), flush=True)

@gl.process
def worker(me, n, delay):
    n = int(n)
    peer = me.connect("b", 4000)
    with gl.local(servers=2) as grid:
        dgemm = grid.function("linalg/dgemm")
        a = np.ones((n, n))
        with grid.group() as group:
            abc = dgemm(dgemm(a, a), a)
        total = abc.get().sum()
        # Outside a group, and with time passing on the grid's clock.
        assert dgemm(a, a).shape == (n, n)
        assert group.report().measured_seconds > 0
        before = grid.now()
        grid.advance(float(delay))
        assert grid.now() >= before
        with gl.local(servers=1) as other:
            assert other.simulated == me.simulated
    try:
        dgemm(a, a)
    except gl.UsageError as error:
        assert "closed" in str(error)
    me.sleep(float(delay))
    peer.send("done", f"{n} {total:.0f}")

gl.run_processes()
"""


def run(folder, world, program, deployment, *options):
    """Its exit status, the lines that the program printed, and errors."""
    text = "".join(
        f"[[process]]\nhost = '{host}'\nfunction = '{function}'\narguments = {list(arguments)}\n"
        for host, function, *arguments in deployment
    )
    (folder / "deployment.toml").write_text(text)
    (folder / "platform.toml").write_text(PLATFORM)
    (folder / "program.py").write_text(program)
    gridloom = Path(gl.__file__).parent / "bin" / "gridloom"
    command = [gridloom, world, "-d", "deployment.toml"]
    if world == "simulate":
        command += ["-p", "platform.toml", "--report", "report.json", *options]
    done = subprocess.run(
        [*command, "--", sys.executable, "program.py"], capture_output=True, text=True, cwd=folder, timeout=120
    )
    return done.returncode, [line.split("| ", 1)[-1] for line in done.stdout.splitlines()], done.stderr


WORKERS = [("a", "worker", "40", "0.1"), ("b", "worker", "30", "0.3"), ("b", "collector")]


def test_processes_are_clients_of_one_simulated_grid_and_talk(program, tmp_path):
    runs = []
    for _ in range(2):
        code, lines, errors = run(tmp_path, "simulate", PROGRAM, WORKERS)
        assert code == 0, errors
        # Bodies are skipped: zeros.
        assert lines[:2] == ["worker@a 40 0", "worker@b 30 0"]
        runs.append(json.loads((tmp_path / "report.json").read_text()))
    assert runs[0] == runs[1]
    assert len(runs[0]["groups"]) == 2
    senders = {pair.split(" -> ")[0] for pair in runs[0]["bytes_by_pair"]}
    assert {"worker@a", "worker@b"} <= senders


def test_bodies_run_on_request(program, tmp_path):
    code, lines, errors = run(
        tmp_path, "simulate", PROGRAM, WORKERS, "--execute", "--timeline", "timeline.html", "--trace", "trace.json"
    )
    assert code == 0, errors
    assert lines[:2] == [f"worker@a 40 {40**4}", f"worker@b 30 {30**4}"]
    # Equal servers: either may have the calls.
    assert "server-" in (tmp_path / "timeline.html").read_text()
    assert "worker@b" in (tmp_path / "trace.json").read_text()


def test_the_same_program_for_real(program, tmp_path):
    code, lines, errors = run(tmp_path, "deploy", PROGRAM, WORKERS)
    assert code == 0, errors
    assert sorted(lines) == [f"worker@a 40 {40**4}", f"worker@b 30 {30**4}"]


def test_functions_that_the_servers_do_not_offer_are_named(program, tmp_path):
    (tmp_path / "more.py").write_text("import gridloom as gl\n\n@gl.function\ndef one() -> int:\n    return 1\n")
    text = """
import gridloom as gl

@gl.process
def first(me):
    with gl.local(functions=["more.py"]) as grid:
        assert "more/one" in grid.functions()

@gl.process
def second(me):
    me.sleep(1)
    with gl.local(functions=["more.py"]):
        pass
    try:
        gl.local(functions=["other.py"])
    except gl.UsageError as error:
        print(error)

gl.run_processes()
"""
    code, lines, errors = run(tmp_path, "simulate", text, [("a", "first"), ("b", "second")])
    assert code == 0, errors
    assert lines[0].startswith("other.py: the simulated servers run already, and do not offer it; name it with")


def test_a_grid_outside_of_the_processes_is_refused(program, tmp_path):
    text = "import gridloom as gl\n\n@gl.process\ndef first(me):\n    pass\n\ngl.local()\n"
    code, _, errors = run(tmp_path, "simulate", text, [("a", "first")])
    assert code != 0
    assert "processes of the program open a grid within their functions" in errors


THOUSAND = """
import gridloom as gl

@gl.process
def node(me, number, count):
    number, count = int(number), int(count)
    me.listen(1000 + number)
    right = me.connect("ab"[(number + 1) % count % 2], 1000 + (number + 1) % count)
    if number == 0:
        right.send("token", "0")
    for turn in range(3):
        _, token = me.wait_for("token", timeout=100)
        me.compute(1e6 * (number % 7))
        if number or turn < 2:
            right.send("token", str(int(token) + 1))
    if number == 0:
        print(token.decode())

gl.run_processes()
"""


def test_a_thousand_processes_on_threads_give_one_trace(program, tmp_path):
    deployment = [("ab"[number % 2], "node", str(number), "1000") for number in range(1000)]
    hashes = set()
    for _ in range(2):
        code, lines, errors = run(tmp_path, "simulate", THOUSAND, deployment)
        assert code == 0, errors
        assert lines[0] == "2999"
        hashes.add(json.loads((tmp_path / "report.json").read_text())["trace_hash"])
    assert len(hashes) == 1
