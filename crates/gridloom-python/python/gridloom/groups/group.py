"""Groups of calls, and handles of their results."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Generator
from contextvars import Token
from typing import TYPE_CHECKING, Any

from . import _gridloom, _html, _notebook, _progress
from ._checks import seconds
from ._completed import awaited
from ._errors import DifferenceWarning, Discarded, GridloomError, UsageError, WaitTimedOut
from ._heuristic import MAP_TIMEOUT, Heuristic, mapping_of
from ._pickles import OfSession
from ._plan import Plan, plan_of
from ._remote_value import RemoteValue
from ._report import Difference, Report

if TYPE_CHECKING:
    from types import TracebackType

    from ._bars import Watch
    from ._ends import Ends
    from ._function import Function
    from ._grid import Grid


# Handles that were pickled, and what names this process to those that unpickle one.
_referred: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
_process = os.urandom(16)


def _renew() -> None:
    global _process
    _process = os.urandom(16)


os.register_at_fork(after_in_child=_renew)


def _referred_to(process: bytes, number: int) -> Handle:
    handle = _referred.get(number) if process == _process else None
    if handle is None:
        why = "it is of another process" if process != _process else "the program has dropped it"
        raise UsageError(f"{Handle._why}, and a pickle of it is a reference: {why}; {Handle._remedy}")
    return handle


# A display has the times of a group of so many calls at most without being asked for them.
_REPORTED_MAX = 10_000


class Handle(RemoteValue):
    """A result that is, or will be, on some server. It is released there when the last reference to it is gone.

    A handle can be passed to further calls, in its group, in another or outside any: the value stays on the servers then.
    `get` brings it here, and ``await h`` does so without blocking the event loop.

    Operators and functions of Python that need the value get it too, and give values: ``h + 1``, ``h < 1``, ``h == 1``,
    ``if h:``, ``h[0]``, ``for x in h:``, ``float(h)``, ``abs(h)``, ``sum([h, h])``, ``f"{h:.2f}"``, ``numpy.sqrt(h)``. What the
    group has recorded so far is mapped and run then, and recording goes on. Two handles are equal (``==``) if they are the
    same: write ``a.get() == b.get()`` to compare two results. Methods and attributes of the value need `get`: ``h.get().T``.
    """

    _why = "a gridloom.Handle stands for a value on a server"
    _remedy = "fetch the value, and pass its .get()"

    # How its call ended, as far as the program has asked for it.
    _end = ""

    def __init__(self, raw: _gridloom.RawHandle, group: Group, name: str, call: int) -> None:
        self._raw = raw
        self._group = group
        self._name = name
        # Which of the group's calls it is of, from 1.
        self._call = call
        # Whether it is here, or known that there is none.
        self._ended = False

    def get(self, timeout: float | None = None, *, progress: bool = False) -> Any:
        """Wait for the result and bring it here.

        Parameters
        ----------
        timeout : float, optional
            How long to wait at most, seconds. Nothing is cancelled after that, and a later `get` works.
        progress : bool, optional
            Whether a terminal or notebook shows how much of the value has come, while it is on its way over the network.

        Returns
        -------
        numpy.ndarray, number, str or bytes
            As the function's signature says. An array maps the memory in which it arrived, and writing to it changes
            nothing but itself. Under simulation without bodies it is zero.

        Raises
        ------
        TaskError
            If its task, or one that it depends on, gave no result.
        Discarded
            If its call never ran, because the block of its group raised; that exception is the cause.
        WaitTimedOut
            If it is not here after `timeout` seconds.
        UsageError
            If `timeout` is no time: negative or no number.
        """
        watch = _progress.of_result(self._raw, self._name) if _progress.wanted(progress) else None
        try:
            return self._fetch(seconds("timeout", timeout))
        except Discarded as error:
            raise error from self._group._raised
        finally:
            if watch is not None:
                watch.end()

    def __reduce__(self) -> Any:
        # A reference to itself in this process.
        _referred[id(self)] = self
        return _referred_to, (_process, id(self))

    def _fetch(self, limit: float | None) -> Any:
        try:
            value = self._raw.get(limit)
        except WaitTimedOut:
            raise
        except Exception as error:
            self._ended, self._end = True, f"failed: {type(error).__name__}: {error}"
            raise
        self._ended, self._end = True, "fetched"
        return value

    @property
    def _ends(self) -> Ends:
        return self._group._grid._ends

    def _when_ended(self, callback: Callable[[], None]) -> None:
        self._ends.results.note(self, callback)

    def _drop(self, callback: Callable[[], None]) -> None:
        self._ends.results.drop(self, callback)

    def prefetch(self) -> None:
        """Have the value brought here as soon as it is made, and return at once.

        Of several results that are all wanted, each can then come while others are still being made: predictions of plans take
        it so. That the call fails is told by `get`.

        Raises
        ------
        Discarded
            If its call never ran, because the block of its group raised; that exception is the cause.
        """
        try:
            self._raw.prefetch()
        except Discarded as error:
            raise error from self._group._raised

    def __repr__(self) -> str:
        return f"<gridloom.Handle: {self._raw} of {self._name}>"

    def __await__(self) -> Generator[Any, None, Any]:
        return awaited(self).__await__()

    def _repr_html_(self) -> str:
        return _html.of_handle(self)

    def _state(self) -> str:
        """How far its call is, as far as that is known without waiting."""
        group = self._group
        if self._end:
            return self._end
        if group._grid._closed:
            return "its grid is closed"
        if any(self._call in calls for calls in group._forgotten):
            return "discarded"
        if self._call > group._calls - len(group):
            return "recorded"
        _, ended = group._sent()
        if self._call <= group._ended or ended:
            return "ended"
        return group._held() or "launched"

    def __len__(self) -> int:
        if self._raw.kind == "array" and self.shape:
            return self.shape[0]
        return len(self.get())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            own = getattr(type(self), name, None)
            if isinstance(own, property):  # it has said why it has no value
                return own.__get__(self)
            # What looks for a protocol asks for names with underscores.
            remedy = "" if name.startswith("_") else f"; if its value has it, write .get().{name}"
            raise AttributeError(f"a gridloom.Handle has no attribute '{name}'{remedy}", name=name, obj=self)


class Group(OfSession):
    """Calls that are recorded, then mapped together: ``with grid.group() as group:``.

    Inside the block, in the thread that entered it, every call of a function of the grid is recorded and gives handles at
    once. At the end of the block the calls are mapped together and run; the program goes on without waiting. If the block
    raises, what was not launched is forgotten, and its handles raise `Discarded` from that exception.

    A call that fails says so where its result, or one that depends on it, is read: `Handle.get` raises its error, and so
    does `wait`; `report` lists all. Failures of which the program read nothing in these ways are told by an
    `UnreadErrorWarning`, when the grid is closed or the next group begun after the group is gone.

    Notes
    -----
    An array argument is copied when its call is recorded, so it may be changed afterwards. The same array passed to
    several calls of one block is copied and sent once for as long as it does not change. Memory of `Grid.empty` is not copied: it must not be changed until the results are there.

    What is noted for the report (about a kilobyte a call) is forgotten with the group and the last handle of it. A program
    that makes calls for ever therefore opens a group for each round rather than one for all.
    """

    _why = "a gridloom.Group is of a session of this process"
    _remedy = "pass its report(), or results that get() fetched"

    def __init__(
        self,
        grid: Grid,
        raw: _gridloom.RawGroup,
        heuristic: str | Plan | Heuristic,
        *,
        held_back: bool = False,
        progress: bool = False,
    ) -> None:
        self._grid = grid
        self._raw = raw
        self._heuristic = heuristic
        self._entered: list[Token[Group | None]] = []
        self._raised: BaseException | None = None
        # Differences from a described graph: how many were told, or None if there is no graph.
        self._told: int | None = None
        # What notebooks show: calls made, which of them were discarded, how many have ended for certain, and what the last
        # report said (predicted and measured seconds, failed tasks, groups mapped together).
        self._held_back = held_back
        self._calls = 0
        self._forgotten: list[range] = []
        self._ended = 0
        self._course: tuple[float, float, int, int] | None = None
        # How many calls that report was of.
        self._reported = 0
        self._progress = progress
        self._watch: Watch | None = None
        # How many calls the bar is of.
        self._watched = 0

    def __enter__(self) -> Group:
        self._entered.append(self._grid._current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._entered:
            raise UsageError("the group's block was not entered")
        self._grid._current.reset(self._entered.pop())
        if kind is None:
            self._begin_bar()
            self._raw.finish()
            self._tell("", 3)
        else:
            self._raised = error
            told = f"{kind.__name__}: {error}".splitlines()[0].rstrip(": ")
            self._forget(f"the block of its group raised {told}")

    def _record(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raw = self._raw.record(function._raw, args, kwargs)
        if self._told == 0:
            self._tell(", and is mapped by itself", 4)
        self._calls += 1
        handles = tuple(Handle(one, self, function.name, self._calls) for one in raw)
        if len(handles) == 1:
            return handles[0]
        return handles or None

    def _tell(self, what: str, level: int) -> None:
        """Warn of differences that were not told."""
        if self._told is None:
            return
        told = self._raw.differences()[1]
        if new := told[self._told :]:
            more = f" (and {len(new) - 1} more: see Group.differences)" if len(new) > 1 else ""
            warnings.warn(f"{new[0]}{more}{what}", DifferenceWarning, stacklevel=level)
        self._told = len(told)

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
        """Map what was recorded so far and run it, without waiting. Recording can go on.

        Raises
        ------
        UsageError
            If the session is closed.
        """
        self._begin_bar()
        self._raw.launch()

    def _begin_bar(self) -> None:
        if self._progress and self._watch is None and self._calls > self._watched:
            self._watch = _progress.of_group(self)
            if self._watch is not None:
                self._grid._watches.add(self._watch)
        self._watched = self._calls

    def _end_bar(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()

    def _come(self) -> tuple[int, int, int, bool]:
        """Tell how many calls were made and not discarded, have ended, and have failed; and whether all have ended."""
        _, ended, failed, is_over = self._raw.progress()
        calls = self._calls - sum(map(len, self._forgotten))
        return calls, ended, failed, is_over and ended >= calls and not self._entered

    def discard(self) -> None:
        """Forget what was recorded and not launched."""
        self._forget(None)

    def _forget(self, why: str | None) -> None:
        last = self._calls
        recorded = self._raw.recorded()
        self._raw.discard(why)
        if recorded:
            self._forgotten.append(range(last - recorded + 1, last + 1))

    def wait(self) -> None:
        """Wait until all calls have ended; what is recorded and not launched is launched first.

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
        """Tell what was predicted and what was measured, after the end of all calls.

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
        self._course = (report.predicted_seconds, report.measured_seconds, report.tasks_failed, report.together)
        self._reported = self._calls
        return report

    def plan(self, heuristic: str | Plan | Heuristic | None = None, *, map_timeout: float | None = MAP_TIMEOUT) -> Plan:
        """Tell what the agent would do with the calls recorded and not launched; nothing is run.

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
        NotMapped
            If they cannot be mapped, or the plan is not one of these calls.
        InputError
            If there is no such heuristic.
        UsageError
            If all calls were launched already, as they are at the end of the block: `Group.report` has the plans that
            ran.
        """
        mapping = mapping_of(self._heuristic if heuristic is None else heuristic, map_timeout)
        return plan_of(self._raw.plan(mapping))

    def __len__(self) -> int:
        """Calls recorded and not launched."""
        return self._raw.recorded()

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if self._grid._closed:
            return "<gridloom.Group: its grid is closed>"
        return f"<gridloom.Group: {self._state()}>"

    def _repr_html_(self) -> str:
        return _html.of_group(self)

    def _state(self) -> str:
        """How far it is, as far as that is known without waiting."""
        if self._grid._closed:
            return "its grid is closed"
        if self._entered:
            return f"recording: {len(self)} not launched"
        if self._raised is not None:
            return f"its block raised {type(self._raised).__name__}: {self._raised}"
        if recorded := len(self):
            return f"{recorded} not launched"
        if not self._calls:
            return "no calls"
        return "ended" if self._ended == self._calls else self._held() or self._sent()[0]

    def _sent(self) -> tuple[str, bool]:
        """How far calls are that were launched, and whether all have ended."""
        calls, ended, failed, is_over = self._come()
        if is_over:
            self._ended = self._calls
        told = f", {failed} failed" if failed else ""
        return (f"ended{told}" if is_over else f"running: {ended} of {calls} calls ended{told}"), is_over

    def _held(self) -> str:
        """What is to be said if they are not launched yet."""
        return "held back for the next bodies of its loop" if self._held_back and not self._raw.progress()[0] else ""

    def _can_report(self) -> bool:
        """Whether a report waits for nothing, takes no time, and hides no error that the program has not read."""
        if self._grid._closed or not self._reported < self._calls <= _REPORTED_MAX:
            return False
        _, _, failed, is_over = self._come()
        return is_over and not failed and not len(self)

    def _show_now(self) -> tuple[str, bool]:
        try:
            markup = _html.of_group(self)
        except GridloomError:  # the session was closed just now, and says so
            markup = _html.of_group(self)
        is_over = self._ended == self._calls and not self._entered
        return markup, not (is_over or self._grid._closed or self._grid.simulated or self._raised is not None)

    def _ipython_display_(self) -> None:
        _notebook.show_live(self)
