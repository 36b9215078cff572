"""Functions that servers of a grid offer."""

from __future__ import annotations

from typing import Any

from .. import _gridloom
from ..common.checks import checked_priority, checked_text, seconds
from ..common.session_objects import OfSession
from ..errors import UsageError
from .call_future import CallFuture
from .session_state import SessionState


class Function(OfSession):
    """A function that servers of the grid offer. ``help()`` of it shows its signature.

    Attributes
    ----------
    name : str
        ``module/function``.
    signature : str
        Parameters and results; after a semicolon, sizes that follow from the arrays.
    server : str or None
        The server that runs all calls, of a function that `on` returned.
    """

    _why = "a gridloom.Function is of a session of this process"
    _remedy = "open a session by gridloom.connect() where it is called, and find it there by its name"

    def __init__(self, session: SessionState, raw: _gridloom.RawFunction, server: str | None = None) -> None:
        self._session = session
        self._raw = raw
        self.server = server
        self.name: str = raw.name
        self.signature: str = raw.signature
        self.__name__ = self.name
        sizes = "After the semicolon stand sizes that follow from the arrays: they can be left out." if ";" in raw.signature else ""
        self.__doc__ = "\n\n".join(filter(None, [raw.signature, raw.about, sizes]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function now, or record the call inside the block of a group.

        Parameters
        ----------
        *args, **kwargs : numpy.ndarray, number, str, bytes or Handle
            ``timeout`` is the time limit of a call that is made now, seconds, as for `submit`, unless the function has an
            argument of that name. Positional arguments are all inputs, or all but the sizes that follow from arrays. Arrays have exactly the element
            type, the number of dimensions and the extents of the signature; byte order is free. Numbers convert if they
            keep their value; Python's ``float`` is rounded to the parameter's precision.

        Returns
        -------
        numpy.ndarray, number, str, bytes, tuple of them, or None
            The results; `Handle` in their places inside the block of a group.

        Raises
        ------
        ArgumentError
            If the arguments do not fit; nothing was sent then.
        TaskError
            If the call failed, or exceeded its time limit.
        UsageError
            If a recorded call is given a time limit (its handle's `get` takes one), or `timeout` is no time.
        """
        timeout = None
        if "timeout" in kwargs and not self._raw.takes("timeout"):
            timeout = seconds("timeout", kwargs.pop("timeout"))
        group = self._session.current.get()
        if group is not None:
            if timeout is not None:
                raise UsageError(
                    f"{self.name}: a recorded call has no time limit of its own; give one to its handle: get(timeout=...)"
                )
            return group._record(self, args, kwargs)
        pending = self._raw.submit(args, kwargs, timeout)
        try:
            return pending.result(None)
        except KeyboardInterrupt:
            pending.cancel()
            raise

    def on(self, server: str) -> Function:
        """Return the same function on that server and no other: a call fails if the server is lost.

        Parameters
        ----------
        server : str
            Its name, as `Grid.servers` has it.

        Returns
        -------
        Function
            To be called as this one.

        Raises
        ------
        InputError
            If there is no such server, or it does not offer the function.
        """
        return Function(self._session, self._raw.on(checked_text("on: the server", server)), server)

    def with_priority(self, priority: int) -> Function:
        """Return the same function with calls of that priority, also in groups.

        Among the waiting calls of one user at a server, those with the lowest number start first. Other users do not notice: their turns do
        not depend on priorities.

        Parameters
        ----------
        priority : int
            By default 0, or that of the running call if a function makes the call; -2**31 to 2**31 - 1.

        Returns
        -------
        Function
            To be called as this one.

        Raises
        ------
        UsageError
            If `priority` is no such number.
        """
        number = checked_priority(f"{self.name}: the priority", priority)
        return Function(self._session, self._raw.with_priority(number), self.server)

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> CallFuture:
        """Call it now, by itself, without waiting. It is not recorded, even inside the block of a group.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        timeout : float, optional
            Time limit of the call, seconds.

        Returns
        -------
        CallFuture
            The running call.

        Raises
        ------
        ArgumentError
            If the arguments do not fit; nothing was sent then.
        UsageError
            If `timeout` is no time: negative or no number.
        """
        return CallFuture(self._raw.submit(args, kwargs, seconds("timeout", timeout)), self._session.completions, self.name)

    def __repr__(self) -> str:
        return f"<gridloom.Function {self.signature}>"
