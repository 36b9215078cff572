"""Serializes chares that move to other elements: their state is pickled; their class exists there already."""

from __future__ import annotations

import io
import pickle
from typing import Any


class _Pickler(pickle.Pickler):
    """Pickles the state of a chare, in which references to the chare itself remain references."""

    def __init__(self, file: io.BytesIO, chare: Any) -> None:
        super().__init__(file, protocol=5)
        self._chare = chare

    def persistent_id(self, obj: Any) -> bool | None:
        return True if obj is self._chare else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, chare: Any) -> None:
        super().__init__(file)
        self._chare = chare

    def persistent_load(self, pid: Any) -> Any:
        return self._chare


def pack(chare: Any) -> bytes:
    """Pickle the state of a chare: the result of its ``__getstate__``, else its attributes."""
    file = io.BytesIO()
    _Pickler(file, chare).dump(chare.__reduce_ex__(2)[2])  # the state, as the pickle protocol returns it
    return file.getvalue()


def unpack(chare: Any, data: bytes) -> None:
    """Set the state of a new chare: by its ``__setstate__``, else its attributes."""
    state = _Unpickler(io.BytesIO(data), chare).load()
    if hasattr(chare, "__setstate__"):
        chare.__setstate__(state)
        return
    # If the class has `__slots__`, the state is a pair.
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    chare.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(chare, name, value)
