"""Files that are sent with calls of any function: ``gridloom.File``."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import Any

from ..common.file_writing import write


class File(os.PathLike[str]):
    """A file as an argument or a result of any function. Its content is sent, and the receiver gets a file of the same name.

    Parameters
    ----------
    path : str or path
        The file. It is read when the call is made, or when the function returns.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.

    Notes
    -----
    It is used like a path, as in ``open(file)``. A received file is in a temporary folder of its own, which is deleted with the object.
    The content is held in memory: by the program, the server and the function's process.

    Examples
    --------
    >>> def lines(file):
    ...     return sum(1 for _ in open(file))
    >>> grid.run(lines, File("measured.csv")).get()          # doctest: +SKIP
    1000
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        place = os.fspath(self._path.absolute())
        if self._path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "gridloom.File: it is a folder; pass its files", place)
        if not self._path.is_file():
            raise FileNotFoundError(errno.ENOENT, "gridloom.File: there is no such file", place)

    @property
    def path(self) -> Path:
        """The path of the file on this machine."""
        return self._path

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the file to a permanent place.

        Parameters
        ----------
        path : str or path
            A file, which is overwritten, or a folder, in which the copy keeps the name.

        Returns
        -------
        pathlib.Path
            The copy.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        target = Path(path)
        if target.is_dir():
            target /= self._path.name
        with open(self._path, "rb") as source:
            write(target, lambda file: shutil.copyfileobj(source, file))
        shutil.copymode(self._path, target)
        return target

    def __fspath__(self) -> str:
        return os.fspath(self._path)

    def __repr__(self) -> str:
        return f"gridloom.File({os.fspath(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        with open(self._path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            return _arrived, (self._path.name, mode, file.read())


def _arrived(name: str, mode: int, content: bytes) -> File:
    """Write a received file to a temporary folder."""
    if not name or name != os.path.basename(name) or name in (".", ".."):
        raise ValueError(f"{name!r} is not a file name")
    folder = tempfile.mkdtemp(prefix="gridloom-file-")
    try:
        path = Path(folder, name)
        path.write_bytes(content)
        path.chmod(mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    file = File(path)
    weakref.finalize(file, shutil.rmtree, folder, ignore_errors=True)
    return file
