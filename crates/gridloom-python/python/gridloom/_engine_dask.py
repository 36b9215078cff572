"""Dask as an engine: ``gridloom.connect("dask://scheduler:8786", functions=[...])`` runs groups on a Dask cluster that stays as it is.

Calls are pinned by ``workers=``, which switches off that Dask moves them, and get priorities in the order of the plan. Large arguments go straight
to their worker (``scatter(direct=True)``), results from worker to worker. A pinned call without effect that reads a result has it sent before
other inputs of its reader exist. When a worker dies, what was not collected runs again with new keys: a pinned call would wait for ever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from ._engine import Measured, ResultLost
from ._engine_parts import PROBE_BYTES, PROBES, by_value, check_versions, operations_per_second, worker_name
from ._errors import ConnectError, ServerLost

# Arguments from so many bytes on are sent straight to their worker, not by the scheduler.
_SCATTERED_BYTES_MIN = 64 << 10
_CONNECT_SECONDS = 10
_GATHER_SECONDS = 5.0
# The release that is known to work.
_TRIED = "2026.8"


class DaskEngine:
    """A Dask cluster, by its scheduler's address (``tcp://host:8786``) or an open ``distributed.Client``."""

    recovers = False

    def __init__(self, scheduler: Any) -> None:
        try:
            import distributed  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise ImportError("gridloom.connect('dask://...') needs Dask's distributed: pip install distributed") from None
        self._is_own = isinstance(scheduler, str)
        if self._is_own:
            try:
                scheduler = distributed.Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call, unused-ignore]
            except OSError as error:
                raise ConnectError(f"no Dask scheduler answers at {scheduler} within {_CONNECT_SECONDS} s: {error}") from None
        self._client: Any = scheduler
        # Begins to record when tasks run.
        self._client.get_task_stream(count=1)
        taken: set[str] = set()
        there = sorted(self._info().items())
        self._address = {worker_name(number, str(one.get("name", "")), taken): address for number, (address, one) in enumerate(there)}
        if not self._address:
            raise ConnectError("the Dask cluster has no workers: start some by 'dask worker'")
        self._check_versions()
        self._scattered: dict[tuple[int, str], tuple[Any, Any]] = {}
        # How long results were waited for, by key, seconds.
        self._gathers: dict[str, float] = {}
        # Calls that send results ahead: of the last group, and of that which is being submitted.
        self._held: list[Any] = []
        self._ahead: list[Any] = []

    def _info(self) -> dict[str, Any]:
        why: Exception | str = "its connection is lost"
        try:
            if (there := self._client.scheduler_info(n_workers=-1).get("workers")) is not None:
                return dict(there)
        except (OSError, asyncio.TimeoutError) as error:
            why = error
        raise self._gone(why)

    def _gone(self, why: Exception | str) -> ServerLost:
        address = self._client.scheduler.address if self._client.scheduler else "its address"
        return ServerLost(f"the Dask scheduler at {address} answers no more: {why}; when it is back, connect anew")

    def _check_versions(self) -> None:
        """Refuse workers of another Python, which cannot read the code of functions, and warn of versions that were not tried."""
        versions = self._client.get_versions()
        places = {"this program": versions["client"], "the Dask scheduler": versions["scheduler"]}
        places |= {f"the Dask worker at {place}": about for place, about in versions["workers"].items()}
        check_versions("distributed", _TRIED, {place: str(about["packages"]["distributed"]) for place, about in places.items()})
        python = {place: ".".join(str(about["host"]["python"]).split(".")[:2]) for place, about in versions["workers"].items()}
        ours = ".".join(str(versions["client"]["host"]["python"]).split(".")[:2])
        if others := {place: one for place, one in python.items() if one != ours}:
            place, one = min(others.items())
            raise ConnectError(
                f"the Dask worker at {place} has Python {one}, and this program {ours}, which it cannot run functions of: run the program "
                f"with Python {one}, or the workers with {ours}"
            )

    def workers(self) -> list[str]:
        """Names of the workers that are there now."""
        there = self._info()
        return [name for name, address in self._address.items() if address in there]

    def probe(self) -> Measured:
        """Measure workers and links."""
        info = self._info()
        names = self.workers()
        slots = {name: info[self._address[name]]["nthreads"] for name in names}
        speed, client, data, latency = {}, {}, np.zeros(PROBE_BYTES, np.uint8), []
        for name in names:
            where = [self._address[name]]
            self._client.submit(int, 0, workers=where, pure=False).result()
            begun = time.perf_counter()
            self._client.submit(int, 0, workers=where, pure=False).result()
            latency.append(time.perf_counter() - begun)
            speed[name] = float(self._client.submit(by_value(operations_per_second), workers=where, pure=False).result())
            begun = time.perf_counter()
            self._client.scatter(data, workers=where, direct=True, hash=False)
            client[name] = PROBE_BYTES / max(time.perf_counter() - begun, 1e-6)
        return Measured(slots, speed, client, self._direct(names, min(latency)), min(latency) / 4)

    def _direct(self, names: list[str], latency: float) -> dict[tuple[str, str], float]:
        """Links between workers, each measured once for each pair of hosts."""
        host = {name: self._address[name].rpartition("//")[2].rpartition(":")[0] for name in names}
        measured: dict[tuple[str, ...], float] = {}
        found = {}
        for one, other in itertools.combinations(sorted(names), 2):
            pair = tuple(sorted((host[one], host[other])))
            if pair not in measured:
                measured[pair] = max(self._between(one, other, latency) for _ in range(PROBES))
            found[one, other] = measured[pair]
        return found

    def _between(self, source: str, target: str, latency: float) -> float:
        """Bytes per second of a new datum from one worker to another."""
        data = self._client.submit(np.zeros, PROBE_BYTES, np.uint8, workers=[self._address[source]], pure=False)
        from distributed import wait  # type: ignore[import-not-found, import-untyped, unused-ignore]

        with self._client.as_current():
            wait(data)  # type: ignore[no-untyped-call, unused-ignore]
        begun = time.perf_counter()
        self._client.submit(len, data, workers=[self._address[target]], pure=False).result()
        return PROBE_BYTES / max(time.perf_counter() - begun - latency, 1e-4)

    def dumps(self, body: Callable[..., Any]) -> bytes:
        """Pickle a function for the workers."""
        return bytes(cloudpickle.dumps(body))

    def submit(self, key: str, body: Callable[..., Any], args: list[Any], worker: str, rank: int) -> Any:
        """Have a call run on that worker."""
        if self._client.status == "closed":
            raise self._gone("the session has ended")
        where = self._address[worker]
        passed = [self._sent(one, where) for one in args]
        return self._client.submit(body, *passed, key=key, workers=[where], allow_other_workers=False, priority=-rank, pure=False)

    def _sent(self, value: Any, where: str) -> Any:
        size = value.nbytes if isinstance(value, np.ndarray) else len(value) if isinstance(value, bytes) else 0
        if size < _SCATTERED_BYTES_MIN:
            return value
        if (id(value), where) not in self._scattered:
            self._scattered[id(value), where] = value, self._client.scatter(value, workers=[where], direct=True, hash=False)
        return self._scattered[id(value), where][1]

    def prefetch(self, key: str, result: Any, worker: str, rank: int) -> None:
        """Have a result sent to a worker as soon as it is made."""
        where = [self._address[worker]]
        self._ahead.append(
            self._client.submit(by_value(_nothing), result, key=f"{key}-{os.urandom(4).hex()}", workers=where, priority=-rank, pure=False)
        )

    def collect(self, result: Any, timeout: float, brings: bool = True) -> Any:
        """Wait for a result and bring it here."""
        from distributed import KilledWorker, wait  # type: ignore[import-not-found, import-untyped, unused-ignore]

        try:
            with self._client.as_current():
                wait(result, timeout=timeout)  # type: ignore[no-untyped-call, unused-ignore]
        except asyncio.TimeoutError:  # before Python 3.11 a class of its own
            raise TimeoutError(f"no result within {timeout} s") from None
        except (concurrent.futures.CancelledError, asyncio.CancelledError) as error:  # the scheduler is gone
            raise ResultLost(str(error)) from error
        try:
            if not brings and result.status == "finished":
                return None
            # A result whose only worker has died would be waited for forever. A large one takes its time: the next try gets twice as long.
            self._gathers[result.key] = 2 * self._gathers.get(result.key, _GATHER_SECONDS / 2)
            return result.result(timeout=self._gathers[result.key])
        except asyncio.TimeoutError:
            raise TimeoutError("the result has not come") from None
        except (concurrent.futures.CancelledError, asyncio.CancelledError, KilledWorker) as error:
            raise ResultLost(str(error)) from error

    def times(self, keys: Iterable[str]) -> dict[str, tuple[float, float, str]]:
        """When calls ran."""
        wanted, names, found = set(keys), {address: name for name, address in self._address.items()}, {}
        for one in self._client.get_task_stream(count=100_000):
            spans = [span for span in one["startstops"] if span["action"] == "compute"]
            if one["key"] in wanted and spans:
                found[one["key"]] = spans[0]["start"], spans[-1]["stop"], names.get(one["worker"], one["worker"])
        return found

    def launched(self) -> None:
        """Forget which arguments were sent, and what was sent ahead for earlier groups."""
        self._scattered.clear()
        self._held, self._ahead = self._ahead, []

    def close(self) -> None:
        """End the connection, unless the client was given."""
        self._scattered.clear()
        self._held.clear()
        if self._is_own:
            self._client.close()


def _nothing(_: Any) -> None:
    """Has its argument brought to a worker."""
