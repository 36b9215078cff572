"""Servers of gRPC, by grpcio, and of XML-RPC, by the standard library, for tests."""

import contextlib
import importlib
import importlib.resources
import sys
import threading
import xmlrpc.server
from concurrent import futures

import numpy as np

PROTOS = {
    "numbers.proto": """
syntax = "proto3";
package demo.v1;
import "common.proto";
import "google/protobuf/empty.proto";

enum Kind { PLAIN = 0; BELOW = -3; }
message Everything {
  int32 n = 1;
  repeated double x = 2;
  Inner inner = 3;
  string name = 4;
  bytes data = 5;
  Kind kind = 6;
  optional bool flag = 7;
  repeated uint32 ids = 8;
  repeated float unpacked = 9 [packed = false];
}
message Pair { int64 n = 1; repeated double a = 2; repeated double b = 3; }
message Numbers { repeated double values = 1; }
message Failure { int32 code = 1; string text = 2; }
message Choice { oneof kind { int32 number = 1; string text = 2; } }
message Tree { Tree left = 1; }
message Table { map<string, int32> rows = 1; }
message Texts { repeated string texts = 1; }
service Arrays {
  rpc Echo(Everything) returns (Everything);
  rpc Product(Pair) returns (Numbers);
  rpc Step(Numbers) returns (Numbers);
  rpc Fail(Failure) returns (google.protobuf.Empty);
  rpc Hold(Numbers) returns (Numbers);
  rpc Pick(Choice) returns (Numbers);
  rpc Grow(Tree) returns (Numbers);
  rpc Look(Table) returns (Numbers);
  rpc Join(Texts) returns (Numbers);
  rpc Watch(Numbers) returns (stream Numbers);
  rpc Send(stream Numbers) returns (Numbers);
}
""",
    "common.proto": """
syntax = "proto3";
package demo.v1;
message Inner { double scale = 1; repeated int64 counts = 2; }
""",
    # Other presence and other defaults than above: a required field is sent even if it is 0.
    "names_old.proto": """
syntax = "proto2";
package old;
enum Size { SMALL = 4; LARGE = 9; }
message Name {
  required int32 count = 1;
  optional string text = 2 [default = "none"];
  optional Size size = 3 [default = LARGE];
  repeated double x = 4;
}
message Count { required int32 count = 1; }
message First { optional Size size = 1; }
service Names { rpc Same(Name) returns (Name); rpc Default(Name) returns (Name); rpc Rest(Count) returns (First); }
""",
    "names_new.proto": """
syntax = "proto3";
package young;
message Name { string text = 1; }
service Names { rpc Upper(Name) returns (Name); }
""",
}
SERVICES = {"demo.v1.Arrays": "numbers", "old.Names": "names_old", "young.Names": "names_new"}


def compiled(folder):
    """Compile the descriptions into the folder. Return the modules of messages and of services, by the name of the file."""
    from grpc_tools import protoc

    for name, text in PROTOS.items():
        (folder / name).write_text(text)
    include = str(importlib.resources.files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{folder}", f"-I{include}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main([*arguments, *(str(folder / name) for name in PROTOS)]) == 0
    sys.path.insert(0, str(folder))
    try:
        found = {name: [importlib.import_module(f"{name}_pb2{suffix}") for suffix in ("", "_grpc")] for name in SERVICES.values()}
    finally:
        sys.path.remove(str(folder))
    return found


class GrpcServer:
    """A server of all services, from the modules of `compiled`.

    `reflection` is the version that it has, or None. `holding` is set when a call of Hold has begun, and `ended` when it has ended for its caller.
    """

    def __init__(self, modules, port=0, reflection="v1alpha", services=tuple(SERVICES), credentials=None, options=()):
        import grpc
        from grpc_reflection.v1alpha import reflection as described
        from grpc_reflection.v1alpha import reflection_pb2

        self.calls, self.holding, self.ended = [], threading.Event(), threading.Event()
        self.deadlines = []
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0), *options])
        for service in services:
            messages, stubs = modules[SERVICES[service]]
            short = service.rpartition(".")[2]
            servicer = _servicer(self, messages, getattr(stubs, f"{short}Servicer"), service)
            getattr(stubs, f"add_{short}Servicer_to_server")(servicer, self._server)
        names = [*services, described.SERVICE_NAME]
        if reflection == "v1alpha":
            described.enable_server_reflection(names, self._server)
        elif reflection == "v1":
            # Both versions have the same messages, but grpcio has a server only for the older one.
            handler = grpc.stream_stream_rpc_method_handler(
                described.ReflectionServicer(names).ServerReflectionInfo,
                reflection_pb2.ServerReflectionRequest.FromString,
                reflection_pb2.ServerReflectionResponse.SerializeToString,
            )
            handlers = grpc.method_handlers_generic_handler("grpc.reflection.v1.ServerReflection", {"ServerReflectionInfo": handler})
            self._server.add_generic_rpc_handlers((handlers,))
        address = f"127.0.0.1:{port}"
        bound = self._server.add_insecure_port(address) if credentials is None else self._server.add_secure_port(address, credentials)
        assert bound, "the port is in use"
        self.port, self.endpoint = bound, f"127.0.0.1:{bound}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()


def _servicer(server, messages, base, service):
    import grpc

    class Arrays(base):
        def Echo(self, request, context):
            server.calls.append("Echo")
            return request

        def Product(self, request, context):
            a, b = (np.array(one).reshape(request.n, request.n) for one in (request.a, request.b))
            return messages.Numbers(values=(a @ b).ravel())

        def Step(self, request, context):
            server.calls.append("Step")
            server.deadlines.append(context.time_remaining())
            return messages.Numbers(values=np.array(request.values) + 1)

        def Fail(self, request, context):
            code = next(one for one in grpc.StatusCode if one.value[0] == request.code)
            context.abort(code, request.text)

        def Hold(self, request, context):
            context.add_callback(server.ended.set)
            server.holding.set()
            server.ended.wait()
            return request

    class Names(base):
        def Same(self, request, context):
            return request

        def Default(self, request, context):
            return messages.Name(count=0)

        def Rest(self, request, context):
            return messages.First()

        def Upper(self, request, context):
            return messages.Name(text=request.text.upper())

    return Arrays() if service == "demo.v1.Arrays" else Names()


class _Introspected(xmlrpc.server.SimpleXMLRPCServer):
    SIGNATURES = {
        "hypotenuse": [["double", "double", "double"]],
        "text.upper": [["string", "string"]],
        "text.reverse": [["base64", "base64"]],
        "nothing": [["nil", "boolean"]],
        "double": [["array", "array"]],
        "shows": [["string", "i8"]],
        "fails": [1, 2],
        "same": [["int", "int"], ["double", "double"]],
    }

    def system_methodSignature(self, method_name):
        return self.SIGNATURES.get(method_name, "signatures not supported")


def _raises(text):
    raise ValueError(text)


METHODS = {
    "hypotenuse": lambda a, b: float(np.hypot(a, b)),
    "text.upper": lambda text: text.upper(),
    "text.reverse": lambda data: data[::-1],
    "nothing": lambda flag: None,
    "double": lambda rows: [[2 * one for one in row] for row in rows],
    "step": lambda values: [one + 1 for one in values],
    "same": lambda value: value,
    "range": lambda values: {"low": min(values), "high": max(values)},
    "ends": lambda values: [values[0], values[-1]],
    "fails": _raises,
    "shows": str,
}


@contextlib.contextmanager
def xml_rpc_server(port=0, introspects=True, allow_none=False, tls=None, protocol="HTTP/1.0", paths=("/", "/RPC2")):
    """Start an XML-RPC server with the methods above and one thread; with TLS if a context is given. Yield its URL."""
    handler = type("Handler", (xmlrpc.server.SimpleXMLRPCRequestHandler,), {"protocol_version": protocol, "rpc_paths": paths})
    with _Introspected(("127.0.0.1", port), handler, logRequests=False, allow_none=allow_none, use_builtin_types=True) as server:
        if introspects:
            server.register_introspection_functions()
        for name, function in METHODS.items():
            server.register_function(function, name)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
