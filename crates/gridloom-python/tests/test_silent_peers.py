"""Sessions with addresses at which a program accepts connections, and does not answer or answers something else."""

import contextlib
import importlib.util
import logging
import socket
import subprocess
import sys
import threading
import time

import gridloom as gl
import pytest
from engine_functions import half
from gridloom.common import reported_wait

# Far more than the limits of the connections, far less than forever.
PATIENCE_SECONDS = 60


class Peer:
    """Accepts connections, and sends these bytes on each."""

    def __init__(self, answer=b""):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.answer, self.accepted = self.listener.getsockname()[1], answer, []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # it is closed
            while True:
                connection, _ = self.listener.accept()
                self.accepted.append(connection)
                connection.sendall(self.answer)

    def close(self):
        for one in (self.listener, *self.accepted):
            one.close()


@pytest.fixture
def peer(request):
    peer = Peer(getattr(request, "param", b""))
    yield peer
    peer.close()


def error_of(connect):
    """The error of a connection, which has to end in time."""
    raised = []

    def run():
        try:
            connect().close()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the connection waits without end"
    [error] = raised
    return error


def needs(module):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:PORT",
        ["127.0.0.1:PORT"],
        pytest.param("dask://127.0.0.1:PORT", marks=needs("distributed")),
        pytest.param("ray://127.0.0.1:PORT", marks=needs("ray")),
    ],
)
def test_a_silent_peer_is_reported_after_the_time_limit(peer, address):
    """Earlier, a connection to Dask waited without end, and the limits of the others were fixed."""

    def connect():
        if isinstance(address, list):
            return gl.connect(servers=[one.replace("PORT", str(peer.port)) for one in address], timeout=1.5)
        return gl.connect(address.replace("PORT", str(peer.port)), functions=[half] if "//" in address else [], timeout=1.5)

    began = time.monotonic()
    error = error_of(connect)
    assert isinstance(error, gl.ConnectError), repr(error)
    text = str(error)
    assert f"127.0.0.1:{peer.port}" in text and "1.5 s" in text, text
    assert any(remedy in text for remedy in ("check the address", "check its log", "start one with")), text
    assert time.monotonic() - began < 12


# The banner of an SSH server, an error of HTTP, and a length that no message has.
ANSWERS = [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"\xff" * 64]


@needs("distributed")
@pytest.mark.parametrize("peer", ANSWERS, indirect=True)
def test_a_peer_that_is_no_scheduler_of_dask_is_reported(peer):
    """Earlier, the client was closed by the garbage collector, which could block for ever while another client started."""
    before = set(threading.enumerate())
    error = error_of(lambda: gl.connect(f"dask://127.0.0.1:{peer.port}", functions=[half], timeout=1.5))
    assert isinstance(error, gl.ConnectError) and f"no Dask scheduler answers at tcp://127.0.0.1:{peer.port}" in str(error), repr(error)
    assert "IO loop" not in {thread.name for thread in set(threading.enumerate()) - before}


@needs("distributed")
def test_a_connection_that_failed_leaves_no_socket(peer):
    # On a busy machine, a short time limit can pass before Dask opens a socket at all.
    for limit in (0.5, 2, 8, 30):
        error_of(lambda limit=limit: gl.connect(f"dask://127.0.0.1:{peer.port}", functions=[half], timeout=limit))
        if peer.accepted:
            break
    assert peer.accepted
    for connection in peer.accepted:
        connection.settimeout(PATIENCE_SECONDS)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1 << 16):
                pass


def test_a_long_wait_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(reported_wait, "_REPORT_SECONDS", 0.01)
    logged = threading.Event()
    monkeypatch.setattr(logging.getLogger("gridloom.session"), "warning", lambda text: (texts.append(text), logged.set()))
    texts = []
    with reported_wait.reported_wait("somebody", 3.0):
        assert logged.wait(PATIENCE_SECONDS)
    assert texts == ["somebody has not answered for 0.01 s; the connection fails after 3 s"]
    with reported_wait.reported_wait("somebody", 0.01):
        pass
    assert len(texts) == 1


@pytest.mark.parametrize("timeout", [-1, "5", float("nan")])
def test_time_limits_are_checked(timeout):
    with pytest.raises(gl.UsageError, match="connect: timeout is a number of seconds from 0 up"):
        gl.connect("127.0.0.1:1", timeout=timeout)


def connector_fails(protocol, endpoint, folder):
    """Return the errors of a connector that cannot start."""
    command = [sys.executable, "-m", "gridloom.connector", "--protocol", protocol, "--endpoint", endpoint, "--module", "m"]
    limits = ["--answer-within", "1.5", "--answer-limit", "1000000", "--folder", str(folder)]
    ended = subprocess.run([*command, *limits], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 1 and endpoint in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr


SERVERS = [("v2", "http://"), ("v2", "https://"), ("xml-rpc", "http://"), *[pytest.param("grpc", one, marks=needs("grpc")) for one in ("", "https://")]]


@pytest.mark.parametrize(("protocol", "scheme"), SERVERS)
def test_a_silent_server_is_reported_after_the_time_limit(peer, protocol, scheme, tmp_path):
    assert "did not answer" in connector_fails(protocol, f"{scheme}127.0.0.1:{peer.port}", tmp_path)


@pytest.mark.parametrize("peer", ANSWERS, indirect=True)
@pytest.mark.parametrize(("protocol", "scheme"), SERVERS)
def test_a_peer_that_is_no_server_of_the_protocol_is_reported(peer, protocol, scheme, tmp_path):
    connector_fails(protocol, f"{scheme}127.0.0.1:{peer.port}", tmp_path)
