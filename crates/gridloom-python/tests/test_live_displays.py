"""What a notebook shows changes while calls run: in a kernel as notebooks have it."""

import re
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest

manager = pytest.importorskip("jupyter_client.manager", reason="ipykernel is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

SETUP = """
import os, time
import gridloom as gl

def wait(gate):
    while not os.path.exists(gate):
        time.sleep(0.001)

grid = gl.local(servers=2, functions=[{module!r}])
hold = grid.function("waits/hold")
"""
MODULE = """
import os, time
import gridloom as gl

@gl.function
def hold(gate: str) -> int:
    while not os.path.exists(gate):
        time.sleep(0.001)
    if gate.endswith("fails"):
        raise ValueError(gate)
    return 1
"""


class Notebook:
    """A kernel, and what it shows."""

    def __init__(self, client):
        self._client = client
        # What displays were changed to, in order.
        self._changes = []

    def run(self, cell):
        """Run a cell; give what it shows, in order, and its errors."""
        message = self._client.execute(cell)
        shown, errors = [], ""
        while True:
            told = self._next()
            if told["parent_header"].get("msg_id") != message:
                continue
            if told["msg_type"] in ("display_data", "execute_result"):
                shown.append(told["content"])
            elif told["msg_type"] == "error":
                errors += "\n".join(told["content"]["traceback"])
            elif told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
                assert not errors, errors
                return shown

    def _next(self):
        told = self._client.get_iopub_msg(timeout=60)
        if told["msg_type"] == "update_display_data":
            self._changes.append((place_of(told["content"]), told["content"]["data"]))
        return told

    def until(self, place, pattern):
        """Wait until that place shows something."""
        while True:
            while self._changes:
                changed, data = self._changes.pop(0)
                if changed == place and re.search(pattern, data["text/html"]):
                    return data
            self._next()


@pytest.fixture(scope="module")
def kernel(program, tmp_path_factory):
    module = tmp_path_factory.mktemp("live") / "waits.py"
    module.write_text(MODULE)
    # In an environment of its own there may be no specification of a kernel but that of this interpreter.
    kernels, client = manager.start_new_kernel(kernel_name="python3", extra_arguments=["--HistoryManager.enabled=False"])
    try:
        notebook = Notebook(client)
        notebook.run(SETUP.format(module=str(module)))
        yield notebook
        notebook.run("grid.close()")
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)


def place_of(shown):
    return shown["transient"]["display_id"]


def test_a_group_shows_how_far_it_is_until_it_has_ended(kernel, tmp_path):
    gates = [str(tmp_path / name) for name in ("one", "two")]
    kernel.run(f"with grid.group('heft') as group:\n    held = [hold(gate) for gate in {gates}]")
    (shown,) = kernel.run("group")
    assert "running: 0 of 2 calls ended" in shown["data"]["text/html"] and '<progress value="0" max="2"' in shown["data"]["text/html"]
    assert shown["data"]["text/plain"] == "<gridloom.Group: running: 0 of 2 calls ended>"
    (tmp_path / "one").touch()
    kernel.until(place_of(shown), 'running: 1 of 2 calls ended.*|<progress value="1" max="2"')
    # Another display takes over.
    (again,) = kernel.run("display(group)")
    assert place_of(again) != place_of(shown)
    (tmp_path / "two").touch()
    data = kernel.until(place_of(again), ">ended<")
    assert "predicted makespan" in data["text/html"] and "measured makespan" in data["text/html"]
    # What changes no more is shown as anything else.
    (ended,) = kernel.run("group")
    assert ended["data"]["text/html"] == data["text/html"] and not ended.get("transient")


def test_failures_are_shown_and_told_later_all_the_same(kernel, tmp_path):
    gates = [str(tmp_path / name) for name in ("fails", "other")]
    (shown,) = kernel.run(f"with grid.group() as group:\n    held = [hold(gate) for gate in {gates}]\ndisplay(group)")
    (tmp_path / "fails").touch()
    kernel.until(place_of(shown), "running: 1 of 2 calls ended, 1 failed")
    (tmp_path / "other").touch()
    data = kernel.until(place_of(shown), "ended, 1 failed")
    assert "report() waits" in data["text/html"]
    # The display holds a reference for a moment.
    (shown,) = kernel.run(
        "import warnings\nwith warnings.catch_warnings(record=True) as told:\n    warnings.simplefilter('always')\n"
        "    del group, held\n    while not told:\n        with grid.group(): pass\ndisplay(str(told[0].message))"
    )
    assert "1 call in groups failed, and their errors were not read" in shown["data"]["text/plain"]


def test_a_grid_shows_what_its_servers_do(kernel, tmp_path):
    (shown,) = kernel.run("grid")
    assert "running" not in shown["data"]["text/html"]
    kernel.run(f"call = grid.run(wait, {str(tmp_path / 'gate')!r})")
    row = r"server-\d</td>" + r"<td[^>]*>[^<]*</td>" * 4
    data = kernel.until(place_of(shown), row + r"<td[^>]*>1</td><td[^>]*>0</td>")
    assert "in store" in data["text/html"]
    (tmp_path / "gate").touch()
    kernel.until(place_of(shown), f"(?s){row}<td[^>]*>0</td>.*{row}<td[^>]*>0</td>")
    kernel.run("call.get()")


def test_bars_have_a_place_of_their_own(kernel, tmp_path):
    (tmp_path / "gate").touch()
    gate = str(tmp_path / "gate")
    cell = f"with grid.group(progress=True) as group:\n    held = [hold({gate!r}) for _ in range(2)]\ngroup.wait()"
    (shown,) = kernel.run(cell)
    assert "group:" in shown["data"]["text/plain"] and '<progress value="' in shown["data"]["text/html"]
    if "2/2" not in shown["data"]["text/plain"]:
        kernel.until(place_of(shown), "2/2")
    (shown,) = kernel.run("results = list(grid.map(abs, range(200), progress=True))")
    if "200/200" not in shown["data"]["text/plain"]:
        kernel.until(place_of(shown), 'value="200" max="200".*200/200')


def test_elsewhere_they_are_shown_once(program):
    grid = gl.local(servers=1)
    with grid.group() as group:
        norm = grid.function("linalg/dnrm2")(np.ones(4))
    for thing in (grid, group):
        with pytest.raises(NotImplementedError):
            thing._ipython_display_()
    assert norm.get() == 2
    grid.close()
    code = "import gridloom as gl\nwith gl.local(servers=1) as grid:\n    display(grid)\n"
    done = subprocess.run([sys.executable, "-m", "IPython", "--no-banner", "-c", code], capture_output=True, text=True, timeout=120)
    assert "<gridloom.Grid: 1 server: server-1; started 1 server of 1 slot: " in done.stdout and "display" not in done.stderr, done
