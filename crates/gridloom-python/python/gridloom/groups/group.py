"""Groups of calls that are mapped together."""

from __future__ import annotations

import warnings
from contextvars import Token
from types import TracebackType
from typing import Any

from .. import _gridloom
from ..calls.function import Function
from ..calls.session_state import Recorder, SessionState
from ..common.session_objects import OfSession
from ..display import notebook
from ..display import progress_bars as bars
from ..display.bars import Watch
from ..display.html import of_group
from ..errors import DifferenceWarning, GridloomError, UsageError
from ..plans.heuristic import MAP_TIMEOUT, Heuristic, mapping_of
from ..plans.plan import Plan, memory_of, plan_of
from ..plans.report import Difference, Report
from .handle import Handle

# A display fetches the report of a group of at most this many calls by itself.
_REPORTED_MAX = 10_000


class Group(OfSession):
    """Calls that are recorded, then mapped together: ``with grid.group() as group:``.

    Inside the block, in the thread that entered it, every call of a function of the grid is recorded and gives handles at
    once. At the end of the block the calls are mapped together and run; the program continues without waiting. If the block
    raises, calls that were not launched are dropped, and their handles raise `NotRun` from that exception.

    The error of a failed call is raised where its result, or one that depends on it, is read: by `Handle.get`, and so
    does `wait`; `report` lists all. Failures that the program did not read in these ways are listed by an
    `UnreadErrorWarning`, when the grid is closed or the next group begun after the group is gone.

    Notes
    -----
    An array argument is copied when its call is recorded, so it may be changed afterwards. The same array passed to
    several calls of one block is copied and sent once for as long as it does not change. Memory of `Grid.empty` is not copied: it must not be changed until the results are there.

    The records for the report (about a kilobyte a call) are freed with the group and its last handle. A program
    that makes calls in an endless loop therefore opens a group for each round rather than one for all.
    """

    _why = "a gridloom.Group is of a session of this process"
    _remedy = "pass its report(), or results that get() fetched"

    def __init__(
        self,
        session: SessionState,
        raw: _gridloom.RawGroup,
        heuristic: str | Plan | Heuristic,
        *,
        delayed: bool = False,
        is_described: bool = False,
        progress: bool = False,
    ) -> None:
        self._session = session
        self._raw = raw
        self._heuristic = heuristic
        self._entered: list[Token[Recorder | None]] = []
        self._raised: BaseException | None = None
        # Differences from a described graph: of how many the program was warned, or None if there is no graph.
        self._warned: int | None = 0 if is_described else None
        # Shown in notebooks: calls made, which of them were discarded, how many are known to have ended, and from the last
        # report predicted and measured seconds, failed tasks and groups that were mapped together.
        self._is_delayed = delayed
        self._calls = 0
        self._forgotten: list[range] = []
        self._ended = 0
        self._times: tuple[float, float, int, int] | None = None
        # How many calls that report was of.
        self._reported = 0
        self._progress = progress
        self._watch: Watch | None = None
        # How many calls the bar is of.
        self._watched = 0

    def __enter__(self) -> Group:
        self._entered.append(self._session.current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._entered:
            raise UsageError("the group's block was not entered")
        self._session.current.reset(self._entered.pop())
        if kind is None:
            self._begin_bar()
            self._raw.finish()
            self._warn("", 3)
        else:
            self._raised = error
            text = f"{kind.__name__}: {error}".splitlines()[0].rstrip(": ")
            self._forget(f"the block of its group raised {text}")

    def _record(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raw = self._raw.record(function._raw, args, kwargs)
        if self._warned == 0:
            self._warn(", and is mapped by itself", 4)
        self._calls += 1
        handles = tuple(Handle(one, self, function.name, self._calls) for one in raw)
        if len(handles) == 1:
            return handles[0]
        return handles or None

    def _warn(self, what: str, level: int) -> None:
        """Warn of differences of which the program was not warned yet."""
        if self._warned is None:
            return
        texts = self._raw.differences()[1]
        if new := texts[self._warned :]:
            more = f" (and {len(new) - 1} more: see Group.differences)" if len(new) > 1 else ""
            warnings.warn(f"{new[0]}{more}{what}", DifferenceWarning, stacklevel=level)
        self._warned = len(texts)

    @property
    def differences(self) -> list[Difference]:
        """How the calls differed so far from those described, of a group with a graph."""
        return [Difference(**difference) for difference in self._raw.differences()[0]]

    @property
    def followed(self) -> Plan | None:
        """The plan that calls take their places in, of a group with a graph."""
        raw = self._raw.described_plan()
        return None if raw is None else plan_of(raw)

    def launch(self) -> None:
        """Map the calls recorded so far and run them, without waiting. Recording can continue.

        Raises
        ------
        UsageError
            If the session is closed.
        """
        self._begin_bar()
        self._raw.launch()

    def _begin_bar(self) -> None:
        if self._progress and self._watch is None and self._calls > self._watched:
            self._watch = bars.of_group(self._counts)
            if self._watch is not None:
                self._session.watches.add(self._watch)
        self._watched = self._calls

    def _end_bar(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()

    def _counts(self) -> tuple[int, int, int, bool]:
        """How many calls were made and not discarded, have ended and have failed, and whether all have ended."""
        _, ended, failed, is_over = self._raw.progress()
        calls = self._calls - sum(map(len, self._forgotten))
        return calls, ended, failed, is_over and ended >= calls and not self._entered

    def discard(self) -> None:
        """Drop the calls that were recorded and not launched."""
        self._forget(None)

    def _forget(self, why: str | None) -> None:
        last = self._calls
        recorded = self._raw.recorded()
        self._raw.discard(why)
        if recorded:
            self._forgotten.append(range(last - recorded + 1, last + 1))

    def wait(self) -> None:
        """Wait until all calls have ended; recorded calls are launched first.

        Raises
        ------
        TaskError
            The error of the first call that failed.
        """
        self._begin_bar()
        try:
            self._raw.wait()
        finally:
            self._end_bar()
        self._ended = self._calls

    def cancel(self) -> None:
        """Cancel all calls that have not ended. Their handles then raise `Cancelled`."""
        self._raw.cancel()

    def report(self) -> Report:
        """Return predictions and measurements, after the end of all calls.

        Returns
        -------
        Report
            Failed calls are in it.

        Raises
        ------
        UsageError
            If the session is closed.
        """
        self._begin_bar()
        try:
            report = Report(self._raw.report())
        finally:
            self._end_bar()
        self._ended = self._calls
        self._times = (report.predicted_seconds, report.measured_seconds, report.tasks_failed, report.together)
        self._reported = self._calls
        return report

    def plan(self, heuristic: str | Plan | Heuristic | None = None, *, map_timeout: float | None = MAP_TIMEOUT) -> Plan:
        """Return the plan that the agent makes for the calls that were recorded and not launched; nothing is run.

        Parameters
        ----------
        heuristic : str, Plan or function, optional
            As `Grid.group` takes it, to compare; by default the group's own, whose plan will run.
        map_timeout : float or None, optional
            Seconds of real time that a function of your own may take to map; ``None`` for no limit.

        Returns
        -------
        Plan
            Tasks and transfers with predicted times. It can be printed, drawn, explained, saved, edited and run.

        Raises
        ------
        NotRun
            If they cannot be mapped, or the plan is not one of these calls.
        InputError
            If there is no such heuristic.
        UsageError
            If all calls were launched already, as they are at the end of the block: `Group.report` has the plans that
            ran.

        Warns
        -----
        RuntimeWarning
            If the client needs more memory for arguments and returned results than it can use (`Plan.client_memory`).
        """
        mapping = mapping_of(self._heuristic if heuristic is None else heuristic, map_timeout)
        plan = plan_of(self._raw.plan(mapping))
        memory = memory_of(plan)
        if memory is not None and memory.is_exceeded:
            needed, available = memory.needed_bytes, memory.available_bytes
            message = (
                f"the client needs {needed:,} bytes for arguments and returned results, but can use {available:,}; "
                "let results stay on servers, or divide the group"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return plan

    def __len__(self) -> int:
        """Calls recorded and not launched."""
        return self._raw.recorded()

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if self._session.is_closed:
            return "<gridloom.Group: its grid is closed>"
        return f"<gridloom.Group: {self._state()}>"

    def _repr_html_(self) -> str:
        if self._can_report():
            self.report()
        times = self._times if self._reported == self._calls else None
        ended = None
        if times is None and not self._session.is_closed:
            calls, count, _, is_over = self._counts()
            ended = count, 0 if is_over else calls
        simulated = self._session.raw.simulated
        return of_group(self._state(), self._calls, self._heuristic, simulated=simulated, times=times, ended=ended)

    def _call_state(self, call: int) -> str:
        if self._session.is_closed:
            return "its grid is closed"
        if any(call in calls for calls in self._forgotten):
            return "discarded"
        if call > self._calls - len(self):
            return "recorded"
        _, ended = self._progress_text()
        if call <= self._ended or ended:
            return "ended"
        return self._delay_text() or "launched"

    def _state(self) -> str:
        """State of the group in words, as far as it is known without waiting."""
        if self._session.is_closed:
            return "its grid is closed"
        if self._entered:
            return f"recording: {len(self)} not launched"
        if self._raised is not None:
            return f"its block raised {type(self._raised).__name__}: {self._raised}"
        if recorded := len(self):
            return f"{recorded} not launched"
        if not self._calls:
            return "no calls"
        return "ended" if self._ended == self._calls else self._delay_text() or self._progress_text()[0]

    def _progress_text(self) -> tuple[str, bool]:
        """Progress of the launched calls in words, and whether all have ended."""
        calls, ended, failed, is_over = self._counts()
        if is_over:
            self._ended = self._calls
        failures = f", {failed} failed" if failed else ""
        return (f"ended{failures}" if is_over else f"running: {ended} of {calls} calls ended{failures}"), is_over

    def _delay_text(self) -> str:
        """The state of calls that wait for the next bodies of a loop; empty if they were launched."""
        return "held back for the next bodies of its loop" if self._is_delayed and not self._raw.progress()[0] else ""

    def _can_report(self) -> bool:
        """Whether a report waits for nothing, takes no time, and hides no error that the program has not read."""
        if self._session.is_closed or not self._reported < self._calls <= _REPORTED_MAX:
            return False
        _, _, failed, is_over = self._counts()
        return is_over and not failed and not len(self)

    def _show_now(self) -> tuple[str, bool]:
        try:
            markup = self._repr_html_()
        except GridloomError:  # the session was closed just now, and says so
            markup = self._repr_html_()
        is_over = self._ended == self._calls and not self._entered
        return markup, not (is_over or self._session.is_closed or self._session.raw.simulated or self._raised is not None)

    def _ipython_display_(self) -> None:
        notebook.show_live(self)
