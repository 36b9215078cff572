"""Sites behind firewalls, as network namespaces of this machine: a hub that all hosts reach, and hosts that reach one another only
if the hub forwards packets. Runs as root of namespaces of its own: ``unshare -Urnm python hidden_sites.py SCENARIO``.

The hub drops the packets that it does not forward, as firewalls do, so a direct dial gets no answer. Each scenario prints one line of
JSON: the seconds that the group was predicted to take and took, and the bytes that the relay forwarded.

======== =============================================================================
hidden   no host can dial another (firewalls or NAT on both sides)
open     all hosts can dial one another
one-side nobody can dial host 'one', which can dial the others (NAT on one side)
cut      as 'open', until a firewall cuts all connections in mid-run
vpn      as 'hidden', but servers also have addresses in a VPN, which vanishes in mid-run
======== =============================================================================
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = os.environ["GRIDLOOM_PROGRAM"]
HUB = "192.0.2.1"  # On the loopback device of the hub, which routes lead to.
AGENT, RELAY = f"{HUB}:7711", f"{HUB}:8443"
HOSTS = ["one", "two", "home"]
TASKS = 60
LOG = Path(os.devnull)
FUNCTIONS = '''
import time
import gridloom as gl
import numpy as np
from numpy.typing import NDArray

@gl.function(module="own", work="n")
def step(
    a: gl.Array[NDArray[np.float64], "n"], b: gl.Array[NDArray[np.float64], "n"], seconds: float, mark: str
) -> gl.Array[NDArray[np.float64], "n"]:
    """Writes a file, if `mark` names one."""
    if mark:
        open(mark, "w").close()
    time.sleep(seconds)
    return a / 2 + b + 1
'''


def run(*command):
    subprocess.run(command, check=True)


def address(host):
    return f"10.{HOSTS.index(host) + 1}.0.2"


def enter(host):
    """The command that starts a program on a host."""
    return ["nsenter", f"--net=/run/netns/{host}", "--"]


def build_network():
    run("mount", "-t", "tmpfs", "none", "/run")
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{HUB}/32", "dev", "lo")
    for number, host in enumerate(HOSTS, 1):
        run("ip", "netns", "add", host)
        run("ip", "link", "add", f"to-{host}", "type", "veth", "peer", "name", "eth0", "netns", host)
        run("ip", "address", "add", f"10.{number}.0.1/24", "dev", f"to-{host}")
        run("ip", "link", "set", f"to-{host}", "up")
        run(*enter(host), "ip", "link", "set", "lo", "up")
        run(*enter(host), "ip", "address", "add", f"{address(host)}/24", "dev", "eth0")
        run(*enter(host), "ip", "link", "set", "eth0", "up")
        run(*enter(host), "ip", "route", "add", "default", "via", f"10.{number}.0.1")


def forward(is_on):
    """Lets hosts reach one another, or cuts all connections between them."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1" if is_on else "0")


def refuse_dials(host):
    """Install a firewall in front of a host: it drops the first packet of every connection from another host."""
    device = f"to-{host}"
    begins = ["match", "ip", "protocol", "6", "0xff", "match", "u8", "0x02", "0x12", "at", "33"]  # SYN without ACK.
    from_hosts = ["match", "ip", "src", "10.0.0.0/8"]
    run("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb")
    # Packets of this class wait in a queue that has room for one byte.
    run("tc", "class", "add", "dev", device, "parent", "1:", "classid", "1:10", "htb", "rate", "1mbit")
    run("tc", "qdisc", "add", "dev", device, "parent", "1:10", "bfifo", "limit", "1")
    run("tc", "filter", "add", "dev", device, "parent", "1:", "protocol", "ip", "u32", *from_hosts, *begins, "flowid", "1:10")


def build_vpn():
    """A cable between the two servers, beside the hub."""
    run(*enter("one"), "ip", "link", "add", "vpn", "type", "veth", "peer", "name", "vpn", "netns", "two")
    for number, host in enumerate(HOSTS[:2], 1):
        run(*enter(host), "ip", "address", "add", f"10.9.0.{number}/24", "dev", "vpn")
        run(*enter(host), "ip", "link", "set", "vpn", "up")


@contextlib.contextmanager
def process(*command, cwd=None):
    """A part of the grid; yields the address that it prints."""
    log = open(LOG, "a")
    started = subprocess.Popen([*command, "--json", "--log", "info"], stdout=subprocess.PIPE, stderr=log, text=True, cwd=cwd)
    try:
        line = started.stdout.readline()
        assert line, f"{command} ended"
        yield json.loads(line).get("address")
    finally:
        started.send_signal(signal.SIGINT)
        started.wait()


def client(seconds, size, mark, bound):
    """The program on the client's host: 60 tasks in 30 rounds. Each needs both results of the round before. If `bound`, one of each round
    runs on each server; otherwise the mapper decides, and tasks of a lost server run again."""
    import gridloom as gl
    import numpy as np

    with gl.connect(AGENT, timeout=60) as grid:
        step = grid.function("own/step")
        sides = [step.on("one"), step.on("two")] if bound else [step, step]
        first = np.arange(size, dtype=float)
        expected = [first, first]
        # Servers measure how long calls take, and report it to the agent.
        for _ in range(50):
            with grid.group() as group:
                for side in sides * 4:
                    side(first, first, seconds, "")
            group.wait()
            if group.report().predicted_seconds > seconds:
                break
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.monotonic()
        with grid.group() as group:
            values = [first, first]
            for number in range(TASKS // 2):
                values = [side(*values, seconds, mark if number == TASKS // 6 else "") for side in sides]
                expected = [expected[0] / 2 + expected[1] + 1] * 2
            results = [value.get() for value in values]
        assert all(np.array_equal(result, want) for result, want in zip(results, expected))
        report = group.report()
        print(json.dumps({"took": time.monotonic() - begin, "predicted": report.predicted_seconds}), flush=True)


def main(scenario, folder):
    global LOG
    folder = Path(folder)
    LOG = folder / "log"
    (folder / "functions.py").write_text(FUNCTIONS)
    build_network()
    forward(scenario in ("cut", "open", "one-side"))
    if scenario == "one-side":
        refuse_dials("one")
    if scenario == "vpn":
        build_vpn()
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(PROGRAM, "agent", "--listen", "0.0.0.0:7711", "--advertise", AGENT))
        stack.enter_context(process(PROGRAM, "relay", "--listen", "0.0.0.0:8443", "--advertise", RELAY))
        for host in HOSTS[:2]:
            own = f"{address(host)}:7801"
            if scenario == "vpn":
                own += f"+10.9.0.{HOSTS.index(host) + 1}:7801"
            command = [PROGRAM, "serve", "functions.py", "--python", sys.executable, "--agent", AGENT, "--relay", RELAY, "--name", host]
            options = ["--listen", "0.0.0.0:7801", "--advertise", own, "--models", "none", "--slots", "1"]
            stack.enter_context(process(*enter(host), *command, *options, cwd=folder))
        seconds, size, bound = ("0.1", "20000", "") if scenario in ("cut", "vpn") else ("0.01", "200000", "bound")
        mark = folder / "running"
        command = [*enter("home"), sys.executable, __file__, "client", seconds, size, str(mark), bound]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert program.stdout.readline() == "ready\n"
        print("go", file=program.stdin, flush=True)
        while not mark.exists():
            assert program.poll() is None
            time.sleep(0.001)
        if scenario == "cut":
            forward(False)
        if scenario == "vpn":
            run(*enter("one"), "ip", "link", "delete", "vpn")
        result = program.stdout.readline()
        assert program.wait() == 0
    relayed = re.findall(r"forwarded (\d+) bytes since the start", LOG.read_text())
    print(json.dumps(json.loads(result) | {"relayed_bytes": int(relayed[0])}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "client":
        client(float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], bool(sys.argv[5]))
    else:
        main(sys.argv[1], sys.argv[2])
