"""Output of calls while they run: lines that their functions print, and their progress."""

from __future__ import annotations

import dataclasses
import io
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Literal, TextIO, TypeAlias

from .. import _gridloom
from ..common.encodable import encodable
from ..errors import UsageError
from .bars import Bar, print_above

PLAIN: Final = "plain"
"""Value of ``logs`` that prints output without a label (function and server) before each line."""
NO_LOG_VARIABLE = "GRIDLOOM_NO_CALL_LOG"
"""Set in workers of servers whose log a program shows: those of `gridloom.local`."""


@dataclasses.dataclass(frozen=True)
class Output:
    """Output of a call: text that its function printed, or its progress.

    Attributes
    ----------
    server : str
        The server on which it runs.
    function : str
        Its function: ``module/function``, or ``module:function`` of one that the program sent.
    call : int
        Number of the call in the session.
    text : str or None
        Printed text: whole lines with their ends, or the begin of one. ``None`` for progress.
    is_error : bool
        Whether the text was printed to standard error, as warnings and lines of `logging` are.
    done, total : float or None
        Progress, as reported by `gridloom.progress`.
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
        """Source of the output, for people: ``"function@server"``."""
        return f"{self.function.rpartition('/')[2].rpartition(':')[2].rpartition('<locals>.')[2]}@{self.server}"


Logs: TypeAlias = bool | Literal["plain"] | Callable[[Output], None]
"""Values of ``logs``."""


def progress(done: float, total: float | None = None) -> None:
    """Report the progress of the running call to the program. Outside a call on a server nothing happens.

    Parameters
    ----------
    done : float
        Amount that is done, in any unit: rounds, rows, bytes.
    total : float, optional
        Amount in all, if it is known.

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


def listener(logs: Logs) -> Callable[[Output], None] | None:
    """The receiver of a session's output: one that prints it, or the function that the user gave."""
    if logs is not True and logs is not False and logs != PLAIN and not callable(logs):
        raise UsageError(f"logs is {logs!r}; expected True, False, {PLAIN!r} or a function of a gridloom.Output")
    return logs if callable(logs) else Shown(has_labels=logs != PLAIN) if logs else None


def _receiver(on_output: Callable[[Output], None]) -> Callable[..., None]:
    def receive(
        server: str, function: str, call: int, is_error: bool, text: str | None, done: float | None, total: float | None
    ) -> None:
        on_output(Output(server, function, call, text, is_error, done, total))

    return receive


def listen(raw: _gridloom.RawGrid, on_output: Callable[[Output], None]) -> None:
    """Call a function for each output of the session's calls."""
    raw.listen(_receiver(on_output))


class Shown:
    """Prints output with or without labels, and a progress bar on a terminal or in a notebook."""

    def __init__(self, has_labels: bool = True) -> None:
        self._has_labels = has_labels
        self._lock = threading.Lock()
        self._progress: dict[int, tuple[float, float]] = {}
        self._bar: Bar | None = None

    def __call__(self, output: Output) -> None:
        with self._lock:
            if output.text is not None:
                self._print(output.label, output.is_error, output.text)
            elif output.done is not None and output.total:
                self._progress[output.call] = (min(output.done, output.total), output.total)
                self._move(output.label)

    def _print(self, label: str, is_error: bool, text: str) -> None:
        stream = sys.stderr if is_error else sys.stdout
        if not self._has_labels:
            print_above(text, stream, end="")
            return
        lines = [f"[{label}] {line}" for line in text.replace("\r\n", "\n").splitlines() if line]
        if lines:
            print_above("\n".join(lines), stream)

    def _move(self, label: str) -> None:
        self._bar = self._bar or Bar(label)
        if len(self._progress) == 1:
            ((done, total),) = self._progress.values()
            self._bar.move(done, total)
        else:
            calls = len(self._progress)
            self._bar.move(sum(done / total for done, total in self._progress.values()), calls, label=f"{calls} calls")
        if all(done >= total for done, total in self._progress.values()):
            self._bar.close()
            self._bar = None
            self._progress.clear()


class ToProgram(io.TextIOBase):
    """Standard output or standard error of a worker: text is sent to the program of the running call, or written to the server's log."""

    def __init__(self, log: TextIO, is_error: bool) -> None:
        self._log, self._is_error = log, is_error

    def write(self, text: str) -> int:
        """Write a text: to the program if it takes it."""
        if not isinstance(text, str):
            return self._log.write(text)
        text, length = encodable(text, None), len(text)
        if text and not _gridloom.print_to_program(self._is_error, text):
            self._log.write(text)
        return length

    def writable(self) -> bool:
        """Whether it can be written to: yes."""
        return True

    def flush(self) -> None:
        """Flush the log; the program gets lines as they end."""
        self._log.flush()

    def fileno(self) -> int:
        """File descriptor of the log."""
        return self._log.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal: no."""
        return False

    def __getattr__(self, name: str) -> Any:
        # Attributes of some streams only, such as `reconfigure`.
        return getattr(self._log, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the log."""
        return self._log.encoding

    @property
    def buffer(self) -> Any:
        """The log, for bytes."""
        return self._log.buffer
