"""``python -m gridloom.describe FILE…``: what Python files offer, as one line of JSON on the standard output."""

from __future__ import annotations

import os
import sys
import traceback
import types
from pathlib import Path

from . import _gridloom
from ._define import _ATTRIBUTE
from ._modules import load
from ._offered import DEFINITIONS


def definitions(path: str) -> list[str]:
    """Definitions of the functions that a file marks, as JSON, in order of their appearance.

    Parameters
    ----------
    path : str
        A Python file, or the import name of a module.

    Returns
    -------
    list of str
        One definition each.

    Raises
    ------
    LookupError
        If the file marks no function.
    """
    file = str(Path(path).resolve()) if path.endswith(".py") else path
    module = load(file)
    found = list(getattr(module, DEFINITIONS, ()))
    for name, value in vars(module).items():
        signature = getattr(value, _ATTRIBUTE, None)
        if isinstance(value, types.FunctionType) and isinstance(signature, _gridloom.RawSignature):
            if value.__module__ == module.__name__:
                found.append(signature.definition(file, name))
    if not found:
        raise LookupError("no function is marked with @gridloom.function")
    return found


def main(files: list[str]) -> int:
    """Print the definitions of all files.

    Parameters
    ----------
    files : list of str
        Python files.

    Returns
    -------
    int
        Exit status: 0, or 2 after one line on the standard error that says what is wrong.
    """
    # What the modules print must not get between the JSON and its reader.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    if not files:
        print("gridloom.describe: expected files, got none", file=sys.stderr)
        return 2
    lines: list[str] = []
    for file in files:
        try:
            lines += definitions(file)
        except (Exception, SystemExit) as error:
            print(f"gridloom.describe: {_where(file, error)}", file=sys.stderr)
            return 2
    output.write(f"[{', '.join(lines)}]\n")
    output.close()
    return 0


def _where(file: str, error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}"
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
