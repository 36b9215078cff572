"""Recorded workflows that run: `gridloom map`'s prediction compared with the makespan measured with stand-ins for the programs.

    python bench/workflows.py --data DIR [--world testbed|simulate] [--seconds 12] [--rounds 3] [--start SECONDS] [--out FILE] [WORKFLOW…]

DIR holds recorded workflows in the format of `gridloom map`, WORKFLOW is the name of one without `.json`. Times and sizes of each are scaled by one
number, so that `gridloom map` (model m2) predicts about `--seconds` seconds on four servers of different speeds, whose links to the client are
narrower than those among them. That plan is executed unchanged by examples/workflow/run.py: on a testbed with real processes, or simulated.

On a testbed the network's headers take 3.5 % of the bandwidth, which is added to it. The start of a stand-in is measured on this machine
in advance, unless --start gives it, and is part of each task: the time of a whole remote call, messages included. A simulated start takes as long as without a description.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import gridloom as gl

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "workflow"
sys.path.insert(0, str(EXAMPLE))
import recorded  # noqa: E402

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
DEFAULT = ["srasearch-10a-001", "blast-small-001", "montage-dss-05d-001", "cycles-1l-1c-9p-001", "1000genome-2ch-250k-001"]
SPEEDS = [1.0, 1.5, 2.0, 3.0]
CLIENT_BYTES_PER_S = 12.5e6
DIRECT_BYTES_PER_S = 25e6
LATENCY_S = 1e-4
# A host's default `program_start`.
SIMULATED_START_S = 0.002
# Payload fraction of a full packet of 1500 bytes.
PAYLOAD = 1448 / 1500


def start_seconds():
    """Seconds of a call of a stand-in that neither waits nor writes: the whole remote call, with its messages."""
    os.environ.setdefault("WORKFLOW", str(EXAMPLE / "small.json"))
    import stand_ins

    nothing = stand_ins.stand_in({"id": "nothing", "inputs": [], "outputs": ["one"]}, {"one": 1})
    with gl.local(servers=1, functions=[nothing]) as grid:
        call, times = grid.function(nothing), []
        for _ in range(20):
            begun = time.perf_counter()
            call(0.0)
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def map_platform(start):
    count = len(SPEEDS)
    pairs = {f"{i}-{j}": DIRECT_BYTES_PER_S for i in range(count) for j in range(i + 1, count)}
    return {
        "speed": SPEEDS,
        "client_bytes_per_s": [CLIENT_BYTES_PER_S] * count,
        "direct_bytes_per_s": pairs,
        "program_start_seconds": [start] * count,
    }


def grid_platform(world, start):
    """The same in TOML: NICs of the hosts, and links between them that are narrower or equal. Hosts are alike: times include the speeds."""
    part = PAYLOAD if world == "testbed" else 1.0
    names = ["client", *(f"s{number}" for number in range(len(SPEEDS)))]
    lines = []
    for name in names:
        role = "client,agent" if name == "client" else "server"
        wide = CLIENT_BYTES_PER_S if name == "client" else max(CLIENT_BYTES_PER_S, DIRECT_BYTES_PER_S)
        properties = f'role = "{role}", memory = "100GiB", slots = 1, program_start = "{start}s"'
        lines.append(f'[[host]]\nname = "{name}"\nspeed = "1Gf"\nproperties = {{ {properties} }}')
        lines.append(f'[[link]]\nname = "card-{name}"\nbandwidth = {wide / part}\nlatency = {LATENCY_S}\nsharing = "splitduplex"')
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            wide = CLIENT_BYTES_PER_S if one == "client" else DIRECT_BYTES_PER_S
            lines.append(f'[[link]]\nname = "{one}-{other}"\nbandwidth = {wide / part}\nsharing = "splitduplex"')
            links = f'["card-{one}:up", "{one}-{other}:up", "card-{other}:down"]'
            lines.append(f'[[route]]\nfrom = "{one}"\nto = "{other}"\nlinks = {links}')
    return "\n".join(lines) + "\n"


def mapped(folder, workflow, start):
    """The plan of `gridloom map`, with the speeds."""
    (folder / "scaled.json").write_text(json.dumps(workflow))
    (folder / "platform.json").write_text(json.dumps(map_platform(start)))
    command = [PROGRAM, "map", "--workflow", folder / "scaled.json", "--platform", folder / "platform.json", "--model", "m2", "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return {**json.loads(done.stdout), "speed": SPEEDS}


def run(folder, world, path, scale):
    """The measured makespan, seconds, and the warnings."""
    command = [PROGRAM, world, *(["run"] if world == "testbed" else []), "--platform", folder / "platform.toml"]
    command += ["--functions", EXAMPLE / "stand_ins.py"] + (["--speeds", "none"] if world == "testbed" else [])
    command += ["--", sys.executable, EXAMPLE / "run.py", "--plan", folder / "plan.json"]
    environment = {**os.environ, "WORKFLOW": str(path), "SCALE": repr(scale)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    said = [line for line in done.stderr.splitlines() if line.startswith("makespan:")]
    if done.returncode or not said:
        raise SystemExit(done.stdout + done.stderr)
    busy = [line for line in (done.stdout + done.stderr).splitlines() if "processors of this machine were busy" in line]
    return float(said[0].split()[-2]), busy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--world", choices=["testbed", "simulate"], default="testbed")
    parser.add_argument("--seconds", type=float, default=12.0, help="what the plan is scaled to")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--start", type=float, help="seconds that the start of a stand-in takes, instead of the measured time")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("workflow", nargs="*", default=DEFAULT)
    options = parser.parse_args()
    found = []
    start = options.start
    if start is None:
        start = start_seconds() if options.world == "testbed" else SIMULATED_START_S
    print(f"the start of a stand-in takes {start * 1e3:.1f} ms")
    print(f"{'workflow':28}{'tasks':>6}{'scale':>10}{'MB':>8}{'predicted':>11}{'measured':>10}{'ratio':>8}  (least..most)")
    for name in options.workflow:
        path = options.data / f"{name}.json"
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            scale = options.seconds / mapped(folder, recorded.read(path), 0.0)["makespan_seconds"]
            workflow = recorded.read(path, scale)
            plan = mapped(folder, workflow, start)
            (folder / "plan.json").write_text(json.dumps(plan))
            (folder / "platform.toml").write_text(grid_platform(options.world, start))
            runs = [run(folder, options.world, path, scale) for _ in range(1 if options.world == "simulate" else options.rounds)]
        times = [seconds for seconds, _ in runs]
        predicted = plan["makespan_seconds"]
        ratios = [one / predicted for one in times]
        megabytes = sum(workflow["files"].values()) / 1e6
        busy = f"  {sum(bool(said) for _, said in runs)} of {len(runs)} runs on a busy machine" if any(said for _, said in runs) else ""
        middle = statistics.median(times)
        print(
            f"{name:28}{len(workflow['tasks']):6}{scale:10.2g}{megabytes:8.1f}{predicted:11.3f}{middle:10.3f}{middle / predicted:8.3f}  "
            f"({min(ratios):.3f}..{max(ratios):.3f}){busy}",
            flush=True,
        )
        found.append({"workflow": name, "scale": scale, "predicted_seconds": predicted, "measured_seconds": times})
    if options.out:
        options.out.write_text(json.dumps({"world": options.world, "start_seconds": start, "runs": found}, indent=1))


if __name__ == "__main__":
    main()
