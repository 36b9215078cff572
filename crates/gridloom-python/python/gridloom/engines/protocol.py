"""The interface between groups and an engine, a system that runs functions on its workers. Each engine is one file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol

#: Default time limit for the first answer of a grid or a cluster.
CONNECT_SECONDS = 15.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """A cluster as it was measured."""

    # By worker: number of calls that it runs at a time, and the speed of one in operations per second.
    slots: dict[str, int]
    speed: dict[str, float]
    # Bytes per second from the client to each worker, and between any two workers, in the order of their names.
    client_bytes_per_s: dict[str, float]
    direct_bytes_per_s: dict[tuple[str, str], float]
    latency_seconds: float


class NotYet(Exception):
    """A result is not there yet."""


class ResultLost(Exception):
    """A result, or data that its call reads, was lost with a worker."""


class CallCrashed(Exception):
    """The process that ran the call ended each time, and the engine tries no more."""


class Engine(Protocol):
    """A system that runs functions on given workers."""

    recovers: bool
    """Whether calls and results that are lost with a worker are made again by the engine itself, on another one."""

    start_hint: str
    """How users of the system start a worker, for messages."""

    def workers(self) -> list[str]:
        """Names of the connected workers. A worker that joins gets a new name, even if it replaces a lost one."""

    def request_worker(self) -> None:
        """Submit a task that needs a worker, unless one is pending: a cluster that starts workers on demand has none while it is idle."""

    def probe(self, known: Measured | None = None) -> Measured:
        """Measure the workers that are there now and their links, but for what is `known`. `ResultLost` if one leaves meanwhile."""

    def dumps(self, body: Callable[..., Any]) -> bytes:
        """Pickle a function for the workers."""

    def submit(self, key: str, body: Callable[..., Any], args: list[Any], worker: str, rank: int, deaths: int) -> Any:
        """Submit a call to a worker, calls of lower rank first; returns a reference to its result for the `args` of others.

        `deaths` is the number of workers that died while the call was running or may have been running. After the second, the call runs alone in
        its process, so that it is the cause of another death.

        The call is sent by `launch` at the latest: many calls share one message. `ResultLost` if the worker cannot be reached. Only one thread
        at a time calls `submit`, `launch` and `discard`; another one may call `probe` meanwhile.
        """

    def prefetch(self, key: str, result: Any, worker: str, rank: int) -> None:
        """Have a result sent to a worker as soon as it is made."""

    def launch(self) -> None:
        """Send the submitted calls, and forget which arguments were sent: all calls of a group have been submitted."""

    def discard(self) -> None:
        """Forget calls that were not sent, and data on workers for calls: submission has failed, or a worker was lost."""

    def wait(self, results: list[Any], timeout: float) -> int | None:
        """Wait for the end of launched calls: none, or the place of one that failed while others are still running.

        `NotYet` after `timeout` seconds, or `ResultLost`.
        """

    def collect(self, result: Any, timeout: float) -> Any:
        """Wait for a result and fetch it: `NotYet` after `timeout` seconds, `ResultLost`, or the function's own exception."""

    def collect_ended(self, results: list[Any]) -> dict[int, Any]:
        """Fetch the results, by place, of those calls that have ended well, together."""

    def has_ended(self, result: Any) -> bool:
        """Whether a call has ended, with or without an error. `ResultLost` if the engine does not know, or the result is lost."""

    def has_died(self, result: Any) -> bool:
        """Whether the worker of a call died while the call may have been running; false after a requested shutdown. For engines that do not recover."""

    def times(self, keys: Iterable[str]) -> dict[str, tuple[float, float, str]]:
        """When calls ran, seconds of the workers' clocks, and on which worker."""

    def close(self) -> None:
        """End the connection; the cluster keeps running."""
