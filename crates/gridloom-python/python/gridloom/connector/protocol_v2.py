"""The Open Inference Protocol, version 2, over HTTP: the connector `v2`.

Source: the protocol's REST specification and its extensions for model repositories and binary tensors
(github.com/kserve/open-inference-protocol, github.com/triton-inference-server/server, docs/protocol).

Tensors are sent as JSON, or as their bytes if the model server has the extension for binary tensors.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
import urllib.parse
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .http_endpoint import HttpEndpoint
from .model import (
    ANSWER_BYTES_MAX,
    BYTES,
    Model,
    ModelFailed,
    ModelGone,
    ModelNotOffered,
    ModelNotReady,
    ModelRefused,
    Tensor,
    Value,
    WrongAnswer,
    array_of,
)

_DTYPES = {
    "BOOL": "bool",
    **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": BYTES,
}
# Maximum length of a model server's message in an error.
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
    authorities : str, optional
        Certificates in PEM of the authorities that are trusted to certify the server; by default those of the system.
    """

    noun, server = "model", "a model server"
    takes_signatures = False

    def __init__(self, endpoint: str, seconds: float, size: int = ANSWER_BYTES_MAX, authorities: str | None = None) -> None:
        self._http = HttpEndpoint(endpoint, seconds, authorities)
        self._endpoint, self._size = endpoint, size
        self._prefix = re.sub(r"(/v2)?/*$", "", self._http.path)
        self._binary: bool | None = None

    def function(self, model: str) -> tuple[str, str]:
        """Module and name of the model's function."""
        return "models", model

    def models(self) -> list[tuple[str, str | None]]:
        """Return the names of the models, each with the reason why it cannot be called now, or None."""
        self._http.begin()
        path = "/v2/repository/index"
        status, answer, _ = self._http.ask("POST", self._prefix + path, [b"{}"])
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
        self._http.begin()
        path = f"/v2/models/{urllib.parse.quote(model, safe='')}"
        status, answer, _ = self._http.ask("GET", self._prefix + path)
        if status != 200:
            raise self._failed(model, status, answer)
        parsed = self._json(answer, path, dict)
        inputs, outputs = (tuple(_tensor(model, one, path) for one in parsed.get(key) or []) for key in ("inputs", "outputs"))
        if not inputs or not outputs:
            lacks = "inputs" if not inputs else "outputs"
            raise ModelNotOffered(
                f'model \'{model}\': its metadata name no {lacks}; describe them there (MLServer: "inputs" and "outputs" of model-settings.json)'
            )
        return Model(model, inputs, outputs)

    def call(self, model: Model, inputs: Sequence[Value]) -> list[Value]:
        """Results of one call."""
        self._http.begin()
        path = f"/v2/models/{urllib.parse.quote(model.name, safe='')}/infer"
        if self._binary is None:
            self._binary = self._has_binary()
        request, raw = self._request(model, inputs, self._binary)
        text = json.dumps(request, allow_nan=False).encode()
        headers = {_JSON_LENGTH: str(len(text)), "Content-Type": "application/octet-stream"} if self._binary else {}
        status, answer, headers = self._http.ask("POST", self._prefix + path, [text, *raw], headers, self._size)
        if status != 200:
            raise self._failed(model.name, status, answer)
        return self._results(model, answer, headers.get(_JSON_LENGTH.lower()), path)

    def _has_binary(self) -> bool:
        status, answer, _ = self._http.ask("GET", self._prefix + "/v2")
        if status != 200:
            raise ModelFailed(f"{self._endpoint} does not describe itself: {_message_of(status, answer)}")
        return _BINARY in (self._json(answer, "/v2", dict).get("extensions") or [])

    def _request(self, model: Model, inputs: Sequence[Value], is_binary: bool) -> tuple[dict[str, Any], list[Any]]:
        """A request, and the binary tensors that are sent after it."""
        entries, raw = [], []
        for tensor, value in zip(model.inputs, inputs, strict=True):
            assert not isinstance(value, str), "texts are bytes here"
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
                    raise WrongAnswer(f"{path}: '{name}' should have {size} bytes, but only {len(answer) - end} are left of the answer")
                raw, end = memoryview(answer)[end : end + size], end + size
            if name in known:
                found[name] = _value(known[name], one, raw, path)
        if lacking := [name for name in known if name not in found]:
            raise WrongAnswer(f"{path}: the answer lacks the output '{lacking[0]}', which the model's metadata name")
        return [found[name] for name in known]

    def _failed(self, model: str, status: int, answer: bytes) -> Exception:
        """Return the exception for a status. Servers use different statuses for a model that is gone or not ready."""
        parsed = _message_of(status, answer)
        path = f"/v2/models/{urllib.parse.quote(model, safe='')}"
        is_there, _, _ = self._http.ask("GET", self._prefix + path)
        if status == 404 or is_there == 404:
            return ModelGone(f"{self._endpoint} has no model '{model}': {parsed}")
        is_ready, _, _ = self._http.ask("GET", self._prefix + f"{path}/ready")
        if status == 503 or is_ready != 200:
            return ModelNotReady(f"model '{model}' of {self._endpoint} is not ready: {parsed}")
        return (ModelRefused if status < 500 else ModelFailed)(f"model '{model}': {parsed}")

    def _json(self, answer: bytes, path: str, kind: type) -> Any:
        try:
            parsed = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise WrongAnswer(f"{path}: the answer is not JSON ({error}): {_clipped(answer)}") from None
        if not isinstance(parsed, kind):
            raise WrongAnswer(f"{path}: expected {_KINDS[kind]}, got {_clipped(answer)}")
        return parsed


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


def _data(model: Model, tensor: Tensor, value: npt.NDArray[Any] | bytes) -> list[Any]:
    if isinstance(value, bytes):
        try:
            return [value.decode()]
        except UnicodeDecodeError as error:
            raise ModelRefused(f"model '{model.name}': '{tensor.name}': the endpoint takes JSON, whose texts must be UTF-8: {error}") from None
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
    wrong = [one for one in flat if type(one) not in _WANTED[np.dtype(tensor.dtype).kind]]
    if wrong:
        hint = "; JSON has no NaN and no infinite numbers, and some servers write null for them" if wrong[0] is None else ""
        raise WrongAnswer(f"{where} is {datatype}, and has the value {_clipped(json.dumps(wrong[0]).encode())}{hint}")
    with contextlib.suppress(OverflowError):
        return array_of(flat, flat, tensor.dtype).reshape(shape)
    raise WrongAnswer(f"{where} is {datatype}, and has a value that does not fit into it")


def _text(data: Any, raw: memoryview | None, size: int, where: str) -> bytes:
    if size != 1:
        raise WrongAnswer(f"{where} has {size} texts; a function returns only one")
    if raw is not None:
        if len(raw) < 4 or struct.unpack("<I", raw[:4])[0] != len(raw) - 4:
            raise WrongAnswer(f"{where} has {len(raw)} bytes, which are not one text preceded by its length")
        return bytes(raw[4:])
    flat = _flat(data, where)
    if len(flat) != 1 or not isinstance(flat[0], str):
        raise WrongAnswer(f"{where} is not a text: {_clipped(json.dumps(data).encode())}")
    return flat[0].encode()


def _flat(data: Any, where: str) -> list[Any]:
    """Return the values of a tensor, given as one list or as nested lists."""
    if not isinstance(data, list):
        raise WrongAnswer(f"{where} has no data, or none that is a list")
    while data and isinstance(data[0], list):
        if not all(isinstance(row, list) for row in data):
            raise WrongAnswer(f"{where} has lists and values side by side")
        data = [one for row in data for one in row]
    flat: list[Any] = data
    return flat


def _message_of(status: int, answer: bytes) -> str:
    """The model server's own message."""
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
