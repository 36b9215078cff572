"""A function that waits for calls of its own gives up its slot meanwhile, as those calls may need it.

Waits for calls of declared functions do so in Rust; waits for futures of `Grid.run` and of the standard library do so here.
"""

from __future__ import annotations

import contextlib
from typing import Any

from .. import _gridloom

# Only workers run calls.
_is_worker = False


def mark_worker() -> None:
    """Mark this process as a worker."""
    global _is_worker
    _is_worker = True


def waiting() -> contextlib.AbstractContextManager[Any]:
    """Context in which the call that runs in this process, if one does, gives up its slot."""
    return _Waiting() if _is_worker else contextlib.nullcontext()


def waiters() -> list[Any]:
    """List of the standard library's waiters for a future."""
    return _Waiters() if _is_worker else []


class SlotRelease:
    """Whether the call that runs in this process waits. Two threads must not set it at the same time."""

    _raw: _gridloom.RawWaiting | None = None

    def set(self, waits: bool) -> None:
        """Give up the slot, or take it again."""
        if waits and self._raw is None and _is_worker:
            self._raw = _gridloom.begin_wait()
        elif not waits and self._raw is not None:
            self._raw.end()
            self._raw = None


class _Waiting(SlotRelease):
    def __enter__(self) -> None:
        self.set(True)

    def __exit__(self, *_: object) -> None:
        self.set(False)


class _Waiters(list[Any]):
    """While the list has an item, the call that runs in this process waits."""

    def __init__(self) -> None:
        super().__init__()
        self._wait = SlotRelease()

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        self._wait.set(True)

    def remove(self, waiter: Any) -> None:
        super().remove(waiter)
        self._wait.set(bool(self))
