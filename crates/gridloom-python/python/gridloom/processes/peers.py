"""Processes that talk by messages: the same program on real machines and in simulation.

>>> import gridloom as gl                                    # doctest: +SKIP
>>> @gl.message                                              # doctest: +SKIP
... class Work:
...     data: gl.Array["float64", "n"]
>>> @gl.process                                              # doctest: +SKIP
... def server(me):
...     me.listen(4000)
...     client, work = me.wait(Work)
...     client.send(Work(2 * work.data))
>>> @gl.process                                              # doctest: +SKIP
... def client(me, host):
...     server = me.connect(host, 4000)
...     server.send(Work(np.arange(3.0)))
...     print(server.wait(Work).data)
>>> gl.run_processes()                                       # doctest: +SKIP

``gridloom simulate -p PLATFORM -d DEPLOYMENT -- python program.py`` runs all processes of the deployment in virtual time;
``gridloom deploy -d DEPLOYMENT -- python program.py`` starts the program once for each of them.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from .. import _gridloom
from ..errors import ArgumentError, InputError, ProcessEnded, UsageError
from ..messages.declare import type_of

__all__ = ["Peer", "Process"]

Handler = Callable[["Peer", Any], object]
_Message = TypeVar("_Message")
_Handler = TypeVar("_Handler", bound=Callable[..., object])
_Value = TypeVar("_Value", str, bool, int, float)


class Peer:
    """The other end of a connection.

    Attributes
    ----------
    name : str
        ``function@host``, and the port if it was dialled.
    """

    def __init__(self, owner: Process, number: int) -> None:
        self._owner = owner
        self._number = number
        self.name: str = owner._raw.describe(number)

    @overload
    def send(self, message: object, /) -> None: ...

    @overload
    def send(self, kind: str, payload: bytes | str = b"") -> None: ...

    def send(self, kind: Any, payload: bytes | str = b"") -> None:
        """Send a message. The message is copied and queued when this returns.

        Parameters
        ----------
        kind : str or object
            Name of the message's type, for bytes; or an object of a class made by `gridloom.message`, which is the message.
        payload : bytes or str, optional
            Payload of a message of a named type.

        Raises
        ------
        ConnectionClosed
            If the connection is closed.
        ArgumentError
            If the values of an object do not fit its class: which field, and what was expected. Nothing was sent.
        """
        if not isinstance(kind, str):
            self._owner._raw.send_message(self._number, type_of(type(kind)), kind)
            return
        raw = payload.encode() if isinstance(payload, str) else payload
        self._owner._raw.send(self._number, kind, raw)

    def wait(self, cls: type[_Message], timeout: float | None = None) -> _Message:
        """Wait for a message of that class from this peer; others wait meanwhile.

        Parameters
        ----------
        cls : type
            A class made by `gridloom.message`.
        timeout : float, optional
            Time limit, seconds.

        Returns
        -------
        object
            The message. Its arrays show its memory, in the shapes and element types of the class.

        Raises
        ------
        TimedOut, RemoteError, ConnectionClosed
            As `wait_for`.
        ArgumentError
            If the received message does not fit that class: which field, and what was expected. The message is dropped.
        """
        message: _Message = self._owner._raw.wait_message(type_of(cls), self._number, timeout)[1]
        return message

    def wait_for(self, kind: str, timeout: float | None = None) -> bytes:
        """Wait for a message of the type of that name from this peer; others wait meanwhile.

        Parameters
        ----------
        kind : str
            Name of the message's type.
        timeout : float, optional
            Time limit, seconds.

        Returns
        -------
        bytes
            The payload.

        Raises
        ------
        TimedOut
            If no message arrived in time.
        RemoteError
            If a callback of the peer failed for a message of this process.
        ConnectionClosed
            If the peer closed the connection.
        """
        return self._owner._raw.wait_for(kind, self._number, timeout)[1]

    def close(self) -> None:
        """Close the connection; messages that were sent still arrive."""
        self._owner._raw.close(self._number)

    def __repr__(self) -> str:
        return f"<gridloom.Peer {self.name}>"


class Process:
    """A process, as its own function sees it. Times are seconds, in virtual time if it is simulated.

    Attributes
    ----------
    function, host : str
        The name of its function and that of its host.
    arguments : list of str
        Its arguments.
    """

    def __init__(self, raw: _gridloom.RawProcess) -> None:
        self._raw = raw
        self.function, self.host, self.arguments = raw.spec()
        # Weak: a peer is the same object for as long as the program holds it.
        self._peers: weakref.WeakValueDictionary[int, Peer] = weakref.WeakValueDictionary()
        self._handlers: dict[str, Handler] = {}
        self._types: dict[str, _gridloom.RawMessageType | None] = {}
        self._timers: dict[int, tuple[Callable[[], object], bool]] = {}
        self._on_close: Callable[[Peer, str], object] | None = None

    @property
    def simulated(self) -> bool:
        """Whether time is virtual."""
        return self._raw.simulated()

    def now(self) -> float:
        """Read the clock: seconds since 1970 for real, since the beginning in simulation."""
        return self._raw.now()

    def sleep(self, seconds: float) -> None:
        """Wait for a time in seconds; not at all if it is negative. Messages that arrive meanwhile wait, too."""
        self._raw.sleep(seconds)

    def compute(self, flops: float) -> None:
        """Take the time of a number of floating-point operations on the simulated host; no time for real."""
        self._raw.compute(flops)

    @contextlib.contextmanager
    def measure(self, name: str, mode: str = "always", flops: float | None = None) -> Iterator[bool]:
        """Time a block of code on the real machine and charge its time to the simulated host, scaled by speed.

        What measured blocks within it took, and the time while it waited for others, is not charged to it again; nor is a
        block that ends with an exception.

        Parameters
        ----------
        name : str
            Name of the block.
        mode : {"always", "once", "skip"}, optional
            Charge what each run takes, what the first of that name took, or `flops`.
        flops : float, optional
            For ``"skip"``: floating-point operations that are charged in simulation, where the block is skipped.

        Yields
        ------
        bool
            Whether to run the block: false in simulation with mode ``"skip"``.

        Examples
        --------
        >>> with me.measure("solve", mode="skip", flops=2e9) as run:    # doctest: +SKIP
        ...     x = solve(a, b) if run else b
        """
        if mode not in ("always", "once", "skip"):
            raise UsageError(f"measure: mode is 'always', 'once' or 'skip', got {mode!r}")
        if (flops is None) == (mode == "skip"):
            wrong = "flops is missing" if mode == "skip" else f"flops is {flops!r}"
            raise UsageError(f"measure: mode is {mode!r}, and {wrong}; give flops with mode 'skip', and only there")
        if flops is not None and self.simulated:
            self.compute(flops)
            yield False
            return
        began = self._raw.begin_block()
        try:
            yield True
        except BaseException:
            self._raw.drop_block()
            raise
        self._raw.end_block(name, mode == "once", began)

    def listen(self, port: int = 0) -> int:
        """Listen on a port of the own host.

        Parameters
        ----------
        port : int, optional
            Its number; any that is free by default.

        Returns
        -------
        int
            Its number.

        Raises
        ------
        ProcessError
            If it is taken.
        ArgumentError
            If that is no number of a port.
        """
        return self._raw.listen(_port("listen", port))

    def connect(self, host: str, port: int, patience: float = 10.0) -> Peer:
        """Connect to the process that listens there.

        Parameters
        ----------
        host : str
            A host of the deployment.
        port : int
            Its port.
        patience : float, optional
            Seconds to try again while no process listens: processes may start in any order.

        Returns
        -------
        Peer
            The other end.

        Raises
        ------
        ConnectError
            If there is no such host, or no process listened in time.
        """
        return self._peer(self._raw.connect(host, _port("connect", int(port)), patience))

    def send(self, to: Peer, message: object) -> None:
        """Send a message, an object of a class made by `gridloom.message`: as ``to.send(message)``."""
        to.send(message)

    @overload
    def on(self, kind: type[_Message]) -> Callable[[_Handler], _Handler]: ...

    @overload
    def on(self, kind: type[_Message], handler: Callable[[Peer, _Message], object]) -> None: ...

    @overload
    def on(self, kind: str) -> Callable[[_Handler], _Handler]: ...

    @overload
    def on(self, kind: str, handler: Handler) -> None: ...

    def on(self, kind: Any, handler: Handler | None = None) -> Any:
        """Call a handler for messages of a type, when `handle` attends to them.

        Parameters
        ----------
        kind : type or str
            A class made by `gridloom.message`, or the name of a type whose messages are bytes.
        handler : callable, optional
            Gets the peer and the message. An exception in it goes to the sender, as `RemoteError`, and so does what is
            wrong with a message that is none of the class. Without it, this is a decorator.
        """
        if handler is None:
            return lambda function: self.on(kind, function) or function
        ty = None if isinstance(kind, str) else type_of(kind)
        name = kind if ty is None else ty.name
        self._handlers[name] = handler
        self._types[name] = ty
        return None

    def on_close(self, handler: Callable[[Peer, str], object]) -> None:
        """Call a handler, with the peer and the reason, when a peer has closed its connection."""
        self._on_close = handler

    def after(self, seconds: float, action: Callable[[], object]) -> int:
        """Let `handle` call a function once, after a time in seconds. Returns the number that `cancel` takes."""
        return self._timer(seconds, action, False)

    def every(self, seconds: float, action: Callable[[], object]) -> int:
        """Let `handle` call a function periodically, with a period in seconds. Returns the number that `cancel` takes.

        Times that pass while something else is attended to are left out; messages have their turns between two calls.
        """
        return self._timer(seconds, action, True)

    def cancel(self, timer: int) -> bool:
        """Forget a timer; whether it was set."""
        self._timers.pop(timer, None)
        return self._raw.cancel_timer(timer)

    def handle(self, timeout: float | None = None) -> bool:
        """Attend to one message that has a handler, one timer, or one close; wait for it if there is none.

        Parameters
        ----------
        timeout : float, optional
            How long to wait at most, seconds.

        Returns
        -------
        bool
            Whether there was one. If not, messages may still have come that have no handler: see `waiting` and `unread`.
        """
        until = None if timeout is None else self.now() + timeout
        while True:
            left = None if until is None else max(until - self.now(), 0.0)
            happened = self._raw.next(self._types, left)
            if happened is None:
                return False
            what, number, text, payload = happened
            if what == "letter":
                self._handle_message(self._peer(number), text, payload)
                return True
            if what == "wrong":
                self._raw.answer_with_error(number, text, payload)
                return True
            if what == "timer" and number in self._timers:
                action, repeats = self._timers[number]
                if not repeats:
                    del self._timers[number]
                action()
                return True
            if what == "closed" and self._on_close is not None:
                self._on_close(self._peer(number), text)
                return True

    def handle_for(self, seconds: float) -> None:
        """Handle messages and timers for a time in seconds. A running handler finishes, and waiting messages stay."""
        until = self.now() + seconds
        # In simulation much may be attended to at one time.
        while self.handle(max(until - self.now(), 0.0)) and self.now() <= until:
            pass

    def wait(self, cls: type[_Message], timeout: float | None = None) -> tuple[Peer, _Message]:
        """Wait for a message of that class from anybody; others wait meanwhile.

        Parameters
        ----------
        cls : type
            A class made by `gridloom.message`.
        timeout : float, optional
            Time limit, seconds.

        Returns
        -------
        Peer, object
            The sender, and the message. Its arrays show its memory, in the shapes and element types of the class.

        Raises
        ------
        TimedOut
            If no message arrived in time.
        ArgumentError
            If the received message does not fit that class: which field, and what was expected. The message is dropped.
        """
        number, message = self._raw.wait_message(type_of(cls), None, timeout)
        return self._peer(number), message

    def wait_for(self, kind: str, timeout: float | None = None) -> tuple[Peer, bytes]:
        """Wait for a message of the type of that name from anybody; others wait meanwhile.

        Parameters
        ----------
        kind : str
            Name of the message's type.
        timeout : float, optional
            Time limit, seconds.

        Returns
        -------
        Peer, bytes
            The sender, and what the message carries.

        Raises
        ------
        TimedOut
            If no message arrived in time.
        """
        number, payload = self._raw.wait_for(kind, None, timeout)
        return self._peer(number), payload

    def waiting(self) -> dict[str, int]:
        """Number of received messages of each type that wait, also of types without a handler."""
        return dict(self._raw.waiting())

    def unread(self) -> str:
        """Received messages that wait, in words, by type and sender: ``1 'Result' of worker@desk``; empty if there is none."""
        return self._raw.unread()

    @overload
    def config(self, name: str) -> str | None: ...

    @overload
    def config(self, name: str, default: _Value) -> _Value: ...

    def config(self, name: str, default: Any = None) -> Any:
        """Look up a value of the configuration.

        The command line counts most (``--set NAME=VALUE`` behind the program), then the environment (``GRIDLOOM_SET_NAME``,
        in capitals, with ``_`` for what is no letter or digit), then the file that ``--config`` or ``GRIDLOOM_CONFIG`` names
        (TOML; ``size`` of the table ``[matrix]`` is ``matrix.size``).

        Parameters
        ----------
        name : str
            Its name.
        default : str, bool, int or float, optional
            Default; the value is of the same type. Without it the value is a text, or None.

        Raises
        ------
        InputError
            If the value is none of that type.
        """
        text = self._raw.setting(name)
        if text is None:
            return default
        return _value(name, text, type(default)) if default is not None else text

    def log(self, text: str, level: str = "info", category: str = "program") -> None:
        """Write a line to the log: with the time, the category and the process.

        ``--log LEVELS`` behind the program, or else ``GRIDLOOM_LOG``, or else ``log`` in the file of the configuration says
        which lines are wanted: ``warning,matmul=debug`` those from ``warning`` on, and all of the categories ``matmul``,
        ``matmul.server`` and so on. Without it they are those from ``info`` on.

        Parameters
        ----------
        text : str
            The line.
        level : {"debug", "info", "warning", "error"}, optional
            How much it matters.
        category : str, optional
            Description.
        """
        if level not in ("debug", "info", "warning", "error"):
            raise UsageError(f"log: level is 'debug', 'info', 'warning' or 'error', got {level!r}")
        self._raw.log(level, category, text)

    def _handle_message(self, peer: Peer, kind: str, payload: Any) -> None:
        try:
            self._handlers[kind](peer, payload)
        except ProcessEnded:
            raise
        except Exception as error:
            self._raw.answer_with_error(peer._number, kind, f"{type(error).__name__}: {error}")

    def _timer(self, seconds: float, action: Callable[[], object], repeats: bool) -> int:
        number = self._raw.set_timer(seconds, repeats)
        self._timers[number] = (action, repeats)
        return number

    def _peer(self, number: int) -> Peer:
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = Peer(self, number)
        return peer

    def __repr__(self) -> str:
        return f"<gridloom.Process {self.function}@{self.host}>"


def _port(what: str, number: int) -> int:
    if not 0 <= number <= 65535:
        raise ArgumentError(f"{what}: {number} is no port; give a number from 0 to 65535")
    return number


def _value(name: str, text: str, kind: type) -> object:
    flags = {"true": True, "false": False, "1": True, "0": False}
    try:
        return flags[text.strip().lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "an integer", float: "a number"}.get(kind, kind.__name__)
        raise InputError(f"the configuration's '{name}' is '{text}'; it has to be {wanted}") from None
