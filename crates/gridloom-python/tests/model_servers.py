"""Servers of the Open Inference Protocol for tests and benchmarks: one in this process, and MLServer from its wheel, with the same models."""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

DTYPES = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8", "UINT8": "u1", "BOOL": "?"}


def tensor(name, datatype, *shape):
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def mix(a, b):
    return [a.sum(axis=1) + b, np.array([len(b)]), b > 0]


MODELS = {
    "double": ([tensor("x", "FP32", -1, 3)], [tensor("y", "FP32", -1, 3)], lambda x: [x * 2]),
    "mix-2": (
        [tensor("a", "FP64", -1, 2), tensor("b", "INT64", -1)],
        [tensor("total", "FP64", -1), tensor("count", "INT64", 1), tensor("above", "BOOL", -1)],
        mix,
    ),
    "rest": ([tensor("x", "FP64", -1, -1)], [tensor("y", "FP64", -1, -1)], lambda x: [x[:, 1:]]),
    "greet": ([tensor("name", "BYTES", 1)], [tensor("text", "BYTES", -1)], lambda name: [b"hello " + name]),
    "picky": ([tensor("x", "FP64", -1)], [tensor("y", "FP64", -1)], None),
    "step": ([tensor("x", "FP64", -1)], [tensor("y", "FP64", -1)], lambda x: [x + 1]),
}


def picky(x):
    raise ValueError(f"picky takes 4 numbers, got {len(x)}")


MODELS["picky"] = (*MODELS["picky"][:2], picky)

RUNTIME = """
import sys
sys.path.insert(0, {tests!r})
from mlserver import MLModel, types
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.errors import InferenceError
from model_servers import MODELS


class Runtime(MLModel):
    async def predict(self, payload):
        inputs, outputs, run = MODELS[self.name]
        strings = inputs[0]["datatype"] == "BYTES"
        given = [StringCodec.decode_input(one)[0].encode() if strings else NumpyCodec.decode_input(one) for one in payload.inputs]
        try:
            results = run(*given)
        except ValueError as error:
            raise InferenceError(str(error))
        made = [
            StringCodec.encode_output(one["name"], [value.decode()]) if strings else NumpyCodec.encode_output(one["name"], value)
            for one, value in zip(outputs, results)
        ]
        return types.InferenceResponse(model_name=self.name, outputs=made)
"""


class Fake(http.server.ThreadingHTTPServer):
    """With `is_binary` it has the extension for binary tensors. `spoil` changes answers of `infer`: bytes of a body to those that are sent."""

    daemon_threads = True

    def __init__(self, is_binary=False, port=0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.is_binary, self.models, self.not_ready, self.lists = is_binary, dict(MODELS), {}, True
        self.spoil = None
        self.calls = 0
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=(), length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if length is not None:
            self.close_connection = True

    def say(self, status, value):
        self.answer(status, json.dumps(value).encode())

    def do_GET(self):
        server, path = self.server, self.path.split("/")[2:]
        if not path:
            self.say(200, {"name": "fake", "version": "1", "extensions": ["binary_tensor_data"] * server.is_binary})
        elif path[1] not in server.models:
            self.say(404, {"error": f"Model {path[1]} not found"})
        elif path[2:] == ["ready"]:
            self.say(503 if path[1] in server.not_ready else 200, {})
        else:
            inputs, outputs, _ = server.models[path[1]]
            self.say(200, {"name": path[1], "platform": "", "versions": [], "inputs": inputs, "outputs": outputs})

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v2/repository/index":
            listed = [
                {"name": name, "state": "UNAVAILABLE" if name in server.not_ready else "READY", "reason": server.not_ready.get(name, "")}
                for name in server.models
            ]
            return self.say(200, listed) if server.lists else self.say(404, {"error": "no such path"})
        name = self.path.split("/")[3]
        server.calls += 1
        if name not in server.models:
            return self.say(404, {"error": f"Model {name} not found"})
        if name in server.not_ready:
            return self.say(400, {"error": f"Model {name} is not ready yet."})
        inputs, outputs, run = server.models[name]
        try:
            results = run(*self.given(inputs, body))
        except ValueError as error:
            return self.say(400, {"error": str(error)})
        body, headers = self.made(outputs, results)
        if server.spoil is not None:
            spoiled = server.spoil(body)
            if spoiled is None:
                self.close_connection = True
                return None
            length = len(body) if len(spoiled) < len(body) else None
            return self.answer(200, spoiled, headers, length)
        return self.answer(200, body, headers)

    def given(self, inputs, body):
        length = self.headers.get("Inference-Header-Content-Length")
        assert (length is not None) == self.server.is_binary
        end = int(length or len(body))
        for declared, one in zip(inputs, json.loads(body[:end])["inputs"], strict=True):
            assert (one["name"], one["datatype"]) == (declared["name"], declared["datatype"])
            raw = None
            if self.server.is_binary:
                size = one["parameters"]["binary_data_size"]
                raw, end = body[end : end + size], end + size
            if one["datatype"] == "BYTES":
                yield raw[4:] if raw is not None else one["data"][0].encode()
            elif raw is not None:
                yield np.frombuffer(raw, DTYPES[one["datatype"]]).reshape(one["shape"])
            else:
                yield np.array(one["data"], DTYPES[one["datatype"]]).reshape(one["shape"])
        assert end == len(body)

    def made(self, outputs, results):
        listed, pieces = [], []
        for declared, value in zip(outputs, results, strict=True):
            shape = [1] if isinstance(value, bytes) else list(value.shape)
            one = {"name": declared["name"], "datatype": declared["datatype"], "shape": shape}
            if self.server.is_binary:
                piece = struct.pack("<I", len(value)) + value if isinstance(value, bytes) else value.astype(DTYPES[one["datatype"]]).tobytes()
                one["parameters"] = {"binary_data_size": len(piece)}
                pieces.append(piece)
            else:
                one["data"] = [value.decode()] if isinstance(value, bytes) else value.tolist()
            listed.append(one)
        text = json.dumps({"model_name": "", "outputs": listed}).encode()
        headers = [("Inference-Header-Content-Length", str(len(text)))] if self.server.is_binary else []
        return b"".join([text, *pieces]), headers


def mlserver():
    """The program, or None where it is not installed. `make .venv/mlserver/ready` installs it, apart from what the tests need: it
    wants older versions of some of that."""
    own = pathlib.Path(sys.prefix) / "mlserver" / "bin" / "mlserver"
    return str(own) if own.exists() else shutil.which("mlserver")


@contextlib.contextmanager
def running_mlserver(folder, names=tuple(MODELS)):
    """MLServer with these models, from a folder of its own: its endpoint."""
    ports = {f"{kind}_port": free_port() for kind in ("http", "grpc", "metrics")}
    settings = {"host": "127.0.0.1", "parallel_workers": 0, "debug": False, **ports}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "gridloom_runtime.py").write_text(RUNTIME.format(tests=str(pathlib.Path(__file__).parent)))
    for name in names:
        inputs, outputs, _ = MODELS[name]
        made = {"name": name, "implementation": "gridloom_runtime.Runtime", "inputs": inputs, "outputs": outputs}
        (folder / name).mkdir()
        (folder / name / "model-settings.json").write_text(json.dumps(made))
    with open(folder / "log.txt", "wb") as log:
        server = subprocess.Popen(
            [mlserver(), "start", "."], cwd=folder, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(folder)}
        )
        try:
            _wait_until_ready(server, ports["http_port"], folder)
            yield f"http://127.0.0.1:{ports['http_port']}"
        finally:
            server.kill()
            server.wait()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _wait_until_ready(server, port, folder):
    """It offers no event for that: its own path for readiness is asked again and again."""
    while server.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/v2/health/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError((folder / "log.txt").read_text()[-2000:])
