"""Functions of a program's main module or notebook: what they share on servers, and which of Python's decorators they may have."""

import subprocess
import sys

import gridloom as gl
import pytest


def printed(text, tmp_path, python=sys.executable):
    """What a program prints that has the text as its main module."""
    (tmp_path / "program.py").write_text(text)
    done = subprocess.run([python, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


GLOBALS = """
import gridloom as gl

counter = 0
cache = {}
scale = 1

def count():
    global counter
    counter += 1
    return counter

def counted():
    return counter

def remember(key, value):
    cache[key] = value

def recall(key):
    return cache.get(key)

def scaled(x):
    return scale * x

def twice_scaled(x):
    return 2 * scaled(x)

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        run = lambda *call: grid.run(*call).get()
        print([run(count), run(counted), run(count), run(counted), counter])
        run(remember, "a", 1)
        print(run(recall, "a"), run(lambda: cache), cache)
        scaled_by = []
        for scale in (1, 10, 1):
            scaled_by.append((run(scaled, 3), run(twice_scaled, 3)))
        print(scaled_by)
        print(run(recall, "a"))
        cache["b"] = 2     # what the program changes goes before what its functions did
        print(run(recall, "a"), run(recall, "b"))
        print([run(count), run(counted)])
        with gl.Executor(grid=grid, initializer=remember, initargs=("c", 3)) as executor:
            print(executor.submit(recall, "c").result())
"""


def test_functions_of_a_program_share_their_global_variables(program, tmp_path):
    assert printed(GLOBALS, tmp_path) == [
        "[1, 1, 2, 2, 0]",
        "1 {'a': 1} {}",
        "[(3, 6), (30, 60), (3, 6)]",
        "1",
        "None 2",
        "[3, 3]",
        "3",
    ]


def test_programs_do_not_share_their_global_variables(program, tmp_path):
    text = """
import sys, gridloom as gl
value = sys.argv[1:] or ["none"]
def name():
    return value
def put(x):
    global value
    value = x
if __name__ == "__main__":
    if sys.argv[1:]:
        with gl.connect(servers=[sys.argv[1]]) as grid:
            grid.run(put, 7).get()
            print(grid.run(name).get())
"""
    (tmp_path / "program.py").write_text(text)
    serve = [gl.__path__[0] + "/bin/gridloom", "serve", "--run-code", "--no-agent", "--json", "--python", sys.executable]
    with subprocess.Popen([*serve, "--until-stdin-closes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        import json

        address = json.loads(server.stdout.readline())["address"]
        for _ in range(2):
            done = subprocess.run([sys.executable, "program.py", address], cwd=tmp_path, capture_output=True, text=True)
            assert done.stdout == "7\n", done.stderr
        with gl.connect(servers=[address]) as grid:
            variables = {"__name__": "__main__"}
            exec("value = 3\ndef name():\n    return value", variables)
            assert grid.run(variables["name"]).get() == 3


DECORATED = """
import contextlib, dataclasses, functools
import gridloom as gl
import numpy as np

calls = 0

@functools.lru_cache(maxsize=50)
def fibonacci(n):
    global calls
    calls += 1
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.singledispatch
def kind(x):
    return "object"

@kind.register
def _(x: int):
    return "int"

@kind.register(list)
def _(x):
    return [kind(one) for one in x]

@gl.function
def declared(x: float) -> float:
    return 2 * x

@contextlib.contextmanager
def opened():
    yield 4

def power(x, y):
    return x**y

def made_of(x):
    with opened() as four:
        return declared(x) + four

class Shape:
    def __init__(self, side):
        self.side = side

    @functools.cached_property
    def area(self):
        return self.side**2

    @functools.singledispatchmethod
    def of(self, x):
        return "object"

    @of.register
    def _(self, x: int):
        return "int"

@gl.message
class Block:
    row: int
    data: gl.Array["float64", "n"]

gl.messages.message_declaration(Block)

def trace(block):
    return Block(row=block.row + 1, data=block.data * 2)

def shape(x):
    made = Shape(x)
    return made.area, made.of(1), made.of("")

def misses():
    return calls, fibonacci.cache_info().hits > 0

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        run = lambda *call: grid.run(*call).get()
        print(run(fibonacci, 20), run(misses), run(fibonacci, 21), run(misses))
        print(run(kind, [1, "x", [2]]), run(lambda: kind(1)), run(declared, 1.5), run(made_of, 1.0))
        print(run(functools.partial(power, y=3), 2), run(functools.partial(fibonacci), 3), run(shape, 3))
        block = run(trace, Block(row=1, data=np.ones(2)))
        print(type(block) is Block, block.row, block.data)
        made = run(lambda: (lambda x: declared(x) + calls))
        print(made(1.0))
"""


def test_decorated_functions_and_classes_of_a_program(program, tmp_path):
    assert printed(DECORATED, tmp_path) == [
        "6765 (21, True) 10946 (22, True)",
        "['int', 'object', ['int']] int 3.0 6.0",
        "8 2 (9, 'int', 'object')",
        "True 2 [2. 2.]",
        "25.0",
    ]


def test_code_of_another_version_of_python_is_refused(grid, monkeypatch):
    """As if the program ran another one: its code would crash the worker."""
    from gridloom.pickling import by_value

    class Other:
        version_info = (3, 4, 0)
        modules = sys.modules

    monkeypatch.setattr(by_value, "sys", Other)
    here = ".".join(map(str, sys.version_info[:2]))
    with pytest.raises(gl.CannotRun, match=f"its code is of Python 3.4, and Python {here} is here .*--python python3.4") as caught:
        grid.run(lambda: 1).get()
    assert caught.value.function.endswith("<lambda>")
    with pytest.raises(gl.CannotRun, match="an argument cannot be unpickled there: its code is of Python 3.4"):
        grid.run(map, lambda: 1, [1]).get()
    assert grid.run(pow, 2, 3).get() == 8


def test_tracebacks_show_lines_that_only_the_program_has(program, tmp_path):
    text = """
import linecache, os
import gridloom as gl

linecache.getlines(__file__)

def fail(x):
    y = x + 1
    raise ValueError(y)      # here

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        os.rename("program.py", "elsewhere.py")
        try:
            grid.run(fail, 1).get()
        except ValueError as error:
            print(error.__cause__)
"""
    shown = "\n".join(printed(text, tmp_path))
    assert f'File "{tmp_path}/program.py", line 9, in fail' in shown and "raise ValueError(y)      # here" in shown
