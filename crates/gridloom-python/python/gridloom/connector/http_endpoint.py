"""Requests to a server over HTTP, with one time limit for all requests of a call, and a limit on the size of answers.

It uses only the standard library, so workers need no other package. A connection stays open from call to call, and arrays are sent without a copy.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
import types
import urllib.parse
from collections.abc import Iterable
from typing import Any

from ..errors import InputError
from .model import EndpointLost, WrongAnswer

CONNECT_SECONDS = 10.0
TEXT_BYTES_MAX = 16 << 20
"""Maximum size of an answer without results of a call, bytes."""
# Maximum number of bytes to read at a time.
_READ_BYTES = 1 << 20


class HttpEndpoint:
    """A server at a URL. One thread uses it at a time.

    Parameters
    ----------
    endpoint : str
        Its URL.
    seconds : float
        Time limit for all requests of a call and their whole answers.
    authorities : str, optional
        Certificates in PEM of the authorities that are trusted to certify a server with TLS; by default those of the system.
    noun : str, optional
        The server's kind, for messages.
    kind : str, optional
        Content type of requests.
    keeps_open : bool, optional
        Whether a connection is used for several requests. A request on an old connection that turns out to be closed is sent again, so this is
        for servers whose calls may run twice. Otherwise each connection is closed after its answer: a server with one thread waits for the next
        request of an open connection, and meanwhile accepts no other.

    Raises
    ------
    InputError
        If the endpoint is not a URL of HTTP or has a password, or the certificates are not in PEM.
    """

    def __init__(
        self,
        endpoint: str,
        seconds: float,
        authorities: str | None = None,
        noun: str = "model server",
        kind: str = "application/json",
        keeps_open: bool = True,
    ) -> None:
        try:
            url = urllib.parse.urlsplit(endpoint)
            port = url.port
        except ValueError:
            url, port = urllib.parse.urlsplit(""), -1
        if url.username is not None:
            raise InputError("--endpoint: a URL with a name or password is not supported: others could read it in the list of processes")
        if url.scheme not in ("http", "https") or not url.hostname or port == -1 or url.query or url.fragment:
            raise InputError(f"--endpoint {without_password(endpoint)}: expected a URL such as http://127.0.0.1:8080")
        if authorities is not None and url.scheme != "https":
            raise InputError(f"--ca-file: {endpoint} does not use TLS; write https://, or omit the option")
        self.path, self.until = url.path, 0.0
        self._endpoint, self._seconds, self._noun, self._kind, self._keeps_open = endpoint, seconds, noun, kind, keeps_open
        if url.scheme == "https":
            try:
                context = ssl.create_default_context(cadata=authorities)
            except ssl.SSLError as error:
                raise InputError(f"--ca-file: the file has no certificates in PEM: {error}") from None
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(url.hostname, port, timeout=CONNECT_SECONDS, context=context)
        else:
            self._connection = http.client.HTTPConnection(url.hostname, port, timeout=CONNECT_SECONDS)

    def begin(self) -> None:
        """Start the time limit of a call."""
        self.until = time.monotonic() + self._seconds

    def ask(
        self, method: str, path: str, pieces: Iterable[Any] = (), headers: dict[str, str] | None = None, size: int | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """Send a request; return the status, the body and the headers (names in lower case) of the answer.

        The body has at most `size` bytes, the value of ``--answer-limit``. Without `size`, the limit is `TEXT_BYTES_MAX`.
        """
        try:
            return self._ask(method, path, list(pieces), headers or {}, size)
        finally:
            if not self._keeps_open:
                self._connection.close()

    def _ask(self, method: str, path: str, pieces: list[Any], headers: dict[str, str], size: int | None) -> tuple[int, bytes, dict[str, str]]:
        while True:
            is_new = self._connection.sock is None
            # The socket's own timeout restarts with each byte that is received, so it cannot limit the whole answer.
            limit = _Limit(self._connection, max(self.until - time.monotonic(), 0.0))
            try:
                with limit:
                    return self._try(method, path, pieces, headers, size, limit)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self._connection.close()
                # A connection that was idle may have been closed by the server: a new connection shows whether the server is running.
                if is_new:
                    raise EndpointLost(f"{self._endpoint} closed the connection without an answer to {path}: {error}") from None
            except TimeoutError:
                is_connected = limit.has_passed or limit.socket is not None
                seconds = self._seconds if is_connected else min(CONNECT_SECONDS, self._seconds)
                self._connection.close()
                raise EndpointLost(f"{self._endpoint} did not answer {path} within {seconds:g} s") from None
            except http.client.IncompleteRead as error:
                self._connection.close()
                raise EndpointLost(f"{self._endpoint} closed the connection {len(error.partial)} bytes into the answer to {path}") from None
            except OSError as error:
                self._connection.close()
                why = error.strerror or str(error)
                raise EndpointLost(f"{self._endpoint} cannot be reached: {why}; is the {self._noun} running there?") from None
            except http.client.HTTPException as error:
                self._connection.close()
                raise WrongAnswer(f"{self._endpoint}: the answer to {path} is not HTTP: {type(error).__name__} {str(error).strip()}") from None

    def _try(
        self, method: str, path: str, pieces: list[Any], headers: dict[str, str], result_max: int | None, limit: _Limit
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = self._connection
        if connection.sock is None:
            # Includes the handshake of TLS.
            connection.timeout = max(min(CONNECT_SECONDS, self.until - time.monotonic()), 0.001)
            connection.connect()
            assert connection.sock is not None, "it is connected"
            connection.sock.settimeout(self._seconds)
        # For an answer without a length, the connection drops its socket before the answer is read.
        limit.socket = connection.sock
        if limit.has_passed:
            raise TimeoutError
        size = sum(memoryview(piece).nbytes for piece in pieces)
        sent = {"Content-Type": self._kind, "Content-Length": str(size), "Accept": "*/*", **headers} if pieces else {"Accept": "*/*"}
        if not self._keeps_open:
            sent["Connection"] = "close"
        connection.request(method, path, body=iter(pieces) if pieces else None, headers=sent)
        response = connection.getresponse()
        try:
            return self._read(response, path, result_max)
        except BaseException:
            # The response may own the socket, so both are closed.
            response.close()
            connection.close()
            raise

    def _read(self, response: http.client.HTTPResponse, path: str, result_max: int | None) -> tuple[int, bytes, dict[str, str]]:
        size_max = TEXT_BYTES_MAX if result_max is None else result_max
        length = response.getheader("Content-Length")
        expected = int(length) if length is not None and length.isascii() and length.isdigit() else None
        answer = bytearray()
        if expected is None or expected <= size_max:
            while len(answer) <= size_max and (part := response.read(min(_READ_BYTES, size_max + 1 - len(answer)))):
                answer += part
        if len(answer) > size_max or (expected is not None and expected > size_max):
            larger = "request less in one call, or start the connector with a larger --answer-limit"
            remedy = "this limit is fixed" if result_max is None else larger
            raise WrongAnswer(f"{path}: the answer has more than {size_max} bytes, which is the limit; {remedy}")
        if expected is not None and len(answer) < expected:
            raise http.client.IncompleteRead(bytes(answer), expected - len(answer))
        return response.status, bytes(answer), {name.lower(): value for name, value in response.getheaders()}


def without_password(endpoint: str) -> str:
    """Return the endpoint as messages show it: a name and a password before ``@`` are replaced by dots.

    Examples
    --------
    >>> without_password("ftp://me:secret@host")
    'ftp://...@host'
    """
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", r"\1...@", endpoint, flags=re.DOTALL)


class _Limit:
    """Shuts a connection down when its time limit has passed."""

    def __init__(self, connection: http.client.HTTPConnection, seconds: float) -> None:
        self.has_passed = False
        self.socket: socket.socket | None = connection.sock
        self._connection = connection
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None) -> None:
        self._timer.cancel()
        # Headers, and a body without a length, end without an error when the connection is shut down.
        if self.has_passed and (error is None or isinstance(error, Exception)):
            raise TimeoutError from error

    def _end(self) -> None:
        self.has_passed = True
        connected = self.socket or self._connection.sock
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
