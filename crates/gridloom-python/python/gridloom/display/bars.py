"""Progress bars, as those of tqdm: in one line of a terminal, and in a notebook. Elsewhere nothing is drawn.

**Invariants.** Lines of `print_above` and the bars of a terminal do not run into each other. A bar that was drawn ends with
its last state, on a line of its own.
"""

from __future__ import annotations

import html
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from ..common.encodable import encodable
from . import notebook as _notebook

# Shortest time between two drawings of a bar, seconds.
_PAUSE_SECONDS = 0.1
_WIDTH = 20

_lock = threading.RLock()
# Bars of the terminal that are drawn now.
_drawn: list[Bar] = []
_line_length = 0


def are_shown() -> bool:
    """Whether bars can be drawn here."""
    return _notebook.is_here() or sys.stderr.isatty()


class Bar:
    """One bar. It appears when it is first moved.

    Parameters
    ----------
    label : str
        Text before the bar.
    unit : str
        Unit of the count; ``"B"`` for bytes.
    total : float or None
        How much there is, if that is known.
    """

    def __init__(self, label: str, unit: str = "", total: float | None = None) -> None:
        self._label, self._unit, self._total = label, unit, total
        self._done = 0.0
        self._note = ""
        self._began = time.monotonic()
        self._at = -_PAUSE_SECONDS
        self._display: _notebook.Display | None = None
        self._closed = False

    def advance(self, count: float) -> None:
        """Add to the count."""
        with _lock:
            self.move(self._done + count, self._total, self._note)

    def move(self, done: float, total: float | None, note: str = "", label: str | None = None) -> None:
        """Set the count, and the total if it is known."""
        with _lock:
            self._done, self._total, self._note = done, total, note
            self._label = label or self._label
            now = time.monotonic()
            is_whole = total is not None and done >= total
            if not self._closed and (is_whole or now - self._at >= _PAUSE_SECONDS):
                self._at = now
                self._draw()

    def close(self) -> None:
        """Leave it as it is."""
        with _lock:
            if self._closed:
                return
            self._closed = True
            if self._display is not None:
                self._display.show(*self._shown())
            elif self in _drawn:
                _erase()
                _drawn.remove(self)
                print(self.text(), file=sys.stderr, flush=True)
                _redraw()

    def _draw(self) -> None:
        if _notebook.is_here():
            self._display = self._display or _notebook.Display()
            self._display.show(*self._shown())
        elif sys.stderr.isatty():
            if self not in _drawn:
                _drawn.append(self)
            _erase()
            _redraw()

    def _shown(self) -> tuple[str, str]:
        text = self.text()
        bar = "" if not self._total else f'<progress value="{self._done:g}" max="{self._total:g}"></progress> '
        return text, f'<div style="font-family:monospace;white-space:pre">{bar}{html.escape(text)}</div>'

    def text(self, width: int = _WIDTH) -> str:
        """``label:  40%|########            | 34/84 [00:03<00:05, 11.2/s]``; the bar itself only if it has a width."""
        seconds = time.monotonic() - self._began
        rate = self._done / seconds if seconds > 0 else 0.0
        done, space = self._number(self._done), " " if self._unit and self._unit != "B" else ""
        speed = f"{self._number(rate, 3)}{space}{self._unit}/s"
        note = f", {self._note}" if self._note else ""
        if not self._total:
            return f"{self._label}: {done}{space}{self._unit} [{_clock(seconds)}, {speed}{note}]"
        part = min(self._done / self._total, 1.0)
        filled = int(part * width)
        left = _clock((self._total - self._done) / rate) if rate > 0 else "?"
        drawn = f"|{'#' * filled}{' ' * (width - filled)}|" if width else ""
        count = f"{done}/{self._number(self._total)}"
        return f"{self._label}: {100 * part:3.0f}%{drawn} {count} [{_clock(seconds)}<{left}, {speed}{note}]"

    def _number(self, value: float, digits: int = 4) -> str:
        if self._unit != "B":
            return f"{value:.{max(digits, len(str(int(value))))}g}"
        for prefix in ("", "k", "M", "G", "T"):
            if value < 1000 or prefix == "T":
                break
            value /= 1000
        return f"{value:.3g}{prefix}"


def print_above(text: str, stream: TextIO, end: str = "\n") -> None:
    """Print lines where no bar is, and the bars again below."""
    with _lock:
        _erase()
        print(encodable(text, getattr(stream, "encoding", None)), file=stream, flush=True, end=end)
        _redraw()


class Watch:
    """A thread that looks again and again how far something is.

    Parameters
    ----------
    look : function
        Moves bars, and returns whether all is over.
    close : function
        Closes them.
    """

    def __init__(self, look: Callable[[], bool], close: Callable[[], None]) -> None:
        self._look, self._close = look, close
        self._turn = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="gridloom-progress", daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            with self._turn:
                if not self._ended.is_set() and self._look():
                    self._end()

    def end(self) -> None:
        """Look a last time."""
        with self._turn:
            if not self._ended.is_set():
                self._look()
                self._end()

    def _end(self) -> None:
        self._ended.set()
        self._close()


def _erase() -> None:
    global _line_length
    if _line_length:
        print("\r" + " " * _line_length + "\r", end="", file=sys.stderr, flush=True)
        _line_length = 0


def _redraw() -> None:
    global _line_length
    if not _drawn:
        return
    columns = shutil.get_terminal_size().columns - 1
    line = "  ".join(bar.text() for bar in _drawn)
    if len(line) > columns:
        # A line that is longer would be broken, and could not be written over.
        line = "  ".join(bar.text(0) for bar in _drawn)[:columns]
    print("\r" + line, end="", file=sys.stderr, flush=True)
    _line_length = len(line)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(min(seconds, 359_999)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _forked() -> None:
    """A forked child has no bars of its parent."""
    global _lock, _line_length
    _lock = threading.RLock()
    _drawn.clear()
    _line_length = 0


os.register_at_fork(after_in_child=_forked)
