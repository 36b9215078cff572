"""Buffers of upper-case calls: memory, counts, displacements and datatypes, in the notation of mpi4py."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dlpack
from .constants import PROC_NULL
from .errors import ERR_TRUNCATE, Exception, unsupported
from .layout import Layout, datatype_of

Memory = NDArray[np.uint8]


class _Constant(int):
    """A constant with a name."""

    def __new__(cls, number: int, name: str) -> _Constant:
        made = super().__new__(cls, number)
        made._name = name  # type: ignore[attr-defined]
        return made

    def __repr__(self) -> str:
        return str(self._name)  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return repr(self)


IN_PLACE = _Constant(-1, "IN_PLACE")
BOTTOM = _Constant(0, "BOTTOM")
BUFFER_AUTOMATIC = _Constant(1, "BUFFER_AUTOMATIC")
_BYTE = Layout.basic("MPI_BYTE", "B")


def is_in_place(message: Any) -> bool:
    """Whether the operation is in place. In mpi4py, ``None`` means the same as ``IN_PLACE``."""
    return message is None or message is IN_PLACE


def memory_of(given: Any, is_written: bool) -> tuple[Memory, str]:
    """Return the bytes of an object with a contiguous buffer, without a copy, and its format."""
    try:
        view = memoryview(given)
    except TypeError:
        return _memory_of_array(given, is_written)
    if is_written and view.readonly:
        raise BufferError("the receive buffer is read-only")
    if view.nbytes == 0:
        return np.zeros(0, np.uint8), view.format or "B"
    if not view.contiguous:
        raise BufferError("the buffer is not contiguous: send a copy (numpy.ascontiguousarray), or use a derived datatype")
    if not view.c_contiguous:
        given = np.asarray(given).T
    return np.frombuffer(given, np.uint8), view.format or "B"


def _memory_of_array(given: Any, is_written: bool) -> tuple[Memory, str]:
    """Return the memory of an object that provides its address."""
    if hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__"):
        found = dlpack.memory_of(given)
        if found is None:
            raise unsupported("arrays on a GPU", "copy them to memory of the host")
        return found
    if hasattr(given, "__cuda_array_interface__"):
        interface = given.__cuda_array_interface__
        kind, address = interface["typestr"][1:], interface["data"][0]
        if is_written and interface["data"][1]:
            raise BufferError("the receive buffer is read-only")
        size = np.dtype(interface["typestr"]).itemsize
        count = int(np.prod(interface["shape"])) * size
        strides = interface.get("strides")
        if strides is not None and not dlpack.is_contiguous(interface["shape"], [stride // size for stride in strides]):
            raise BufferError("the buffer has strides: send a copy")
        if count and not _is_of_host(address):
            raise unsupported("arrays on a GPU", "copy them to memory of the host")
    else:
        raise TypeError("message: expecting buffer or list/tuple")
    if count == 0:
        return np.zeros(0, np.uint8), kind
    memory = np.frombuffer((ctypes.c_ubyte * count).from_address(address), np.uint8)
    return memory, kind


def _is_of_host(address: int) -> bool:
    file = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return len(os.pread(file, 1, address)) == 1
    except OSError:
        return False
    finally:
        os.close(file)


class Block:
    """Some items of one datatype in memory."""

    __slots__ = ("count", "datatype", "keeps", "memory", "offset")

    def __init__(self, memory: Memory, offset: int, count: int, datatype: Layout, keeps: Any = None) -> None:
        self.memory = memory
        #: Offset, bytes.
        self.offset = offset
        self.count = count
        self.datatype = datatype
        #: Owner of the memory.
        self.keeps = keeps

    def _places(self, count: int) -> NDArray[np.int64]:
        starts = self.offset + np.arange(count, dtype=np.int64) * self.datatype.extent
        places: NDArray[np.int64] = np.add.outer(starts, self.datatype.offsets).reshape(-1)
        return places

    def pack(self) -> bytes:
        """Return a copy of the items' bytes."""
        if self.count == 0:
            return b""
        if self.datatype.is_contiguous:
            size = self.count * self.datatype.size
            if self.offset + size > len(self.memory):
                raise ValueError(f"message: buffer has {len(self.memory)} bytes, and {self.offset + size} are wanted")
            return self.memory[self.offset : self.offset + size].tobytes()
        return self.memory[self._places(self.count)].tobytes()

    def unpack(self, data: bytes) -> None:
        """Write the items of a message here. A message may have fewer items than the block."""
        size = self.datatype.size if self.count else 0
        if len(data) > self.count * size:
            raise Exception(ERR_TRUNCATE, f"{len(data)} bytes received, but the buffer has room for {self.count * size}")
        if not data:
            return
        received = np.frombuffer(data, np.uint8)
        if self.datatype.is_contiguous:
            self.memory[self.offset : self.offset + len(data)] = received
        else:
            self.memory[self._places(-(-len(data) // size))[: len(data)]] = received

    def array(self, data: bytes) -> NDArray[Any]:
        """Return the bytes as an array of the item type."""
        base = self.datatype.base
        if base is None:
            raise Exception(ERR_TRUNCATE, "a reduction needs items of one type")
        return np.frombuffer(data, base)


NOTHING = Block(np.zeros(0, np.uint8), 0, 0, _BYTE)


class Blocks:
    """A block for each of several ranks."""

    __slots__ = ("each",)

    def __init__(self, each: list[Block]) -> None:
        self.each = each

    def pack(self) -> list[bytes]:
        """Return copies of all blocks."""
        return [block.pack() for block in self.each]

    def unpack(self, data: Sequence[bytes]) -> None:
        """Write one message into each block."""
        for block, one in zip(self.each, data, strict=True):
            block.unpack(one)


def _parts(message: Any) -> tuple[Any, Any, Any, Any]:
    """Return the buffer, the counts, the displacements and the datatype of a message."""
    if not isinstance(message, (list, tuple)):
        return message, None, None, None
    if len(message) == 2:
        buffer, counts = message
        if isinstance(counts, (Layout, str)):
            return buffer, None, None, counts
        return (buffer, *_pair(counts), None)
    if len(message) == 3:
        buffer, counts, datatype = message
        return (buffer, *_pair(counts), datatype)
    if len(message) == 4:
        return message[0], message[1], message[2], message[3]
    raise ValueError("message: expecting 2 to 4 items")


def _pair(counts: Any) -> tuple[Any, Any]:
    if isinstance(counts, (tuple, list)) and len(counts) == 2 and (counts[1] is None or not _is_integral(counts[1]) or isinstance(counts, tuple)):
        return counts[0], counts[1]
    return counts, None


def _is_integral(given: Any) -> bool:
    try:
        index(given)
    except TypeError:
        return False
    return True


def _memory(buffer: Any, datatype: Any, is_written: bool) -> tuple[Memory, Layout]:
    if buffer is BOTTOM:
        raise unsupported("MPI.BOTTOM with counts and displacements", "name the buffer, or give a count and a datatype")
    if buffer is None:
        if datatype is None:
            raise TypeError("message: buffer is None without a datatype")
        return np.zeros(0, np.uint8), datatype_of(datatype)
    memory, kind = memory_of(buffer, is_written)
    return memory, datatype_of(kind if datatype is None else datatype)


def simple(message: Any, is_written: bool, rank: int = 0, blocks: int = 1) -> Block:
    """Parse a message argument of one block, or of `blocks` equal blocks of which the first is given.

    Raises
    ------
    TypeError, ValueError
        If the argument does not describe such a message.
    """
    if rank == PROC_NULL:
        return NOTHING
    if message is None:
        raise TypeError("message: expecting buffer or list/tuple")
    buffer, count, displacement, datatype = _parts(message)
    if buffer is BOTTOM and count is not None and datatype is not None and displacement is None:
        return _at_address(0, index(count), datatype_of(datatype))
    memory, datatype = _memory(buffer, datatype, is_written)
    length, offset = len(memory), 0
    if displacement is not None:
        at = index(displacement)
        if at < 0:
            raise ValueError(f"message: negative displacement {at}")
        if at > 0:
            offset = at * _extent(datatype, "handle displacement")
            if offset > length:
                raise ValueError(f"message: displacement {at} out of bounds, number of datatype entries {length // datatype.extent}")
            length -= offset
    if count is not None:
        count = index(count)
        if count < 0:
            raise ValueError(f"message: negative count {count}")
        if count > 0 and buffer is None:
            raise ValueError(f"message: buffer is None but count is {count}")
    elif length == 0:
        count = 0
    else:
        count = _entries(length, datatype)
        if blocks > 1:
            if count % blocks:
                raise ValueError(
                    f"message: cannot infer count, number of entries {count} is not a multiple of required number of blocks {blocks}"
                )
            count //= blocks
    return Block(memory, offset, count, datatype, buffer)


def _extent(datatype: Layout, purpose: str) -> int:
    if datatype.is_null:
        raise ValueError(f"message: cannot {purpose}, datatype is null")
    lb, extent = datatype.Get_extent()
    if extent <= 0:
        raise ValueError(f"message: cannot {purpose}, datatype extent {extent} (lb:{lb}, ub:{lb + extent})")
    return extent


def _entries(length: int, datatype: Layout) -> int:
    extent = _extent(datatype, "infer count")
    if length % extent:
        lb = datatype.lb
        raise ValueError(
            f"message: cannot infer count, buffer length {length} is not a multiple of datatype extent {extent} (lb:{lb}, ub:{lb + extent})"
        )
    return length // extent


def equal(message: Any, is_written: bool, blocks: int) -> Blocks:
    """Parse a message argument of equal blocks, one for each of `blocks` ranks."""
    first = simple(message, is_written, 0, blocks)
    step = first.count * (first.datatype.extent if first.count else 0)
    each = [Block(first.memory, first.offset + at * step, first.count, first.datatype, first.keeps) for at in range(blocks)]
    return Blocks(each)


def vector(message: Any, is_written: bool, blocks: int) -> Blocks:
    """Parse a message argument of blocks, each with its own count and displacement."""
    if message is None:
        raise TypeError("message: expecting buffer or list/tuple")
    buffer, counts, displacements, datatype = _parts(message)
    if not isinstance(message, (list, tuple)) or len(message) != 4:
        # A list of two counts looks like a pair.
        given = message[1] if isinstance(message, (list, tuple)) and len(message) > 1 else None
        if isinstance(given, list) and len(given) == 2 and all(map(_is_integral, given)):
            counts, displacements = given, None
    memory, datatype = _memory(buffer, datatype, is_written)
    if counts is None:
        entries = _entries(len(memory), datatype) if len(memory) else 0
        counts = [entries // blocks + (entries % blocks > at) for at in range(blocks)]
    counts = _each(counts, blocks)
    if displacements is None:
        displacements = [sum(counts[:at]) for at in range(blocks)]
    elif _is_integral(displacements):
        displacements = [index(displacements) * at for at in range(blocks)]
    displacements = _each(displacements, blocks)
    extent = datatype.extent if any(counts) or any(displacements) else 0
    return Blocks([Block(memory, at * extent, count, datatype, buffer) for count, at in zip(counts, displacements, strict=True)])


def _each(given: Any, blocks: int) -> list[int]:
    if _is_integral(given):
        return [index(given)] * blocks
    numbers = [index(one) for one in given]
    if len(numbers) != blocks:
        raise ValueError(f"expecting {blocks} items, got {len(numbers)}")
    return numbers


def of_datatypes(message: Any, is_written: bool, blocks: int) -> Blocks:
    """Parse a message argument of blocks, each with its own datatype; displacements are in bytes."""
    if len(message) == 2:
        buffer, datatypes = message
        counts = displacements = None
    elif len(message) == 3:
        buffer, (counts, displacements), datatypes = message
    elif len(message) == 4:
        buffer, counts, displacements, datatypes = message
    else:
        raise ValueError("message: expecting 2 to 4 items")
    datatypes = [datatype_of(one) for one in datatypes] if not isinstance(datatypes, (Layout, str)) else [datatype_of(datatypes)] * blocks
    if len(datatypes) != blocks:
        raise ValueError(f"expecting {blocks} items, got {len(datatypes)}")
    counts = [1] * blocks if counts is None else _each(counts, blocks)
    displacements = [0] * blocks if displacements is None else _each(displacements, blocks)
    each = zip(counts, displacements, datatypes, strict=True)
    if buffer is None or buffer is BOTTOM:
        return Blocks([_at_address(at, count, datatype) for count, at, datatype in each])
    memory, _ = _memory(buffer, _BYTE, is_written)
    return Blocks([Block(memory, at, count, datatype, buffer) for count, at, datatype in each])


def _at_address(address: int, count: int, datatype: Layout) -> Block:
    """Return items at absolute addresses, as with BOTTOM."""
    if count == 0 or datatype.size == 0:
        return NOTHING
    first, length = datatype.Get_true_extent()
    span = (count - 1) * datatype.extent + length
    memory = np.frombuffer((ctypes.c_ubyte * span).from_address(address + first), np.uint8)
    return Block(memory, -first, count, datatype)
