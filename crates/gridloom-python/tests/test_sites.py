"""A grid of several sites on one machine, as if they were far apart."""

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until

pytestmark = pytest.mark.usefixtures("program")

LATENCY, BANDWIDTH = 0.02, 20e6


@pytest.fixture(scope="module")
def apart():
    with gl.local(servers=4, sites=2, latency="20ms", bandwidth="20MB/s") as grid:
        yield grid


def hosts(grid):
    return [server.address.rpartition(":")[0] for server in sorted(grid.servers(), key=lambda server: server.name)]


def test_servers_are_divided_over_sites_in_order(apart):
    assert hosts(apart) == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]


def test_measured_links_between_sites_have_the_latency_and_the_bandwidth(apart):
    def measured():
        return [link for link in apart.links() if {link.sender, link.receiver} == {"127.0.0.1", "127.0.0.2"}]

    wait_until(measured)
    for link in measured():
        assert link.latency_seconds >= LATENCY
        assert link.bytes_per_second <= 2 * BANDWIDTH
        assert link.measurements >= 1


def test_a_group_over_two_sites_returns_right_results(apart):
    def alternate(problem):
        return ["server-1" if number % 2 == 0 else "server-4" for number in range(len(problem.tasks))]

    dgemm = apart.function("linalg/dgemm")
    a, b = np.random.default_rng(1).standard_normal((2, 300, 300))
    with apart.group(alternate) as group:
        product = a
        for _ in range(4):
            product = dgemm(product, b)
    assert np.allclose(product.get(), a @ np.linalg.matrix_power(b, 4))
    # b goes to both, and the products go there and back twice.
    assert apart.traffic().by_link["server-1 -> server-4"] >= 2 * a.nbytes
    assert apart.traffic().by_link["server-4 -> server-1"] >= a.nbytes
    assert group.report().measured_seconds >= 4 * LATENCY + 4 * a.nbytes / BANDWIDTH


def test_functions_connect_from_the_site_of_their_server():
    def ask(value):
        import os

        import gridloom

        with gridloom.connect() as grid:
            return grid.function("linalg/dnrm2")(value), os.environ["GRIDLOOM_SERVER"], os.environ["GRIDLOOM_SITE"]

    with gl.local(servers=2, sites=2, latency="30ms") as grid:
        for norm, server, site in list(grid.map(ask, [np.array([3.0, 4.0])] * 4)):
            assert norm == 5.0
            assert site == f"{server.replace('server', 'site')} delay=30ms"


@pytest.mark.parametrize(
    ("sites", "latency", "bandwidth", "why"),
    [
        (3, None, None, "3 sites for 2 servers"),
        (0, None, None, "sites is a whole number from 1 up"),
        (1, "16ms", None, "delay=16ms applies between two sites, but there is only one"),
        (2, 3, None, "a delay of 3 s between two sites exceeds the limit of 2 s"),
        (2, "far", None, "delay=far: time 'far' does not start with a number"),
        (2, None, 1000, "the rate between two sites must be at least 100 kB/s"),
        (2, None, "10MB", "unit 'MB' of bandwidth '10MB' is unknown"),
    ],
)
def test_invalid_input_is_rejected(sites, latency, bandwidth, why):
    with pytest.raises(gl.UsageError, match=why):
        gl.local(servers=2, sites=sites, latency=latency, bandwidth=bandwidth)
