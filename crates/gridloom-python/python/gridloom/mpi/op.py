"""Operations of reductions, for objects and for arrays."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from .buffers import Block, simple
from .errors import ERR_OP, Exception


class Op:
    """An operation. A call with two objects combines them.

    Parameters
    ----------
    op : Op, optional
        Creates another handle of this one; the null handle if omitted.
    """

    def __init__(self, op: Op | None = None) -> None:
        self.name = "MPI_OP_NULL"
        self.of_objects: Callable[[Any, Any], Any] | None = None
        self.of_arrays: Callable[[Any, Any], Any] | None = None
        self._of_buffers: Callable[[Any, Any, Any], None] | None = None
        self._commutes = True
        if op is not None:
            self.__dict__.update(op.__dict__)

    @classmethod
    def Create(cls, function: Callable[[Any, Any, Any], None], commute: bool = False) -> Op:
        """Create an operation from a function of the program.

        Parameters
        ----------
        function : callable
            ``function(inbuf, inoutbuf, datatype)`` combines the items of two buffers of bytes into the second.
        commute : bool, optional
            Whether the order of the operands does not matter.
        """
        made = cls()
        made.name, made._of_buffers, made._commutes = "own", function, commute
        return made

    @classmethod
    def _builtin(cls, name: str, of_objects: Callable[[Any, Any], Any], of_arrays: Callable[[Any, Any], Any], commutes: bool = True) -> Op:
        made = cls()
        made.name, made.of_objects, made.of_arrays, made._commutes = name, of_objects, of_arrays, commutes
        return made

    def Free(self) -> None:
        """Become OP_NULL."""
        if self.is_predefined:
            raise Exception(ERR_OP, f"{self.name} cannot be freed")
        self.__dict__.update(Op().__dict__)

    free = Free

    def Is_commutative(self) -> bool:
        """Whether the order of operands does not matter."""
        return self._commutes

    is_commutative = property(Is_commutative)

    @property
    def is_predefined(self) -> bool:
        return self.name != "own"

    def __call__(self, x: Any, y: Any) -> Any:
        if self.of_objects is not None:
            return self.of_objects(x, y)
        if self._of_buffers is not None:
            return self._of_buffers(x, y, None)
        raise ValueError("cannot call a null operation")

    def combines(self, block: Block) -> Callable[[bytes, bytes], bytes]:
        """Return the function that combines the bytes of two messages with items of this datatype."""
        if self._of_buffers is not None:
            function = self._of_buffers

            def combined(left: bytes, right: bytes) -> bytes:
                # Like a slice of mpi4py's memory, a slice of this accepts any buffer.
                both = bytearray(right)
                function(bytearray(left), both, block.datatype)
                return bytes(both)

            return combined
        if self.of_arrays is None:
            raise Exception(ERR_OP, "it is OP_NULL")
        of_arrays = self.of_arrays

        def combined_arrays(left: bytes, right: bytes) -> bytes:
            one, other = block.array(left), block.array(right)
            try:
                return np.asarray(of_arrays(one, other)).astype(one.dtype, copy=False).tobytes()
            except TypeError:
                raise Exception(ERR_OP, f"{self.name} does not combine items of {one.dtype}") from None

        return combined_arrays

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combine two buffers into the second."""
        one, other = simple(inbuf, False), simple(inoutbuf, True)
        if one.count != other.count:
            raise ValueError(f"mismatch in inbuf count {one.count} and inoutbuf count {other.count}")
        if one.datatype != other.datatype:
            raise ValueError("mismatch in inbuf and inoutbuf MPI datatypes")
        other.unpack(self.combines(other)(one.pack(), other.pack()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op):
            return NotImplemented
        return (self.name, self._of_buffers) == (other.name, other._of_buffers)

    def __hash__(self) -> int:
        return hash((self.name, self._of_buffers))

    def __bool__(self) -> bool:
        return self.name != "MPI_OP_NULL"

    def __reduce__(self) -> Any:
        if not self.is_predefined:
            raise ValueError("cannot pickle user-defined reduction operation")
        name = self.name.removeprefix("MPI_")
        return name if self is BY_NAME[name] else (_copied, (name,))


def _copied(name: str) -> Op:
    return Op(BY_NAME[name])


def of_pickles(op: Any) -> Callable[[bytes, bytes], bytes]:
    """Return the function that combines two pickled objects."""

    def combined(left: bytes, right: bytes) -> bytes:
        return pickle.dumps(op(pickle.loads(left), pickle.loads(right)), -1)

    return combined


def _largest(x: Any, y: Any) -> Any:
    return max(x, y) if not x == y else x


def _smallest(x: Any, y: Any) -> Any:
    return min(x, y) if not x == y else x


def _location(is_better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def best(x: Any, y: Any) -> Any:
        (u, i), (v, j) = x, y
        if is_better(u, v):
            return (u, i)
        if is_better(v, u):
            return (v, j)
        return (u, min(i, j))

    return best


def _locations(is_better: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def best(x: Any, y: Any) -> Any:
        if x.dtype.names is None:
            raise TypeError
        takes_y = is_better(y["value"], x["value"]) | ((x["value"] == y["value"]) & (y["index"] < x["index"]))
        return np.where(takes_y, y, x)

    return best


def _logical(function: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(bool(x), bool(y))


#: Operations of the standard, by name.
BY_NAME: dict[str, Op] = {
    "OP_NULL": Op(),
    "MAX": Op._builtin("MPI_MAX", _largest, np.maximum),
    "MIN": Op._builtin("MPI_MIN", _smallest, np.minimum),
    "SUM": Op._builtin("MPI_SUM", operator.add, np.add),
    "PROD": Op._builtin("MPI_PROD", operator.mul, np.multiply),
    "LAND": Op._builtin("MPI_LAND", _logical(operator.and_), np.logical_and),
    "BAND": Op._builtin("MPI_BAND", operator.and_, np.bitwise_and),
    "LOR": Op._builtin("MPI_LOR", _logical(operator.or_), np.logical_or),
    "BOR": Op._builtin("MPI_BOR", operator.or_, np.bitwise_or),
    "LXOR": Op._builtin("MPI_LXOR", _logical(operator.xor), np.logical_xor),
    "BXOR": Op._builtin("MPI_BXOR", operator.xor, np.bitwise_xor),
    "MAXLOC": Op._builtin("MPI_MAXLOC", _location(operator.gt), _locations(np.greater)),
    "MINLOC": Op._builtin("MPI_MINLOC", _location(operator.lt), _locations(np.less)),
    "REPLACE": Op._builtin("MPI_REPLACE", lambda x, y: y, lambda x, y: y, commutes=False),
    "NO_OP": Op._builtin("MPI_NO_OP", lambda x, y: x, lambda x, y: x, commutes=False),
}
# Pickles find the operations in this module.
globals().update(BY_NAME)
