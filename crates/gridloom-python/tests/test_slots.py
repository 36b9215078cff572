"""Slots of servers are used while calls of any function wait, and each is used once."""

import threading
import time

import gridloom as gl
from bad_functions import is_in, wait_until
from gridloom.run import any_function
from gridloom.session.grid import Grid
from sent_functions import running, twice
from test_lost_programs import grids

__all__ = ["grids"]


def test_a_server_that_joins_takes_calls_that_wait(grids, gate):
    # A function of a function goes by value: these servers do not look for modules of tests.
    def stop(gate):
        import os
        import pathlib

        pathlib.Path(f"{gate}.{os.getpid()}").touch()
        while not os.path.exists(f"{gate}.open"):
            time.sleep(0.001)

    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve("--agent", agent, "--name", "first")
    with gl.connect(agent) as grid:
        held = grid.run(stop, str(gate.path))
        running(gate)
        other = grid.run(lambda x: 2 * x, 2)
        grids.serve("--agent", agent, "--name", "second")
        assert other.get(60) == 4 and not held.done()
        gate.open()
        held.get(60)


def test_threads_that_call_first_together_share_the_slots(program, monkeypatch):
    made = []

    class Slow(any_function.Runner):
        def __init__(self, *arguments):
            made.append(self)
            wait_until(lambda: all(is_in(thread, Grid.run) for thread in threads))
            super().__init__(*arguments)

    monkeypatch.setattr(any_function, "Runner", Slow)
    with gl.local(servers=1) as grid:
        calls = []
        threads = [threading.Thread(target=lambda: calls.append(grid.run(twice, 2))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [call.get(60) for call in calls] == [4] * 4 and len(made) == 1
