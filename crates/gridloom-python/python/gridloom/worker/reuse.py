"""Decides which functions of programs a worker process keeps between calls. All others are unpickled again for each call.

**Invariants.** A call finds nothing in a kept function that an earlier call has left there, but for the cache of ``functools.lru_cache``.
Global variables of functions are not considered here.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

_CACHED = type(functools.lru_cache(lambda: None))
# Objects of these types never change.
_CONSTANT = frozenset({type(None), type(...), bool, int, float, complex, str, bytes, range})


def is_reusable(function: Any) -> bool:
    """Whether a function that was unpickled can serve further calls."""
    kind = type(function)
    if kind is _CACHED:
        return is_reusable(function.__wrapped__)
    if kind is types.FunctionType:
        if function.__closure__:  # it may rebind its variables
            return False
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        return all(map(_is_constant, defaults))
    if kind is types.BuiltinFunctionType:
        # Otherwise it is a method of an object.
        return function.__self__ is None or isinstance(function.__self__, types.ModuleType)
    return isinstance(function, type)


def _is_constant(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_constant, value))
    # Classes and modules belong to the process, whoever names them.
    return type(value) in _CONSTANT or isinstance(value, type | types.ModuleType | np.number | np.bool_ | np.dtype)
