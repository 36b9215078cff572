"""Three applications on six gRPC servers, of which 0 to 6 have a connector: bytes over the client's link as a function of that number.

    python bench/connectors_rpc.py [--rounds 3] [--client-bandwidth 100mbit] [--json FILE]

The applications are those of bench/stateless_servers.py: the product of twelve matrices, the enhancement of an image in six strips, and a toy
protein on two servers. Each server is bench/rpc_server.py, a process of grpcio. The program calls a server with a connector as functions of the
grid. It calls any other server directly, through a relay that counts the bytes, and sends it arguments from its own memory. Calls are placed by
hand, the same for each number. Bytes of the grid are those of `Grid.traffic`.

All processes are on one host and use TCP, not shared memory. Without `--client-bandwidth`, no link is slow, and seconds show the work of encoding and
copying. With it, the program runs in a network namespace of its own, whose only link has this bandwidth in each direction, in the syntax of tc. That
needs root, ip and tc.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import gridloom as gl
import numpy as np
from gridloom.connector.model_functions import PROTOCOLS, function_of

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
sys.path[:0] = [str(EXAMPLES / "demo"), str(EXAMPLES / "protein")]
from connectors import Relay, start_connector  # noqa: E402
from demo import enhance_with  # noqa: E402
from protein import chains, fibonacci, record  # noqa: E402

SERVERS = 6
MATRICES, ORDER = 12, 512
ROWS, COLUMNS = 1200, 1200
RESIDUES, CHAINS, SWEEPS, ROUNDS = 13, 10_000, 1, 4
#: Shapes of the lists, as `--shape` takes them; sizes that are single names are fields of the requests, too.
CUT = "h-top-bottom,w"
SHAPES = {
    "Chain/Multiply": {"a": "n,n", "b": "n,n", "c": "n,n"},
    "Enhance/Laplacian": {"f": "h,w", "r": CUT},
    "Enhance/Sobel": {"f": "h,w", "r": CUT},
    "Enhance/Sharpen": {"f": "h,w", "g": CUT, "r": CUT},
    "Enhance/Smooth": {"f": "h,w", "r": CUT},
    "Enhance/Larger": {},
    "Enhance/Mask": {"f": "h,w", "g": "h,w", "r": "h,w"},
    "Enhance/Combine": {"f": "h,w", "g": CUT, "r": CUT},
    "Enhance/Power": {"f": "h,w", "r": "h,w"},
    "Protein/Anneal": {"kinds": "n", "states": "chains,2*n-1", "states_out": "chains,2*n-1", "energies": "chains"},
    "Protein/Cross": {"kinds": "n", "mothers": "chains,2*n-1", "fathers": "chains,2*n-1", "states": "chains,2*n-1"},
}
#: First three numbers of addresses with `--client-bandwidth`.
NETWORK = "10.213.77"
SIZES = {"n", "h", "w", "chains"}


class Program:
    """The calls of an application in their order, each with its server. Arguments are values or results of earlier calls."""

    def __init__(self, results):
        self._results, self.calls = results, []

    def call(self, function, server, *arguments):
        """Record a call; return its result, or a tuple of several."""
        number, count = len(self.calls), self._results[function]
        self.calls.append((function, server, arguments))
        made = tuple(Result(number, place) for place in range(count))
        return made[0] if count == 1 else made


class Result:
    """A result of a recorded call."""

    def __init__(self, call, place):
        self.call, self.place = call, place


def chain(program):
    """The product of twelve matrices by binary tree; each call runs on the server of its left factor."""
    random = np.random.default_rng(8)
    matrices = [random.standard_normal((ORDER, ORDER)) / ORDER**0.5 for _ in range(MATRICES)]
    level = [(matrix, number // 2) for number, matrix in enumerate(matrices)]
    while len(level) > 1:
        pairs = zip(level[0::2], level[1::2], strict=False)
        level = [(program.call("Chain/Multiply", at, a, b), at) for (a, at), (b, _) in pairs] + level[len(level) // 2 * 2 :]
    return [level[0][0]], lambda results: np.allclose(results[0], np.linalg.multi_dot(matrices))


def image(program):
    """The enhancement of examples/demo in six strips, one per server."""
    picture = np.random.default_rng(2).uniform(0, 255, (ROWS, COLUMNS))

    def recorded(name, calls):
        return [program.call(f"Enhance/{name.capitalize()}", number, *arguments) for number, arguments in enumerate(calls)]

    def here(name, calls):
        import enhance

        return [getattr(enhance, name)(*arguments) for arguments in calls]

    right = np.concatenate(enhance_with(here, picture, 1))
    return enhance_with(recorded, picture, SERVERS), lambda results: np.array_equal(np.concatenate(results), right)


def protein(program):
    """Four rounds of examples/protein on two servers; halves of 1 MB."""

    class Recorder:
        def function(self, name):
            return f"Protein/{name.partition('/')[2].capitalize()}"

    def place(function, half):
        return lambda *arguments: program.call(function, half, *arguments)

    halves, energies = record(Recorder(), fibonacci(RESIDUES), chains(CHAINS, RESIDUES, seed=1), SWEEPS, ROUNDS, 1, place)
    return [*halves, *energies], lambda results: [len(one) for one in results] == [CHAINS // 2] * 4


def run(grid, program, wanted, direct, connected, threads):
    """Run the program; return the wanted results. Repeatedly, all calls of servers with a connector whose arguments are available form one group."""
    functions = {name: grid.function(name) for name in SHAPES} if connected else {}
    done = {}

    def argument(one):
        return done[one.call][one.place] if isinstance(one, Result) else one

    def value(one):
        found = argument(one)
        return found.get() if hasattr(found, "get") else found

    def values_of(number):
        return [value(one) for one in program.calls[number][2]]

    def direct_call(function, server, arguments):
        return direct[server][function](*arguments)

    def is_ready(arguments):
        return all(one.call in done for one in arguments if isinstance(one, Result))

    while len(done) < len(program.calls):
        with grid.group():
            for number, (function, server, arguments) in enumerate(program.calls):
                if number not in done and server in connected and is_ready(arguments):
                    made = functions[function].on(f"rpc-{server}")(*map(argument, arguments))
                    done[number] = made if isinstance(made, tuple) else (made,)
        # Like the paper's program, this calls its servers asynchronously: one call at a time on each server.
        left = [(number, server, arguments) for number, (_, server, arguments) in enumerate(program.calls) if number not in done]
        ready = [number for number, server, arguments in left if server not in connected and is_ready(arguments)]
        begun = [(number, threads[program.calls[number][1]].submit(direct_call, *program.calls[number][:2], values_of(number))) for number in ready]
        for number, call in begun:
            made = call.result()
            done[number] = made if isinstance(made, tuple) else (made,)
    return [value(one) for one in wanted]


def direct_functions(endpoint):
    """Functions that call the server at the endpoint, as a program without a grid does. Arguments that are sizes are not passed."""
    connector = PROTOCOLS["grpc"](endpoint, 600.0)
    found = {}
    for name, shapes in SHAPES.items():
        model = connector.signature(name)
        given = {tensor: sizes.split(",") for tensor, sizes in shapes.items()}
        found[name] = _with_sizes(function_of(connector, model, given), model, given)
    return found


def _with_sizes(function, model, shapes):
    def call(*arguments):
        named = dict(zip([one.name for one in model.inputs if one.name not in SIZES], arguments, strict=True))
        for name, given in list(named.items()):
            named.update({size: number for size, number in zip(shapes.get(name, ()), np.shape(given), strict=False) if size in SIZES})
        return function(*(named[one.name] for one in model.inputs))

    return call


@contextlib.contextmanager
def link_of_client(bandwidth):
    """Two network interfaces that are connected by a link of this bandwidth.

    Yield the address of this end, and a function by which the calling thread, and threads that it starts later, move to the other end.
    """
    name, (here, there) = f"gridloom-{os.getpid()}", (f"gl{os.getpid()}a", f"gl{os.getpid()}b")

    def run(*words):
        subprocess.run(words, check=True)

    def enter():
        with open(f"/var/run/netns/{name}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the network namespace")

    inside = ["ip", "netns", "exec", name]
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        for interface, address, prefix in [(here, f"{NETWORK}.1/30", []), (there, f"{NETWORK}.2/30", inside)]:
            run(*prefix, "ip", "address", "add", address, "dev", interface)
            run(*prefix, "ip", "link", "set", interface, "up")
            run(*prefix, "tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", bandwidth, "burst", "128kb", "latency", "100ms")
        run(*inside, "ip", "link", "set", "lo", "up")
        yield f"{NETWORK}.1", enter
    finally:
        run("ip", "netns", "delete", name)


def start_server(stack, folder, host):
    command = [sys.executable, str(HERE / "rpc_server.py"), "--modules", str(folder), "--library", str(folder / "libprotein.so"), "--host", host]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.enter_context(server)
    stack.callback(server.kill)
    return int(server.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client-bandwidth", help="such as 100mbit")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args()
    # The network namespace is deleted in this case, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        from grpc_tools import protoc
    except ImportError:
        sys.exit("grpcio-tools is not installed: make .venv/tests")
    figures = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arguments = ["protoc", f"-I{HERE}", f"--python_out={folder}", f"--grpc_python_out={folder}", str(HERE / "rpc_server.proto")]
        assert protoc.main(arguments) == 0
        compiled = ["cc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", folder / "libprotein.so", EXAMPLES / "protein" / "protein.c", "-lm"]
        subprocess.run(compiled, check=True)
        host, enter = "127.0.0.1", lambda: None
        if options.client_bandwidth:
            host, enter = stack.enter_context(link_of_client(options.client_bandwidth))
        ports = [start_server(stack, folder, host) for _ in range(SERVERS)]
        shapes = [f"--shape={name}/{tensor}={sizes}" for name, given in SHAPES.items() for tensor, sizes in given.items()]
        addresses = []
        for place, port in enumerate(ports):
            # Processes with other folders of sockets do not use shared memory with each other.
            environment = {**os.environ, "GRIDLOOM_SOCKETS": str(folder / f"sockets-{place}")}
            arguments = [f"rpc-{place}", f"{host}:{port}", "grpc", f"--listen={host}:0", *shapes]
            addresses.append(start_connector(stack, *arguments, environment=environment))
        os.environ["GRIDLOOM_SOCKETS"] = str(folder / "sockets-client")
        enter()
        relays = [Relay(port, host) for port in ports]
        direct = [direct_functions(relay.endpoint) for relay in relays]
        results = {name: len(PROTOCOLS["grpc"](relays[0].endpoint, 600.0).signature(name).outputs) for name in SHAPES}
        grid = stack.enter_context(gl.connect(servers=addresses))
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(SERVERS)]
        # Start workers and open connections.
        for place in range(SERVERS):
            assert grid.function("Enhance/Larger").on(f"rpc-{place}")(1.0, 2.0) == direct[place]["Enhance/Larger"](1.0, 2.0) == 2.0
        print(f"{'program':8}{'connectors':>11}{'client MB':>11}{'servers MB':>12}  seconds")
        for connectors in range(SERVERS + 1):
            for application in (protein, image, chain):
                program = Program(results)
                wanted, is_right = application(program)
                measured = []
                for _ in range(options.rounds):
                    before, of_relays, begun = grid.traffic(), sum(relay.bytes for relay in relays), time.monotonic()
                    assert is_right(run(grid, program, wanted, direct, set(range(connectors)), threads)), f"{application.__name__} is wrong"
                    seconds, after = time.monotonic() - begun, grid.traffic()
                    client = after.client_bytes - before.client_bytes + sum(relay.bytes for relay in relays) - of_relays
                    measured.append({"seconds": seconds, "client_bytes": client, "server_bytes": after.server_bytes - before.server_bytes})
                rounds = figures.setdefault(str(connectors), {})[application.__name__] = measured
                columns = {key: [one[key] for one in rounds] for key in rounds[0]}
                client, server = (f"{statistics.median(columns[key]) / 1e6:.2f}" for key in ("client_bytes", "server_bytes"))
                seconds = columns["seconds"]
                spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
                print(f"{application.__name__:8}{connectors:>11}{client:>11}{server:>12}  {spread}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
