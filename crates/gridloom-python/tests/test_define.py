"""Signatures from annotations, and what `gridloom.describe` prints."""

import dataclasses
import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar, Union

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS
from numpy.typing import NDArray


def signature(body):
    return str(body.__gridloom__)


def describe(*files):
    run = [sys.executable, "-m", "gridloom.describe", *map(str, files)]
    return subprocess.run(run, capture_output=True, text=True)


def test_a_function_of_no_module():
    made = {"__name__": None}
    exec("def f(x: float) -> float:\n    return x", made)
    assert made["f"].__module__ is None
    assert signature(gl.function(made["f"])).startswith("functions/f(x: float64)")


def test_sizes_follow_from_arrays():
    @gl.function(module="m")
    def f(a: gl.Array["float64", "m", "k"], b: gl.Array["float32", "k", "n-1", gl.F], n: int) -> gl.Array[np.int8, 3]: ...

    expected = "m/f(a: float64[m, k], b: float32[k, n-1] in Fortran order, n: int64; m, k: int64) -> out0: int8[3]"
    assert signature(f) == expected
    assert f.__name__ == "f"


def test_module_name_is_the_files_unless_it_is_set():
    @gl.function(name="other")
    def f() -> None: ...

    assert f.__gridloom__.name == "test_define/other"


def test_annotated_form_means_the_same():
    @gl.function(module="m")
    def f(a: gl.Array["float64", "n"]) -> float: ...

    @gl.function(module="m", name="f")
    def g(a: Annotated[np.ndarray, gl.Array["float64", "n"]]) -> float: ...

    @gl.function(module="m", name="f")
    def h(a: gl.Array[NDArray[np.float64], "n"]) -> float: ...

    assert signature(f) == signature(g) == signature(h) == "m/f(a: float64[n]; n: int64) -> out0: float64"


def test_a_name_of_an_array_type_means_the_type():
    """As `numpy.typing.NDArray` is one since NumPy 2.5, and a program's own are from Python 3.12 on."""
    extensions = pytest.importorskip("typing_extensions", reason="typing_extensions is not installed")
    element = TypeVar("element", bound=np.generic)
    arrays = extensions.TypeAliasType("arrays", np.ndarray[Any, np.dtype[element]], type_params=(element,))
    doubles = extensions.TypeAliasType("doubles", arrays[np.float64])
    number = extensions.TypeAliasType("number", np.float32)

    @gl.function(module="m")
    def f(a: gl.Array[arrays[np.float64], "n"], b: Annotated[doubles, gl.Array[doubles, 2]]) -> tuple[number, number]: ...

    assert signature(f) == "m/f(a: float64[n], b: float64[2]; n: int64) -> (out0, out1: float32)"

    @gl.message
    class Block:
        row: number
        data: gl.Array[doubles, "m"]

    assert "float row;" in gl.messages.message_declaration(Block) and "double *data" in gl.messages.message_declaration(Block)


def test_a_result_is_named_before_or_after_its_type():
    @gl.function(module="m")
    def f() -> tuple[gl.Out[float, "mean"], gl.Out["ends", gl.Array[np.int8, 2]]]: ...

    assert signature(f) == "m/f() -> (mean: float64, ends: int8[2])"


def test_function_stays_callable():
    @gl.function(module="m")
    def twice(x: float) -> float:
        """Twice x.

        More."""
        return 2 * x

    assert twice(2.0) == 4.0
    assert twice.__gridloom__.about == "Twice x."


def bad_no_annotation(x) -> None: ...
def bad_no_result(x: int): ...
def bad_star(*x: int) -> None: ...
def bad_stars(**x: int) -> None: ...
def bad_keyword(a: float, *, x: int) -> None: ...
def bad_default(a: float, b: float = 2.0) -> float: ...
async def bad_coroutine(x: float) -> float: ...
def bad_generator(x: float) -> float:
    yield x
async def bad_async_generator(x: float) -> float:
    yield x
def bad_type(x: list) -> None: ...
def bad_size(n: gl.Array["float64", "n-1"]) -> None: ...
def bad_expression(a: gl.Array["float64", "n+"]) -> None: ...
def bad_output(x: float) -> gl.Array["float64", "k"]: ...


@pytest.mark.parametrize(
    "body, says",
    [
        (bad_no_annotation, "parameter 'x' has no annotation"),
        (bad_no_result, "the result has no annotation"),
        (bad_star, r"parameter 'x' stands for any number of arguments \('\*x'\); write one parameter for each"),
        (bad_stars, r"parameter 'x' stands for arguments of any name \('\*\*x'\); write one parameter for each"),
        (bad_keyword, "parameter 'x' is keyword-only, .* remove the '\\*'"),
        (bad_default, "parameter 'b' has the default 2.0, which callers .* would not get.*; remove the default"),
        (bad_coroutine, "an 'async def' function gives a coroutine, .* asyncio.run"),
        (bad_generator, "a function with 'yield' gives a generator, .*; return an array"),
        (bad_async_generator, "a function with 'yield' gives a generator"),
        (bad_type, "parameter 'x': expected gridloom.Array"),
        (bad_expression, "'n\\+'"),
        (bad_output, "'k' does not follow"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_mistakes_are_reported_with_their_place(body, says):
    with pytest.raises(gl.InputError, match=says) as told:
        gl.function(body)
    assert f"test_define.py:{body.__code__.co_firstlineno}: {body.__name__}" in str(told.value)


@dataclasses.dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    "annotation",
    [
        dict, dict[str, int], list[float], Optional[float], Union[int, str], Point, datetime.datetime, Path, Any, gl.File,
        Iterator[int], gl.Array[np.dtype([("a", "i4")]), "n"],
    ],
    ids=str,
)  # fmt: skip
def test_values_that_have_no_type_there_are_for_grid_run(annotation):
    for place in ("x", "return"):

        def f(x: float) -> float: ...

        f.__annotations__[place] = annotation
        with pytest.raises(gl.InputError, match="grid.run takes any function as it is"):
            gl.function(f)


@pytest.mark.parametrize(
    "annotation, says",
    [
        (np.ndarray, r"gridloom.Array\[NDArray\[numpy.float64\], 'n'\]"),
        (NDArray[np.int32], r"gridloom.Array\[NDArray\[numpy.int32\], 'n'\]"),
    ],
    ids=["any", "int32"],
)
def test_an_array_without_extents_is_reported_with_the_remedy(annotation, says):
    def f(x: float) -> float: ...

    f.__annotations__["x"] = annotation
    with pytest.raises(gl.InputError, match=f"parameter 'x'.*say its extents.*{says}"):
        gl.function(f)


@pytest.mark.parametrize("work, says", [("n**2", r"a power is written with '\^', such as n\^2"), ("n//2", "'//' begins a comment")])
def test_operators_of_python_are_distinguished_from_those_of_work(work, says):
    with pytest.raises(gl.InputError, match=f"test_define/f: work: '{re.escape(work)}': .*{says}"):

        @gl.function(work=work)
        def f(a: gl.Array["float64", "n"]) -> float: ...


def test_annotations_are_checked_when_written():
    with pytest.raises(TypeError, match="element type"):
        gl.Array["float63", "n"]
    with pytest.raises(TypeError, match="extent"):
        gl.Array["float64", 2.5]
    with pytest.raises(TypeError, match="an extent is at least 0; got -1"):
        gl.Array["float64", -1]
    with pytest.raises(TypeError, match="an extent is a name, .*; got ''"):
        gl.Array["float64", ""]
    with pytest.raises(TypeError, match="Out"):
        gl.Out["x"]


@pytest.mark.parametrize("given", [{"name": ""}, {"module": ""}, {"name": 3}])
def test_a_name_has_letters(given):
    with pytest.raises(gl.InputError, match="f: (name|module) is a name, got (''|3)"):

        @gl.function(**given)
        def f() -> None: ...


def test_describe_prints_definitions_only(tmp_path):
    module = tmp_path / "noisy.py"
    module.write_text(
        "from __future__ import annotations\nimport os, gridloom as gl\nprint('hello')\nos.system('echo hello')\n"
        "@gl.function(work='n')\ndef f(a: gl.Array['float64', 'n']) -> tuple[float, gl.Array['float64', 'n']]: ...\n"
    )
    done = describe(module, FUNCTIONS)
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stderr and done.stdout.count("\n") == 1
    definitions = json.loads(done.stdout)
    assert definitions[0]["signature"]["name"] == "noisy/f"
    assert definitions[0]["body"] == {"Python": {"module": str(module), "function": "f"}}
    assert any(one["signature"]["name"] == "tests/matmul" for one in definitions)


@pytest.mark.parametrize(
    "text, says",
    [
        ("import nowhere", "broken.py:1: ModuleNotFoundError: No module named 'nowhere'"),
        ("\nx = (", "broken.py:2: SyntaxError"),
        ("x = 1", "broken.py: no function is marked"),
        ("import sys; sys.exit(1)", "SystemExit"),
        ("import gridloom as gl\n@gl.function\ndef f(x): ...", "broken.py:2: f: parameter 'x' has no annotation"),
    ],
)
def test_describe_reports_mistakes_in_one_line(tmp_path, text, says):
    module = tmp_path / "broken.py"
    module.write_text(text)
    done = describe(module)
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr and done.stderr.count("\n") == 1


def error_of_null_bytes():
    """The class of the error depends on the version of Python."""
    try:
        compile(b"\0", "odd.py", "exec")
    except (SyntaxError, ValueError) as error:
        return type(error).__name__


NULL_BYTES = error_of_null_bytes()


@pytest.mark.parametrize(
    "make, says",
    [
        (os.mkfifo, "odd.py: it is a device, pipe or socket; name a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "odd.py: it is a device, pipe or socket; name a regular file"),
        (lambda path: path.write_text("x = 1", "utf-16"), f"odd.py: {NULL_BYTES}: source code string cannot contain null bytes"),
        (lambda path: path.mkdir(), "odd.py: Is a directory"),
    ],
    ids=["pipe", "device", "utf-16", "folder"],
)
def test_describe_reports_a_file_that_is_no_text(tmp_path, make, says):
    make(tmp_path / "odd.py")
    done = describe(tmp_path / "odd.py")
    assert done.returncode == 2 and done.stderr.strip().endswith(says) and done.stderr.count("\n") == 1


def test_describe_reports_a_missing_file(tmp_path):
    done = describe(tmp_path / "none.py")
    assert done.returncode == 2 and done.stderr.strip().endswith("none.py: No such file or directory")
