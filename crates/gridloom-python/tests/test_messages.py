"""Message classes: their declarations in C, objects there and back, messages of other machines, errors."""

import dataclasses
import enum
import re
import sys
from typing import Annotated

import gridloom as gl
import numpy as np
import pytest
from gridloom.messages.declare import type_of
from static_types import mypy

OTHERS = ["i386", "ppc", "s390x", "arm", "m68k-linux", "packed", "packed-ilp32-be", "x86-64-windows"]


class Kind(enum.IntEnum):
    NEAR = -1
    FAR = 7


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@gl.message
class Point:
    x: float
    y: np.float32
    kind: Kind


@gl.message
class Circle:
    centre: Point
    radius: float


@gl.message
class Polygon:
    points: list[Point]


@gl.message
class Nothing:
    pass


@gl.message
class Node:
    value: gl.ctypes.c_int
    left: "Node | None" = None
    right: "Node | None" = None


@gl.message
class Scene:
    title: str
    note: str | None
    raw: bytes
    open: bool
    far: gl.ctypes.c_long
    small: Annotated[int, np.int16]
    size: np.uint16
    wave: complex
    colour: Colour
    corner: tuple[float, float]
    code: Annotated[bytes, 4]
    tags: list[str]
    numbers: list[int]
    names: list[str | None]
    shapes: list[Circle | Polygon | Nothing]
    shape: Annotated[Circle | Polygon, gl.ctypes.Named("Shape")]
    grid: gl.Array[np.int16, 3, 2]
    a: gl.Array["float64", "m", "k"]
    b: gl.Array["float32", "k", "n"]
    flags: gl.Array[bool, "flag_count"]
    below: "Scene | None"
    tree: gl.ctypes.Ref[Node]
    maybe: int | None


def scene(depth=1):
    point = Point(1.5, np.float32(-2), Kind.FAR)
    return Scene(
        title="Grüße",
        note=None if depth else "",
        raw=b"\0\1",
        open=True,
        far=-9,
        small=-3,
        size=np.uint16(65535),
        wave=1 - 2j,
        colour=Colour.BLUE,
        corner=(0.5, -0.5),
        code=b"ab",
        tags=["a", "", "longer than a word"],
        numbers=[1, -(2**63), 2**63 - 1],
        names=["x", None],
        shapes=[Nothing(), Circle(point, 2.0), Polygon([point, point]), Polygon([])],
        shape=Circle(Point(0.0, np.float32(0), Kind.NEAR), 1.0),
        grid=np.arange(6, dtype=np.int16).reshape(3, 2),
        a=np.arange(8.0).reshape(2, 4),
        b=np.ones((4, 0), dtype=np.float32),
        flags=np.array([True, False, True]),
        below=scene(depth - 1) if depth else None,
        tree=Node(1, Node(2), None),
        maybe=3 if depth else None,
    )


def there_and_back(message, machine=None):
    ty = type_of(type(message))
    frame = ty.encode(message, False)
    return ty.decode(ty.converted(frame, machine) if machine else frame)


def test_the_declaration_is_what_a_c_program_would_write():
    assert gl.messages.message_declaration(Polygon) == (
        "struct Polygon {\n    size_t points_length;\n    struct Point *points GRIDLOOM_LENGTH(points_length);\n};\n"
        "enum Kind { Kind_NEAR = -1, Kind_FAR = 7 };\n"
        "struct Point {\n    double x;\n    float y;\n    enum Kind kind;\n};\n"
    )
    text = gl.messages.message_declaration(Scene)
    for line in [
        "size_t m;\n    size_t k;\n    size_t n;\n    size_t flag_count;\n    char *title;",
        "size_t raw_length;\n    uint8_t *raw GRIDLOOM_LENGTH(raw_length);",
        "long far;",
        "int16_t small;",
        "double wave[2];",
        "char **tags GRIDLOOM_LENGTH(tags_length);",
        "struct Circle_or_Polygon_or_Nothing *shapes GRIDLOOM_LENGTH(shapes_length);",
        "struct Shape shape;",
        "int16_t grid[3][2];",
        "float *b GRIDLOOM_LENGTH(k*n);",
        "struct Scene *below;",
        "int64_t *maybe;",
    ]:
        assert line in text, text


@pytest.mark.parametrize("machine", [None, *OTHERS])
def test_objects_of_this_machine_and_of_others_survive_the_round_trip(machine):
    assert there_and_back(scene(), machine) == scene()


def test_equal_messages_are_compared_with_their_arrays():
    other = scene()
    other.a[1, 1] = 77
    assert other != scene() and scene() != Node(1)


def test_a_recorded_frame_of_a_big_endian_machine_is_read():
    @gl.message
    class Block:
        row: gl.ctypes.c_int
        far: gl.ctypes.c_long
        data: gl.Array["float64", "n"]

    ty = type_of(Block)
    hash = ty.encode(Block(0, 0, np.empty(0)), False)[12:20]
    head = b"GLM\x01\x05\x00\x05Block" + hash
    # n = 3, row = -2, far = 70000, data at 8 + 16; then 1.0, -2.5, 3.0.
    memory = bytes.fromhex("00000003" "fffffffe" "00011170" "00000018" "3ff0000000000000" "c004000000000000" "4008000000000000")
    frame = head + b"\x00\x02\x00\x01\x01\x03" + memory
    block = ty.decode(frame)
    assert (block.row, block.far, block.data.tolist()) == (-2, 70000, [1.0, -2.5, 3.0])
    # A 32-bit machine's message for a field that is 8 bytes long here is the same as what conversion gives.
    assert ty.converted(ty.encode(block, False), "ppc")[-40:] == memory


def test_a_recorded_packed_and_32_bit_little_endian_frame_is_read():
    record = gl.message(np.dtype([("a", "u1"), ("b", "<i4"), ("c", "<f8")]), name="Packed")
    assert "struct GRIDLOOM_PACKED Packed" in gl.messages.message_declaration(record)
    ty = type_of(record)
    hash = ty.encode(record(0, 0, 0), False)[13:21]
    memory = bytes.fromhex("07" "feffffff" "000000000000f83f")
    for machine in (1, 2, 3):
        read = ty.decode(b"GLM\x01" + bytes([machine]) + b"\x00\x06Packed" + hash + b"\x00\x01\x00\x01" + memory)
        assert (read.a, read.b, read.c) == (7, -2, 1.5)


def test_what_does_not_fit_this_machine_is_named():
    @gl.message
    class Far:
        far: gl.ctypes.c_long

    ty = type_of(Far)
    with pytest.raises(gl.ArgumentError, match=r"message 'Far', field 'far'.*5000000000 does not fit long, which has 4 bytes on"):
        ty.converted(ty.encode(Far(5_000_000_000), False), "i386")


def test_arrays_show_the_message_s_memory_and_can_be_written():
    @gl.message
    class Block:
        row: int
        data: gl.Array["float64", "m", "n"]

    data = np.arange(2e6).reshape(1000, 2000)
    back = there_and_back(Block(1, data))
    assert back.data.flags.aligned and back.data.flags.writeable and not back.data.flags.owndata
    np.testing.assert_array_equal(back.data, data)
    back.data[0, 0] = 5
    # Not contiguous, of the other byte order, of narrower elements: NumPy brings it into the message's form.
    for given in (data.T, data[::2, ::-1], data.astype(">f8"), data.astype("f4"), data.tolist()):
        np.testing.assert_array_equal(there_and_back(Block(1, given)).data, np.asarray(given))
    # From another machine the conversion is the only copy.
    np.testing.assert_array_equal(there_and_back(Block(1, data), "s390x").data, data)


def test_what_is_one_object_stays_one_in_cycles_too():
    one = Node(1)
    one.left, one.right = Node(2, one), one
    back = there_and_back(one)
    assert back.right is back and back.left.left is back and back.left.value == 2
    shared = Node(3)
    back = there_and_back(Node(0, shared, shared), "ppc")
    assert back.left is back.right


def test_a_graph_keeps_its_elements_and_the_references_to_them():
    @gl.message
    class Vertex:
        name: str
        next: "list[Vertex | None]"

    @gl.message
    class Graph:
        start: "Vertex | None"
        vertices: list[Vertex]

    vertices = [Vertex(str(n), []) for n in range(5)]
    for n, vertex in enumerate(vertices):
        vertex.next = [vertices[(n + 1) % 5], None, vertices[n]]
    back = there_and_back(Graph(vertices[3], vertices), "m68k-linux")
    assert back.start is back.vertices[3]
    assert all(vertex.next[0] is back.vertices[(n + 1) % 5] for n, vertex in enumerate(back.vertices))
    assert all(vertex.next[1] is None and vertex.next[2] is vertex for vertex in back.vertices)


def test_a_long_list_is_no_deep_recursion():
    first = None
    for value in range(200_000):
        first = Node(value, first)
    node, length = there_and_back(first), 0
    while node is not None:
        node, length = node.left, length + 1
    assert length == 200_000


def test_structured_types_are_messages_and_elements():
    Row = gl.message(np.dtype([("which", "i4"), ("cells", "f4", (2, 3)), ("name", "S5")], align=True), name="Row")

    @gl.message
    class Table:
        row_count: gl.ctypes.c_int
        rows: gl.Array[Row, "row_count"]

    rows = np.zeros(4, dtype=gl.messages.message_dtype(Row))
    rows["which"], rows["cells"], rows["name"] = [4, 3, 2, 1], 0.5, b"abc"
    for machine in (None, *OTHERS):
        back = there_and_back(Table(4, rows), machine)
        np.testing.assert_array_equal(back.rows, rows)
        assert back.rows.dtype == rows.dtype
    one = there_and_back(Row(1, np.ones((2, 3)), b"ab"), "ppc")
    assert (one.which, one.cells.sum(), one.name) == (1, 6.0, b"ab")
    with pytest.raises(gl.InputError, match="laid out as no struct of C"):
        gl.message(np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [8]}), name="Odd")


@dataclasses.dataclass(frozen=True)
class Plain:
    number: int


def test_dataclasses_of_all_kinds_are_parts():
    @gl.message
    @dataclasses.dataclass(frozen=True, slots=True)
    class Whole:
        part: Plain
        parts: list[Plain]

    assert there_and_back(Whole(Plain(1), [Plain(2)])) == Whole(Plain(1), [Plain(2)])


def test_floats_are_rounded_but_do_not_become_infinite():
    @gl.message
    class Narrow:
        data: gl.Array["float32", "n"]

    assert there_and_back(Narrow(np.array([0.1, np.inf]))).data.tolist() == [np.float32(0.1), np.inf]
    with pytest.raises(gl.ArgumentError, match="field 'data': a number of it does not fit an element of float32"):
        there_and_back(Narrow(np.array([1.0, 1e300])))


BAD_VALUES = [
    (lambda s: setattr(s, "title", 7), "field 'title': expected a str, got 7 (int)"),
    (lambda s: setattr(s, "title", "a\0b"), "field 'title': a string with a NUL inside"),
    (lambda s: setattr(s, "far", 2**63), "field 'far': 9223372036854775808 does not fit long, which has 8 bytes here"),
    (lambda s: setattr(s, "small", 40000), "field 'small': 40000 does not fit int16_t, which has 2 bytes here"),
    (lambda s: setattr(s, "numbers", [1, 2.5]), "field 'numbers[1]': expected an integer, got 2.5 (float)"),
    (lambda s: setattr(s, "numbers", [1, 2**200]), "field 'numbers[1]': 16069"),
    (lambda s: setattr(s, "tags", "abc"), "field 'tags': expected a list, got 'abc' (str)"),
    (lambda s: setattr(s, "colour", Kind.FAR), "field 'colour': expected a member of Colour"),
    (lambda s: setattr(s.shapes[1].centre, "x", None), "field 'shapes[1].centre.x': expected a number, got None"),
    (lambda s: s.shapes.append(Node(1)), "field 'shapes[4]': expected one of Circle, Polygon, Nothing"),
    (lambda s: setattr(s, "corner", (1.0,)), "field 'corner': expected 2 elements, got 1"),
    (lambda s: setattr(s, "code", b"abcde"), "field 'code': 5 bytes, at most 4 fit"),
    (lambda s: setattr(s, "grid", np.zeros((2, 3))), "field 'grid': it has shape [2, 3], expected [3, 2]"),
    (lambda s: setattr(s, "grid", np.full((3, 2), 1e9)), "field 'grid': expected an array of int16, got one of float64"),
    (lambda s: setattr(s, "grid", np.full((3, 2), 40000)), "field 'grid': 40000 does not fit an element of int16"),
    (lambda s: setattr(s, "a", np.zeros(3)), "field 'a': it has shape [3], expected [m, k]"),
    (lambda s: setattr(s, "b", np.zeros((3, 2))), "field 'b': it has shape [3, 2], expected [k, n] with k = 4 from field 'a'"),
    (lambda s: setattr(s, "tree", None), "field 'tree': expected a Node, got None"),
    (lambda s: setattr(s, "below", s.tree), "field 'below': expected a Scene, got"),
    (lambda s: setattr(s.tree.left, "left", 5), "field 'tree.left.left': expected a Node, got 5 (int)"),
    (lambda s: delattr(s, "open"), "field 'open': it has no value"),
]


@pytest.mark.parametrize(("spoil", "text"), BAD_VALUES, ids=[text for _, text in BAD_VALUES])
def test_values_that_do_not_fit_are_named(spoil, text):
    bad = scene(0)
    spoil(bad)
    with pytest.raises(gl.ArgumentError, match=re.escape(text)) as raised:
        type_of(Scene).encode(bad, False)
    assert str(raised.value).startswith("message 'Scene', ") and raised.value.kind == "Scene"


def test_extents_that_are_fields_must_agree_with_the_array():
    @gl.message
    class Sized:
        n: int
        data: gl.Array["float64", "n", "2*n"]

    assert there_and_back(Sized(2, np.zeros((2, 4)))).data.shape == (2, 4)
    with pytest.raises(gl.ArgumentError, match=re.escape("it has shape [2, 4], expected [n, 2*n] with n = 3")):
        type_of(Sized).encode(Sized(3, np.zeros((2, 4))), False)
    # A sender's sizes may be negative with a product that is right.
    frame = bytearray(type_of(Sized).encode(Sized(2, np.zeros((2, 4))), False))
    frame[-72:-64] = (-2).to_bytes(8, "little", signed=True)
    with pytest.raises(gl.ArgumentError, match="field 'data'"):
        type_of(Sized).decode(bytes(frame))


BAD_CLASSES = [
    ({"x": set}, "field 'x': set has no counterpart in C"),
    ({"x": np.ndarray}, "field 'x': ndarray has no counterpart in C; write gridloom.Array"),
    ({"x": list[list[int]]}, "it has a length, so make it a field of a dataclass of its own"),
    ({"x": bytes | None}, "it has a length, so make it a field of a dataclass of its own"),
    ({"x": int | str}, "field 'x': a union is of dataclasses (and None), got int"),
    ({"x": gl.Array["float16", "n"]}, "elements of type float16 have no counterpart in C"),
    ({"x": gl.Array["float64", "n", gl.F]}, "arrays of messages are row-major"),
    ({"n": float, "x": gl.Array["float64", "n"]}, "its extent 'n' is a field that is no integer"),
    ({"x": tuple[int, str]}, "a tuple has so many elements of one type"),
    ({"x": Annotated[int, gl.ctypes.CType("quad")]}, "CType('quad') is none of"),
    ({"x": enum.Flag("Bits", "A B")}, "combinations of the flags of Bits are not constants"),
    ({"x": dict[str, int]}, "dict[str, int] has no counterpart in C; use a list of dataclasses"),
    ({"x": list}, "list has no counterpart in C; say of what it is a list"),
    ({"größe": int}, "the name of a field is one of C"),
]


@pytest.mark.parametrize(("fields", "text"), BAD_CLASSES, ids=[text for _, text in BAD_CLASSES])
def test_annotations_without_counterpart_are_named(fields, text):
    with pytest.raises(gl.InputError, match=re.escape(text)) as raised:
        gl.message(type("Bad", (), {"__annotations__": fields}))
    assert "message 'Bad'" in str(raised.value)


def test_a_class_is_found_by_its_name_also_inside_functions():
    @gl.message
    class First:
        second: "Second | None"

    @gl.message
    class Second:
        own: "Second | None"
        other: "Node | None"

    back = there_and_back(First(Second(Second(None, None), Node(3))))
    assert type(back.second) is Second and back.second.other == Node(3)


def test_other_mistakes_are_named():
    with pytest.raises(gl.InputError, match="it contains itself; write 'Bad | None' for a reference"):

        @gl.message
        class Bad:
            inner: "Bad"

    with pytest.raises(gl.InputError, match="is no message type; put @gridloom.message before its class"):
        type_of(int)
    with pytest.raises(gl.InputError, match="a structured type has no name"):
        gl.message(np.dtype([("a", "i4")]))
    with pytest.raises(gl.InputError, match="is part of messages as it is"):
        gl.message(Colour)

    @gl.message
    class Early:
        later: "Missing | None"  # noqa: F821

    with pytest.raises(gl.InputError, match="message 'Early': an annotation cannot be understood: name 'Missing'"):
        type_of(Early).encode(Early(None), False)
    with pytest.raises(gl.InputError, match="arrays of structs are for messages"):

        @gl.function
        def offered(x: gl.Array[Point, "n"]) -> None: ...


def test_hostile_frames_are_errors_and_never_more():
    ty = type_of(Scene)
    frame = ty.encode(scene(), True)
    for cut in range(0, len(frame), 7):
        with pytest.raises(gl.ArgumentError, match="message 'Scene'"):
            ty.decode(frame[:cut])
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(3000):
        bad = bytearray(ty.converted(frame, OTHERS[random.integers(len(OTHERS))]))
        for _ in range(random.integers(1, 4)):
            bad[random.integers(len(bad))] = random.integers(256)
        try:
            back = ty.decode(bytes(bad))
            ty.encode(back, False)
        except gl.ArgumentError:
            wrong += 1
    assert 500 < wrong < 3000


def test_a_short_message_of_shared_parts_does_not_fill_the_memory():
    @gl.message
    class Words:
        words: list[str]

    ty = type_of(Words)
    count = 1000
    frame = bytearray(ty.encode(Words(["x" * 100_000] + ["y"] * (count - 1)), False))
    # Every pointer leads to the long word.
    memory = len(frame) - (16 + 8 * count + 100_008 + 8 * (count - 1))
    for index in range(1, count):
        at = memory + 16 + 8 * index
        frame[at : at + 8] = frame[memory + 16 : memory + 24]
    with pytest.raises(gl.ArgumentError, match="field 'words': more than .* bytes when shared parts are copied"):
        ty.decode(bytes(frame))


def test_another_declaration_is_reported_field_by_field():
    @gl.message(name="Area")
    class Theirs:
        value: float
        unit: str

    @gl.message(name="Area")
    class Ours:
        value: np.float32

    theirs, ours = type_of(Theirs), type_of(Ours)
    differences = "'Area.value' is 'double value' for the sender and 'float value' for the receiver; 'Area.unit' exists"
    for described in (True, False):
        with pytest.raises(gl.ArgumentError, match=re.escape(differences)):
            ours.decode(theirs.encode(Theirs(1.0, "m2"), described))


class Random:
    """Classes and objects of them, from a seed."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.made = 0

    def below(self, n):
        return int(self.random.integers(n))

    def type(self, depth):
        """An annotation, and what makes values for it."""
        dtype = [np.int8, np.uint16, np.int32, np.uint64, np.float32, np.float64][self.below(6)]
        number = lambda: dtype(self.below(100))  # noqa: E731
        text = lambda: "".join(chr(self.below(800) + 1) for _ in range(self.below(6)))  # noqa: E731
        choices = [
            (int, lambda: self.below(2**40) - 2**39),
            (float, lambda: float(self.random.normal())),
            (bool, lambda: bool(self.below(2))),
            (str, text),
            (bytes, lambda: bytes(self.below(256) for _ in range(self.below(9)))),
            (dtype, number),
            (str | None, lambda: text() if self.below(2) else None),
            (list[str], lambda: [text() for _ in range(self.below(4))]),
            (Kind, lambda: [Kind.NEAR, Kind.FAR][self.below(2)]),
            (gl.Array[dtype, 2, 3], lambda: self.random.integers(0, 100, (2, 3)).astype(dtype)),
        ]
        if depth:
            cls, make = self.cls(depth - 1)
            choices += [
                (cls, make),
                (cls | None, lambda: make() if self.below(2) else None),
                (list[cls], lambda: [make() for _ in range(self.below(4))]),
                (gl.ctypes.Ref[cls], make),
                (cls | Nothing, lambda: make() if self.below(2) else Nothing()),
            ]
        return choices[self.below(len(choices))]

    def cls(self, depth):
        self.made += 1
        name = f"C{self.made}"
        parts = {f"f{n}": self.type(depth) for n in range(1 + self.below(5))}
        cls = type(name, (), {"__annotations__": {field: annotation for field, (annotation, _) in parts.items()}})
        cls = gl.message(cls)
        return cls, lambda: cls(**{field: make() for field, (_, make) in parts.items()})


@pytest.mark.parametrize("seed", range(60))
def test_any_class_of_any_machine_survives_the_round_trip(seed):
    random = Random(seed)
    cls, make = random.cls(2)
    value = make()
    for machine in (None, *OTHERS):
        assert there_and_back(value, machine) == value


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the stub's form of annotations")
def test_classes_are_what_type_checkers_take_them_for(tmp_path):
    (tmp_path / "program.py").write_text(
        "import gridloom as gl\n"
        "from typing import Annotated, Any\n"
        "import numpy as np\n"
        "@gl.message\n"
        "class Block:\n"
        "    row: gl.ctypes.c_int\n"
        "    data: Annotated[np.ndarray[Any, Any], gl.Array['float64', 'm']]\n"
        "    other: gl.ctypes.Ref['Block']\n"
        "    next: 'Block | None' = None\n"
        "def handle(me: gl.Process) -> float:\n"
        "    peer, block = me.wait(Block)\n"
        "    peer.send(Block(row=1, data=block.data, other=block.other))\n"
        "    me.send(peer, block)\n"
        "    @me.on(Block)\n"
        "    def got(peer: gl.processes.Peer, block: Block) -> None: ...\n"
        "    return float(block.row)\n"
        "def wrong(block: Block) -> Block:\n"
        "    return Block(row='x', data=np.zeros(3), other=block)\n"
    )
    done = mypy("program.py", tmp_path)
    assert done.stdout.splitlines()[0].startswith("program.py:18: error: Argument \"row\""), done.stdout + done.stderr
    assert "Found 1 error" in done.stdout
