"""Texts, paths and environments that cannot be sent or used: each is rejected with an error of Gridloom that names the value and the remedy."""

import os

import gridloom as gl
import numpy as np
import pytest

SURROGATE = "a\ud800"


def plain(x: int) -> int:
    return x


def extents(x: gl.Array["float64", "a\ud800"]) -> int:
    return 1


DECLARATIONS = [
    lambda: gl.function(name=SURROGATE)(plain),
    lambda: gl.function(module=SURROGATE)(plain),
    lambda: gl.function(work=SURROGATE)(plain),
    lambda: gl.function(gets={SURROGATE: "8"})(plain),
    lambda: gl.function(puts={"a": {"size": SURROGATE}})(plain),
    lambda: gl.function(puts={"a": {"size": "8", "method": SURROGATE}})(plain),
    lambda: gl.function(sizes={SURROGATE: "8"})(plain),
    lambda: gl.function(extents),
    lambda: gl.program("true", name=SURROGATE),
    lambda: gl.program("true", name="p", module=SURROGATE),
    lambda: gl.program("true", name="p", work=SURROGATE),
    lambda: gl.program(["true", SURROGATE], name="p"),
    lambda: gl.program(["true", "{x}"], name="p", inputs={"x": SURROGATE}),
    lambda: gl.program(["true", "{x}"], name="p", outputs={"x": SURROGATE}),
    lambda: gl.program("true", name="p", environment={"A": SURROGATE}),
]


@pytest.mark.parametrize("declares", DECLARATIONS)
def test_declarations_reject_surrogates(declares):
    with pytest.raises(gl.InputError, match="surrogate '.ud800'"):
        declares()


def test_a_docstring_and_bytes_in_a_command_are_shown_escaped():
    def documented(x: int) -> int:
        "about \ud800"
        return x

    assert gl.function(documented)(1) == 1
    assert gl.program(["echo", os.fsdecode(b"\xff")], name="p", stdout="out")() == b"\xff\n"


@pytest.mark.parametrize(
    "opens",
    [
        lambda: gl.local(1, functions=[SURROGATE]),
        lambda: gl.local(1, libraries=[SURROGATE]),
        lambda: gl.local(2, sites=2, latency=SURROGATE),
        lambda: gl.local(1, memory=SURROGATE),
        lambda: gl.local(1, environment={"A": SURROGATE}),
        lambda: gl.local(1, environment={SURROGATE: "1"}),
        lambda: gl.connect(SURROGATE),
        lambda: gl.connect(f"dask://{SURROGATE}", functions=[plain]),
        lambda: gl.connect(servers=[SURROGATE]),
        lambda: gl.simulate(SURROGATE),
        lambda: gl.simulate("x.xml", network=SURROGATE),
        lambda: gl.Graph.load(SURROGATE),
        lambda: gl.Plan.load(SURROGATE),
    ],
)
def test_sessions_and_files_reject_surrogates(opens):
    with pytest.raises(gl.UsageError, match="surrogate '.ud800'"):
        opens()


def test_names_in_a_session_reject_surrogates():
    ones = np.ones(3)
    with gl.local(1) as grid:
        norm = grid.function("linalg/dnrm2")
        for uses in (
            lambda: grid.function(SURROGATE),
            lambda: grid.initialize_module(SURROGATE),
            lambda: grid.group(SURROGATE),
            lambda: norm.on(SURROGATE),
            lambda: grid.put(SURROGATE, ones),
            lambda: grid.put("x", ones, method=SURROGATE),
            lambda: grid.get(SURROGATE),
            lambda: grid.wait(SURROGATE),
            lambda: grid.find(SURROGATE),
            lambda: grid.exists(SURROGATE),
            lambda: grid.delete(SURROGATE),
            lambda: grid.names(SURROGATE),
            lambda: grid.place(SURROGATE),
        ):
            with pytest.raises(gl.ArgumentError, match="surrogate '.ud800'"):
                uses()
        # Python texts may contain surrogates, so the arguments of the program's own functions may contain them, too.
        assert grid.run(str, SURROGATE).get(60) == SURROGATE


WRONG = [
    ({"A=B": "1"}, "'A=B' cannot be the name of a variable; use at least one character, and no '='"),
    ({"": "1"}, "'' cannot be the name of a variable"),
    ({"A\0": "1"}, "a name: 'A.x00' has a NUL character"),
    ({"A": "1\0"}, "the value of 'A': '1.x00' has a NUL character"),
    ({"A": 1}, "the value of 'A': expected a path or a text, got int 1"),
    ({1: "1"}, "a name: expected a path or a text, got int 1"),
    (["A"], "expected a dict such as {'NAME': 'value'}, got list"),
    ("A=1", "expected a dict such as {'NAME': 'value'}, got str 'A=1'"),
    ({"A": "x" * (1 << 20)}, "the variable 'A' has 1048579 bytes with its name, and the limit of the operating system is 131072"),
]


@pytest.mark.parametrize(("environment", "expected"), WRONG)
def test_an_environment_that_no_process_can_have_is_rejected(environment, expected):
    with pytest.raises(gl.UsageError, match=f"environment: {expected}"):
        gl.local(1, environment=environment)
    with pytest.raises(gl.InputError, match=f"environment: {expected}"):
        gl.program("true", name="p", environment=environment)


def test_values_of_variables_need_not_be_utf_8():
    with gl.local(1, environment={"GRÖSSE": os.fsdecode(b"\xff"), "EMPTY": ""}) as grid:
        assert grid.run(lambda: (os.environb["GRÖSSE".encode()], os.environ["EMPTY"])).get(60) == (b"\xff", "")
