"""Three programs on six servers, of which 0 to 6 are upgraded: bytes over the client's link, and time, as functions of that number.

    python bench/stateless_servers.py [--world simulate|testbed] [--rounds 3] [--upgraded 0 3 6] [--efficiencies FILE] [--json FILE]

The others are stateless (`serve --plain`): each call sends its arguments, its results are sent back, and no data move between servers. Hosts are joined by
a switch, each with a link of 100 Mb/s; --client-bandwidth changes the client's. Calls are placed by hand, the same for each number, so that only
transfers differ. Functions take almost no time in simulation, unless --efficiencies has other speeds, and little on the testbed: the rest is
communication.
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
OUT = ROOT / "target" / "stateless_servers"
PROGRAM = HERE / "stateless_servers_program.py"
PROTEIN = ROOT / "examples" / "protein"
FUNCTIONS = [HERE / "stateless_servers_functions.py", ROOT / "examples" / "demo" / "enhance.py", PROTEIN / "protein.idl"]
SERVERS = 6


def platform(upgraded, client_bandwidth):
    """A client, which is also the agent, and six servers around a switch; the first `upgraded` servers are upgraded."""
    host = '[[host]]\nname = "{}"\nspeed = "1000Tf"\nproperties = {{ {} }}\n'
    text = host.format("client", 'role = "client, agent"')
    for number in range(SERVERS):
        text += host.format(f"s{number}", f'role = "server", plain = "{"no" if number < upgraded else "yes"}"')
    text += '[[router]]\nname = "switch"\n'
    for name in ["client", *(f"s{number}" for number in range(SERVERS))]:
        bandwidth = client_bandwidth if name == "client" else "100Mbps"
        text += f'[[link]]\nname = "{name}-link"\nbandwidth = "{bandwidth}"\nlatency = "50us"\nsharing = "splitduplex"\n'
        text += f'[[connect]]\nfrom = "{name}"\nto = "switch"\nlinks = ["{name}-link:up"]\n'
    return text


def run(options, upgraded):
    file = OUT / f"{upgraded}-of-{SERVERS}.toml"
    file.write_text('routing = "shortest"\n' + platform(upgraded, options.client_bandwidth))
    functions = [word for path in FUNCTIONS for word in ("--functions", str(path))]
    functions += ["--library", str(OUT / "libprotein.so")]
    simulate = ["simulate", *(["--efficiencies", str(options.efficiencies)] if options.efficiencies else [])]
    command = [str(GRIDLOOM), *(simulate if options.world == "simulate" else ["testbed", "run", "--speeds", "none"]), "-p", str(file)]
    command += [*functions, "--", sys.executable, str(PROGRAM), str(1 if options.world == "simulate" else options.rounds)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=["simulate", "testbed"], default="simulate")
    parser.add_argument("--rounds", type=int, default=3, help="on the testbed")
    parser.add_argument("--client-bandwidth", default="100Mbps")
    parser.add_argument("--upgraded", type=int, nargs="+", choices=range(SERVERS + 1), default=range(SERVERS + 1), metavar="N")
    parser.add_argument("--efficiencies", type=pathlib.Path, help="for simulations: as of gridloom simulate")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    compiled = ["cc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", OUT / "libprotein.so", PROTEIN / "protein.c", "-lm"]
    subprocess.run(compiled, check=True)
    everything = {}
    print(f"{'program':8}{'upgraded':>9}{'arrays':>8}{'client MB':>11}{'servers MB':>12}{'predicted s':>13}  seconds")
    for upgraded in options.upgraded:
        everything[upgraded] = run(options, upgraded)
        for program, rounds in everything[upgraded].items():
            of = lambda what, rounds=rounds: statistics.median(one[what] for one in rounds)  # noqa: E731
            seconds = [one["measured"] for one in rounds]
            spread = "" if len(seconds) == 1 else f" ({min(seconds):.3f}..{max(seconds):.3f})"
            print(
                f"{program:8}{upgraded:>9}{of('arrays'):>8g}{of('client_bytes') / 1e6:>11.2f}{of('server_bytes') / 1e6:>12.2f}"
                f"{of('predicted'):>13.3f}  {statistics.median(seconds):.3f}{spread}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
