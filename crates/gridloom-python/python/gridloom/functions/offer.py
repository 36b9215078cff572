"""Functions and modules of the program that its grid offers.

Functions go to a file of their own, by module and name or by value, as `Grid.run` sends them; the grid keeps it until it is closed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from .. import _gridloom
from ..common.checks import checked_path, checked_text
from ..errors import ArgumentError, InputError, UsageError
from ..pickling.packing import name_of, pack_function
from ..pickling.protocol import SIGNATURE_ATTRIBUTE
from .declare import function

Offer: TypeAlias = str | os.PathLike[str] | types.ModuleType | Callable[..., Any]

DEFINITIONS = "__gridloom_definitions__"
"""In the file: definitions of its functions as JSON, for ``gridloom.describe``."""

_FILE = '''"""Functions of a program, as it has given them to a grid."""

from gridloom.functions.offer import load

globals().update(load({path!r}, {pickled!r}))
{definitions} = {made!r}
'''


def files_of(functions: Iterable[Offer]) -> tuple[list[str], tempfile.TemporaryDirectory[str] | None]:
    """Files that offer these, and the folder of those that are made for them."""
    if isinstance(functions, (str, os.PathLike)):
        raise UsageError(f"functions: expected a list of paths, modules and functions, got the path {os.fspath(functions)!r}")
    if callable(functions) or isinstance(functions, types.ModuleType):
        raise UsageError(f"functions: expected a list of paths, modules and functions, got {functions!r}; write [...] around it")
    files, bodies = [], []
    for one in functions:
        if isinstance(one, (str, os.PathLike)):
            files.append(checked_path("functions", one))
        elif isinstance(one, types.ModuleType):
            files.append(_file_of(one))
        elif callable(one):
            bodies.append(one)
        else:
            raise UsageError(f"functions: expected a path, a module or a function, got {type(one).__name__} {one!r}")
    if not bodies:
        return files, None
    folder = tempfile.TemporaryDirectory(prefix="gridloom-functions-")
    made = os.path.join(folder.name, "functions_of_program.py")
    try:
        text = _text(bodies, made)
        with open(made, "w", encoding="utf-8") as file:
            file.write(text)
    except BaseException:
        folder.cleanup()
        raise
    return [*files, made], folder


def offered_name(function: Any) -> str:
    """The name on the grid of a function as `files_of` takes it; a name is given back."""
    if isinstance(function, str):
        return checked_text("the name of a function", function)
    if callable(function):
        return signature_of(function, "function").name
    raise UsageError(f"function: expected a name such as 'linalg/dgemm', or a declared function, got {type(function).__name__} {function!r}")


def undeclared(body: types.FunctionType) -> types.FunctionType:
    """The function without its signature and annotations: for what pickles functions by itself, and unpickles them where there is no gridloom."""
    made = _copy(body)
    vars(made).pop(SIGNATURE_ATTRIBUTE, None)
    made.__annotations__ = {}
    return made


def search_path() -> list[str]:
    """Folders where the program finds modules; not its working directory, if that was removed."""
    found = []
    for folder in sys.path:
        with contextlib.suppress(OSError):
            found.append(os.path.abspath(folder))
    return found


def load(folders: list[str], pickled: list[bytes]) -> dict[str, Any]:
    """The functions of such a file, by their names there."""
    sys.path += [folder for folder in folders if folder not in sys.path]
    return {_name(number): pickle.loads(one) for number, one in enumerate(pickled)}


def _file_of(module: types.ModuleType) -> str:
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__":
        raise UsageError("functions: the main module would run again on servers; name its functions: functions=[f, g]")
    if not isinstance(file, str) or not file.endswith(".py"):
        raise UsageError(f"functions: module '{module.__name__}' has no Python file; name its functions: functions=[f, g]")
    return file


def _text(bodies: list[Callable[..., Any]], made: str) -> str:
    definitions = [signature_of(body).definition(made, _name(number)) for number, body in enumerate(bodies)]
    pickled = [pack_function(body) for body in bodies]
    return _FILE.format(path=search_path(), pickled=pickled, definitions=DEFINITIONS, made=definitions)


def signature_of(body: Any, what: str = "functions") -> _gridloom.RawSignature:
    if not isinstance(body, types.FunctionType):
        raise ArgumentError(f"{what}: {name_of(body)} is no function written in Python: run it by grid.run, which takes anything")
    signature = getattr(body, SIGNATURE_ATTRIBUTE, None)
    if signature is None:
        try:
            signature = getattr(function(_copy(body)), SIGNATURE_ATTRIBUTE)
        except InputError as error:
            raise InputError(f"{error}; or run it without declaring it: grid.run({body.__name__}, ...)") from None
    return signature  # type: ignore[no-any-return]


def _copy(body: types.FunctionType) -> types.FunctionType:
    """A copy, so that the program's function is not marked."""
    made = types.FunctionType(body.__code__, body.__globals__, body.__name__, body.__defaults__, body.__closure__)
    made.__dict__.update(vars(body))
    made.__annotations__, made.__kwdefaults__ = body.__annotations__, body.__kwdefaults__
    made.__module__, made.__qualname__, made.__doc__ = body.__module__, body.__qualname__, body.__doc__
    return made


def _name(number: int) -> str:
    return f"function_{number}"
