"""The module ``__main__`` of a worker: those global variables of the program's main module that were sent with functions and classes.

With it, functions can use ``__main__.x``, pickles of objects of the program's classes refer to ``__main__``, and processes that a function
starts with `multiprocessing` find its functions. Children of ``fork`` inherit the module in memory; those of ``spawn`` and ``forkserver``
import the module `CHILD` as their main module, and it reads the file that `_Spec` has written.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

FILE_VARIABLE = "GRIDLOOM_MAIN_MODULE"
"""File with the pickled global variables, for the processes that a function starts."""
CHILD = "gridloom.worker.main_of_child"
"""The module that these processes import as their main module."""


class _Spec(ModuleSpec):
    """Specification of the main module. `multiprocessing` asks it for the name of the module that a child imports."""

    def __init__(self, variables: dict[str, Any]) -> None:
        super().__init__(CHILD, None, origin=variables.get("__file__"))
        self._variables = variables

    @property  # type: ignore[override, unused-ignore]
    def name(self) -> str:
        """Write the current variables to the file, and return the name of the module that a child imports."""
        path = Path(os.environ[FILE_VARIABLE])
        path.parent.mkdir(mode=0o700, exist_ok=True)
        written = path.with_name(f"{path.name}-{os.getpid()}")
        written.write_bytes(self._pickled())
        written.replace(path)  # a child may be reading
        return CHILD

    @name.setter
    def name(self, _: str) -> None:
        pass

    def _pickled(self) -> bytes:
        """Pickle the variables. If that fails, which is rare, leave out those that cannot be pickled."""
        assert _dumps is not None, "there is a main module"
        variables = {key: value for key, value in self._variables.items() if not key.startswith("__")}
        try:
            return _dumps(variables)
        except Exception:
            return _dumps({key: value for key, value in variables.items() if _is_picklable(value)})


def _is_picklable(value: Any) -> bool:
    assert _dumps is not None, "there is a main module"
    try:
        _dumps(value)
    except Exception:
        return False
    return True


def enable(file: Path, dumps: Callable[[Any], bytes]) -> None:
    """Allow `make_main` in this process. `dumps` pickles the variables of a main module; `file` stores them for child processes."""
    global _dumps
    _dumps = dumps
    os.environ[FILE_VARIABLE] = os.fspath(file)


def make_main(base: dict[str, Any]) -> types.ModuleType | None:
    """Create the main module of a program; ``None`` if this process is not a worker and keeps its own main module."""
    if _dumps is None:
        return None
    module = types.ModuleType("__main__")
    vars(module).update(base, __spec__=_Spec(vars(module)))
    return module


_dumps: Callable[[Any], bytes] | None = None
