"""The base of handles and shared values: the type of a value on servers, and operators that get the value."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _gridloom
from ..common.session_objects import OfSession
from .operators import ValueOperators


class RemoteValue(OfSession, ValueOperators):
    """Base class of `Handle` and `SharedValue`."""

    # Arguments of calls of any function have the value in its place.
    _stands_for_value = True

    _raw: _gridloom.RawHandle

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of an array, known before it is made; ``()`` of a number."""
        shape = self._raw.shape
        if shape is None:
            raise AttributeError(f"a {self._raw.kind} has no shape")
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type, known before it is made."""
        type_string = self._raw.type_string
        if type_string is None:
            raise AttributeError(f"a {self._raw.kind} has no dtype")
        return np.dtype(type_string)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)
