"""Connectors: the contract over a model server in this process, without and with binary tensors, and over MLServer; and functions on a grid."""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import gridloom as gl
import numpy as np
import pytest
from gridloom.connector import model, model_functions
from gridloom.errors import InputError
from model_servers import MODELS, Fake, free_port, mlserver, running_mlserver, tensor

GRIDLOOM = [sys.executable, "-m", "gridloom"]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    if mlserver() is None:
        pytest.skip("MLServer is not installed: make .venv/mlserver/ready")
    with running_mlserver(tmp_path_factory.mktemp("mlserver")) as endpoint:
        yield endpoint


def test_names_of_models_keep_letters_of_any_script():
    names = {"größe": "größe", "हिन्दी": "हिन्दी", "a-b": "a_b", "1x": "_1x", "if": "_if", "": "_", "ﬁt": "fit"}
    assert {name: model_functions.name_of(name) for name in names} == names


@pytest.fixture(params=["json", "binary", "mlserver"])
def endpoint(request):
    if request.param == "mlserver":
        yield request.getfixturevalue("real")
        return
    with Fake(is_binary=request.param == "binary") as fake:
        yield fake.endpoint


@pytest.fixture(params=[False, True], ids=["json", "binary"])
def fake(request):
    with Fake(request.param) as fake:
        yield fake


def connector(endpoint):
    return model_functions.PROTOCOLS["v2"](endpoint, 60.0)


def test_every_connector_lists_describes_and_calls_models(endpoint):
    made = connector(endpoint)
    assert sorted(made.models()) == [(name, None) for name in ["double", "greet", "mix-2", "picky", "rest", "step"]]
    mix = made.signature("mix-2")
    assert [(one.name, one.dtype, one.shape) for one in mix.inputs] == [("a", "float64", (-1, 2)), ("b", "int64", (-1,))]
    signature, tensors = model_functions.signature_of(mix, "models/mix_2", {})
    told = "models/mix_2(a: float64[batch, 2], b: int64[batch]; batch: int64) -> (total: float64[batch], count: int64[1], above: bool[batch])"
    assert tensors == 2 and str(signature) == told
    a, b = np.random.default_rng(1).standard_normal((5, 2)), np.array([1, -2, 3, 0, 2**53 + 1])
    total, count, above = made.call(mix, [a, b])
    assert np.array_equal(total, a.sum(axis=1) + b) and count.tolist() == [5] and above.tolist() == (b > 0).tolist()
    assert [one.dtype.name for one in (total, count, above)] == ["float64", "int64", "bool"]
    x = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    (y,) = made.call(made.signature("double"), [x])
    assert y.dtype == np.float32 and np.array_equal(y, 2 * x)
    assert made.call(made.signature("greet"), ["Ångström".encode()]) == ["hello Ångström".encode()]


def test_every_connector_names_what_goes_wrong(endpoint):
    made = connector(endpoint)
    with pytest.raises(model.ModelRefused, match="picky takes 4 numbers, got 3"):
        made.call(made.signature("picky"), [np.ones(3)])
    with pytest.raises(model.ModelGone, match="no model 'none': Model none not found"):
        made.signature("none")
    gone = model.Model("none", made.signature("step").inputs, made.signature("step").outputs)
    with pytest.raises(model.ModelGone, match="none"):
        made.call(gone, [np.ones(3)])
    # The next call finds the connection as it should be.
    assert made.call(made.signature("step"), [np.ones(2)])[0].tolist() == [2, 2]


def test_an_endpoint_that_is_not_there():
    with pytest.raises(model.EndpointLost, match="cannot be reached: Connection refused"):
        connector(f"http://127.0.0.1:{free_port()}").models()
    for wrong in ["127.0.0.1:80", "ftp://host", "http://host:no", "http://"]:
        with pytest.raises(InputError, match="expected a URL"):
            connector(wrong)
    with pytest.raises(InputError, match="password is not supported"):
        connector("http://me:secret@host")


def test_an_endpoint_that_stops_and_restarts(fake):
    made = connector(fake.endpoint)
    step = made.signature("step")
    fake.spoil = lambda body: None
    with pytest.raises(model.EndpointLost, match="closed the connection without an answer"):
        made.call(step, [np.ones(2)])
    fake.spoil = lambda body: body[:-5]
    with pytest.raises(model.EndpointLost, match="closed the connection [0-9]+ bytes into the answer"):
        made.call(step, [np.ones(2)])
    fake.spoil = None
    assert made.call(step, [np.ones(2)])[0].tolist() == [2, 2]


def test_an_endpoint_that_does_not_answer(fake):
    go = threading.Event()
    made = model_functions.PROTOCOLS["v2"](fake.endpoint, 0.25)
    step = connector(fake.endpoint).signature("step")
    fake.spoil = lambda body: go.wait() and body
    with pytest.raises(model.EndpointLost, match="did not answer /v2/models/step/infer within 0.25 s"):
        made.call(step, [np.ones(2)])
    go.set()


@contextlib.contextmanager
def hostile(answers):
    """Start a server that sends these pieces after each request. Yield its endpoint and a queue of its connections."""
    taken, connections = socket.create_server(("127.0.0.1", 0)), queue.Queue()

    def serve():
        while True:
            try:
                connection = taken.accept()[0]
            except OSError:
                return
            connections.put(connection)
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection):
        with contextlib.suppress(OSError):
            connection.recv(1 << 16)
            for piece in answers():
                connection.sendall(piece)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{taken.getsockname()[1]}", connections
    finally:
        # Closing the socket does not wake the thread that waits for a connection.
        taken.shutdown(socket.SHUT_RDWR)
        taken.close()


def dripping(*before):
    yield from before
    while True:
        time.sleep(0.02)
        yield b"a"


@pytest.mark.parametrize(
    "answers",
    [
        lambda: dripping(),
        lambda: dripping(b"HTTP/1.1 200 OK\r\nX-A: "),
        lambda: dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
        lambda: dripping(b"HTTP/1.1 200 OK\r\n\r\n"),
    ],
    ids=["status", "header", "body", "endless"],
)
def test_an_answer_that_is_sent_slowly_ends_at_its_time_limit(answers):
    with hostile(answers) as (endpoint, _):
        made = model_functions.PROTOCOLS["v2"](endpoint, 0.5, 1 << 20)
        for _ in range(2):
            begun = time.monotonic()
            with pytest.raises(model.EndpointLost, match=r"did not answer /v2/models/step within 0\.5 s"):
                made.signature("step")
            assert time.monotonic() - begun < 10


def test_all_requests_of_one_call_share_its_time_limit(fake):
    step, failures = connector(fake.endpoint).signature("step"), []

    def answers():
        # The answer to the request after the failure is sent slowly.
        if failures:
            yield from dripping(b"HTTP/1.1 200 OK\r\n\r\n")
        failures.append(1)
        yield b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

    with hostile(answers) as (endpoint, _):
        made = model_functions.PROTOCOLS["v2"](endpoint, 0.5)
        made._binary = False
        with pytest.raises(model.EndpointLost, match=r"did not answer /v2/models/step within 0\.5 s"):
            made.call(step, [np.ones(2)])
        assert made._http.until <= time.monotonic()


@pytest.mark.parametrize("length", [b"", b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_an_endless_answer_is_read_up_to_the_size_limit(fake, length):
    step, sent = connector(fake.endpoint).signature("step"), []

    def endless():
        yield b"HTTP/1.1 200 OK\r\n" + length + b"\r\n"
        while True:
            sent.append(1)
            yield (b"100000\r\n" if b"chunked" in length else b"") + bytes(1 << 20) + (b"\r\n" if b"chunked" in length else b"")

    with hostile(endless) as (endpoint, _):
        made = model_functions.PROTOCOLS["v2"](endpoint, 60.0, 20 << 20)
        with pytest.raises(model.WrongAnswer, match="more than 16777216 bytes, which is the limit"):
            made.signature("step")
        made._binary = False
        with pytest.raises(model.WrongAnswer, match="more than 20971520 bytes, .* start the connector with a larger --answer-limit"):
            made.call(step, [np.ones(2)])
    # Bytes beyond the limits may be in the buffers of the sockets.
    assert len(sent) < 100


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_connector_that_is_stopped_at_its_start_leaves_nothing(program, tmp_path, stop):
    with hostile(lambda: iter(())) as (endpoint, connections):
        command = [*GRIDLOOM, "connector", "--protocol", "v2", "--endpoint", endpoint, "--no-agent", "--models", "none"]
        with subprocess.Popen(command, env={**os.environ, "TMPDIR": os.fspath(tmp_path)}, stderr=subprocess.DEVNULL) as starting:
            # The connector has requested the models and gets no answer.
            connection = connections.get()
            if stop == signal.SIGKILL:
                starting.kill()
            else:
                starting.send_signal(stop)
                assert starting.wait() in (128 + stop, -stop)
                assert not list(tmp_path.iterdir())
        # Wait until the requesting process has ended.
        with contextlib.suppress(OSError):
            while connection.recv(1 << 16):
                pass


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_is_stopped_while_it_reads_a_module_leaves_no_process(program, tmp_path, stop):
    with socket.create_server(("127.0.0.1", 0)) as held:
        (tmp_path / "slow.py").write_text(f"import socket\nsocket.create_connection({held.getsockname()!r}).recv(1)\n")
        command = [*GRIDLOOM, "serve", os.fspath(tmp_path / "slow.py"), "--no-agent", "--models", "none"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as starting:
            connection = held.accept()[0]
            starting.send_signal(stop)
        with connection, contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_models_that_are_not_ready_or_are_removed(fake):
    made = connector(fake.endpoint)
    step = made.signature("step")
    fake.not_ready["step"] = "out of memory"
    assert dict(made.models())["step"] == "it is UNAVAILABLE (out of memory)"
    with pytest.raises(model.ModelNotReady, match="is not ready: Model step is not ready yet"):
        made.call(step, [np.ones(2)])
    del fake.models["step"]
    with pytest.raises(model.ModelGone, match="Model step not found"):
        made.call(step, [np.ones(2)])
    fake.lists = False
    with pytest.raises(model.ModelNotOffered, match="name them with --model"):
        made.models()


@pytest.mark.parametrize(
    "spoil, told",
    [
        (lambda body: b"<html>" + body, "the answer is not JSON"),
        (lambda body: b"[]" + b" " * len(body), "expected an object|not JSON"),
        (lambda body: body.replace(b'"y"', b'"z"'), "the answer lacks the output 'y'"),
        (lambda body: body.replace(b"FP64", b"FP32"), "is FP32, and the model's metadata say FP64"),
        (lambda body: body.replace(b"[2]", b"[7]"), "has the shape \\[7\\] and"),
        (lambda body: body.replace(b"outputs", b"output_"), "expected an object with 'outputs', a list"),
    ],
)
def test_answers_that_are_wrong(fake, spoil, told):
    made = connector(fake.endpoint)
    step = made.signature("step")
    fake.spoil = spoil
    with pytest.raises(model.WrongAnswer, match=told):
        made.call(step, [np.ones(2)])


def test_numbers_that_json_does_not_have():
    with Fake() as fake:
        made = connector(fake.endpoint)
        step = made.signature("step")
        with pytest.raises(model.ModelRefused, match="NaN or infinite values, and the endpoint takes JSON"):
            made.call(step, [np.array([1, np.nan])])
        for wrong, told in [(b"null", "has the value null; JSON has no NaN"), (b"true", "has the value true"), (b'"2"', 'has the value "2"')]:
            fake.spoil = lambda body, wrong=wrong: body.replace(b"2.0", wrong, 1) + b" " * 20
            with pytest.raises(model.WrongAnswer, match=told):
                made.call(step, [np.ones(2)])
        with pytest.raises(model.ModelRefused, match="whose texts must be UTF-8"):
            made.call(made.signature("greet"), [b"\xff"])
    with Fake(is_binary=True) as fake:
        made = connector(fake.endpoint)
        assert np.isnan(made.call(made.signature("step"), [np.array([np.nan])])[0]).all()
        assert made.call(made.signature("greet"), [b"\xff"]) == [b"hello \xff"]


def test_models_that_no_function_can_stand_for(fake):
    made = connector(fake.endpoint)
    one = [tensor("x", "FP64", 1)]
    fake.models = {
        "brain": ([tensor("x", "BF16", -1)], one, None),
        "texts": ([tensor("x", "BYTES", -1, 2)], one, None),
        "silent": ([], one, None),
        "odd": ([tensor("x", "FP64", "many")], one, None),
    }
    with pytest.raises(model.ModelNotOffered, match="model 'brain': tensor 'x' has the datatype BF16, which the grid does not have"):
        made.signature("brain")
    with pytest.raises(model.ModelNotOffered, match=r"tensor 'x' is BYTES\[-1, 2\]; a function takes one text"):
        model_functions.signature_of(made.signature("texts"), "models/texts", {})
    with pytest.raises(model.ModelNotOffered, match="its metadata name no inputs"):
        made.signature("silent")
    with pytest.raises(model.WrongAnswer, match="a shape has sizes, and -1 for any size"):
        made.signature("odd")


def test_sizes_that_do_not_follow_must_be_given(fake):
    rest = connector(fake.endpoint).signature("rest")
    signature, tensors = model_functions.signature_of(rest, "models/rest", {})
    assert tensors == 1 and "y_1: int64" in str(signature)
    signature, _ = model_functions.signature_of(rest, "models/rest", {"y": ["batch", "x_1-1"]})
    assert str(signature) == "models/rest(x: float64[batch, x_1]; batch, x_1: int64) -> y: float64[batch, x_1-1]"
    with pytest.raises(InputError, match=r"--shape rest/y=2: the model says \[-1, -1\]; give one size for each dimension"):
        model_functions.signature_of(rest, "models/rest", {"y": ["2"]})
    with pytest.raises(InputError, match="'rest' has 'x', 'y'"):
        model_functions.signature_of(rest, "models/rest", {"z": ["2"]})


def connect(stack, endpoint, *options, name="models"):
    """A connector, with its address and the functions that it offers."""
    command = [*GRIDLOOM, "connector", "--protocol", "v2", "--endpoint", endpoint, "--no-agent", "--models", "none", "--name", name]
    command += ["--listen", "127.0.0.1:0", "--json", "--until-stdin-closes", *options]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stack.enter_context(server)
    stack.callback(server.kill)
    line = server.stdout.readline()
    assert line, server.stderr.read()
    told = json.loads(line)
    return server, told["address"], told["functions"]


def test_models_are_functions_of_a_grid(program, endpoint):
    with ExitStack() as stack:
        _, first, offered = connect(stack, endpoint, "--shape", "rest/y=batch,x_1-1", name="one")
        _, second, _ = connect(stack, endpoint, "--model", "step", name="two")
        assert sorted(offered) == ["models/double", "models/greet", "models/mix_2", "models/picky", "models/rest", "models/step"]
        grid = stack.enter_context(gl.connect(servers=[first, second]))
        x = np.random.default_rng(3).standard_normal(5000)
        step = grid.function("models/step")
        with grid.group() as group:
            once = step.on("one")(x)
            twice = step.on("two")(once)
        assert np.array_equal(twice.get(), x + 1 + 1)
        # What one connector made has gone to the other one, not to the program and back.
        by_link = group.report().by_link
        assert by_link["one -> two"] == x.nbytes and "one -> client" not in by_link, by_link
        assert np.array_equal(grid.function("models/rest")(np.arange(6.0).reshape(2, 3)), [[1, 2], [4, 5]])
        assert grid.function("models/greet")(b"you") == b"hello you"
        with pytest.raises(gl.ArgumentError, match=r"argument 'x' has shape \[2, 4\]"):
            grid.function("models/double")(np.ones((2, 4), np.float32))
        with pytest.raises(gl.RemoteError, match="picky takes 4 numbers, got 3") as raised:
            grid.function("models/picky")(np.ones(3))
        assert raised.value.kind == "ModelRefused"


def test_an_endpoint_that_stops_while_its_connector_runs(program):
    with ExitStack() as stack:
        with Fake() as fake:
            _, address, _ = connect(stack, fake.endpoint, "--model", "step")
            grid = stack.enter_context(gl.connect(servers=[address]))
            step = grid.function("models/step")
            assert step(np.ones(2)).tolist() == [2, 2]
            del fake.models["step"]
            with pytest.raises(gl.RemoteError, match="Model step not found") as raised:
                step(np.ones(2))
            assert raised.value.kind == "ModelGone"
            fake.spoil = lambda body: None
            fake.models["step"] = MODELS["step"]
            with pytest.raises(gl.RemoteError, match="closed the connection without an answer") as raised:
                step(np.ones(2))
            assert raised.value.kind == "EndpointLost"
        with pytest.raises(gl.RemoteError, match="cannot be reached: Connection refused") as raised:
            step(np.ones(2))
        assert raised.value.kind == "EndpointLost"


def test_calls_go_to_another_connector_while_an_endpoint_is_lost(program):
    with ExitStack() as stack:
        lost, there = Fake(), stack.enter_context(Fake())
        port = lost.server_address[1]
        _, first, _ = connect(stack, lost.endpoint, "--model", "step", name="one")
        _, second, _ = connect(stack, there.endpoint, "--model", "step", name="two")
        grid = stack.enter_context(gl.connect(servers=[first, second]))
        step = grid.function("models/step")
        with grid.group(lambda problem: [index % 2 for index in range(len(problem.tasks))]):
            both = [step(np.full(2, float(n))) for n in range(4)]
        assert [one.get()[0] for one in both] == [1.0, 2.0, 3.0, 4.0] and lost.calls and there.calls
        # Open connections are closed at their next request.
        lost.spoil = lambda body: None
        lost.__exit__()
        assert [step(np.full(2, float(n)))[0] for n in range(10)] == [n + 1 for n in range(10)]
        with grid.group() as group:
            many = [step(np.full(2, float(n))) for n in range(20)]
        assert [one.get()[0] for one in many] == [n + 1 for n in range(20)]
        assert group.report() is not None
        # The connector has withdrawn its function.
        with pytest.raises(gl.InputError, match="server 'one' does not offer it"):
            step.on("one")
        with Fake(port=port) as back:
            # Wait until the connector offers its function again.
            while not back.calls:
                with grid.group():
                    many = [step(np.full(2, float(n))) for n in range(8)]
                assert [one.get()[0] for one in many] == [n + 1 for n in range(8)]


def test_a_result_of_another_shape_is_an_error(program, fake):
    with ExitStack() as stack:
        _, address, _ = connect(stack, fake.endpoint, "--model", "rest", "--shape", "rest/y=batch,x_1")
        grid = stack.enter_context(gl.connect(servers=[address]))
        with pytest.raises(gl.SignatureError, match=r"\[2, 2\]"):
            grid.function("models/rest")(np.ones((2, 3)))


def test_what_is_left_out_is_reported(program, fake):
    fake.models = {**fake.models, "brain": ([tensor("x", "BF16", -1)], [tensor("y", "FP64", 1)], None)}
    fake.not_ready["step"] = "loading"
    with ExitStack() as stack:
        server, _, offered = connect(stack, fake.endpoint)
        assert "models/brain" not in offered and "models/step" not in offered and "models/double" in offered
        server.stdin.close()
        server.wait()
        said = server.stderr.read()
    assert "model 'step' is left out: it is UNAVAILABLE (loading)" in said
    assert "model 'brain' is left out: tensor 'x' has the datatype BF16" in said


@pytest.mark.parametrize(
    "options, told",
    [
        (["--model", "none"], "has no model 'none'"),
        (["--shape", "rest=2"], "--shape rest=2: expected MODEL/TENSOR=SIZE,..."),
        (["--shape", "other/x=2"], "--shape: there is no model 'other' among those offered: double,"),
        (["--shape", "rest/y=batch,2-"], "2-"),
        (["--protocol", "v1"], "v1"),
    ],
)
def test_wrong_options_are_reported(program, fake, options, told):
    command = [*GRIDLOOM, "connector", "--endpoint", fake.endpoint, "--no-agent", "--models", "none"]
    command += options if "--protocol" in options else ["--protocol", "v2", *options]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode != 0 and told in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
