"""What calls say while they run: lines that their functions print, and how far they have come."""

from __future__ import annotations

import dataclasses
import io
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from . import _gridloom
from ._bars import Bar, print_above
from ._errors import UsageError

NO_LOG_VARIABLE = "GRIDLOOM_NO_LOG_OF_CALLS"
"""Set in workers of servers whose log a program shows: those of `gridloom.local`."""


@dataclasses.dataclass(frozen=True)
class Said:
    """Something that a call says while it runs.

    Attributes
    ----------
    server : str
        The server on which it runs.
    function : str
        Its function: ``module/function``, or ``module:function`` of one that the program sent.
    call : int
        Tells it from other calls of the session.
    text : str or None
        What it prints: whole lines with their ends, or the begin of one. ``None`` of a progress.
    is_error : bool
        Whether that goes to standard error: warnings and the lines of `logging` do.
    done, total : float or None
        How far it has come, as it told `gridloom.progress`.
    """

    server: str
    function: str
    call: int
    text: str | None = None
    is_error: bool = False
    done: float | None = None
    total: float | None = None

    @property
    def label(self) -> str:
        """Where it comes from, for people: ``"function@server"``."""
        return f"{self.function.rpartition('/')[2].rpartition(':')[2].rpartition('<locals>.')[2]}@{self.server}"


def progress(done: float, total: float | None = None) -> None:
    """Tell the program how far the running call has come. Outside a call of a server nothing happens.

    Parameters
    ----------
    done : float
        So much is done, in a unit of your own: rounds, rows, bytes.
    total : float, optional
        Of so much in all, if that is known.

    Raises
    ------
    UsageError
        If one is no number, or negative.

    Examples
    --------
    >>> for row in range(3):
    ...     progress(row + 1, 3)
    """
    for name, value in (("done", done), ("total", total)):
        try:
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"progress: {name} is {value!r}; expected 0 or more")
        except TypeError:
            raise UsageError(f"progress: {name} is {value!r}; expected a number") from None
    _gridloom.tell_progress(float(done), None if total is None else float(total))


def listener(logs: bool | Callable[[Said], None]) -> Callable[[Said], None] | None:
    """Give what hears the calls of a session: what shows them, or the function that the user gave."""
    if logs is not True and logs is not False and not callable(logs):
        raise UsageError(f"logs is {logs!r}; expected True, False or a function of a gridloom.Said")
    return logs if callable(logs) else Shown() if logs else None


def listen(raw: _gridloom.RawGrid, hear: Callable[[Said], None]) -> None:
    """Have it called for what calls of a session say."""
    raw.listen(lambda *said: hear(Said(said[0], said[1], said[2], said[4], said[3], said[5], said[6])))


class Shown:
    """Prints lines with their labels, and a bar of what has come how far where a terminal or notebook shows it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._come: dict[int, tuple[float, float]] = {}
        self._bar: Bar | None = None

    def __call__(self, said: Said) -> None:
        with self._lock:
            if said.text is not None:
                self._print(said.label, said.is_error, said.text)
            elif said.done is not None and said.total:
                self._come[said.call] = (min(said.done, said.total), said.total)
                self._move(said.label)

    def _print(self, label: str, is_error: bool, text: str) -> None:
        lines = [f"[{label}] {line}" for line in text.replace("\r\n", "\n").splitlines() if line]
        if lines:
            print_above("\n".join(lines), sys.stderr if is_error else sys.stdout)

    def _move(self, label: str) -> None:
        self._bar = self._bar or Bar(label)
        if len(self._come) == 1:
            ((done, total),) = self._come.values()
            self._bar.move(done, total)
        else:
            calls = len(self._come)
            self._bar.move(sum(done / total for done, total in self._come.values()), calls, label=f"{calls} calls")
        if all(done >= total for done, total in self._come.values()):
            self._bar.close()
            self._bar = None
            self._come.clear()


class ToProgram(io.TextIOBase):
    """Standard output or standard error of a worker: what is written goes to the program of the running call, or to the server's log."""

    def __init__(self, log: TextIO, is_error: bool) -> None:
        self._log, self._is_error = log, is_error

    def write(self, text: str) -> int:
        """Write a text: to the program if it takes it."""
        if not isinstance(text, str):
            return self._log.write(text)
        if text and not _gridloom.print_to_program(self._is_error, text):
            self._log.write(text)
        return len(text)

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def flush(self) -> None:
        """Flush what went to the log; the program gets lines as they end."""
        self._log.flush()

    def fileno(self) -> int:
        """Give the descriptor: what is written to that goes to the log."""
        return self._log.fileno()

    def isatty(self) -> bool:
        """Say that it is no terminal."""
        return False

    def __getattr__(self, name: str) -> Any:
        # What only some streams have, such as `reconfigure`.
        return getattr(self._log, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As that of the log."""
        return self._log.encoding

    @property
    def buffer(self) -> Any:
        """The log, for bytes."""
        return self._log.buffer
