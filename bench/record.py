"""Runs benchmarks and records what they print, so that every figure on a page was written by a command.

    python bench/record.py calls star      # writes bench/results/calls.md and star.md
    python bench/record.py --list          # the benchmarks: question, minutes, needs

A record has the command, the commit, the date, the machine and its load before and after the run. A benchmark that fails leaves the
record of the last successful run untouched. Benchmarks are listed in bench/benchmarks.toml.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
LIST = ROOT / "bench" / "benchmarks.toml"


def benchmarks():
    """The benchmarks by name: dicts with `question`, `command`, `minutes` and perhaps `needs`."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    return tomllib.loads(LIST.read_text())


def machine():
    """Processor, number of cores and memory."""
    cpus = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpus)
    kib = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    cores = len(os.sched_getaffinity(0))
    return f"{model[1] if model else platform.machine()}, {cores} cores, {kib / 2**20:.0f} GiB, Linux {platform.release()}"


def commit():
    """The short hash of the commit that runs, with a mark if files differ from it."""
    text = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return text.stdout.strip() or "unknown"


def run(command):
    """Runs a shell command, shows what it prints, and returns exit status and text."""
    paths = [str(ROOT / "target" / "release"), str(ROOT / ".venv" / "bin"), os.environ["PATH"]]
    (ROOT / "out").mkdir(exist_ok=True)
    shown = []
    environment = {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(["bash", "-c", command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            shown.append(line)
    return process.returncode, "".join(shown)


def record(name, benchmark, data):
    """Runs one benchmark and writes its record. Returns True if it succeeded."""
    command = benchmark["command"].replace("DATA", str(data) if data else "DATA")
    print(f"{name}: {command} (about {benchmark['minutes']} min)", flush=True)
    before, start = os.getloadavg()[0], datetime.datetime.now(datetime.timezone.utc)
    status, shown = run(command)
    if status != 0:
        print(f"{name}: exit status {status}; bench/results/{name}.md was not changed", file=sys.stderr)
        return False
    seconds = (datetime.datetime.now(datetime.timezone.utc) - start).total_seconds()
    rows = {
        "command": f"`{benchmark['command']}`".replace("|", "\\|"),
        "commit": commit(),
        "date": f"{start:%Y-%m-%d %H:%M} UTC, {seconds:.0f} s",
        "machine": machine(),
        "load before and after": f"{before:.1f}, {os.getloadavg()[0]:.1f}",
    }
    table = "".join(f"| {key} | {value} |\n" for key, value in rows.items())
    RESULTS.mkdir(exist_ok=True)
    text = f"# {name}\n\n{benchmark['question']}\n\n| | |\n|---|---|\n{table}\n```text\n{shown.rstrip()}\n```\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(f"{name}: written to bench/results/{name}.md", flush=True)
    return True


def main():
    known = benchmarks()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run, one after another")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--data", type=pathlib.Path, help="folder of recorded workflows, for benchmarks that read them")
    options = parser.parse_args()
    if options.list or not options.names:
        for name, benchmark in known.items():
            needs = f"; needs {benchmark['needs']}" if "needs" in benchmark else ""
            print(f"{name:22} {benchmark['question']} ({benchmark['minutes']} min{needs})")
        return 0
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}: --list shows the {len(known)} that there are")
    if options.data is None and any("DATA" in known[name]["command"] for name in options.names):
        parser.error("this benchmark reads recorded workflows: name their folder by --data FOLDER")
    return 0 if all([record(name, known[name], options.data) for name in options.names]) else 1


if __name__ == "__main__":
    sys.exit(main())
