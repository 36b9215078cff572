"""Shared names: data that other programs of the grid find."""

import asyncio
import signal
import threading
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from bad_functions import is_in, wait_until
from test_lost_programs import grids

__all__ = ["grids"]


@pytest.fixture
def agent(grids):
    """The address of an agent with two servers."""
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    for number in range(2):
        grids.serve("--agent", agent, "--name", f"s{number}")
    return agent


@pytest.mark.parametrize(
    "value",
    [
        np.arange(10_000.0),
        np.arange(6).reshape(2, 3),
        np.float32(2),
        7,
        2.5,
        1j,
        True,
        "text",
        b"bytes\0",
        "x" * 100_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_put_is_found_as_it_was(both, value):
    both.put("value", value)
    try:
        got = both.get("value")
        assert np.array_equal(got, value) and np.asarray(got).dtype == np.asarray(value).dtype
    finally:
        both.delete("value")


def test_a_program_finds_what_another_put_before_it_ended(agent):
    with gl.connect(agent) as grid:
        grid.put("mesh", np.arange(100_000.0))
    with gl.connect(agent) as grid:
        assert grid.exists("mesh") and grid.get("mesh").sum() == np.arange(100_000.0).sum()
        [mesh] = grid.names("me")
        assert (mesh.name, mesh.version, mesh.nbytes, len(mesh.servers)) == ("mesh", 1, 800_000, 1)


def test_a_get_waits_for_a_put_of_another_program(agent):
    got = []
    with gl.connect(agent) as reader, gl.connect(agent) as writer:
        waits = threading.Thread(target=lambda: got.append(reader.get("mesh", timeout=60)))
        waits.start()
        wait_until(lambda: is_in(waits, gl.Grid.get))
        # The agent answers the questions of one session in order.
        assert not reader.exists("mesh") and not got
        writer.put("mesh", np.ones(5))
        waits.join()
        assert list(got[0]) == [1] * 5
        with pytest.raises(gl.UnknownName, match="did you mean 'mesh'") as raised:
            reader.get("mehs", timeout=0.1)
        assert raised.value.near == ["mesh"] and raised.value.name == "mehs"


def test_a_version_stays_while_it_is_read(agent):
    with gl.connect(agent) as grid:
        grid.put("mesh", np.zeros(10_000))
        with pytest.raises(gl.NameExists, match="exist already"):
            grid.put("mesh", np.ones(10_000))
        old = grid.find("mesh")
        grid.put("mesh", np.ones(10_000), replace=True)
        assert old.get().sum() == 0 and grid.get("mesh").sum() == 10_000
        assert [one.version for one in grid.names()] == [2]
        grid.delete("mesh")
        assert not grid.exists("mesh") and old[0] == 0
        del old
        wait_until(lambda: sum(load[-1] for load in grid._raw.loads(5.0).values()) == 0)


def test_copies_go_to_the_servers_that_are_named(agent):
    with gl.connect(agent) as grid:
        grid.put("mesh", np.arange(100_000.0))
        [first] = grid.names()[0].servers
        other = ({"s0", "s1"} - {first}).pop()
        with pytest.raises(gl.UsageError, match="no server is named 'nowhere'"):
            grid.place("mesh", "nowhere")
        grid.place("mesh", [])
        assert grid.names()[0].servers == (first,)
        grid.place("mesh", other)
        wait_until(lambda: set(grid.names()[0].servers) == {"s0", "s1"})


IN_FUNCTIONS = """
import gridloom as gl

@gl.function
def looks(name: str) -> bool:
    with gl.connect() as grid:
        return grid.exists(name)

@gl.function
def reads(name: str) -> float:
    with gl.connect() as grid:
        return float(grid.get(name)[1])
"""


def test_a_function_that_looks_up_a_name_moves_nothing_and_one_that_gets_it_caches_it(grids, tmp_path):
    module = tmp_path / "inside.py"
    module.write_text(IN_FUNCTIONS)
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    for number in range(2):
        grids.serve(module, "--agent", agent, "--name", f"s{number}")
    with gl.connect(agent) as grid:
        grid.put("mesh", np.arange(100_000.0))
        first = grid.names()[0].servers
        [other] = {"s0", "s1"} - set(first)
        assert grid.function("inside/looks").on(other)("mesh") and not grid.function("inside/looks").on(other)("mush")
        assert grid.names()[0].servers == first
        assert grid.function("inside/reads").on(other)("mesh") == 1
        wait_until(lambda: set(grid.names()[0].servers) == {"s0", "s1"})


def test_calls_read_shared_data_and_results_become_shared(both):
    halve = both.function("tests/halve")
    both.put("x", np.arange(100_000.0))
    try:
        x = both.find("x")
        with both.group() as group:
            y, _ = halve(x)
        both.put("y", y)
        assert group.report().client_bytes < 1_000, "the result went from its server to the one that keeps it"
        assert both.get("y")[4] == 2 and x.shape == (100_000,)
        assert halve(both.find("y"))[0][4] == 1
        assert both.run(lambda a: float(a[3]), x).get(60) == 3
    finally:
        [both.delete(one.name) for one in both.names()]


def test_what_cannot_be_put_is_refused(grid):
    for name, why in (("", "empty"), ("a\0b", "control"), ("n" * 1025, "1025 bytes")):
        with pytest.raises(gl.ArgumentError, match=why):
            grid.put(name, 1)
    with pytest.raises(
        gl.ArgumentError, match=r"^put of 'set': argument: expected a number, an array, a string or bytes, got set$"
    ):
        grid.put("set", {1, 2})
    for wrong in (
        lambda: grid.get(5),
        lambda: grid.exists(b"mesh"),
        lambda: grid.names(None),
        lambda: grid.place("mesh", [1]),
    ):
        with pytest.raises(gl.ArgumentError, match="is a str, got (int|bytes|NoneType)"):
            wrong()
    with pytest.raises(gl.UnknownName):
        grid.delete("nothing")
    with pytest.raises(gl.UsageError, match="cannot read"):
        grid.put("file", Path("/nowhere"))
    assert grid.names() == []


def test_a_file_is_put_as_its_bytes(grid, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\0b")
    grid.put("file", path)
    assert grid.get("file") == b"a\0b"
    grid.delete("file")


def test_what_finds_no_room_reports_how_much_there_is(program):
    with gl.local(servers=2, memory=64 << 20) as grid:
        with pytest.raises(gl.OutOfMemory, match="half of its store"):
            grid.put("large", np.zeros(33 << 17))
        for number in range(2):
            grid.put(f"large-{number}", np.full(31 << 17, float(number)))
        assert [grid.get(f"large-{number}")[-1] for number in range(2)] == [0, 1]


def test_names_survive_the_agent(grids):
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve("--agent", agent)
    with gl.connect(agent) as grid:
        grid.put("mesh", np.arange(100_000.0))
        held = grid.find("mesh")
        grids.processes[0].kill()
        grids.processes[0].wait()
        grids.start("agent", "--listen", agent)
        wait_until(lambda: grid.exists("mesh"))
        assert held[5] == 5 and grid.names()[0].version == 1
        grid.put("mesh", np.zeros(3), replace=True)
        assert grid.names()[0].version == 2 and held[5] == 5


def test_the_loss_of_the_only_server_is_reported(grids):
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    grids.serve("--agent", agent, "--name", "first")
    with gl.connect(agent) as grid:
        grid.put("mesh", np.arange(100_000.0))
        grids.processes[1].send_signal(signal.SIGKILL)
        wait_until(lambda: not grid.exists("mesh"))
        for limit in (0, 0.2):
            with pytest.raises(gl.DataLost, match="server 'first' is gone"):
                grid.get("mesh", timeout=limit)
        grids.serve("--agent", agent, "--name", "second")
        grid.put("mesh", np.ones(3))
        assert grid.get("mesh").sum() == 3


def test_what_two_servers_keep_survives_the_loss_of_one(grids):
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    for number in range(3):
        grids.serve("--agent", agent, "--name", f"s{number}")
    with gl.connect(agent) as grid:
        with pytest.raises(gl.OutOfMemory, match="4 replicas were requested, but only 3 servers have room for it"):
            grid.put("mesh", 1, replicas=4)
        grid.put("mesh", np.arange(100_000.0), replicas=2)
        (mesh,) = grid.names()
        assert mesh.replicas == 2 == len(mesh.servers)
        lost = mesh.servers[0]
        grids.processes[1 + int(lost[1])].send_signal(signal.SIGKILL)
        # The third gets it.
        wait_until(lambda: len(set(grid.names()[0].servers) - {lost}) == 2)
        assert grid.get("mesh")[5] == 5


def put_and_get_all(number: int, count: int) -> float:
    with gl.connect() as grid:
        grid.put(f"part/{number}", float(number))
        return sum(grid.get(f"part/{other}", timeout=60) for other in range(count))


def test_calls_that_wait_for_one_another_end(program):
    with gl.local(servers=2, slots=1, functions=[put_and_get_all]) as grid:
        calls = [grid.run(put_and_get_all, number, 6) for number in range(6)]
        assert {call.result() for call in calls} == {15.0}
        for name in grid.names():
            grid.delete(name.name)
        typed = grid.function("put_and_get_all")
        with grid.group():
            results = [typed(number, 6) for number in range(6)]
        assert {float(result) for result in results} == {15.0}


def test_without_an_agent_there_are_no_names(grids):
    address = grids.serve("--no-agent")
    with gl.connect(servers=[address]) as grid, pytest.raises(gl.ConnectError, match="need an agent"):
        grid.put("mesh", 1)


def test_names_in_a_simulation(platform):
    with gl.simulate(platform) as grid:
        grid.put("mesh", np.zeros(1_000_000))
        assert grid.find("mesh").shape == (1_000_000,)
        begun = grid.now()
        assert grid.get("mesh").shape == (1_000_000,)
        assert 0.8 < grid.now() - begun < 0.9, "8 MB over 10 MB/s"
        with pytest.raises(gl.UnknownName):
            grid.get("mehs", timeout=1)
        grid.delete("mesh")
        assert grid.names() == []


@pytest.mark.parametrize(
    "rows", [slice(10, 20), slice(None, 3), slice(-3, None), slice(90, 200), slice(7, 5), slice(-500, -98)], ids=str
)
def test_rows_are_those_of_a_slice(both, rows):
    for value in (np.arange(300.0).reshape(100, 3), np.arange(100, dtype=np.int16), bytes(range(100))):
        both.put("value", value)
        try:
            assert np.array_equal(both.get("value", rows=rows), value[rows])
        finally:
            both.delete("value")


def test_only_rows_that_were_requested_move(platform):
    with gl.simulate(platform) as grid:
        # Servers are 10 MB/s away.
        grid.put("mesh", np.zeros((1000, 1000)))
        start = grid.now()
        assert grid.get("mesh", rows=slice(5, 6)).shape == (1, 1000)
        assert grid.now() - start < 0.1
        grid.get("mesh")
        assert grid.now() - start > 0.8


def test_rows_that_cannot_be_are_errors(agent):
    with gl.connect(agent) as grid:
        grid.put("text", "words")
        grid.put("columns", np.asfortranarray(np.ones((3, 4))))
        with pytest.raises(gl.UsageError, match="rows of 'text': it is a text, and has no rows"):
            grid.get("text", rows=slice(0, 2))
        with pytest.raises(gl.UsageError, match="column by column"):
            grid.get("columns", rows=slice(0, 2))
        for rows, error in [
            (slice(0, 9, 2), "without a step"),
            (slice(0.5, 2), "whole numbers"),
            ((0, 2), "rows is a slice"),
        ]:
            with pytest.raises(gl.ArgumentError, match=error):
                grid.get("text", rows=rows)
        with pytest.raises(gl.UnknownName):
            grid.get("texts", rows=slice(0, 2), timeout=0)


def test_rows_are_sent_by_another_server_when_one_is_lost(grids):
    agent = grids.start("agent", "--listen", "127.0.0.1:0")
    for number in range(2):
        grids.serve("--agent", agent, "--name", f"s{number}")
    value = np.arange(200_000.0).reshape(-1, 2)
    with gl.connect(agent) as grid:
        grid.put("mesh", value, replicas=2)
        grids.processes[1].kill()
        assert np.array_equal(grid.get("mesh", rows=slice(50_000, 50_010)), value[50_000:50_010])


def test_several_puts_and_gets_run_at_once(both):
    gets = [both.begin_get(f"part/{number}") for number in range(20)]
    puts = [both.begin_put(f"part/{number}", np.full(20_000, number)) for number in range(20)]
    try:
        done, not_done = gl.wait(puts)
        assert len(done) == 20 and not not_done and puts[0].get() is None
        first = gets[0].get()
        assert gets[0].get() is first and first[5] == 0
        assert sum(int(get.get()[7]) for get in gl.as_completed(gets)) == sum(range(20))
        assert all(get.done() and not get.cancelled() for get in gets)
        both.wait("part/3")
        assert both.begin_wait("part/4", timeout=0).get() is None
        with pytest.raises(gl.NameExists, match="'part/3' exist already"):
            both.begin_put("part/3", 1).get()
        text, data = both.begin_put("text", "a"), both.begin_put("text", "b", replace=True)
        gl.wait([text, data])
        assert both.begin_get("text").get() in ("a", "b")
    finally:
        [both.delete(one.name) for one in both.names()]


def test_names_are_awaited_in_an_event_loop(both):
    async def main():
        if not both.simulated:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(both.begin_get("nothing"), 0.05)
        with pytest.raises(gl.UnknownName, match="did you mean 'mesh-1'"):
            await both.begin_wait("mesh-2", timeout=0.1)
        waits = both.begin_get("late")
        await both.begin_put("late", np.arange(100_000.0))
        late, mesh = (
            await asyncio.gather(waits, both.begin_get("mesh-1"))
            if not both.simulated
            else (await waits, await both.begin_get("mesh-1"))
        )
        return late[3] + mesh

    both.put("mesh-1", 4.0)
    try:
        assert asyncio.run(main()) == 7
    finally:
        [both.delete(one.name) for one in both.names()]


def test_what_has_begun_can_be_cancelled_and_ends_with_the_last_reference(agent):
    with gl.connect(agent) as grid:
        get, wait = grid.begin_get("mesh"), grid.begin_wait("mesh")
        assert not get.done() and get.running()
        with pytest.raises(gl.TimedOut, match="no result within 0.01 s; the call is still running"):
            get.get(0.01)
        assert get.cancel() and get.cancelled() and get.cancel()
        with pytest.raises(gl.Cancelled):
            get.get()
        put = grid.begin_put("mesh", np.arange(100_000.0))
        wait.get(60)
        put.get(60)
        assert not put.cancel() and put.get() is None
        assert not wait.cancel()
        # Nothing reads the version after that.
        assert grid.begin_get("mesh").get()[9] == 9
        grid.delete("mesh")
        wait_until(lambda: sum(load[-1] for load in grid._raw.loads(5.0).values()) == 0)
        # A put that nothing holds goes on.
        grid.begin_put("mesh", np.ones(100_000))
        grid.wait("mesh", timeout=60)
        assert grid.get("mesh").sum() == 100_000
        for wrong in (lambda: grid.begin_get(5), lambda: grid.begin_wait(None), lambda: grid.begin_put(b"x", 1)):
            with pytest.raises(gl.ArgumentError, match="is a str, got"):
                wrong()
        with pytest.raises(gl.ArgumentError, match="empty"):
            grid.begin_get("").get()


def test_an_array_may_change_once_its_put_has_begun(agent):
    with gl.connect(agent) as grid:
        values = np.zeros(1_000_000)
        put = grid.begin_put("mesh", values)
        values[:] = 1
        put.get()
        assert grid.get("mesh").sum() == 0


def test_functions_begin_puts_and_gets(program):
    def swap(number, others):
        with gl.connect() as grid:
            gets = [grid.begin_get(f"of/{other}", timeout=60) for other in range(others)]
            grid.begin_put(f"of/{number}", np.full(20_000, float(number))).get()
            return sum(float(get.get()[0]) for get in gets)

    # Each call waits for what all others put, on fewer slots.
    with gl.local(servers=2, slots=1) as grid:
        assert list(grid.map(swap, range(6), [6] * 6)) == [15.0] * 6


def test_an_error_that_nobody_reads_is_reported(agent):
    with pytest.warns(gl.UnreadErrorWarning, match="put of 'mesh': NameExists"), gl.connect(agent) as grid:
        grid.put("mesh", 1)
        again = grid.begin_put("mesh", 2)
        wait_until(again.done)
        del again


def test_an_interrupt_ends_a_begun_get_of_a_wait(agent):
    with gl.connect(agent) as grid:

        def interrupt():
            wait_until(lambda: is_in(threading.main_thread(), gl.Future.get))
            signal.raise_signal(signal.SIGINT)

        interrupts = threading.Thread(target=interrupt)
        get = grid.begin_get("nothing")
        # Where tests run in the background, interrupts are ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            interrupts.start()
            with pytest.raises(KeyboardInterrupt):
                get.get()
            interrupts.join()
        finally:
            signal.signal(signal.SIGINT, before)
        assert not get.done() and get.cancel()
        grid.put("nothing", 3)
        assert grid.get("nothing") == 3


SHARES = """
import gridloom as gl
import numpy as np


@gl.function(work="1e3", gets={"{name}": "8*n"}, puts={"sum/{name}": "8"})
def total(name: str, n: int) -> float:
    with gl.connect() as grid:
        sum = float(grid.get(name).sum())
        grid.put(f"sum/{name}", sum)
    return sum
"""


def test_calls_go_where_what_they_declare_to_get_is(tmp_path):
    (tmp_path / "shares.py").write_text(SHARES)
    x = np.ones(8_000_000)
    with gl.local(servers=3, functions=[tmp_path / "shares.py"]) as grid:
        total = grid.function("shares/total")
        for number in range(4):
            name = f"x/{number}"
            grid.put(name, x)
            (put,) = grid.names(name)
            with grid.group("heft") as group:
                got = total(name, x.size)
            assert got.get() == x.size and grid.get(f"sum/{name}") == x.size
            (ran,) = group.report().tasks
            assert (ran.server,) == put.servers
            assert grid.names(name)[0].servers == put.servers, "it went nowhere"


STAR = """
[[host]]
name = "client"
speed = "1Gf"
properties = {{ role = "client, agent" }}
{hosts}
[[star]]
name = "lan"
hosts = ["client", {names}]
bandwidth = "12.5MBps"
latency = "100us"
"""


@pytest.mark.parametrize(("method", "sends"), [("direct", 7), ("tree", 1), ("swarm", 1), ("auto", 1)])
def test_a_method_of_transfer_is_chosen(tmp_path, method, sends):
    host = '[[host]]\nname = "s{0}"\nspeed = "1Gf"\nproperties = {{ role = "server", memory = "1GiB" }}\n'
    hosts, names = "".join(map(host.format, range(8))), ", ".join(f'"s{number}"' for number in range(8))
    (tmp_path / "star.toml").write_text(STAR.format(hosts=hosts, names=names))
    size = 16 << 20
    with gl.simulate(tmp_path / "star.toml") as grid:
        grid.advance(30)
        grid.put("mesh", np.broadcast_to(np.uint8(0), (size,)), method=method)
        begun = grid.now()
        grid.place("mesh")
        takes = (grid.now() - begun) / (size / 12.5e6)
        uploads = [of for link, of in grid.simulation().bytes_by_link.items() if link.startswith("lan") and "_UP" in link]
    # The client has sent it once.
    assert sorted(uploads)[-1] == pytest.approx(sends * size, rel=0.05)
    assert takes == pytest.approx(sends, rel=0.15)


def test_probes_do_not_slow_a_long_transfer_down(tmp_path):
    """Earlier, links of the sender were found narrow beside the transfer, and probed again each second."""
    host = '[[host]]\nname = "s{0}"\nspeed = "1Gf"\nproperties = {{ role = "server", memory = "1GiB" }}\n'
    hosts, names = "".join(map(host.format, range(8))), ", ".join(f'"s{number}"' for number in range(8))
    (tmp_path / "star.toml").write_text(STAR.format(hosts=hosts, names=names))
    size = 512 << 20
    with gl.simulate(tmp_path / "star.toml") as grid:
        grid.advance(30)
        grid.put("mesh", np.broadcast_to(np.uint8(0), (size,)))
        (first,) = grid.names()[0].servers
        begun = grid.now()
        grid.place("mesh", "s1" if first == "s0" else "s0")
        takes = (grid.now() - begun) / (size / 12.5e6)
    assert takes == pytest.approx(1, rel=0.02)


def test_a_method_that_is_none_is_named(agent):
    with gl.connect(agent) as grid:
        with pytest.raises(gl.UsageError, match="'swam' is not a transfer method; did you mean 'swarm'"):
            grid.put("mesh", 1.0, method="swam")
        with pytest.raises(gl.ArgumentError, match="method"):
            grid.put("mesh", 1.0, method=3)
        assert not grid.exists("mesh")


def test_a_function_declares_the_method_of_what_it_puts(tmp_path):
    text = SHARES.replace('{"sum/{name}": "8"}', '{"sum/{name}": {"size": "8", "method": "METHOD"}}')
    (tmp_path / "shares.py").write_text(text.replace("METHOD", "direct"))
    with gl.local(servers=1, functions=[tmp_path / "shares.py"]) as grid:
        grid.put("x", np.ones(3))
        assert grid.function("shares/total")("x", 3) == grid.get("sum/x") == 3
    with pytest.raises(gl.InputError, match="'sworm' is not a transfer method; did you mean 'swarm'"):
        exec(text.replace("METHOD", "sworm"), {"__name__": "shares"})
