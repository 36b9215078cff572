"""Checks of numbers that programs pass."""

from __future__ import annotations

import math
import operator
from typing import Any

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
