//! Derived messages: their C declarations, round trips of values, and messages of C programs of other machines.

use std::sync::Arc;

use gridloom_derive::Message;
use gridloom_layout::{Abi, Graph, MemoryLayout, MessageCodec, Receiver, Value, parse};

#[derive(Clone, Copy, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
enum Kind {
    Near = -1,
    #[message(name = "FAR_AWAY")]
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
enum Shape {
    Nothing,
    Circle { centre: Point, radius: f64 },
    Polygon(Vec<Point>),
    Named(String, Option<Box<Shape>>),
}

#[derive(Clone, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
#[message(name = "scene")]
struct Scene {
    #[message(c = "unsigned int")]
    lines: u32,
    columns: u16,
    #[message(length = "lines * (columns + 1)")]
    data: Vec<f64>,
    title: String,
    note: Option<String>,
    tags: Vec<String>,
    shapes: Vec<Shape>,
    grid: [[i16; 2]; 3],
    open: bool,
    #[message(c = "long")]
    far: isize_like,
    next: Option<Box<Scene>>,
    first: Box<Point>,
}

#[allow(non_camel_case_types)]
type isize_like = std::ffi::c_long;

const C: &str = "
    enum Kind { Kind_Near = -1, FAR_AWAY = 7 };
    struct Point { double x; float y; enum Kind kind; };
    enum Shape_tag { Shape_Nothing_tag, Shape_Circle_tag, Shape_Polygon_tag, Shape_Named_tag };
    struct Shape_Circle { struct Point centre; double radius; };
    struct Shape_Polygon { size_t value0_length; struct Point *value0 GRIDLOOM_LENGTH(value0_length); };
    struct Shape_Named { char *value0; struct Shape *value1; };
    union Shape_body {
        struct Shape_Circle Circle GRIDLOOM_CASE(Shape_Circle_tag);
        struct Shape_Polygon Polygon GRIDLOOM_CASE(Shape_Polygon_tag);
        struct Shape_Named Named GRIDLOOM_CASE(Shape_Named_tag);
    };
    struct Shape { enum Shape_tag tag; union Shape_body body GRIDLOOM_TAG(tag); };
    struct scene {
        unsigned int lines; uint16_t columns; double *data GRIDLOOM_LENGTH(lines * (columns + 1));
        char *title; char *note; size_t tags_length; char **tags GRIDLOOM_LENGTH(tags_length);
        size_t shapes_length; struct Shape *shapes GRIDLOOM_LENGTH(shapes_length);
        int16_t grid[3][2]; bool open; long far; struct scene *next; struct Point *first;
    };
";

fn point(x: f64) -> Point {
    Point { x, y: -1.5, kind: Kind::Far }
}

fn scene(depth: usize) -> Scene {
    Scene {
        lines: 2,
        columns: 1,
        data: vec![1.0, 2.0, 3.0, 4.0],
        title: "Grüße".into(),
        note: (depth == 0).then(String::new),
        tags: vec!["a".into(), String::new()],
        shapes: vec![
            Shape::Nothing,
            Shape::Circle { centre: point(0.25), radius: 2.0 },
            Shape::Polygon(vec![point(1.0), point(2.0)]),
            Shape::Named("inner".into(), Some(Box::new(Shape::Polygon(vec![])))),
        ],
        grid: [[1, -2], [3, -4], [5, -6]],
        open: true,
        far: -9,
        next: (depth > 0).then(|| Box::new(scene(depth - 1))),
        first: Box::new(Point { kind: Kind::Near, ..point(3.0) }),
    }
}

#[test]
fn the_declaration_is_that_of_c() {
    let typed = MessageCodec::<Scene>::new().unwrap();
    let c = parse(C, "scene.h").unwrap().schema("scene").unwrap();
    assert_eq!(typed.schema().to_string(), c.to_string());
    assert_eq!(typed.schema().hash(), c.hash());
}

#[test]
fn values_survive_the_round_trip() {
    let mut typed = MessageCodec::<Scene>::new().unwrap();
    let message = typed.encode(&scene(3)).unwrap();
    assert_eq!(typed.decode(&message).unwrap(), scene(3));
}

#[test]
fn c_programs_of_other_machines_read_and_write_them() {
    let mut typed = MessageCodec::<Scene>::new().unwrap();
    let message = typed.encode(&scene(2)).unwrap();
    let schema = Arc::new(parse(C, "scene.h").unwrap().schema("scene").unwrap());
    for (_, machine) in Abi::known() {
        let mut receiver = Receiver::new(schema.clone(), machine).unwrap();
        let there = receiver.open(&message).unwrap().to_native().unwrap();
        assert_eq!(typed.decode(&there).unwrap(), scene(2), "{machine}");
    }
}

#[test]
fn what_c_cannot_hold_is_named() {
    let typed = MessageCodec::<Scene>::new().unwrap();
    let error = typed.encode(&Scene { title: "a\0b".into(), ..scene(0) }).unwrap_err();
    assert!(error.to_string().starts_with("message 'scene', field 'title'"), "{error}");
    let error = typed.encode(&Scene { lines: 3, ..scene(0) }).unwrap_err();
    assert!(error.to_string().contains("field 'data', byte 8: expected 6 elements, got 4"), "{error}");
    assert!(typed.encode(&scene(600)).unwrap_err().to_string().contains("pointers inside one another"));
}

#[derive(Clone, PartialEq, Debug, Message)]
#[message(crate = "gridloom_layout")]
struct Node {
    value: i32,
    left: Option<Box<Node>>,
    right: Option<Box<Node>>,
}

#[test]
fn cycles_and_explosions_are_errors() {
    let mut typed = MessageCodec::<Node>::new().unwrap();
    let node = |value, left, right| {
        let pointer = |to: Option<usize>| to.map_or(Value::Null, |shared| Value::Reference { shared, index: 0 });
        let fields = [("value", Value::Integer(value)), ("left", pointer(left)), ("right", pointer(right))];
        vec![Value::Struct(fields.map(|(name, value)| (name.to_string(), value)).to_vec())]
    };
    let form = MemoryLayout::new(typed.schema().clone(), Abi::NATIVE).unwrap();
    let cycle = Graph { root: Value::Reference { shared: 0, index: 0 }, shared: vec![node(1, Some(0), None)] };
    let error = typed.decode(&form.encode_values(&cycle).unwrap()).unwrap_err();
    assert!(error.to_string().contains("at most"), "{error}");
    // Each node shares the next one twice: 2^40 nodes as a tree.
    let mut shared: Vec<_> = (0..40).map(|n| node(n, Some(n as usize + 1), Some(n as usize + 1))).collect();
    shared.push(node(40, None, None));
    let graph = Graph { root: Value::Reference { shared: 0, index: 0 }, shared };
    let error = typed.decode(&form.encode_values(&graph).unwrap()).unwrap_err();
    assert!(error.to_string().contains("bytes when shared parts are copied"), "{error}");
}
