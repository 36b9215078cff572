"""Objects of the program's own classes that calls return, and exceptions that calls raise."""

import sys

import pytest
from test_by_value import printed

SLOTS = """
import abc, copy, dataclasses, enum, functools, typing, weakref
import gridloom as gl

class Point:
    __slots__ = ("x", "y")
    def __init__(self, x, y): self.x, self.y = x, y

class Named(Point):
    __slots__ = "name"

class Open(Point):  # has a dictionary, too
    pass

class Mixed:
    __slots__ = {"x": "with a text", "__dict__": None, "__weakref__": None}

class Hidden:
    __slots__ = ("__x", "alias")
    def __init__(self, x): self.__x = x
    def get(self): return self.__x

class Iterated:
    __slots__ = iter(["a", "b"])

class Kept:
    __slots__ = ("x",)
    def __getstate__(self): return ["kept", self.x]
    def __setstate__(self, state): self.x = state

class Base(abc.ABC):
    __slots__ = ()
    @abc.abstractmethod
    def area(self): ...

class Square(Base):
    __slots__ = ("side",)
    def area(self): return self.side**2

T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    __slots__ = ("inner",)

class Length(float):
    __slots__ = ("unit",)

@dataclasses.dataclass(slots=True)
class Data:
    x: int
    y: list = dataclasses.field(default_factory=list)
    unset: int = dataclasses.field(init=False)

@dataclasses.dataclass(slots=True)
class More(Data):
    z: int = 3

@dataclasses.dataclass(slots=True, frozen=True, order=True)
class Frozen:
    x: int = 1

@dataclasses.dataclass(frozen=True)
class Plain:
    x: int = 1

class Pair(typing.NamedTuple):
    a: int
    b: str = "b"

class Color(enum.Enum):
    RED = 1
    def light(self): return self.name.lower()

class Flag(enum.IntFlag):
    A = 1
    B = 2

def of(kind, *args, **attributes):
    made = kind(*args)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made

def without_dict(made):
    return made, hasattr(made, "__dict__")

def show(made):
    names = [n for one in type(made).__mro__ for n in getattr(one, "__slots__", ()) if isinstance(n, str)]
    return {n: getattr(made, n) for n in ("x", "y", "name", "z", "a", "b", "inner", "side", "unit") if hasattr(made, n)}

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        run = lambda *call, **named: grid.run(*call, **named).get(timeout=60)
        for kind, args, attributes in [
            (Point, (1, 2), {}), (Named, (1, 2), {"name": "n"}), (Open, (1, 2), {"z": 3}), (Mixed, (), {"x": 1, "z": 2}),
            (Kept, (), {"x": 1}), (Square, (), {"side": 3}), (Box, (), {"inner": Point(1, 2).x}), (Length, (2,), {"unit": "m"}),
            (Data, (1,), {}), (More, (1, [2], 4), {}), (Frozen, (5,), {}), (Plain, (5,), {}), (Pair, (1,), {}),
        ]:
            made = run(of, kind, *args, **attributes)
            again, has_dict = run(without_dict, made)
            assert type(made) is type(again) is kind, kind
            assert has_dict == hasattr(made, "__dict__"), kind
            if kind is Kept:
                assert made.x == ["kept", 1] and again.x[1] == ["kept", made.x]
            else:
                assert show(made) == show(of(kind, *args, **attributes)) == show(again), (kind, show(made))
        assert run(of, Iterated, a=1).a == 1  # Python cannot pickle it here
        assert run(of, Hidden, 7).get() == 7 and run(lambda: Hidden(8).get()) == 8
        assert run(lambda: Color.RED) is Color.RED and run(Color.light, Color.RED) == "red" and run(lambda: Flag.A | Flag.B) == Flag.A | Flag.B
        assert run(lambda: weakref.ref(Mixed()) and 1) == 1
        assert run(lambda x: x.area(), run(of, Square, side=3)) == 9
        def refuses():
            try:
                Point(1, 2).other = 3
            except AttributeError:
                return True
        assert run(refuses) and run(lambda: Frozen(1) < Frozen(2))
        print("ok")
"""


def test_objects_with_slots_are_returned(program, tmp_path):
    assert printed(SLOTS, tmp_path) == ["ok"]


ATTRS = """
import attrs, gridloom as gl

@attrs.define
class Point:
    x: int
    y: list = attrs.field(factory=list)

@attrs.frozen(weakref_slot=False)
class Fixed(object):
    x: int = 1

@attrs.define
class Named(Point):
    name: str = "n"

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        for made in (Point(1), Fixed(2), Named(1, [2], "m")):
            kind, back = grid.run(lambda x: (hasattr(x, "__dict__"), x), made).get(timeout=60)
            assert type(back) is type(made) and back == made and not kind, made
        print("ok")
"""


def test_objects_of_attrs_are_returned(program, tmp_path):
    pytest.importorskip("attrs")
    assert printed(ATTRS, tmp_path) == ["ok"]


ERRORS = """
import dataclasses, sys
import gridloom as gl

class Two(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code

class Named(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code

class Slotted(Exception):
    __slots__ = ("code",)
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int

class New(Exception):
    def __new__(cls, code, *, text):
        return super().__new__(cls, code)
    def __init__(self, code, *, text):
        super().__init__(text)
        self.code = code

class Locked(Exception):
    def __init__(self, code):
        import threading
        super().__init__("locked")
        self.lock = threading.Lock()

class Ours(ExceptionGroup):
    def __new__(cls, errors, code):
        made = super().__new__(cls, f"ours {code}", errors)
        made.code = code
        return made
    def __init__(self, errors, code): pass
    def derive(self, errors): return Ours(errors, self.code)

class Bound(ExceptionGroup):
    def __init__(self, message, errors):
        import threading
        self.lock = threading.Lock()

def failing(*errors):
    made = []
    for error in errors:
        try:
            raise error
        except Exception as caught:
            made.append(caught)
    raise ExceptionGroup("many", made)

def caught(function, *args):
    try:
        grid.run(function, *args).get(timeout=60)
    except Exception as error:
        return error

def nested():
    inner = ExceptionGroup("inner", [Two(2, "b"), OSError(2, "no", "file")])
    inner.add_note("of the inner")
    raise Ours([ValueError(1), inner, Slotted(3, "c")], 7)

def chained():
    try:
        try:
            raise Two(1, "first")
        except Two as first:
            raise Named(code=2) from first
    except Named as second:
        second.add_note("noted")
        third = New(3, text="t")
        third.__context__ = second
        raise ExceptionGroup("g", [third]) from Locked(4)

def raised_in_turn():
    try:
        raise Two(1, "x")
    except Two:
        raise KeyError("k")

def deep():
    error = ValueError(1)
    for _ in range(5000):
        error = ExceptionGroup("g", [error])
    raise error

def long_chain():
    error = None
    for n in range(500):
        new = ValueError(n)
        new.__context__ = error
        error = new
    raise error

def same():
    one = Two(1, "x")
    raise ExceptionGroup("s", [one, ExceptionGroup("t", [one])])

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        try:
            grid.run(failing, ValueError(1), Two(5, "x")).get(timeout=60)
        except* Two as group:
            print("two", group.exceptions[0].code, str(group.exceptions[0]))
        except* ValueError:
            print("value")

        for error in (Two(1, "x"), Named(code=1), Slotted(1, "x"), Frozen(1), New(1, text="x")):
            alone, grouped = caught(lambda: (_ for _ in ()).throw(error)), caught(failing, error).exceptions[0]
            value = grid.run(lambda: [error]).get(timeout=60)[0]
            assert {type(one) for one in (alone, grouped, value)} == {type(error)}, error
            assert {one.code for one in (alone, grouped, value)} == {1} and {str(one) for one in (alone, grouped, value)} == {str(error)}

        error = caught(nested)
        assert type(error) is Ours and error.code == 7 and error.message == "ours 7", error
        value, inner, slotted = error.exceptions
        assert (type(inner), inner.__notes__, slotted.code) == (ExceptionGroup, ["of the inner"], 3)
        assert (inner.exceptions[0].code, inner.exceptions[1].filename) == (2, "file")
        assert type(error.subgroup(Two)) is Ours

        error = caught(chained)
        assert type(error.__cause__).__name__ == "RemoteTraceback" and "Locked" in str(error.__cause__)
        assert type(error.__context__) is gl.RemoteError and error.__context__.kind == "Locked"
        (third,) = error.exceptions
        second = third.__context__
        assert (third.code, second.code, second.__notes__, second.__cause__.code) == (3, 2, ["noted"], 1)
        assert second.__suppress_context__ and second.__context__ is second.__cause__

        error = caught(raised_in_turn)
        assert type(error) is KeyError and type(error.__context__) is Two and error.__context__.code == 1

        error = caught(lambda: failing(ValueError(1), Locked(2), Two(3, "x")))
        assert [type(one) for one in error.exceptions] == [ValueError, gl.RemoteError, Two] and error.message == "many"
        assert error.exceptions[1].kind == "Locked" and "in failing" in error.exceptions[1].traceback

        def bound():
            raise Bound("b", [Two(1, "x")])
        error = caught(bound)
        assert type(error) is ExceptionGroup and error.exceptions[0].code == 1 and "instead of Bound" in error.__notes__[0], error

        assert type(caught(deep)) is gl.RemoteError
        error, length = caught(long_chain), 0
        while error := error.__context__:
            length += 1
        assert length == 64, length
        error = caught(same)
        assert error.exceptions[0] is error.exceptions[1].exceptions[0]
        assert grid.run(pow, 2, 3).get() == 8
        print("ok")
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups need Python 3.11")
def test_exceptions_of_a_group_are_rebuilt_one_by_one(program, tmp_path):
    assert printed(ERRORS, tmp_path) == ["two 5 5: x", "value", "ok"]


BUILT_IN = """
import errno, pickle, threading
import gridloom as gl

class Disk(OSError):
    def __init__(self, path, free):
        super().__init__(errno.ENOSPC, f"{free} bytes are free", path)
        self.free = free

class Code(OSError):
    def __init__(self, code, text):
        super().__init__(code, f"no {text}")

class Bare(OSError):
    def __init__(self, *, place):
        super().__init__(f"bare {place}")
        self.place = place

class New(OSError):
    def __new__(cls, a, *, b):
        return super().__new__(cls, a, b)
    def __init__(self, a, *, b):
        self.b = b

class Found(FileNotFoundError):
    def __init__(self, path):
        super().__init__(2, "gone", path)
        self.path = path

class Decode(UnicodeDecodeError):
    def __init__(self, data):
        super().__init__("utf-8", data, 0, 1, "odd")

class Syntax(SyntaxError):
    def __init__(self, line):
        super().__init__("bad", ("f.py", line, 2, "x = "))

class Import(ImportError):
    def __init__(self, module):
        super().__init__(f"no {module}", name=module, path="/p")

class Attribute(AttributeError):
    def __init__(self, of, name):
        super().__init__(f"{of}.{name}", name=name, obj=threading.Lock())

class Key(KeyError):
    def __init__(self, key, table):
        super().__init__(key)
        self.table = table

class LockedFile(OSError):
    def __init__(self, path):
        super().__init__(errno.EACCES, "locked", path)
        self.lock = threading.Lock()

class LockedKey(KeyError):
    def __init__(self, key):
        super().__init__(key)
        self.lock = threading.Lock()

class LockedText(Decode):
    def __init__(self, data):
        super().__init__(data)
        self.lock = threading.Lock()

class LockedStop(StopIteration):
    def __init__(self):
        self.lock = threading.Lock()

NAMES = ("errno strerror filename filename2 characters_written encoding object start end reason msg lineno offset text name path value code "
         "free place b table").split()

def fields(error):
    return type(error), error.args, str(error), {name: getattr(error, name, None) for name in NAMES}

def failing(make):
    raise make()

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        for make in (
            lambda: Disk("/d", 7), lambda: Code(2, "x"), lambda: Bare(place=3), lambda: New(1, b=2), lambda: Found("/x"),
            lambda: Decode(bytes([255])), lambda: Syntax(3), lambda: Import("m"), lambda: Attribute("a", "b"), lambda: Key("k", "t"),
            lambda: FileNotFoundError(2, "no", "file", None, "other"), lambda: BlockingIOError(11, "x", 5), lambda: NameError("n", name="q"),
            lambda: UnicodeEncodeError("ascii", "\u00e9", 0, 1, "r"), lambda: ImportError("i", name="n"), lambda: SyntaxError("bad", ("f", 1, 2, "t")),
        ):
            raised, (returned,) = grid.run(failing, make).exception(60), grid.run(lambda: [make()]).get(60)
            assert fields(raised) == fields(returned) == fields(make()), (fields(raised), fields(returned), fields(make()))

        for make, base, name in (
            (lambda: LockedFile("/l"), OSError, "LockedFile"),
            (lambda: LockedKey("k"), KeyError, "LockedKey"),
            (lambda: LockedText(bytes([255])), UnicodeDecodeError, "LockedText"),
        ):
            try:
                grid.run(failing, make).get(60)
            except base as error:
                assert isinstance(error, gl.RemoteError) and error.kind == name and f"raised {name}" in str(error) and "_thread.lock" in str(error)
                mine, own = fields(error)[3], fields(make())[3]
                assert mine == own, (mine, own)
                back = pickle.loads(pickle.dumps(error))
                assert fields(back) == fields(error) and vars(back) == vars(error)
        assert type(grid.run(failing, LockedStop).exception(60)) is gl.RemoteError
        print("ok")
"""


def test_built_in_exceptions_with_constructors_of_their_own_are_raised_as_they_are(program, tmp_path):
    assert printed(BUILT_IN, tmp_path) == ["ok"]
