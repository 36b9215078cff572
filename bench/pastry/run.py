"""The Pastry message exchanged with Gridloom, MPI, gRPC with protobuf, and JSON, in one run.

    python bench/pastry/run.py [--rounds 7] [--json FILE]

Two processes of this host welcome each other with rows of a routing table, over TCP on loopback and each by its best way
within one host. A round runs every system once, one after the other, so that all see the same noise. What is not installed
(Debian: openmpi-bin libopenmpi-dev libgrpc++-dev protobuf-compiler-grpc nlohmann-json3-dev) is left out and named.
"""

import argparse
import collections
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
MPI = ["mpirun", "--oversubscribe", "-np", "2"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
OVER_TCP = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
ROWS = (0, 10, 100, 1000)


def flags(*packages):
    done = subprocess.run(["pkg-config", "--cflags", "--libs", *packages], capture_output=True, text=True)
    return done.stdout.split()


def build():
    """Compiles what can be compiled: the names of the systems, and what is missing for the others."""
    shutil.copytree(HERE, BUILD, dirs_exist_ok=True)
    plugin = shutil.which("grpc_cpp_plugin")
    protoc = ["protoc", "--cpp_out=.", "--grpc_out=.", f"--plugin=protoc-gen-grpc={plugin}", "welcome.proto"]
    grpc = ["g++", "-O2", "-std=c++17", "with_grpc.cc", "welcome.pb.cc", "welcome.grpc.pb.cc", "-o", "with_grpc"]
    library = [f"-I{CAPI}/include", f"-L{CAPI}/lib", "-lgridloom", f"-Wl,-rpath,{CAPI}/lib"]
    recipes = {
        "gridloom": [["cc", "-O2", "with_gridloom.c", "-o", "with_gridloom", *library]],
        "mpi": [["mpicc", "-O2", "with_mpi.c", "-o", "with_mpi"]],
        "grpc": [protoc, grpc + flags("grpc++", "protobuf")],
        "json": [["g++", "-O2", "-std=c++17", "with_json.cc", "-o", "with_json"]],
    }
    built, missing = [], {}
    for system, commands in recipes.items():
        try:
            for command in commands:
                subprocess.run(command, cwd=BUILD, check=True, capture_output=True, text=True)
            built.append(system)
        except FileNotFoundError as error:
            missing[system] = f"no program '{error.filename}'"
        except subprocess.CalledProcessError as error:
            missing[system] = (error.stderr.strip() or str(error)).splitlines()[0]
    return built, missing


def pair(program, label, address):
    """A process that answers and one that asks."""
    serving = subprocess.Popen([program, label, "serve", address], cwd=BUILD, stdin=subprocess.PIPE)
    try:
        return subprocess.run([program, label, "ask", address], cwd=BUILD, check=True, capture_output=True, text=True).stdout
    finally:
        serving.stdin.close()
        serving.wait(timeout=60)


def run(system, way, folder):
    """One run of one system: what it printed."""
    label = f"{system}-{way}"
    if system == "gridloom":
        done = subprocess.run(
            [GRIDLOOM, "deploy", "-d", "deployment.toml", "--", "./with_gridloom"],
            cwd=BUILD, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return "".join(line.partition("| ")[2] + "\n" for line in done.stdout.splitlines())
    if system == "mpi":
        options = OVER_TCP if way == "tcp" else []
        done = subprocess.run([*MPI, *options, "./with_mpi", label], cwd=BUILD, check=True, capture_output=True, text=True)
        return done.stdout
    if system == "grpc":
        return pair("./with_grpc", label, "127.0.0.1:7802" if way == "tcp" else f"unix:{folder}/grpc")
    return pair("./with_json", label, "7801" if way == "tcp" else f"{folder}/json")


def ways_of(system):
    return ("tcp",) if system == "gridloom" else ("tcp", "host")


def measure(systems, rounds):
    samples = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            for system in systems:
                for way in ways_of(system):
                    for line in run(system, way, folder).splitlines():
                        _, what, rows, microseconds = line.split()
                        samples[system, way, what, int(rows)].append(float(microseconds))
                    for path in pathlib.Path(folder).iterdir():
                        path.unlink()
    return samples


def lines_and_complexity():
    """Lines of code and the sum of cyclomatic complexities of each program, by lizard."""
    try:
        import lizard
    except ImportError:
        return {}
    counts = {}
    for path in sorted(HERE.glob("with_*")):
        analysis = lizard.analyze_file(str(path))
        functions = analysis.function_list
        counts[path.name] = (analysis.nloc, sum(function.cyclomatic_complexity for function in functions))
    return counts


def table(samples):
    print(f"{'microseconds, median (spread)':38}" + "".join(f"{f'{rows} rows':>26}" for rows in ROWS))
    keys = dict.fromkeys((what, way, system) for system, way, what, _ in samples)
    for what, way, system in sorted(keys, key=lambda key: ("red".index(key[0][0]), key[1] == "host", key[2])):
        cells = [samples[system, way, what, rows] for rows in ROWS]
        texts = [f"{statistics.median(cell):.1f} ({min(cell):.1f}..{max(cell):.1f})" for cell in cells]
        print(f"{what + ', ' + way + ': ' + system:38}" + "".join(f"{text:>26}" for text in texts))
    if ("mpi", "tcp", "round_trip", 0) in samples and ("gridloom", "tcp", "round_trip", 0) in samples:
        ratios = []
        for rows in ROWS:
            ours, theirs = (samples[system, "tcp", "round_trip", rows] for system in ("gridloom", "mpi"))
            each = sorted(a / b for a, b in zip(ours, theirs))
            ratios.append(f"{statistics.median(each):.2f} ({each[0]:.2f}..{each[-1]:.2f})")
        print(f"{'gridloom / mpi, round trip, tcp':38}" + "".join(f"{text:>26}" for text in ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path, help="write all samples to this file")
    arguments = parser.parse_args()
    systems, missing = build()
    for system, why in missing.items():
        print(f"without {system}: {why}", file=sys.stderr)
    samples = measure(systems, arguments.rounds)
    table(samples)
    for name, (lines, complexity) in lines_and_complexity().items():
        print(f"{name}: {lines} lines, cyclomatic complexity {complexity} in all")
    if arguments.json:
        arguments.json.write_text(json.dumps({" ".join(map(str, key)): value for key, value in samples.items()}, indent=1))


if __name__ == "__main__":
    main()
