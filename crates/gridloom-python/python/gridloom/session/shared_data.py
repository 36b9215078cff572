"""Shared data: named values that every program of a grid finds."""

from __future__ import annotations

import dataclasses
import operator
import os
from typing import TYPE_CHECKING, Any

from . import _gridloom
from ._checks import seconds, whole
from ._errors import ArgumentError
from ._function import Future
from ._remote_value import RemoteValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from ._ends import Ends


REPLICAS_MAX = 16


@dataclasses.dataclass(frozen=True)
class SharedName:
    """A name in the list that `Grid.names` gives.

    Attributes
    ----------
    name : str
    version : int
        1 for the first value that was put under the name, and one more for each that has replaced it.
    kind : str
        What it is, such as ``float64[1000, 1000]`` or ``12 bytes``.
    nbytes : int
        Its size, bytes.
    replicas : int
        How many servers keep it.
    servers : tuple of str
        Servers with a copy.
    """

    name: str
    version: int
    kind: str
    nbytes: int
    replicas: int
    servers: tuple[str, ...]


class SharedValue(RemoteValue):
    """One version of a shared name, as `Grid.find` gives it. It stays on its servers while this object lives.

    As an argument of a call it goes from a server that has it to the one that runs the call, and not through the program. Operators
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
        DatumLost
            If no server has it any more.
        WaitTimedOut
            If it is not here after `timeout` seconds.
        """
        return self._raw.get(seconds("timeout", timeout))

    def __repr__(self) -> str:
        return f"<gridloom.SharedValue '{self._name}': {self._raw}>"


class SharedData:
    """What a `Grid` does with shared names. A name that is none is an `ArgumentError`, and without an agent there is `ConnectError`."""

    _raw: _gridloom.RawGrid
    _ends: Ends

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
        """Put a value on a server under a name. When this returns, every program of the grid finds it.

        It stays there until it is deleted, whatever becomes of this program. Values never change: with `replace` the name gets a new
        version, and programs that have found the old one keep it.

        Parameters
        ----------
        name : str
            1 to 1,024 bytes without control characters.
        value : array, number, str, bytes, path or handle
            An array of numbers, a number, a text or bytes; the bytes of the file that a `pathlib.Path` leads to; or the result of a
            call (a `Handle`), which goes straight from its server to the one that keeps it. Other objects as the bytes that
            ``pickle.dumps`` makes of them; unpickle only what programs that you trust have put.
        replace : bool, optional
            Whether a name that exists gets a new version.
        replicas : int, optional
            How many servers keep it, 1 to 16, on different hosts if there are as many. The value survives the loss of all but one of
            them; for one that is lost, another gets it. The put ends when all of them have it.
        durable : bool, optional
            Whether its servers keep it also when they end: on servers that have a folder for that (``gridloom serve --durable DIR``). The
            put ends when it is on their disks.
        method : str, optional
            How it gets to the servers that read it: ``"direct"`` from servers that have it, ``"tree"`` also from servers that it comes
            to, ``"swarm"`` in two slices at a time, each from another server, ``"storage"`` through a folder that servers share
            (``gridloom serve --storage DIR``), or ``"auto"``: the one of the first three that takes the least time, as predicted.

        Raises
        ------
        NameExists
            If the name exists and `replace` is not given, or a call that runs again puts another value.
        NoRoomToShare
            If too few servers have room: shared data take at most half of what a server stores. With `durable`, if too few servers have
            a folder for such data.
        ArgumentError
            If `name` or `value` is none, or there is no such method.

        Examples
        --------
        >>> with gl.local() as grid:                             # doctest: +SKIP
        ...     grid.put("mesh", np.arange(6.0))
        ...     grid.get("mesh").sum()
        15.0
        """
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
    ) -> Future:
        """Begin a `put`, and do not wait. Several go on at once.

        An array is copied before this returns, but for one of `Grid.empty`: do not write to that one before the put has ended.

        Parameters
        ----------
        name, value, replace, replicas, durable, method
            As for `put`.

        Returns
        -------
        Future
            Its result is ``None``, and its errors are those of `put`. It can be awaited. If nothing holds it, the put goes on. After
            `Future.cancel` the name may be there all the same, if that comes late.

        Raises
        ------
        ArgumentError
            If `value` is none, or `name` is no text.

        Examples
        --------
        >>> puts = [grid.begin_put(f"part/{i}", part) for i, part in enumerate(parts)]     # doctest: +SKIP
        >>> gl.wait(puts)                                        # doctest: +SKIP
        """
        put = self._begin_put(name, value, (replace, replicas, durable, method))
        return Future(put, self._ends, f"put of '{name}'")

    def _begin_put(self, name: str, value: Any, how: tuple[bool, int, bool, str]) -> _gridloom.RawBegun:
        replace, replicas, durable, method = how
        options = (replace, whole("replicas", replicas, 1, REPLICAS_MAX), bool(durable), _text("method", method))
        if isinstance(value, os.PathLike):
            return _gridloom.begin_put_file_shared(self._raw, _text("name", name), os.fspath(value), options)
        return _gridloom.begin_put_shared(self._raw, _text("name", name), value, options)

    def get(self, name: str, /, *, rows: slice | None = None, timeout: float | None = None) -> Any:
        """Get the value of a name. Waits until a program has put it.

        Parameters
        ----------
        name : str
        rows : slice, optional
            Which rows of an array (along its first axis), or which of some bytes. Only these move. The array must lie in memory row
            by row, and the slice has no step.
        timeout : float, optional
            How long to wait for it to be put, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        numpy.ndarray, number, str or bytes
            As it was put.

        Raises
        ------
        UnknownName
            If nobody has put it in that time. The error has names that look like it.
        SharedDataLost
            If all servers that had it are gone, and nobody has put it again in that time.
        UsageError
            If `rows` are given and it is a number or a text, or lies column by column.

        Examples
        --------
        >>> grid.get("mesh", rows=slice(100, 200)).shape         # doctest: +SKIP
        (100, 3)
        """
        if rows is not None:
            return _gridloom.get_shared_rows(self._raw, _text("name", name), _ends(rows), seconds("timeout", timeout))
        return self.find(name, timeout=timeout).get()

    def begin_get(self, name: str, /, *, timeout: float | None = None) -> Future:
        """Begin a `get`, and do not wait. The value comes as soon as a program has put the name.

        In a function it comes to the function alone, where `get` brings it to the function's server.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long to wait for the name to be put, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        Future
            Its result is the value, and its errors are those of `get`. It can be awaited. The get ends with the last reference to it.

        Examples
        --------
        >>> mesh, load = grid.begin_get("mesh"), grid.begin_get("load")                    # doctest: +SKIP
        >>> solve(mesh.get(), load.get())                        # doctest: +SKIP
        >>> async def read():
        ...     return await asyncio.gather(grid.begin_get("mesh"), grid.begin_get("load"))
        """
        raw = _gridloom.begin_get_shared(self._raw, _text("name", name), seconds("timeout", timeout))
        return Future(raw, self._ends, f"get of '{name}'")

    def wait(self, name: str, /, *, timeout: float | None = None) -> None:
        """Wait until a program has put a name. Nothing moves.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long at most, seconds; 0 for not at all. Without it, for ever.

        Raises
        ------
        UnknownName
            If nobody has put it in that time. The error has names that look like it.
        SharedDataLost
            If all servers that had it are gone, and nobody has put it again in that time.
        """
        _gridloom.begin_wait_shared(self._raw, _text("name", name), seconds("timeout", timeout)).result(None)

    def begin_wait(self, name: str, /, *, timeout: float | None = None) -> Future:
        """Begin a `wait` for a name. Nothing moves.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long to wait for the name at most, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        Future
            Its result is ``None``, and its errors are those of `wait`. It can be awaited. The wait ends with the last reference to it.
        """
        raw = _gridloom.begin_wait_shared(self._raw, _text("name", name), seconds("timeout", timeout))
        return Future(raw, self._ends, f"wait for '{name}'")

    def find(self, name: str, /, *, timeout: float | None = None) -> SharedValue:
        """Find the current version of a name, as an argument of calls. Waits until a program has put it, as `get` does.

        The value stays on its servers: the program gets its description. Only in a function that runs on a server it comes to that
        server, for all functions there.

        Parameters
        ----------
        name : str
        timeout : float, optional
            How long to wait for it to be put, seconds; 0 for not at all. Without it, for ever.

        Returns
        -------
        SharedValue
            It stands for the version that was found, also after the name has another one or was deleted.

        Raises
        ------
        UnknownName
            If nobody has put it in that time. The error has names that look like it.
        SharedDataLost
            If all servers that had it are gone, and nobody has put it again in that time.

        Examples
        --------
        >>> mesh = grid.find("mesh")                             # doctest: +SKIP
        >>> with grid.group():                                   # doctest: +SKIP
        ...     parts = [solve(mesh, step) for step in range(8)]
        """
        return SharedValue(_gridloom.find_shared(self._raw, _text("name", name), seconds("timeout", timeout)), name)

    def place(self, name: str, /, servers: str | Iterable[str] | None = None) -> None:
        """Take copies of a name's current version to servers, before calls read it there.

        The servers get it from one another, so it takes little longer than one transfer. The copies stay as long as there is room.

        Parameters
        ----------
        name : str
        servers : str or iterable of str, optional
            The name of a server, or names of several. Without it, all servers that are not plain; none of an empty list.

        Raises
        ------
        UnknownName
            If nobody has put it.
        UsageError
            If there is no such server, or it is plain.
        SharedDataLost
            If all servers that had it are gone.
        TaskError
            If a server has no room, or is lost.
        """
        named = [servers] if isinstance(servers, str) else [_text("a server", server) for server in servers or ()]
        if named or servers is None:
            _gridloom.place_shared(self._raw, _text("name", name), named)

    def exists(self, name: str, /) -> bool:
        """Whether a program has put that name, and a server still has it. This asks the agent alone, and moves no data.

        Parameters
        ----------
        name : str

        Returns
        -------
        bool
        """
        return _gridloom.shared_exists(self._raw, _text("name", name))

    def delete(self, name: str, /) -> None:
        """Give up a name. Its bytes go when no program holds a `SharedValue` of it any more.

        Parameters
        ----------
        name : str

        Raises
        ------
        UnknownName
            If it does not exist.
        """
        _gridloom.delete_shared(self._raw, _text("name", name))

    def names(self, prefix: str = "") -> list[SharedName]:
        """List the names that begin with `prefix`, in order.

        Parameters
        ----------
        prefix : str, optional
            All names without it.

        Returns
        -------
        list of SharedName

        Examples
        --------
        >>> [one.name for one in grid.names("run/")]             # doctest: +SKIP
        ['run/1', 'run/2']
        """
        listed = _gridloom.list_shared(self._raw, _text("prefix", prefix))
        return [
            SharedName(name, version, kind, nbytes, replicas, tuple(servers))
            for name, version, kind, nbytes, replicas, servers in listed
        ]


def _ends(rows: Any) -> tuple[int | None, int | None]:
    """Give the ends of a slice of rows."""
    if not isinstance(rows, slice):
        raise ArgumentError(f"shared data: rows is a slice, such as slice(0, 10), got {type(rows).__name__} {rows!r:.64}")
    try:
        start, stop, step = (None if end is None else operator.index(end) for end in (rows.start, rows.stop, rows.step))
    except TypeError as error:
        raise ArgumentError(f"shared data: rows is a slice of whole numbers, got {rows!r:.64}") from error
    if step not in (None, 1):
        raise ArgumentError(f"shared data: rows is a slice without a step, got {rows!r:.64}; take every {step}th row of what has come")
    bounded = [None if end is None else max(-(2**63), min(end, 2**63 - 1)) for end in (start, stop)]
    return bounded[0], bounded[1]


def _text(what: str, value: Any) -> str:
    """Give a text."""
    if not isinstance(value, str):
        raise ArgumentError(f"shared data: {what} is a str, got {type(value).__name__} {value!r:.64}")
    return value
