"""``gridloom up`` sends the folder of a program: servers on other hosts find its functions by module and name.

A stub stands for ``ssh``; its hosts are folders of this machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest

PROGRAM = Path(gl.__file__).parent / "bin" / "gridloom"

STUB = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
unset GRIDLOOM_KEYS GRIDLOOM_AGENT PYTHONPATH
export HOME="{folder}/hosts/$2"; export XDG_STATE_HOME="$HOME/state" XDG_CACHE_HOME="$HOME/cache"
mkdir -p "$HOME"; cd "$HOME"; exec sh -c "$3"
"""

HOSTS = """
[[host]]
name = "head"
speed = "1Gf"
properties = {{ address = "127.0.0.1", ssh = "head", gridloom = "{program}", agent_listen = "127.0.0.1:0" }}
[[host]]
name = "node"
speed = "1Gf"
properties = {{ address = "127.0.0.1", ssh = "node", gridloom = "{program}", python = "{python}", packages = "numpy", serve = "offered.py --run-code", code = "." }}
"""

HELPER = "def twice(x):\n    return 2 * x\n"
MODULE = "from inner.helper import twice\n\ndef six():\n    return twice(3)\n\ndef here():\n    return __file__\n"
OFFERED = "import gridloom\nfrom inner.helper import twice\n\n@gridloom.function\ndef doubled(x: float) -> float:\n    return twice(x)\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for file, text in {"inner/helper.py": HELPER, "sent_module.py": MODULE, "offered.py": OFFERED}.items():
        (tmp_path / file).write_text(text)
    (tmp_path / "my ssh").write_text(STUB.format(folder=tmp_path / ".lab"))
    (tmp_path / "my ssh").chmod(0o755)
    (tmp_path / "grid.toml").write_text(HOSTS.format(program=PROGRAM, python=sys.executable))
    return tmp_path


def run(folder, *words):
    environment = {**os.environ, "GRIDLOOM_PYTHON": sys.executable, "XDG_STATE_HOME": os.fspath(folder / ".mine"), "GRIDLOOM_MODELS": "none"}
    done = subprocess.run([PROGRAM, *words, "--json"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="there is no gridloom program in the package")


def test_functions_are_found_by_module_and_name(folder, monkeypatch):
    monkeypatch.syspath_prepend(os.fspath(folder))
    try:
        lines = run(folder, "up", os.fspath(folder / "grid.toml"), "--ssh", os.fspath(folder / "my ssh"))
        python = next(line["python"] for line in lines if line.get("host") == "node")
        assert python["packages"] == {"gridloom": gl.__version__, "numpy": np.__version__}
        assert not any("skew" in line for line in lines)
        code = next(line for line in lines if "code" in line)
        assert {file["path"] for file in code["files"]} >= {"inner/helper.py", "sent_module.py", "offered.py"}
        import sent_module

        with gl.connect(lines[-1]["agent"]) as grid:
            assert grid.run(sent_module.six).get() == 6
            assert code["hash"] in grid.run(sent_module.here).get()
            assert grid.function("offered/doubled")(2.5) == 5.0
    finally:
        run(folder, "down")
        sys.modules.pop("sent_module", None)


def test_servers_of_a_testbed_find_the_modules_in_the_folder_itself(folder, platform, tmp_path):
    run = [PROGRAM, "testbed", "run", "-p", platform, "--speeds", "none", "--quiet", "--overload", "--run-code"]
    probe = subprocess.run([*run, "--no-grid", "--", "true"], capture_output=True, text=True, timeout=60)
    if "does not let this user have" in probe.stderr:
        pytest.skip(probe.stderr)
    text = Path(platform).read_text()
    program = folder / "elsewhere" / "program.py"
    program.parent.mkdir()
    # The program takes its module from the folder, too, but has no PYTHONPATH for its servers.
    program.write_text(
        f"import sys\nsys.path.insert(0, {os.fspath(folder)!r})\nimport gridloom as gl, sent_module\n"
        "with gl.local() as grid:\n    print(grid.run(sent_module.six).get())\n"
    )
    is_server = '<prop id="role" value="server"/>'
    for code, told in (("", "needs the module 'sent_module'"), (f'<prop id="code" value="{folder}"/>', "6\n")):
        Path(platform).write_text(text.replace(is_server, is_server + code))
        done = subprocess.run([*run, "--", sys.executable, program], capture_output=True, text=True, timeout=120)
        assert told in done.stdout + done.stderr, done.stdout + done.stderr
