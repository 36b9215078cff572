"""Unary methods of gRPC servers that offer reflection: the connector `grpc`.

Source: the protocols of gRPC's server reflection, versions v1 and v1alpha (github.com/grpc/grpc, src/proto/grpc/reflection), and the encoding of
Protocol Buffers (protobuf.dev/programming-guides/encoding).

The connector reads the methods and their messages by reflection once, when it starts. Workers get the fields that they need, and build message types
from these alone, so they do not request the descriptions again. grpcio makes the calls, and protobuf encodes them.

A packed list of numbers of fixed size is encoded like a field of type ``bytes``: a length, and then the bytes of an array in memory.
Therefore messages declare such a list as ``bytes``, and arrays are copied instead of converted one number at a time. Lists in the unpacked encoding
can also be read.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .http_endpoint import without_password
from .model import (
    ANSWER_BYTES_MAX,
    BYTES,
    TEXT,
    EndpointLost,
    Model,
    ModelFailed,
    ModelGone,
    ModelNotOffered,
    ModelRefused,
    Tensor,
    Value,
    WrongAnswer,
)

# Types of fields by their numbers in descriptors: the name in the language of descriptions, and the grid's type.
_TYPES = {
    1: ("double", "float64"),
    2: ("float", "float32"),
    3: ("int64", "int64"),
    4: ("uint64", "uint64"),
    5: ("int32", "int32"),
    6: ("fixed64", "uint64"),
    7: ("fixed32", "uint32"),
    8: ("bool", "bool"),
    9: ("string", TEXT),
    12: ("bytes", BYTES),
    13: ("uint32", "uint32"),
    14: ("enum", "int32"),
    15: ("sfixed32", "int32"),
    16: ("sfixed64", "int64"),
    17: ("sint32", "int32"),
    18: ("sint64", "int64"),
}
_INT32, _STRING, _GROUP, _MESSAGE, _BYTES, _ENUM = 5, 9, 10, 11, 12, 14
# Numbers of fixed size, whose packed lists are arrays in memory.
_FIXED = frozenset({1, 2, 6, 7, 15, 16})
_REPEATED, _OPTIONAL = 3, 1

_MESSAGE_BYTES_MAX = (1 << 31) - 1
"""Limit of protobuf on the size of a message."""
_CONNECT_MS = 10_000
"""Time limit of an attempt to connect."""
_RECONNECT_MS = 1000
"""Longest pause before the next attempt to connect to a server that was lost: less than the time for which a server withdraws a function."""
_REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_INFRASTRUCTURE = "grpc."
"""Prefix of services such as reflection and health checks, which are not offered as functions."""
_DEPTH_MAX = 16
"""Maximum depth of nested messages."""
_FIELDS_MAX = 1000
"""Maximum number of fields of a message, including those of nested messages."""
_FILES_MAX = 1000
"""Maximum number of files with descriptions that are requested for a service."""
_TOO_LARGE = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")

# Codes of rejected arguments; all other codes are failures of the method.
_REFUSALS = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
    }
)


class Grpc:
    """A gRPC server. One thread uses it at a time.

    Parameters
    ----------
    endpoint : str
        ``HOST:PORT``, with ``https://`` or ``grpcs://`` before it for TLS.
    seconds : float
        Deadline of a call.
    size : int, optional
        Maximum size of an answer, bytes.
    authorities : str, optional
        Certificates in PEM of the authorities that are trusted to certify the server; by default those of grpcio.

    Raises
    ------
    InputError
        If the endpoint is not an address, or grpcio is missing.
    """

    noun, server = "method", "a gRPC server"
    takes_signatures = False

    def __init__(self, endpoint: str, seconds: float, size: int = ANSWER_BYTES_MAX, authorities: str | None = None) -> None:
        parsed = re.fullmatch(r"(?:(https?|grpcs?)://)?((?:\[[0-9A-Fa-f:.%]+\]|[^\s/@:\[\]]+):[0-9]{1,5})/?", endpoint)
        if parsed is None or not 0 < int(parsed[2].rpartition(":")[2]) < 1 << 16:
            raise InputError(f"--endpoint {without_password(endpoint)}: expected HOST:PORT, such as 127.0.0.1:50051, or https://HOST:PORT for TLS")
        self._has_tls = parsed[1] in ("https", "grpcs")
        if authorities is not None and not self._has_tls:
            raise InputError(f"--ca-file: {endpoint} does not use TLS; write https://{parsed[2]}, or omit the option")
        _grpc()
        # Without 'dns:', a host named 'unix' would be read as a scheme. In a URI, the percent sign of an address with a zone is %25.
        self._target = f"dns:///{parsed[2].replace('%', '%25')}"
        self._endpoint, self._authorities = endpoint, authorities
        self._seconds, self._size = seconds, min(size, _MESSAGE_BYTES_MAX)
        self._channel: Any = None
        # Versions of reflection that the server may have, and their messages.
        self._versions = list(_REFLECTION)
        self._reflection: dict[str, Any] = {}
        self._pool: Any = None
        self._loaded: set[str] = set()
        self._described: dict[str, Any] = {}
        self._services: list[str] = []
        self._messages: dict[str, tuple[_Messages, _Messages]] = {}

    def models(self) -> list[tuple[str, str | None]]:
        """Return the names of the methods, such as ``shop.Prices/Find``, each with the reason why it cannot be called, or None."""
        found: list[tuple[str, str | None]] = []
        for service in self._listed():
            try:
                described = self._service(service)
            except ModelNotOffered as error:
                found.append((service, str(error)))
                continue
            for method in described.methods:
                streams = [what for what, is_stream in [("requests", method.client_streaming), ("responses", method.server_streaming)] if is_stream]
                why = f"it has a stream of {' and '.join(streams)}; a function has one request and one response" if streams else None
                found.append((f"{service}/{method.name}", why))
        return found

    def function(self, model: str) -> tuple[str, str]:
        """Module and name of the method's function. The module is the service's name, without its package if no other service has the same name."""
        service, _, method = model.partition("/")
        short = _short(service)
        is_alone = sum(_short(one) == short for one in self._services or [service]) == 1
        return short if is_alone else service, method

    def signature(self, model: str) -> Model:
        """Fields of the request and the response. The name may lack the service's package."""
        given, _, name = model.partition("/")
        services = [one for one in self._listed() if given in (one, _short(one))]
        if given in services:
            services = [given]
        if not services or not name:
            known = ", ".join(self._services)
            raise ModelGone(f"{self._endpoint} has no method '{model}': expected SERVICE/METHOD with one of the services {known or '(none)'}")
        if len(services) > 1:
            raise InputError(f"--model {model}: several services have this name: {', '.join(services)}; give the name with its package")
        methods = {one.name: one for one in self._service(services[0]).methods}
        if name not in methods:
            raise ModelGone(f"{self._endpoint} has no method '{model}': the service {services[0]} has {', '.join(methods)}")
        method, full = methods[name], f"{services[0]}/{name}"
        if method.client_streaming or method.server_streaming:
            raise ModelNotOffered(f"method '{full}': it is a stream; a function has one request and one response")
        inputs, request = _flattened(full, method.input_type)
        outputs, response = _flattened(full, method.output_type)
        return Model(full, tuple(inputs), tuple(outputs), has_batch=False, details={"request": request, "response": response})

    def call(self, model: Model, inputs: Sequence[Value]) -> list[Value]:
        """Results of one call."""
        if model.name not in self._messages:
            self._messages[model.name] = (_Messages(model.details["request"]), _Messages(model.details["response"]))
        requests, responses = self._messages[model.name]
        size = sum(one.nbytes if isinstance(one, np.ndarray) else len(one) for one in inputs)
        if size > _MESSAGE_BYTES_MAX:
            raise ModelRefused(f"method '{model.name}': the arguments have {size} bytes, and a message has less than 2 GiB: send less in one call")
        try:
            request = requests.encode(inputs)
        except (_imported("google.protobuf.message").EncodeError, ValueError) as error:
            raise ModelRefused(
                f"method '{model.name}': the arguments have {size} bytes, and the message cannot be encoded ({error}); "
                f"its limit is {_MESSAGE_BYTES_MAX} bytes: send less in one call"
            ) from None
        answer = self._ask(f"/{model.name}", request, f"method '{model.name}'")
        return responses.decode(answer, model)

    def _ask(self, path: str, request: bytes, subject: str) -> bytes:
        grpc = _grpc()
        try:
            answer: bytes = self._opened().unary_unary(path)(request, timeout=self._seconds)
        except grpc.RpcError as error:
            raise self._failed(error, subject) from None
        return answer

    def _failed(self, error: Any, subject: str) -> Exception:
        """Return the exception for a status of gRPC."""
        code, details = error.code().name, error.details() or "no message"
        told = f"{subject}: {code}: {details}"
        too_large = _TOO_LARGE.search(details)
        if code == "UNAVAILABLE":
            is_running = " is the server running there?" if "connect" in details.lower() else ""
            return EndpointLost(f"{self._endpoint} cannot be reached: {told};{is_running}".rstrip(";"))
        if code == "DEADLINE_EXCEEDED":
            return EndpointLost(f"{self._endpoint} did not answer within {self._seconds:g} s: {told}")
        if code == "UNIMPLEMENTED":
            return ModelGone(f"{self._endpoint} does not have the method: {told}")
        if code == "RESOURCE_EXHAUSTED" and too_large:
            got, limit = int(too_large[1]), int(too_large[2])
            # Newer versions of grpcio name the end that has refused the message.
            is_answer = "CLIENT:" in details or ("SERVER:" not in details and limit == self._size)
            if is_answer:
                remedy = "request less in one call, or start the connector with a larger --answer-limit"
                return WrongAnswer(f"{subject}: the answer has {got} bytes, and the limit is {limit}: {remedy}")
            return ModelRefused(f"{told}; the limit is the server's: send less in one call, or raise its option grpc.max_receive_message_length")
        return (ModelRefused if code in _REFUSALS else ModelFailed)(told)

    def _opened(self) -> Any:
        """The channel. Each process has its own, because a channel does not work in a process that was forked."""
        if self._channel is None:
            grpc = _grpc()
            options = [
                ("grpc.max_receive_message_length", self._size),
                ("grpc.max_send_message_length", -1),
                ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS // 10),
                # In spite of its name, this is the time limit of an attempt.
                ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
                ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
                # As for other connections of the grid, the environment's proxies do not apply.
                ("grpc.enable_http_proxy", 0),
            ]
            if self._has_tls:
                given = self._authorities.encode() if self._authorities is not None else None
                self._channel = grpc.secure_channel(self._target, grpc.ssl_channel_credentials(given), options)
            else:
                self._channel = grpc.insecure_channel(self._target, options)
            # The threads of a channel that is still open can keep the process from ending.
            atexit.register(self._channel.close)
        return self._channel

    def _listed(self) -> list[str]:
        """Names of the services, requested from the server at the first call."""
        if not self._services:
            services = self._reflect(list_services="*").list_services_response.service
            self._services = [one.name for one in services if not one.name.startswith(_INFRASTRUCTURE)]
        return self._services

    def _service(self, name: str) -> Any:
        """The description of a service, requested from the server at the first call."""
        if self._pool is None:
            self._pool = _imported("google.protobuf.descriptor_pool").DescriptorPool()
        if name not in self._described:
            self._load(self._reflect(file_containing_symbol=name))
            try:
                self._described[name] = self._pool.FindServiceByName(name)
            except (KeyError, TypeError) as error:
                raise ModelNotOffered(f"the descriptions of reflection lack the service: {error}") from None
        return self._described[name]

    def _load(self, answer: Any) -> None:
        """Add the files of an answer to the pool, each after the files that it imports."""
        files: dict[str, Any] = {}
        imports: list[str] = []
        asked: set[str] = set()

        def take(answer: Any) -> None:
            for one in answer.file_descriptor_response.file_descriptor_proto:
                try:
                    file = _imported("google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(one)
                except _imported("google.protobuf.message").DecodeError as error:
                    raise ModelNotOffered(f"the descriptions of reflection cannot be read: {error}") from None
                files[file.name] = file
                imports.extend(file.dependency)
            if len(files) > _FILES_MAX or len(asked) > _FILES_MAX:
                raise ModelNotOffered(f"its description has more than {_FILES_MAX} files with those that they import, which is the limit")

        take(answer)
        while imports:
            name = imports.pop()
            if name not in files and name not in self._loaded and name not in asked:
                asked.add(name)
                take(self._reflect(file_by_filename=name))
        opened: set[str] = set()
        waiting = list(files)
        while waiting:
            file = files[waiting[-1]]
            lacking = [name for name in file.dependency if name in files and name not in self._loaded and name not in opened]
            if lacking and file.name not in opened and file.name not in self._loaded:
                opened.add(file.name)
                waiting.extend(lacking)
                continue
            waiting.pop()
            if file.name not in self._loaded:
                self._add(file)

    def _add(self, file: Any) -> None:
        try:
            self._pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise ModelNotOffered(f"the description of {file.name} is wrong: {error}") from None
        self._loaded.add(file.name)

    def _reflect(self, **asked: str) -> Any:
        """The answer of reflection, of the version that the server has."""
        grpc = _grpc()
        self._reflection = self._reflection or _reflection_messages()
        request = self._reflection["ServerReflectionRequest"](**asked).SerializeToString()
        while True:
            try:
                call = self._opened().stream_stream(f"/{self._versions[0]}/ServerReflectionInfo")(iter([request]), timeout=self._seconds)
                answer = self._reflection["ServerReflectionResponse"].FromString(next(call))
                call.cancel()
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.UNIMPLEMENTED and len(self._versions) > 1:
                    del self._versions[0]
                    continue
                if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                    remedy = "enable it in the server (Python: enable_server_reflection of grpcio-reflection)"
                    raise ModelNotOffered(f"{self._endpoint} offers no reflection, which describes methods: {remedy}") from None
                raise self._failed(error, "reflection") from None
            except StopIteration:
                raise WrongAnswer(f"{self._endpoint}: reflection ended without an answer") from None
            except _imported("google.protobuf.message").DecodeError as error:
                raise WrongAnswer(f"{self._endpoint}: the answer of reflection does not follow its protocol: {error}") from None
            if answer.HasField("error_response"):
                raise ModelNotOffered(f"reflection: {answer.error_response.error_message or 'an error without a message'}")
            return answer


def _short(service: str) -> str:
    return service.rpartition(".")[2]


def _grpc() -> Any:
    """The module grpc."""
    # All errors are raised; the library's log would repeat them.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    _imported("google.protobuf")
    return _imported("grpc")


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"--protocol grpc needs the packages grpcio and protobuf ({error}): pip install 'gridloom[grpc]'") from None


def _flattened(method: str, described: Any) -> tuple[list[Tensor], list[dict[str, Any]]]:
    """Fields of a message as tensors, and as a tree whose leaves are the tensors in the same order.

    A node has the field's number, type and whether it repeats; a nested message has its fields.
    """
    tensors: list[Tensor] = []
    count = 0

    def fields_of(message: Any, prefix: str, outer: tuple[str, ...]) -> list[dict[str, Any]]:
        nonlocal count
        if message.full_name in outer:
            raise refused(prefix.rstrip("."), f"messages {message.full_name} are nested without an end")
        if len(outer) == _DEPTH_MAX:
            raise refused(prefix.rstrip("."), f"more than {_DEPTH_MAX} messages are nested in each other, which is the limit")
        proto = _imported("google.protobuf.descriptor_pb2").DescriptorProto()
        message.CopyToProto(proto)
        tree = []
        for field in proto.field:
            name, described = prefix + field.name, message.fields_by_name[field.name]
            is_list = field.label == _REPEATED
            count += 1
            if count > _FIELDS_MAX:
                raise refused(name, f"the message has more than {_FIELDS_MAX} fields, with those of nested messages, which is the limit")
            if field.HasField("oneof_index") and not field.proto3_optional:
                raise refused(name, f"it is a part of the oneof '{proto.oneof_decl[field.oneof_index].name}'")
            if described.type == _GROUP:
                raise refused(name, "it is a group, or a message in the encoding of groups")
            if described.type == _MESSAGE:
                if described.message_type.GetOptions().map_entry:
                    raise refused(name, "it is a map")
                if is_list:
                    raise refused(name, f"it is a list of messages {described.message_type.full_name}")
                inner = fields_of(described.message_type, f"{name}.", (*outer, message.full_name))
                tree.append({"number": field.number, "fields": inner})
                continue
            word, dtype = _TYPES[described.type]
            if is_list and dtype in (BYTES, TEXT):
                raise refused(name, f"it is a list of {word}")
            shape = (-1,) if is_list else ()
            tensors.append(Tensor(name, f"repeated {word}" if is_list else word, dtype, shape, is_list=is_list))
            kind = _INT32 if described.type == _ENUM else described.type
            node: dict[str, Any] = {"number": field.number, "type": kind, "is_list": is_list}
            # In proto2, the default of an enum is its first value, which may be another number than 0.
            if described.type == _ENUM and not is_list:
                node["default"] = str(described.default_value)
            elif field.default_value:
                node["default"] = field.default_value
            tree.append(node)
        return tree

    def refused(field: str, why: str) -> ModelNotOffered:
        return ModelNotOffered(f"method '{method}': the field '{field}' of {described.full_name} has no type on the grid: {why}")

    return tensors, fields_of(described, "", ())


class _Messages:
    """Messages with the fields of a tree."""

    def __init__(self, tree: list[dict[str, Any]]) -> None:
        self._tree = tree
        self._raw = _message_type(tree, True)
        self._plain: Any = None

    def encode(self, values: Sequence[Value]) -> bytes:
        message = self._raw()
        self._fill(message, self._tree, iter(values))
        encoded: bytes = message.SerializeToString()
        return encoded

    def _fill(self, message: Any, tree: list[dict[str, Any]], values: Iterator[Value]) -> None:
        for node in tree:
            name = f"f{node['number']}"
            if "fields" in node:
                inner = getattr(message, name)
                # A nested message is sent even if it is empty.
                inner.SetInParent()
                self._fill(inner, node["fields"], values)
                continue
            value = next(values)
            if not isinstance(value, np.ndarray):
                setattr(message, name, value)
            elif not node["is_list"]:
                setattr(message, name, value.item())
            elif node["type"] in _FIXED:
                if value.size:
                    getattr(message, name).append(value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes())
            else:
                getattr(message, name).extend(value.reshape(-1).tolist())

    def decode(self, answer: bytes, model: Model) -> list[Value]:
        try:
            message = self._raw.FromString(answer)
            is_raw = not self._has_unpacked(message, self._tree)
            if not is_raw:
                self._plain = self._plain or _message_type(self._tree, False)
                message = self._plain.FromString(answer)
        except _imported("google.protobuf.message").DecodeError as error:
            raise WrongAnswer(f"method '{model.name}': the answer of {len(answer)} bytes does not follow the method's description: {error}") from None
        outputs = iter(model.outputs)
        return list(self._values(message, self._tree, outputs, is_raw, model))

    def _has_unpacked(self, message: Any, tree: list[dict[str, Any]]) -> bool:
        """Whether a list of numbers of fixed size has elements in the unpacked encoding, which are unknown to the message."""
        unknown = _imported("google.protobuf.unknown_fields").UnknownFieldSet
        lists = {node["number"] for node in tree if node.get("is_list") and node["type"] in _FIXED}
        if lists and any(field.field_number in lists for field in unknown(message)):
            return True
        return any("fields" in node and self._has_unpacked(getattr(message, f"f{node['number']}"), node["fields"]) for node in tree)

    def _values(self, message: Any, tree: list[dict[str, Any]], outputs: Iterator[Tensor], is_raw: bool, model: Model) -> Iterator[Value]:
        for node in tree:
            try:
                value = getattr(message, f"f{node['number']}")
            except UnicodeDecodeError as error:
                raise WrongAnswer(f"method '{model.name}': a text of the answer is not UTF-8: {error}") from None
            if "fields" in node:
                yield from self._values(value, node["fields"], outputs, is_raw, model)
                continue
            tensor = next(outputs)
            if tensor.dtype in (BYTES, TEXT):
                yield value
            elif is_raw and tensor.is_list and node["type"] in _FIXED:
                pieces, wire = b"".join(value), np.dtype(tensor.dtype).newbyteorder("<")
                if len(pieces) % wire.itemsize:
                    raise WrongAnswer(
                        f"method '{model.name}': the field '{tensor.name}' of the answer has {len(pieces)} bytes, which are not {tensor.datatype}"
                    )
                yield np.frombuffer(pieces, dtype=wire).astype(tensor.dtype, copy=False)
            else:
                yield np.array(value, dtype=tensor.dtype)


def _message_type(tree: list[dict[str, Any]], is_raw: bool) -> Any:
    """A class of messages with these fields, named by their numbers. With `is_raw`, packed lists of numbers of fixed size are ``bytes``.

    All fields have presence, so numbers that are 0 are sent, too: a required field must not be absent.
    """
    file = _file("gridloom_connector.proto")
    count = 0

    def add(fields: list[dict[str, Any]]) -> str:
        nonlocal count
        name, count = f"M{count}", count + 1
        message = file.message_type.add(name=name)
        for node in fields:
            field = message.field.add(name=f"f{node['number']}", number=node["number"], label=_OPTIONAL)
            if "fields" in node:
                field.type, field.type_name = _MESSAGE, f".{add(node['fields'])}"
                continue
            field.type = node["type"]
            if node["is_list"]:
                field.label = _REPEATED
                if is_raw and node["type"] in _FIXED:
                    field.type = _BYTES
                else:
                    field.options.packed = True
            elif "default" in node:
                field.default_value = node["default"]
        return name

    outermost = add(tree)
    return _classes(file)[outermost]


def _reflection_messages() -> dict[str, Any]:
    """The messages of reflection, which are the same in both versions, with the fields that are used."""
    file = _file("gridloom_reflection.proto")
    fields = {
        "ServerReflectionRequest": [("file_by_filename", 3, ""), ("file_containing_symbol", 4, ""), ("list_services", 7, "")],
        "ServerReflectionResponse": [
            ("file_descriptor_response", 4, "FileDescriptorResponse"),
            ("list_services_response", 6, "ListServiceResponse"),
            ("error_response", 7, "ErrorResponse"),
        ],
        "FileDescriptorResponse": [("file_descriptor_proto", 1, "repeated bytes")],
        "ListServiceResponse": [("service", 1, "repeated ServiceResponse")],
        "ServiceResponse": [("name", 1, "")],
        "ErrorResponse": [("error_message", 2, "")],
    }
    for name, its_fields in fields.items():
        message = file.message_type.add(name=name)
        for field, number, kind in its_fields:
            repeated, _, kind = kind.rpartition(" ")
            added = message.field.add(name=field, number=number, label=_REPEATED if repeated else _OPTIONAL, type=_STRING)
            if kind == "bytes":
                added.type = _BYTES
            elif kind:
                added.type, added.type_name = _MESSAGE, f".{kind}"
    return _classes(file)


def _file(name: str) -> Any:
    return _imported("google.protobuf.descriptor_pb2").FileDescriptorProto(name=name, syntax="proto2")


def _classes(file: Any) -> dict[str, Any]:
    """Classes of the messages of a file, by name."""
    pool = _imported("google.protobuf.descriptor_pool").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    class_of = _imported("google.protobuf.message_factory").GetMessageClass
    return {one.name: class_of(pool.FindMessageTypeByName(one.name)) for one in file.message_type}
