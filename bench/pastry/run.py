"""The Pastry message exchanged with Gridloom, MPI, gRPC with protobuf, JSON, XML, CORBA and Cap'n Proto, in one run.

    python bench/pastry/run.py [--rounds 7] [--cases tcp host memory lan wan] [--json FILE]

Two processes welcome each other with rows of a routing table:

    tcp, host   on this host: over TCP on loopback, and by each system's fastest method within one host: shared memory for Gridloom and MPI, Unix
                sockets for the others. Over TCP, Gridloom's processes are in different PID namespaces, so that they cannot share memory
    lan, wan    between two hosts of 'gridloom testbed', over TCP: 1 Gbit/s and 100 us, 100 Mbit/s and 20 ms (one way);
    far         and 10 Mbit/s and 50 ms, only if it is named
    memory      no network: Gridloom writes a message, and reads messages written by itself and by machines of the other byte order
                (ppc64, ppc) and of another word size (ppc, i386)

A round runs every system once by each method, one after the other, so that all see the same noise. Systems that are not installed are left
out and named, with the Debian packages that they need. JSON is by nlohmann-json, XML by expat, CORBA by omniORB. Lines and complexity need
'pip install lizard'. Cap'n Proto represents encoders whose messages are close to the struct in memory, as PBIO's were.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "target" / "pastry"
CAPI = ROOT / "target" / "capi"
GRIDLOOM = ROOT / "target" / "release" / "gridloom"
FRAMES = ROOT / "target" / "release" / "gridloom-bench"
MPI = ["mpirun", "--oversubscribe", "-np", "2"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
ROWS = (0, 10, 100, 1000)
# Bandwidth, one-way latency, and maximum number of exchanges per number of rows.
LINKS = {"lan": ("1Gbps", "100us", 300), "wan": ("100Mbps", "20ms", 10), "far": ("10Mbps", "50ms", 5)}
CASES = ("tcp", "host", "memory", *LINKS)
LIMIT_S = 300
#: Debian packages that a system needs.
PACKAGES = {
    "gridloom": "gcc",
    "mpi": "openmpi-bin libopenmpi-dev",
    "grpc": "g++ pkg-config libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev",
    "json": "g++ nlohmann-json3-dev",
    "xml": "gcc libexpat1-dev",
    "corba": "g++ omniidl libomniorb4-dev",
    "capnp": "g++ pkg-config capnproto libcapnp-dev",
}
#: Files of a system that a user would have to write: programs, and descriptions of the message for a generator.
PROGRAMS = {
    "gridloom": ["with_gridloom.c"],
    "mpi": ["with_mpi.c"],
    "grpc": ["with_grpc.cc"],
    "json": ["with_json.cc", "stream.h"],
    "xml": ["with_xml.c", "stream.h"],
    "corba": ["with_corba.cc"],
    "capnp": ["with_capnp.cc", "stream.h"],
}
DESCRIPTIONS = {"grpc": "welcome.proto", "corba": "welcome.idl", "capnp": "welcome.capnp"}
PORTS = {"json": 7801, "grpc": 7802, "xml": 7803, "corba": 7804, "capnp": 7805}


def flags(*packages):
    """Options of the compiler; none if there is no pkg-config."""
    if not shutil.which("pkg-config"):
        return []
    done = subprocess.run(["pkg-config", "--cflags", "--libs", *packages], capture_output=True, text=True)
    return done.stdout.split()


def build(cases):
    """Compiles what is needed and possible; returns the names of the systems, and what is missing for the others."""
    shutil.copytree(HERE, BUILD, dirs_exist_ok=True)
    plugin = shutil.which("grpc_cpp_plugin")
    protoc = ["protoc", "--cpp_out=.", "--grpc_out=.", f"--plugin=protoc-gen-grpc={plugin}", "welcome.proto"]
    grpc = ["g++", "-O2", "-std=c++17", "with_grpc.cc", "welcome.pb.cc", "welcome.grpc.pb.cc", "-o", "with_grpc"]
    skeleton = ["omniidl", "-bcxx", "welcome.idl"]
    corba = ["g++", "-O2", "-std=c++17", "with_corba.cc", "welcomeSK.cc", "-o", "with_corba", "-lomniORB4", "-lomnithread"]
    schema = ["capnp", "compile", "-oc++", "welcome.capnp"]
    capnp = ["g++", "-O2", "-std=c++17", "with_capnp.cc", "welcome.capnp.c++", "-o", "with_capnp"]
    library = [f"-I{CAPI}/include", f"-L{CAPI}/lib", "-lgridloom", f"-Wl,-rpath,{CAPI}/lib"]
    frames = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "gridloom-bench"]
    recipes = {
        "gridloom": [["cc", "-O2", "with_gridloom.c", "-o", "with_gridloom", *library]],
        "mpi": [["mpicc", "-O2", "with_mpi.c", "-o", "with_mpi"]],
        "grpc": [protoc, grpc + flags("grpc++", "protobuf")],
        "json": [["g++", "-O2", "-std=c++17", "with_json.cc", "-o", "with_json"]],
        "xml": [["cc", "-O2", "with_xml.c", "-o", "with_xml", "-lexpat"]],
        "corba": [skeleton, corba],
        "capnp": [schema, capnp + flags("capnp")],
        "frames": [frames],
    }
    if "memory" not in cases:
        del recipes["frames"]
    built, missing = [], {}
    for system, commands in recipes.items():
        try:
            for command in commands:
                subprocess.run(command, cwd=BUILD, check=True, capture_output=True, text=True)
            built.append(system)
        except FileNotFoundError as error:
            missing[system] = f"there is no program '{error.filename}'; install {PACKAGES.get(system, 'it')}"
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip() or str(error)
            first = next((line for line in said.splitlines() if "error" in line), said.splitlines()[0])
            missing[system] = f"{first}; it needs {PACKAGES.get(system, 'cargo')}"
    return built, missing


def output_of(command, **more):
    """The output of a command, or the reason why it failed."""
    try:
        done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, timeout=LIMIT_S, **more)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result within {LIMIT_S} s") from None
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1])
    return done.stdout


def pair(serve, ask, **more):
    """A process that answers, until its input closes or its peer is gone, and one that sends requests."""
    serving = subprocess.Popen(serve, cwd=BUILD, stdin=subprocess.PIPE, **more)
    try:
        return output_of(ask, **more)
    finally:
        serving.stdin.close()
        try:
            serving.wait(timeout=60)
        except subprocess.TimeoutExpired:
            serving.kill()
            serving.wait()


def addresses(system, host):
    """Where the server listens, and where the client finds it, over TCP."""
    place = f"{host}:{PORTS[system]}"
    return (f"giop:tcp:{place}", f"corbaloc::{place}") if system == "corba" else (place, place)


def unix_addresses(system, path):
    """The same for a socket of this host."""
    if system == "corba":
        return f"giop:unix:{path}", f"corbaloc:omniunix:{path}:"
    address = f"unix:{path}" if system == "grpc" else path
    return address, address


def specification(function, host, addresses_of_hosts, *arguments):
    """The specification that 'gridloom deploy' would give a process on that host."""
    spec = {"function": function, "host": host, "arguments": arguments}
    return json.dumps({"spec": spec, "addresses": addresses_of_hosts})


class OneHost:
    """This host, over loopback or by each system's fastest method."""

    def __init__(self, case, folder):
        self.case, self.folder = case, folder

    def runs(self, system):
        return system != "frames"

    def run(self, system):
        label, over_tcp = f"{system}-{self.case}", self.case == "tcp"
        if system == "gridloom" and over_tcp:
            here = {name: "127.0.0.1" for name in ("one", "two")}
            serve = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
            serve += ["env", f"GRIDLOOM_PROCESS={specification('answer', 'one', here)}", "./with_gridloom"]
            ask = ["env", f"GRIDLOOM_PROCESS={specification('ask', 'two', here, label, 'one')}", "./with_gridloom"]
            return pair(serve, ask)
        if system == "gridloom":
            text = output_of([GRIDLOOM, "deploy", "-d", "deployment.toml", "--", "./with_gridloom"])
            return "".join(line.partition("| ")[2] + "\n" for line in text.splitlines())
        if system == "mpi":
            options = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"] if over_tcp else []
            return output_of([*MPI, *options, "./with_mpi", label])
        path = f"{self.folder}/{system}"
        if over_tcp:
            server, client = addresses(system, "127.0.0.1")
        else:
            server, client = unix_addresses(system, path)
        program = f"./with_{system}"
        try:
            return pair([program, label, "serve", server], [program, label, "ask", client])
        finally:
            pathlib.Path(path).unlink(missing_ok=True)

    def close(self):
        return {}


class Memory:
    """No network at all."""

    case = "memory"

    def runs(self, system):
        return system == "frames"

    def run(self, _system):
        return output_of([FRAMES, "--frames"])

    def close(self):
        return {}


class Testbed:
    """Two hosts, 'one' and 'two', with a link of that kind between them."""

    def __init__(self, case, folder):
        bandwidth, latency, self.repeats = LINKS[case]
        self.case, self.name = case, f"pastry-{case}-{os.getpid()}"
        hosts = "".join(f'[[host]]\nname = "{name}"\nspeed = "1Gf"\n' for name in ("one", "two"))
        link = f'[[link]]\nname = "wire"\nbandwidth = "{bandwidth}"\nlatency = "{latency}"\nsharing = "splitduplex"\n'
        route = '[[route]]\nfrom = "one"\nto = "two"\nlinks = ["wire:up"]\n'
        platform = pathlib.Path(folder) / f"{case}.toml"
        platform.write_text(hosts + link + route)
        # mpirun starts its other process by this script, in place of ssh.
        self.agent = pathlib.Path(folder) / f"{case}.sh"
        self.agent.write_text(f'#!/bin/sh\nhost=$1; shift\nexec {" ".join(self.enter("$host"))} sh -c "$*"\n')
        self.agent.chmod(0o755)
        up = [GRIDLOOM, "testbed", "up", "-p", platform, "--no-grid", "--name", self.name, "--speeds", "none"]
        self.keeper = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
        if "is up" not in self.keeper.stdout.readline():
            self.keeper.wait()
            raise RuntimeError("the testbed cannot be started")
        self.addresses = {host["name"]: host["address"] for host in self.show()["hosts"]}

    def enter(self, host):
        return [str(GRIDLOOM), "testbed", "enter", "--name", self.name, host, "--"]

    def show(self):
        return json.loads(output_of([GRIDLOOM, "testbed", "show", "--name", self.name, "--json"]))

    def runs(self, system):
        return system != "frames"

    def run(self, system):
        label = f"{system}-{self.case}"
        limits = {"PASTRY_REPEATS": str(self.repeats)}
        if system == "mpi":
            # Open MPI polls: with fewer processors than processes, it has to let the others run.
            options = {"plm_rsh_agent": self.agent, "btl": "tcp,self", "mpi_yield_when_idle": 1}
            options |= {"btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0"}
            words = [word for name, value in options.items() for word in ("--mca", name, str(value))]
            command = [*MPI, "-host", "two,one", *words, "-x", "PASTRY_REPEATS", "./with_mpi", label]
            return output_of([*self.enter("two"), *command], env=os.environ | limits)
        if system == "gridloom":
            serve = [*self.process("answer", "one", limits), "./with_gridloom"]
            return pair(serve, [*self.process("ask", "two", limits, label, "one"), "./with_gridloom"])
        server, client = addresses(system, self.addresses["one"])
        program, environment = f"./with_{system}", os.environ | limits
        serve = [*self.enter("one"), program, label, "serve", server]
        ask = [*self.enter("two"), program, label, "ask", client]
        return pair(serve, ask, env=environment)

    def process(self, function, host, limits, *arguments):
        config = specification(function, host, self.addresses, *arguments)
        settings = [f"{name}={value}" for name, value in {**limits, "GRIDLOOM_PROCESS": config}.items()]
        return [*self.enter(host), "env", *settings]

    def close(self):
        """Removes the testbed. Returns how well the network was emulated."""
        traffic = {}
        with contextlib.suppress(RuntimeError):
            traffic = self.show()["traffic"]
        subprocess.run([GRIDLOOM, "testbed", "down", "--name", self.name], capture_output=True)
        self.keeper.stdout.close()
        self.keeper.wait(timeout=60)
        return traffic


def place(case, folder):
    if case == "memory":
        return Memory()
    return Testbed(case, folder) if case in LINKS else OneHost(case, folder)


def measure(systems, cases, rounds):
    """All samples, the systems that could not run, and the quality of the testbeds."""
    samples, failed, traffic, places = collections.defaultdict(list), {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for case in cases:
                try:
                    places.append(place(case, folder))
                except (RuntimeError, OSError) as error:
                    failed[case] = str(error)
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
                for system in systems:
                    for where in places:
                        what_runs = f"{system}, {where.case}"
                        if not where.runs(system) or what_runs in failed:
                            continue
                        try:
                            lines = where.run(system).splitlines()
                        except (RuntimeError, OSError) as error:
                            failed[what_runs] = str(error)
                            continue
                        for line in lines:
                            label, what, rows, microseconds = line.split()
                            # Over a slow link only the exchange is of interest.
                            if where.case not in LINKS or what == "round_trip":
                                samples[label.split("-")[0], where.case, what, int(rows)].append(float(microseconds))
        finally:
            for where in places:
                traffic[where.case] = where.close()
    return samples, failed, {case: figures for case, figures in traffic.items() if figures}


def lines_and_complexity():
    """Lines of code and the sum of cyclomatic complexities of each system's files, by lizard, and the lines of its description of the message.

    Functions that only time encoding and decoding do not count.
    """
    try:
        import lizard
    except ImportError:
        print("without lines and complexity: no module 'lizard'", file=sys.stderr)
        return {}
    counts = {}
    for system, files in PROGRAMS.items():
        analyses = [lizard.analyze_file(str(HERE / file)) for file in files]
        functions = [function for analysis in analyses for function in analysis.function_list]
        timing = [function for function in functions if function.name == "time_coding"]
        functions = [function for function in functions if function not in timing]
        description = (HERE / DESCRIPTIONS[system]).read_text().splitlines() if system in DESCRIPTIONS else []
        counts[system] = {
            "files": files,
            "lines": sum(analysis.nloc for analysis in analyses) - sum(function.nloc for function in timing),
            "functions": len(functions),
            "cyclomatic_complexity": sum(function.cyclomatic_complexity for function in functions),
            "lines_of_description": sum(bool(line.strip()) for line in description),
        }
    return counts


def cell(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}..{max(values):.1f})" if values else "-"


def ratios(samples, above, below):
    """Round by round."""
    cells = []
    for rows in ROWS:
        each = [a / b for a, b in zip(samples[*above, rows], samples[*below, rows])]
        cells.append(f"{statistics.median(each):.2f} ({min(each):.2f}..{max(each):.2f})" if each else "-")
    return cells


def table(samples):
    print(f"{'microseconds, median (spread)':44}" + "".join(f"{f'{rows} rows':>30}" for rows in ROWS))
    keys = dict.fromkeys((what, case, system) for system, case, what, _ in samples)

    def order(key):
        what, case, system = key
        return ("red".index(what[0]), CASES.index(case), what, system)

    for what, case, system in sorted(keys, key=order):
        texts = [cell(samples.get((system, case, what, rows))) for rows in ROWS]
        print(f"{what + ', ' + case + ': ' + system:44}" + "".join(f"{text:>30}" for text in texts))
    for case in CASES:
        above, below = (("gridloom", case, "round_trip"), ("mpi", case, "round_trip"))
        if (*above, 0) in samples and (*below, 0) in samples:
            texts = ratios(samples, above, below)
            print(f"{'gridloom / mpi, round trip, ' + case:44}" + "".join(f"{text:>30}" for text in texts))
    native = ("gridloom", "memory", "decode")
    for key in keys:
        if key[0].startswith("decode:"):
            texts = ratios(samples, ("gridloom", "memory", key[0]), native)
            print(f"{key[0] + ' / decode':44}" + "".join(f"{text:>30}" for text in texts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[case for case in CASES if case != "far"])
    parser.add_argument("--json", type=pathlib.Path, help="write medians, spreads and all samples to this file")
    arguments = parser.parse_args()
    if not GRIDLOOM.exists() or not CAPI.exists():
        sys.exit("build Gridloom first: make build")
    systems, missing = build(arguments.cases)
    samples, failed, traffic = measure(systems, arguments.cases, arguments.rounds)
    table(samples)
    for case, figures in traffic.items():
        late, delivered = figures["late"], figures["delivered"]
        print(
            f"testbed, {case}: {late} of {delivered} packets late, {figures['lost']} lost; mean {figures['late_us_mean']:.0f} us"
        )
    counts = lines_and_complexity()
    for name, count in counts.items():
        lines, complexity, functions = count["lines"], count["cyclomatic_complexity"], count["functions"]
        described = f", {count['lines_of_description']} lines of description" if count["lines_of_description"] else ""
        print(f"{name}: {lines} lines, {functions} functions, cyclomatic complexity {complexity} in all{described}")
    for what, why in {**missing, **failed}.items():
        print(f"without {what}: {why}", file=sys.stderr)
    if arguments.json:
        figures = {
            " ".join(map(str, key)): {"median": statistics.median(all_), "least": min(all_), "greatest": max(all_)}
            for key, all_ in samples.items()
        }
        written = {
            "rounds": arguments.rounds,
            "links": {case: LINKS[case][:2] for case in arguments.cases if case in LINKS},
            "microseconds": figures,
            "samples": {" ".join(map(str, key)): value for key, value in samples.items()},
            "testbeds": traffic,
            "programs": counts,
            "without": {**missing, **failed},
        }
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
