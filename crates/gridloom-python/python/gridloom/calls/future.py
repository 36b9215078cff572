"""Futures of all calls, and how their callbacks are called.

**Invariants.** Callbacks of the program are called one after another, in a thread of the session that does nothing else. So one of them
may wait for another call. An error of a callback, whatever it is, keeps none from being called.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ..common.condition import Condition
from ..common.session_objects import OfSession
from ..common.thread_pool import InnerThread, ThreadPool
from .waits import awaited
from .worker_slot import waiters

_T = TypeVar("_T")

_LOGGER = logging.getLogger("concurrent.futures")


class Future(OfSession, concurrent.futures.Future[_T]):
    """A running call, or a running put, get or wait of a shared name: a future as of ``concurrent.futures``, which can be awaited too.

    `Function.submit`, `Grid.run`, executors, and methods such as `Grid.begin_put` return one. Cancelling an ``await`` ends the call.
    """

    _why = "a gridloom.Future is a call of this process"
    _remedy = "wait for the result, and pass its .get()"

    _callback_pool: ThreadPool | None = None

    def get(self, timeout: float | None = None) -> _T:
        """Wait for the result, as `result`.

        Parameters
        ----------
        timeout : float, optional
            How long to wait at most, seconds. The call keeps running after that, and a later `get` works.

        Returns
        -------
        object
            The result: of a declared function as its signature says (numpy.ndarray, number, str, bytes, tuple of them, or None); of any
            function what it returned. The same objects every time.

        Raises
        ------
        TaskError
            If the call failed.
        Exception
            For any function: what the function raised; its cause has the traceback on the server.
        Cancelled
            If the call was cancelled.
        TimedOut
            If the call has not ended after `timeout` seconds, or exceeded its own time limit: `TimedOut.operation` says which.
        UsageError
            If `timeout` is no time: negative or no number.
        """
        return self.result(timeout)

    def abort(self) -> None:
        """End the call also where it runs, by ending its worker process; a call that has ended keeps its result.

        Raises
        ------
        UsageError
            If the session is closed.
        """
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, _T]:
        return awaited(self).__await__()

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
            except BaseException as error:  # an interrupt of the program's own thread is raised once all are called
                raised = raised or error
        if raised is not None:
            raise raised
