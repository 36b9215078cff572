"""Reports of groups: predictions and measurements."""

from __future__ import annotations

import copy
import dataclasses
import html
import os
from collections.abc import Callable
from typing import Any

from .. import _gridloom
from ..common.file_writing import write_text
from ..common.session_objects import from_text
from ..display.html import of_report
from .plan import Plan, TaskRecord, TransferRecord, plan_of, transfer_of


@dataclasses.dataclass(frozen=True)
class Difference:
    """A call that is not as it was described, or a described call that is missing. Optional calls may be missing.

    Attributes
    ----------
    call : int or None
        Number of the call in the group, counted from 1; ``None`` of a missing call.
    function : str
        The function that was called; of a missing call the one that was described.
    described : str or None
        Name of the described call that was expected in its place, or that is missing; ``None`` if nothing was described there.
    why : str
        The difference in words: the argument, its value and what was described; or that the call is missing.
    """

    call: int | None
    function: str
    described: str | None
    why: str


class Report:
    """Predictions and measurements of a group. ``str()`` returns them as text.

    Attributes
    ----------
    heuristic : str
        The heuristic that the group asked for.
    simulated : bool
        Whether it ran in simulation: the measurements are then simulated.
    plans : list of Plan
        One for each part of the group, and each time that something was mapped again.
    predicted_seconds, measured_seconds : float
        Makespan, seconds, without the way home of large results (above 32 KiB) that the program has not fetched.
    not_measured : list of str
        Inputs of the prediction that were guessed, as `Plan.not_measured`.
    client_bytes, server_bytes : int
        Bytes over the client's links, and between servers.
    by_link : dict of str to int
        Bytes by pair of names, ``"sender -> receiver"``.
    tasks : list of TaskRecord
        Tasks as they ran; one that ended twice, since its results were lost, is listed twice.
    transfers : list of TransferRecord
        Transfers as they happened.
    lost_servers : list of str
        Servers lost on the way, and why.
    tasks_again : int
        Tasks that ran again or moved because of that.
    tasks_failed : int
        Number of failed tasks.
    differences : list of Difference
        How the calls differed from those described, of a group with a graph.
    together : int
        How many groups were mapped together, of a loop's bodies: the report is of all of them.
    """

    heuristic: str
    simulated: bool
    plans: list[Plan]
    predicted_seconds: float
    not_measured: list[str]
    measured_seconds: float
    client_bytes: int
    server_bytes: int
    by_link: dict[str, int]
    tasks: list[TaskRecord]
    transfers: list[TransferRecord]
    lost_servers: list[str]
    tasks_again: int
    tasks_failed: int
    differences: list[Difference]
    together: int

    def __init__(self, raw: _gridloom.RawReport | _Unpickled) -> None:
        self._raw = raw
        for name, value in raw.record().items():
            if name == "plans":
                value = [plan_of(plan) for plan in raw.plans()]
            elif name == "tasks":
                value = [TaskRecord(**task) for task in value]
            elif name == "transfers":
                value = [transfer_of(transfer) for transfer in value]
            elif name == "differences":
                value = [Difference(**difference) for difference in value]
            setattr(self, name, value)

    def __str__(self) -> str:
        return str(self._raw)

    def __repr__(self) -> str:
        return (
            f"<gridloom.Report: {len(self.tasks)} tasks by {self.heuristic}, predicted {self.predicted_seconds:.4g} s, "
            f"{self._how()} {self.measured_seconds:.4g} s>"
        )

    def _how(self) -> str:
        return "simulated" if self.simulated else "measured"

    def _repr_html_(self) -> str:
        return of_report(self, lambda: self._raw.timeline(""))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dictionaries, lists, texts and numbers, as in JSON.

        Returns
        -------
        dict
            Values by name of attribute; the ends of a transfer are ``from`` and ``to``.
        """
        return self._raw.record()

    def save_timeline(self, path: str | os.PathLike[str], title: str = "Gridloom group") -> None:
        """Write a page that a browser opens: tasks and transfers over time, predicted above measured or simulated.

        Parameters
        ----------
        path : path
            File to write, HTML.
        title : str, optional
            Its heading.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_text(path, self._raw.timeline(title))

    def __reduce__(self) -> tuple[Callable[..., Report], tuple[Any, ...]]:
        plans = [plan.file() for plan in self._raw.plans()]
        return _unpickled, (str(self._raw), self._raw.record(), plans, self._raw.timeline(_TITLE))


# Placeholder of the title in the timeline of a pickled report.
_TITLE = "{{title of the page}}"


@dataclasses.dataclass
class _Unpickled:
    """A report as data, as it was pickled."""

    text: str
    data: dict[str, Any]
    files: list[str]
    page: str

    def __str__(self) -> str:
        return self.text

    def record(self) -> dict[str, Any]:
        return copy.deepcopy(self.data)

    def plans(self) -> list[_gridloom.RawPlan]:
        return [from_text(_gridloom.RawPlan.load, file) for file in self.files]

    def timeline(self, title: str) -> str:
        return self.page.replace(_TITLE, html.escape(title).replace("&#x27;", "'"))


def _unpickled(*parts: Any) -> Report:
    return Report(_Unpickled(*parts))
