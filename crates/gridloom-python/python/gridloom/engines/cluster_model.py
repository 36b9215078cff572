"""Models of clusters: measured hosts and links as a platform, names and versions of workers, and probes."""

from __future__ import annotations

import itertools
import re
import time
import warnings
from collections.abc import Callable, Mapping

import numpy as np

from ..errors import ConnectWarning, ServerLost
from .protocol import Engine, Measured

# Time for which a cluster may be without workers, seconds. It counts only between checks that are at most `_APART_SECONDS` apart.
_JOIN_SECONDS = 120.0
_JOIN_PAUSE_SECONDS = 0.2
_APART_SECONDS = 10.0
# The caller of `connect`, seen from `check_versions`.
_PROGRAM = 6
#: Size of a probe of a link, and how often each link is probed: the best probe counts.
PROBE_BYTES = 4 << 20
PROBES = 2


def operations_per_second() -> float:
    """The speed of a processor, by products of matrices."""
    import time

    a = np.ones((256, 256))
    best = 0.0
    for _ in range(5):
        begun = time.perf_counter()
        a @ a
        best = max(best, 2 * 256**3 / max(time.perf_counter() - begun, 1e-9))
    return best


def platform(measured: Measured) -> str:
    """The cluster in TOML: a card for each host, as wide as its widest link, and a link for each pair."""
    names = ["client", *sorted(measured.slots)]
    links = {("client", name): wide for name, wide in measured.client_bytes_per_s.items()} | measured.direct_bytes_per_s
    lines = []
    for name in names:
        role = "client,agent" if name == "client" else "server"
        wide = max(wide for pair, wide in links.items() if name in pair)
        slots, speed = measured.slots.get(name, 1), measured.speed.get(name, 1e9)
        properties = f'{{ role = "{role}", slots = {slots}, memory = "1EiB" }}'
        lines.append(f'[[host]]\nname = "{name}"\nspeed = {speed}\ncores = {slots}\nproperties = {properties}')
        latency = measured.latency_seconds / 2
        lines.append(f'[[link]]\nname = "card-{name}"\nbandwidth = {wide}\nlatency = {latency}\nsharing = "splitduplex"')
    for one, other in itertools.combinations(names, 2):
        lines.append(f'[[link]]\nname = "{one}-{other}"\nbandwidth = {links[one, other]}\nsharing = "splitduplex"')
        lines.append(f'[[route]]\nfrom = "{one}"\nto = "{other}"\nlinks = ["card-{one}:up", "{one}-{other}:up", "card-{other}:down"]')
    return "\n".join(lines) + "\n"


def check_versions(engine: str, tried: str, found: Mapping[str, str], level: int = _PROGRAM) -> None:
    """Warn of an engine whose release was not tried, or is not the same everywhere.

    Parameters
    ----------
    engine : str
        Its name, for messages.
    tried : str
        The release that is known to work.
    found : mapping of str to str
        The version at each place; first that of the program.
    level : int, optional
        Place of the program among the callers.
    """
    here, ours = next(iter(found.items()))
    if others := {place: version for place, version in found.items() if version != ours}:
        place, version = next(iter(others.items()))
        more = f" (as at {len(others) - 1} more places)" if len(others) > 1 else ""
        why = f"{place} has {engine} {version}{more}, and {here} {ours}: calls may fail; install one version everywhere"
        warnings.warn(why, ConnectWarning, stacklevel=level)
    untried = [(place, version) for place, version in found.items() if _release(version) != _release(tried)]
    for place, version in untried[:1]:
        why = f"{place} has {engine} {version}, and this version of Gridloom was tried with {tried}: if calls fail, install that one"
        warnings.warn(why, ConnectWarning, stacklevel=level)


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


class Workers:
    """Looks for the workers of a cluster, which may start them on demand.

    Parameters
    ----------
    engine : Engine
        The cluster.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # The time since which the cluster has had no workers, and the time of the last check that found none.
        self._none_since: float | None = None
        self._none_at = 0.0

    def names(self, why: str) -> list[str]:
        """Names of the workers; if there is none, one is requested, and a warning gives the reason and says that the program waits.

        Raises
        ------
        ServerLost
            If there has been none for two minutes.
        """
        if there := self._engine.workers():
            self._none_since = None
            return there
        now = time.monotonic()
        if self._none_since is None or now - self._none_at > _APART_SECONDS:
            self._none_since = now
            text = f"{why}: waiting up to {_JOIN_SECONDS:g} s for one; {self._engine.start_hint}"
            warnings.warn(text, ConnectWarning, stacklevel=_PROGRAM)
        elif now - self._none_since > _JOIN_SECONDS:
            raise ServerLost(f"{why}, and has had none for {_JOIN_SECONDS:g} s; {self._engine.start_hint}")
        self._none_at = now
        self._engine.request_worker()
        return there

    def wait(self, why: str) -> list[str]:
        """Wait for the first one."""
        while not (there := self.names(why)):
            time.sleep(_JOIN_PAUSE_SECONDS)
        return there


def links_between(hosts: Mapping[str, str], known: Measured | None, measure: Callable[[str, str], float]) -> dict[tuple[str, str], float]:
    """Bytes per second between any two workers, in the order of their names: each pair of hosts is measured once.

    Parameters
    ----------
    hosts : mapping of str to str
        The host of each worker.
    known : Measured or None
        Links that were measured before.
    measure : function
        Measures the link from one worker to another.
    """
    before = {} if known is None else known.direct_bytes_per_s
    measured: dict[tuple[str, ...], float] = {}
    for (one, other), wide in before.items():
        if one in hosts and other in hosts:
            measured[tuple(sorted((hosts[one], hosts[other])))] = wide
    found = {}
    for one, other in itertools.combinations(sorted(hosts), 2):
        pair = tuple(sorted((hosts[one], hosts[other])))
        if pair not in measured:
            measured[pair] = max(measure(one, other) for _ in range(PROBES))
        found[one, other] = measured[pair]
    return found


def worker_name(number: int, given: str, taken: set[str]) -> str:
    """The name of a worker in the model: its own name, if that is a valid name of a host."""
    fits = given.replace("-", "").isalnum() and given.isascii() and not given.isdigit() and given not in (*taken, "client")
    name = given if fits else f"worker-{number}"
    taken.add(name)
    return name
