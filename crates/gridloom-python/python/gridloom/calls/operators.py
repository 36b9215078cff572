"""Operators of handles and shared values: they get the value, and work on it.

Attributes and methods of the value are not among them: the error for one says how to get the value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt


class ValueOperators:
    """Base class of what has a value by ``get()``.

    Two of them are equal if they are the same object. Anything else is compared with the value.
    """

    def get(self) -> Any:
        """Get the value."""
        raise NotImplementedError

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return NotImplemented if isinstance(other, ValueOperators) else self.get() == other

    def __ne__(self, other: object) -> Any:
        return NotImplemented if isinstance(other, ValueOperators) else self.get() != other

    def __lt__(self, other: Any) -> Any:
        return self.get() < _value(other)

    def __le__(self, other: Any) -> Any:
        return self.get() <= _value(other)

    def __gt__(self, other: Any) -> Any:
        return self.get() > _value(other)

    def __ge__(self, other: Any) -> Any:
        return self.get() >= _value(other)

    def __add__(self, other: Any) -> Any:
        return self.get() + _value(other)

    def __radd__(self, other: Any) -> Any:
        return other + self.get()

    def __sub__(self, other: Any) -> Any:
        return self.get() - _value(other)

    def __rsub__(self, other: Any) -> Any:
        return other - self.get()

    def __mul__(self, other: Any) -> Any:
        return self.get() * _value(other)

    def __rmul__(self, other: Any) -> Any:
        return other * self.get()

    def __truediv__(self, other: Any) -> Any:
        return self.get() / _value(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.get()

    def __floordiv__(self, other: Any) -> Any:
        return self.get() // _value(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.get()

    def __mod__(self, other: Any) -> Any:
        return self.get() % _value(other)

    def __rmod__(self, other: Any) -> Any:
        return other % self.get()

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.get(), _value(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.get())

    def __pow__(self, other: Any) -> Any:
        return self.get() ** _value(other)

    def __rpow__(self, other: Any) -> Any:
        return other ** self.get()

    def __matmul__(self, other: Any) -> Any:
        return self.get() @ _value(other)

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.get()

    def __neg__(self) -> Any:
        return -self.get()

    def __pos__(self) -> Any:
        return +self.get()

    def __abs__(self) -> Any:
        return abs(self.get())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.get(), digits)

    def __floor__(self) -> Any:
        return math.floor(self.get())

    def __ceil__(self) -> Any:
        return math.ceil(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __index__(self) -> int:
        return operator.index(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __format__(self, spec: str) -> str:
        """As ``str`` without a format, as the value with one."""
        return format(self.get(), spec) if spec else str(self)

    def __len__(self) -> int:
        return len(self.get())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __getitem__(self, index: Any) -> Any:
        return self.get()[index]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        value = np.asarray(self.get())
        if dtype is not None and value.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError(f"{value.dtype} cannot become {np.dtype(dtype)} without a copy")
            return value.astype(dtype)
        return value


def _value(other: Any) -> Any:
    return other.get() if isinstance(other, ValueOperators) else other
