"""Pickling of the session's objects: most refuse to be pickled, plans and graphs are pickled as their files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

_T = TypeVar("_T")


class CannotPickle(TypeError):
    """An object of the session was pickled, by itself or as a part of another one.

    Attributes
    ----------
    why, remedy : str
        Why it cannot be pickled, and what to pass instead.
    """

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}, so it cannot be pickled: {remedy}")
        self.why = why
        self.remedy = remedy

    def __reduce__(self) -> tuple[Callable[[str], TypeError], tuple[str]]:
        return TypeError, (str(self),)


class OfSession:
    """An object of a session of this process. It is not pickled, and a copy of it is itself."""

    _why: str
    _remedy: str

    def __reduce__(self) -> NoReturn:
        raise CannotPickle(self._why, self._remedy)

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: dict[int, Any]) -> _T:
        return self


def from_text(load: Callable[[str], _T], text: str) -> _T:
    """Read an object from the text of its file."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return load(file.name)
