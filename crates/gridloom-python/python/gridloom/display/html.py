"""HTML of a grid, a group, a plan, a handle and a report in notebooks. Callers hand in all data.

**Invariants.** All texts are escaped. Tables take colours and background from the notebook, light or dark; drawings have a white
background.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

# A notebook keeps what it shows in its file.
_DRAWING_BYTES_MAX = 1_000_000
# A bar of a task or transfer in a drawing takes more bytes than this.
_BAR_BYTES_MIN = 100
_ROWS_MAX = 100

_WIDE = '<svg style="width:100%;height:auto" '
_CELL = "padding:.15em 1em .15em 0;border:0;border-bottom:1px solid rgba(128,128,128,.35);vertical-align:top;text-align:"
_CARD = "background:#fff;color:#222;font:11px system-ui,sans-serif;padding:.4em;max-width:100%;max-height:32em;overflow:auto"


class Server(Protocol):
    """A server, as `gridloom.models.ServerInfo` describes it."""

    @property
    def name(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def speed_flops(self) -> float | None: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def functions(self) -> Sequence[str]: ...


class Course(Protocol):
    """A plan, or the report of a run."""

    @property
    def heuristic(self) -> str: ...
    @property
    def tasks(self) -> Sequence[Any]: ...
    @property
    def transfers(self) -> Sequence[Any]: ...
    @property
    def client_bytes(self) -> int: ...
    @property
    def server_bytes(self) -> int: ...
    @property
    def not_measured(self) -> Sequence[str]: ...


class Plan(Course, Protocol):
    """A plan, as `gridloom.plans.Plan` is."""

    @property
    def makespan_seconds(self) -> float: ...
    @property
    def lower_bound_seconds(self) -> float | None: ...


class Report(Course, Protocol):
    """The report of a run, as `gridloom.plans.Report` is."""

    @property
    def simulated(self) -> bool: ...
    @property
    def predicted_seconds(self) -> float: ...
    @property
    def measured_seconds(self) -> float: ...
    @property
    def plans(self) -> Sequence[Plan]: ...
    @property
    def together(self) -> int: ...
    @property
    def tasks_failed(self) -> int: ...
    @property
    def tasks_again(self) -> int: ...
    @property
    def lost_servers(self) -> Sequence[str]: ...
    @property
    def differences(self) -> Sequence[Any]: ...
    @property
    def by_link(self) -> Mapping[str, int]: ...


Load: TypeAlias = "tuple[int, int, int, int, int]"
"""Load of a server: calls that run, calls that wait for calls of their own, calls in its queue, calls that wait for data, bytes stored."""


def of_grid(kind: str, servers: Sequence[Server] | None, loads: Mapping[str, Load] | None, started: str | None) -> str:
    """Show a session: a row for each server.

    Parameters
    ----------
    kind : str
        "real", "simulated" or "closed".
    servers : sequence of Server or None
        The servers; ``None`` if the session is closed.
    loads : mapping of str to Load or None
        Loads by name of the server; ``None`` if they were not asked for.
    started : str or None
        Summary of the servers that the session has started; ``None`` if it has started none.
    """
    if servers is None:
        return _shown("Grid", kind)
    summary = f"{kind}, {_count(len(servers), 'server')}, {_count(sum(server.slots for server in servers), 'slot')}"
    head = ["server", "slots", "speed of a slot", "memory", "functions"]
    rows = [_server(server) for server in servers]
    if loads is not None:
        head += ["running", "waiting", "in store"]
        for row, server in zip(rows, servers, strict=True):
            if (load := loads.get(server.name)) is None:
                row += ["no answer", "", ""]
            else:
                running, calling, queued, waiting, stored = load
                row += [str(running + calling), str(queued + waiting), scaled(stored, "B")]
    notes = [] if started is None else [_note(f"started {started}")]
    return _shown("Grid", summary, _table(head, rows, 1), *notes)


def of_error(kind: str, title: str, error: BaseException) -> str:
    """Show an error in the place of an object."""
    return _shown(kind, title, _note(str(error)))


def _server(server: Server) -> list[str]:
    speed = "not measured" if server.speed_flops is None else scaled(server.speed_flops, "flop/s")
    return [server.name, str(server.slots), speed, scaled(server.memory_bytes, "B"), str(len(server.functions))]


def of_group(
    state: str,
    calls: int,
    heuristic: Any,
    *,
    simulated: bool,
    times: tuple[float, float, int, int] | None,
    ended: tuple[int, int] | None,
) -> str:
    """Show a group.

    Parameters
    ----------
    state : str
        Its state in words.
    calls : int
        Number of its calls.
    heuristic : str, Plan or function
        The heuristic or plan that maps its calls.
    simulated : bool
        Whether it runs in simulation.
    times : (float, float, int, int) or None
        Predicted and measured makespan in seconds, failed tasks, and groups that were mapped together; ``None`` before the report.
    ended : (int, int) or None
        Number of calls that have ended, and of all; the latter is 0 if no progress bar is shown. ``None`` if the session is closed.
    """
    facts = [("state", state), ("calls", str(calls)), ("heuristic", _heuristic(heuristic))]
    if times is not None:
        predicted, measured, failed, together = times
        how = "simulated" if simulated else "measured"
        facts += [("predicted makespan", _seconds(predicted)), (f"{how} makespan", _seconds(measured))]
        if failed:
            facts.append(("failed", _count(failed, "task")))
        if together > 1:
            facts.append(("together", f"{together} groups were mapped together; times are of all of them"))
    elif ended is not None:
        note = _note("report() waits for the end of all calls, and has their times.")
        return _shown("Group", "", _bar(*ended), _facts(facts), note)
    return _shown("Group", "", _facts(facts))


def _bar(ended: int, calls: int) -> str:
    return f'<progress value="{ended}" max="{calls}" style="width:20em"></progress>' if calls else ""


def _heuristic(heuristic: Any) -> str:
    if isinstance(heuristic, str):
        return heuristic
    inner = getattr(heuristic, "heuristic", None)
    return f"a given plan, by {inner}" if inner else str(getattr(heuristic, "__name__", heuristic))


def of_handle(function: str, state: str, kind: str, shape: tuple[int, ...] | None, dtype: np.dtype[Any] | None) -> str:
    """Show a handle: its function, the state of the call, and the type of its value."""
    facts = [("function", function), ("state", state), ("kind", kind)]
    if shape is not None and dtype is not None:
        if kind == "array":
            facts.append(("shape", f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"))
        facts += [("dtype", str(dtype)), ("size", scaled(math.prod(shape) * dtype.itemsize, "B"))]
    return _shown("Handle", "", _facts(facts))


def of_plan(plan: Plan, drawing: str | BaseException) -> str:
    """Show a plan: its times, and its drawing as SVG, or the error why there is none."""
    servers = {task.server for task in plan.tasks}
    facts = [
        ("heuristic", plan.heuristic),
        ("tasks", f"{_count(len(plan.tasks), 'task')} on {_count(len(servers), 'server')}"),
        ("predicted makespan", _seconds(plan.makespan_seconds)),
        ("lower bound", _seconds(plan.lower_bound_seconds)),
        ("moved", _moved(plan)),
        *_guessed(plan),
    ]
    if isinstance(drawing, BaseException):
        return _shown("Plan", "", _facts(facts), _note(str(drawing)))
    if len(drawing) > _DRAWING_BYTES_MAX:
        size = scaled(len(drawing), "B")
        drawn = _note(f"The drawing has {size}, too much for a notebook: gantt('plan.svg') writes it to a file.")
    else:
        drawn = _card(drawing.replace("<svg ", _WIDE))
    return _shown("Plan", "", _facts(facts), drawn)


def of_models(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Show models of functions: a row for each size that was measured."""
    return _shown("Models", "" if rows else "nothing was measured yet", *([_table(head, rows, 2)] if rows else []))


def of_report(report: Report, timeline: Callable[[], str]) -> str:
    """Show a report: its times, traffic, and drawings, predicted above measured or simulated.

    `timeline` makes the page with the drawings; it is called only if they are small enough.
    """
    facts = [
        ("heuristic", report.heuristic),
        ("tasks", _count(len(report.tasks), "task")),
        ("predicted makespan", _seconds(report.predicted_seconds)),
        (f"{'simulated' if report.simulated else 'measured'} makespan", _seconds(report.measured_seconds)),
        ("moved", _moved(report)),
        *_guessed(report),
    ]
    if report.together > 1:
        facts.append(("together", f"{report.together} groups were mapped together"))
    if report.tasks_failed:
        facts.append(("failed", _count(report.tasks_failed, "task")))
    if report.tasks_again:
        facts.append(("again", f"{_count(report.tasks_again, 'task')} ran again or moved"))
    facts += [("lost", server) for server in report.lost_servers]
    facts += [("difference", difference.why) for difference in report.differences[:_ROWS_MAX]]
    links = [[link, scaled(size, "B")] for link, size in report.by_link.items()]
    return _shown("Report", "", _facts(facts), _table(["link", "moved"], links, 1) if links else "", _timeline(report, timeline))


def _guessed(course: Course) -> list[tuple[str, str]]:
    names = course.not_measured
    more = f" and {len(names) - _ROWS_MAX} more" if len(names) > _ROWS_MAX else ""
    return [("guessed, as not measured yet", ", ".join(names[:_ROWS_MAX]) + more)] if names else []


def _timeline(report: Report, timeline: Callable[[], str]) -> str:
    courses: list[Course] = [report, *report.plans]
    bars = sum(len(course.tasks) + len(course.transfers) for course in courses)
    page = timeline() if bars * _BAR_BYTES_MIN <= _DRAWING_BYTES_MAX else None
    if page is None or len(page) > _DRAWING_BYTES_MAX:
        return _note("The timeline is too large for a notebook: save_timeline('timeline.html') writes it to a file.")
    # After the text of the report follow charts, each below a heading.
    charts = "<h2>" + page.partition("<h2>")[2].rpartition("</body>")[0]
    charts = charts.replace("<svg ", _WIDE)
    return _card(charts.replace("<h2>", '<div style="margin:.6em 0 .2em;font-weight:bold">').replace("</h2>", "</div>"))


def _moved(course: Course) -> str:
    return f"{scaled(course.client_bytes, 'B')} over client links, {scaled(course.server_bytes, 'B')} between servers"


def _shown(kind: str, summary: str, *parts: str) -> str:
    title = f"<div><b>gridloom.{kind}</b> {html.escape(summary)}</div>"
    return f"<div>{title}{''.join(parts)}</div>"


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return _rows([f"{_cell('th', name, 'left')}{_cell('td', value, 'left')}" for name, value in facts])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """A table; columns after the first `texts` are numbers."""
    sides = ["left" if column < texts else "right" for column in range(len(head))]
    every = list(rows)
    lines = ["".join(map(_cell, ["th"] * len(head), head, sides))]
    lines += ["".join(map(_cell, ["td"] * len(head), row, sides)) for row in every[:_ROWS_MAX]]
    more = len(every) - _ROWS_MAX
    return _rows(lines) + (_note(f"and {more} more") if more > 0 else "")


def _rows(lines: Iterable[str]) -> str:
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table style="border-collapse:collapse;margin:.3em 0;color:inherit">{body}</table>'


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="{_CELL}{side}">{html.escape(text)}</{tag}>'


def _note(text: str) -> str:
    return f'<div style="font-style:italic">{html.escape(text)}</div>'


def _card(drawing: str) -> str:
    return f'<div style="{_CARD}">{drawing}</div>'


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _seconds(seconds: float | None) -> str:
    return "not known" if seconds is None or math.isnan(seconds) else f"{seconds:.4g} s"


def scaled(value: float, unit: str) -> str:
    """A size or speed with a decimal prefix, as reports have it."""
    number, prefix = float(value), ""
    for larger in ("k", "M", "G", "T", "P"):
        if number < 1000:
            break
        number, prefix = number / 1000, larger
    return f"{value:.0f} {unit}" if not prefix else f"{number:.1f} {prefix}{unit}"
