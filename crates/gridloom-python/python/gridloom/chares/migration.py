"""Chares as bytes, for other elements: the state of each is pickled, its class is there already."""

from __future__ import annotations

import io
import pickle
from typing import Any


class _Pickler(pickle.Pickler):
    """Pickles what belongs to a chare; a reference to the chare itself stays one."""

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
    _Pickler(file, chare).dump(chare.__reduce_ex__(2)[2])  # the state, by the protocol of pickle
    return file.getvalue()


def unpack(chare: Any, data: bytes) -> None:
    """Set the state of a new chare: by its ``__setstate__``, else its attributes."""
    state = _Unpickler(io.BytesIO(data), chare).load()
    if hasattr(chare, "__setstate__"):
        chare.__setstate__(state)
        return
    # With slots it is a pair.
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    chare.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(chare, name, value)
