"""Connectors of RPC servers: real servers of gRPC and XML-RPC in this process, and their methods as functions of a grid."""

import http.server
import json
import shutil
import ssl
import subprocess
import sys
import threading
from concurrent import futures
from contextlib import ExitStack

import gridloom as gl
import numpy as np
import pytest
from gridloom.connector import __main__ as connector_main
from gridloom.connector import model, model_functions, protocol_grpc
from gridloom.connector.protocol_xml_rpc import parse_signature
from gridloom.errors import InputError
from model_servers import free_port
from rpc_servers import GrpcServer, compiled, xml_rpc_server

GRIDLOOM = [sys.executable, "-m", "gridloom"]


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: make .venv/tests")
    pytest.importorskip("grpc_reflection", reason="grpcio-reflection is not installed: make .venv/tests")
    return compiled(tmp_path_factory.mktemp("protos"))


@pytest.fixture
def server(modules):
    with GrpcServer(modules) as server:
        yield server


@pytest.fixture
def xml():
    with xml_rpc_server() as url:
        yield url


def grpc_connector(endpoint, *limits):
    return model_functions.PROTOCOLS["grpc"](endpoint, *limits or [60.0])


def xml_connector(endpoint, *limits):
    return model_functions.PROTOCOLS["xml-rpc"](endpoint, *limits or [60.0])


def shown(connector, name, shapes=None):
    described = connector.signature(name)
    return str(model_functions.signature_of(described, "/".join(connector.function(described.name)), shapes or {})[0])


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_methods_of_grpc_are_found_by_both_versions_of_reflection(modules, version):
    with GrpcServer(modules, reflection=version) as server:
        made = grpc_connector(server.endpoint)
        why = dict(made.models())
        assert sorted(why) == sorted(
            [f"demo.v1.Arrays/{one}" for one in ("Echo Product Step Fail Hold Pick Grow Look Join Watch Send").split()]
            + ["old.Names/Same", "old.Names/Default", "old.Names/Rest", "young.Names/Upper"]
        )
        assert why["demo.v1.Arrays/Watch"] == "it has a stream of responses; a function has one request and one response"
        assert why["demo.v1.Arrays/Send"] == "it has a stream of requests; a function has one request and one response"
        assert made.function("young.Names/Upper") == ("young.Names", "Upper") and made.function("demo.v1.Arrays/Echo") == ("Arrays", "Echo")


def test_types_of_grpc(server):
    made = grpc_connector(server.endpoint)
    echo = made.signature("Arrays/Echo")
    described = [(one.name, one.dtype, one.shape) for one in echo.inputs]
    assert described == [
        ("n", "int32", ()),
        ("x", "float64", (-1,)),
        ("inner.scale", "float64", ()),
        ("inner.counts", "int64", (-1,)),
        ("name", "str", ()),
        ("data", "bytes", ()),
        ("kind", "int32", ()),
        ("flag", "bool", ()),
        ("ids", "uint32", (-1,)),
        ("unpacked", "float32", (-1,)),
    ]
    x = np.random.default_rng(1).standard_normal(1000)
    # Arrays of another byte order, of several dimensions and without elements can be sent, too.
    values = [np.int32(-7), x.astype(">f8"), np.float64(2.5), np.array([1, -(2**60)]), "Ångström", b"\xff\x00", np.int32(-3), np.bool_(True)]
    values += [np.array([[1, 2], [2**32 - 1, 0]], np.uint32), np.array([1.5, -2.5], np.float32)]
    results = made.call(echo, [one if isinstance(one, (str, bytes)) else np.asarray(one) for one in values])
    assert [one.dtype.name for one in results if isinstance(one, np.ndarray)] == [
        one.dtype for one in echo.outputs if one.dtype not in ("str", "bytes")
    ]
    for value, result in zip(values, results, strict=True):
        assert value == result if isinstance(value, (str, bytes)) else np.array_equal(np.ravel(value), np.ravel(result)), value
    empty = [
        np.asarray(np.zeros(0 if tensor.shape else (), tensor.dtype))
        if tensor.dtype not in ("str", "bytes")
        else {"str": "", "bytes": b""}[tensor.dtype]
        for tensor in echo.inputs
    ]
    assert [np.size(one) for one in made.call(echo, empty) if isinstance(one, np.ndarray)] == [1, 0, 1, 0, 1, 1, 0, 0]


def test_fields_of_older_descriptions_keep_their_presence_and_defaults(server):
    made = grpc_connector(server.endpoint)
    same = made.signature("old.Names/Same")
    # A required field is sent although it is 0; the list is sent in the unpacked encoding of proto2.
    count, text, size, x = made.call(same, [np.array(0, np.int32), "", np.array(4, np.int32), np.arange(3.0)])
    assert (int(count), text, int(size), x.tolist()) == (0, "", 4, [0.0, 1.0, 2.0])
    count, text, size, x = made.call(made.signature("old.Names/Default"), [np.array(1, np.int32), "a", np.array(4, np.int32), np.arange(3.0)])
    assert (int(count), text, int(size), x.tolist()) == (0, "none", 9, [])
    # Without a default in its description, an enum of proto2 is its first value, which is not 0.
    (rest,) = made.call(made.signature("old.Names/Rest"), [np.array(0, np.int32)])
    assert int(rest) == 4


@pytest.mark.parametrize(
    "method, field, why",
    [
        ("Pick", "number", "it is a part of the oneof 'kind'"),
        ("Grow", "left", "messages demo.v1.Tree are nested without an end"),
        ("Look", "rows", "it is a map"),
        ("Join", "texts", "it is a list of string"),
    ],
)
def test_fields_without_a_type_on_the_grid(server, method, field, why):
    with pytest.raises(model.ModelNotOffered, match=f"method 'demo.v1.Arrays/{method}': the field '{field}' of .*: {why}"):
        grpc_connector(server.endpoint).signature(f"Arrays/{method}")


def test_methods_that_a_grpc_server_does_not_have(server, modules):
    made = grpc_connector(server.endpoint)
    with pytest.raises(model.ModelGone, match="has no method 'Arrays/None': the service demo.v1.Arrays has Echo, Product"):
        made.signature("Arrays/None")
    with pytest.raises(model.ModelGone, match="expected SERVICE/METHOD with one of the services demo.v1.Arrays, old.Names, young.Names"):
        made.signature("None/Step")
    with pytest.raises(InputError, match="several services have this name: old.Names, young.Names; give the name with its package"):
        made.signature("Names/Upper")
    with pytest.raises(model.ModelNotOffered, match="it is a stream"):
        made.signature("Arrays/Watch")
    with GrpcServer(modules, reflection=None) as silent:
        with pytest.raises(model.ModelNotOffered, match="offers no reflection, which describes methods: enable it in the server"):
            grpc_connector(silent.endpoint).models()
    gone = model.Model("demo.v1.Arrays/Gone", (), (), details={"request": [], "response": []})
    with pytest.raises(model.ModelGone, match="UNIMPLEMENTED: Method not found"):
        made.call(gone, [])


@pytest.mark.parametrize("wrong", ["127.0.0.1", "ftp://host:1", "host:no", "me:secret@host:1", "host:70000", "http://host:1/path", ""])
def test_endpoints_that_are_no_address_of_grpc(modules, wrong):
    with pytest.raises(InputError, match="expected HOST:PORT, such as 127.0.0.1:50051") as raised:
        grpc_connector(wrong)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "wrong", ["ftp://me:secret@host:1", "http://me:secret@host:1", "http://me:se/cret@host", "http://[me:secret@host", "me:secret@host:1"]
)
def test_errors_do_not_show_passwords(wrong):
    with pytest.raises(InputError, match="^--endpoint") as raised:
        xml_connector(wrong)
    assert "cret" not in str(raised.value)


def test_limits_of_descriptions_of_grpc(server, monkeypatch):
    monkeypatch.setattr(protocol_grpc, "_FIELDS_MAX", 10)
    made = grpc_connector(server.endpoint)
    with pytest.raises(model.ModelNotOffered, match="the message has more than 10 fields, with those of nested messages, which is the limit"):
        made.signature("Arrays/Echo")
    monkeypatch.setattr(protocol_grpc, "_FIELDS_MAX", 11)
    assert len(made.signature("Arrays/Echo").inputs) == 10
    monkeypatch.setattr(protocol_grpc, "_DEPTH_MAX", 1)
    with pytest.raises(model.ModelNotOffered, match="the field 'inner' .*: more than 1 messages are nested in each other, which is the limit"):
        made.signature("Arrays/Echo")
    # The service's file imports two others.
    monkeypatch.setattr(protocol_grpc, "_FILES_MAX", 2)
    assert "description has more than 2 files" in dict(grpc_connector(server.endpoint).models())["demo.v1.Arrays"]


def test_wrong_answers_of_reflection(modules):
    import grpc

    pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    made = protocol_grpc._reflection_messages()["ServerReflectionResponse"]

    def endless(request):
        """Describe a service whose file imports a file, which imports another file, and so on."""
        answer = made()
        if b"endless" not in request:
            answer.list_services_response.service.add(name="endless.Service")
        else:
            number = int((request.rpartition(b"_")[2] or b"0") if b"_" in request else 0)
            file = pb2.FileDescriptorProto(name=f"endless_{number}", dependency=[f"endless_{number + 1}"])
            answer.file_descriptor_response.file_descriptor_proto.append(file.SerializeToString())
        return answer.SerializeToString()

    for answer, check in [
        (lambda request: b"\xff", lambda: pytest.raises(model.WrongAnswer, match="the answer of reflection does not follow its protocol")),
        (endless, None),
    ]:
        server = grpc.server(futures.ThreadPoolExecutor(1))

        def replies(requests, context, answer=answer):
            for request in requests:
                yield answer(request)

        handler = grpc.stream_stream_rpc_method_handler(replies)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("grpc.reflection.v1.ServerReflection", {"ServerReflectionInfo": handler}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        connector = grpc_connector(f"127.0.0.1:{port}")
        try:
            if check is None:
                ((name, why),) = connector.models()
                assert name == "endless.Service" and "more than 1000 files" in why
            else:
                with check():
                    connector.models()
        finally:
            server.stop(None).wait()


def test_a_message_of_grpc_that_cannot_be_encoded(server, monkeypatch):
    made = grpc_connector(server.endpoint)
    step = made.signature("Arrays/Step")

    def fails(self, values):
        raise pytest.importorskip("google.protobuf.message").EncodeError("Failed to serialize proto")

    monkeypatch.setattr(protocol_grpc._Messages, "encode", fails)
    with pytest.raises(model.ModelRefused, match="the arguments have 80 bytes, .*; its limit is 2147483647 bytes: send less in one call"):
        made.call(step, [np.zeros(10)])


@pytest.mark.parametrize(
    "code, kind",
    [
        (3, model.ModelRefused),
        (9, model.ModelRefused),
        (8, model.ModelFailed),
        (13, model.ModelFailed),
        (2, model.ModelFailed),
        (14, model.EndpointLost),
        (12, model.ModelGone),
    ],
)
def test_codes_of_grpc(server, code, kind):
    made = grpc_connector(server.endpoint)
    with pytest.raises(kind, match="method 'demo.v1.Arrays/Fail': [A-Z_]+: the text") as raised:
        made.call(made.signature("Arrays/Fail"), [np.array(code, np.int32), "the text"])
    assert type(raised.value) is kind


def test_messages_of_grpc_that_are_too_large(server, modules):
    made = grpc_connector(server.endpoint)
    step = made.signature("Arrays/Step")
    with pytest.raises(
        model.ModelRefused, match=r"larger than max \(80000\d\d vs. 4194304\); the limit is the server's: .* grpc.max_receive_message_length"
    ):
        made.call(step, [np.zeros(1_000_000)])
    with pytest.raises(model.WrongAnswer, match="the answer has 8000\\d\\d bytes, and the limit is 100000: .* larger --answer-limit"):
        grpc_connector(server.endpoint, 60.0, 100_000).call(step, [np.zeros(100_000)])
    with GrpcServer(modules, options=[("grpc.max_receive_message_length", -1)]) as large:
        (y,) = grpc_connector(large.endpoint).call(step, [np.zeros(1_000_000)])
        assert y.shape == (1_000_000,) and (y == 1).all()


def test_a_grpc_server_that_is_lost_and_restarts(modules):
    with GrpcServer(modules) as server:
        made = grpc_connector(server.endpoint)
        step = made.signature("Arrays/Step")
        assert made.call(step, [np.zeros(1)])[0].tolist() == [1]
    with pytest.raises(model.EndpointLost, match=f"127.0.0.1:{server.port} cannot be reached: .*; is the server running there?"):
        made.call(step, [np.zeros(1)])
    with GrpcServer(modules, port=server.port) as back:
        # Attempts to connect end within the pause after a failed one.
        while not back.calls:
            try:
                assert made.call(step, [np.zeros(1)])[0].tolist() == [1]
            except model.EndpointLost:
                continue


def test_the_time_limit_is_the_deadline_of_grpc(server):
    hold, seconds = grpc_connector(server.endpoint).signature("Arrays/Hold"), 0.25
    while not server.holding.is_set():
        # The connection may have taken longer.
        seconds *= 2
        made = grpc_connector(server.endpoint, seconds)
        with pytest.raises(model.EndpointLost, match="did not answer within [0-9.]+ s: method 'demo.v1.Arrays/Hold': DEADLINE_EXCEEDED"):
            made.call(hold, [np.zeros(1)])
    # The server is notified, so the call has ended there.
    assert server.ended.wait(60)
    grpc_connector(server.endpoint, 500.0).call(grpc_connector(server.endpoint).signature("Arrays/Step"), [np.zeros(1)])
    # The encoding of gRPC rounds a time limit.
    assert 400 < server.deadlines[-1] < 510


def test_grpc_without_its_packages(modules, server, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(InputError, match=r"--protocol grpc needs the packages grpcio and protobuf .*: pip install 'gridloom\[grpc\]'"):
        grpc_connector(server.endpoint)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return the files of a key and of a self-signed certificate for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "key.pem", folder / "cert.pem"


def test_certificates_are_read_without_the_text_between_them(certificate, tmp_path):
    _, cert = certificate
    file = tmp_path / "authorities.pem"
    file.write_bytes(b"# Autorit\xe9\n" + cert.read_bytes() + "# Ångström\n".encode() + cert.read_bytes())
    text = connector_main._authorities(file)
    assert text.count("BEGIN CERTIFICATE") == 2 and "#" not in text
    ssl.create_default_context(cadata=text)
    for wrong in [b"no base64", b"AAAA", b"\xe9"]:
        file.write_bytes(b"-----BEGIN CERTIFICATE-----\n" + wrong + b"\n-----END CERTIFICATE-----\n")
        with pytest.raises(InputError, match=f"--ca-file {file}: a certificate cannot be read: "):
            connector_main._authorities(file)


def test_grpc_with_tls(modules, certificate):
    import grpc

    key, cert = certificate
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
    with GrpcServer(modules, credentials=credentials) as server:
        for scheme in ["https", "grpcs"]:
            made = grpc_connector(f"{scheme}://{server.endpoint}", 60.0, 1 << 20, cert.read_text())
            assert made.call(made.signature("Arrays/Step"), [np.zeros(1)])[0].tolist() == [1]
        with pytest.raises(model.EndpointLost, match="UNAVAILABLE"):
            grpc_connector(f"https://{server.endpoint}").models()
        with pytest.raises(InputError, match="--ca-file: .* does not use TLS; write https://"):
            grpc_connector(server.endpoint, 60.0, 1 << 20, cert.read_text())


def test_names_and_shapes_of_methods(server):
    made = grpc_connector(server.endpoint)
    assert (
        shown(made, "Arrays/Step")
        == "Arrays/Step(values: float64[values_0], values_out_0: int64; values_0: int64) -> values_out: float64[values_out_0]"
    )
    # A result with the name of an argument has another name, by which `--shape` names it.
    step = shown(made, "Arrays/Step", {"values": ["k"], "values_out": ["k+1"]})
    assert step == "Arrays/Step(values: float64[k]; k: int64) -> values_out: float64[k+1]"
    shapes = {"a": ["n", "n"], "b": ["n", "n"], "values": ["n", "n"]}
    assert shown(made, "Arrays/Product", shapes) == "Arrays/Product(a, b: float64[n, n]; n: int64) -> values: float64[n, n]"
    with pytest.raises(InputError, match="at most one size of a result that is sent as a list may be an expression"):
        shown(made, "Arrays/Product", {**shapes, "values": ["n+1", "2*n"]})
    # Sizes of arguments may be any expressions, also if a result is the same list.
    assert "values: float64[2*k, k+1]" in shown(made, "Arrays/Step", {"values": ["2*k", "k+1"], "values_out": ["k"]})
    with pytest.raises(InputError, match="--shape demo.v1.Arrays/Echo/data=n: it is one value of type bytes, which has no shape"):
        shown(made, "Arrays/Echo", {"data": ["n"]})
    with pytest.raises(InputError, match="'demo.v1.Arrays/Product' has 'n', 'a', 'b', 'values'"):
        shown(made, "Arrays/Product", {"c": ["n"]})


def test_methods_of_xml_rpc_by_introspection(xml):
    made = xml_connector(xml)
    assert ("hypotenuse", None) in made.models() and not any(name.startswith("system.") for name, _ in made.models())
    assert shown(made, "hypotenuse") == "methods/hypotenuse(p1, p2: float64) -> result: float64"
    assert shown(made, "text.upper") == "text/upper(p1: string) -> result: string"
    (result,) = made.call(made.signature("hypotenuse"), [np.array(3.0), np.array(4.0)])
    assert result == 5.0 and result.dtype == np.float64
    assert made.call(made.signature("text.upper"), ["Ångström <&>"]) == ["ÅNGSTRÖM <&>"]
    assert made.call(made.signature("text.reverse"), [b"\x00\xff"]) == [b"\xff\x00"]
    with pytest.raises(
        model.ModelNotOffered, match="an array, whose elements XML-RPC does not describe; describe it, for example by --signature 'double"
    ):
        made.signature("double")
    with pytest.raises(model.ModelNotOffered, match=r"does not describe its types \(signatures not supported\)"):
        made.signature("step")
    with pytest.raises(model.ModelNotOffered, match="the server has 2 signatures for it"):
        made.signature("same")
    with pytest.raises(model.ModelNotOffered, match=r"system.methodSignature: expected lists of names of types, got \[1, 2\]; describe it"):
        made.signature("fails")
    for value in [-(2**63), 2**63 - 1]:
        assert made.call(made.signature("shows"), [np.array(value)]) == [str(value)]
    with pytest.raises(model.ModelFailed, match="cannot marshal None .*; it returned None: start its server with allow_none=True"):
        made.call(made.signature("nothing"), [np.array(True)])
    with xml_rpc_server(allow_none=True) as other:
        assert xml_connector(other).call(made.signature("nothing"), [np.array(True)]) == []
    with xml_rpc_server(introspects=False) as other:
        with pytest.raises(
            model.ModelNotOffered, match='does not list its methods, so describe each by --signature: .*"system.listMethods" is not supported'
        ):
            xml_connector(other).models()


@pytest.mark.parametrize(
    "signature, arguments, results",
    [
        ("double(x: float64[n, m]; n, m: int64) -> y: float64[n, m]", [[[1.0, 2.0], [3.0, 4.0]]], [[[2, 4], [6, 8]]]),
        ("double(x: float64[n, m]) -> y: float64[n, m]", [np.zeros((0, 0))], [np.zeros((0, 0))]),
        ("step(x: int32[n]) -> y: int32[n]", [[1, -2]], [[2, -1]]),
        ("range(x: float64[n]) -> (low: float64, high: float64)", [[1.0, -2.0]], [-2, 1]),
        ("ends(x: float64[n]) -> (first: float64, last: float64)", [[1.0, -2.0]], [1, -2]),
        ("same(x: bool[n]) -> y: bool[n]", [[True, False]], [[True, False]]),
        ("same(x: bytes) -> y: bytes", [b"\x00"], [b"\x00"]),
        ("same(x: str) -> y: str", ["a\tb"], ["a\tb"]),
    ],
)
def test_methods_of_xml_rpc_that_are_described(xml, signature, arguments, results):
    described = parse_signature(signature)
    values = [one if isinstance(one, (str, bytes)) else np.asarray(one, tensor.dtype) for one, tensor in zip(arguments, described.inputs)]
    for result, right, tensor in zip(xml_connector(xml).call(described, values), results, described.outputs, strict=True):
        if isinstance(right, (str, bytes)):
            assert result == right
        else:
            assert result.dtype.name == tensor.dtype and np.array_equal(result, right) and result.ndim == len(tensor.shape)


@pytest.mark.parametrize(
    "signature, argument, kind, told",
    [
        ("same(x: int64) -> y: int64", 2**31, model.ModelRefused, "'x' has the value 2147483648, and integers of XML-RPC have 32 bits"),
        ("same(x: int64) -> y: int64", -(2**31) - 1, model.ModelRefused, "'x' has the value -2147483649"),
        ("same(x: float64) -> y: float64", float("nan"), model.ModelRefused, "'x' has NaN or infinite values"),
        ("same(x: str) -> y: str", "a\x01", model.ModelRefused, "has the character .*; describe the parameter as bytes"),
        ("same(x: str) -> y: str", "a\r", model.ModelRefused, "has the character"),
        ("same(x: float64) -> y: str", 1.5, model.WrongAnswer, "is described as str, and is 1.5"),
        ("same(x: float64[n]) -> y: int32[n]", [1.5], model.WrongAnswer, "is described as int32, and has the value 1.5"),
        ("same(x: int32[n]) -> y: uint8[n]", [1, 300], model.WrongAnswer, "a value that does not fit into it"),
        ("same(x: int32) -> y: uint8", -1, model.WrongAnswer, "a value that does not fit into it"),
        ("same(x: float64) -> y: float32", 1e300, model.WrongAnswer, "is described as float32, and has a value that does not fit into it"),
        ("same(x: float64[n]) -> ()", np.ones(10**5), model.WrongAnswer, r"returned \[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, \.\.\.\]$"),
        ("same(x: int32) -> y: uint8", 300, model.WrongAnswer, "a value that does not fit into it"),
        ("same(x: float64[n, m]) -> y: float64[n]", [[1.5]], model.WrongAnswer, r"has the value \[1.5\]"),
        ("same(x: float64[n]) -> y: float64[n, m]", [1.5], model.WrongAnswer, "array of 2 dimensions, and has 1.5 in place of an array"),
        ("same(x: float64) -> ()", 1.5, model.WrongAnswer, "its description has no result, and it returned 1.5"),
        ("same(x: float64) -> (y: float64, z: float64)", 1.5, model.WrongAnswer, "expected an array or struct of 2 results, got 1.5"),
        ("range(x: float64[n]) -> (low: float64, most: float64)", [1.5], model.WrongAnswer, "the struct that it returned lacks the member 'most'"),
        ("fails(x: str) -> y: str", "the text", model.ModelFailed, "method 'fails': fault 1: <class 'ValueError'>:the text"),
        ("none(x: str) -> y: str", "a", model.ModelGone, '"none" is not supported'),
        # The method itself exists: another one that it calls does not.
        ("fails(x: str) -> y: str", 'method "other" is not supported', model.ModelFailed, 'method "other" is not supported'),
        ("fails(x: str) -> y: str", 'tried: method "fails" is not supported', model.ModelFailed, "tried: method"),
    ],
)
def test_calls_of_xml_rpc_that_go_wrong(xml, signature, argument, kind, told):
    described = parse_signature(signature)
    value = argument if isinstance(argument, str) else np.asarray(argument, described.inputs[0].dtype)
    with pytest.raises(kind, match=told):
        xml_connector(xml).call(described, [value])


def answering(stack, body):
    """Return a connector to a server that answers each request with these bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = stack.enter_context(http.server.HTTPServer(("127.0.0.1", 0), Handler))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    stack.callback(thread.join)
    stack.callback(server.shutdown)
    return xml_connector(f"http://127.0.0.1:{server.server_address[1]}")


FAULT = "<methodResponse><fault><value><struct><member><name>faultCode</name><value>{}</value></member>"
FAULT += "<member><name>faultString</name><value>sorry</value></member></struct></value></fault></methodResponse>"
RESULT = "<methodResponse><params><param><value>{}</value></param></params></methodResponse>"


@pytest.mark.parametrize(
    "body, kind, told",
    [
        (RESULT.format("<bigdecimal>none</bigdecimal>"), model.WrongAnswer, "the answer is not XML-RPC"),
        (RESULT.format("<int>none</int>"), model.WrongAnswer, "the answer is not XML-RPC"),
        (FAULT.format("<array><data><value>a</value></data></array>"), model.ModelFailed, r"fault \['a'\]: sorry"),
        (FAULT.format("Client"), model.ModelFailed, "fault Client: sorry"),
        (FAULT.format("<int>-32601</int>"), model.ModelGone, "fault -32601: sorry"),
    ],
)
def test_odd_answers_of_xml_rpc(body, kind, told):
    with ExitStack() as stack:
        with pytest.raises(kind, match=told):
            answering(stack, body.encode()).call(parse_signature("step(x: float64) -> y: float64"), [np.array(1.0)])


def test_a_server_of_xml_rpc_with_one_thread_and_open_connections():
    step = parse_signature("step(x: float64[n]) -> y: float64[n]")
    with xml_rpc_server(protocol="HTTP/1.1") as url:
        first, second = xml_connector(url), xml_connector(url)
        # With a connection that stays open, the server would not accept the other connector's.
        for made in [first, second, first, second]:
            assert made.call(step, [np.zeros(1)])[0].tolist() == [1]


def test_paths_of_xml_rpc():
    with xml_rpc_server(paths=("/",)) as url:
        with pytest.raises(model.ModelNotOffered, match="HTTP status 404"):
            xml_connector(url).models()
        assert xml_connector(f"{url}/").models()


def test_an_xml_rpc_server_that_is_lost_or_sends_too_much(xml):
    step = parse_signature("step(x: float64[n]) -> y: float64[n]")
    with pytest.raises(model.WrongAnswer, match="more than 10000 bytes, which is the limit; .* larger --answer-limit"):
        xml_connector(xml, 60.0, 10_000).call(step, [np.zeros(1000)])
    with pytest.raises(model.EndpointLost, match="cannot be reached: Connection refused; is the XML-RPC server running there?"):
        xml_connector(f"http://127.0.0.1:{free_port()}").call(step, [np.zeros(1)])
    with pytest.raises(model.ModelGone, match="HTTP status 404"):
        xml_connector(f"{xml}/other").call(step, [np.zeros(1)])
    with xml_rpc_server() as url:
        made = xml_connector(url)
        assert made.call(step, [np.zeros(1)])[0].tolist() == [1]
    with pytest.raises(model.EndpointLost, match="cannot be reached"):
        made.call(step, [np.zeros(1)])
    with xml_rpc_server(int(url.rpartition(":")[2])) as again:
        assert again == url and made.call(step, [np.zeros(1)])[0].tolist() == [1]


def test_xml_rpc_with_tls(certificate):
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    step = parse_signature("step(x: float64[n]) -> y: float64[n]")
    with xml_rpc_server(tls=context) as url:
        assert xml_connector(url, 60.0, 1 << 20, cert.read_text()).call(step, [np.zeros(1)])[0].tolist() == [1]
        with pytest.raises(model.EndpointLost, match="cannot be reached: .*certificate"):
            xml_connector(url).call(step, [np.zeros(1)])
        with pytest.raises(InputError, match="--ca-file: .* does not use TLS; write https://"):
            xml_connector(url.replace("https", "http"), 60.0, 1 << 20, cert.read_text())


@pytest.mark.parametrize(
    "shown_text",
    [
        "module.add(x, y: float64[n], by: float64; n: int64) -> z: float64[n]",
        "module.cut(text: string, data: bytes; n: int64) -> (low, high: float32, rest: uint8[n, 2])",
    ],
)
def test_signatures_are_read_as_they_are_shown(shown_text):
    described = parse_signature(shown_text)
    # A size of a result that the arguments do not determine is shown as a parameter.
    free = "(text: string, data: bytes, n: int64)" if "cut" in shown_text else None
    signature = str(model_functions.signature_of(described, "module/" + described.name.partition(".")[2], {})[0])
    arguments = shown_text.partition("(")[2]
    assert signature.partition("(")[2] == (f"{free[1:]} -> {shown_text.partition('-> ')[2]}" if free else arguments)


@pytest.mark.parametrize(
    "text, told",
    [
        ("add", "expected, for example"),
        ("add(x: float64[n]", "expected, for example"),
        ("add(x) -> y: str", "'x' is not NAME: TYPE"),
        ("add(x: float65) -> y: str", "the type 'float65' is unknown; there are bool,"),
        ("add(x: str[n]) -> y: str", "arrays are of numbers, with a size for each dimension"),
        ("add(x: int32[n,]) -> y: str", "arrays are of numbers, with a size for each dimension"),
    ],
)
def test_signatures_that_are_wrong(text, told):
    with pytest.raises(InputError, match=told):
        parse_signature(text)


def connect(stack, protocol, endpoint, *options, name="rpc"):
    """Start a connector. Return its process, its address and the functions that it offers."""
    command = [*GRIDLOOM, "connector", "--protocol", protocol, "--endpoint", endpoint, "--no-agent", "--models", "none", "--name", name]
    command += ["--listen", "127.0.0.1:0", "--json", "--until-stdin-closes", *options]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stack.enter_context(server)
    stack.callback(server.kill)
    line = server.stdout.readline()
    assert line, server.stderr.read()
    started = json.loads(line)
    return server, started["address"], started["functions"]


def test_methods_of_grpc_are_functions_of_a_grid(program, modules):
    steps = ["--shape", "demo.v1.Arrays/Step/values_out=values_0"]
    shapes = ["--shape", "Arrays/Product/a=n,n", "--shape", "Arrays/Product/b=n,n"]
    shapes += ["--shape", "Arrays/Product/values=n,n"]
    with ExitStack() as stack:
        servers = [stack.enter_context(GrpcServer(modules)) for _ in range(2)]
        first, at_first, offered = connect(stack, "grpc", servers[0].endpoint, *shapes, *steps, name="one")
        _, at_second, only = connect(stack, "grpc", servers[1].endpoint, "--method", "Arrays/Step", "--module", "mine", name="two")
        assert only == ["mine/Step"]
        assert sorted(offered) == sorted(
            [f"Arrays/{one}" for one in ("Echo", "Fail", "Hold", "Product", "Step")]
            + ["old_Names/Default", "old_Names/Rest", "old_Names/Same", "young_Names/Upper"]
        )
        grid = stack.enter_context(gl.connect(servers=[at_first, at_second]))
        random = np.random.default_rng(2)
        a, b = random.standard_normal((2, 20, 20))
        assert np.allclose(grid.function("Arrays/Product")(a, b), a @ b)
        assert grid.function("young_Names/Upper")("you") == "YOU"
        x = random.standard_normal(5000)
        with grid.group() as group:
            once = grid.function("Arrays/Step").on("one")(x)
            twice = grid.function("mine/Step").on("two")(once, 5000)
        assert np.array_equal(twice.get(), x + 1 + 1)
        # The intermediate array was sent from one connector to the other, not to the program and back.
        by_link = group.report().by_link
        assert by_link["one -> two"] == x.nbytes and "one -> client" not in by_link, by_link
        # A result of another size than the caller has passed.
        with pytest.raises(gl.SignatureError, match="5000"):
            grid.function("mine/Step")(x, 4999)
        with pytest.raises(gl.RemoteError, match="method 'demo.v1.Arrays/Fail': INVALID_ARGUMENT: the text") as raised:
            grid.function("Arrays/Fail")(3, "the text")
        assert raised.value.kind == "ModelRefused"
        with pytest.raises(gl.RemoteError, match="larger than max .* grpc.max_receive_message_length") as raised:
            grid.function("Arrays/Step")(np.zeros(1_000_000))
        assert raised.value.kind == "ModelRefused"
        first.stdin.close()
        first.wait()
        left_out = first.stderr.read()
    for method, why in [("Pick", "the field 'number' of demo.v1.Choice"), ("Watch", "it has a stream of responses"), ("Look", "it is a map")]:
        assert any(f"method 'demo.v1.Arrays/{method}' is left out" in line and why in line for line in left_out.splitlines()), left_out


def test_a_time_limit_or_a_cancellation_ends_the_call_of_grpc(program, server):
    with ExitStack() as stack:
        _, address, _ = connect(stack, "grpc", server.endpoint, "--method", "Arrays/Hold")
        grid = stack.enter_context(gl.connect(servers=[address]))
        hold = grid.function("Arrays/Hold")
        seconds = 0.5
        while not server.holding.is_set():
            with pytest.raises(gl.TimedOut):
                hold(np.zeros(1), 1, timeout=seconds)
            # The worker may have taken longer to start.
            seconds *= 2
        assert server.ended.wait(60), "the server was not notified of the end"
        server.holding.clear()
        server.ended.clear()
        future = hold.submit(np.zeros(1), 1)
        assert server.holding.wait(60)
        assert future.cancel()
        assert server.ended.wait(60), "the server was not notified of the cancellation"


def test_calls_go_to_another_connector_while_a_grpc_server_is_lost(program, modules):
    shape = ["--method", "Arrays/Step"]
    with ExitStack() as stack:
        lost, there = GrpcServer(modules), stack.enter_context(GrpcServer(modules))
        _, first, _ = connect(stack, "grpc", lost.endpoint, *shape, name="one")
        _, second, _ = connect(stack, "grpc", there.endpoint, *shape, name="two")
        grid = stack.enter_context(gl.connect(servers=[first, second]))
        step = grid.function("Arrays/Step")

        def steps(count):
            with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
                both = [step(np.full(2, float(n)), 2) for n in range(count)]
            return [one.get()[0] for one in both]

        assert steps(4) == [1, 2, 3, 4] and lost.calls and there.calls
        lost.__exit__()
        assert steps(4) == [1, 2, 3, 4]
        assert [step(np.full(2, float(n)), 2)[0] for n in range(10)] == [n + 1 for n in range(10)]
        # Wait until the connector has withdrawn its function.
        with pytest.raises((gl.InputError, gl.NotRun), match="server 'one',? (which )?does not offer"):
            while True:
                step.on("one")
                assert steps(4) == [1, 2, 3, 4]
        with GrpcServer(modules, port=lost.port) as back:
            # Wait until the connector offers its function again.
            while not back.calls:
                with grid.group():
                    many = [step(np.full(2, float(n)), 2) for n in range(8)]
                assert [one.get()[0] for one in many] == [n + 1 for n in range(8)]


STEP = ["--signature", "step(x: float64[n]) -> y: float64[n]"]


def test_a_result_of_xml_rpc_is_an_argument_of_grpc(program, server, xml):
    with ExitStack() as stack:
        _, first, _ = connect(stack, "xml-rpc", xml, *STEP, name="one")
        _, second, _ = connect(stack, "grpc", server.endpoint, "--method", "Arrays/Step", "--shape", "Arrays/Step/values_out=values_0", name="two")
        grid = stack.enter_context(gl.connect(servers=[first, second]))
        x = np.arange(5000.0)
        with grid.group() as group:
            twice = grid.function("Arrays/Step")(grid.function("methods/step")(x))
        assert np.array_equal(twice.get(), x + 2)
        by_link = group.report().by_link
        assert by_link["one -> two"] == x.nbytes and "one -> client" not in by_link, by_link


def test_methods_of_xml_rpc_are_functions_of_a_grid(program, xml):
    with ExitStack() as stack:
        process, first, offered = connect(stack, "xml-rpc", xml, *STEP, "--signature", "fails(text: str) -> y: str", name="one")
        other = stack.enter_context(xml_rpc_server())
        _, second, _ = connect(stack, "xml-rpc", other, *STEP, "--module", "mine", name="two")
        assert sorted(offered) == [
            *["methods/fails", "methods/hypotenuse", "methods/nothing", "methods/shows", "methods/step"],
            *["text/reverse", "text/upper"],
        ]
        grid = stack.enter_context(gl.connect(servers=[first, second]))
        assert grid.function("methods/hypotenuse")(3.0, 4.0) == 5.0
        assert grid.function("text/upper")("you") == "YOU" and grid.function("text/reverse")(b"ab") == b"ba"
        x = np.arange(5000.0)
        with grid.group() as group:
            once = grid.function("methods/step")(x)
            twice = grid.function("mine/step")(once)
        assert np.array_equal(twice.get(), x + 2)
        by_link = group.report().by_link
        assert by_link["one -> two"] == x.nbytes and "one -> client" not in by_link, by_link
        with pytest.raises(gl.RemoteError, match="method 'fails': fault 1: <class 'ValueError'>:the text") as raised:
            grid.function("methods/fails")("the text")
        assert raised.value.kind == "ModelFailed"
        process.stdin.close()
        process.wait()
        assert "method 'double' is left out: a parameter or the result is an array" in process.stderr.read()


@pytest.mark.parametrize(
    "options, told",
    [
        (["--method", "Arrays/None"], "has no method 'Arrays/None'"),
        (["--shape", "Arrays/None/x=2"], "--shape: there is no method 'Arrays/None' among those offered"),
        (["--signature", "f() -> ()"], "--signature: a server of the protocol grpc describes its methods itself"),
        (["--module", "a b"], "'a b"),
    ],
)
def test_wrong_options_for_grpc_are_reported(program, server, options, told):
    refused("grpc", server.endpoint, options, told)


@pytest.mark.parametrize(
    "options, told",
    [
        (["--signature", "f(x) -> y"], "'x' is not NAME: TYPE"),
        (["--method", "step"], "describe it, for example by --signature 'step("),
        (["--ca-file", "/none.pem"], "--ca-file /none.pem: "),
        (["--ca-file", "/dev/null"], "--ca-file /dev/null: expected certificates in PEM"),
    ],
)
def test_wrong_options_for_xml_rpc_are_reported(program, xml, options, told):
    refused("xml-rpc", xml, options, told)


def refused(protocol, endpoint, options, told):
    command = [*GRIDLOOM, "connector", "--protocol", protocol, "--endpoint", endpoint, "--no-agent", "--models", "none", *options]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode != 0 and told in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
