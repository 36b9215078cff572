"""The examples print the documented output, in the real world and in simulation."""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXPECTED = ROOT / "examples" / "expected"


def gridloom():
    import gridloom as package

    return str(pathlib.Path(package.__file__).parent / "bin" / "gridloom")


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["first", "own_functions", "words"])
def test_example(name):
    assert run(sys.executable, f"examples/{name}.py") == (EXPECTED / f"{name}.txt").read_text()


WORKFLOW = {**os.environ, "WORKFLOW": "examples/workflow/small.json", "SCALE": "0.01"}


def test_a_recorded_workflow_runs_with_stand_ins():
    command = [sys.executable, "examples/workflow/run.py"]
    said = "6 tasks, 2 files of 12010 bytes at the end\n"
    assert run(*command, env=WORKFLOW) == said
    assert run(gridloom(), "simulate", "-p", "examples/two-sites.toml", "--", *command, env=WORKFLOW).startswith(said)


@pytest.mark.parametrize("prefix", ["NFCORE_SAREK.SAREK.PREPARE_GENOME.", "nf-core:sarek (größe) "])
def test_a_workflow_runs_with_any_names_of_tasks(tmp_path, prefix):
    """Task ids of Nextflow have dots; others have characters that names of functions cannot have."""
    workflow = json.loads((ROOT / "examples/workflow/small.json").read_text())
    for part in (workflow["workflow"]["specification"], workflow["workflow"]["execution"]):
        for task in part["tasks"]:
            task["id"] = prefix + task["id"]
    file = tmp_path / "named.json"
    file.write_text(json.dumps(workflow))
    said = run(sys.executable, "examples/workflow/run.py", env={**WORKFLOW, "WORKFLOW": str(file)})
    assert said == "6 tasks, 2 files of 12010 bytes at the end\n"


def test_older_recorded_workflows_are_read(tmp_path):
    """WfFormat 1.4, and 1.2 with its other keys. A task waits for a parent even if they share no file."""
    made, read = ([{"link": link, "name": "f", size: 5}] for link, size in (("output", "sizeInBytes"), ("input", "size")))
    tasks = [
        {"name": "a", "id": "a_1", "runtimeInSeconds": 0.2, "files": made},
        {"name": "b", "runtime": 0.1, "parents": ["a"], "files": read},
        {"name": "c", "parents": ["b", "a_1"]},
    ]
    for key in ("tasks", "jobs"):
        file = tmp_path / f"{key}.json"
        file.write_text(json.dumps({"name": "old", "schemaVersion": "1.2", "workflow": {key: tasks}}))
        program = f"import recorded, json; print(json.dumps(recorded.read({str(file)!r})))"
        read_back = json.loads(run(sys.executable, "-c", program, env={**os.environ, "PYTHONPATH": "examples/workflow"}))
        assert [(task["id"], task["work_seconds"], task["inputs"], task["outputs"]) for task in read_back["tasks"]] == [
            ("a_1", 0.2, [], ["f", "a_1 before c"]),
            ("b", 0.1, ["f"], ["b before c"]),
            ("c", 0.0, ["b before c", "a_1 before c"], []),
        ]


def test_a_recorded_workflow_takes_as_long_as_gridloom_map_says():
    """In simulation, with the plan of `gridloom map`."""
    command = [sys.executable, "bench/workflows.py", "--data", "examples/workflow", "--world", "simulate", "--seconds", "5"]
    (line,) = [line for line in run(*command, "small").splitlines() if line.startswith("small ")]
    predicted, measured = map(float, line.split()[4:6])
    assert 0.9 * predicted < measured < 1.15 * predicted


def test_the_first_example_simulated_twice_gives_one_trace():
    command = [
        gridloom(),
        "simulate",
        "-p",
        "examples/two-sites.toml",
        "--json",
        "--",
        sys.executable,
        "examples/first.py",
    ]
    one, two = json.loads(run(*command)), json.loads(run(*command))
    assert one["trace_hash"] == two["trace_hash"]
    # Four 2 x 2 arrays are sent, one is returned.
    assert sum(one["bytes_by_pair"].values()) >= 5 * 32


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The commands of the process examples, by language."""
    if shutil.which("cargo") is None:
        pytest.skip("there is no cargo")
    build = [
        "cargo",
        "build",
        "--release",
        "--locked",
        "--quiet",
        "-p",
        "gridloom",
        "--example",
        "matmul",
        "--example",
        "pastry",
        "--example",
        "ring",
    ]
    subprocess.run(build, cwd=ROOT, check=True)
    folder, library = tmp_path_factory.mktemp("c"), ROOT / "target" / "capi"

    def in_c(name):
        if shutil.which("cc") is None:
            pytest.skip("there is no C compiler 'cc'")
        flags = [f"-I{library}/include", f"-L{library}/lib", "-lgridloom", f"-Wl,-rpath,{library}/lib"]
        run("cc", f"examples/processes/{name}.c", "-o", str(folder / name), *flags)
        return [str(folder / name)]

    return {
        "python": lambda name: [sys.executable, f"examples/processes/{name}.py"],
        "rust": lambda name: [str(ROOT / "target" / "release" / "examples" / name)],
        "c": in_c,
    }


@pytest.mark.parametrize("language", ["python", "rust", "c"])
def test_the_processes_talk_in_simulation_and_for_real(programs, language):
    program = ["-d", "examples/processes/deployment.toml", "--", *programs[language]("matmul")]
    assert run(gridloom(), "simulate", "-p", "examples/two-sites.toml", *program).startswith("5 products are right")
    assert run(gridloom(), "deploy", *program) == "client@laptop| 5 products are right\n"


def test_processes_that_use_a_grid_run_in_simulation_and_for_real():
    program = ["-d", "examples/processes/grid.toml", "--", sys.executable, "examples/processes/grid.py"]
    simulate = [gridloom(), "simulate", "-p", "examples/two-sites.toml"]
    one, two = run(*simulate, *program), run(*simulate, *program)
    assert one == two
    assert "laptop: norm 0, 2160008 bytes" in one and "cluster-1: norm 0, " in one
    results = ["laptop: norm 2.16e+08", "cluster-1: norm 6.4e+07"]
    for out in (run(*simulate, "--execute", *program), run(gridloom(), "deploy", *program)):
        assert all(result in out for result in results), out


def test_the_demonstration_runs_on_a_platform_of_many_hosts(tmp_path):
    # With a tenth of the thousand hosts, because of the time that two runs take.
    text = (ROOT / "examples" / "platforms" / "thousand.toml").read_text()
    (tmp_path / "platform.toml").write_text(text.replace("node-[1-999]", "node-[1-99]"))
    command = [gridloom(), "simulate", "-p", str(tmp_path / "platform.toml"), "--json", "--", sys.executable]
    command += ["examples/demo/demo.py", "--n", "256", "--out", str(tmp_path / "out")]
    one, two = json.loads(run(*command)), json.loads(run(*command))
    assert one == two
    # The client alone also takes virtual time: for seven products, on its host.
    chain = json.loads((tmp_path / "out" / "report.json").read_text())["programs"]["chain"]
    assert chain["local"]["seconds"] == pytest.approx(7 * 2 * 256**3 / 2e9)
    command.remove("--json")
    assert len(run(*command).splitlines()) < 60, "a page"
    assert [heuristic for heuristic, _, _ in one["groups"]] == ["auto"] * 3
    assert all(predicted > 0 and simulated > 0 for _, predicted, simulated in one["groups"])


WELCOMES = [
    "guest@cluster-2| node 78 is welcome: 10 rows, leaves 70 to 85",
    "guest@laptop| node 77 is welcome: 0 rows, leaves 69 to 84",
]


@pytest.mark.parametrize("language", ["python", "rust", "c"])
def test_a_pastry_node_welcomes_others(programs, language):
    program = ["-d", "examples/processes/pastry.toml", "--", *programs[language]("pastry")]
    simulated = run(gridloom(), "simulate", "-p", "examples/two-sites.toml", *program).splitlines()
    assert sorted(simulated)[:2] == sorted(line.split("| ")[1] for line in WELCOMES)
    assert sorted(run(gridloom(), "deploy", *program).splitlines()) == WELCOMES


@pytest.mark.parametrize("language", ["python", "rust", "c"])
def test_a_token_goes_round_a_ring(programs, language):
    program = ["-d", "examples/processes/ring.toml", "--", *programs[language]("ring")]
    simulated = run(gridloom(), "simulate", "-p", "examples/two-sites.toml", *program)
    assert simulated.startswith("the token went 40 steps\n"), simulated
    assert run(gridloom(), "deploy", *program) == "member@laptop| the token went 40 steps\n"


@pytest.mark.parametrize(("name", "function"), [("matmul", "server"), ("pastry", "node")])
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(["python", "rust", "c"], 2)))
def test_processes_of_two_languages_talk_to_one_another(programs, tmp_path, name, function, one, other):
    """One function runs in one language, the others in another: the program that `deploy` starts for each process
    chooses."""
    chooser = tmp_path / "chooser.py"
    commands = {True: programs[one](name), False: programs[other](name)}
    chooser.write_text(
        f"import json, os\nfunction = json.loads(os.environ['GRIDLOOM_PROCESS'])['spec']['function']\n"
        f"command = {commands!r}[function == {function!r}]\nos.execv(command[0], command)\n"
    )
    deployment = {"matmul": "deployment", "pastry": "pastry"}[name]
    out = run(gridloom(), "deploy", "-d", f"examples/processes/{deployment}.toml", "--", sys.executable, str(chooser))
    assert sorted(out.splitlines()) == {"matmul": ["client@laptop| 5 products are right"], "pastry": WELCOMES}[name]


def test_the_documentation_s_rust_program_is_the_crate_s_which_is_compiled():
    page = (ROOT / "docs" / "processes.md").read_text()
    crate = (ROOT / "crates" / "gridloom" / "src" / "process" / "mod.rs").read_text()
    (program,) = re.findall(r"```rust\n(.*?)```", page, re.DOTALL)
    assert program in re.sub(r"^//! ?", "", crate, flags=re.MULTILINE)


def test_the_program_of_the_documentation_runs(tmp_path):
    page = (ROOT / "docs" / "processes.md").read_text()
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
    deployment = "[[process]]\nhost = 'desk'\nfunction = 'server'\n[[process]]\nhost = 'laptop'\nfunction = 'client'\narguments = ['desk']\n"
    (tmp_path / "deployment.toml").write_text(deployment)
    (tmp_path / "program.py").write_text(program)
    out = run(
        gridloom(), "deploy", "-d", str(tmp_path / "deployment.toml"), "--", sys.executable, str(tmp_path / "program.py")
    )
    assert out == "client@laptop| 24.0\n"


@pytest.mark.parametrize("name", ["first", "own_functions"])
def test_examples_run_unchanged_on_an_emulated_network(name):
    testbed = [gridloom(), "testbed", "run", "-p", "examples/two-sites.toml", "--quiet", "--overload"]  # however busy this machine is
    probe = subprocess.run([*testbed, "--no-grid", "--", "true"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    if "does not let this user have" in probe.stderr:
        pytest.skip(probe.stderr)
    out = run(*testbed, "--functions", "examples/functions.py", "--", sys.executable, f"examples/{name}.py")
    assert out == (EXPECTED / f"{name}.txt").read_text()


def test_bodies_can_be_run_in_simulation():
    command = [
        gridloom(),
        "simulate",
        "-p",
        "examples/two-sites.toml",
        "--execute",
        "--",
        sys.executable,
        "examples/first.py",
    ]
    assert "[[ 26.  46.]\n [ 64. 112.]]" in run(*command)


def test_the_readmes_first_program_runs():
    program = re.search(
        r"```python\n(import gridloom as gl\nimport numpy.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    ).group(1)
    assert program == (ROOT / "examples" / "program.py").read_text()
    out = run(sys.executable, "examples/program.py")
    assert "3 calls on 2 servers, mapped by auto" in out
    assert "moved: 40.0 MB over client links, 8.0 MB between servers" in out
    # It prints the output on the page, apart from times and the chosen servers.
    shown = re.search(r"```\n(\(1000, 1000\)\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    assert sorted(_unnumbered(out)) == sorted(_unnumbered(shown))


def _unnumbered(told):
    return [re.sub(r"server-\d|\d+\.\d+ s\b", "#", line) for line in told.splitlines() if line]


def test_the_readmes_figures_and_picture_are_those_of_the_chains(tmp_path):
    simulate = [gridloom(), "simulate", "-p", str(ROOT / "examples" / "two-sites.toml"), "--", sys.executable]
    program = str(ROOT / "examples" / "chains.py")
    done = subprocess.run([*simulate, program], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    told = "".join(done.stdout.splitlines(keepends=True)[:2])
    assert f"```\n{told}```" in (ROOT / "README.md").read_text(), told
    assert (tmp_path / "chains.svg").read_text().startswith("<svg") and (ROOT / "docs" / "chains.svg").exists()


def test_the_first_pages_name_commands_and_files_that_exist():
    pages = [ROOT / "README.md", ROOT / "docs" / "processes.md", *sorted((ROOT / "docs" / "start").glob("*.md"))]
    text = "".join(page.read_text() for page in pages)
    commands = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    subcommands = set(re.findall(r"\bgridloom ([a-z]+)", "".join(commands)))
    assert {"agent", "serve", "functions", "servers", "call", "simulate", "deploy", "testbed"} <= subcommands
    for name in subcommands:
        run(gridloom(), name, "--help")
    for path in re.findall(r"(?:examples|docs)/[\w./-]+", pages[0].read_text()):
        assert (ROOT / path.rstrip(".")).exists(), path
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), (page.name, link)


def test_the_demonstration_moves_no_byte_that_it_need_not(tmp_path):
    n = 1536
    run(sys.executable, "examples/demo/demo.py", "--n", str(n), "--out", str(tmp_path))
    chain = json.loads((tmp_path / "report.json").read_text())["programs"]["chain"]
    matrix = 8 * n * n
    assert chain["n"] == n
    assert (chain["plain"]["client_bytes"], chain["plain"]["server_bytes"]) == (21 * matrix, 0)
    # Four servers of the same speed need three moves between them. On busy processors other plans may be better by
    # measured speeds: fewer servers, or one that is faster and gets both operands of a product. Each of the three
    # products of products reads two: at most six moves. The mapper's plan for exact speeds is checked in simulation.
    moves = chain["group"]["server_bytes"] / matrix
    assert chain["group"]["client_bytes"] == 9 * matrix and moves in range(7), moves
    assert chain["local"]["digest"] == chain["plain"]["digest"] == chain["group"]["digest"]
    for name in ("enhanced.png", "chain.html", "image.html"):
        assert (tmp_path / name).stat().st_size > 1000


def test_nothing_is_left_running():
    program = "import gridloom as gl, os\ngrid = gl.local(servers=2)\nprint(*grid.server_processes(), flush=True)\nos._exit(9)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    servers = [int(pid) for pid in done.stdout.split()]
    assert done.returncode == 9 and len(servers) == 2
    for pid in servers:
        # A process descriptor becomes readable when the process ends; a process that has ended already is not found.
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        import select

        assert select.select([descriptor], [], [], 10)[0], f"server process {pid} outlived its program"
        os.close(descriptor)
