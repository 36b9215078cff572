"""Predicted compared with measured times on an emulated grid of unequal servers: tiled Cholesky and a chain of products.

    python bench/predicted.py [--rounds 5] [--speeds slowdown|quota] [--slowed] [--json FILE]

Real processes on the emulated platforms of bench/worlds.py. Functions are calibrated at other sizes than those that the programs
use; `auto`'s prediction is printed before the program runs. `mct`, call by call, is measured for comparison. With --slowed (speeds are then
quotas of processor time, which needs cgroups), the fastest server slows down to a quarter of its speed during the run instead, and the
makespan is compared with the one of perfect foreknowledge: before the slowdown at the pace of the fast grid, then at that of a grid with a
server known to be slow.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import worlds

HERE = pathlib.Path(__file__).resolve().parent
OUT = worlds.ROOT / "target" / "predicted"
PROGRAM = HERE / "predicted_program.py"
PLATFORMS = {"unequal": worlds.unequal, "two sites": worlds.two_sites}


def run(command):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith('{"s')][-1])


def emulated(name, text, options):
    import gridloom

    examples = worlds.ROOT / "examples"
    speed = max(filter(None, run([sys.executable, PROGRAM, "0"])["speeds"]))
    platform = OUT / f"{name.replace(' ', '-')}.toml"
    platform.write_text(text(speed))
    testbed = f"predicted-{os.getpid()}"
    served = ["--functions", examples / "demo" / "linalg.idl", "--functions", examples / "cholesky" / "cholesky.idl"]
    served += ["--library", gridloom.blas_library()]
    speeds = "quota" if options.slowed else options.speeds
    command = [worlds.GRIDLOOM, "testbed", "run", "-p", platform, "--speeds", speeds, "--name", testbed, *served]
    return run([*command, "--", sys.executable, PROGRAM, options.rounds, *([testbed] if options.slowed else [])])


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f}..{max(values):.3f})"


def predicted(options):
    everything = {}
    print(f"{'platform, program':22}{'predicted':>11}{'measured':>11}{'predicted / measured':>24}{'mct / auto':>24}")
    for name, text in PLATFORMS.items():
        found = everything[name] = emulated(name, text, options)
        for program, runs in found["results"].items():
            auto, mct = runs["auto"], runs["mct"]
            ratios = [one["predicted"] / one["measured"] for one in auto]
            gains = [one["measured"] / other["measured"] for one, other in zip(mct, auto)]
            predicted, measured = (statistics.median(one[which] for one in auto) for which in ("predicted", "measured"))
            row = f"{name + ', ' + program:22}{predicted:>9.3f} s{measured:>9.3f} s{spread(ratios):>24}{spread(gains):>24}"
            print(row, flush=True)
    return everything


def slowed(options):
    found = emulated("unequal", worlds.unequal, options)
    for one in found["slowed"]:
        print(
            f"s1 at a quarter after {one['after']:.2f} s: {one['changed']['measured']:.2f} s in {one['changed']['plans']} plans; "
            f"fast {one['fast']['measured']:.2f} s, known to be slow {one['known']['measured']:.2f} s, ideal {one['ideal']:.2f} s"
        )
    ratios = [one["changed"]["measured"] / one["ideal"] for one in found["slowed"]]
    print(f"times the ideal that knew: {spread(ratios)}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--speeds", default="slowdown", help="how the testbed emulates processor speeds")
    parser.add_argument("--slowed", action="store_true", help="let a server fall to a quarter of its speed in mid-run")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    found = slowed(options) if options.slowed else predicted(options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
