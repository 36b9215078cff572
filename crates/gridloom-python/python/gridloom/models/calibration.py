"""Calibration: calls whose only purpose is their time."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from .. import _gridloom


@dataclasses.dataclass(frozen=True)
class CalibrationCall:
    """A call that was measured, as it happens.

    Attributes
    ----------
    server : str
        The server.
    sizes : dict of str to int
        Its size arguments.
    seconds : float or None
        Its time, seconds; ``None`` if it was preempted by other work and is made again later.
    """

    server: str
    sizes: dict[str, int]
    seconds: float | None


@dataclasses.dataclass(frozen=True)
class CalibrationPoint:
    """Measurement at one size.

    Attributes
    ----------
    sizes : dict of str to int
        The size arguments.
    size : float
        The call's size as models have it, in the `Calibration.unit`.
    seconds, spread_seconds : float
        Median time, and median distance from it, seconds.
    calls : int
        How many calls.
    """

    sizes: dict[str, int]
    size: float
    seconds: float
    spread_seconds: float
    calls: int


@dataclasses.dataclass(frozen=True)
class CalibrationJump:
    """A jump of the curve: the time changes between sizes that a model does not distinguish.

    Attributes
    ----------
    first, last : float
        Its ends, as sizes.
    error : float
        Relative error of predictions within it.
    """

    first: float
    last: float
    error: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Accuracy of a function's model on one server after `Grid.calibrate`.

    Attributes
    ----------
    function, server : str
        The function and the server.
    unit : str
        Unit of sizes: ``"flop"``, or ``"B"`` of a function without a complexity.
    points : list of CalibrationPoint
        Measurements, smallest size first.
    error : float or None
        Relative error of predictions between the points; ``None`` if there are too few measurements.
    reached : bool
        Whether the requested error was reached, away from the jumps.
    jumps : list of CalibrationJump
        Jumps of the time.
    spread : float
        Largest spread of the calls of one size, as a part of their time.
    calls, preempted : int
        Calls that were measured, and calls that were preempted by other work.
    seconds : float
        How long it took, seconds.
    why : str or None
        Why it ended before the end of the range, or before its goal.
    failed : bool
        Whether it ended with the error of a call; `why` is that error.
    """

    function: str
    server: str
    unit: str
    points: list[CalibrationPoint]
    error: float | None
    reached: bool
    jumps: list[CalibrationJump]
    spread: float
    calls: int
    preempted: int
    seconds: float
    why: str | None
    failed: bool


def calibrate(
    raw: _gridloom.RawGrid,
    function: str,
    sizes: Mapping[str, int | tuple[int, int]],
    values: Mapping[str, Any],
    error: float,
    budget: float,
    servers: Iterable[str],
    make: Callable[[dict[str, int]], Mapping[str, Any]] | None,
    progress: Callable[[CalibrationCall], object] | None,
) -> list[Calibration]:
    """See `Grid.calibrate`."""
    if isinstance(servers, str):
        raise UsageError(f"servers are a list of names, got {servers!r}; give [{servers!r}]")
    asked = {
        "sizes": {name: _range(name, ends) for name, ends in sizes.items()},
        "values": dict(values),
        "error": float(error),
        "budget": float(budget),
        "servers": list(servers),
        "make": None if make is None else lambda sizes: dict(make(sizes)),
        "progress": None if progress is None else lambda *call: progress(CalibrationCall(*call)),
    }
    return [_calibration(record) for record in raw.calibrate(function, asked)]


def _range(name: str, ends: int | tuple[int, int]) -> tuple[int, int]:
    try:
        first, last = ends if isinstance(ends, (tuple, list)) else (ends, ends)
        return operator.index(first), operator.index(last)
    except (TypeError, ValueError):
        raise UsageError(f"sizes of '{name}': expected a whole number, or a range as (first, last), got {ends!r}") from None


def _calibration(record: dict[str, Any]) -> Calibration:
    points = [
        CalibrationPoint(point["sizes"], point["size"], point["seconds"], point["spread_seconds"], point["calls"])
        for point in record.pop("points")
    ]
    jumps = [CalibrationJump(jump["from"], jump["to"], jump["error"]) for jump in record.pop("jumps")]
    reached, failed = record.pop("reached_goal"), record.pop("has_failed")
    return Calibration(points=points, jumps=jumps, reached=reached, failed=failed, **record)
