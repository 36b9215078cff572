"""What a rank knows of a communicator."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any


class State:
    """A communicator, seen by one of its ranks."""

    def __init__(self, context: int, group: tuple[int, ...], me: int, remote: tuple[int, ...] | None = None) -> None:
        #: Tells its messages from others; that of collective calls is one more.
        self.context = context
        #: Ranks of the world, by their ranks here; those of the other group of an inter-communicator.
        self.group = group
        self.remote = remote
        self.rank = group.index(me)
        #: How many collective calls there were, and how many communicators were made of it.
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
        """Return the context of the next communicator that is made of it; all its ranks get the same."""
        self.children += 1
        return context_of(self.context, self.children, *purpose)


def context_of(*parts: Any) -> int:
    """Return a number for a communicator from what all its ranks know; two of them are alike by chance in one of 10^16 pairs."""
    digest = blake2b(repr(parts).encode(), digest_size=7).digest()
    return 2 * int.from_bytes(digest, "little") + 16
