"""Models of how long functions take, as `Grid.models` returns them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from ..display.html import of_models, scaled


@dataclasses.dataclass(frozen=True)
class ModelPoint:
    """Measured time of calls of about one size.

    Attributes
    ----------
    size : float
        Their size, in the `Model.unit`.
    seconds, spread_seconds : float
        Median time, and median distance from it, seconds.
    calls : int
        Number of calls; 0 if the point was scaled from another host's.
    """

    size: float
    seconds: float
    spread_seconds: float
    calls: int


@dataclasses.dataclass(frozen=True)
class Model:
    """Measured times of a function on a server.

    Attributes
    ----------
    function, server : str
        The function and the server.
    unit : str
        Unit of sizes: ``"flop"``, or ``"B"`` of the arrays if the function states no work.
    points : list of ModelPoint
        In order of size.
    error : float or None
        Relative error of recent predictions; ``None`` if none was compared.
    """

    function: str
    server: str
    unit: str
    points: list[ModelPoint]
    error: float | None


class Models(Sequence[Model]):
    """Models in order of function and server. A notebook shows them as a table, and so does ``print``."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = list(models)

    @overload
    def __getitem__(self, index: int) -> Model: ...

    @overload
    def __getitem__(self, index: slice) -> Models: ...

    def __getitem__(self, index: int | slice) -> Model | Models:
        return Models(self._models[index]) if isinstance(index, slice) else self._models[index]

    def __len__(self) -> int:
        return len(self._models)

    def __repr__(self) -> str:
        return f"<gridloom.Models: {len(self)}>"

    def __str__(self) -> str:
        rows = [_HEAD, *(_row(model, point) for model, point in self._points())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join(lines) if len(lines) > 1 else "nothing was measured yet"

    def _repr_html_(self) -> str:
        return of_models(_HEAD, [_row(model, point) for model, point in self._points()])

    def _points(self) -> Iterator[tuple[Model, ModelPoint]]:
        for model in self._models:
            for point in model.points:
                yield model, point


_HEAD = ["function", "server", "size", "seconds", "spread", "calls", "off by"]


def _row(model: Model, point: ModelPoint) -> list[str]:
    error = "" if model.error is None else f"{100 * model.error:.0f} %"
    size = scaled(point.size, model.unit)
    return [model.function, model.server, size, f"{point.seconds:.3g}", f"{point.spread_seconds:.2g}", str(point.calls), error]


def models_of(servers: Iterable[dict[str, Any]], function: str | None) -> Models:
    """Models of a function, or of all, on these servers."""
    found = []
    for server in servers:
        for name, model in server["functions"].items():
            if function is not None and name != function:
                continue
            unit, curve = ("flop", "by_work") if model["by_work"]["points"] else ("B", "by_bytes")
            points = [
                ModelPoint(point["size"], point["seconds"], point["spread_s"], point["calls"]) for point in model[curve]["points"]
            ]
            accuracy = model["accuracy"]
            if points:
                found.append(Model(name, server["name"], unit, points, accuracy["error"] if accuracy["count"] else None))
    return Models(sorted(found, key=lambda model: (model.function, model.server)))
