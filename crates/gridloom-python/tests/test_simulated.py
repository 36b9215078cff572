"""The same programs on a simulated grid."""

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS


def run(grid, a):
    matmul = grid.function("tests/matmul")
    with grid.group("heft") as group:
        left, right = matmul(a, a), matmul(a, a)
        product = matmul(left, right)
    return product.get(), group.report(), grid.simulation()


def test_the_same_program_twice_is_the_same_run(platform):
    runs = []
    for _ in range(2):
        with gl.simulate(platform, functions=[FUNCTIONS], seed=7) as grid:
            assert grid.simulated and len(grid.servers()) == 3
            runs.append(run(grid, np.ones((300, 300))))
    (value, report, simulation), (_, _, again) = runs
    assert value.shape == (300, 300) and not value.any(), "results are stand-ins"
    assert simulation.seconds > 0 and simulation.trace_hash == again.trace_hash
    # The mapper takes links for free of contention; the simulator shares them, here between two copies of `a`.
    assert report.predicted_seconds <= report.measured_seconds <= 2 * report.predicted_seconds


def test_bodies_run_on_request(platform, program):
    a = np.random.default_rng(0).random((50, 50))
    with gl.simulate(platform, functions=[FUNCTIONS], execute=True) as grid:
        value, _, _ = run(grid, a)
    assert np.allclose(value, a @ a @ a @ a)


HALVING = '''
import gridloom as gl
import numpy as np


@gl.function(work="1e9")
def half(name: str) -> float:
    with gl.connect() as grid:
        x = grid.get(name, timeout=60)
        grid.put(f"half/{name}", x / 2)
        return float(x.sum())


@gl.function(work="1e9")
def halves(one: str, other: str) -> float:
    """Calls other functions."""
    with gl.connect() as grid:
        half = grid.function("halving/half")
        calls = [half.submit(one), half.submit(other)]
        return sum(call.result() for call in calls)


@gl.function
def missing(name: str) -> str:
    with gl.connect() as grid:
        try:
            grid.get(name, timeout=3)
        except gl.UnknownName as error:
            return f"{error}; after 3 s: {grid.now() > 3}"
    return "found"
'''


def test_functions_get_and_put_shared_data(tmp_path, platform):
    (tmp_path / "halving.py").write_text(HALVING)
    hashes = set()
    for _ in range(2):
        with gl.simulate(platform, functions=[tmp_path / "halving.py"], execute=True) as grid:
            x = np.arange(100_000.0)
            waiting = grid.function("halving/half").submit("later")
            grid.put("x", x)
            grid.advance(5)
            grid.put("later", 2 * x)
            assert waiting.result() == 2 * x.sum() and np.array_equal(grid.get("half/later"), x)
            with pytest.raises(gl.RemoteError, match="raised NameExists .*half/later"):
                grid.function("halving/half")("later")
            assert grid.function("halving/missing")("latter") == "no shared data are named 'latter'; did you mean 'half/later' or 'later'?; after 3 s: True"
            grid.delete("half/later")
            assert grid.function("halving/halves")("x", "later") == 3 * x.sum()
            hashes.add(grid.simulation().trace_hash)
    assert len(hashes) == 1


def test_arrays_larger_than_memory(platform):
    n = 2**37 // 8  # 128 GiB
    huge = np.broadcast_to(0.0, n)
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        with grid.group() as group:
            half, _ = grid.function("tests/halve")(huge)
            quarter, norm = grid.function("tests/halve")(half)
        assert quarter.shape == (n,) and norm.get() == 0.0
        report = group.report()
        assert report.client_bytes >= huge.nbytes and report.measured_seconds > huge.nbytes / 10e6
        assert half.get().shape == (n,), "shown without memory of that size"


def test_virtual_time(platform):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        begin = grid.now()
        grid.advance(3600.0)
        assert grid.now() - begin == pytest.approx(3600.0)
        begin = grid.now()
        grid.compute(3e9)
        assert grid.now() - begin == pytest.approx(3.0)
        assert grid.function("tests/sleep")(1.0) == 0.0
        with pytest.raises(gl.ArgumentError, match="'seconds'"):
            grid.function("tests/sleep")("x")


def test_bad_platform(tmp_path):
    with pytest.raises(gl.InputError, match="none.xml"):
        gl.simulate(tmp_path / "none.xml")


SHARES = """
import gridloom as gl


@gl.function(work="1e9", puts={"part/{i}": "8*n"})
def make(i: int, n: int) -> None: ...


@gl.function(work="1e9", gets={"{name}": "8*n"})
def read(name: str, n: int) -> None: ...
"""


def test_calls_get_and_put_what_their_functions_declare(platform, tmp_path):
    (tmp_path / "shares.py").write_text(SHARES)
    n = 10_000_000
    with gl.simulate(platform, functions=[tmp_path / "shares.py"]) as grid:
        make, read = grid.function("shares/make"), grid.function("shares/read")
        make.on("s0")(3, n)
        (name,) = grid.names()
        assert (name.name, name.nbytes, name.servers) == ("part/3", 8 * n, ("s0",))
        times = []
        for _ in range(2):
            began = grid.now()
            read.on("s1")("part/3", n)
            times.append(grid.now() - began)
        assert sorted(grid.names()[0].servers) == ["s0", "s1"]
        assert times[0] > times[1] + 0.05, "it came over the link once"
        with pytest.raises(gl.RemoteError, match="'part/3'"):
            make.on("s0")(3, n)
        waits = read.submit("part/4", n)
        make(4, n)
        waits.result()

    def nothing() -> None: ...

    for wrong, why in [(["mesh"], "expected names and sizes"), ({"mesh/{": "8"}, "has no '}'"), ({"mesh": "n"}, "unknown name 'n'")]:
        with pytest.raises(gl.InputError, match=why):
            gl.function(gets=wrong)(nothing)
    for wrong, why in [
        ({"size": "8", "copies": 2}, "unknown key 'copies'"),
        ({"size": "8", "replicas": "2"}, "expected names and sizes"),
        ({"size": "8", "replicas": 17}, "expected 1 to 16"),
        ({"replicas": 2}, "expected names and sizes"),
    ]:
        with pytest.raises(gl.InputError, match=why):
            gl.function(puts={"mesh": wrong})(nothing)


KEPT = """
import gridloom as gl


@gl.function(work="1e9", puts={"kept": {"size": "8*n", "replicas": 2, "durable": True}})
def make(n: int) -> None: ...
"""


def test_what_is_put_is_kept_as_declared(platform, tmp_path):
    (tmp_path / "kept.py").write_text(KEPT)
    with gl.simulate(platform, functions=[tmp_path / "kept.py"]) as grid:
        grid.function("kept/make")(1000)
        (name,) = grid.names()
        assert (name.replicas, len(name.servers)) == (2, 2)


def test_a_plan_names_the_shared_data_that_move(platform, tmp_path):
    (tmp_path / "shares.py").write_text(SHARES)
    with gl.simulate(platform, functions=[tmp_path / "shares.py"]) as grid:
        make, read = grid.function("shares/make"), grid.function("shares/read")
        with grid.group() as group:
            make.on("s0")(3, 1_000_000)
            read.on("s1")("part/3", 1_000_000)
            plan = group.plan()
        assert [moved.datum for moved in plan.transfers if moved.size_bytes == 8_000_000] == ["part/3"]
        assert "'part/3' from s0 to s1" in str(plan.critical_path())


QUIET = """
import gridloom as gl


@gl.function
def both() -> None:
    with gl.connect() as grid:
        grid.put("sum", grid.get("mesh"))


@gl.function(gets={"mesh": "8"})
def half() -> None:
    def inner():
        with gl.connect() as grid:
            grid.begin_put("sum", grid.get("mesh")).get()

    inner()


@gl.function(gets={"mesh": "8"}, replaces={"sum": "8"})
def told() -> None:
    with gl.connect() as grid:
        grid.put("sum", grid.get("mesh"), replace=True)


@gl.function
def other() -> None:
    {}.get("mesh")
"""


@pytest.mark.parametrize("execute", [False, True])
def test_python_functions_that_do_not_declare_what_they_share_are_reported(platform, tmp_path, capfd, execute):
    (tmp_path / "quiet.py").write_text(QUIET)
    with gl.simulate(platform, functions=[tmp_path / "quiet.py"], execute=execute):
        pass
    said = [line for line in capfd.readouterr().err.splitlines() if "does not declare" in line]
    assert [line.split()[1:3] for line in said] == ([] if execute else [["'quiet/both'", "gets"], ["'quiet/both'", "puts"], ["'quiet/half'", "puts"]])


def test_functions_that_do_not_declare_what_they_share_are_reported(platform, tmp_path, capfd):
    body = '{ double x; OmstWait(OmstGetData("mesh", &x, sizeof x)); }'
    (tmp_path / "quiet.idl").write_text(f"Define quiet(IN int i) {body}\nDefine told(IN int i) Gets(\"mesh\", 8) {body}\n")
    with gl.simulate(platform, functions=[tmp_path / "quiet.idl"]):
        pass
    said = capfd.readouterr().err
    assert "'quiet/quiet' uses shared data that it does not declare" in said and "quiet/told" not in said


TWO_SITES = """
[[host]]
name = "client"
speed = "1Gf"
properties = { role = "client, agent" }

[[cluster]]
name = "a"
hosts = "a-[1-8]"
speed = "1Gf"
bandwidth = "100Mbps"
latency = "100us"
properties = { role = "server" }

[[cluster]]
name = "b"
hosts = "b-[1-8]"
speed = "1Gf"
bandwidth = "100Mbps"
latency = "100us"
properties = { role = "server" }

[[link]]
name = "between"
bandwidth = "50Mbps"
latency = "10ms"
sharing = "splitduplex"

[[link]]
name = "near"
bandwidth = "100Mbps"
latency = "1ms"
sharing = "splitduplex"

[[route]]
from = "client"
to = "a"
links = ["near:up"]

[[route]]
from = "a"
to = "b"
links = ["between:up"]

[[link]]
name = "near-b"
bandwidth = "100Mbps"
latency = "1ms"
sharing = "splitduplex"

[[route]]
from = "client"
to = "b"
links = ["near-b:up"]
"""

EXCHANGED = """
import gridloom as gl


@gl.function(work="1e3")
def make(n: int) -> gl.Array["float64", "n"]: ...


@gl.function(work="1e3")
def last(data: gl.Array["float64", "n"]) -> float: ...
"""


def test_a_plan_made_when_servers_have_just_met_knows_what_they_share(tmp_path):
    """All read what all have made: eight values cross the way between the sites, in each direction."""
    (tmp_path / "sites.toml").write_text(TWO_SITES)
    (tmp_path / "exchanged.py").write_text(EXCHANGED)
    n = 1 << 20
    with gl.simulate(tmp_path / "sites.toml", functions=[tmp_path / "exchanged.py"]) as grid:
        make, last = grid.function("exchanged/make"), grid.function("exchanged/last")
        servers = sorted(server.name for server in grid.servers())
        assert len(servers) == 16 and grid.now() < 2
        with grid.group() as group:
            made = [make.on(server)(n) for server in servers]
            _ = [last.on(server)(value) for server in servers for value in made]
        report = group.report()
    bound = 8 * 8 * n / 6.25e6
    assert bound < report.measured_seconds < 1.5 * bound
    assert report.predicted_seconds > 0.75 * report.measured_seconds
