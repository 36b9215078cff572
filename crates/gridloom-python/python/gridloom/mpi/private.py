"""Modules that each rank has a copy of: ``__main__``, and the modules below the program's folder.

Ranks of one element share an interpreter. While a rank runs, its own modules are in ``sys.modules``; they are replaced when another
rank continues. Modules of installed packages, of the standard library and in compiled files are shared.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType
from typing import Any

from greenlet import getcurrent


class Modules:
    """One rank's own modules."""

    # The modules that are in `sys.modules` now.
    _inside: Modules | None = None

    def __init__(self, program: str) -> None:
        self._program = program
        main = ModuleType("__main__")
        main.__file__ = program
        main.__dict__["__builtins__"] = __builtins__
        self._modules: dict[str, ModuleType] = {"__main__": main}
        self._argv: list[str] | None = None

    def run(self, code: CodeType) -> None:
        """Run the program's code as this rank's ``__main__``."""
        exec(code, self._modules["__main__"].__dict__)

    def claim(self, name: str) -> None:
        """Record that a module of this rank is about to be loaded."""
        self._modules.setdefault(name, ModuleType(name))

    def names(self) -> list[str]:
        """List the names of the rank's own modules."""
        return sorted(self._modules)

    def enter(self) -> None:
        """Put the rank's own modules into `sys.modules`."""
        before = Modules._inside
        if before is self:
            return
        if before is not None:
            before._leave()
        Modules._inside = self
        sys.modules.update(self._modules)
        if self._argv is not None:
            sys.argv = self._argv
        else:
            self._argv = sys.argv = list(sys.argv)

    def _leave(self) -> None:
        for name in list(self._modules):
            module = sys.modules.pop(name, None)
            if module is None:
                del self._modules[name]
            else:
                self._modules[name] = module


class Finder:
    """Finds modules as usual, and records that those below the program's folder belong to the rank that imports them."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder) + os.sep
        paths = sysconfig.get_paths()
        shared = [paths["stdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
        shared.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
        self._shared = tuple(os.path.realpath(path) + os.sep for path in shared)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Find a module for the import system."""
        spec = PathFinder.find_spec(name, path, target)
        rank = getattr(getcurrent(), "rank", None)
        if spec is not None and rank is not None and self.is_private(spec):
            rank.modules.claim(name)
        return spec

    def is_private(self, spec: ModuleSpec) -> bool:
        """Whether each rank has its own copy of the module."""
        places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or [])
        return any(self._is_below(place) for place in places if place is not None)

    def _is_below(self, place: str) -> bool:
        path = os.path.realpath(place)
        is_source = os.path.isdir(path) or path.endswith((".py", ".pyc"))
        return is_source and path.startswith(self._folder) and not path.startswith(self._shared)

    def install(self) -> None:
        """Put this finder before the usual finder of files."""
        at = next((at for at, finder in enumerate(sys.meta_path) if finder is PathFinder), len(sys.meta_path))
        sys.meta_path.insert(at, self)
