"""Handles: results of calls in groups."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .. import _gridloom
from ..calls.completion import Completions
from ..calls.remote_value import RemoteValue
from ..calls.session_state import SessionState
from ..calls.waits import awaited
from ..common.checks import seconds
from ..display import progress_bars as bars
from ..display.html import of_handle
from ..errors import NotRun, TimedOut, UsageError

# Handles that were pickled, and a token of this process for those that unpickle one.
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


class Owner(Protocol):
    """The group of a handle."""

    _session: SessionState
    _raised: BaseException | None

    def _call_state(self, call: int) -> str:
        """State of a call in words, as far as it is known without waiting."""


class Handle(RemoteValue):
    """A result that is, or will be, on some server. It is released there when the last reference to it is gone.

    A handle can be passed to further calls, in its group, in another or outside any: the value stays on the servers then.
    `get` brings it here, and ``await h`` does so without blocking the event loop.

    Operators and functions of Python that need the value get it too, and return values: ``h + 1``, ``h < 1``, ``h == 1``,
    ``if h:``, ``h[0]``, ``for x in h:``, ``float(h)``, ``abs(h)``, ``sum([h, h])``, ``f"{h:.2f}"``, ``numpy.sqrt(h)``. What the
    group has recorded so far is mapped and run then, and recording continues. Two handles are equal (``==``) if they are the
    same: write ``a.get() == b.get()`` to compare two results. Methods and attributes of the value need `get`: ``h.get().T``.
    """

    _why = "a gridloom.Handle stands for a value on a server"
    _remedy = "fetch the value, and pass its .get()"

    # How the call ended, if the program has asked for it.
    _end = ""

    def __init__(self, raw: _gridloom.RawHandle, group: Owner, name: str, call: int) -> None:
        self._raw = raw
        self._group = group
        self._name = name
        # Number of the call in the group, from 1.
        self._call = call
        # Whether the value is here, or it is known that there is none.
        self._ended = False

    def get(self, timeout: float | None = None, *, progress: bool = False) -> Any:
        """Wait for the result and bring it here.

        Parameters
        ----------
        timeout : float, optional
            How long to wait at most, seconds. Nothing is cancelled after that, and a later `get` works.
        progress : bool, optional
            Whether a terminal or notebook shows the progress of the transfer.

        Returns
        -------
        numpy.ndarray, number, str or bytes
            As the function's signature says. An array maps the memory in which it arrived, and writing to it changes
            nothing but itself. Under simulation without bodies it is zero.

        Raises
        ------
        TaskError
            If its task, or one that it depends on, failed.
        NotRun
            If its call never ran: because the block of its group raised, which is the cause; because a call that it depends on failed; or
            because its group could not be mapped.
        TimedOut
            If it is not here after `timeout` seconds.
        UsageError
            If `timeout` is no time: negative or no number.
        """
        watch = bars.of_result(self._raw.moving, self._name) if bars.wanted(progress) else None
        try:
            return self._fetch(seconds("timeout", timeout))
        except NotRun as error:
            if error.reason != "discarded":
                raise
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
        except Exception as error:
            if isinstance(error, TimedOut) and error.is_wait:
                raise
            self._ended, self._end = True, f"failed: {type(error).__name__}: {error}"
            raise
        self._ended, self._end = True, "fetched"
        return value

    @property
    def _completions(self) -> Completions:
        return self._group._session.completions

    def _when_ended(self, callback: Callable[[], None]) -> None:
        self._completions.results.subscribe(self, callback)

    def _drop(self, callback: Callable[[], None]) -> None:
        self._completions.results.unsubscribe(self, callback)

    def prefetch(self) -> None:
        """Begin to fetch the value as soon as it is computed, and return at once.

        If several results are wanted, some can be transferred while others are still being computed; predictions of plans assume
        this. If the call fails, `get` raises the error.

        Raises
        ------
        NotRun
            If its call never ran: because the block of its group raised, which is the cause; because a call that it depends on failed; or
            because its group could not be mapped.
        """
        try:
            self._raw.prefetch()
        except NotRun as error:
            if error.reason != "discarded":
                raise
            raise error from self._group._raised

    def __repr__(self) -> str:
        return f"<gridloom.Handle: {self._raw} of {self._name}>"

    def __await__(self) -> Generator[Any, None, Any]:
        return awaited(self).__await__()

    def _repr_html_(self) -> str:
        type_string = self._raw.type_string
        dtype = None if type_string is None else np.dtype(type_string)
        return of_handle(self._name, self._state(), self._raw.kind, self._raw.shape, dtype)

    def _state(self) -> str:
        """State of the call, as far as it is known without waiting."""
        return self._end or self._group._call_state(self._call)

    def __len__(self) -> int:
        if self._raw.kind == "array" and self.shape:
            return self.shape[0]
        return len(self.get())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            own = getattr(type(self), name, None)
            if isinstance(own, property):  # it has said why it has no value
                return own.__get__(self)
            # Names with underscores are asked for by code that looks for a protocol.
            remedy = "" if name.startswith("_") else f"; if its value has it, write .get().{name}"
            raise AttributeError(f"a gridloom.Handle has no attribute '{name}'{remedy}", name=name, obj=self)
