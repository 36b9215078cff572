"""Functions, and calls of them under way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from . import _gridloom

if TYPE_CHECKING:
    from ._grid import Grid


class Future:
    """A plain call under way."""

    def __init__(self, raw: _gridloom.RawPending) -> None:
        self._raw = raw
        self._lock = threading.Lock()
        self._ended = False
        self._value: Any = None
        self._error: BaseException | None = None

    def get(self) -> Any:
        """Wait for the call's results.

        Returns
        -------
        numpy.ndarray, number, str, bytes, tuple of them, or None
            As the function's signature says; the same objects every time.

        Raises
        ------
        TaskError
            If the call failed, was cancelled, or exceeded its time limit.
        """
        with self._lock:
            if not self._ended:
                try:
                    self._value = self._raw.result()
                except KeyboardInterrupt:
                    raise
                except Exception as error:
                    self._error = error
                self._ended = True
        if self._error is not None:
            raise self._error
        return self._value

    def done(self) -> bool:
        """Tell whether the call has ended, however it did."""
        return self._ended or self._raw.done()

    def cancel(self) -> None:
        """Ask for the call to be cancelled; `get` then raises `Cancelled`, unless it ended before."""
        if not self._ended:
            self._raw.cancel()

    def __repr__(self) -> str:
        return f"<gridloom.Future: {'ended' if self._ended else 'under way'}>"


class Function:
    """A function that servers of the grid offer. ``help()`` of it shows its signature.

    Attributes
    ----------
    name : str
        ``module/function``.
    signature : str
        What it takes and gives.
    """

    def __init__(self, grid: Grid, raw: _gridloom.RawFunction) -> None:
        self._grid = grid
        self._raw = raw
        self.name: str = raw.name
        self.signature: str = raw.signature
        self.__name__ = self.name
        self.__doc__ = f"{raw.signature}\n\n{raw.about}".rstrip()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: now and by itself, or, inside the block of a group, record the call.

        Parameters
        ----------
        *args, **kwargs : numpy.ndarray, number, str, bytes or Handle
            By position come all inputs, or all but the sizes that follow from arrays. Arrays have exactly the element
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
            If the call failed.
        """
        group = self._grid._current.get()
        if group is not None:
            return group._record(self, args, kwargs)
        pending = self._raw.submit(args, kwargs, None)
        try:
            return pending.result()
        except KeyboardInterrupt:
            pending.cancel()
            raise

    def submit(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Future:
        """Call it now, by itself, without waiting. It is not recorded, even inside the block of a group.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        timeout : float, optional
            Time limit of the call, seconds.

        Returns
        -------
        Future
            The call under way.

        Raises
        ------
        ArgumentError
            If the arguments do not fit; nothing was sent then.
        """
        return Future(self._raw.submit(args, kwargs, timeout))

    def __repr__(self) -> str:
        return f"<gridloom.Function {self.signature}>"
