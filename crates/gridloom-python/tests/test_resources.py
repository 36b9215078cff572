"""Processors, memory and descriptors that a program may use: how they are counted, and which errors report that they are exhausted."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading

import gridloom as gl
import numpy as np
import pytest
from gridloom import _gridloom


def run(program: str, first: str = "") -> str:
    """Run a program in a process of its own, after a statement that limits it."""
    ended = subprocess.run([sys.executable, "-c", first + "\n" + program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"


def test_the_affinity_of_the_program_counts_everywhere():
    program = """
import logging, os, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import gridloom as gl
from gridloom import _gridloom
for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
    del os.environ[name]
def threads():
    return {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
print(_gridloom.processors())
with gl.Executor() as pool:
    print(sorted(set(pool.submit(threads).result().values())), len(pool.submit(threads).result()))
"""
    lines = run(program, ONE_CORE).splitlines()
    assert "1" in lines and "['1'] 5" in lines
    assert any(line.startswith("1 server of 1 slot: 1 core by affinity, ") for line in lines), lines
    assert _gridloom.processors() <= len(os.sched_getaffinity(0))


def test_omp_num_threads_of_the_user_overrides_the_share_of_the_slots(monkeypatch):
    def threads():
        return {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}

    for name in list(threads()):
        monkeypatch.delenv(name)
    # OpenBLAS prefers its own variable to this one, so it must not get one.
    with gl.local(1, environment={"OMP_NUM_THREADS": "3"}) as grid:
        assert grid.run(threads).get() == {"OMP_NUM_THREADS": "3"}
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with gl.local(1) as grid:
        assert grid.run(threads).get() == {"OMP_NUM_THREADS": "5"}


@pytest.mark.parametrize("is_child", [False, True])
def test_a_worker_that_holds_too_much_memory_is_killed_and_its_call_fails_with_the_limit(is_child):
    def holds(size, is_child):
        if is_child:
            hold = f"import time; held = b'x' * {size}; time.sleep(600)"
            return subprocess.run([sys.executable, "-c", hold], check=False).returncode
        held = b"x" * size
        while True:
            len(held)

    with gl.local(1, worker_memory=200 << 20) as grid:
        pid = grid.run(os.getpid).get()
        with pytest.raises(gl.OutOfMemory) as error:
            grid.run(holds, 400 << 20, is_child).get()
        error = error.value
        assert (error.resource, error.limit_bytes) == ("worker", 200 << 20) and error.needed_bytes > 200 << 20
        assert "the limit is 200 MiB" in str(error) and "--worker-memory" in str(error)
        assert grid.run(os.getpid).get() != pid, "another worker continues"
        # Arguments and results in the store do not count.
        assert grid.run(np.sum, np.ones(60 << 20 >> 3)).get() == 60 << 20 >> 3


@pytest.mark.parametrize("kind", ["anonymous", "named", "child"])
def test_shared_memory_that_a_function_maps_counts(kind):
    def holds(kind, size):
        import mmap
        import subprocess
        import sys
        from multiprocessing import shared_memory

        if kind == "child":
            hold = f"import mmap, time; held = mmap.mmap(-1, {size}); held.write(b'x' * {size}); time.sleep(600)"
            return subprocess.run([sys.executable, "-c", hold], check=False).returncode
        named = shared_memory.SharedMemory(create=True, size=size) if kind == "named" else None
        if named is not None:
            named.unlink()
        held = mmap.mmap(-1, size) if named is None else named.buf
        for at in range(0, size, 1 << 20):
            held[at : at + (1 << 20)] = b"x" * (1 << 20)
        while True:
            len(held)

    with gl.local(1, worker_memory=200 << 20) as grid:
        with pytest.raises(gl.OutOfMemory) as error:
            grid.run(holds, kind, 400 << 20).get()
        assert error.value.resource == "worker" and error.value.needed_bytes > 200 << 20
        # Arguments and results in the store do not count.
        # The function has a copy of the argument, which counts; with the store's, it would exceed the limit.
        assert grid.run(np.sum, np.ones(120 << 20 >> 3)).get() == 120 << 20 >> 3
        assert grid.run(np.ones, 60 << 20 >> 3).get().sum() == 60 << 20 >> 3


def test_a_local_grid_shows_what_it_has_started(capfd):
    with gl.local(2, slots=3, memory="1.5GiB") as grid:
        assert re.fullmatch(r"2 servers of 3 slots: \d+ cores? by affinity, \d+ on the machine, .*quota.*; each server stores up to 1.5 GiB", grid.started)
        assert grid.started in repr(grid) and grid.started in grid._repr_html_()
    assert not capfd.readouterr().out


def test_sizes_have_units():
    with gl.local(1, memory="1.5 gib", worker_memory="64MB") as grid:
        assert [server.memory_bytes for server in grid.servers()] == [3 << 29]
    # Below the least size without a unit.
    with gl.local(1, memory="512KiB") as grid:
        assert [server.memory_bytes for server in grid.servers()] == [512 << 10]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (8, "memory: the size 8 has no unit and is below 1 MiB; write 8GiB, 8MiB or 8B"),
        ("8", "write 8GiB"),
        (0, "less than 1 byte"),
        (-1, "'-1' is not a size"),
        (2**63, "the limit is 8 EiB"),
        ("8 parsecs", "unit 'parsecs'"),
        (8e9, "memory: expected a size such as '8GiB', or a number of bytes; got 8000000000.0"),
        (b"8GiB", "or a number of bytes; got b'8GiB'"),
    ],
)
def test_a_wrong_size_is_an_error_that_names_it(wrong, expected):
    with pytest.raises(gl.UsageError, match=re.escape(expected)):
        gl.local(1, memory=wrong)
    with pytest.raises(gl.UsageError, match=re.escape(expected)):
        gl.program(["true"], memory=wrong, name="sized")


def test_a_program_without_descriptors_gets_an_error_with_the_limit():
    program = """
import resource
import numpy as np
import gridloom as gl
with gl.local(1) as grid:
    most = len(__import__("os").listdir("/proc/self/fd")) + 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        held = [grid.empty((50_000,)) for _ in range(100)]
    except gl.OutOfMemory as error:
        print(most, error.place, error.needed_bytes, error)
"""
    most, *_ = words = run(program).split()
    text = " ".join(words)
    assert "in this program 400000" in text and f"is {most}; raise it with 'ulimit -n'" in text


@pytest.fixture
def agent():
    """Starts an agent with a limit of descriptors, and returns its address."""
    program = os.environ.get("GRIDLOOM_PROGRAM") or os.path.join(os.path.dirname(gl.__file__), "bin", "gridloom")
    started = []

    def start(limit: int) -> str:
        agent = subprocess.Popen(
            [program, "agent", "--listen", "127.0.0.1:0", "--json", "--until-stdin-closes"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))  # fmt: skip
        started.append(agent)
        return str(json.loads(agent.stdout.readline())["address"])

    yield start
    for one in started:
        one.communicate()


def test_a_program_without_descriptors_for_a_session_gets_an_error_with_the_limit(agent):
    """At whichever step they run out."""
    program = """
import os, resource
import gridloom as gl
opened = len(os.listdir("/proc/self/fd"))
for most in range(opened, opened + 20):
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        try:
            gl.connect(AGENT).close()
            line = "connected"
        except gl.ConnectError as error:
            line = f"the limit of this process is {most}; raise it with 'ulimit -n' before the process starts" in str(error)
            line = f"{line} {error}"
        except BaseException as error:
            line = repr(error)
        print(line, flush=True)
        os._exit(0)
    os.wait()
""".replace("AGENT", repr(agent(1024)))
    lines = run(program).splitlines()
    refused = [line for line in lines if line != "connected"]
    assert len(lines) == 20 and 0 < len(refused) < 20, lines
    assert all(line.startswith("True ") for line in refused), refused


class Relay:
    """Passes connections on to an agent, but is silent until the first connection is closed by the dialler."""

    def __init__(self, agent: str):
        host, port = agent.rsplit(":", 1)
        self.agent, self.listener = (host, int(port)), socket.create_server(("127.0.0.1", 0))
        self.given_up = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            if self.given_up.is_set():
                far = socket.create_connection(self.agent)
                for one, other in [(near, far), (far, near)]:
                    threading.Thread(target=self.copy, args=(one, other), daemon=True).start()
            else:
                threading.Thread(target=self.drain, args=(near,), daemon=True).start()

    def drain(self, near):
        while near.recv(1 << 16):
            pass
        self.given_up.set()

    @staticmethod
    def copy(one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        finally:
            other.shutdown(socket.SHUT_WR)


def test_an_agent_that_is_slow_to_answer_is_awaited(tmp_path):
    program = os.environ.get("GRIDLOOM_PROGRAM") or os.path.join(os.path.dirname(gl.__file__), "bin", "gridloom")
    agent = subprocess.Popen([program, "agent", "--listen", "127.0.0.1:0", "--json", "--until-stdin-closes"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        address = __import__("json").loads(agent.stdout.readline())["address"]
        relay = Relay(address)
        # The first dial fails after its time limit; the session then waits for a later one.
        with gl.connect(relay.address) as grid:
            assert relay.given_up.is_set() and len(grid.servers()) == 0
    finally:
        agent.communicate()


def test_the_error_about_a_silent_program_does_not_call_it_another_program():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(gl.ConnectError, match="a program listens there, but does not answer within 5 s; if that is the agent"):
            gl.connect(address)


def test_an_agent_without_descriptors_reports_it_and_recovers(agent):
    limit = 40
    address = agent(limit)
    grids = []
    with pytest.raises(gl.ConnectError, match=f"the node has no free file descriptors: the limit of that process is {limit}; raise it"):
        for _ in range(limit):
            grids.append(gl.connect(address))
    assert grids, "there were descriptors for some"
    grids.pop().close()
    gl.connect(address).close()
    for grid in grids:
        grid.close()
