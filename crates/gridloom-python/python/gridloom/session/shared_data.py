"""Shared data: named values that programs of a grid find."""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

from .. import _gridloom
from ..calls.call_future import CallFuture
from ..calls.remote_value import RemoteValue
from ..calls.session_state import SessionState
from ..common.checks import checked_path, checked_text, seconds, whole
from ..errors import ArgumentError

REPLICAS_MAX = 16


@dataclasses.dataclass(frozen=True)
class SharedName:
    """A name in the list of `Grid.names`.

    Attributes
    ----------
    name : str
    version : int
        1 for the first value that was put under the name, and one more for each that has replaced it.
    kind : str
        Its type, such as ``float64[1000, 1000]`` or ``12 bytes``.
    nbytes : int
        Its size, bytes.
    replicas : int
        How many servers keep it.
    servers : tuple of str
        Servers with a copy.
    owner : str
        The user to whom it belongs.
    readers : tuple of str
        Users and groups with whom the owner has shared it; ``*`` is everybody. See `Grid.share`.
    """

    name: str
    version: int
    kind: str
    nbytes: int
    replicas: int
    servers: tuple[str, ...]
    owner: str
    readers: tuple[str, ...]


class SharedValue(RemoteValue):
    """One version of a shared name, as `Grid.find` returns it. It stays on its servers while this object exists.

    As an argument of a call it is sent from a server that has it to the one that runs the call, and not through the program. Operators
    and functions of Python that need the value get it, as with a `Handle`.
    """

    _why = "a gridloom.SharedValue is of a session of this process"
    _remedy = "pass its name, and find it there"

    def __init__(self, raw: _gridloom.RawHandle, name: str) -> None:
        self._raw = raw
        self._name = name

    @property
    def name(self) -> str:
        """The name under which it was found."""
        return self._name

    def get(self, timeout: float | None = None) -> Any:
        """Bring the value here.

        Parameters
        ----------
        timeout : float, optional
            How long to wait at most, seconds.

        Returns
        -------
        numpy.ndarray, number, str or bytes
            As it was put. An array maps the memory in which it arrived, and writing to it changes nothing but itself.

        Raises
        ------
        DataLost
            If no server has it any more.
        TimedOut
            If it is not here after `timeout` seconds.
        """
        return self._raw.get(seconds("timeout", timeout))

    def __repr__(self) -> str:
        return f"<gridloom.SharedValue '{self._name}': {self._raw}>"


class SharedData:
    """Shared names of a session.

    Parameters
    ----------
    session : SessionState
        The session.
    """

    def __init__(self, session: SessionState) -> None:
        self._session = session

    def put(
        self,
        name: str,
        value: npt.ArrayLike | str | bytes | os.PathLike[str],
        /,
        *,
        replace: bool = False,
        replicas: int = 1,
        durable: bool = False,
        method: str = "auto",
    ) -> None:
        """Put a value under a name, as `Grid.put`."""
        put = self._begin_put(name, value, (replace, replicas, durable, method))
        try:
            put.result(None)
        except KeyboardInterrupt:
            put.cancel()
            raise

    def begin_put(
        self,
        name: str,
        value: npt.ArrayLike | str | bytes | os.PathLike[str],
        /,
        *,
        replace: bool = False,
        replicas: int = 1,
        durable: bool = False,
        method: str = "auto",
    ) -> CallFuture:
        """Begin to put a value under a name, as `Grid.begin_put`."""
        put = self._begin_put(name, value, (replace, replicas, durable, method))
        return CallFuture(put, self._session.completions, f"put of '{name}'")

    def _begin_put(self, name: str, value: Any, how: tuple[bool, int, bool, str]) -> _gridloom.RawPendingNames:
        replace, replicas, durable, method = how
        options = (replace, whole("replicas", replicas, 1, REPLICAS_MAX), bool(durable), _text("method", method))
        if isinstance(value, os.PathLike):
            return _gridloom.begin_put_file_shared(self._session.raw, _text("name", name), checked_path("a file", value), options)
        return _gridloom.begin_put_shared(self._session.raw, _text("name", name), value, options)

    def get(self, name: str, /, *, rows: slice | None = None, timeout: float | None = None) -> Any:
        """Get the value of a name, as `Grid.get`."""
        if rows is not None:
            return _gridloom.get_shared_rows(self._session.raw, _text("name", name), _bounds(rows), seconds("timeout", timeout))
        return self.find(name, timeout=timeout).get()

    def begin_get(self, name: str, /, *, timeout: float | None = None) -> CallFuture:
        """Begin to get the value of a name, as `Grid.begin_get`."""
        raw = _gridloom.begin_get_shared(self._session.raw, _text("name", name), seconds("timeout", timeout))
        return CallFuture(raw, self._session.completions, f"get of '{name}'")

    def wait(self, name: str, /, *, timeout: float | None = None) -> None:
        """Wait until a name was put, as `Grid.wait`."""
        _gridloom.begin_wait_shared(self._session.raw, _text("name", name), seconds("timeout", timeout)).result(None)

    def begin_wait(self, name: str, /, *, timeout: float | None = None) -> CallFuture:
        """Begin to wait until a name was put, as `Grid.begin_wait`."""
        raw = _gridloom.begin_wait_shared(self._session.raw, _text("name", name), seconds("timeout", timeout))
        return CallFuture(raw, self._session.completions, f"wait for '{name}'")

    def find(self, name: str, /, *, timeout: float | None = None) -> SharedValue:
        """Find the current version of a name, as `Grid.find`."""
        return SharedValue(_gridloom.find_shared(self._session.raw, _text("name", name), seconds("timeout", timeout)), name)

    def place(self, name: str, /, servers: str | Iterable[str] | None = None) -> None:
        """Copy the current version of a name to servers, as `Grid.place`."""
        named = [servers] if isinstance(servers, str) else [_text("a server", server) for server in servers or ()]
        if named or servers is None:
            _gridloom.place_shared(self._session.raw, _text("name", name), named)

    def exists(self, name: str, /) -> bool:
        """Whether a name was put, as `Grid.exists`."""
        return _gridloom.shared_exists(self._session.raw, _text("name", name))

    def delete(self, name: str, /) -> None:
        """Delete a name, as `Grid.delete`."""
        _gridloom.delete_shared(self._session.raw, _text("name", name))

    def share(self, name: str, users: str | Iterable[str], /) -> None:
        """Share a name with users, as `Grid.share`."""
        named = [users] if isinstance(users, str) else [_text("a user", user) for user in users]
        _gridloom.share_name(self._session.raw, _text("name", name), named)

    def names(self, prefix: str = "") -> list[SharedName]:
        """List the names that begin with `prefix`, as `Grid.names`."""
        listed = _gridloom.list_shared(self._session.raw, _text("prefix", prefix))
        return [
            SharedName(name, version, kind, nbytes, replicas, tuple(servers), owner, tuple(readers))
            for name, version, kind, nbytes, replicas, servers, owner, readers in listed
        ]


def _bounds(rows: Any) -> tuple[int | None, int | None]:
    """First row and row after the last of a slice."""
    if not isinstance(rows, slice):
        raise ArgumentError(f"shared data: rows is a slice, such as slice(0, 10), got {type(rows).__name__} {rows!r:.64}")
    try:
        start, stop, step = (None if end is None else operator.index(end) for end in (rows.start, rows.stop, rows.step))
    except TypeError as error:
        raise ArgumentError(f"shared data: rows is a slice of whole numbers, got {rows!r:.64}") from error
    if step not in (None, 1):
        raise ArgumentError(f"shared data: rows is a slice without a step, got {rows!r:.64}; take every {step}th row of the result")
    bounded = [None if end is None else max(-(2**63), min(end, 2**63 - 1)) for end in (start, stop)]
    return bounded[0], bounded[1]


def _text(what: str, value: Any) -> str:
    """Return a text that is checked to be one."""
    return checked_text(f"shared data: {what}", value)
