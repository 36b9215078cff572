"""Input files of programs. A worker keeps those of its last call, so that the next call with the same datum does not write it again.

**Invariants.** A kept file has the content of its datum: one that a program has written to is not used again. No two inputs of a call are
one file. No more is kept than the last call had, and nothing on file systems whose file times do not show that a file was written to.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# The modification time of a kept file is set so far back that each write changes it, however coarse the clock of the file system is.
_BACK_NS = 10_000_000_000


@dataclasses.dataclass(frozen=True)
class InMemory:
    """An input in the server's memory: its content, for the time of the call, and the identity of its datum."""

    content: Any
    identity: str


@dataclasses.dataclass
class _Kept:
    path: Path
    # Time of the last change of content and size, as it was written.
    written: tuple[int, int]
    # Time of the last change of anything, since the call that uses it has its link.
    linked_ns: int = 0


class KeptFiles:
    """Files of a worker's last call, in a folder that is removed with the worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _Kept] = {}
        self._number = 0
        # Identities that the call has as files already.
        self._given: set[str] = set()
        # Not known before the first file.
        self._can_keep: bool | None = None

    def begin(self, inputs: Iterable[InMemory]) -> None:
        """Remove what a call with these inputs does not need."""
        self._given.clear()
        needed = {one.identity for one in inputs}
        for identity in [one for one in self._files if one not in needed]:
            self._remove(identity)

    def put(self, value: InMemory, target: Path) -> None:
        """Make the file `target`: a second name of the one that the last call had, or a new one."""
        if self._can_keep is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._can_keep = tells_writing(self._folder)
        if value.identity in self._given or not self._can_keep:
            target.write_bytes(value.content)
            return
        self._given.add(value.identity)
        kept = self._files.get(value.identity)
        if kept is not None and _written(kept.path) != kept.written:
            self._remove(value.identity)
            kept = None
        if kept is None:
            kept = self._write(value)
        try:
            os.link(kept.path, target)
        except OSError:
            # A file system without second names.
            os.rename(kept.path, target)
            del self._files[value.identity]
            return
        kept.linked_ns = kept.path.stat().st_ctime_ns

    def end(self) -> None:
        """Remove what the program has touched. Its links are still there."""
        for identity, kept in list(self._files.items()):
            try:
                is_touched = kept.path.stat().st_ctime_ns != kept.linked_ns
            except OSError:
                is_touched = True
            if is_touched:
                self._remove(identity)

    def _write(self, value: InMemory) -> _Kept:
        self._number += 1
        path = self._folder / str(self._number)
        try:
            path.write_bytes(value.content)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        _set_back(path)
        kept = self._files[value.identity] = _Kept(path, _written(path))
        return kept

    def _remove(self, identity: str) -> None:
        self._files.pop(identity).path.unlink(missing_ok=True)


def tells_writing(folder: Path) -> bool:
    """Whether a file there gets another time of change by writing to it in memory (mmap): that of a tmpfs does not."""
    path = folder / "probe"
    try:
        path.write_bytes(b"a")
        _set_back(path)
        before = _written(path)
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            # A page that was read first is written to in another way.
            content[0] = content[0] + 1
        return _written(path) != before
    except (OSError, ValueError):
        return False
    finally:
        path.unlink(missing_ok=True)


def _set_back(path: Path) -> None:
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns - _BACK_NS))


def _written(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, -1)
    return (found.st_mtime_ns, found.st_size)
