"""Measurements of a session: times of functions, links and traffic, and calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import _gridloom
from .calibration import Calibration, CalibrationCall, calibrate
from .models import Models, models_of
from .server_info import Link, Traffic, link_of
from .usage import Usage, usage_of

# How long `models` waits for models that servers have not sent yet, seconds.
_MODELS_SECONDS = 0.5


class Measurements:
    """Measurements of one session.

    Parameters
    ----------
    raw : RawGrid
        The session of the extension module.
    """

    def __init__(self, raw: _gridloom.RawGrid) -> None:
        self._raw = raw

    def models(self, function: str | None) -> Models:
        """Models of a function, or of all, as `Grid.models`."""
        self._raw.learn_models(_MODELS_SECONDS)
        return models_of(self._raw.servers(), function)

    def calibrate(
        self,
        function: str,
        *,
        sizes: Mapping[str, int | tuple[int, int]] | None,
        values: Mapping[str, Any] | None,
        make: Callable[[dict[str, int]], Mapping[str, Any]] | None,
        error: float,
        budget: float,
        servers: Iterable[str],
        progress: Callable[[CalibrationCall], object] | None,
    ) -> list[Calibration]:
        """Measure a function, as `Grid.calibrate`."""
        return calibrate(self._raw, function, sizes or {}, values or {}, error, budget, servers, make, progress)

    def links(self) -> list[Link]:
        """Measured links, as `Grid.links`."""
        return [link_of(record) for record in self._raw.links()]

    def traffic(self) -> Traffic:
        """Bytes moved, as `Grid.traffic`."""
        return Traffic(**self._raw.traffic())

    def usage(self, since: Any, until: Any, user: str | None) -> Usage:
        """What users have used, as `Grid.usage`."""
        return usage_of(self._raw, since, until, user)
