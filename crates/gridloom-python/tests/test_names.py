"""Names: a function with a valid name can be called, and an invalid name is rejected when it is declared."""

import gridloom as gl
import numpy as np
import pytest


@gl.function(name="NFCORE_SAREK.SAREK.PREPARE_GENOME.X_8", module="my.module")
def dotted(x: int) -> int:
    return x + 1


@gl.function(name="a-b.c", module="größe")
def other(x: int) -> int:
    return x + 2


def test_a_function_with_dots_in_its_name_is_called():
    with gl.local(servers=1, functions=[dotted, other]) as grid:
        assert grid.function(dotted)(1) == 2
        assert grid.function("my.module/NFCORE_SAREK.SAREK.PREPARE_GENOME.X_8")(1) == 2
        assert grid.function("a-b.c")(1) == 3
        with grid.group() as group:
            made = grid.function(dotted)(5)
            group.plan()
        assert made.get() == 6


@pytest.mark.parametrize("name", ["a b", "a/b", "a\x1b[2J", "a\u202eb", "a\nb", "a\0", " ", "x" * 300, "a:b"])
def test_invalid_names_are_rejected_when_they_are_declared(name):
    with pytest.raises(gl.InputError) as caught:
        gl.program("true", name=name)
    text = str(caught.value)
    assert "cannot be the name of" in text and len(text) < 500
    assert "\x1b" not in text and "\u202e" not in text

    with pytest.raises(gl.InputError, match="cannot be the name of"):

        @gl.function(name=name)
        def declared() -> None: ...


@gl.function(name="हिन्दी", module="தமிழ்")
def scripts(संख्या: int) -> int:
    return संख्या + 3


def test_names_of_any_script_are_called():
    program = gl.program("echo {शब्द}", name="कहो", stdout="पाठ", module="தமிழ்")
    with gl.local(servers=1, functions=[scripts, program]) as grid:
        assert grid.function("தமிழ்/हिन्दी")(संख्या=1) == 4
        assert grid.function(program)("x") == b"x\n"
        grid.put("नमस्ते", np.ones(3))
        assert grid.get("नमस्ते")[0] == 1


def test_names_of_any_script_in_an_interface_description(tmp_path):
    description = tmp_path / "f.idl"
    description.write_text(
        "Module தமிழ்;\nDefine हिन्दी(IN int எண், OUT double பதில்[எண்])\n{ for (int i = 0; i < எண்; i++) பதில்[i] = i + 1; }\n",
        encoding="utf-8",
    )
    with gl.local(servers=1, functions=[description]) as grid:
        assert list(grid.function("தமிழ்/हिन्दी")(எண்=3)) == [1, 2, 3]


@pytest.mark.parametrize("name", ["A._initialize", "A._finalize", "._initialize"])
def test_a_function_does_not_declare_a_class(name):
    with pytest.raises(gl.InputError, match="after a dot is a method of the class '.*', which runs automatically.*use another name"):
        gl.program("true", name=name)
    with pytest.raises(gl.InputError, match="after a dot is a method of the class"):

        @gl.function(name=name)
        def declared() -> None: ...


def test_names_that_only_resemble_those_of_automatic_methods_are_called():
    def one():
        def body() -> int:
            return 1

        return body

    names = ["_initialize", "A.initialize", "A._initialize.x", "_initialize.A"]
    with gl.local(servers=1, functions=[gl.function(name=name, module="m")(one()) for name in names]) as grid:
        assert {f"m/{name}" for name in names} <= grid.functions().keys()
        assert [grid.function(f"m/{name}")() for name in names] == [1] * 4


def test_names_of_functions_of_gridloom_are_reserved():
    with pytest.raises(gl.InputError, match="names that begin with 'python/stream.' are reserved for Gridloom; use another name or module"):

        @gl.function(name="stream.mine", module="python")
        def declared() -> None: ...


@pytest.mark.parametrize("name", ["", " ", "a\x1b[2J", "a\u202eb", "a\nb", "a\0", "x" * 5000])
def test_names_of_shared_data_are_checked(name):
    with gl.local(servers=1) as grid, pytest.raises(gl.GridloomError, match="cannot name shared data"):
        grid.put(name, np.ones(3))
