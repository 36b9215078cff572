"""Any Python function on servers: the part of a session that runs functions of the program."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..calls.session_state import SessionState
from ..errors import UnknownName
from ..pickling.packing import name_of, pack_call, pack_function
from .future import RunFuture
from .map import MapResults, mapped
from .retry import Retry
from .runner import Runner
from .stream import Stream

_T = TypeVar("_T")

# Minimum number of calls that `AnyFunction.map` submits ahead.
_BUFFERSIZE_MIN = 64


class AnyFunction:
    """Runs any Python function on the servers of a session.

    Parameters
    ----------
    session : SessionState
        The session.
    """

    def __init__(self, session: SessionState) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        """The runner of the session, made at its first use.

        Raises
        ------
        UnknownName
            If no server runs functions that programs send.
        UsageError
            If the session is closed or simulated.
        """
        if self._runner is None:
            with self._lock:
                self._runner = self._runner or Runner(self._session.raw, self._session.completions)
        return self._runner

    def run(
        self,
        function: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retry: Retry | None = None,
        limit: float | None = None,
        priority: int | None = None,
    ) -> RunFuture[_T]:
        """Run a function; `limit` is its time limit in seconds."""
        name = name_of(function)
        future: RunFuture[_T] = RunFuture()
        future._unread, future._name = self._session.completions.unread, name
        runner = self.runner
        arguments = pack_call(name, args, kwargs, runner.room)
        packed = pack_function(function)
        return runner.submit(packed, name, arguments, future=future, retry=retry, limit=limit, priority=priority)

    def map(
        self,
        function: Callable[..., _T],
        iterables: tuple[Iterable[Any], ...],
        *,
        timeout: float | None,
        chunksize: int,
        buffersize: int | None,
        retry: Retry | None,
        priority: int | None,
        progress: bool,
    ) -> MapResults[_T]:
        """Run a function on the items of iterables, like `Grid.map`."""
        runner = self.runner
        if buffersize is None:
            buffersize = max(4 * runner.slots, _BUFFERSIZE_MIN)
        if buffersize < 1:
            raise ValueError(f"buffersize must be >= 1, got {buffersize}")
        return mapped(
            lambda several: (pack_function(function, several), name_of(function)),
            iterables,
            timeout=timeout,
            chunksize=chunksize,
            buffersize=buffersize,
            least=2 * runner.slots,
            room=runner.room,
            submit=functools.partial(runner.submit, retry=retry, priority=priority),
            progress=progress,
        )

    def stream(
        self,
        function: Callable[..., Iterable[_T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        buffersize: int,
        timeout: float | None,
    ) -> Stream[_T]:
        """Run a function with ``yield``, like `Grid.stream`."""
        runner = self.runner
        try:
            return Stream(self._session.raw, self._session.completions, runner.room, function, args, kwargs, buffersize, timeout)
        except UnknownName:
            raise runner.no_server() from None

    def close(self) -> None:
        """Fail all calls that have not ended: the session is about to be closed."""
        if self._runner is not None:
            self._runner.close()

    def reset_after_fork(self) -> None:
        """Drop all calls: in a forked child nothing of it works."""
        if self._runner is not None:
            self._runner.reset_after_fork()
