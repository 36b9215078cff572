"""Records about a grid: servers, links, traffic, and a simulated run."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    """A server as the session knows it.

    Attributes
    ----------
    name, address : str
        Its name, and its network address.
    slots : int
        Tasks that it runs at a time.
    plain : bool
        Whether it talks to clients only.
    memory_bytes : int
        Bound on its store.
    speed_flops : float or None
        Measured speed of one slot, floating-point operations per second; ``None`` before it was measured.
    functions : list of str
        Names of the functions that it offers.
    release : str
        The release of Gridloom that it runs; empty if it, or its agent, is of a release that does not say.
    protocol : int
        Version of the protocol in which it and its agent talk; 0 if the agent does not say.
    """

    name: str
    address: str
    slots: int
    plain: bool
    memory_bytes: int
    speed_flops: float | None
    functions: list[str]
    release: str
    protocol: int


@dataclasses.dataclass(frozen=True)
class Link:
    """Measurements of a link between two hosts, or of a link to or from a client.

    Attributes
    ----------
    sender, receiver : str
        Hosts, by the addresses of their servers, or a client.
    latency_seconds : float
        One way.
    bytes_per_second : float
        The bandwidth that plans count on.
    measurements : int
        How often the bandwidth was measured, by probes and transfers.
    age_seconds : float
        Since the last of them.
    """

    sender: str
    receiver: str
    latency_seconds: float
    bytes_per_second: float
    measurements: int
    age_seconds: float


def link_of(record: dict[str, Any]) -> Link:
    """Make a link from a record of the extension module."""
    latency, bandwidth = record["link"]["latency_s"], record["link"]["bandwidth"]
    return Link(record["from"], record["to"], latency, bandwidth, record["measurements"], record["age_s"])


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Bytes moved since the session began.

    Attributes
    ----------
    client_bytes : int
        Over links of the client, both ways.
    server_bytes : int
        Between servers.
    by_link : dict of str to int
        Bytes by pair of names, ``"sender -> receiver"``.
    """

    client_bytes: int
    server_bytes: int
    by_link: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Report of a simulated run.

    Attributes
    ----------
    seconds : float
        Virtual time, seconds.
    trace_hash : str
        Sums up everything that happened, in order: equal for equal programs, platforms and seeds.
    bytes_by_link : dict of str to float
        Bytes of data over each link of the platform.
    bytes_by_pair : dict of str to int
        Bytes of data by pair of names, ``"sender -> receiver"``.
    groups : list of (str, float, float)
        Groups in order: heuristic, predicted and simulated makespan in seconds.
    """

    seconds: float
    trace_hash: str
    bytes_by_link: dict[str, float]
    bytes_by_pair: dict[str, int]
    groups: list[tuple[str, float, float]]
