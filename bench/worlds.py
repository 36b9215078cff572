"""Simulated compared with emulated: the demonstration's two programs and Hydropad on three platforms, in simulation and with real processes.

    python bench/worlds.py [--rounds 5] [--platforms "two sites"] [--n 1024] [--speeds auto|quota|slowdown] [--json FILE]

1. The part of a core's measured speed that each function uses, from a platform of its own: two emulated servers of a
   quarter of a core side by side on a fast network. (Alone in the client's process tree, with data that never left the
   machine's caches, the image's functions take 15 to 40 % less than on any emulated server; the product takes the same.)
2. `gridloom simulate` with these efficiencies, and `gridloom testbed run`, on the same platform files. The hosts' speeds are
   parts of a core of this machine, emulated by quota, or by lengthening calls.

Both are repeated for each round and platform: the speed of a shared machine changes from one minute to the next.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
GRIDLOOM = ROOT / "target" / "release" / "gridloom"
OUT = ROOT / "target" / "worlds"
DEMO = ROOT / "examples" / "demo"
PROGRAM = HERE / "worlds_program.py"
PROGRAMS = ("chain", "image", "hydropad")
HYDROPAD = ROOT / "examples" / "gridrpc" / "hydropad"
LIBRARY = OUT / "libhydropad.so"

HOST = '[[host]]\nname = "{}"\nspeed = "{}f"\nproperties = {{ role = "{}" }}\n'


def hosts(speed, servers):
    """A client, which is also the agent, and servers with parts of a core's speed."""
    text = HOST.format("laptop", speed * 0.5, "client,agent")
    return text + "".join(HOST.format(f"s{number}", speed * part, "server") for number, part in enumerate(servers, 1))


def link(name, bandwidth, latency):
    return f'[[link]]\nname = "{name}"\nbandwidth = "{bandwidth}"\nlatency = "{latency}"\n'


def star(name, members, bandwidth, latency):
    names = ", ".join(f'"{member}"' for member in members)
    return f'[[star]]\nname = "{name}"\nhosts = [{names}]\nbandwidth = "{bandwidth}"\nlatency = "{latency}"\n'


def slow_client(speed):
    """Four servers on a fast network, a client behind a slow link."""
    text = hosts(speed, [0.25] * 4) + star("client", ["laptop"], "1Gbps", "50us")
    text += star("servers", ["s1", "s2", "s3", "s4"], "500Mbps", "100us") + link("uplink", "100Mbps", "5ms")
    return text + '[[connect]]\nfrom = "client"\nto = "servers"\nlinks = ["uplink"]\n'


def two_sites(speed):
    """Two servers here, two elsewhere, one slow link between."""
    text = hosts(speed, [0.25] * 4) + star("here", ["laptop", "s1", "s2"], "500Mbps", "100us")
    text += star("there", ["s3", "s4"], "500Mbps", "100us") + link("wan", "50Mbps", "20ms")
    return text + '[[connect]]\nfrom = "here"\nto = "there"\nlinks = ["wan"]\n'


def pair(speed):
    """The platform for calibrating functions: two servers and the client on one fast network."""
    return hosts(speed, [0.25] * 2) + star("lan", ["laptop", "s1", "s2"], "1Gbps", "50us")


def unequal(speed):
    """Four servers of four speeds on one network."""
    members = ["laptop", "s1", "s2", "s3", "s4"]
    return hosts(speed, [0.4, 0.3, 0.2, 0.1]) + star("lan", members, "500Mbps", "100us")


PLATFORMS = {"slow client": slow_client, "two sites": two_sites, "unequal": unequal}


def program(n):
    return ["--", sys.executable, str(PROGRAM), str(n), str(LIBRARY)]


def outcome(command):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    found = [line for line in done.stdout.splitlines() if line.startswith('{"speed"')]
    return json.loads(found[-1]), done.stderr


def seconds_of(result):
    return {name: seconds for one in result["programs"].values() for name, seconds in one["functions"].items()}


def calibrate(n, speeds):
    """A core's speed here, and the file with the part of it that each function uses, both as they are now."""
    alone, _ = outcome([sys.executable, PROGRAM, str(n), str(LIBRARY)])
    platform = OUT / "pair.toml"
    platform.write_text(pair(alone["speed"]))
    seconds = seconds_of(emulated(platform, n, speeds)[0])
    ideal = seconds_of(simulated(platform, n))
    efficiencies = {name: ideal[name] / seconds[name] for name in ideal if seconds.get(name) and ideal[name]}
    file = OUT / "efficiencies.json"
    file.write_text(json.dumps(efficiencies, indent=1))
    return alone["speed"], file


def simulated(platform, n, efficiencies=None):
    command = [GRIDLOOM, "simulate", "-p", platform]
    if efficiencies:
        command += ["--efficiencies", efficiencies]
    return outcome(command + program(n))[0]


def emulated(platform, n, speeds):
    import gridloom

    served = ["--functions", DEMO / "linalg.idl", "--functions", DEMO / "enhance.py"]
    served += ["--functions", HYDROPAD / "hydropad.idl", "--library", gridloom.blas_library(), "--library", LIBRARY]
    return outcome([GRIDLOOM, "testbed", "run", "-p", platform, "--speeds", speeds, *served, *program(n)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--platforms", nargs="+", choices=PLATFORMS, default=list(PLATFORMS))
    parser.add_argument("--n", type=int, default=1024, help="rows of the matrices")
    parser.add_argument("--speeds", default="auto", help="how the testbed emulates processor speeds")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    kernels = [HYDROPAD / name for name in ("fft.c", "gravity.c", "matter.c", "gas.c")]
    subprocess.run(["cc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", LIBRARY, *kernels, "-lm"], check=True)
    pairs = {f"{name}, {which}": [] for name in options.platforms for which in PROGRAMS}
    for number in range(options.rounds):
        for name in options.platforms:
            speed, efficiencies = calibrate(options.n, options.speeds)
            platform = OUT / f"{name.replace(' ', '-')}.toml"
            platform.write_text(PLATFORMS[name](speed))
            virtual = simulated(platform, options.n, efficiencies)["programs"]
            real, said = emulated(platform, options.n, options.speeds)
            if "not emulated" in said or "flagged" in said:
                print(f"{name}, round {number + 1}: {said.strip()}", file=sys.stderr)
            for which in PROGRAMS:
                pairs[f"{name}, {which}"].append((virtual[which]["makespan"], real["programs"][which]["makespan"]))
    print(f"{'platform, program':24}{'simulated':>11}{'emulated':>11}{'simulated / emulated, median (spread)':>42}")
    for name, both in pairs.items():
        virtual, real = (statistics.median(column) for column in zip(*both))
        ratios = [one / other for one, other in both]
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})"
        print(f"{name:24}{virtual:>9.3f} s{real:>9.3f} s{spread:>42}")
    if options.json:
        options.json.write_text(json.dumps(pairs, indent=1))


if __name__ == "__main__":
    main()
