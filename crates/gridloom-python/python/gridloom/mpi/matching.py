"""Matches the received messages of one rank with its receives, in MPI's order.

**Guarantee:** messages of one sender in one context are matched in the order of their arrival, and receives in the order in which they were
posted (MPI 3.1, section 3.5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .constants import ANY_SOURCE, ANY_TAG


class Envelope:
    """A received message."""

    __slots__ = ("data", "source", "tag", "ticket")

    def __init__(self, source: int, tag: int, data: Any, ticket: tuple[int, int] | None) -> None:
        self.source = source
        self.tag = tag
        self.data = data
        #: For a send that waits until it is matched: the sender's rank in the world, and the sender's number of this send.
        self.ticket = ticket


class Posted:
    """A receive that waits for a message."""

    __slots__ = ("on_match", "source", "tag")

    def __init__(self, source: int, tag: int, on_match: Callable[[Envelope], None]) -> None:
        self.source = source
        self.tag = tag
        self.on_match = on_match


class Matching:
    """Received messages and posted receives, by context. A communicator has its own contexts."""

    def __init__(self, matched: Callable[[Envelope], None]) -> None:
        self._matched = matched
        self._received: dict[int, list[Envelope]] = {}
        self._posted: dict[int, list[Posted]] = {}

    def arrive(self, context: int, envelope: Envelope) -> None:
        """Pass a received message to the first matching receive, or keep it."""
        posted = self._posted.get(context, ())
        source, tag = envelope.source, envelope.tag
        for at, one in enumerate(posted):
            if one.source in (source, ANY_SOURCE) and one.tag in (tag, ANY_TAG):
                del self._posted[context][at]
                self._matched(envelope)
                one.on_match(envelope)
                return
        self._received.setdefault(context, []).append(envelope)

    def take(self, context: int, source: int, tag: int) -> Envelope | None:
        """Remove and return the earliest received message that matches."""
        envelope = self.find(context, source, tag)
        if envelope is not None:
            self._received[context].remove(envelope)
            self._matched(envelope)
        return envelope

    def find(self, context: int, source: int, tag: int) -> Envelope | None:
        """Return the earliest received message that matches, without removing it."""
        for envelope in self._received.get(context, ()):
            if source in (envelope.source, ANY_SOURCE) and tag in (envelope.tag, ANY_TAG):
                return envelope
        return None

    def post(self, context: int, posted: Posted) -> None:
        """Post a receive whose message has not arrived."""
        self._posted.setdefault(context, []).append(posted)

    def cancel(self, context: int, posted: Posted) -> bool:
        """Remove a posted receive. Return whether it was still posted."""
        waiting = self._posted.get(context, [])
        if posted not in waiting:
            return False
        waiting.remove(posted)
        return True

    def forget(self, context: int) -> None:
        """Drop the empty queues of a freed communicator."""
        if not self._received.get(context, True):
            del self._received[context]
        if not self._posted.get(context, True):
            del self._posted[context]
