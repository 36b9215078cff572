//! Recorded messages of one value, from machines of all kinds. The types here and the Python classes
//! (`gridloom-python/tests/test_frames.py`) both read them and have the declaration recorded with them.
//!
//! `GRIDLOOM_RECORD=1 cargo test -p gridloom-derive --test frames` rewrites the files; review them as a change of the wire format.

use std::path::PathBuf;

use gridloom_derive::Message;
use gridloom_layout::{Abi, MessageCodec, Receiver};
use proptest::prelude::*;

#[derive(Clone, Copy, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
enum Kind {
    Near = -1,
    Far = 7,
}

#[derive(Clone, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
struct Point {
    x: f64,
    y: f32,
    kind: Kind,
}

#[derive(Clone, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
struct Circle {
    centre: Point,
    radius: f64,
}

#[derive(Clone, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
struct Polygon {
    points: Vec<Point>,
}

#[derive(Clone, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
enum Shape {
    Nothing,
    Circle(Circle),
    Polygon(Polygon),
}

#[derive(Clone, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
struct Drawing {
    m: usize,
    n: usize,
    title: String,
    note: Option<String>,
    raw: Vec<u8>,
    shapes: Vec<Shape>,
    tags: Vec<String>,
    #[message(c = "long")]
    far: std::ffi::c_long,
    small: u16,
    open: bool,
    corners: [[i16; 2]; 3],
    #[message(length = "m * n")]
    grid: Vec<f64>,
    below: Option<Box<Drawing>>,
    first: Box<Point>,
}

fn drawing(depth: usize) -> Drawing {
    let point = |x: f64| Point { x, y: 0.5, kind: if x < 1.0 { Kind::Near } else { Kind::Far } };
    Drawing {
        m: 2,
        n: 3,
        title: "Grüße".into(),
        note: (depth > 0).then(String::new),
        raw: vec![0, 255],
        shapes: vec![
            Shape::Nothing,
            Shape::Circle(Circle { centre: point(1.5), radius: 2.0 }),
            Shape::Polygon(Polygon { points: vec![point(0.25), point(-3.0)] }),
        ],
        tags: vec!["a".into(), "longer than a word".into()],
        far: -70_000,
        small: 65_535,
        open: true,
        corners: [[1, -2], [3, -4], [5, -6]],
        grid: (0..6).map(f64::from).collect(),
        below: (depth > 0).then(|| Box::new(drawing(depth - 1))),
        first: Box::new(point(4.0)),
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/frames").join(name)
}

/// Returns the file's text; with the flag the file is written first.
fn recorded(name: &str, text: &str) -> String {
    if std::env::var_os("GRIDLOOM_RECORD").is_some() {
        std::fs::write(path(name), text).unwrap();
    }
    std::fs::read_to_string(path(name)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    lines.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn there(typed: &MessageCodec<Drawing>, message: &[u8], machine: Abi) -> Vec<u8> {
    let mut receiver = Receiver::new(typed.schema().clone(), machine).unwrap();
    receiver.open(message).unwrap().to_native().unwrap()
}

#[test]
fn the_declaration_is_the_recorded_one() {
    let typed = MessageCodec::<Drawing>::new().unwrap();
    assert_eq!(recorded("drawing.h", &typed.schema().to_string()), typed.schema().to_string());
}

#[test]
fn recorded_messages_of_all_machines_are_read() {
    let mut typed = MessageCodec::<Drawing>::new().unwrap();
    let message = typed.encode(&drawing(1)).unwrap();
    for (name, machine) in Abi::known() {
        let text = recorded(&format!("{name}.hex"), &hex(&there(&typed, &message, machine)));
        assert_eq!(typed.decode(&bytes(&text)).unwrap(), drawing(1), "{name}");
    }
}

fn any_point() -> impl Strategy<Value = Point> {
    (any::<i32>(), any::<i16>(), any::<bool>()).prop_map(|(x, y, near)| Point {
        x: f64::from(x) / 8.0,
        y: f32::from(y) / 4.0,
        kind: if near { Kind::Near } else { Kind::Far },
    })
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Nothing),
        (any_point(), any::<i16>())
            .prop_map(|(centre, radius)| Shape::Circle(Circle { centre, radius: f64::from(radius) })),
        prop::collection::vec(any_point(), 0..4).prop_map(|points| Shape::Polygon(Polygon { points })),
    ]
}

fn any_drawing() -> impl Strategy<Value = Drawing> {
    let text = "[^\\x00]{0,12}";
    let flat = (
        (0usize..4, 0usize..4, text, prop::option::of(text), prop::collection::vec(any::<u8>(), 0..9)),
        (prop::collection::vec(any_shape(), 0..4), prop::collection::vec(text, 0..4)),
        (any::<i32>(), any::<u16>(), any::<bool>(), any::<[[i16; 2]; 3]>(), any_point()),
    )
        .prop_map(|((m, n, title, note, raw), (shapes, tags), (far, small, open, corners, first))| Drawing {
            grid: (0..m * n).map(|value| value as f64 / 3.0).collect(),
            far: far.into(),
            first: Box::new(first),
            below: None,
            m,
            n,
            title,
            note,
            raw,
            shapes,
            tags,
            small,
            open,
            corners,
        });
    prop::collection::vec(flat, 1..4).prop_map(|drawings| {
        let chain = |below: Option<Box<Drawing>>, drawing| Some(Box::new(Drawing { below, ..drawing }));
        *drawings.into_iter().fold(None, chain).expect("there is one")
    })
}

proptest! {
    #[test]
    fn values_of_all_machines_survive_the_round_trip(drawing in any_drawing()) {
        let mut typed = MessageCodec::<Drawing>::new().unwrap();
        let message = typed.encode(&drawing).unwrap();
        prop_assert_eq!(&typed.decode(&message).unwrap(), &drawing);
        prop_assert_eq!(&typed.decode(&typed.encode_described(&drawing).unwrap()).unwrap(), &drawing);
        for (_, machine) in Abi::known() {
            let foreign = there(&typed, &message, machine);
            prop_assert_eq!(&typed.decode(&foreign).unwrap(), &drawing);
        }
    }

    #[test]
    fn changed_messages_are_errors_or_values(
        drawing in any_drawing(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut typed = MessageCodec::<Drawing>::new().unwrap();
        let mut message = typed.encode(&drawing).unwrap();
        for (place, byte) in changes {
            let place = place.index(message.len());
            message[place] = byte;
        }
        if let Ok(read) = typed.decode(&message) {
            typed.encode(&read).unwrap();
        }
    }
}
