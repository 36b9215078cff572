"""Checks of numbers, texts, paths and environments that programs pass."""

from __future__ import annotations

import math
import operator
import os
import reprlib
from collections.abc import Mapping
from typing import Any

from .._gridloom import parse_size
from ..errors import ArgumentError, UsageError

# Limit of the operating system for one variable: NAME=VALUE and the final NUL.
_VARIABLE_BYTES_MAX = 128 << 10


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


def checked_priority(name: str, value: Any) -> int:
    """Return a priority that is checked to be a whole number of 32 bits."""
    return whole(name, value, -(2**31), 2**31 - 1)


def size(name: str, value: Any) -> int | None:
    """Return a checked size in bytes, from a number of bytes or a text with a unit such as ``"8GiB"``; ``None`` for ``None``."""
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else str(operator.index(value))
        return parse_size(text)
    except TypeError:
        raise UsageError(f"{name}: expected a size such as '8GiB', or a number of bytes; got {value!r}") from None
    except UnicodeEncodeError as wrong:
        raise UsageError(f"{name}: {surrogate(wrong)}") from None
    except ValueError as wrong:
        raise UsageError(f"{name}: {wrong}") from None


def checked_text(name: str, value: Any, error: type[UsageError] = ArgumentError) -> str:
    """Return a value that is checked to be a text without lone surrogates, which cannot be sent."""
    if not isinstance(value, str):
        raise error(f"{name} is a str, got {type(value).__name__} {reprlib.repr(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as wrong:
        raise error(f"{name}: {surrogate(wrong)}") from None
    return value


def checked_path(name: str, value: Any, error: type[UsageError] = UsageError, what: str = "a path") -> str:
    """Return a checked path, or another checked text for the operating system."""
    try:
        given = os.fsdecode(value)
        os.fsencode(given)
    except TypeError:
        raise error(f"{name}: expected {what}, got {type(value).__name__} {reprlib.repr(value)}") from None
    except UnicodeEncodeError as wrong:
        raise error(f"{name}: {surrogate(wrong)}") from None
    if "\0" in given:
        raise error(f"{name}: {reprlib.repr(given)} has a NUL character, which ends it; remove the character")
    return given


def checked_environment(name: str, variables: Any, error: type[UsageError] = UsageError) -> dict[str, str]:
    """Return checked environment variables; ``None`` stands for no variables."""
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise error(f"{name}: expected a dict such as {{'NAME': 'value'}}, got {type(variables).__name__} {reprlib.repr(variables)}")
    checked = {}
    for key, value in variables.items():
        value = checked_path(f"{name}: the value of {key!r:.80}", value, error, "a path or a text")
        key = checked_path(f"{name}: a name", key, error, "a path or a text")
        if not key or "=" in key:
            raise error(f"{name}: {key!r:.80} cannot be the name of a variable; use at least one character, and no '='")
        size_bytes = len(os.fsencode(f"{key}={value}")) + 1
        if size_bytes > _VARIABLE_BYTES_MAX:
            raise error(
                f"{name}: the variable {key!r:.80} has {size_bytes} bytes with its name, and the limit of the operating system is "
                f"{_VARIABLE_BYTES_MAX}; write the value to a file"
            )
        checked[key] = value
    return checked


def surrogate(error: UnicodeEncodeError) -> str:
    """Describe the lone surrogate in a text, and the remedy."""
    return (
        f"{reprlib.repr(error.object)} has the surrogate {error.object[error.start]!r} at position {error.start}, which is half of a character; "
        "remove it, or decode the original bytes with their actual encoding"
    )


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
