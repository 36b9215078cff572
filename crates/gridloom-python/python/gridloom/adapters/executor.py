"""``gridloom.Executor``: an executor as of ``concurrent.futures``."""

from __future__ import annotations

import concurrent.futures
import operator
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .._gridloom import processors
from ..calls.future import Future
from ..calls.waits import quick
from ..display.output import PLAIN
from ..errors import ArgumentError, Crashed, RemoteError, UsageError
from ..pickling.packing import is_raised, name_of, pack_call, pack_function, pack_setup
from ..pickling.raised import RemoteTraceback
from ..run.call import Call
from ..run.future import RunFuture
from ..run.map import MapResults, mapped
from ..run.prefetch import PrefetchWindow
from ..run.retry import RetryOn, retry_of
from ..session.grid import Grid
from ..session.opening import local

_T = TypeVar("_T")


class Executor(concurrent.futures.Executor):
    """Runs functions of the program on the servers of a grid: an executor as of ``concurrent.futures``.

    Parameters
    ----------
    max_workers : int, optional
        Number of servers that the executor starts on this machine, by default one for each processor that the program may use. The output of
        functions is then printed without labels.
    grid : Grid, optional
        An open grid to use instead. It stays open after `shutdown`.
    initializer : function, optional
        Function that each worker process calls once, before its first call of this executor. If it raises an exception or ends its process, the
        executor is broken: all unfinished calls, and all calls that are submitted later, raise ``BrokenProcessPool``. The worker logs an exception
        with its traceback, by the logger ``concurrent.futures``.
    initargs : tuple, optional
        Arguments of `initializer`.
    retries : int, optional
        How often a call that has failed runs again at most: on another server, if there is one.
    retry_on : exception class or tuple of them, optional
        After which errors: what the function raises, and `Crashed`. By default after all of these.

    Raises
    ------
    UnknownName
        If no server of the grid runs functions that programs send.
    UsageError
        If `max_workers` and `grid` are given, the grid is simulated or closed, or `retries` or `retry_on` cannot be meant.
    ValueError
        If `max_workers` is less than 1.

    Notes
    -----
    Ctrl-C within its ``with`` block ends its calls, also those that run, as does one that ends the program. What differs from
    ``ProcessPoolExecutor``: arguments are pickled by `submit`, and may change afterwards. ``sys.exit`` in a function,
    and the end of its process, fail its call alone, which raises `Crashed`.

    Examples
    --------
    >>> from concurrent.futures import as_completed
    >>> with Executor() as executor:                          # doctest: +SKIP
    ...     futures = [executor.submit(pow, 2, n) for n in range(3)]
    ...     sorted(future.result() for future in as_completed(futures))
    [1, 2, 4]
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        grid: Grid | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        retries: int = 0,
        retry_on: RetryOn | None = None,
    ) -> None:
        if max_workers is not None:
            max_workers = operator.index(max_workers)
            if max_workers < 1:
                raise ValueError(f"max_workers must be greater than 0, got {max_workers}")
        if grid is not None and not isinstance(grid, Grid):
            raise UsageError(f"Executor: grid is a gridloom.Grid, got {grid!r}; max_workers says how many servers of its own it has")
        if grid is not None and max_workers is not None:
            raise UsageError("Executor: max_workers is for a grid of its own; the servers of the given grid have their slots")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable, got {initializer!r}")
        self._retry = retry_of("Executor", retries, retry_on)
        self._setup = b"" if initializer is None else pack_setup(initializer, initargs)
        self._own = None if grid is not None else local(max_workers or processors(), logs=PLAIN)
        self._grid = grid or self._own
        assert self._grid is not None, "one of both"
        self._runner = self._grid._any_function.runner
        self._lock = threading.Lock()
        self._futures: set[RunFuture[Any]] = set()
        self._broken: BaseException | None = None
        self._shut_down = False
        self._grid._executors.add(self)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run a function on a server.

        Parameters
        ----------
        fn : function
            Any function.
        *args, **kwargs : object
            Its arguments: whatever can be pickled.

        Returns
        -------
        Future
            The call. An argument that cannot be pickled is text by it, as an `ArgumentError`.

        Raises
        ------
        RuntimeError
            After `shutdown`; ``BrokenProcessPool``, a kind of it, if the initializer failed.
        """
        self._check()
        name = name_of(fn)
        try:
            return self._submit(pack_function(fn), name, pack_call(name, args, kwargs, self._runner.room))
        except ArgumentError as error:
            failed: RunFuture[_T] = RunFuture()
            failed.set_exception(error)
            return failed

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> MapResults[_T]:
        """Run a function on each item of an iterable, or on the items of several side by side.

        Parameters
        ----------
        fn : function
            Any function.
        *iterables : iterable
            Its arguments, one of each iterable for a call.
        timeout : float, optional
            Seconds from now in which the results have to be there.
        chunksize : int, optional
            Calls that are sent together.
        buffersize : int, optional
            Number of submitted calls whose results were not taken; by default all are submitted now.

        Returns
        -------
        MapResults
            The results in order: an iterator, also for ``async for``.

        Raises
        ------
        TimeoutError
            By the iterator: a result was not there in time.
        Exception
            By the iterator: what the function raised.
        RuntimeError
            After `shutdown`.
        ValueError
            If `chunksize` or `buffersize` is less than 1.
        """
        self._check()
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize must be >= 1, got {buffersize}")
        return mapped(
            lambda several: (pack_function(fn, several), name_of(fn)),
            iterables,
            timeout=timeout,
            chunksize=chunksize,
            buffersize=buffersize,
            submit=self._submit,
            room=self._runner.room,
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and end the executor's own grid when all have ended.

        Parameters
        ----------
        wait : bool, optional
            Whether to wait for the end of all calls. Ctrl-C ends this wait, and with it the calls, also those that run.
        cancel_futures : bool, optional
            Whether to cancel the calls that were not sent to a server.
        """
        with self._lock:
            first, self._shut_down = not self._shut_down, True
            futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            self._drain()
        elif first and self._own is not None:
            threading.Thread(target=self._drain, name="gridloom-shutdown", daemon=True).start()

    def _drain(self) -> None:
        with self._lock:
            futures = list(self._futures)
        try:
            concurrent.futures.wait(futures)
        except KeyboardInterrupt:
            self._runner.abort(futures)
            concurrent.futures.wait(futures)
            raise
        finally:
            if self._own is not None:
                self._own.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Shut it down. Calls that have not ended are awaited, but for an interrupt: then they are ended."""
        self._end(aborts=kind is not None and issubclass(kind, KeyboardInterrupt))

    def _end(self, *, aborts: bool) -> None:
        """Shut it down, and wait for the calls, or end them first."""
        if aborts:
            with self._lock:
                self._shut_down = True
                futures = list(self._futures)
            self._runner.abort(futures)
        self.shutdown(wait=True)

    def _check(self) -> None:
        if self._broken is not None:
            raise type(self._broken)(str(self._broken))
        if self._shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _submit(self, function: bytes, name: str, arguments: Any, window: PrefetchWindow | None = None) -> RunFuture[Any]:
        future: RunFuture[Any] = RunFuture()
        future.add_done_callback(self._ended)
        try:
            with self._lock:
                self._check()
                self._futures.add(future)
            return self._runner.submit(
                function, name, arguments, self._setup, self._failed, future, self._retry, window=window
            )
        except BaseException:
            self._ended(future)
            raise

    @quick
    def _ended(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._futures.discard(future)

    def _failed(self, call: Call, error: BaseException) -> BaseException | None:
        """Look whether the initializer failed."""
        if isinstance(error, Crashed) and not is_raised(error) and self._setup:
            self._ask(call.future, error)
            return None
        return (None if isinstance(error, Crashed) else self._broken_by(error)) or error

    def _ask(self, future: RunFuture[Any], error: Crashed) -> None:
        """Fail a call whose process has ended. An empty call shows whether the initializer ends processes."""

        @quick
        def tell(asked: concurrent.futures.Future[Any]) -> None:
            future.set_exception(self._broken_by(asked.exception()) or error)

        name = name_of(bool)
        try:
            asked = self._runner.submit(pack_function(bool), name, pack_call(name, (), {}, self._runner.room), self._setup, only=error.server)
            asked.add_done_callback(tell)
        except UsageError:  # the grid was closed
            future.set_exception(error)

    def _broken_by(self, error: BaseException | None) -> BaseException | None:
        """The error of the executor, and of its waiting calls, if the initializer failed with `error`; ``None`` if it did not fail."""
        if error is None or is_raised(error):
            return None
        if isinstance(error, Crashed):
            text, why = f"the initializer ended its process on server '{error.server}': {error.how}", None
        elif isinstance(error, RemoteError) and error.kind == "CannotSetUp":
            text, why = f"the initializer failed on server '{error.server}': {error.message}", RemoteTraceback(error.traceback)
        else:
            return None
        from concurrent.futures.process import BrokenProcessPool  # slow to import

        broken = BrokenProcessPool(text)
        broken.__cause__ = why
        with self._lock:
            self._broken = self._broken or broken
            futures = list(self._futures)
        self._runner.fail(futures, broken)
        return broken


def register_joblib() -> None:
    """Register grids with joblib: then ``joblib.parallel_config("gridloom", grid=grid)`` lets ``joblib.Parallel`` run calls on one.

    Raises
    ------
    ImportError
        If joblib is not installed.

    Notes
    -----
    Servers need joblib, too, and have to run functions that programs send, as for `Grid.run`. ``n_jobs`` is by default the
    number of calls that the servers run at a time.

    Examples
    --------
    >>> import joblib                                         # doctest: +SKIP
    >>> register_joblib()                                     # doctest: +SKIP
    >>> with local(servers=2) as grid, joblib.parallel_config("gridloom", grid=grid):    # doctest: +SKIP
    ...     joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(3))
    [0, 1, 4]
    """
    from . import joblib as _joblib

    _joblib.register()
