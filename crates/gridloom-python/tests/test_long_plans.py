"""A plan that takes long keeps nobody else from the agent, and its making ends with the client that asked for it."""

import os
import pathlib

import gridloom as gl
from bad_functions import wait_until

FUNCTIONS = """
import gridloom as gl

@gl.function
def twice(x: float) -> float:
    return 2.0 * x

@gl.function
def asks() -> str:
    with gl.connect() as grid:
        twice = grid.function("plans/twice")
        group = grid.group("anneal[steps=1000000000000000]")
        with group:
            for _ in range(60):
                twice(twice(1.0))
            return str(group.plan())
"""


def mappings():
    """Threads that map, of the agents that this process has started: those of other tests do nothing."""
    me, found = os.getpid(), []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == me and b"agent" in command:
                found += [task for task in (process / "task").iterdir() if (task / "comm").read_text() == "mapping\n"]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_others_continue_while_a_plan_is_made(tmp_path):
    (tmp_path / "plans.py").write_text(FUNCTIONS)
    with gl.local(servers=3, functions=[tmp_path / "plans.py"]) as grid:
        asking = grid.function("plans/asks").submit()
        wait_until(mappings)
        twice = grid.function("plans/twice")
        with grid.group("heft"):
            results = [twice(twice(float(x))) for x in range(20)]
        assert [result.get() for result in results] == [4.0 * x for x in range(20)]
        assert grid.run(lambda: len(gl.connect().servers())).get() == 3, "the agent tells a new client what there is"
        assert mappings(), "it is made still"
        asking.cancel()
        wait_until(lambda: not mappings())
