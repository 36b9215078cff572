"""The Open Inference Protocol, version 2, over HTTP: the connector `v2`.

Source: the protocol's REST specification and its extensions for model repositories and binary tensors
(github.com/kserve/open-inference-protocol, github.com/triton-inference-server/server, docs/protocol).

HTTP by the standard library: workers need no other package, a connection stays open from call to call, and arrays are sent from where they lie.
Tensors travel as JSON, or as they are where the model server has the extension for binary tensors.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import socket
import struct
import threading
import time
import types
import urllib.parse
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .model import (
    BYTES,
    EndpointLost,
    Model,
    ModelFailed,
    ModelGone,
    ModelNotOffered,
    ModelNotReady,
    ModelRefused,
    Tensor,
    Value,
    WrongAnswer,
)

_DTYPES = {
    "BOOL": "bool",
    **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": BYTES,
}
_CONNECT_SECONDS = 10.0
# Default limit of an answer with tensors, and limit of all other answers. Answers must fit into the worker's memory.
_ANSWER_BYTES_MAX = 1 << 30
_TEXT_BYTES_MAX = 16 << 20
# Bytes to read at a time.
_READ_BYTES = 1 << 20
# Longest message of a model server that an error shows.
_MESSAGE_CHARACTERS_MAX = 2000
_JSON_LENGTH = "Inference-Header-Content-Length"
_BINARY = "binary_tensor_data"
_WANTED = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float)}


class V2:
    """A server of the Open Inference Protocol. One thread uses it at a time.

    Parameters
    ----------
    endpoint : str
        Its URL.
    seconds : float
        Time limit of a method, for all its requests and their whole answers.
    size : int, optional
        Maximum size of an answer with tensors, bytes.
    """

    def __init__(self, endpoint: str, seconds: float, size: int = _ANSWER_BYTES_MAX) -> None:
        url = urllib.parse.urlsplit(endpoint)
        try:
            port = url.port
        except ValueError:
            port = -1
        if url.scheme not in ("http", "https") or not url.hostname or port == -1 or url.query or url.fragment:
            raise InputError(f"--endpoint {endpoint}: expected a URL such as http://127.0.0.1:8080")
        if url.username or url.password:
            raise InputError("--endpoint: a URL with a name or password is not supported: others could read it in the list of processes")
        self._endpoint, self._seconds, self._size = endpoint, seconds, size
        self._prefix = re.sub(r"(/v2)?/*$", "", url.path)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.hostname, port, timeout=_CONNECT_SECONDS)
        self._binary: bool | None = None
        # Deadline of the running method.
        self._until = 0.0

    def models(self) -> list[tuple[str, str | None]]:
        """Names of the models, and of each why it cannot be called now, if so."""
        self._until = time.monotonic() + self._seconds
        path = "/v2/repository/index"
        status, answer, _ = self._ask("POST", path, [b"{}"])
        if status in (404, 405, 501):
            raise ModelNotOffered(f"{self._endpoint} does not list its models (no repository extension): name them with --model")
        if status != 200:
            raise ModelFailed(f"{self._endpoint} does not list its models: {_message_of(status, answer)}")
        found: dict[str, str | None] = {}
        for one in self._json(answer, path, list):
            name = _field(one, "name", str, path)
            state = one.get("state") or "READY"
            reason = f" ({one['reason']})" if one.get("reason") else ""
            why = None if state == "READY" else f"it is {state}{reason}"
            # Of several versions, one that is ready is enough: the model server chooses.
            if name not in found or why is None:
                found[name] = why
        return list(found.items())

    def signature(self, model: str) -> Model:
        """Inputs and outputs of the model, by its metadata."""
        self._until = time.monotonic() + self._seconds
        path = f"/v2/models/{urllib.parse.quote(model, safe='')}"
        status, answer, _ = self._ask("GET", path)
        if status != 200:
            raise self._failed(model, status, answer)
        parsed = self._json(answer, path, dict)
        inputs, outputs = (tuple(_tensor(model, one, path) for one in parsed.get(key) or []) for key in ("inputs", "outputs"))
        if not inputs or not outputs:
            lacks = "inputs" if not inputs else "outputs"
            raise ModelNotOffered(
                f"model '{model}': its metadata name no {lacks}; describe them there (MLServer: \"inputs\" and \"outputs\" of model-settings.json)"
            )
        return Model(model, inputs, outputs)

    def call(self, model: Model, inputs: Sequence[Value]) -> list[Value]:
        """Results of one call."""
        self._until = time.monotonic() + self._seconds
        path = f"/v2/models/{urllib.parse.quote(model.name, safe='')}/infer"
        if self._binary is None:
            self._binary = self._has_binary()
        request, raw = self._request(model, inputs, self._binary)
        text = json.dumps(request, allow_nan=False).encode()
        headers = {_JSON_LENGTH: str(len(text))} if self._binary else {}
        status, answer, headers = self._ask("POST", path, [text, *raw], headers, self._size)
        if status != 200:
            raise self._failed(model.name, status, answer)
        return self._results(model, answer, headers.get(_JSON_LENGTH.lower()), path)

    def _has_binary(self) -> bool:
        status, answer, _ = self._ask("GET", "/v2")
        if status != 200:
            raise ModelFailed(f"{self._endpoint} does not describe itself: {_message_of(status, answer)}")
        return _BINARY in (self._json(answer, "/v2", dict).get("extensions") or [])

    def _request(self, model: Model, inputs: Sequence[Value], is_binary: bool) -> tuple[dict[str, Any], list[Any]]:
        """A request, and the tensors that travel behind it."""
        entries, raw = [], []
        for tensor, value in zip(model.inputs, inputs, strict=True):
            shape = [1] * len(tensor.shape) if isinstance(value, bytes) else list(value.shape)
            entry: dict[str, Any] = {"name": tensor.name, "shape": shape, "datatype": tensor.datatype}
            if is_binary:
                piece = struct.pack("<I", len(value)) + value if isinstance(value, bytes) else _little(value)
                size = len(piece) if isinstance(piece, bytes) else piece.nbytes
                entry["parameters"] = {"binary_data_size": size}
                raw.append(piece)
            else:
                entry["data"] = _data(model, tensor, value)
            entries.append(entry)
        wanted: list[dict[str, Any]] = [{"name": one.name} for one in model.outputs]
        if is_binary:
            wanted = [{**one, "parameters": {"binary_data": True}} for one in wanted]
        return {"inputs": entries, "outputs": wanted}, raw

    def _results(self, model: Model, answer: bytes, json_length: str | None, path: str) -> list[Value]:
        end = len(answer)
        if json_length is not None:
            if not json_length.isascii() or not json_length.isdigit() or int(json_length) > len(answer):
                raise WrongAnswer(f"{path}: {_JSON_LENGTH} is {json_length!r}, and the answer has {len(answer)} bytes")
            end = int(json_length)
        parsed = self._json(answer[:end], path, dict)
        found: dict[str, Value] = {}
        known = {one.name: one for one in model.outputs}
        for one in _field(parsed, "outputs", list, path):
            name = _field(one, "name", str, path)
            parameters = one.get("parameters") or {}
            size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
            raw = None
            if size is not None:
                if not isinstance(size, int) or not 0 <= size <= len(answer) - end:
                    raise WrongAnswer(f"{path}: '{name}' is said to have {size} bytes, and {len(answer) - end} are left of the answer")
                raw, end = memoryview(answer)[end : end + size], end + size
            if name in known:
                found[name] = _value(known[name], one, raw, path)
        if lacking := [name for name in known if name not in found]:
            raise WrongAnswer(f"{path}: the answer lacks the output '{lacking[0]}', which the model's metadata name")
        return [found[name] for name in known]

    def _failed(self, model: str, status: int, answer: bytes) -> Exception:
        """The error for a status: servers answer with different ones for a model that is gone or not ready."""
        parsed = _message_of(status, answer)
        path = f"/v2/models/{urllib.parse.quote(model, safe='')}"
        is_there, _, _ = self._ask("GET", path)
        if status == 404 or is_there == 404:
            return ModelGone(f"{self._endpoint} has no model '{model}': {parsed}")
        is_ready, _, _ = self._ask("GET", f"{path}/ready")
        if status == 503 or is_ready != 200:
            return ModelNotReady(f"model '{model}' of {self._endpoint} is not ready: {parsed}")
        return (ModelRefused if status < 500 else ModelFailed)(f"model '{model}': {parsed}")

    def _ask(
        self, method: str, path: str, pieces: Iterable[Any] = (), headers: dict[str, str] | None = None, size: int = _TEXT_BYTES_MAX
    ) -> tuple[int, bytes, dict[str, str]]:
        """Send a request; return the status, the body (at most `size` bytes) and the headers (names in lower case) of the answer."""
        pieces = list(pieces)
        while True:
            is_new = self._connection.sock is None
            # The socket's own timeout restarts with each byte that is received, so it cannot limit the whole answer.
            limit = _Limit(self._connection, max(self._until - time.monotonic(), 0.0))
            try:
                with limit:
                    return self._try(method, path, pieces, headers or {}, size, limit)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self._connection.close()
                # A connection that was idle may have been closed by the model server: a new connection shows whether the server is running.
                if is_new:
                    raise EndpointLost(f"{self._endpoint} closed the connection without an answer to {path}: {error}") from None
            except TimeoutError:
                is_connected = limit.has_passed or self._connection.sock is not None
                seconds = self._seconds if is_connected else min(_CONNECT_SECONDS, self._seconds)
                self._connection.close()
                raise EndpointLost(f"{self._endpoint} did not answer {path} within {seconds:g} s") from None
            except http.client.IncompleteRead as error:
                self._connection.close()
                raise EndpointLost(f"{self._endpoint} closed the connection {len(error.partial)} bytes into the answer to {path}") from None
            except OSError as error:
                self._connection.close()
                why = error.strerror or str(error)
                raise EndpointLost(f"{self._endpoint} cannot be reached: {why}; is the model server running there?") from None
            except http.client.HTTPException as error:
                self._connection.close()
                raise WrongAnswer(f"{path}: the answer is not HTTP: {type(error).__name__} {error}") from None

    def _try(
        self, method: str, path: str, pieces: list[Any], headers: dict[str, str], size_max: int, limit: _Limit
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = self._connection
        if connection.sock is None:
            # Includes the handshake of TLS.
            connection.timeout = max(min(_CONNECT_SECONDS, self._until - time.monotonic()), 0.001)
            connection.connect()
            assert connection.sock is not None, "it is connected"
            connection.sock.settimeout(self._seconds)
        # For an answer without a length, the connection drops its socket before the answer is read.
        limit.socket = connection.sock
        if limit.has_passed:
            raise TimeoutError
        kind = "application/octet-stream" if _JSON_LENGTH in headers else "application/json"
        size = sum(memoryview(piece).nbytes for piece in pieces)
        sent = {"Content-Type": kind, "Content-Length": str(size), "Accept": "*/*", **headers} if pieces else {"Accept": "*/*"}
        connection.request(method, self._prefix + path, body=iter(pieces) if pieces else None, headers=sent)
        response = connection.getresponse()
        length = response.getheader("Content-Length")
        expected = int(length) if length is not None and length.isascii() and length.isdigit() else None
        answer = bytearray()
        if expected is None or expected <= size_max:
            while len(answer) <= size_max and (part := response.read(min(_READ_BYTES, size_max + 1 - len(answer)))):
                answer += part
        if len(answer) > size_max or (expected is not None and expected > size_max):
            # The response may own the socket, so it is closed, too.
            response.close()
            connection.close()
            has_tensors = path.endswith("/infer")
            remedy = "request less in one call, or start the connector with a larger --answer-limit" if has_tensors else "this limit is fixed"
            raise WrongAnswer(f"{path}: the answer has more than {size_max} bytes, which is the limit; {remedy}")
        if expected is not None and len(answer) < expected:
            raise http.client.IncompleteRead(bytes(answer), expected - len(answer))
        return response.status, bytes(answer), {name.lower(): value for name, value in response.getheaders()}

    def _json(self, answer: bytes, path: str, kind: type) -> Any:
        try:
            parsed = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise WrongAnswer(f"{path}: the answer is not JSON ({error}): {_clipped(answer)}") from None
        if not isinstance(parsed, kind):
            raise WrongAnswer(f"{path}: expected {_KINDS[kind]}, got {_clipped(answer)}")
        return parsed


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


_KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}


def _field(parsed: Any, key: str, kind: type, path: str) -> Any:
    value = parsed.get(key) if isinstance(parsed, dict) else None
    if not isinstance(value, kind):
        raise WrongAnswer(f"{path}: expected an object with '{key}', {_KINDS[kind]}, got {_clipped(repr(parsed).encode())}")
    return value


def _tensor(model: str, parsed: Any, path: str) -> Tensor:
    name, datatype = _field(parsed, "name", str, path), _field(parsed, "datatype", str, path)
    shape = _field(parsed, "shape", list, path)
    if any(type(size) is not int or size < -1 for size in shape):
        raise WrongAnswer(f"{path}: tensor '{name}': a shape has sizes, and -1 for any size; got {_clipped(repr(shape).encode())}")
    if datatype not in _DTYPES:
        raise ModelNotOffered(
            f"model '{model}': tensor '{name}' has the datatype {datatype}, which the grid does not have; it has {', '.join(_DTYPES)}"
        )
    return Tensor(name, datatype, _DTYPES[datatype], tuple(shape))


def _little(array: npt.NDArray[Any]) -> memoryview:
    """The array's bytes, little-endian, in place where the machine is."""
    flat = array.reshape(-1)
    return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


def _data(model: Model, tensor: Tensor, value: Value) -> list[Any]:
    if isinstance(value, bytes):
        try:
            return [value.decode()]
        except UnicodeDecodeError as error:
            raise ModelRefused(f"model '{model.name}': '{tensor.name}': the endpoint takes JSON, which has texts of UTF-8 only: {error}") from None
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ModelRefused(
            f"model '{model.name}': '{tensor.name}' has NaN or infinite values, and the endpoint takes JSON, which has no such numbers"
        )
    listed: list[Any] = value.reshape(-1).tolist()
    return listed


def _value(tensor: Tensor, parsed: dict[str, Any], raw: memoryview | None, path: str) -> Value:
    """Check an output against its tensor, and convert it."""
    where = f"{path}: output '{tensor.name}'"
    datatype, shape = parsed.get("datatype"), _field(parsed, "shape", list, path)
    if datatype != tensor.datatype:
        raise WrongAnswer(f"{where} is {datatype}, and the model's metadata say {tensor.datatype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise WrongAnswer(f"{where} has the shape {_clipped(repr(shape).encode())}")
    # MLServer's codecs write each vector as a matrix of one column.
    if len(shape) == len(tensor.shape) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    size = math.prod(shape)
    if tensor.dtype == BYTES:
        return _text(parsed.get("data"), raw, size, where)
    if raw is not None:
        wire = np.dtype(tensor.dtype).newbyteorder("<")
        if len(raw) != size * wire.itemsize:
            raise WrongAnswer(f"{where} has the shape {shape} and {len(raw)} bytes; {size * wire.itemsize} are expected")
        return np.frombuffer(raw, dtype=wire).astype(tensor.dtype, copy=False).reshape(shape)
    flat = _flat(parsed.get("data"), where)
    if len(flat) != size:
        raise WrongAnswer(f"{where} has the shape {shape} and {len(flat)} values")
    dtype = np.dtype(tensor.dtype)
    wrong = [one for one in flat if type(one) not in _WANTED[dtype.kind]]
    if wrong:
        hint = "; JSON has no NaN and no infinite numbers, and some servers write null for them" if wrong[0] is None else ""
        raise WrongAnswer(f"{where} is {datatype}, and has the value {_clipped(json.dumps(wrong[0]).encode())}{hint}")
    with contextlib.suppress(OverflowError):
        return np.array(flat, dtype=dtype).reshape(shape)
    raise WrongAnswer(f"{where} is {datatype}, and has a value that does not fit into it")


def _text(data: Any, raw: memoryview | None, size: int, where: str) -> bytes:
    if size != 1:
        raise WrongAnswer(f"{where} has {size} texts, and a function gives one")
    if raw is not None:
        if len(raw) < 4 or struct.unpack("<I", raw[:4])[0] != len(raw) - 4:
            raise WrongAnswer(f"{where} has {len(raw)} bytes, which are not one text with its length")
        return bytes(raw[4:])
    flat = _flat(data, where)
    if len(flat) != 1 or not isinstance(flat[0], str):
        raise WrongAnswer(f"{where} is no text: {_clipped(json.dumps(data).encode())}")
    return flat[0].encode()


def _flat(data: Any, where: str) -> list[Any]:
    """The values of a tensor: one list, or lists of lists."""
    if not isinstance(data, list):
        raise WrongAnswer(f"{where} has no data, or none that is a list")
    while data and isinstance(data[0], list):
        if not all(isinstance(row, list) for row in data):
            raise WrongAnswer(f"{where} has lists and values side by side")
        data = [one for row in data for one in row]
    flat: list[Any] = data
    return flat


def _message_of(status: int, answer: bytes) -> str:
    """The model server's own words."""
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        parsed = None
    for key in ("error", "detail", "message"):
        if isinstance(parsed, dict) and parsed.get(key):
            word = parsed[key]
            return _clipped((word if isinstance(word, str) else json.dumps(word)).encode())
    return f"HTTP status {status}: {_clipped(answer) or 'no message'}"


def _clipped(answer: bytes) -> str:
    text = answer[:_MESSAGE_CHARACTERS_MAX].decode(errors="replace").strip()
    return text if len(answer) <= _MESSAGE_CHARACTERS_MAX else f"{text} ..."
