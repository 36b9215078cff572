"""Tests of the progress bars of groups, maps and transfers: on a terminal they are drawn, elsewhere nothing is."""

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from conftest import FUNCTIONS
from gridloom.common import executable
from gridloom.display import bars


class Terminal:
    """A pseudo-terminal for standard error, with the text drawn on it so far. A thread reads it, so that no writer blocks."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self._read, write = os.openpty()
        self.stream = os.fdopen(write, "w")
        self.drawn = ""
        self._more = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def take(self):
        """Make it standard error. The test itself has to do so, as pytest replaces standard error for each phase of a test."""
        self._monkeypatch.setattr(sys, "stderr", self.stream)

    def _run(self):
        try:
            while data := os.read(self._read, 1 << 16):
                with self._more:
                    self.drawn += data.decode()
                    self._more.notify()
        except OSError:
            pass

    def until(self, pattern):
        """Wait until the pattern is drawn; return the match, and discard the text up to its end."""
        with self._more:
            while (found := re.search(pattern, self.drawn)) is None:
                assert self._more.wait(60), f"{pattern} is not in {self.drawn!r}"
            self.drawn = self.drawn[found.end() :]
            return found

    def close(self):
        self.stream.close()


@pytest.fixture
def terminal(monkeypatch):
    terminal = Terminal(monkeypatch)
    # The width to draw for, as the pseudo-terminal has no size.
    monkeypatch.setenv("COLUMNS", "200")
    yield terminal
    monkeypatch.undo()
    terminal.close()


def is_watched():
    return any(thread.name == "gridloom-progress" for thread in threading.enumerate())


def all_is_over():
    """Wait until the thread that draws progress has ended, since nothing is left to draw."""
    wait_until(lambda: not is_watched())
    return True


def wait(folder, number):
    Path(folder, f"runs-{number}").touch()
    while not Path(folder, f"ends-{number}").exists():
        time.sleep(0.001)
    return number


def test_a_bar_shows_what_tqdm_shows(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: now[0])
    bar = bars.Bar("group", "calls", 84)
    now[0] += 3
    bar.move(42, 84, "2 failed")
    assert bar.text() == "group:  50%|##########          | 42/84 [00:03<00:03, 14 calls/s, 2 failed]"
    now[0] += 3600
    bar.move(84, 84)
    assert bar.text().startswith("group: 100%|####################| 84/84 [1:00:03<00:00, ")
    assert bar.text(0).startswith("group: 100% 84/84 [")
    sent = bars.Bar("sending", "B")
    now[0] += 2
    sent.move(120e6, None)
    assert sent.text() == "sending: 120MB [00:02, 60MB/s]"
    sent.move(0, 1.5e12)
    assert sent.text() == "sending:   0%|                    | 0/1.5T [00:02<?, 0B/s]"


def test_a_group_shows_how_many_calls_have_ended(program, terminal, tmp_path):
    terminal.take()
    module = tmp_path / "waits.py"
    module.write_text(
        "import os\nimport gridloom as gl\n@gl.function\ndef wait(gate: str) -> int:\n"
        "    while not os.path.exists(gate):\n        pass\n    if gate.endswith('fails'):\n        raise ValueError(gate)\n    return 1\n"
    )
    gates = [tmp_path / "one", tmp_path / "two", tmp_path / "fails"]
    with gl.local(servers=3, functions=[module]) as grid:
        with grid.group(progress=True) as group:
            results = [grid.function("waits/wait")(str(gate)) for gate in gates]
        terminal.until(r"\rgroup:   0%\|                    \| 0/3 ")
        gates[0].touch()
        terminal.until(r"\rgroup:  33%\|######              \| 1/3 ")
        print("above", file=sys.stdout)
        gates[2].touch()
        terminal.until("2/3 .*, 1 failed]")
        gates[1].touch()
        assert results[0].get() == results[1].get() == 1
        with pytest.raises(gl.RemoteError):
            group.wait()
        # The last bar is on a line of its own, and is drawn once.
        terminal.until(r"group: 100%\|####################\| 3/3 \[.*, 1 failed\]\r\n$")
        assert group.report().tasks_failed == 1
        # The bar of a group that nobody waits for ends, too.
        with grid.group(progress=True):
            grid.function("waits/wait")(str(gates[0]))
        terminal.until(r"group: 100%\|####################\| 1/1 \[.*\]\r\n")
    assert all_is_over() and "100%" not in terminal.drawn


def test_a_map_shows_how_many_calls_have_ended(program, terminal, tmp_path):
    terminal.take()
    with gl.local(servers=2, progress=True) as grid:
        results = grid.map(wait, itertools.repeat(str(tmp_path)), range(4))
        (tmp_path / "ends-1").touch()
        terminal.until(r"wait: 1 calls ")
        for number in (0, 2, 3):
            (tmp_path / f"ends-{number}").touch()
        assert list(itertools.islice(results, 4)) == [0, 1, 2, 3]
        results.close()
        terminal.until(r"wait: 4 calls \[.*\]\r\n")
        assert sum(grid.map(abs, range(1000), chunksize=30)) == sum(range(1000))
        terminal.until(r"abs: 100%\|#{20}\| 1000/1000 \[.*\]\r\n")
        with pytest.raises(ZeroDivisionError):
            list(grid.map(divmod, [1, 1], [1, 0]))
        terminal.until(r"divmod: .*/2 \[.*\]\r\n")
        assert list(grid.map(abs, [-1], progress=False)) == [1]


def test_nothing_is_drawn_without_a_terminal_or_request(program, capfd, terminal, monkeypatch):
    terminal.take()
    with gl.local(servers=1) as grid:
        assert list(grid.map(abs, [-1])) == [1]
        with grid.group() as group:
            norm = grid.function("linalg/dnrm2")(np.ones(4))
        assert norm.get() == 2 and not is_watched()
        group.wait()
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    with gl.local(servers=1, progress=True) as grid:
        assert list(grid.map(abs, [-1])) == [1]
        with grid.group(progress=True) as group:
            norm = grid.function("linalg/dnrm2")(np.ones(4))
        group.wait()
        assert norm.get(progress=True) == 2 and not is_watched()
    assert capfd.readouterr() == ("", "")
    for wrong in (1, "yes", None):
        with pytest.raises(gl.UsageError, match="progress is .*; expected True or False"):
            gl.local(servers=1, progress=wrong)


def test_a_simulated_grid_shows_no_bars(platform, terminal):
    terminal.take()
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        with grid.group(progress=True) as group:
            product = grid.function("tests/matmul")(np.eye(3), np.eye(3))
        product.get(progress=True)
        group.wait()
    assert all_is_over()
    print("end", file=terminal.stream, flush=True)
    terminal.until("^end")


class Narrow:
    """A proxy for a server. It forwards about `BYTES` bytes in each direction, and the rest once `opened` is set."""

    BYTES = 5 << 20

    def __init__(self, port):
        self.port, self.target = None, port
        self.opened = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        try:
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target()))
                for source, sink in ((near, far), (far, near)):
                    source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()
        except OSError:
            pass

    def _forward(self, source, sink):
        passed = 0
        try:
            while data := source.recv(1 << 16):
                if passed > self.BYTES:
                    self.opened.wait()
                passed += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.opened.set()
        self._listener.close()


@pytest.fixture
def narrow(program, monkeypatch, tmp_path):
    """Start a server behind such a proxy; yield the proxy."""
    monkeypatch.delenv("GRIDLOOM_AGENT", raising=False)
    module = tmp_path / "arrays.py"
    module.write_text(
        "import gridloom as gl\n"
        "@gl.function\ndef zeros(n: int) -> gl.Array['float64', 'n']:\n    import numpy\n    return numpy.zeros(n)\n"
        "@gl.function\ndef total(x: gl.Array['float64', 'n']) -> float:\n    return float(x.sum())\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    way = Narrow(lambda: port)
    command = [executable.program() or "gridloom", "serve", str(module), "--no-agent", "--no-shared-memory", "--models", "none"]
    command += ["--listen", f"127.0.0.1:{port}", "--advertise", f"127.0.0.1:{way.port}", "--python", sys.executable]
    command += ["--json", "--quiet", "--until-stdin-closes"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["address"] == f"127.0.0.1:{way.port}"
    yield way
    way.close()
    process.kill()
    process.communicate()


SIZE = 8_000_000


def test_a_result_shows_how_much_of_it_has_arrived(narrow, terminal):
    terminal.take()
    with gl.connect(servers=[f"127.0.0.1:{narrow.port}"]) as grid:
        with grid.group() as group:
            zeros = grid.function("arrays/zeros")(SIZE)
        group.wait()
        fetched = []
        thread = threading.Thread(target=lambda: fetched.append(zeros.get(progress=True)))
        thread.start()
        part = terminal.until(r"arrays/zeros: +(\d+)%\|#* *\| [\d.]+M/64M \[")
        assert 0 < int(part[1]) < 100 or terminal.until(r"arrays/zeros: +([1-9]\d?)%")
        narrow.opened.set()
        thread.join()
        terminal.until(r"arrays/zeros: 100%\|#{20}\| 64M/64M \[.*\]\r\n")
        assert len(fetched[0]) == SIZE and all_is_over()


def test_a_session_shows_what_takes_long_on_the_network(narrow, terminal):
    terminal.take()
    with gl.connect(servers=[f"127.0.0.1:{narrow.port}"], progress=True) as grid:
        call = grid.function("arrays/total").submit(np.ones(SIZE))
        terminal.until(r"sending: +\d+%\|#* *\| [\d.]+M/64M \[")
        narrow.opened.set()
        assert call.get() == SIZE
        terminal.until(r"sending: 100%\|#{20}\| 64M/64M \[.*\]\r\n")
    assert all_is_over()


def test_what_functions_print_is_shown_above_the_bars(terminal, capsys):
    terminal.take()
    bar = bars.Bar("group", "calls", 4)
    bar.move(1, 4)
    shown = gl.display.output.Shown()
    shown(gl.display.Output("s", "m/f", 1, text="of a call\n", is_error=True))
    shown(gl.display.Output("s", "m/f", 1, done=1.0, total=2.0))
    both = terminal.until(r"\r\[f@s\] of a call\r\n.*\r(group:  25%.*\])  (f@s:  50%.*\])")
    assert "\n" not in both[1]
    bar.close()
    terminal.until(r"group:  25%\|#####               \| 1/4 \[.*\]\r\n\rf@s:  50%")
    shown(gl.display.Output("s", "m/f", 1, done=2.0, total=2.0))
    terminal.until(r"f@s: 100%\|#{20}\| 2/2 \[.*\]\r\n$")
