"""Modules of functions, imported by their files' paths: for ``gridloom.describe`` and ``gridloom.worker``."""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import os
import sys
import traceback
import types
from pathlib import Path

# Set by servers that confine their workers.
CONFINED_VARIABLE = "GRIDLOOM_CONFINED"
_CONFINED = (
    "\nThe server confines functions (gridloom serve --confine). Its operator can let them read more files with --readable PATH, and change "
    "those of a folder with --writable DIR. Temporary files belong into tempfile.gettempdir()."
)

# The limit of open files, set by servers that have one.
FILES_LIMIT_VARIABLE = "GRIDLOOM_WORKER_FILES"

_loaded: dict[str, types.ModuleType] = {}
# Its frames are above those of the functions that it calls, and useless to their programs.
_RUN_CODE = str(Path(__file__).parents[1] / "run_code.py")


def load(path: str) -> types.ModuleType:
    """Import the module of that file, once; or the one of that import name if it is no path.

    Files beside it can be imported by it, as in a program started from there.
    """
    if path in _loaded:
        return _loaded[path]
    if not path.endswith(".py"):
        module = importlib.import_module(path)
    else:
        file = Path(path).resolve()
        name = file.stem if file.stem not in sys.modules else f"_gridloom_{file.stem}_{len(_loaded)}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path}: no Python module")
        module = importlib.util.module_from_spec(spec)
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    _loaded[path] = module
    return module


def loaded_modules() -> list[types.ModuleType]:
    """The modules that were loaded."""
    return list(_loaded.values())


def format_traceback(error: BaseException, frames: types.TracebackType | None) -> str:
    """Text of an exception with its traceback; empty if the class declares that the traceback is useless."""
    if not getattr(error, "has_traceback", True):
        return ""
    while frames is not None and frames.tb_frame.f_code.co_filename == _RUN_CODE:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip("\n")
    if isinstance(error, PermissionError) and error.errno == errno.EACCES and CONFINED_VARIABLE in os.environ:
        text += _CONFINED
    if isinstance(error, OSError) and error.errno == errno.EMFILE and FILES_LIMIT_VARIABLE in os.environ:
        limit = os.environ[FILES_LIMIT_VARIABLE]
        text += f"\nThe limit of open files is {limit}: close files, or start the server with a larger --worker-files."
    return text


def end_fork(error: BaseException | None) -> None:
    """End this process, which a function forked and which has left the function, as a program ends."""
    status: object = 0
    if isinstance(error, SystemExit):
        status = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status & 0xFF)
