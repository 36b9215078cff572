"""Groups on Ray: the contract of all engines and what Ray alone does, on one cluster of two nodes."""

import builtins
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import gridloom as gl
import numpy as np
import pytest
from engine_contract import Contract
from engine_functions import FUNCTIONS, bare, free_ports, half, product, waits_for
from gridloom.engines.ray import RayEngine

ray = pytest.importorskip("ray", reason="ray is not installed")

# Losses are noticed within a second or two.
QUICK = {"health_check_period_ms": 500, "health_check_failure_threshold": 2, "health_check_initial_delay_ms": 0}


@pytest.fixture(scope="module", autouse=True)
def _as_it_was():
    """Ray puts its own `print` and debugger in place of Python's, for all that runs in this process afterwards."""
    printed, debugger, hook = builtins.print, os.environ.get("PYTHONBREAKPOINT"), sys.breakpointhook
    yield
    builtins.print, sys.breakpointhook = printed, hook
    os.environ.pop("PYTHONBREAKPOINT", None)
    if debugger is not None:
        os.environ["PYTHONBREAKPOINT"] = debugger


@pytest.fixture(scope="module")
def client_port():
    """The port on which the cluster serves programs on other machines: addresses that begin with `ray://`."""
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def rays(tmp_path_factory, client_port):
    """A Ray cluster of two nodes, to which this process has a session."""
    from ray.cluster_utils import Cluster

    # Ray's sockets are in its folder, and the path of a socket has at most 107 bytes.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    environment = pytest.MonkeyPatch()
    environment.setenv("RAY_TMPDIR", folder)
    head = {"include_dashboard": False, "_system_config": QUICK, "ray_client_server_port": client_port}
    with bare(tmp_path_factory):
        cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        with bare(tmp_path_factory):
            cluster.add_node()
        ray.init(cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        started = [info.process for node in cluster.list_all_nodes() for of in node.all_processes.values() for info in of]
        cluster.shutdown()
        environment.undo()
        shutil.rmtree(folder, ignore_errors=True)
        assert all(one.poll() is not None for one in started)


@pytest.fixture(scope="class")
def grid(rays):
    with gl.connect(ray, functions=FUNCTIONS) as grid:
        yield grid


class TestContract(Contract):
    pass


def test_a_ray_that_was_not_tried_is_reported(rays, monkeypatch):
    monkeypatch.setattr(ray, "__version__", "2.61.0")
    with pytest.warns(gl.ConnectWarning, match="this program has Ray 2.61.0, and this version of Gridloom was tried with 2.60") as told:
        gl.connect(ray, functions=[half]).close()
    assert told[0].filename == __file__


def test_a_node_of_ray_that_is_killed_loses_no_result(rays, tmp_path):
    third = rays.add_node()
    with gl.connect(ray, functions=[product, waits_for, half]) as grid:
        assert len(grid._cluster.measured.slots) == 3
        x, gate = np.ones((300, 300)), tmp_path / "open"
        with grid.group(lambda problem: [index % 3 for index in range(len(problem.tasks))]) as group:
            made = [grid.function(product)(x, x) for _ in range(3)]
            held = [grid.function(waits_for)(os.fspath(gate), one) for one in made]
            ends = [grid.function(product)(one, one) for one in held]
        # All is made, also there, and nothing has gone on.
        assert all(one.get()[0, 0] == 300 for one in made)
        rays.remove_node(third, allow_graceful=False)
        gate.touch()
        assert all(np.array_equal(one.get(), x @ x @ x @ x) for one in ends)
        assert "not where the plan has them" in str(group.report())
        assert grid.function(half)(3.0) == 1.5


@gl.function(work="1")
def dies(x: float) -> float:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def test_a_call_that_kills_its_process_fails_alone(rays):
    with gl.connect(ray, functions=[half, dies]) as grid:
        with grid.group() as group:
            halves = [grid.function(half)(float(n)) for n in range(20)]
            killed = [grid.function(dies)(float(n)) for n in range(2)]
            after = grid.function(half)(killed[0])
            others = [grid.function(half)(float(n)) for n in range(20)]
        for failed in (*killed, after, group):
            with pytest.raises(gl.Crashed, match="its worker process ended while it ran"):
                failed.wait() if failed is group else failed.get()
        assert [one.get() for one in halves + others] == [n / 2 for n in range(20)] * 2
        with pytest.raises(gl.Crashed):
            grid.function(dies)(1.0)
        assert grid.function(half)(3.0) == 1.5


def test_a_session_of_ray_that_has_ended_is_reported(rays, monkeypatch):
    with gl.connect(ray, functions=[half]) as grid:
        with pytest.raises(gl.UsageError, match="this process has a session of Ray"):
            gl.connect("ray://127.0.0.1:1", functions=[half])
        ray.shutdown()
        with pytest.raises(gl.ServerLost, match="the session of Ray has ended"):
            grid.function(half)(1.0)
    with pytest.raises(gl.UsageError, match="Ray has no session in this process"):
        gl.connect(ray, functions=[half])
    with monkeypatch.context() as patch:
        patch.setattr(ray, "__version__", "2.60.99")
        with pytest.raises(gl.ConnectError, match=r"Version mismatch: .*\n.*Ray: 2.*\n(.*\n)+ *Ray: 2.60.99"):
            RayEngine(rays.address)
    engine = RayEngine(rays.address)
    assert len(engine.workers()) == 2
    engine.close()
    assert not ray.is_initialized()
    ray.init(rays.address, log_to_driver=False)


# A program of its own: a process has one session of Ray.
LOSES_RAY = """
import sys

import engine_functions
import gridloom as gl

address, gate = sys.argv[1:]
with gl.connect(address, functions=[engine_functions.waits_for, engine_functions.half]) as grid:
    with grid.group():
        held = grid.function(engine_functions.waits_for)(gate, engine_functions.np.ones((2, 2)))
    print("held", flush=True)
    for call in (held.get, lambda: grid.function(engine_functions.half)(1.0)):
        try:
            print("no error", call())
        except gl.ServerLost as error:
            print(" ".join(str(error).split()), flush=True)
with gl.connect(input(), functions=[engine_functions.half]) as grid:
    print(grid.function(engine_functions.half)(1.0))
"""


@pytest.mark.skipif(" " in sys.executable, reason="Ray starts its client server by an unquoted path of Python")
def test_a_program_whose_ray_dies_connects_to_another(rays, client_port, tmp_path, tmp_path_factory):
    ports = free_ports(2)
    # Names of sockets have a limit.
    with contextlib.ExitStack() as parts, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as place:
        command = [os.fspath(pathlib.Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--disable-usage-stats"]
        command += ["--port", str(ports[0]), "--ray-client-server-port", str(ports[1]), "--node-ip-address", "127.0.0.1"]
        command += ["--include-dashboard=false", "--num-cpus", "1", "--object-store-memory", str(100 << 20), "--temp-dir", place]
        # Else the program and the cluster wait half a minute for each other.
        soon = {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "3", "RAY_AUTH_MODE": "disabled"}

        with bare(tmp_path_factory):
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            dies = subprocess.Popen(command, env={**os.environ, **soon}, start_new_session=True, **quiet)

        def kill():
            # Its processes are in its group, but for workers, which end with them.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(dies.pid, signal.SIGKILL)
            dies.wait()

        parts.callback(kill)
        said = ""
        while "Ray runtime started" not in said:
            line = dies.stdout.readline()
            assert line, said
            said += line
        path = os.pathsep.join([os.fspath(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        words = [sys.executable, "-c", LOSES_RAY, f"ray://127.0.0.1:{ports[1]}", os.fspath(tmp_path / "open")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        program = parts.enter_context(subprocess.Popen(words, env={**os.environ, **soon, "PYTHONPATH": path}, **pipes))
        parts.callback(program.kill)
        assert program.stdout.readline() == "held\n"
        kill()
        assert re.match("the Ray cluster answers no more: .*; when it is back, connect anew", program.stdout.readline())
        assert program.stdout.readline() == "the session of Ray has ended: connect anew, when the cluster is there\n"
        assert program.communicate(f"ray://{rays.head_node.node_ip_address}:{client_port}\n")[0] == "0.5\n"
        assert program.returncode == 0
