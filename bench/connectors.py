"""A chain of six models on six model servers, with 0 to 6 connectors: bytes over the client's link as a function of that number.

    python bench/connectors.py [--rounds 3] [--numbers 100000] [--out FILE]

Each model server is MLServer from its wheel (`make .venv/mlserver/ready`), with one model, x + 1. If it has a connector, the program calls the
model as a function of the grid; otherwise it calls the model server directly, as JSON, through a relay that counts the bytes. Bytes of the grid are those of
its reports. Connectors are added in the chain's order, and in the order of every other one first.
"""

import argparse
import contextlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import gridloom as gl
import numpy as np
from gridloom.connector.model_functions import PROTOCOLS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crates/gridloom-python/tests"))
from model_servers import mlserver, running_mlserver  # noqa: E402

MODELS = 6
ORDERS = {"in order": [0, 1, 2, 3, 4, 5], "every other first": [0, 2, 4, 1, 3, 5]}


class Relay:
    """Forwards bytes between the program and a model server, and counts them."""

    def __init__(self, port, host="127.0.0.1"):
        self.host, self.port, self.bytes, self.lock = host, port, 0, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection((self.host, self.port))
            for ends in [(near, far), (far, near)]:
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    def copy(self, source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 18):
                with self.lock:
                    self.bytes += len(piece)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


def start_connector(stack, name, endpoint, protocol="v2", *options, environment=None):
    command = [sys.executable, "-m", "gridloom", "connector", "--protocol", protocol, "--endpoint", endpoint, "--no-agent", "--name", name, *options]
    command += ["--models", "none", "--json", "--quiet", "--until-stdin-closes"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    stack.enter_context(server)
    stack.callback(server.kill)
    return json.loads(server.stdout.readline())["address"]


def run_chain(grid, steps, direct, model, connected, x):
    """The chain's result and the bytes that its groups moved over the client's links."""
    value, group_bytes, place = x, 0, 0
    while place < MODELS:
        if place not in connected:
            (value,) = direct[place].call(model, [value])
            place += 1
            continue
        with grid.group() as group:
            while place < MODELS and place in connected:
                value = steps[place](value)
                place += 1
        value = value.get()
        group_bytes += group.report().client_bytes
    return value, group_bytes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--numbers", type=int, default=100_000)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if mlserver() is None:
        sys.exit("MLServer is not installed: make .venv/mlserver/ready")
    x = np.random.default_rng(1).standard_normal(options.numbers)
    right = x
    for _ in range(MODELS):
        right = right + 1
    rows = []
    with contextlib.ExitStack() as stack:
        endpoints = [
            stack.enter_context(running_mlserver(pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())), ["step"])) for _ in range(MODELS)
        ]
        relays = [Relay(int(endpoint.rpartition(":")[2])) for endpoint in endpoints]
        direct = [PROTOCOLS["v2"](relay.endpoint, 600.0) for relay in relays]
        model = direct[0].signature("step")
        addresses = [start_connector(stack, f"model-{place}", endpoint) for place, endpoint in enumerate(endpoints)]
        grid = stack.enter_context(gl.connect(servers=addresses))
        steps = [grid.function("models/step").on(f"model-{place}") for place in range(MODELS)]
        run_chain(grid, steps, direct, model, set(), x)
        for order, places in ORDERS.items():
            for number in range(MODELS + 1):
                measured = []
                for _ in range(options.rounds):
                    before, begun = sum(relay.bytes for relay in relays), time.monotonic()
                    value, group_bytes = run_chain(grid, steps, direct, model, set(places[:number]), x)
                    seconds = time.monotonic() - begun
                    assert np.array_equal(value, right), "a chain's result is wrong"
                    measured.append((sum(relay.bytes for relay in relays) - before + group_bytes, seconds))
                sizes, seconds = zip(*measured, strict=True)
                rows.append({"order": order, "connectors": number, "client_bytes": sizes, "seconds": seconds})
                low, high = min(seconds), max(seconds)
                print(
                    f"{order}: {number} connectors: {statistics.median(sizes) / 1e6:.2f} MB over the client's link "
                    f"({min(sizes) / 1e6:.2f} to {max(sizes) / 1e6:.2f}), {statistics.median(seconds):.2f} s ({low:.2f} to {high:.2f})",
                    flush=True,
                )
    if options.out:
        options.out.write_text(json.dumps({"numbers": options.numbers, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
