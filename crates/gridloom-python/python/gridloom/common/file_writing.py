"""Writes files atomically: a temporary file beside the target is renamed once it is complete."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable
from typing import BinaryIO

from .checks import checked_path

_numbers = itertools.count()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8."""
    write(path, lambda file: file.write(text.encode()))


def write(path: str | os.PathLike[str], fill: Callable[[BinaryIO], object]) -> None:
    """Write a file by that function."""
    # A link stays one: what it leads to is replaced.
    place = os.path.realpath(checked_path("path", path))
    folder = os.path.dirname(place)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", folder)
    # A device or a pipe stays what it is. In a folder where nothing can be made, a file may still be written.
    if os.path.exists(place) and not (os.path.isfile(place) and os.access(folder, os.W_OK)):
        with open(place, "wb") as file:
            fill(file)
        return
    beside = f"{place}.gridloom-{os.getpid()}-{next(_numbers)}"
    try:
        with open(beside, "xb") as file:
            fill(file)
        if os.path.exists(place):
            shutil.copymode(place, beside)
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
