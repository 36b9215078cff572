"""Workers have the options, signals and main module of the program's interpreter."""

import signal
import subprocess
import sys

import pytest
from test_by_value import printed

FLAGS = """
import sys, warnings
import gridloom as gl

def flags():
    import sys
    return str(sys.flags), sys.warnoptions, sys._xoptions

def warns():
    try:
        warnings.warn("w", RuntimeWarning)
    except RuntimeWarning:
        return True
    return False

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        assert grid.run(flags).get(timeout=60) == flags(), (flags(), grid.run(flags).get())
        print(grid.run(warns).get(timeout=60) == warns())
"""


@pytest.mark.parametrize(
    "options",
    ["-W error", "-W error::RuntimeWarning -W ignore::UserWarning", "-O", "-OO", "-X dev", "-X dev -W error", "-X utf8=0", "-X tracemalloc=3"]
    + ["-I", "-E", "-s", "-B", "-bb"]
    + ["-P"] * (sys.version_info >= (3, 11)),
)
def test_options_of_the_interpreter_reach_workers(program, tmp_path, options):
    (tmp_path / "program.py").write_text(FLAGS)
    done = subprocess.run([sys.executable, *options.split(), "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


def test_a_program_with_many_arguments_starts_a_grid(program, tmp_path):
    (tmp_path / "program.py").write_text("import gridloom as gl\n\nwith gl.local(servers=1) as grid:\n    print(grid.run(abs, -3).get(timeout=60))\n")
    files = [f"measurement-{number:06}.nc" for number in range(8000)]
    done = subprocess.run([sys.executable, "program.py", *files], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "3\n", done.stderr


def test_no_bytecode_is_written_for_functions_of_a_module(program, tmp_path):
    (tmp_path / "offered.py").write_text("import gridloom as gl\n\n@gl.function\ndef double(x: float) -> float:\n    return 2 * x\n")
    text = "import gridloom as gl\nwith gl.local(servers=1, functions=['offered.py']) as grid:\n    print(grid.function('offered/double')(2.0))\n"
    (tmp_path / "program.py").write_text(text)
    done = subprocess.run([sys.executable, "-B", "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "4.0\n" and not (tmp_path / "__pycache__").exists(), done.stderr


SIGNALS = """
import os, signal, subprocess, sys
import gridloom as gl

def states():
    found = subprocess.run(["grep", "Sig[BI]", "/proc/self/status"], capture_output=True, text=True).stdout.split()
    return {name: {n for n in range(1, 32) if int(bits, 16) >> n - 1 & 1} for name, bits in zip(found[::2], found[1::2])}

def terminated():
    child = subprocess.Popen(["sleep", "60"])
    child.terminate()
    return child.wait()

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        for pid in grid.server_processes():
            blocked, ignored = (next(l for l in open(f"/proc/{pid}/status") if l.startswith(k)).split()[1] for k in ("SigBlk", "SigIgn"))
            assert int(blocked, 16) == 0 and not int(ignored, 16) & (1 << signal.SIGTERM - 1 | 1 << signal.SIGCHLD - 1), (blocked, ignored)
        print(grid.run(states).get(timeout=60), grid.run(terminated).get(timeout=60))
    with gl.simulate("platform.xml", functions=["offered.py"], execute=True) as grid:
        print(grid.function("offered/double")(2.0))
"""


@pytest.mark.parametrize("hangup", [signal.SIG_DFL, signal.SIG_IGN], ids=["", "nohup"])
def test_signals_that_the_parent_of_the_program_ignores_or_blocks_are_reset(program, platform, tmp_path, hangup):
    (tmp_path / "program.py").write_text(SIGNALS)
    (tmp_path / "offered.py").write_text("import gridloom as gl\n\n@gl.function\ndef double(x: float) -> float:\n    return 2 * x\n")
    ignored = [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGUSR1]
    blocked = [signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGUSR1]
    start = (
        "import os, signal, sys\n"
        f"for one in {[*map(int, ignored)]}: signal.signal(one, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGQUIT, signal.SIG_DFL)\n"  # a shell ignores it for a program in the background
        f"signal.signal(signal.SIGHUP, signal.Handlers({int(hangup)}))\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {[*map(int, blocked)]})\n"
        "os.execv(sys.executable, [sys.executable, 'program.py'])"
    )
    done = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    hung_up = {1} if hangup == signal.SIG_IGN else set()
    states = {"SigBlk:": set(), "SigIgn:": hung_up}
    assert done.stdout.splitlines() == [f"{states} {-signal.SIGTERM}", "4.0"], done.stdout + done.stderr


MAIN = """
import concurrent.futures, functools, multiprocessing, pickle, sys, threading
import gridloom as gl

scale = 3

class Point:
    def __init__(self, x):
        self.x = x

@functools.lru_cache
def plus_one(x):
    return x + 1

def square(x):
    return Point(plus_one(scale * x * x))

def of_point(point):
    return point.x

def pooled(kind):
    context = multiprocessing.get_context(kind)
    with context.Pool(2) as pool:
        points = pool.map(square, [1, 2])
        assert {type(point) for point in points} == {Point}
        xs = pool.map(of_point, points)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        return xs, [point.x for point in executor.map(square, [1, 2])]

def with_a_lock():
    global held
    held = threading.Lock()   # no child inherits it
    return pooled("spawn")

def looked_up():
    import __main__
    own = __main__.looked_up
    assert pickle.loads(pickle.dumps(own)) is own and type(pickle.loads(pickle.dumps(Point(1)))) is Point
    return __main__.__file__, __main__.__name__, __main__.scale, sys.argv, repr(__main__)[:9]

# Not under 'if __name__ ...': no process of a call runs this file again.
init = Point.__init__
with gl.local(servers=1) as grid:
    run = lambda *call: grid.run(*call).get(timeout=60)
    for kind in ("fork", "spawn", "forkserver", "spawn"):
        assert run(pooled, kind) == ([4, 13], [4, 13]), kind
    assert run(with_a_lock) == ([4, 13], [4, 13])
    assert run(looked_up) == (__file__, "__main__", 3, sys.argv, "<module '"), run(looked_up)
    assert run(pickle.loads, run(pickle.dumps, Point(4))).x == 4
    assert pickle.loads(run(lambda point: pickle.dumps(point), Point(5))).x == 5
    assert Point.__init__ is init, "a returned object replaced the method of its class by a copy"
    scale = 5
    assert run(pooled, "spawn") == run(pooled, "fork") == ([6, 21], [6, 21])
print("ok")
"""


def test_a_worker_has_the_programs_main_module(program, tmp_path):
    assert printed(MAIN, tmp_path) == ["ok"]
