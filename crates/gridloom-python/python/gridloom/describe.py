"""``python -m gridloom.describe [--undeclared] FILE…``: prints the functions that Python files offer, as one line of JSON.

With ``--undeclared``, it also reports functions that get or put shared data and do not declare it, on standard error.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
import types
from pathlib import Path

from . import _gridloom
from .functions.offer import DEFINITIONS
from .pickling.protocol import SIGNATURE_ATTRIBUTE
from .worker.modules import load


def definitions(path: str) -> list[tuple[str, types.CodeType]]:
    """Definitions of the functions that a file marks, as JSON, and their code, in order of their appearance.

    Parameters
    ----------
    path : str
        A Python file, or the import name of a module.

    Returns
    -------
    list of (str, types.CodeType)
        One definition each.

    Raises
    ------
    LookupError
        If the file marks no function.
    """
    if path.endswith(".py") and Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise OSError(errno.EINVAL, "it is a device, pipe or socket; name a regular file")
    file = str(Path(path).resolve()) if path.endswith(".py") else path
    module = load(file)
    made = getattr(module, DEFINITIONS, ())
    found = [(one, vars(module)[json.loads(one)["body"]["Python"]["function"]].__code__) for one in made]
    for name, value in vars(module).items():
        signature = getattr(value, SIGNATURE_ATTRIBUTE, None)
        if isinstance(value, types.FunctionType) and isinstance(signature, _gridloom.RawSignature):
            if value.__module__ == module.__name__:
                found.append((signature.definition(file, name), value.__code__))
    if not found:
        raise LookupError("no function is marked with @gridloom.function")
    return found


UNDECLARED = "--undeclared"
_GETS = frozenset({"get", "begin_get", "find"})
_PUTS = frozenset({"put", "begin_put"})


def undeclared(definition: str, body: types.CodeType) -> list[str]:
    """Undeclared uses of shared data in a function, by its code: ``gets``, ``puts`` or both.

    Parameters
    ----------
    definition : str
        Its definition, as JSON.
    body : types.CodeType
        Its code. Uses in other functions that it calls are not detected.

    Returns
    -------
    list of str
        The keywords by which they would be declared.
    """
    names = _names(body)
    # Dictionaries have `get`, too: a function that shares data has a session of its own.
    if "connect" not in names:
        return []
    declared = {use["kind"] for use in json.loads(definition)["signature"]["uses"]}
    found = []
    if names & _GETS and "Get" not in declared:
        found.append("gets")
    if names & _PUTS and not declared & {"Put", "Replace"}:
        found.append("puts")
    return found


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def _warn(found: list[tuple[str, types.CodeType]]) -> None:
    """Warn of shared data that functions use and do not declare: in simulation their calls do not move them."""
    for definition, body in found:
        for word in undeclared(definition, body):
            name, verb = json.loads(definition)["signature"]["name"], word.removesuffix("s")
            print(
                f"gridloom: '{name}' {word} shared data that it does not declare: in simulation its calls do not {verb} them; "
                f"declare them by {word}=",
                file=sys.stderr,
            )


def main(files: list[str]) -> int:
    """Print the definitions of all files.

    Parameters
    ----------
    files : list of str
        Python files.

    Returns
    -------
    int
        Exit status: 0, or 2 after one line on standard error with the reason.
    """
    # Output of the modules must not mix with the JSON.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    if not files:
        print("gridloom.describe: expected files, got none", file=sys.stderr)
        return 2
    # The warnings matter for a simulation that runs no bodies.
    warns = files[0] == UNDECLARED
    files = files[1:] if warns else files
    found: list[tuple[str, types.CodeType]] = []
    for file in files:
        try:
            found += definitions(file)
        except (Exception, SystemExit) as error:
            print(f"gridloom.describe: {_where(file, error)}", file=sys.stderr)
            return 2
    if warns:
        _warn(found)
    output.write(f"[{', '.join(one for one, _ in found)}]\n")
    output.close()
    return 0


def _where(file: str, error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, SyntaxError):
        # A file that is not text has no line.
        line = "" if error.lineno is None else f":{error.lineno}"
        return f"{error.filename or file}{line}: SyntaxError: {error.msg}"
    if isinstance(error, OSError):
        return f"{file}: {error.strerror or text}"
    here = str(Path(file).resolve())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == here]
    kind = "" if type(error).__module__.startswith("gridloom") or type(error) is LookupError else f"{type(error).__name__}: "
    if text.startswith(here):
        return text
    return f"{here if frames else file}{f':{frames[-1].lineno}' if frames else ''}: {kind}{text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
