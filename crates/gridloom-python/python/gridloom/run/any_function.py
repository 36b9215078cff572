"""Any Python function on servers: what a `Grid` does with functions that programs send."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _gridloom, _progress
from ._checks import seconds
from ._errors import UnknownFunctionError
from ._map import MapResults, mapped
from ._options import Options
from ._packing import name_of, pack_call, pack_function
from ._retry import retry_of
from ._run_future import RunFuture
from ._runner import Runner
from ._stream import Stream

if TYPE_CHECKING:
    from ._ends import Ends
    from ._retry import Retry, RetryOn


_T = TypeVar("_T")

# Calls that `AnyFunction.map` submits ahead.
_LEAD_MIN = 64


class AnyFunction:
    """What a `Grid` does with any Python function."""

    _raw: _gridloom.RawGrid
    _ends: Ends
    _progress: bool
    _runner: Runner | None
    _making: threading.Lock

    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> RunFuture[_T]:
        """Have any Python function run on a server, without waiting.

        The function goes by module and name if its module can be imported; a function of the program itself, a lambda and a closure
        go with all that they use. A grid of `local` takes it; another one has to say so by ``gridloom serve --run-code``.

        Parameters
        ----------
        function : function
            Any function, or another object that can be called.
        *args, **kwargs : object
            Its arguments: whatever can be pickled. They are pickled now, and may change afterwards. In the place of a handle goes its
            value, which is waited for.

        Returns
        -------
        RunFuture
            The call under way: a future as of ``concurrent.futures``. The call runs again elsewhere if its server is lost.

        Raises
        ------
        ArgumentError
            If the function or an argument cannot be pickled.
        UnknownFunctionError
            If no server runs functions that programs send.
        TaskError
            If a handle has no value.
        UsageError
            If the session is closed or simulated.

        Notes
        -----
        It is not recorded in the block of a group. Servers that run such functions run whatever code the program sends; and the
        program unpickles what they give, so that it trusts them as they trust it.
        """
        return self._run(function, args, kwargs, None, None)

    def options(self, *, retries: int = 0, retry_on: RetryOn | None = None, timeout: float | None = None) -> Options:
        """Say on what terms functions run: ``grid.options(retries=3).run(f, x)``.

        Parameters
        ----------
        retries : int, optional
            How often a call that has failed runs again at most: on another server, if there is one.
        retry_on : exception class or tuple of them, optional
            After which errors: what the function raises, and `Crashed`. By default after all of these.
        timeout : float, optional
            Time limit of the call, seconds, from when it is sent to a server: for all its runs together. A call that takes longer is
            ended, with its worker process, and raises `DeadlineExceeded`.

        Returns
        -------
        Options
            Its `run` takes a function and arguments, as that of the grid.

        Raises
        ------
        UsageError
            If `retries`, `retry_on` or `timeout` cannot be meant.
        """
        return Options(self, retry_of("options", retries, retry_on), seconds("options: timeout", timeout))

    def _run(
        self,
        function: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retry: Retry | None,
        limit: float | None,
    ) -> RunFuture[_T]:
        name = name_of(function)
        future: RunFuture[_T] = RunFuture()
        future._unread, future._name = self._ends.unread, name
        runner = self._any()
        arguments = pack_call(name, args, kwargs, runner.room)
        return runner.submit(pack_function(function), name, arguments, future=future, retry=retry, limit=limit)

    def map(
        self,
        function: Callable[..., _T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        lead: int | None = None,
        retries: int = 0,
        retry_on: RetryOn | None = None,
        progress: bool | None = None,
    ) -> MapResults[_T]:
        """Run any Python function on each item of an iterable, or on the items of several side by side.

        Parameters
        ----------
        function : function
            Any function, as `run` takes it.
        *iterables : iterable
            Its arguments, one of each iterable for a call. They may be endless.
        timeout : float, optional
            Seconds from now in which the results have to be there. After that, the calls are ended, also those under way.
        chunksize : int, optional
            Calls that are sent together; more than 1 pays for calls of less than a millisecond.
        lead : int, optional
            Calls, or chunks, of which the result was not taken yet, that are submitted: at least 1, by default four for each slot of the
            servers, and no fewer than 64. Beyond 256 MiB of arguments and results, no more than two for each slot.
        retries : int, optional
            How often a call, or a chunk, that has failed runs again at most: on another server, if there is one.
        retry_on : exception class or tuple of them, optional
            After which errors: what the function raises, and `Crashed`. By default after all of these.
        progress : bool, optional
            Whether a terminal or notebook shows how many calls have ended; by default as the session was opened.

        Returns
        -------
        MapResults
            The results in order: an iterator, also for ``async for``. When it is closed, or an error ends it, calls that were
            not sent are cancelled.

        Raises
        ------
        ArgumentError
            If the function cannot be pickled; by the iterator, an argument.
        Exception
            By the iterator: what the function raised.
        TimeoutError
            By the iterator: a result was not there in time.
        UnknownFunctionError
            If no server runs functions that programs send.
        ValueError
            If `chunksize` or `lead` is less than 1.
        """
        runner = self._any()
        if lead is None:
            lead = max(4 * runner.slots, _LEAD_MIN)
        if lead < 1:
            raise ValueError(f"lead must be >= 1, got {lead}")
        return mapped(
            lambda: (pack_function(function), name_of(function)),
            iterables,
            timeout=timeout,
            chunksize=chunksize,
            lead=lead,
            least=2 * runner.slots,
            room=runner.room,
            submit=functools.partial(runner.submit, retry=retry_of("map", retries, retry_on)),
            progress=self._shows(progress),
        )

    def _shows(self, progress: bool | None) -> bool:
        return not self._raw.simulated and (self._progress if progress is None else _progress.wanted(progress))

    def stream(
        self, function: Callable[..., Iterable[_T]], /, *args: Any, lead: int = 16, timeout: float | None = None, **kwargs: Any
    ) -> Stream[_T]:
        """Have a function with ``yield`` run on a server, and take its values as they come.

        Parameters
        ----------
        function : function
            A generator function, or one that returns an iterable, as `run` takes it.
        *args, **kwargs : object
            Its arguments, pickled now.
        lead : int, optional
            So many values at most are made before they are taken.
        timeout : float, optional
            How long to wait for each value, seconds.

        Returns
        -------
        Stream
            The values in order: an iterator, also for ``async for``. The function ends with `close`, also in a ``with`` block, and
            when nothing holds the stream any more.

        Raises
        ------
        ArgumentError
            If the function or an argument cannot be pickled.
        UnknownFunctionError
            If no server runs functions that programs send.
        UsageError
            If the session is closed or simulated.
        ValueError
            If `lead` is less than 1.
        Exception
            By the iterator: what the function raised; `ServerLost` and `Crashed`, as a stream does not begin again;
            `WaitTimedOut`, after which the next value can be waited for again.

        Notes
        -----
        It has a process of its own on the server with the fewest of them, which takes a slot while it makes a value.
        """
        runner = self._any()
        try:
            return Stream(self._raw, self._ends, runner.room, function, args, kwargs, lead, timeout)
        except UnknownFunctionError:
            raise runner.no_server() from None

    def _any(self) -> Runner:
        """What sends calls of any function."""
        if self._runner is None:
            with self._making:
                self._runner = self._runner or Runner(self._raw, self._ends)
        return self._runner
