"""Errors of calls whose only server was lost, while other servers still run."""

import json
import subprocess
import sys
from contextlib import ExitStack

import gridloom as gl
import pytest
from bad_functions import wait_until
from gridloom.common import executable

FUNCTIONS = """
import os, time
import gridloom as gl

@gl.function(module="own")
def hold(gate: str) -> int:
    open(gate, "w").close()
    while not os.path.exists(gate + ".open"):
        time.sleep(0.001)
    return 1
"""
SHARED = """
import gridloom as gl

@gl.function(module="shared")
def twice(x: float) -> float:
    return 2 * x
"""


def serve(stack, name, *modules):
    command = [executable.program() or "gridloom", "serve", *modules, "--no-agent", "--name", name, "--models", "none", "--python", sys.executable]
    server = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--json", "--quiet", "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(server)
    stack.callback(server.kill)
    return server, json.loads(server.stdout.readline())["address"]


def test_the_error_names_the_server_that_was_lost(program, gate, tmp_path):
    own, shared = tmp_path / "a.py", tmp_path / "b.py"
    own.write_text(FUNCTIONS), shared.write_text(SHARED)
    with ExitStack() as stack:
        one, first = serve(stack, "one", own, shared)
        _, second = serve(stack, "two", shared)
        grid = stack.enter_context(gl.connect(servers=[first, second]))
        twice = grid.function("shared/twice")
        on_one = twice.on("one")
        with grid.group() as group:
            kept = on_one(1.0)
        group.wait()
        held = grid.function("own/hold").submit(str(gate.path))
        wait_until(gate.path.exists)
        one.kill()
        with pytest.raises(gl.UnknownName, match=r"^no server offers function 'own/hold' any more: server 'one' was lost \("):
            held.get()
        bound = r"server 'one' was lost \(.*\) and the call of 'shared/twice' is bound to it, for example by on\('one'\)$"
        with pytest.raises(gl.ServerLost, match=f"^{bound}"):
            kept.get()
        with pytest.raises(gl.ServerLost, match=f"^{bound}"):
            on_one(1.0)
        assert twice(3.0) == 6.0
