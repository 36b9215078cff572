"""Calibration of functions, in both worlds."""

import gridloom as gl
import numpy as np
import pytest
from conftest import FUNCTIONS


def test_models_are_as_exact_as_requested(platform):
    calls = []
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        done = grid.calibrate("tests/matmul", sizes={"m": (50, 500), "k": (50, 500), "n": 200}, progress=calls.append)
    assert [one.server for one in done] == ["s0", "s1", "s2"] and {one.unit for one in done} == {"flop"}
    for one in done:
        assert one.reached and one.error <= 0.05 and one.why is None and not one.failed and not one.jumps
        assert one.points[0].sizes == {"m": 50, "k": 50, "n": 200} and one.points[-1].sizes == {"m": 500, "k": 500, "n": 200}
        # Servers of 1 Gflop/s.
        assert all(point.seconds * 1e9 == pytest.approx(point.size, rel=0.05) for point in one.points)
    assert len(calls) == sum(one.calls for one in done) and all(call.seconds > 0 for call in calls)
    assert calls[0].sizes == {"m": 50, "k": 50, "n": 200}


def test_real_servers_are_measured(program):
    calls = []
    with gl.local(servers=2, functions=[FUNCTIONS]) as grid:
        matmul, first = grid.function("tests/matmul"), grid.servers()[0].name
        ranges = {name: (20, 200) for name in "mkn"}
        (one,) = grid.calibrate(matmul, sizes=ranges, error=1.0, budget=20.0, servers=[first], progress=calls.append)
    assert (one.server, one.failed, one.calls) == (first, False, len([call for call in calls if call.seconds]))
    assert one.points and all(point.seconds > 0 and point.calls > 0 for point in one.points)
    assert one.points[0].sizes == {"m": 20, "k": 20, "n": 20}


def test_arguments_can_be_made(world):
    def make(sizes):
        a = np.eye(sizes["order"])
        return {"a": a, "b": a}

    done = world.calibrate("tests/matmul", sizes={"order": (10, 100)}, make=make, error=1.0, budget=20.0)
    assert len(done) == 3 and not any(one.failed for one in done)
    assert all(one.points[0].sizes == {"order": 10} and one.points[0].size == 2 * 10**3 for one in done)


def test_a_function_that_fails_reports_it(world):
    done = world.calibrate("tests/wrong_shape", sizes={"n": (10, 100)}, budget=20.0)
    assert all(one.failed and "expected float64[10], got float64[11]" in one.why and "make" in one.why for one in done)


def test_what_a_function_of_the_program_raises_ends_it(world):
    def fails(*_):
        raise ArithmeticError("enough")

    sizes = {name: (10, 1000) for name in "mkn"}
    with pytest.raises(ArithmeticError, match="enough"):
        world.calibrate("tests/matmul", sizes=sizes, progress=fails)
    with pytest.raises(ArithmeticError, match="enough"):
        world.calibrate("tests/matmul", sizes={"n": (10, 1000)}, make=fails)
    with pytest.raises(TypeError):
        world.calibrate("tests/matmul", sizes={"n": (10, 1000)}, make=lambda sizes: 3)
    # The servers are free again.
    a = np.ones((3, 3))
    assert np.array_equal(world.function("tests/matmul")(a, a), a @ a)


@pytest.mark.parametrize(
    ("function", "asked", "says"),
    [
        ("matmull", {}, "did you mean tests/matmul"),
        ("matmul", {"sizes": {"q": (1, 2)}}, "has no size argument 'q'"),
        ("matmul", {"sizes": {"n": (0, 2)}}, "sizes n=0..2; expected"),
        ("matmul", {"sizes": {"n": "many"}}, r"sizes of 'n': expected a whole number, or a range as \(first, last\), got 'many'"),
        ("matmul", {"error": 0.0}, "an error of 0; expected more than 0"),
        ("matmul", {"budget": 0.0}, "a budget of 0 s; expected more"),
        ("matmul", {"budget": -1.0}, "a budget of -1 s; give seconds above 0"),
        ("matmul", {"servers": ["quick"]}, "no server 'quick'; there are: s0, s1, s2"),
        ("matmul", {"servers": "s0"}, r"servers are a list of names, got 's0'; give \['s0'\]"),
        ("matmul", {"values": {"z": 1}}, "has no argument 'z'"),
        ("hold", {}, "argument 'gate' is not a number"),
    ],
)
def test_what_cannot_be_calibrated_is_reported(platform, function, asked, says):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        with pytest.raises((gl.UsageError, gl.UnknownName), match=says):
            grid.calibrate(function, **asked)


def test_values_are_given(platform):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        (one,) = grid.calibrate("hold", sizes={"n": (1000, 100_000)}, values={"gate": "/nowhere"}, servers=["s1"])
        assert one.unit == "B" and one.points[-1].size == 2 * 8 * 100_000
        with grid.group():
            handle = grid.function("matmul")(np.eye(2), np.eye(2))
        with pytest.raises(gl.UsageError, match=r"argument 'a' is a handle; pass its \.get\(\)"):
            grid.calibrate("matmul", values={"a": handle})


def test_what_a_group_has_measured_is_known_at_once(program):
    with gl.local(servers=2, functions=[FUNCTIONS]) as grid:
        with grid.group() as group:
            handle = grid.function("tests/matmul")(np.eye(50), np.eye(50))
        handle.get()
        assert group.report().tasks
        assert "tests/matmul" in {model.function for model in grid.models()}


def test_a_session_returns_and_shows_the_models(platform):
    with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
        assert len(grid.models()) == 0 and str(grid.models()) == "nothing was measured yet"
        assert "nothing was measured yet" in grid.models()._repr_html_()
        grid.calibrate("tests/matmul", sizes={"m": (50, 500), "k": (50, 500), "n": 200})
        models = grid.models("matmul")
        assert [(model.function, model.server, model.unit) for model in models] == [
            ("tests/matmul", name, "flop") for name in ("s0", "s1", "s2")
        ]
        assert list(grid.models()) == list(models) and len(models[1:]) == 2
        # Servers of 1 Gflop/s.
        assert all(point.seconds * 1e9 == pytest.approx(point.size, rel=0.05) for model in models for point in model.points)
        rows = sum(len(model.points) for model in models)
        assert str(models).count("\n") == rows and models._repr_html_().count("<tr>") == rows + 1
        assert "tests/matmul" in models._repr_html_() and "Mflop" in str(models)
        with pytest.raises(gl.UnknownName):
            grid.models("nowhere")
