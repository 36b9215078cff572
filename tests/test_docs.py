"""The reference pages are correct: their descriptions parse, their functions run and print the output shown."""

import concurrent.futures
import doctest
import json
import math
import operator
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import xmlrpc.server

import gridloom as gl
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom")


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


def passes(page, grid):
    """The page's sessions, which build on each other, print the output shown."""
    found = doctest.DocTestParser().get_doctest(
        "".join(blocks(page, "pycon")), {"gl": gl, "np": np, "grid": grid}, page, None, 0
    )
    told = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=told.append)
    assert found.examples and not told, "".join(told)


@pytest.fixture
def described(tmp_path):
    (tmp_path / "docs.idl").write_text("\n".join(blocks("idl.md", "idl")))
    return tmp_path / "docs.idl"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_page_on_interface_descriptions(described, tmp_path, monkeypatch):
    monkeypatch.setenv("GRIDLOOM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "docs.c").write_text("\n".join(blocks("idl.md", "c")))
    library = tmp_path / "libdocs.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "docs.c"], check=True)
    with gl.local(servers=1, functions=[described], libraries=[library]) as grid:
        passes("idl.md", grid)


def test_the_signatures_shown_are_those_of_the_descriptions(described):
    shown = subprocess.run(
        [PROGRAM, "idl", "show", described], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    told = [line for block in blocks("idl.md", "text")[1:] for line in block.splitlines()]
    assert told and not set(told) - set(shown)


def test_the_page_on_python_functions(tmp_path):
    (tmp_path / "functions.py").write_text("\n\n".join(blocks("python-functions.md", "python")))
    with gl.local(servers=1, functions=[tmp_path / "functions.py"]) as grid:
        passes("python-functions.md", grid)
    pytest.importorskip("mypy", reason="mypy is not installed")
    # `make lint` puts there what mypy knows of NumPy.
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache", "functions.py"]
    done = subprocess.run(check, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_page_on_programs(tmp_path):
    whole, declared = blocks("programs.md", "python")
    (tmp_path / "program.py").write_text(whole + declared)
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout == "b'3\\n'\n", done.stderr
    passes("programs.md", None)


def test_the_page_on_dask(tmp_path):
    pytest.importorskip("dask.array", reason="dask is not installed")
    (tmp_path / "program.py").write_text(blocks("dask.md", "python")[0])
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert 0.99 < float(done.stdout) < 1.01, done.stderr
    with gl.local(servers=1):
        passes("dask.md", None)


def test_the_page_on_engines(tmp_path):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        text = blocks("engines.md", "python")[0]
        assert "dask://scheduler:8786" in text
        (tmp_path / "program.py").write_text(text.replace("dask://scheduler:8786", cluster.scheduler_address.replace("tcp", "dask")))
        done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout.startswith("(500, 500)\n2 calls on ") and "predicted" in done.stdout, done.stderr


@pytest.mark.skipif(" " in sys.executable, reason="Ray starts its client server by an unquoted path of Python")
def test_the_page_on_engines_with_ray(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's sockets are in its folder, and the path of a socket has at most 107 bytes.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    monkeypatch.setenv("RAY_TMPDIR", folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = {"include_dashboard": False, "ray_client_server_port": port}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node()
        text = blocks("engines.md", "python")[0].replace("dask://scheduler:8786", f"ray://127.0.0.1:{port}")
        (tmp_path / "program.py").write_text(text)
        done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    assert done.stdout.startswith("(500, 500)\n2 calls on ") and "predicted" in done.stdout, done.stderr


def test_the_page_on_parsl(tmp_path):
    pytest.importorskip("parsl", reason="parsl is not installed")
    (tmp_path / "program.py").write_text(blocks("parsl.md", "python")[0])
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout == "84\n", done.stderr


def test_the_page_on_any_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with gl.local(servers=1) as grid:
        passes("any-function.md", grid)
    (tmp_path / "program.py").write_text(blocks("any-function.md", "python")[0])
    run = [sys.executable, "program.py"]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout == "49\n332833500\n", done.stderr


def test_the_page_on_random_numbers(tmp_path):
    good, bad, *_ = blocks("random-numbers.md", "python")
    (tmp_path / "program.py").write_text(good + "\nprint(len(set(means)), means)")
    run = [sys.executable, "program.py"]
    first, second = (subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, timeout=120) for _ in range(2))
    assert first.stdout == second.stdout and first.stdout.startswith("100 ") and not first.stderr, first.stderr
    with gl.local(servers=1) as grid, pytest.warns(gl.RandomStateWarning):
        exec(bad, {"np": np, "grid": grid})


@pytest.fixture
def agent(monkeypatch, tmp_path):
    """Starts an agent with a server that runs functions of programs, and returns the agent's address;
    `gl.connect()` connects to it."""
    monkeypatch.setenv("GRIDLOOM_KEYS", str(tmp_path / "keys"))
    fixed, parts = ["--json", "--quiet", "--until-stdin-closes"], []

    def start(*arguments):
        parts.append(subprocess.Popen([PROGRAM, *arguments, *fixed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return json.loads(parts[-1].stdout.readline())["address"]

    address = start("agent", "--listen", "127.0.0.1:0")
    monkeypatch.setenv("GRIDLOOM_AGENT", address)
    start("serve", "--run-code", "--python", sys.executable, "--agent", address, "--models", "none")
    yield address
    for part in parts:
        part.communicate(timeout=60)


def connector_program(number, agent, folder, *options):
    """Runs a program of the page on connectors with a connector of the grid, and compares its output with the page's."""
    command = [PROGRAM, "connector", *options, "--python", sys.executable, "--agent", agent, "--models", "none", "--json", "--until-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as connector:
        functions = json.loads(connector.stdout.readline())["functions"]
        (folder / "program.py").write_text(blocks("connector.md", "python")[number])
        done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=folder, timeout=120)
        connector.stdin.close()
    shown = (ROOT / "docs/connector.md").read_text()
    assert done.stdout and f"\n```\n{done.stdout}```\n" in shown, done.stdout + done.stderr
    return functions


def connector_options(number):
    """The options of a command of the page, apart from the endpoint."""
    (command,) = re.findall(r"^gridloom connector ((?:.*\\\n)*.*)", blocks("connector.md", "sh")[number], re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    place = words.index("--endpoint")
    return words[:place] + words[place + 2 :]


def test_the_page_on_connectors(agent, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "crates/gridloom-python/tests")
    from model_servers import Fake

    with Fake() as fake:
        assert "models/double" in connector_program(0, agent, tmp_path, *connector_options(0), "--endpoint", fake.endpoint)


def test_the_page_on_connectors_of_grpc(agent, tmp_path, monkeypatch):
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed: make .venv/tests")
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed: make .venv/tests")
    reflection = pytest.importorskip("grpc_reflection.v1alpha.reflection", reason="grpcio-reflection is not installed: make .venv/tests")
    (tmp_path / "docs_shop.proto").write_text(blocks("connector.md", "proto")[0])
    places = [f"-I{tmp_path}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    assert protoc.main(["protoc", *places, str(tmp_path / "docs_shop.proto")]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    import docs_shop_pb2
    import docs_shop_pb2_grpc

    class Matrices(docs_shop_pb2_grpc.MatricesServicer):
        def Multiply(self, request, context):
            a, b = (np.array(one).reshape(request.n, request.n) for one in (request.a, request.b))
            return docs_shop_pb2.Product(c=(a @ b).ravel())

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    docs_shop_pb2_grpc.add_MatricesServicer_to_server(Matrices(), server)
    reflection.enable_server_reflection(["shop.Matrices"], server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        offered = connector_program(1, agent, tmp_path, *connector_options(2), "--endpoint", f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()
    assert offered == ["Matrices/Multiply"]


def test_the_page_on_connectors_of_xml_rpc(agent, tmp_path):
    with xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False) as server:
        server.register_introspection_functions()
        server.register_function(lambda x: math.hypot(*x), "stats.norm")
        server.register_function(lambda x, by: [one * by for one in x], "stats.scaled")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            offered = connector_program(2, agent, tmp_path, *connector_options(3), "--endpoint", f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()
    assert sorted(offered) == ["stats/norm", "stats/scaled"]


def test_the_page_on_shared_data(agent, tmp_path):
    puts, gets, shares, reads, declares = blocks("shared-data.md", "python")
    subprocess.run([sys.executable, "-c", puts], check=True, cwd=tmp_path, timeout=120)
    gets = f"import gridloom as gl\n{gets}print(_)\n".replace("grid.get(", "_ = grid.get(")
    done = subprocess.run([sys.executable, "-c", gets], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout == "[0. 1. 2. 3. 4. 5.]\n", done.stderr
    connects = "import gridloom as gl\ngrid = gl.connect()\n"
    subprocess.run([sys.executable, "-c", connects + shares], check=True, cwd=tmp_path, timeout=120)
    # There is no Anna here, as an administrator sees.
    done = subprocess.run([sys.executable, "-c", connects + reads.replace(")", ", timeout=0)")], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert "UnknownName: no shared data are named '~anna/mesh'" in done.stderr, done.stderr
    before = "import gridloom as gl, numpy as np\ngrid = gl.connect()\ngrid.put('mesh', np.arange(4.0).reshape(2, 2), replace=True)\n"
    after = "\nsolve(1, 2)\nassert np.array_equal(grid.get('part/1'), [1, 5])\ngrid.delete('part/1')\n"
    again = "grid.put('mesh', np.arange(6.0), replace=True)"
    subprocess.run([sys.executable, "-c", before + declares + after + again], check=True, cwd=tmp_path, timeout=120)
    with gl.connect() as grid:
        passes("shared-data.md", grid)


def test_the_page_on_notebooks():
    passes("notebooks.md", None)


def test_the_example_of_joblib(tmp_path):
    pytest.importorskip("joblib", reason="joblib is not installed")
    (tmp_path / "program.py").write_text(blocks("any-function.md", "python")[1])
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout == "[0, 1, 4, 9, 16]\n", done.stderr


def test_the_page_on_keys(tmp_path, monkeypatch):
    """Its commands, run on the machines of the administrator and of the requester, print the output shown."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gridloom").symlink_to(PROGRAM)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("USER", "carol")
    changing = re.compile(r"\b[0-9a-f]{32,40}\b|[0-9-]{10} [0-9:]{8} UTC|/.+/keys/lab\b")
    for block in blocks("keys.md", "console"):
        for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
            is_requester = command.startswith(("gridloom keys request", "gridloom keys install"))
            monkeypatch.setenv("GRIDLOOM_KEYS", str(tmp_path / ("node" if is_requester else "head") / "keys"))
            run = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 60}
            done = subprocess.run(command, shell=True, cwd=tmp_path, **run)
            assert (done.returncode, changing.sub("…", done.stdout)) == (0, changing.sub("…", shown)), command
    own = tmp_path / "node/keys/lab/own.pem"
    monkeypatch.setenv("GRIDLOOM_KEYS", str(tmp_path / "node" / "keys"))
    listed = json.loads(told("keys", "list", "--json", cwd=tmp_path))["grids"][0]["certificate"]
    if shutil.which("openssl"):
        (command,) = blocks("keys.md", "sh")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, cwd=own.parent)
        assert done.stdout.strip() == listed["fingerprint"], done.stderr
        text = subprocess.run(["openssl", "x509", "-in", own, "-noout", "-text"], capture_output=True, text=True, check=True).stdout
        assert listed["identity"] in text


def told(*command, cwd):
    done = subprocess.run([PROGRAM, *command], capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("kind", "hosts"), [("toml", 12), ("xml", 2)])
def test_the_page_on_platforms(kind, hosts, tmp_path):
    (tmp_path / f"p.{kind}").write_text(blocks("platform.md", kind)[0])
    assert told("platform", "show", f"p.{kind}", cwd=tmp_path).startswith(f"{hosts} hosts")


@pytest.mark.parametrize("kind", ["toml", "xml"])
def test_the_page_on_deployments(kind, tmp_path):
    (tmp_path / f"d.{kind}").write_text(blocks("deployment.md", kind)[0])
    (tmp_path / "p.toml").write_text('host = [{ name = "desk", speed = 1 }]')
    (tmp_path / "p.py").write_text(
        "import gridloom as gl\n\n"
        "@gl.process\ndef master(me, *arguments):\n    print(arguments, me.now())\n\n"
        "@gl.process\ndef monitor(me):\n    pass\n\ngl.run_processes()\n"
    )
    printed = told("simulate", "-p", "p.toml", "-d", f"d.{kind}", "--", sys.executable, "p.py", cwd=tmp_path)
    assert printed.startswith("('node-1', '12', '0.5') 1.5")


def test_the_guide_to_processes_in_python(tmp_path):
    deployment, platform = blocks("python-processes.md", "toml")
    (tmp_path / "work.py").write_text(blocks("python-processes.md", "python")[0])
    (tmp_path / "work.toml").write_text(deployment)
    (tmp_path / "lan.toml").write_text(platform)
    program = ["-d", "work.toml", "--", sys.executable, "work.py"]
    assert "sum 66000.0" in told("simulate", "-p", "lan.toml", *program, cwd=tmp_path)
    assert "sum 66000.0" in told("deploy", *program, cwd=tmp_path)


def test_the_page_on_plans(tmp_path, monkeypatch):
    (tmp_path / "p.toml").write_text(blocks("plans.md", "toml")[0])
    monkeypatch.chdir(tmp_path)
    with gl.simulate("p.toml") as grid:
        passes("plans.md", grid)
    assert "determined by" in told("explain", "plan.json", "--svg", "plan.svg", cwd=tmp_path)
    assert "elsewhere" in told("explain", "plan.json", "2", cwd=tmp_path)
    assert "<title>task 2" in (tmp_path / "plan.svg").read_text()
    # The fields that the page lists are those of the file.
    listed = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in blocks_of_table("plans.md"))))
    assert listed == set(json.loads((tmp_path / "plan.json").read_text()))


def test_the_page_on_declared_groups(tmp_path, monkeypatch):
    (tmp_path / "p.toml").write_text(blocks("graphs.md", "toml")[0])
    (tmp_path / "g.json").write_text(blocks("graphs.md", "json")[0])
    monkeypatch.chdir(tmp_path)
    with gl.simulate("p.toml") as grid:
        passes("graphs.md", grid)
        graph = gl.Graph.load("g.json")
        assert len(graph.plan(grid).tasks) == 2
    graph.save("again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "g.json").read_text()


def test_the_page_on_records_lists_all_attributes():
    text = (ROOT / "docs" / "records.md").read_text()
    tables = re.findall(r"^\| `gl\.([\w.]+)` \| \|\n\|---\|---\|\n((?:\| `.*\n)+)", text, re.MULTILINE)
    assert len(tables) > 12
    for name, rows in tables:
        kind = operator.attrgetter(name)(gl)
        told = [field for row in rows.splitlines() for field in re.findall(r"`(\w+)`", row.split("|")[1])]
        # A report's fields are annotated; names that begin with an underscore are not for users.
        fields = [field for field in kind.__annotations__ if not field.startswith("_")]
        assert sorted(told) == sorted(fields), name


def blocks_of_table(page):
    return re.findall(r"^\| `.*$", (ROOT / "docs" / page).read_text(), re.MULTILINE)


def test_the_tests_of_each_refusal_exist():
    page = (ROOT / "docs" / "security.md").read_text()
    section = page.split("## How each refusal is tested\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    for row in rows:
        file = None
        for name in re.findall(r"`([^`]+)`", row):
            if "/" in name:
                file = (ROOT / "crates" / name).read_text()
                continue
            assert re.search(rf"#\[test\]\s+fn {name}\(", file), f"there is no test {name}"
        assert file is not None, row
