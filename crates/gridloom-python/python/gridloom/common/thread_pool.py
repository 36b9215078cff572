"""Threads for jobs that may take long or wait, so that the thread that receives completions does not.

**Invariants.** A job that fails in any way does not end its thread: its error is logged. No lock is held while a job runs.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable

from .condition import Condition

# How long an idle thread stays, seconds.
_IDLE_SECONDS = 5.0

_LOGGER = logging.getLogger("gridloom")


class InnerThread(threading.Thread):
    """A thread of a session that must not run code of the program which may wait."""


class ThreadPool:
    """Threads that run jobs in the order in which they were added, as many at a time as there are threads.

    Parameters
    ----------
    name : str
        Name of the threads.
    most : int
        Largest number of threads.
    kind : class
        Class of the threads.
    """

    def __init__(self, name: str, most: int, kind: type[threading.Thread] = threading.Thread) -> None:
        self._name, self._most, self._kind = name, most, kind
        self.reset()

    def reset(self) -> None:
        """Drop all threads and jobs, for example in a forked child, which has none of the threads."""
        self._changed = Condition()
        self._jobs: collections.deque[Callable[[], object]] = collections.deque()
        self._threads: set[threading.Thread] = set()
        self._busy: set[threading.Thread] = set()

    def run(self, job: Callable[[], object]) -> None:
        """Run a job as soon as a thread is free."""
        with self._changed:
            idle = len(self._threads) - len(self._busy)
            if idle <= len(self._jobs) and len(self._threads) < self._most:
                self._start()
            has_thread = bool(self._threads)
            if has_thread:
                self._jobs.append(job)
                self._changed.notify()
        if not has_thread:
            attempt(job)

    def _start(self) -> None:
        thread = self._kind(target=self._work, name=self._name, daemon=True)
        self._threads.add(thread)
        try:
            start(thread)
        except RuntimeError:  # the interpreter ends, or the system cannot start more threads
            self._threads.discard(thread)
        except BaseException:  # an interrupt: it may not have begun
            self._threads.discard(thread)
            raise

    def settle(self, seconds: float | None) -> None:
        """Wait until all jobs have ended, for at most `seconds`. A job does not wait for itself."""
        thread = threading.current_thread()
        with self._changed:
            if thread not in self._threads:
                self._changed.wait_for(lambda: not self._jobs and not self._busy, seconds)

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._changed:
                self._busy.discard(thread)
                if not self._jobs:
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._jobs, _IDLE_SECONDS)
                if not self._jobs:
                    self._threads.discard(thread)
                    return
                self._busy.add(thread)
                job = self._jobs.popleft()
            attempt(job)
            # An idle thread holds no object of the program.
            del job


def start(thread: threading.Thread) -> None:
    """Start a thread. An interrupt that arrives while Python waits for its beginning may be hidden by an error of Python's lock."""
    try:
        thread.start()
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def join(thread: threading.Thread) -> None:
    """Wait for the end of a thread, which an interrupt may have kept from beginning."""
    try:
        thread.join()
    except RuntimeError:  # it has not begun
        pass


def attempt(job: Callable[[], object]) -> None:
    """Run a job whose errors must not end the thread: they are logged."""
    try:
        job()
    except BaseException:  # SystemExit, too: the program continues
        _LOGGER.exception("an error in thread %s", threading.current_thread().name)
