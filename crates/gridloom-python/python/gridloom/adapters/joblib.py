"""The backend by which ``joblib.Parallel`` runs its calls on a grid. Only `register_joblib` and workers import it.

**Invariants.** Whatever happens to a batch, joblib's callback is called once, since joblib waits for it.

Joblib makes batches and dispatches the next ones from that callback. A batch goes as one call of `run_batch`.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from joblib import register_parallel_backend  # type: ignore[import-not-found, import-untyped, unused-ignore]
from joblib.parallel import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    ThreadingBackend,
)

from .._gridloom import processors
from ..calls.waits import quick
from ..calls.worker_slot import SlotRelease
from ..errors import UsageError
from ..pickling.packing import name_of, pack_function, packed_array
from ..run.future import RunFuture
from ..run.runner import Runner
from ..session.grid import Grid
from ..session.opening import connect

# The grid that a process without one of its own is connected to, by process: a forked child has none.
_connected: dict[int, Grid] = {}
_connecting = threading.Lock()


def register() -> None:
    """Register the backend with joblib."""
    register_parallel_backend("gridloom", GridloomBackend)


def run_batch(batch: Callable[[], list[Any]], threads: int | None = None) -> list[Any]:
    """Run a batch on a server. While it runs, numerical libraries use at most `threads` threads."""
    if threads is None:
        return batch()
    names = ParallelBackendBase.MAX_NUM_THREADS_VARS
    before = {name: os.environ.get(name) for name in names}
    # Libraries read the variables when they are loaded; `_limits` covers those already loaded.
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        with _limits(threads):
            return batch()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _limits(threads: int) -> contextlib.AbstractContextManager[Any]:
    """Limits the threads of the libraries that this process has loaded."""
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        warnings.warn(
            f"inner_max_num_threads={threads} does not limit libraries that are already loaded: install threadpoolctl on the server",
            stacklevel=2,
        )
        return contextlib.nullcontext()
    limits: contextlib.AbstractContextManager[Any] = threadpool_limits(threads)
    return limits


class GridloomBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc, unused-ignore]
    """Runs batches of calls on a grid.

    Parameters
    ----------
    grid : Grid, optional
        The grid; by default the one that ``GRIDLOOM_AGENT`` or ``GRIDLOOM_SERVERS`` names.
    nesting_level : int, optional
        How many calls of ``joblib.Parallel`` this one is within.
    inner_max_num_threads : int, optional
        Maximum number of threads of numerical libraries in a call.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(
        self, grid: Grid | None = None, nesting_level: int | None = None, inner_max_num_threads: int | None = None
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._grid = grid
        self._function = pack_function(run_batch)
        self._lock = threading.RLock()
        # Batches on the grid, and those queued back, so that no more than `n_jobs` run at a time.
        self._n_jobs = 0
        self._sent: set[RunFuture[Any]] = set()
        self._queued: collections.deque[tuple[RunFuture[Any], str, Any]] = collections.deque()
        # Within a call: joblib looks from time to time whether they have ended.
        self._wait = SlotRelease()

    def __reduce__(self) -> Any:
        # A server has no session of the program: it is connected by the environment.
        return GridloomBackend, (None, self.nesting_level, self.inner_max_num_threads)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of batches that run at a time."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        runner = self._runner()
        slots = processors() if runner is None else runner.slots
        return max(slots + 1 + n_jobs, 1)

    def configure(
        self, n_jobs: int | None = 1, parallel: Any = None, *, grid: Grid | None = None, **settings: Any
    ) -> int:
        """Prepare for a call of ``joblib.Parallel``."""
        self._grid = grid or self._grid
        if n_jobs is None or n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if self._runner() is None:
            raise FallbackToBackend(ThreadingBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._n_jobs = self.effective_n_jobs(n_jobs)
        return self._n_jobs

    def submit(self, func: Any, callback: Callable[[Any], object] | None = None) -> RunFuture[list[Any]]:
        """Send a batch; the callback is called with its future."""
        future: RunFuture[list[Any]] = RunFuture()
        future.add_done_callback(self._ended)
        if callback is not None:
            future.add_done_callback(callback)
        name = name_of(func.items[0][0])
        try:
            arguments = packed_array(((func, self.inner_max_num_threads), {}), lambda: f"a call of {name}", lambda: _parts(func), self._room)
        except Exception as error:
            # This may be the thread that calls back, where nothing catches it.
            future.set_exception(error)
            return future
        with self._lock:
            # Joblib may be about to end all batches while another thread of it dispatches this one.
            is_aborted = getattr(getattr(callback, "parallel", None), "_aborting", False)
            is_queued = not is_aborted and len(self._sent) >= self._n_jobs
            if is_queued:
                self._queued.append((future, name, arguments))
            elif not is_aborted:
                self._sent.add(future)
                self._wait.set(True)
        if is_aborted:
            future.cancel()
        elif not is_queued:
            self._send(future, name, arguments)
        return future

    # The method's name for joblib before 1.5.
    apply_async = submit

    def retrieve_result_callback(self, out: RunFuture[list[Any]]) -> list[Any]:
        """Return the results of a batch that has ended."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches. Workers that run one are ended."""
        with self._lock:
            queued, sent = list(self._queued), list(self._sent)
            self._queued.clear()
        for future, *_ in queued:
            future.cancel()
        if sent and (runner := self._runner()) is not None:
            runner.abort(sent)

    def terminate(self) -> None:
        """Reset statistics of calls: the next ones may be of another function."""
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Return the backend of nested calls: on the grid if they ask for more than one job; deeper ones are sequential."""
        level = (self.nesting_level or 0) + 1
        return (SequentialBackend(nesting_level=level) if level > 1 else GridloomBackend(None, level, self.inner_max_num_threads)), 1

    def _runner(self) -> Runner | None:
        """The runner of the grid; ``None`` within a call if the worker knows no grid."""
        if self._grid is not None:
            return self._grid._any_function.runner
        if not os.environ.get("GRIDLOOM_AGENT") and not os.environ.get("GRIDLOOM_SERVERS"):
            if self.nesting_level:
                return None
            raise UsageError('the joblib backend "gridloom" has no grid: joblib.parallel_config("gridloom", grid=grid)')
        with _connecting:
            if os.getpid() not in _connected:
                _connected[os.getpid()] = connect()
            return _connected[os.getpid()]._any_function.runner

    def _room(self, size_bytes: int) -> Any:
        runner = self._runner()
        assert runner is not None, "configure has seen to it"
        return runner.room(size_bytes)

    def _send(self, future: RunFuture[list[Any]], name: str, arguments: Any) -> None:
        try:
            runner = self._runner()
            assert runner is not None, "configure has seen to it"
            runner.submit(self._function, name, arguments, future=future)
        except Exception as error:
            future.set_exception(error)

    @quick
    def _ended(self, future: Any) -> None:
        with self._lock:
            self._sent.discard(future)
            self._wait.set(bool(self._sent or self._queued))
            if not self._queued or len(self._sent) >= self._n_jobs:
                return
            after = self._queued.popleft()
            self._sent.add(after[0])
        self._send(*after)


def _parts(batch: Any) -> Iterator[tuple[str, Any]]:
    for function, args, kwargs in batch.items:
        yield f"the function {name_of(function)}", function
        for number, value in enumerate(args, start=1):
            yield f"argument {number}", value
        for key, value in kwargs.items():
            yield f"argument '{key}'", value


# Workers import this module for their first batch, so that the calls in it can use the backend by name.
register()
