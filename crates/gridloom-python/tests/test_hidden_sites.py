"""Sites behind firewalls: groups end right through a relay, and directly where that is possible."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gridloom as gl
import pytest

HERE = Path(__file__).parent
# The search paths of users often lack the folders of 'ip' and 'tc'.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
# Bytes that the servers exchange: two arrays in each of 29 rounds.
BETWEEN_SERVERS = 29 * 2 * 1_600_000


def can_build_network():
    if not all(shutil.which(name, path=PATH) for name in ["unshare", "nsenter", "ip", "tc"]):
        return False
    tried = "mount -t tmpfs none /run && ip netns add a && ip link add to-a type veth peer name eth0 netns a && tc qdisc add dev to-a root htb"
    return subprocess.run(["unshare", "-Urnm", "sh", "-c", tried], capture_output=True, env=os.environ | {"PATH": PATH}).returncode == 0


@pytest.fixture
def run(tmp_path):
    if not can_build_network():
        pytest.skip("hosts behind firewalls: this machine lets nobody make network namespaces, or lacks 'ip' or 'tc'")

    def run(scenario):
        program = str(Path(gl.__file__).parent / "bin" / "gridloom")
        command = ["unshare", "-Urnm", sys.executable, HERE / "hidden_sites.py", scenario, tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=os.environ | {"PATH": PATH, "GRIDLOOM_PROGRAM": program})
        assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "log").read_text()
        return json.loads(done.stdout)

    return run


def test_what_nobody_can_dial_is_reached_through_a_relay(program, run):
    assert run("hidden")["relayed_bytes"] > BETWEEN_SERVERS


def test_a_direct_path_is_used_if_there_is_one(program, run):
    assert run("open")["relayed_bytes"] == 0


def test_with_one_hidden_server_the_servers_exchange_data_directly(program, run):
    """The hidden server opens the connections. Only the client cannot reach it."""
    assert run("one-side")["relayed_bytes"] < 0.9 * BETWEEN_SERVERS


@pytest.mark.parametrize("scenario", ["cut", "vpn"])
def test_a_group_returns_correct_results_although_its_paths_are_cut(program, run, scenario):
    assert run(scenario)["relayed_bytes"] > 0
