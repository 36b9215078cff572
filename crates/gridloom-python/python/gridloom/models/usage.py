"""Records of what users have used of a grid."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from .. import _gridloom
from ..common.checks import checked_text
from ..errors import UsageError

_EPOCH = datetime.date(1970, 1, 1)
# How long to wait for the agent, seconds.
_ANSWER_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class DayUsage:
    """What a user has used on one day.

    Attributes
    ----------
    day : datetime.date
        In UTC.
    user : str
        The name in the certificate. All users beyond the first 1,024 of a day are ``"(other users)"``.
    succeeded, failed, cancelled : int
        Calls that ended on that day.
    slot_seconds : float
        Run time of the calls times their slots, seconds.
    sent_bytes, received_bytes : int
        Bytes that servers sent to the user's programs, and received from them.
    """

    day: datetime.date
    user: str
    succeeded: int
    failed: int
    cancelled: int
    slot_seconds: float
    sent_bytes: int
    received_bytes: int


@dataclasses.dataclass(frozen=True)
class Usage:
    """What users have used of a grid, from `gridloom.Grid.usage`.

    Attributes
    ----------
    days : list of DayUsage
        In order of day and user.
    stored_bytes : dict of str to int
        Bytes of shared data that each user stores now, in all copies.
    disk_bytes : dict of str to int
        Bytes that each user has on the disks of servers now, as these reported last: durable data, and data that do not fit into memory.
    link_bytes : dict of str to dict of str to int
        Bytes that each user has received today over each link that the rules of the grid name.
    """

    days: list[DayUsage]
    stored_bytes: dict[str, int]
    disk_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    link_bytes: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)


def usage_of(raw: _gridloom.RawGrid, since: Any, until: Any, user: str | None) -> Usage:
    """Request the usage from the agent."""
    first = 0 if since is None else _day("since", since)
    last = 2**32 - 1 if until is None else _day("until", until)
    if first > last:
        raise UsageError(f"since {since} is later than until {until}; exchange them")
    name = None if user is None else checked_text("user", user)
    entries, stored, on_disk, links = raw.usage(first, last, name, _ANSWER_SECONDS)
    days = [DayUsage(_EPOCH + datetime.timedelta(entry[0]), *entry[1:]) for entry in entries]
    by_link: dict[str, dict[str, int]] = {}
    for of_user, link, size in links:
        by_link.setdefault(of_user, {})[link] = size
    return Usage(days, stored, on_disk, by_link)


def _day(name: str, value: Any) -> int:
    """Return the number of a day since 1970-01-01."""
    day = value
    if isinstance(value, str):
        try:
            day = datetime.date.fromisoformat(value)
        except ValueError:
            day = None
    if isinstance(day, datetime.date) and not isinstance(day, datetime.datetime) and day >= _EPOCH:
        return (day - _EPOCH).days
    raise UsageError(f"{name} is a day since 1970, such as '2026-11-29' or a datetime.date, got {value!r:.64}")
