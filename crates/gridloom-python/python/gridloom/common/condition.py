"""A condition that an interrupt leaves whole.

Python handles interrupts after each call of a function. In `threading.Condition`, one may arrive after the lock was acquired and before
the block of ``with`` has begun: nothing releases it then. Here ``with`` calls the lock itself, which is C: no interrupt arrives in
between. And a wait that is interrupted has the lock again, wherever that happens.
"""

from __future__ import annotations

import contextlib
import operator
import threading


class Condition(threading.Condition):
    """A condition as that of `threading`, with a lock of its own that a waiting thread holds once."""

    __enter__ = property(operator.attrgetter("_lock.__enter__"))
    __exit__ = property(operator.attrgetter("_lock.__exit__"))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification, for at most `timeout` seconds; whether there was one."""
        waiter = threading.Lock()
        waiter.acquire()
        held = (1, threading.get_ident())
        notified = False
        try:
            try:
                self._waiters.append(waiter)  # type: ignore[attr-defined]
                held = self._release_save()  # type: ignore[attr-defined]
                limit = -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
                notified = waiter.acquire(timeout=limit)
            finally:
                self._take_again(held)
        finally:
            # The interrupt may have arrived within the first attempt.
            self._take_again(held)
            if not notified:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)  # type: ignore[attr-defined]
        return notified

    def _take_again(self, held: tuple[int, int]) -> None:
        if not self._is_owned():  # type: ignore[attr-defined]
            self._acquire_restore(held)  # type: ignore[attr-defined]
