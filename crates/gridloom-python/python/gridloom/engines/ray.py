"""Ray as an engine: ``gridloom.connect("ray://head:10001", functions=[...])`` runs groups on a Ray cluster that stays as it is.

Workers are Ray's nodes that have processors. A call has a soft affinity to its node: a hard one would end in an error when the node dies. So Ray
runs the calls of a lost node again on another one, and each call reports where it ran. An actor without a processor on each node
measures, and prefetches results before other inputs of their reader exist.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..common.reported_wait import reported_wait
from ..errors import ConnectError, ServerLost, UsageError
from .cluster_model import PROBE_BYTES, check_versions, links_between, operations_per_second, worker_name
from .protocol import CONNECT_SECONDS, CallCrashed, Measured, NotYet, ResultLost
from .worker_functions import by_value

# Arguments of at least this size are put into Ray's store, once for all calls of a group.
_PUT_BYTES_MIN = 64 << 10
_GET_SECONDS = 5.0
# How long one step of the measurement of a node may take: it may have left.
_PROBE_SECONDS = 60.0
# How often Ray runs a call again whose process died.
_RETRIES = 3
# Sessions that are asked for where Ray starts none.
_TRIES = 3
# The release that is known to work.
_TRIED = "2.60"


class _Made:
    """Ray's references for a call: its result, and when and where it ran."""

    def __init__(self, value: Any, ran: Any) -> None:
        self.value, self.ran = value, ran
        self.get_seconds = _GET_SECONDS


class RayEngine:
    """A Ray cluster, by its address for clients (``ray://host:10001``), or by the session of Ray that this process has."""

    recovers = True
    start_hint = "a Ray node with processors is started by 'ray start --address=HEAD'"

    def __init__(self, session: Any, limit: float = CONNECT_SECONDS) -> None:
        self._ray = _imported("ray")
        self._exceptions = _imported("ray.exceptions")
        self._affinity = _imported("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        self._check_version()
        self._is_own = isinstance(session, str)
        self._is_lost = False
        self._helper: dict[str, Any] = {}
        if self._is_own:
            self._open(session, limit)
        elif not self._ray.is_initialized():
            raise UsageError("Ray has no session in this process: begin one by ray.init(...), or name the cluster: gridloom.connect('ray://...')")
        # Nodes by the names of workers, also those that have left, and names by node.
        self._node: dict[str, str] = {}
        self._name: dict[str, str] = {}
        self._taken: set[str] = set()
        # Held while workers are looked up and named.
        self._naming = threading.Lock()
        self._requested: Any = None
        self._remote: dict[Callable[..., Any], Any] = {}
        # Remote functions with their options, by function and worker.
        self._functions: dict[tuple[Callable[..., Any], str], Any] = {}
        # Arguments in Ray's store, with what holds their addresses.
        self._put: dict[int, tuple[Any, Any]] = {}
        self._made: weakref.WeakValueDictionary[str, _Made] = weakref.WeakValueDictionary()

    def _check_version(self) -> None:
        """Check the version here; the cluster has the same, as Ray refuses others."""
        check_versions("Ray", _TRIED, {"this program": str(self._ray.__version__)})

    def _open(self, address: str, limit: float) -> None:
        if self._ray.is_initialized():
            raise UsageError("this process has a session of Ray, and can have one: hand it over by gridloom.connect(ray), or end it by ray.shutdown()")
        with reported_wait(f"the Ray cluster at {address}", limit):
            self._await_server(address, limit)
        try:
            for left in reversed(range(_TRIES)):
                try:
                    self._ray.init(address, log_to_driver=False)
                    break
                except ConnectionAbortedError:
                    # Ray's proxy looks up the command of a process that it has just started, which may have ended.
                    if not left:
                        raise
        except ImportError as error:
            raise ImportError(f"gridloom.connect('ray://...') needs Ray's client: pip install 'ray[client]' ({error})") from None
        except Exception as error:  # Ray has no class for what can go wrong here
            raise ConnectError(f"no session with the Ray cluster at {address}: {error}") from error

    def _await_server(self, address: str, limit: float) -> None:
        """Wait until a server answers. Ray itself tries three times, for fixed times."""
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        try:
            grpc: Any = importlib.import_module("grpc")
        except ImportError:  # Ray names what is missing
            return
        channel = grpc.insecure_channel(address.removeprefix("ray://"))
        try:
            grpc.channel_ready_future(channel).result(timeout=limit)
        except grpc.FutureTimeoutError:
            raise ConnectError(
                f"no session with the Ray cluster at {address}: no Ray client server answers there within {limit:g} s; check the address "
                "(port 10001 unless 'ray start' got --ray-client-server-port), or wait longer: gridloom.connect(..., timeout=SECONDS)"
            ) from None
        finally:
            channel.close()

    def _there(self) -> dict[str, Any]:
        with self._translated_errors():
            return {one["NodeID"]: one for one in self._ray.nodes() if one["Alive"] and one["Resources"].get("CPU", 0) >= 1}

    def _helper_on(self, node: str) -> Any:
        options = {"num_cpus": 0, "scheduling_strategy": self._affinity(node, soft=False)}
        return self._ray.remote(**options)(_helper()).remote()

    def workers(self) -> list[str]:
        """Names of the workers that are there now."""
        return self._names(self._there())

    def _names(self, there: dict[str, Any]) -> list[str]:
        with self._naming:
            for node, about in sorted(there.items()):
                if node not in self._name:
                    name = worker_name(len(self._node), str(about["NodeName"]), self._taken)
                    with self._translated_errors():
                        self._helper[name] = self._helper_on(node)
                    self._name[node], self._node[name] = name, node
            if there:
                self._requested = None
            return [name for name, node in self._node.items() if node in there]

    def request_worker(self) -> None:
        """Submit a task that any node can run."""
        with self._translated_errors():
            if self._requested is not None and not self._ray.wait([self._requested], timeout=0, fetch_local=False)[0]:
                return
            self._requested = self._ray.remote(num_cpus=1)(_nothing).remote()

    def probe(self, known: Measured | None = None) -> Measured:
        """Measure workers and links."""
        about, get = self._there(), functools.partial(self._ray.get, timeout=_PROBE_SECONDS)
        names = self._names(about)
        joined = {name: self._helper[name] for name in names if known is None or name not in known.slots}
        try:
            return self._measured(about, names, joined, known, get)
        except NotYet as error:
            raise ResultLost(f"a node left while it was measured: {error}") from error

    def _measured(self, about: dict[str, Any], names: list[str], joined: dict[str, Any], known: Measured | None, get: Callable[[Any], Any]) -> Measured:
        with self._translated_errors():
            # The first call waits for the process.
            get([one.nothing.remote() for one in joined.values()])
            slots = {name: int(about[self._node[name]]["Resources"]["CPU"]) for name in names}
            speed, client, latency = {}, {}, []
            for name, helper in joined.items():
                begun = time.perf_counter()
                get(helper.nothing.remote())
                latency.append(time.perf_counter() - begun)
                speed[name] = float(get(helper.call.remote(by_value(operations_per_second))))
                begun = time.perf_counter()
                data = self._ray.put(np.zeros(PROBE_BYTES, np.uint8))
                put = time.perf_counter() - begun
                client[name] = PROBE_BYTES / (put + max(get(helper.fetched.remote([data])), 1e-6))
            if known is not None:
                speed |= {name: known.speed[name] for name in names if name in known.speed}
                client |= {name: known.client_bytes_per_s[name] for name in names if name in known.client_bytes_per_s}
            hosts = {name: str(about[self._node[name]]["NodeManagerAddress"]) for name in names}
            links = links_between(hosts, known, self._between)
            return Measured(slots, speed, client, links, min(latency, default=0.0) / 2 if known is None else known.latency_seconds)

    def _between(self, source: str, target: str) -> float:
        """Bytes per second of a new datum from one worker to another."""
        data = self._helper[source].zeros.remote(PROBE_BYTES)
        self._ray.wait([data], fetch_local=False)
        return PROBE_BYTES / max(float(self._ray.get(self._helper[target].fetched.remote([data]))), 1e-4)

    def dumps(self, body: Callable[..., Any]) -> bytes:
        """Pickle a function for the workers."""
        return bytes(self._ray.cloudpickle.dumps(body))

    def submit(self, key: str, body: Callable[..., Any], args: list[Any], worker: str, rank: int, deaths: int) -> Any:
        """Have a call run on that worker."""
        if body not in self._remote:
            self._remote[body] = self._ray.remote(num_cpus=1, num_returns=2, max_retries=_RETRIES)(_timed(body))
        if (body, worker) not in self._functions:
            strategy = self._affinity(self._node[worker], soft=True)
            self._functions[body, worker] = self._remote[body].options(name=body.__name__, scheduling_strategy=strategy)
        with self._translated_errors():
            passed = [self._sent(one) for one in args]
            made = _Made(*self._functions[body, worker].remote(*passed))
        self._made[key] = made
        return made

    def _sent(self, value: Any) -> Any:
        if isinstance(value, _Made):
            return value.value
        size = value.nbytes if isinstance(value, np.ndarray) else len(value) if isinstance(value, (bytes, str)) else 0
        if size < _PUT_BYTES_MIN:
            return value
        if id(value) not in self._put:
            self._put[id(value)] = value, self._ray.put(value)
        return self._put[id(value)][1]

    def prefetch(self, key: str, result: Any, worker: str, rank: int) -> None:
        """Have a result sent to a worker as soon as it is made."""
        with self._translated_errors():
            self._helper[worker].fetched.remote([result.value])

    def wait(self, results: list[Any], timeout: float) -> int | None:
        """Wait for the end of calls."""
        with self._translated_errors():
            refs = [one.value for one in results]
            ready, others = self._ray.wait(refs, num_returns=len(refs), timeout=timeout, fetch_local=False)
        there = set(ready)
        ended = [one for one in results if one.value in there]
        if not self._have_run(ended):
            return next((place for place, one in enumerate(results) if one.value in there and not self._have_run([one])), None)
        if others:
            raise NotYet(f"no results within {timeout} s")
        return None

    def _have_run(self, results: list[Any]) -> bool:
        """Whether calls that have ended reported where they ran: failed ones did not."""
        try:
            with self._translated_errors():
                self._ray.get([one.ran for one in results], timeout=_GET_SECONDS)
        except (NotYet, ServerLost):
            raise
        except Exception:  # of a function
            return False
        return True

    def collect(self, result: Any, timeout: float) -> Any:
        """Wait for a result and bring it here."""
        with self._translated_errors():
            if not self._ray.wait([result.value], timeout=timeout, fetch_local=False)[0]:
                raise NotYet(f"no result within {timeout} s")
            # A large result takes time, and a lost one is computed again: the next try may take twice as long.
            result.get_seconds *= 2
            return self._ray.get(result.value, timeout=result.get_seconds / 2)

    def collect_ended(self, results: list[Any]) -> dict[int, Any]:
        """Fetch the results of calls that have ended well, together."""
        with self._translated_errors():
            refs = [one.value for one in results]
            ready = set(self._ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)[0])
            places = [place for place, one in enumerate(refs) if one in ready]
            if not places or not self._have_run([results[place] for place in places]):
                return {}
            return dict(zip(places, self._ray.get([refs[place] for place in places], timeout=_GET_SECONDS)))

    def has_ended(self, result: Any) -> bool:
        """Whether a call has ended."""
        with self._translated_errors():
            return bool(self._ray.wait([result.value], timeout=0, fetch_local=False)[0])

    def has_died(self, result: Any) -> bool:
        """Never called: Ray runs lost calls again by itself."""
        return False

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise Ray's errors as those of an engine, and errors of functions as they are."""
        known = self._exceptions
        lost = (known.NodeDiedError, known.ObjectLostError, known.RayActorError)
        # Ray would begin another session by itself, and look for a cluster that is gone.
        if self._is_lost or not self._ray.is_initialized():
            raise ServerLost("the session of Ray has ended: connect anew, when the cluster is there")
        try:
            yield
        except known.GetTimeoutError as error:
            raise NotYet(f"the result is not there: {error}") from None
        except known.RayTaskError as error:
            cause = error
            while isinstance(cause, known.RayTaskError):
                cause = cause.cause
            if isinstance(cause, lost):
                raise ResultLost(str(cause)) from error
            if isinstance(cause, known.WorkerCrashedError):
                raise CallCrashed(str(cause)) from error
            raise cause from error
        except known.WorkerCrashedError as error:
            raise CallCrashed(str(error)) from error
        except lost as error:
            raise ResultLost(str(error)) from error
        except (ConnectionError, known.RaySystemError, known.LocalRayletDiedError, known.RpcError) as error:
            self._is_lost = True
            raise ServerLost(f"the Ray cluster answers no more: {error}; when it is back, connect anew") from error

    def times(self, keys: Iterable[str]) -> dict[str, tuple[float, float, str]]:
        """When calls ran."""
        names = self._name
        made = {key: self._made[key].ran for key in keys}
        with self._translated_errors():
            found = zip(made, self._ray.get(list(made.values())))
            return {key: (begun, end, names.get(node, node)) for key, (begun, end, node) in found}

    def launch(self) -> None:
        """Forget which arguments were put into the store: calls have been sent, and hold what they read."""
        self._put.clear()

    def discard(self) -> None:
        """Forget which arguments were put into the store: some may be lost."""
        self._put.clear()

    def close(self) -> None:
        """End the session, unless it was given."""
        # If the cluster is gone, nothing is left to end.
        with contextlib.suppress(ServerLost, ResultLost), self._translated_errors():
            for helper in self._helper.values():
                self._ray.kill(helper)
        if self._is_own:
            self._ray.shutdown()


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"gridloom.connect('ray://...') needs Ray: pip install 'ray[client]' ({error})") from None


def _nothing() -> None:
    pass


def _timed(body: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which also returns when and where it ran."""

    def timed(*args: Any) -> Any:
        import time

        import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

        begun = time.time()
        made = body(*args)
        return made, (begun, time.time(), ray.get_runtime_context().get_node_id())

    return timed


def _helper() -> type:
    """The actor on each node: a class in a function, which is pickled with its code."""

    class Helper:
        async def nothing(self) -> None:
            pass

        async def call(self, function: Callable[[], Any]) -> Any:
            return function()

        async def zeros(self, count: int) -> Any:
            import numpy as np

            return np.zeros(count, np.uint8)

        async def fetched(self, refs: list[Any]) -> float:
            """Seconds until a datum is here."""
            import time

            begun = time.perf_counter()
            try:
                await refs[0]
            except Exception:
                # The reader of the datum raises the error.
                pass
            return time.perf_counter() - begun

    return Helper
