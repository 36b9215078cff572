"""Stores large arrays of arguments outside the pickle, so that each array is copied only once, into the memory from which it is sent.

```
pickle | array | array ... | pickled sizes of all parts before | length of these sizes | mark
```
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]

# Smaller arrays are stored in the pickle.
_LEAST_BYTES = 1 << 20
# Last byte. Neither a pickle nor a trailer of `module_versions` ends with it.
_MARK = b"b"
_LENGTH_BYTES = 4


class Aside:
    """The arrays outside a pickle. `keep` is the ``buffer_callback`` of its pickler."""

    def __init__(self) -> None:
        self._arrays: list[Bytes] = []

    def keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Keep an array, unless it is small. Return whether the pickle must contain it."""
        memory = buffer.raw()
        if memory.nbytes < _LEAST_BYTES:
            return True
        self._arrays.append(np.frombuffer(memory, np.uint8))
        return False

    def join(self, pickled: bytes, room: Callable[[int], Bytes]) -> Bytes:
        """Join the pickle and its arrays in memory that `room` allocates."""
        if not self._arrays:
            return np.frombuffer(pickled, np.uint8)
        index = pickle.dumps([len(pickled), *(array.nbytes for array in self._arrays)])
        end = index + len(index).to_bytes(_LENGTH_BYTES, "little") + _MARK
        parts = [np.frombuffer(pickled, np.uint8), *self._arrays, np.frombuffer(end, np.uint8)]
        made = room(sum(part.nbytes for part in parts))
        np.concatenate(parts, out=made)
        return made


def split(given: memoryview) -> tuple[memoryview, list[memoryview]]:
    """Split received bytes into the pickle and its arrays, without a copy."""
    if given[-1:] != _MARK:
        return given, []
    end = len(given) - len(_MARK) - _LENGTH_BYTES
    size = int.from_bytes(given[end : end + _LENGTH_BYTES], "little")
    parts, begin = [], 0
    for length in pickle.loads(given[end - size : end]):
        parts.append(given[begin : begin + length])
        begin += length
    return parts[0], parts[1:]


def copied(arrays: list[memoryview]) -> list[Bytes]:
    """Copy the arrays, so that they may be changed."""
    return [np.frombuffer(array, np.uint8).copy() for array in arrays]
