"""Checks whether a worker process has imported a program's own modules in the same version as the program.

A server runs longer than programs, and its files may differ. So pickles that name modules end with the digests of the files of these modules, as
the program has imported them. A worker that has imported an earlier version imports the module again. If its file differs, it warns.

A module is a program's own if it belongs neither to Python nor to its ``site-packages``.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import os
import pickle
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

# Names and digests.
_Digests: TypeAlias = list[tuple[str, bytes]]

# Last byte of a pickle with digests. No other pickle ends with it.
_MARK = b"s"
_LENGTH_BYTES = 4
# Maximum number of modules of a program that are examined.
_MODULES_MAX = 1000

_INSTALLED = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in {
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        site.getusersitepackages(),
        os.path.dirname(os.path.dirname(__file__)),
    }
)

# Digests by module, with the import specification of the module: a reload creates a new specification.
_digests: dict[str, tuple[Any, bytes | None]] = {}
_reached: dict[str, tuple[Any, list[str]]] = {}
# Number of imported modules at the last check, and modules for which a warning was printed.
_count = 0
_reported: set[tuple[str, bytes]] = set()


def trailer(modules: Iterable[str]) -> bytes:
    """Trailer of a pickle that names these modules; empty if none of them is the program's own."""
    names = sorted({reached for module in modules for reached in _reach(module)})
    known = [(name, digest) for name in names if (digest := _digest(name)) is not None]
    if not known:
        return b""
    pickled = pickle.dumps(known)
    return pickled + len(pickled).to_bytes(_LENGTH_BYTES, "little") + _MARK


def digests_in(pickled: bytes | memoryview) -> _Digests:
    """Digests at the end of a pickle."""
    if pickled[-1:] != _MARK:
        return []
    end = len(pickled) - len(_MARK) - _LENGTH_BYTES
    size = int.from_bytes(pickled[end : end + _LENGTH_BYTES], "little")
    return pickle.loads(pickled[end - size : end])  # type: ignore[no-any-return]


def note_imports() -> None:
    """Record the digests of modules that were imported since the last call."""
    global _count
    if len(sys.modules) != _count:
        for name in list(sys.modules):
            _digest(name)
        _count = len(sys.modules)


def drop_outdated(digests: _Digests, keep: Iterable[types.ModuleType]) -> bool:
    """Drop the program's modules if one of them was edited after its import, so that they are imported again. Return whether they were dropped.

    Modules in `keep` are not dropped.
    """
    others = [name for name, digest in digests if name in sys.modules and _digest(name) != digest]
    if not any(_read(sys.modules[name]) != _digest(name) for name in others):
        return False
    kept = {id(module) for module in keep}
    for name, module in list(sys.modules.items()):
        if _is_own(module) and id(module) not in kept:
            del sys.modules[name]
            _digests.pop(name, None)
    importlib.invalidate_caches()
    linecache.clearcache()
    return True


def warn_of_others(digests: _Digests) -> None:
    """Warn once of each module of the program whose source differs here."""
    for name, digest in digests:
        if name in sys.modules and _digest(name) != digest and (name, digest) not in _reported:
            _reported.add((name, digest))
            print(
                f"warning: the module '{name}' is another one here ({sys.modules[name].__file__}) than in the program, and its "
                f"functions may do something else: copy the program's here, or send it along by "
                f"cloudpickle.register_pickle_by_value({name}); a program that runs since before an edit is started again",
                file=sys.stderr,
            )


def _reach(module: str) -> list[str]:
    """Modules of the program that this one uses, including itself."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    known = _reached.get(module)
    if known is None or known[0] is not spec:
        found = [module] if _is_own(sys.modules.get(module)) else []
        for name in found:
            found += {used for used in _used(sys.modules[name]) if used not in found and _is_own(sys.modules.get(used))}
            if len(found) > _MODULES_MAX:
                break
        known = _reached[module] = spec, found
    return known[1]


def _used(module: types.ModuleType) -> Iterator[str]:
    """Modules in global variables, and modules of functions and classes in global variables."""
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str):
            yield name


def _is_own(module: Any) -> bool:
    """Whether it is a module of the program, with a file."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or getattr(module, "__name__", "__main__") == "__main__":
        return False
    return not os.path.realpath(file).startswith(_INSTALLED)


def _digest(name: str) -> bytes | None:
    """Digest of a module's source as it was imported, if the module is the program's."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    known = _digests.get(name)
    if known is not None and known[0] is spec:
        return known[1]
    digest = _read(module) if _is_own(module) else None
    _digests[name] = spec, digest
    return digest


def _read(module: Any) -> bytes | None:
    """Digest of a module's file as it is now."""
    try:
        with open(module.__file__, "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=16).digest()
    except OSError:
        return None
