"""A rank's state of a communicator."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any


class State:
    """The state of a communicator at one of its ranks."""

    def __init__(self, context: int, group: tuple[int, ...], me: int, remote: tuple[int, ...] | None = None) -> None:
        #: Context of its messages. Collective calls use the next number.
        self.context = context
        #: Ranks in the world by ranks in the communicator. For an inter-communicator: of the other group.
        self.group = group
        self.remote = remote
        self.rank = group.index(me)
        #: Number of collective calls so far, and number of communicators created from it.
        self.calls = 0
        self.children = 0
        #: The own group of an inter-communicator.
        self.local = State(context_of(context, "local", group), group, me) if remote is not None else None
        self.topology: Any = None
        self.name = ""
        self.attributes: dict[int, Any] = {}
        self.info: dict[str, str] = {}
        self.errhandler: Any = None

    def child(self, *purpose: Any) -> int:
        """Return the context of the next communicator created from it. It is the same at all its ranks."""
        self.children += 1
        return context_of(self.context, self.children, *purpose)


def context_of(*parts: Any) -> int:
    """Return the context of a communicator, computed from data that all its ranks know. Two contexts collide with a probability of 10^-16."""
    digest = blake2b(repr(parts).encode(), digest_size=7).digest()
    return 2 * int.from_bytes(digest, "little") + 16
