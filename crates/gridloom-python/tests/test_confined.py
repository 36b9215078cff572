"""Servers that confine their functions: they keep the files that they need, and lose the others."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from test_lost_programs import PROGRAM, grids

__all__ = ["grids"]

FUNCTIONS = '''
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import shared_memory

import gridloom as gl
import numpy as np
from beside import square

LIBC = ctypes.CDLL(None, use_errno=True)
OPERATIONS = {
    "read": lambda path: open(path, "rb").read(1),
    "list": os.listdir,
    "write": lambda path: open(path, "ab").close(),
    "truncate": lambda path: os.truncate(path, 0),
    "remove": os.remove,
    "move": lambda path: os.rename(path, path + "-moved"),
    "link": lambda path: os.link(path, os.path.join(tempfile.gettempdir(), "linked")),
    "signal": lambda pid: os.kill(int(pid), 0),
    "attach": lambda pid: called("ptrace", 16, int(pid), None, None),
    "copy descriptor": lambda pid: called("syscall", 438, os.pidfd_open(int(pid)), 0, 0),
    "keys of the kernel": lambda _: called("syscall", 250 if os.uname().machine == "x86_64" else 219, 0, -3, 1),
    "namespace": lambda _: called("unshare", 0x10000000),
    "input of the terminal": lambda _: called("ioctl", 2, 0x5412, b"x"),
}


def called(name, *arguments):
    if getattr(LIBC, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@gl.function
def attempt(operation: str, target: str) -> str:
    try:
        OPERATIONS[operation](target)
    except OSError as error:
        return os.strerror(error.errno)
    return "done"


@gl.function
def first(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1)


@gl.function
def doubled(a: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    return 2 * a


@gl.function
def doubled_twice(a: gl.Array["float64", "n"]) -> gl.Array["float64", "n"]:
    with gl.connect() as grid:
        return grid.function("confined/doubled")(grid.function("confined/doubled")(a))


@gl.function
def processes(count: int) -> int:
    total = 0
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            total += sum(pool.map(square, range(count)))
    shared = shared_memory.SharedMemory(create=True, size=1 << 20)
    shared.buf[:1] = b"x"
    shared.close()
    shared.unlink()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["sh", "-c", "echo 1 > one; cat one; kill -0 $$"], cwd=folder, capture_output=True, check=True)
    return total + int(done.stdout)


@gl.function
def temporary_folder() -> str:
    return tempfile.gettempdir()
'''


def abi():
    """The version of landlock; 0 if this kernel has none."""
    return max(0, ctypes.CDLL(None).syscall(444, None, 0, 1))


needs_landlock = pytest.mark.skipif(abi() < 3, reason="this kernel cannot confine workers: it has no landlock of ABI 3")


class Confined:
    """A server that confines its functions, with private and permitted folders."""

    def __init__(self, grids, folder, *options, confine=True):
        self.code, self.durable, self.disk = folder / "code", folder / "durable", folder / "disk"
        self.other, self.shared = folder / "other", folder / "shared"
        for made in (self.code, self.disk, self.other, self.shared):
            made.mkdir()
        (self.code / "confined.py").write_text(FUNCTIONS)
        (self.code / "beside.py").write_text("def square(x):\n    return x * x\n")
        (self.other / "file").write_text("text")
        self.agent = grids.start("agent", "--listen", "127.0.0.1:0")
        places = ("--durable", str(self.durable), "--disk", str(self.disk))
        confined = ("--confine", "--writable", str(self.shared)) if confine else ()
        files = (str(self.code / "confined.py"), "--builtin", "linalg")
        grids.serve(*files, "--agent", self.agent, "--name", "confined", *places, *confined, *options, GRIDLOOM_BLAS=gl.blas_library())
        self.process = grids.processes[-1]

    def attempts(self, grid, *attempts):
        attempt = grid.function("confined/attempt")
        return [attempt(operation, str(target)) for operation, target in attempts]


@pytest.fixture
def confined(grids, tmp_path):
    return Confined(grids, tmp_path)


def keys():
    """The private keys of the user and of the authority."""
    found = sorted(Path(os.environ["GRIDLOOM_KEYS"]).glob("*/*.key"))
    assert {"authority.key", "own.key"} <= {path.name for path in found}
    return found


@needs_landlock
def test_private_files_cannot_be_used(confined):
    with gl.connect(confined.agent) as grid:
        grid.put("mesh", np.ones(100_000), durable=True)
        stored = [path for path in confined.durable.rglob("*") if path.is_file()]
        assert stored
        module = confined.code / "confined.py"
        attempts = [("read", path) for path in [*keys(), *stored]]
        attempts += [("list", folder) for folder in (keys()[0].parent, confined.durable, confined.disk, confined.other, Path.home())]
        attempts += [(operation, confined.other / "file") for operation in ("read", "write", "truncate", "remove", "move")]
        attempts += [(operation, module) for operation in ("write", "truncate", "remove", "move")]
        attempts += [("write", confined.other / "new"), ("write", Path(tempfile.gettempdir()) / "gridloom-new"), ("write", Path.home() / "gridloom-new")]
        attempts += [("read", f"/proc/{confined.process.pid}/environ")]
        outcomes = dict(zip(attempts, confined.attempts(grid, *attempts), strict=True))
        assert {attempt: outcome for attempt, outcome in outcomes.items() if outcome != "Permission denied"} == {}
        assert confined.attempts(grid, ("link", confined.other / "file"))[0] in ("Permission denied", "Invalid cross-device link")
        assert (confined.other / "file").read_text() == "text"
        assert module.read_text() == FUNCTIONS


def test_the_same_attempts_succeed_without_confinement(grids, tmp_path):
    server = Confined(grids, tmp_path, confine=False)
    with gl.connect(server.agent) as grid:
        attempts = [("read", keys()[0]), ("list", server.durable), ("write", server.other / "new"), ("signal", server.process.pid)]
        assert server.attempts(grid, *attempts) == ["done"] * len(attempts)


@needs_landlock
def test_other_processes_and_the_system_are_out_of_reach(confined):
    target = confined.process.pid
    with gl.connect(confined.agent) as grid:
        attempts = [(operation, target) for operation in ("attach", "copy descriptor", "keys of the kernel", "namespace", "input of the terminal")]
        assert confined.attempts(grid, *attempts) == ["Operation not permitted"] * len(attempts)
        if abi() >= 6:
            # Another worker: that of a stream.
            stream = grid.stream(lambda: iter([os.getpid(), 0]))
            attempts = [("signal", pid) for pid in (target, next(stream), os.getpid())]
            assert confined.attempts(grid, *attempts) == ["Operation not permitted"] * len(attempts)


@needs_landlock
def test_libraries_and_processes_work(confined):
    with gl.connect(confined.agent) as grid:
        value = np.random.default_rng(1).random(1_000_000)
        assert np.array_equal(grid.function("confined/doubled")(value), 2 * value)
        assert np.array_equal(grid.function("confined/doubled_twice")(value), 4 * value)
        assert grid.function("linalg/dnrm2")(value) == pytest.approx(np.linalg.norm(value))
        matrix = np.random.default_rng(2).random((200, 200))
        assert np.allclose(grid.run(lambda a: np.linalg.inv(a) @ a, matrix).get(), np.eye(200))
        methods = grid.run(lambda: __import__("multiprocessing").get_all_start_methods()).get()
        assert grid.function("confined/processes")(5) == 30 * len(methods) + 1
        assert list(grid.map(lambda x: x + 1, range(5))) == [1, 2, 3, 4, 5]


@needs_landlock
def test_what_the_operator_permits_can_be_used(confined, grids, tmp_path):
    file = confined.shared / "results"
    with gl.connect(confined.agent) as grid:
        attempts = [("write", file), ("read", file), ("list", confined.shared), ("remove", file), ("read", confined.code / "beside.py")]
        assert confined.attempts(grid, *attempts) == ["done"] * len(attempts)
        folder = Path(grid.function("confined/temporary_folder")())
        assert folder.is_dir() and folder.name.startswith(f"gridloom-{confined.process.pid}-")
        assert confined.attempts(grid, ("write", folder / "file")) == ["done"]
    (tmp_path / "second").mkdir()
    second = Confined(grids, tmp_path / "second", "--readable", str(confined.other))
    with gl.connect(second.agent) as grid:
        attempts = [("read", confined.other / "file"), ("write", confined.other / "file")]
        assert second.attempts(grid, *attempts) == ["done", "Permission denied"]
    confined.process.stdin.close()
    wait_until(lambda: not folder.exists())


@needs_landlock
def test_the_error_names_the_options(confined):
    target = str(confined.other / "file")
    with gl.connect(confined.agent) as grid:
        with pytest.raises(gl.RemoteError, match="--confine.*--readable PATH.*--writable DIR"):
            grid.function("confined/first")(target)
        with pytest.raises(PermissionError) as error:
            grid.run(lambda: open(target)).get()
        assert error.value.filename == target and "--readable PATH" in str(error.value.__cause__)


def refused(*arguments, **options):
    """The error of a server that does not start."""
    words = [PROGRAM, "serve", *map(str, arguments), "--no-agent", "--models", "none", "--python", sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 1, done
    return done.stderr


@needs_landlock
def test_folders_with_keys_and_data_cannot_be_permitted(program, tmp_path):
    folder = Path(os.environ["GRIDLOOM_KEYS"])
    for option in ("--readable", "--writable"):
        for permitted in (folder, folder.parent, keys()[0].parent, "/"):
            error = refused("--run-code", "--confine", option, permitted)
            assert f"functions may use '{permitted}' (named by {option}), but not the keys of the user in '{folder}': move one" in error
    (tmp_path / "functions.py").write_text("import gridloom\n\n@gridloom.function\ndef one() -> int:\n    return 1\n")
    error = refused(tmp_path / "functions.py", "--confine", "--durable", tmp_path / "durable")
    assert f"'{tmp_path}' (the folder of functions.py), but not the data of --durable in '{tmp_path / 'durable'}'" in error
    missing = tmp_path / "missing"
    assert f"--readable: '{missing}': No such file" in refused("--run-code", "--confine", "--readable", missing)
    assert "is not a folder" in refused("--run-code", "--confine", "--writable", tmp_path / "functions.py")


def hide_landlock(errno):
    """Makes the kernel answer this process as if it had no landlock."""
    load, equal, give = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 0), (equal, 0, 1, 444), (give, 0, 0, 0x50000 | errno), (give, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(held)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())


@pytest.mark.parametrize(("errno", "told"), [(38, "has no landlock"), (95, "add 'landlock' to the kernel's parameter 'lsm='")])
def test_a_server_does_not_start_where_the_kernel_cannot_confine(program, errno, told):
    error = refused("--run-code", "--confine", preexec_fn=lambda: hide_landlock(errno))
    assert "--confine: " in error and told in error and "--run-as" in error
    # Without the option it is not needed.
    words = [PROGRAM, "serve", "--run-code", "--no-agent", "--models", "none", "--json", "--quiet", "--until-stdin-closes"]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lambda: hide_landlock(errno))
    assert json.loads(server.stdout.readline())["address"]
    server.communicate()


@needs_landlock
def test_the_log_names_the_confinement(program):
    words = [PROGRAM, "serve", "--run-code", "--no-agent", "--models", "none", "--json", "--until-stdin-closes", "--confine"]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout.readline()
    _, log = server.communicate()
    assert f"workers are confined by landlock (ABI {min(abi(), 7)}) and seccomp" in log
    assert ("functions run as root" in log) == (os.geteuid() == 0)
