"""Memory of the client: the sizes that a plan states before a group runs, and simulated hosts that page."""

import warnings

import gridloom as gl
import numpy as np
import pytest

N = 400
MATRIX_BYTES = 8 * N * N
SWAP = 20e6
SPEED = 1e9
PLATFORM = """
host = [
  {{ name = "desk", speed = "1Gf", properties = {{ role = "client, agent"{client} }} }},
  {{ name = "one", speed = "10Gf", properties = {{ role = "server"{server} }} }},
  {{ name = "two", speed = "10Gf", properties = {{ role = "server"{server} }} }},
]
star = [{{ name = "lan", hosts = ["desk", "one", "two"], bandwidth = "1GBps", latency = "100us" }}]
"""


def simulated(tmp_path, client="", server=""):
    path = tmp_path / "grid.toml"
    path.write_text(PLATFORM.format(client=client, server=server))
    return gl.simulate(path)


def planned(grid):
    """Record a chain of three products. The program has one matrix, and requests only the last product."""
    dgemm = grid.function("linalg/dgemm")
    a = np.zeros((N, N))
    with grid.group("heft") as group:
        first = dgemm(a, a)
        second = dgemm(a, first)
        third = dgemm(a, second)
        plan = group.plan()
        group.discard()
    del first, second, third
    return plan


def test_a_plan_states_the_memory_that_the_client_needs(tmp_path):
    with simulated(tmp_path) as grid, warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = planned(grid)
    memory = plan.client_memory()
    # The argument and the last result; call by call, the result before the last is there too.
    assert memory.needed_bytes == 2 * MATRIX_BYTES
    assert memory.call_by_call_bytes == 3 * MATRIX_BYTES
    assert memory.available_bytes is None and not memory.is_exceeded
    assert "memory of the client: 2.6 MB, call by call 3.8 MB\n" in str(plan)
    assert "warning" not in str(plan)


def test_results_of_stateless_servers_return_to_the_client(tmp_path):
    with simulated(tmp_path, server=', plain = "yes"') as grid:
        memory = planned(grid).client_memory()
    assert memory.needed_bytes == memory.call_by_call_bytes == 3 * MATRIX_BYTES


def test_a_client_with_too_little_memory_is_warned(tmp_path):
    with simulated(tmp_path, client=', memory = "2MiB"') as grid:
        with pytest.warns(RuntimeWarning, match="needs 2,560,000 bytes .* can use 2,097,152"):
            plan = planned(grid)
    assert plan.client_memory().available_bytes == plan.client_memory_bytes == 2 << 20
    assert plan.client_memory().is_exceeded
    assert "\nwarning: the client can use only 2.1 MB of memory\n" in str(plan)
    # A saved plan keeps it.
    plan.save(tmp_path / "plan.json")
    assert gl.Plan.load(tmp_path / "plan.json").client_memory() == plan.client_memory()


def test_a_real_client_knows_the_memory_that_it_can_use(grid):
    memory = planned(grid).client_memory()
    assert memory.available_bytes is not None and memory.available_bytes > memory.needed_bytes


def test_plans_of_a_report_do_not_know_their_memory(tmp_path):
    with simulated(tmp_path) as grid:
        dgemm = grid.function("linalg/dgemm")
        with grid.group("heft") as group:
            product = dgemm(np.zeros((N, N)), np.zeros((N, N)))
        product.get()
        (plan,) = group.report().plans
    with pytest.raises(gl.UsageError, match="the basis of this plan is not known"):
        plan.client_memory()


def test_a_client_that_pages_computes_and_receives_at_the_rate_of_its_swap(tmp_path):
    with simulated(tmp_path, client=f', memory = "10MB", swap = "{SWAP:.0f}"') as grid:
        grid.hold_memory(40_000_000)
        began = grid.now()
        grid.compute(SPEED, accessed_bytes=8_000_000)
        # Three quarters of the accessed bytes pass the swap.
        assert grid.now() - began == pytest.approx(1 + 6e6 / SWAP, abs=1e-6)
        grid.hold_memory(0)
        began = grid.now()
        grid.compute(SPEED, accessed_bytes=8_000_000)
        assert grid.now() - began == pytest.approx(1, abs=1e-6)
        dgemm = grid.function("linalg/dgemm")
        took = {}
        for held in (0, 90_000_000):
            grid.hold_memory(held)
            a = np.zeros((N, N))
            began = grid.now()
            dgemm(a, a)
            took[held] = grid.now() - began
        # The argument and the result pass the swap, about nine tenths of each.
        assert took[90_000_000] - took[0] > 1.5 * MATRIX_BYTES / SWAP
        for wrong in (-1, 1.5, 2**63):
            with pytest.raises(gl.UsageError):
                grid.hold_memory(wrong)


def test_a_host_with_swap_needs_the_size_of_its_memory(tmp_path):
    with pytest.raises(gl.InputError, match="host 'desk' has swap, but no memory"):
        simulated(tmp_path, client=', swap = "20MBps"')
