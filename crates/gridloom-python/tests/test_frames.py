"""Python reads messages that Rust wrote in the representations of all kinds of machines, recorded beside the Rust types."""

import enum
from pathlib import Path
from typing import Annotated

import gridloom as gl
import numpy as np
import pytest
from gridloom.messages.declare import type_of

FRAMES = Path(__file__).resolve().parents[2] / "gridloom-derive" / "tests" / "frames"


class Kind(enum.IntEnum):
    Near = -1
    Far = 7


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


Shape = Annotated[Nothing | Circle | Polygon, gl.ctypes.Named("Shape")]


@gl.message
class Drawing:
    title: str
    note: str | None
    raw: bytes
    shapes: list[Shape]
    tags: list[str]
    far: gl.ctypes.c_long
    small: np.uint16
    open: bool
    corners: gl.Array["int16", 3, 2]
    grid: gl.Array["float64", "m", "n"]
    below: "Drawing | None"
    first: gl.ctypes.Ref[Point]


def drawing(depth):
    def point(x):
        return Point(x, np.float32(0.5), Kind.Near if x < 1 else Kind.Far)

    return Drawing(
        title="Grüße",
        note="" if depth else None,
        raw=b"\0\xff",
        shapes=[Nothing(), Circle(point(1.5), 2.0), Polygon([point(0.25), point(-3.0)])],
        tags=["a", "longer than a word"],
        far=-70_000,
        small=np.uint16(65_535),
        open=True,
        corners=np.array([[1, -2], [3, -4], [5, -6]]),
        grid=np.arange(6.0).reshape(2, 3),
        below=drawing(depth - 1) if depth else None,
        first=point(4.0),
    )


def test_the_declaration_is_that_of_the_rust_type():
    assert gl.messages.message_declaration(Drawing) == (FRAMES / "drawing.h").read_text()


@pytest.mark.parametrize("machine", sorted(path.stem for path in FRAMES.glob("*.hex")))
def test_what_rust_has_written_is_read(machine):
    frame = bytes.fromhex((FRAMES / f"{machine}.hex").read_text())
    assert type_of(Drawing).decode(frame) == drawing(1)


def test_frames_of_nine_machines_are_recorded():
    assert len(list(FRAMES.glob("*.hex"))) == 9
