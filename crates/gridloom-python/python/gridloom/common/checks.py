"""Checks of numbers that programs pass."""

from __future__ import annotations

import math
import operator
from typing import Any

from .._gridloom import parse_size
from ..errors import UsageError


def whole(name: str, value: Any, least: int, most: int = 2**32 - 1) -> int:
    """Return a whole number that is checked against two bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} is a whole number from {least} up, got {value!r}") from None
    if number < least:
        raise UsageError(f"{name} is a whole number from {least} up, got {value!r}")
    if number > most:
        raise UsageError(f"{name} is at most {most}, got {value!r}")
    return number


def size(name: str, value: Any) -> int | None:
    """Return a checked size in bytes, from a number of bytes or a text with a unit such as ``"8GiB"``; ``None`` for ``None``."""
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else str(operator.index(value))
        return parse_size(text)
    except TypeError:
        raise UsageError(f"{name}: expected a size such as '8GiB', or a number of bytes; got {value!r}") from None
    except ValueError as wrong:
        raise UsageError(f"{name}: {wrong}") from None


def seconds(name: str, value: Any) -> float | None:
    """Return a checked time limit in seconds; ``None`` for no limit."""
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number >= 0:
        raise UsageError(f"{name} is a number of seconds from 0 up, or None for no limit; got {value!r}")
    return number
