"""Reads the memory of an array that offers DLPack (https://dmlc.github.io/dlpack/latest/c_api.html), without taking ownership.

The capsule is not consumed, so it frees the array itself when nothing refers to it. NumPy's ``from_dlpack`` would take ownership of the array,
and its arrays are read-only for libraries of the older protocol.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CPU = 1
#: Size of the header before the tensor of a versioned capsule: its version, two pointers and flags.
_VERSIONED_BYTES = 32
#: NumPy's type letters by DLPack's codes.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


def memory_of(given: Any) -> tuple[NDArray[np.uint8], str] | None:
    """Return the bytes of an array and their type; ``None`` if they are not in memory of the host.

    Raises
    ------
    BufferError
        If the array is not contiguous.
    """
    if given.__dlpack_device__()[0] != _CPU:
        return None
    capsule = given.__dlpack__()
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    kept = name(capsule)
    at = pointer(capsule, kept) + (_VERSIONED_BYTES if kept == b"dltensor_versioned" else 0)
    tensor = ctypes.cast(at, ctypes.POINTER(_Tensor)).contents
    shape = [tensor.shape[at] for at in range(tensor.ndim)]
    size = tensor.bits * tensor.lanes // 8
    if tensor.strides and not is_contiguous(shape, [tensor.strides[at] for at in range(tensor.ndim)]):
        raise BufferError("the array is not contiguous: send a copy")
    # Before DLPack had complex numbers, a complex number was two lanes of floats.
    kind = f"{'c' if tensor.lanes == 2 else _KINDS[tensor.code]}{size}"
    count = int(np.prod(shape)) * size
    if count == 0:
        return np.zeros(0, np.uint8), kind
    memory = (ctypes.c_ubyte * count).from_address(tensor.data + tensor.byte_offset)
    memory.owner = capsule
    return np.frombuffer(memory, np.uint8), kind


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the items are contiguous, in either order of the dimensions. Strides are in items."""
    for order in (range(len(shape) - 1, -1, -1), range(len(shape))):
        step, fits = 1, True
        for at in order:
            fits &= shape[at] == 1 or strides[at] == step
            step *= shape[at]
        if fits:
            return True
    return 0 in shape
