"""Datatypes: those of the standard by their NumPy names, and those derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .buffers import memory_of, simple
from .constants import ORDER_C
from .errors import ERR_TYPE, Exception, unsupported
from .layout import BY_CODE, Layout, datatype_of


class Datatype(Layout):
    """The type of an item of a buffer.

    Parameters
    ----------
    datatype : Datatype, optional
        Creates another handle of this one; the null handle if omitted.
    """

    def __init__(self, datatype: Datatype | None = None) -> None:
        super().__init__()
        if datatype is not None:
            self.__dict__.update(datatype.__dict__)

    @property
    def typechar(self) -> str:
        return self.base.char if self.base is not None else "V"

    @property
    def typestr(self) -> str:
        return self.base.str[1:] if self.base is not None else f"V{self.Get_size()}"

    def tocode(self) -> str:
        """Return its code for `fromcode`."""
        return self.typestr

    @classmethod
    def fromcode(cls, code: str) -> Datatype:
        """Find a datatype by NumPy's code, or by the format of a buffer."""
        try:
            found: Datatype = datatype_of(code)
            return found
        except KeyError as error:
            raise ValueError(str(error)) from None

    def _derived(self, starts: Any, extent: int | None = None) -> Datatype:
        """Create a datatype with copies of this one at these byte offsets."""
        starts = np.asarray(starts, np.int64).reshape(-1)
        offsets = (starts[:, None] + self._checked().offsets[None, :]).reshape(-1)
        if len(starts) == 0:
            return Datatype._made(self.base, offsets, 0, 0, "derived")
        low, high = int(starts.min()) + self._lb, int(starts.max()) + self._lb + self._extent
        return Datatype._made(self.base, offsets, low, high - low if extent is None else extent, "derived")

    def Create_contiguous(self, count: int) -> Datatype:
        """Create a datatype of `count` consecutive items."""
        return self._derived(np.arange(count) * self.extent)

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Datatype:
        """Create a datatype of `count` blocks with a distance of `stride` items."""
        return self.Create_hvector(count, blocklength, stride * self.extent)

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Datatype:
        """Create a datatype of `count` blocks with a distance of `stride` bytes."""
        return self._derived(np.add.outer(np.arange(count) * stride, np.arange(blocklength) * self.extent))

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Datatype:
        """Create a datatype of blocks at these item offsets."""
        return self.Create_hindexed(blocklengths, [at * self.extent for at in displacements])

    def Create_hindexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Datatype:
        """Create a datatype of blocks at these byte offsets."""
        blocks = [at + np.arange(length) * self.extent for length, at in zip(blocklengths, displacements, strict=True)]
        return self._derived(np.concatenate(blocks) if blocks else [])

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Datatype:
        """Create a datatype of blocks of equal length at these item offsets."""
        return self.Create_indexed([blocklength] * len(displacements), displacements)

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Datatype:
        """Create a datatype of blocks of equal length at these byte offsets."""
        return self.Create_hindexed([blocklength] * len(displacements), displacements)

    def Create_subarray(
        self, sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int = ORDER_C
    ) -> Datatype:
        """Create a datatype for a part of an array."""
        layout: Any = "C" if order == ORDER_C else "F"
        items = np.arange(int(np.prod(sizes))).reshape(tuple(sizes), order=layout)
        part = items[tuple(slice(at, at + length) for at, length in zip(starts, subsizes, strict=True))]
        made = self._derived(part.ravel(order=layout) * self.extent)
        made._bound(0, int(np.prod(sizes)) * self.extent)
        return made

    @classmethod
    def Create_struct(cls, blocklengths: Sequence[int], displacements: Sequence[int], datatypes: Sequence[Datatype]) -> Datatype:
        """Create a datatype of blocks of several datatypes at these byte offsets."""
        each = zip(blocklengths, displacements, datatypes, strict=True)
        parts = [datatype._derived(at + np.arange(length) * datatype.extent) for length, at, datatype in each]
        bases = {part.base for part in parts}
        low = min((part._lb for part in parts), default=0)
        high = max((part._lb + part._extent for part in parts), default=0)
        offsets = np.concatenate([part.offsets for part in parts]) if parts else np.zeros(0, np.int64)
        return Datatype._made(bases.pop() if len(bases) == 1 else None, offsets, low, high - low, "derived")

    def Create_resized(self, lb: int, extent: int) -> Datatype:
        """Create a datatype with other bounds, in bytes."""
        return Datatype._made(self._checked().base, self.offsets, lb, extent, "derived")

    def Dup(self) -> Datatype:
        """Create a copy."""
        made = Datatype(self._checked())
        made.name = "derived"
        return made

    Create_dup = Dup
    Resized = Create_resized

    def Create_darray(self, *_: Any) -> Datatype:
        """Not supported."""
        raise unsupported("MPI.Datatype.Create_darray")

    def Commit(self) -> Datatype:
        """Do nothing: a datatype can be used without a commit."""
        return self

    def Free(self) -> None:
        """Become DATATYPE_NULL."""
        if self.is_predefined:
            raise Exception(ERR_TYPE, f"{self.name} cannot be freed")
        self.__dict__.update(Datatype().__dict__)

    free = Free

    def Get_name(self) -> str:
        """Return the name."""
        return "" if self.name == "derived" else self.name

    def Set_name(self, name: str) -> None:
        """Set the name."""
        self.name = name

    def Pack_size(self, count: int, comm: Any) -> int:
        """Return the number of bytes of `count` packed items."""
        return count * self.Get_size()

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int:
        """Pack items into a buffer of bytes, and return the position after them."""
        data = simple([*_unpacked(inbuf), self], False).pack()
        memory_of(outbuf, True)[0][position : position + len(data)] = np.frombuffer(data, np.uint8)
        return position + len(data)

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int:
        """Unpack items from a buffer of bytes, and return the position after them."""
        items = simple([*_unpacked(outbuf), self], True)
        size = items.count * self.Get_size()
        items.unpack(memory_of(inbuf, False)[0][position : position + size].tobytes())
        return position + size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Datatype):
            return NotImplemented
        mine, its = (self._lb, self._extent, self.base, self.name), (other._lb, other._extent, other.base, other.name)
        return mine == its and np.array_equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash((self._extent, self.name))

    def __bool__(self) -> bool:
        return not self.is_null

    def __repr__(self) -> str:
        return f"<gridloom.mpi.Datatype {self.name}>"

    def __reduce__(self) -> Any:
        return Datatype._made, (self.base, self.offsets, self._lb, self._extent, self.name)


def _unpacked(buffer: Any) -> list[Any]:
    return list(buffer) if isinstance(buffer, (list, tuple)) else [buffer]


_PAIR = {"SHORT_INT": "h", "TWOINT": "i", "LONG_INT": "l", "FLOAT_INT": "f", "DOUBLE_INT": "d", "LONG_DOUBLE_INT": "g"}
_NAMES = {
    "b": "SIGNED_CHAR INT8_T", "h": "SHORT INT16_T SIGNED_SHORT INTEGER2", "i": "INT INT32_T SIGNED_INT INTEGER INTEGER4",
    "l": "LONG INT64_T SIGNED_LONG AINT OFFSET COUNT INTEGER8", "q": "LONG_LONG SIGNED_LONG_LONG",
    "B": "UNSIGNED_CHAR UINT8_T BYTE PACKED", "H": "UNSIGNED_SHORT UINT16_T", "I": "UNSIGNED UNSIGNED_INT UINT32_T",
    "L": "UNSIGNED_LONG UINT64_T", "Q": "UNSIGNED_LONG_LONG", "f": "FLOAT REAL REAL4", "d": "DOUBLE DOUBLE_PRECISION REAL8",
    "g": "LONG_DOUBLE REAL16", "?": "C_BOOL BOOL CXX_BOOL LOGICAL1", "F": "C_FLOAT_COMPLEX C_COMPLEX CXX_FLOAT_COMPLEX COMPLEX COMPLEX8",
    "D": "C_DOUBLE_COMPLEX CXX_DOUBLE_COMPLEX DOUBLE_COMPLEX COMPLEX16", "G": "C_LONG_DOUBLE_COMPLEX CXX_LONG_DOUBLE_COMPLEX COMPLEX32",
    "S1": "CHAR CHARACTER", "e": "REAL2",
}  # fmt: skip
#: Datatypes of the standard, by name.
BY_NAME: dict[str, Datatype] = {"DATATYPE_NULL": Datatype()}
for _char, _names in _NAMES.items():
    for _name in _names.split():
        BY_NAME[_name] = Datatype.basic(f"MPI_{_name}", _char)
for _name in ("LOGICAL", "LOGICAL4"):
    BY_NAME[_name] = Datatype.basic(f"MPI_{_name}", "i")
BY_NAME["INTEGER1"] = Datatype.basic("MPI_INTEGER1", "b")
BY_NAME["WCHAR"] = Datatype.basic("MPI_WCHAR", "i")
for _name, _char in _PAIR.items():
    BY_NAME[_name] = Datatype.basic(f"MPI_{_name}", np.dtype([("value", _char), ("index", "i")], align=True))
BY_NAME["INT_INT"] = BY_NAME["TWOINT"]

for _char in "bhilqBHILQfdg?FDGe":
    _datatype = BY_NAME[_NAMES[_char].split()[0]]
    BY_CODE[_char] = _datatype
    BY_CODE.setdefault(np.dtype(_char).str[1:], _datatype)
BY_CODE.update({"p": BY_NAME["AINT"], "n": BY_CODE["l"], "N": BY_CODE["L"], "c": BY_NAME["CHAR"], "S": BY_NAME["CHAR"], "S1": BY_NAME["CHAR"]})
BY_CODE.update({"Zf": BY_CODE["F"], "Zd": BY_CODE["D"], "Zg": BY_CODE["G"], "B": BY_NAME["BYTE"], "s": BY_NAME["CHAR"], "b1": BY_CODE["?"]})
