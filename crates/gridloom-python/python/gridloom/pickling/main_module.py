"""The module ``__main__`` of a worker: the global variables of the program's main module, as far as functions and classes of the program have
brought them.

So functions find ``__main__.x``, pickles of objects of the program's classes name ``__main__``, and processes that a function starts by
`multiprocessing` find its functions. Children of ``fork`` have the module in memory; those of ``spawn`` and ``forkserver`` import a main module
by name: that of `CHILD`, which reads what `_Spec` has written.
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
"""The module that such a process imports as its main module."""


class _Spec(ModuleSpec):
    """Specification of the main module. `multiprocessing` asks it for the name of the module that a child imports."""

    def __init__(self, variables: dict[str, Any]) -> None:
        super().__init__(CHILD, None, origin=variables.get("__file__"))
        self._variables = variables

    @property  # type: ignore[override, unused-ignore]
    def name(self) -> str:
        """The module of a child, which finds the variables as they are now."""
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
        """The variables that can be pickled; most programs have no other ones."""
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
    """Let this process have main modules of programs, which `dumps` pickles and which the file holds for its children."""
    global _dumps
    _dumps = dumps
    os.environ[FILE_VARIABLE] = os.fspath(file)


def make_main(base: dict[str, Any]) -> types.ModuleType | None:
    """Make the main module of a program; ``None`` if this process is no worker, which keeps its own."""
    if _dumps is None:
        return None
    module = types.ModuleType("__main__")
    vars(module).update(base, __spec__=_Spec(vars(module)))
    return module


_dumps: Callable[[Any], bytes] | None = None
