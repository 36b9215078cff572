"""The base of all futures: how their callbacks are called.

**Invariants.** Callbacks of the program are called one after another, in a thread of the session that does nothing else. So one of them
may wait for another call. An error of a callback, whatever it is, keeps none from being called.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..common.condition import Condition
from ..common.session_objects import OfSession
from ..common.thread_pool import InnerThread, ThreadPool
from .worker_slot import waiters

_T = TypeVar("_T")
_C = TypeVar("_C", bound=Callable[..., object])

_LOGGER = logging.getLogger("concurrent.futures")


def quick(callback: _C) -> _C:
    """Mark a callback of Gridloom's own, which never waits: it is called at once."""
    setattr(callback, "_is_quick", True)
    return callback


class CallbackFuture(OfSession, concurrent.futures.Future[_T]):
    """A future of the standard library whose callbacks never block the thread that receives completions."""

    _callback_pool: ThreadPool | None = None

    def _prepare(self) -> None:
        """Make the attributes that the standard library reads under the condition, such that an interrupt leaves them consistent."""
        self._condition = Condition()
        self._waiters = waiters()

    def _invoke_callbacks(self) -> None:
        callbacks: list[Callable[..., Any]] = getattr(self, "_done_callbacks")
        if not callbacks:
            return
        self._call([callback for callback in callbacks if getattr(callback, "_is_quick", False)])
        later = [callback for callback in callbacks if not getattr(callback, "_is_quick", False)]
        if not later:
            return
        if self._callback_pool is not None and isinstance(threading.current_thread(), InnerThread):
            self._callback_pool.run(lambda: self._call(later))
        else:
            self._call(later)

    def _call(self, callbacks: list[Callable[..., Any]]) -> None:
        raised: BaseException | None = None
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _LOGGER.exception("exception calling callback for %r", self)
            except BaseException as error:  # an interrupt of the program's own thread comes through, once all are called
                raised = raised or error
        if raised is not None:
            raise raised
