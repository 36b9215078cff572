"""Loops whose bodies are groups that are mapped together."""

from __future__ import annotations

import operator

from .. import _gridloom
from ..errors import UsageError
from ..plans.heuristic import Heuristic, mapping_of
from ..plans.plan import Plan

# Loops that hold back bodies at a time: programs interleave a few.
_LOOPS_MAX = 8


class Loops:
    """Loops of one session."""

    def __init__(self, raw: _gridloom.RawGrid) -> None:
        self._raw = raw
        self._all: dict[tuple[str | int, int | str, float | None], _gridloom.RawLoop] = {}

    def of(self, heuristic: str | Plan | Heuristic, regroup: int | str, map_timeout: float | None) -> _gridloom.RawLoop:
        """The loop whose bodies are mapped in that way."""
        number = regroup if regroup == "auto" else _whole(regroup)
        # The loop keeps a function alive, so that its identity stays its own.
        key = (heuristic if isinstance(heuristic, str) else id(heuristic), number, map_timeout)
        if key not in self._all:
            if len(self._all) >= _LOOPS_MAX:
                # The bodies that it delayed are launched with it.
                del self._all[next(iter(self._all))]
            bodies = None if isinstance(number, str) else number
            self._all[key] = self._raw.regrouped(mapping_of(heuristic, map_timeout), bodies)
        return self._all[key]


def _whole(regroup: int | str) -> int:
    try:
        bodies = -1 if isinstance(regroup, (str, bool)) else operator.index(regroup)
    except TypeError:
        bodies = -1
    if not 0 < bodies <= _gridloom.REGROUP_BODIES_MAX:
        raise UsageError(f'regroup is a number of bodies from 1 to {_gridloom.REGROUP_BODIES_MAX} or "auto", got {regroup!r}')
    return bodies
