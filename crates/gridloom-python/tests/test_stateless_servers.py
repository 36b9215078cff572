"""Plain servers: none, some and all of a grid, on real processes, in simulation and on a testbed, where this file is the program."""

import json
import subprocess
import sys
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest

HERE = Path(__file__).parent
FUNCTIONS = HERE / "functions.py"
N = 64
MATRIX = 8 * N * N

def tree(grid):
    """Eight matrices by binary tree, on all servers in turn; returns what was moved. No call moves to an idle server."""
    matmul = grid.function("tests/matmul")
    level = matrices = [np.random.default_rng(k).standard_normal((N, N)) / 8 for k in range(8)]
    before = grid.traffic()
    with grid.group("round-robin") as group:
        while len(level) > 1:
            level = [matmul(a, b) for a, b in zip(level[0::2], level[1::2])]
    product = level[0].get()
    # The transfers of its last call are reported when the call ends.
    group.wait()
    after, report = grid.traffic(), group.report()
    assert np.allclose(product, np.linalg.multi_dot(matrices)), "the product is wrong"
    return {"client_bytes": after.client_bytes - before.client_bytes, "links": sorted(report.by_link)}


def between_servers(links):
    return [link for link in links if "client" not in link]


@pytest.mark.parametrize("plain", [0, 1, 2])
def test_a_tree_of_calls_runs_whichever_servers_are_plain(program, plain):
    with gl.local(servers=2, plain=plain, functions=[FUNCTIONS]) as grid:
        told = tree(grid)
        names = [server.name for server in grid.servers() if server.plain]
        assert len(names) == plain
        assert not any(name in link for link in between_servers(told["links"]) for name in names), told
        if plain == 0:
            assert told["client_bytes"] == 9 * MATRIX, told
        if plain == 2:
            assert told["client_bytes"] == 21 * MATRIX, told


def test_what_would_stay_on_a_stateless_server_is_refused_by_name(program):
    with gl.local(servers=2, plain=1, functions=[FUNCTIONS]) as grid:
        plain = next(server.name for server in grid.servers() if server.plain)
        grid.put("mesh", np.eye(N))
        with pytest.raises(gl.UsageError, match=f"server '{plain}' is stateless .serve --plain. and keeps no copies"):
            grid.place("mesh", plain)
        grid.place("mesh")
        # It reads the shared value all the same: the client passes it on.
        matmul, mesh = grid.function("tests/matmul").on(plain), grid.find("mesh")
        with grid.group():
            products = [matmul(mesh, np.eye(N)) for _ in range(2)]
        assert all(np.array_equal(product.get(), np.eye(N)) for product in products)
    with gl.local(servers=1, plain=1, functions=[FUNCTIONS]) as grid, pytest.raises(gl.GridloomError, match="all servers are stateless"):
        grid.put("mesh", np.eye(N))


#: A client with an agent, three servers; two of them reach each other, and the third is plain or reaches the client alone.
PLATFORM = """
[[host]]
name = "c"
speed = "1Gf"
properties = { role = "client, agent" }
"""


def platform_of(path, plain):
    text = PLATFORM
    for number in range(3):
        text += f'[[host]]\nname = "s{number}"\nspeed = "1Gf"\nproperties = {{ plain = "{"yes" if number in plain else "no"}" }}\n'
    for source, target in [("c", "s0"), ("c", "s1"), ("c", "s2"), ("s0", "s1")]:
        text += f'[[link]]\nname = "{source}-{target}"\nbandwidth = "100MBps"\nlatency = "200us"\nsharing = "splitduplex"\n'
        text += f'[[route]]\nfrom = "{source}"\nto = "{target}"\nlinks = ["{source}-{target}:up"]\n'
    path.write_text(text)
    return path


# A grid of stateless servers alone runs on real processes above.
@pytest.mark.parametrize(
    "world, plain",
    [("simulate", []), ("simulate", [1]), ("simulate", [0, 1, 2]), ("testbed", []), ("testbed", [1])],
    ids=["simulate-none", "simulate-some", "simulate-all", "testbed-none", "testbed-some"],
)
def test_partly_connected_grids_run_with_stateless_servers(program, tmp_path, world, plain):
    platform = platform_of(tmp_path / "partly.toml", plain)
    gridloom = Path(gl.__file__).parent / "bin" / "gridloom"
    run = [gridloom, "simulate", "--execute"] if world == "simulate" else [gridloom, "testbed", "run", "--speeds", "none", "--quiet", "--overload"]
    if world == "testbed":
        probe = subprocess.run([*run, "-p", platform, "--no-grid", "--", "true"], capture_output=True, text=True, timeout=60)
        if "does not let this user have" in probe.stderr:
            pytest.skip(probe.stderr)
    command = [*run, "-p", platform, "--functions", FUNCTIONS, "--", sys.executable, __file__]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    straight = ["s0 -> s1", "s1 -> s0"] if not plain else []
    assert all(link in straight for link in between_servers(told["links"])), told
    if len(plain) == 3:
        assert told["client_bytes"] == 21 * MATRIX, told


if __name__ == "__main__":
    with gl.connect() as connected:
        print(json.dumps(tree(connected)))
