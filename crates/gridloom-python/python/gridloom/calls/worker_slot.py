"""Waits of a function that makes calls: it gives up its slot meanwhile, as what it waits for may need it.

Waits for calls with types say so in Rust. Those of futures of `Grid.run` and of the standard library say so here.
"""

from __future__ import annotations

import contextlib
from typing import Any

from . import _gridloom

# Only a worker runs calls.
_is_worker = False


def begin_worker() -> None:
    """This process runs calls."""
    global _is_worker
    _is_worker = True


def waiting() -> contextlib.AbstractContextManager[Any]:
    """For a ``with`` block in which the call that runs here, if one does, waits."""
    return _Waiting() if _is_worker else contextlib.nullcontext()


def waiters() -> list[Any]:
    """A list for the waits of the standard library that wait for a future."""
    return _Waiters() if _is_worker else []


class Wait:
    """Whether the call that runs here waits, as far as this knows. Two threads may not set it at a time."""

    _raw: _gridloom.RawWaiting | None = None

    def set(self, waits: bool) -> None:
        """It does from now on, or does no more."""
        if waits and self._raw is None and _is_worker:
            self._raw = _gridloom.begin_wait()
        elif not waits and self._raw is not None:
            self._raw.end()
            self._raw = None


class _Waiting(Wait):
    def __enter__(self) -> None:
        self.set(True)

    def __exit__(self, *_: object) -> None:
        self.set(False)


class _Waiters(list[Any]):
    """While something is in it, the call that runs here waits."""

    def __init__(self) -> None:
        super().__init__()
        self._wait = Wait()

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        self._wait.set(True)

    def remove(self, waiter: Any) -> None:
        super().remove(waiter)
        self._wait.set(bool(self))
