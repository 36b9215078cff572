"""Times of functions, links and clocks: what a `Grid` has measured, and has measured for a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _gridloom
from ._calibration import Calibration, CalibrationCall, calibrate
from ._facts import Link, Simulation, Traffic, link_of
from ._function import Function


class Measured:
    """What a `Grid` knows of times, links and traffic, and its clock."""

    _raw: _gridloom.RawGrid

    def calibrate(
        self,
        function: str | Function,
        *,
        sizes: Mapping[str, int | tuple[int, int]] | None = None,
        values: Mapping[str, Any] | None = None,
        make: Callable[[dict[str, int]], Mapping[str, Any]] | None = None,
        error: float = 0.05,
        budget: float = 60.0,
        servers: Iterable[str] = (),
        progress: Callable[[CalibrationCall], object] | None = None,
    ) -> list[Calibration]:
        """Measure a function on its servers, until predictions of its time are as exact as asked for.

        Each server is measured only while it has nothing else to do; servers of one host take turns. What is measured is learned like
        any call: shared with the agent, and kept with the server's models. It ends with the last server, or with an exception
        of `progress` (or Ctrl-C: then after the call under way).

        Parameters
        ----------
        function : str or Function
            What is measured, as for `Grid.function`.
        sizes : dict of str to int or (int, int), optional
            Size arguments: ranges with both ends, which grow together, or fixed values. Others range from 16 to what fits the memory.
        values : dict of str to number, str, bytes or numpy.ndarray, optional
            Other arguments. A text has to be given; a number that is not is 1, and arrays are random.
        make : function, optional
            Makes all arguments, by name, from the sizes by name, instead of random ones; `sizes` then has the ranges that it takes, under
            any names. It is called from another thread.
        error : float, optional
            How far predictions within the range may be off, as a part of the time.
        budget : float, optional
            Time for each server, seconds. A call that is predicted to take more than a tenth of it is not made.
        servers : list of str, optional
            Names of the servers; all that offer the function if empty.
        progress : function, optional
            Is shown each call that was measured. It is called from another thread.

        Returns
        -------
        list of Calibration
            For each server how exactly the time is known, in order of name. One on which a call failed says so by `Calibration.failed`.

        Raises
        ------
        UnknownFunctionError
            If no server offers the function.
        UsageError
            If a server, a size or another argument is not known, a range, the error or the budget is none, or no arguments can be made.
        """
        name = function.name if isinstance(function, Function) else function
        return calibrate(self._raw, name, sizes or {}, values or {}, error, budget, servers, make, progress)

    def links(self) -> list[Link]:
        """Tell what the agent knows of the links between hosts, and of those to and from clients.

        Returns
        -------
        list of Link
            One for each direction that was measured. Servers measure links when they register, and transfers correct what is known.
        """
        return [link_of(told) for told in self._raw.links()]

    def traffic(self) -> Traffic:
        """Tell how many bytes were moved since the session began.

        Returns
        -------
        Traffic
            Over the client's links, between servers, and by pair.
        """
        return Traffic(**self._raw.traffic())

    def now(self) -> float:
        """Read the session's clock.

        Returns
        -------
        float
            Seconds: since 1970 for real, virtual in simulation.
        """
        return self._raw.now()

    def advance(self, seconds: float) -> None:
        """Let virtual time pass at the client, as if it computed for so long. Nothing happens on a real grid.

        Parameters
        ----------
        seconds : float
            How long, seconds.
        """
        self._raw.advance(seconds)

    def compute(self, work: float) -> None:
        """Let virtual time pass at the client, as if it computed so much on its host. Nothing happens on a real grid.

        Parameters
        ----------
        work : float
            How much, floating-point operations.
        """
        self._raw.compute(work)

    @property
    def simulated(self) -> bool:
        """Whether the grid is simulated."""
        return self._raw.simulated

    def simulation(self) -> Simulation | None:
        """Report on a simulated run so far.

        Returns
        -------
        Simulation or None
            ``None`` for a real grid.
        """
        record = self._raw.simulation()
        if record is None:
            return None
        record["groups"] = [tuple(group) for group in record["groups"]]
        return Simulation(**record)
