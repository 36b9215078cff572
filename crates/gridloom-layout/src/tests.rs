//! Hand-written cases: layouts as compilers have them, sharing, cycles, errors and their texts.

use std::sync::Arc;

use super::{Abi, Graph, MemoryAt, MemoryLayout, Receiver, Schema, Value, parse};

const SHAPES: &str = "
    enum Kind { CIRCLE, POLYGON = 4 };
    struct Point { double x, y; };
    struct Polygon { size_t count; struct Point *points GRIDLOOM_LENGTH(count); };
    union Body { double radius GRIDLOOM_CASE(CIRCLE); struct Polygon polygon GRIDLOOM_CASE(POLYGON); };
    typedef struct Shape { /* a list */
        enum Kind kind;
        union Body body GRIDLOOM_TAG(kind);
        char *name;
        char code[4];
        GRIDLOOM_ARRAY(long) marks;
        struct Shape *next; // or null
    } shape_t;
    struct Matrix { unsigned int lines; unsigned int rows; double *data GRIDLOOM_LENGTH(lines * rows); };
    struct Welcome { int id, row_count; double time_sent; struct Row *rows GRIDLOOM_LENGTH(row_count); int leaves[16]; };
    struct Row { int which_row; int row[16][3]; };
";

fn schema(name: &str) -> Arc<Schema> {
    Arc::new(parse(SHAPES, "shapes.h").unwrap().schema(name).unwrap())
}

fn form(name: &str, machine: &str) -> MemoryLayout {
    MemoryLayout::new(schema(name), Abi::from_name(machine).unwrap()).unwrap()
}

fn integer(value: i128) -> Value {
    Value::Integer(value)
}

fn record(fields: &[(&str, Value)]) -> Value {
    Value::Struct(fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect())
}

fn floats(values: &[f64]) -> Value {
    Value::List(values.iter().map(|value| Value::Float(*value)).collect())
}

#[test]
fn layouts_are_those_of_the_compilers() {
    let sizes = |name: &str| {
        ["x86-64", "i386", "arm", "s390x", "ppc", "packed"].map(|machine| form(name, machine).shape(0).size)
    };
    assert_eq!(sizes("Welcome"), [88, 84, 88, 88, 88, 88]);
    assert_eq!(sizes("Matrix"), [16, 12, 12, 16, 12, 16]);
    assert_eq!(form("Welcome", "x86-64").shape(0).offsets, [0, 4, 8, 16, 24]);
    assert_eq!(form("Welcome", "i386").shape(0).offsets, [0, 4, 8, 16, 20]);
    assert_eq!(form("Shape", "x86-64").shape(0).offsets, [0, 8, 24, 32, 40, 64]);
    assert_eq!(form("Shape", "ppc").shape(0).offsets, [0, 8, 16, 20, 24, 36]);
    assert_eq!(form("Shape", "packed").shape(0).offsets, [0, 4, 20, 28, 32, 56]);
}

#[test]
fn a_matrix_goes_from_a_big_endian_machine_to_this_one() {
    let values =
        record(&[("lines", integer(2)), ("rows", integer(3)), ("data", floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.5]))]);
    let message = form("Matrix", "ppc").encode_values(&Graph::tree(values.clone())).unwrap();
    let mut receiver = Receiver::new(schema("Matrix"), Abi::from_name("x86-64").unwrap()).unwrap();
    let incoming = receiver.open(&message).unwrap();
    assert_eq!(incoming.to_graph().unwrap(), Graph::tree(values));
    assert_eq!(incoming.to_graph().unwrap().to_string(), "{lines: 2, rows: 3, data: [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]}");
    let mut memory = vec![0; incoming.size_bytes()];
    assert_eq!((memory.len(), incoming.place(&mut memory, 0x7000).unwrap()), (16 + 48, 0x7000));
    assert_eq!(memory[..8], [2, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(memory[8..16], 0x7010u64.to_le_bytes());
    assert_eq!(memory[56..64], 6.5f64.to_le_bytes());
}

fn shape(name: &str, next: Value) -> Value {
    record(&[
        ("kind", Value::Constant("POLYGON".into())),
        (
            "body",
            Value::Case(
                "polygon".into(),
                Box::new(record(&[
                    ("count", integer(1)),
                    ("points", Value::List(vec![record(&[("x", Value::Float(1.5)), ("y", Value::Float(-0.0))])])),
                ])),
            ),
        ),
        ("name", Value::Text(name.into())),
        ("code", Value::Bytes(b"ab\0\xff".to_vec())),
        ("marks", Value::List(vec![integer(-1), integer(7)])),
        ("next", next),
    ])
}

#[test]
fn a_cycle_of_shared_structs_stays_one() {
    let to = |shared| Value::Reference { shared, index: 0 };
    let values = Graph { root: to(0), shared: vec![vec![shape("first", to(1))], vec![shape("second", to(0))]] };
    for machine in ["x86-64", "ppc", "i386", "packed"] {
        let message = form("Shape", machine).encode_values(&values).unwrap();
        let mut receiver = Receiver::new(schema("Shape"), Abi::from_name("s390x").unwrap()).unwrap();
        assert_eq!(receiver.open(&message).unwrap().to_graph().unwrap(), values);
    }
    let text = values.to_string();
    assert!(
        text.starts_with("#0\n#0: {kind: POLYGON, body: polygon({count: 1, points: [{x: 1.5, y: -0.0}]})"),
        "{text}"
    );
}

#[test]
fn pointers_into_an_array_lead_into_it_again() {
    let text = "struct S { int n; int *all GRIDLOOM_LENGTH(n); int *third; int *last GRIDLOOM_LENGTH(2); };";
    let schema = Arc::new(parse(text, "s.h").unwrap().schema("S").unwrap());
    let arm = MemoryLayout::new(schema.clone(), Abi::from_name("arm").unwrap()).unwrap();
    let mut words = [4, 0x110, 0x118, 0x118, 10, 11, 12, 13u32];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let message = arm.encode(&MemoryAt { base: 0x100, bytes: &bytes }, 0x100).unwrap();
    let mut receiver = Receiver::new(schema, Abi::from_name("s390x").unwrap()).unwrap();
    let values = receiver.open(&message).unwrap().to_graph().unwrap();
    assert_eq!(values.to_string(), "{n: 4, all: #0, third: #0[2], last: #0[2]}\n#0: [10, 11, 12, 13]");
    words[2] = 0x120;
    bytes.splice(8..12, words[2].to_le_bytes());
    let error = arm.encode(&MemoryAt { base: 0x100, bytes: &bytes }, 0x100).unwrap_err();
    assert_eq!(error.to_string(), "message 'S', field 'third', byte 8: a pointer to 0x120, where there is no int");
}

#[test]
fn an_array_of_which_only_a_part_is_pointed_to_is_shared() {
    let text = "struct S { int *some GRIDLOOM_LENGTH(1); };";
    let schema = Arc::new(parse(text, "s.h").unwrap().schema("S").unwrap());
    let some = Value::Reference { shared: 0, index: 1 };
    let values = Graph { root: record(&[("some", some)]), shared: vec![vec![integer(1), integer(2)]] };
    let message = MemoryLayout::new(schema.clone(), Abi::NATIVE).unwrap().encode_values(&values).unwrap();
    let mut receiver = Receiver::new(schema, Abi::from_name("ppc").unwrap()).unwrap();
    assert_eq!(receiver.open(&message).unwrap().to_graph().unwrap(), values);
}

#[test]
fn what_is_long_can_be_shown_by_its_first_elements() {
    let text = "struct Point { double x, y; };
        struct All {
            int m; int n; double *data GRIDLOOM_LENGTH(m * n); char *name; unsigned char *bytes GRIDLOOM_LENGTH(n);
            float fixed[3][2]; struct Point *points GRIDLOOM_LENGTH(n);
        };";
    let schema = Arc::new(parse(text, "all.h").unwrap().schema("All").unwrap());
    let point = |x: f64| record(&[("x", Value::Float(x)), ("y", Value::Float(-x))]);
    let values = record(&[
        ("m", integer(2)),
        ("n", integer(3)),
        ("data", floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("name", Value::Text("ü".repeat(20))),
        ("bytes", Value::List(vec![integer(1), integer(2), integer(3)])),
        ("fixed", Value::List(vec![floats(&[1.0, 2.0]), floats(&[3.0, 4.0]), floats(&[5.0, 6.0])])),
        ("points", Value::List(vec![point(1.0), point(2.0), point(3.0)])),
    ]);
    let message =
        MemoryLayout::new(schema.clone(), Abi::NATIVE).unwrap().encode_values(&Graph::tree(values.clone())).unwrap();
    let mut receiver = Receiver::new(schema, Abi::NATIVE).unwrap();
    let incoming = receiver.open(&message).unwrap();
    assert_eq!(incoming.to_graph_of_first(7).unwrap(), Graph::tree(values));
    let expected = "{m: 2, n: 3, data: float64[2, 3] [1.0, 2.0, …], name: char[40] [\"üüüüüüüüüüüüüüüü\", …], \
                    bytes: uint8[3] [1, 2, …], fixed: float32[3, 2] [1.0, 2.0, …], \
                    points: Point[3] [{x: 1.0, y: -1.0}, {x: 2.0, y: -2.0}, …]}";
    assert_eq!(incoming.to_graph_of_first(2).unwrap().to_string(), expected);
}

#[test]
fn a_long_list_needs_no_stack() {
    let text = "struct Node { int value; struct Node *next; };";
    let schema = Arc::new(parse(text, "node.h").unwrap().schema("Node").unwrap());
    let x86 = MemoryLayout::new(schema.clone(), Abi::from_name("i386").unwrap()).unwrap();
    let count = 200_000u32;
    let words = (0..count).flat_map(|n| [n, if n + 1 < count { 0x1000 + 8 * (n + 1) } else { 0 }]);
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let message = x86.encode(&MemoryAt { base: 0x1000, bytes: &bytes }, 0x1000).unwrap();
    let mut receiver = Receiver::new(schema, Abi::from_name("s390x").unwrap()).unwrap();
    let incoming = receiver.open(&message).unwrap();
    assert_eq!(incoming.to_graph().unwrap().shared.len(), count as usize);
    assert_eq!(incoming.size_bytes(), 16 * count as usize);
}

fn opened(name: &str, message: &[u8]) -> String {
    let mut receiver = Receiver::new(schema(name), Abi::from_name("i386").unwrap()).unwrap();
    let incoming = match receiver.open(message) {
        Ok(incoming) => incoming,
        Err(error) => return error.to_string(),
    };
    let mut memory = vec![0; incoming.size_bytes()];
    incoming.place(&mut memory, 64).map_or_else(|error| error.to_string(), |_| "right".to_string())
}

#[test]
fn what_does_not_fit_is_named() {
    let mut given = shape("x", Value::Null);
    let Value::Struct(fields) = &mut given else { unreachable!() };
    fields[4].1 = Value::List(vec![integer(1), integer(1 << 40)]);
    let message = form("Shape", "x86-64").encode_values(&Graph::tree(given)).unwrap();
    assert_eq!(
        opened("Shape", &message),
        "message 'Shape', field '(long in block 3)[1]', byte 104: 1099511627776 does not fit long, which has 4 bytes on i386"
    );
}

#[test]
fn wrong_values_are_named() {
    let wrong = |values: &[(&str, Value)]| {
        form("Matrix", "arm").encode_values(&Graph::tree(record(values))).unwrap_err().to_string()
    };
    let data = ("data", floats(&[1.0]));
    assert_eq!(
        wrong(&[("lines", integer(2)), ("rows", integer(1)), data.clone()]),
        "message 'Matrix', field 'data': expected 2 elements, as lines*rows says, got 1"
    );
    assert_eq!(
        wrong(&[("line", integer(2)), data.clone()]),
        "message 'Matrix': expected a field of struct 'Matrix'; did you mean 'lines'?, got 'line'"
    );
    assert_eq!(
        wrong(&[("lines", integer(-1)), data.clone()]),
        "message 'Matrix', field 'lines': -1 does not fit unsigned int, which has 4 bytes on ilp32-le"
    );
    assert_eq!(wrong(&[data]), "message 'Matrix', field 'lines': expected a value, got none");
}

#[test]
fn lengths_and_tags_may_be_left_out() {
    let text = "struct S { int n; char *c GRIDLOOM_LENGTH(n); short t; union U { int i GRIDLOOM_CASE(3); } u GRIDLOOM_TAG(t); };";
    let schema = Arc::new(parse(text, "s.h").unwrap().schema("S").unwrap());
    let given = record(&[("c", Value::Bytes(b"xyz".to_vec())), ("u", Value::Case("i".into(), Box::new(integer(9))))]);
    let message = MemoryLayout::new(schema.clone(), Abi::NATIVE).unwrap().encode_values(&Graph::tree(given)).unwrap();
    let values = Receiver::new(schema, Abi::NATIVE).unwrap().open(&message).unwrap().to_graph().unwrap();
    assert_eq!(values.to_string(), r#"{n: 3, c: b"xyz", t: 3, u: i(9)}"#);
}

#[test]
fn broken_messages_are_named() {
    let values = record(&[("lines", integer(1)), ("rows", integer(1)), ("data", floats(&[1.0]))]);
    let good = form("Matrix", "i386").encode_values(&Graph::tree(values)).unwrap();
    let memory = good.len() - 24;
    let broken = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        opened("Matrix", &bytes)
    };
    assert_eq!(opened("Matrix", &good), "right");
    assert_eq!(opened("Row", &good), "message 'Row': it is of type 'Matrix', expected 'Row'");
    assert!(broken(0, 0).contains("raw bytes were received under its name"));
    assert!(broken(4, 99).contains("machine number 99"));
    assert_eq!(broken(memory, 2), "message 'Matrix', field 'data', byte 8: 1 elements of double where 2 are needed");
    assert!(broken(memory + 8, 200).contains("a pointer to 0xc8, where there is no double"));
    assert!(broken(memory + 8, 0).contains("a null pointer where 1 elements of double are needed"));
    assert!(opened("Matrix", &good[..good.len() - 1]).contains("its blocks take 24 bytes, but 23 were received"));
}

#[test]
fn different_declarations_are_compared() {
    let other = parse(
        "struct Matrix { unsigned int lines; long rows; float *data GRIDLOOM_LENGTH(lines * rows); char *name; };",
        "other.h",
    );
    let theirs = Arc::new(other.unwrap().schema("Matrix").unwrap());
    let theirs = MemoryLayout::new(theirs, Abi::from_name("i386").unwrap()).unwrap();
    let memory = MemoryAt { base: 64, bytes: &[0; 16] };
    let told = opened("Matrix", &theirs.encode_described(&memory, 64).unwrap());
    assert_eq!(
        told,
        "message 'Matrix': sender and receiver declare it differently: \
         'Matrix.rows' is 'long rows' for the sender and 'unsigned int rows' for the receiver; \
         'Matrix.data' is 'float *data GRIDLOOM_LENGTH(lines*rows)' for the sender and \
         'double *data GRIDLOOM_LENGTH(lines*rows)' for the receiver; 'Matrix.name' exists for the sender only"
    );
    assert!(opened("Matrix", &theirs.encode(&memory, 64).unwrap()).contains("let both use one declaration"));
}

#[test]
fn the_hash_is_pinned() {
    let hash = schema("Shape").hash();
    assert_eq!(hash, PINNED, "a changed hash means that old and new versions refuse each other's messages");
}

const PINNED: u64 = 11_191_563_454_738_989_980;

fn refused(text: &str) -> String {
    match parse(text, "t.h") {
        Ok(_) => "right".to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn mistakes_in_declarations_have_a_place_and_a_remedy() {
    let cases = [
        (
            "struct S { void *p; };",
            "t.h:1:12: void has no type to convert; declare the type that the pointer points to",
        ),
        (
            "struct S { int n : 3; };",
            "t.h:1:18: bit-fields are laid out differently on each machine; use whole integers",
        ),
        ("struct S { int n[]; };", "t.h:1:17: an array without a size; use a pointer with GRIDLOOM_LENGTH"),
        ("struct S {\n  long double x; };", "t.h:2:3: long double differs between machines; use double"),
        ("struct S { int (*f)(int); };", "t.h:1:20: functions are not data; leave this field out of the message"),
        ("struct S { foo x; };", "t.h:1:12: 'foo' is not a known type; declare it first"),
        ("struct P { int x; }; struct S { P x; };", "t.h:1:33: 'P' is declared as a struct; write 'struct P'"),
        ("struct S { struct T *x; };", "t.h:1:19: 'T' is used and nowhere declared; declare it in this text"),
        ("struct S { int n; int *p\n GRIDLOOM_LENGTH( m+1); };", "t.h:2:19: unknown name 'm'; the fields are: n, p"),
        ("struct S { struct S s; };", "t.h:1:8: type 'S': it contains itself by value; use a pointer"),
        (
            "union U { int i GRIDLOOM_CASE(1); }; struct S { union U u; };",
            "t.h:1:45: type 'S': field 'u' is a union without a tag; add GRIDLOOM_TAG(field)",
        ),
        ("union U { int i; };", "t.h:1:16: member 'i' needs GRIDLOOM_CASE(constant), the tag that selects it"),
        ("struct S { int x; } y;", "t.h:1:21: expected ';' after the declaration: messages have no variables, got 'y'"),
        ("struct S { int x, x; };", "t.h:1:8: type 'S': 'x' is in it twice"),
        (
            "struct S { double n; int *p GRIDLOOM_LENGTH(n); };",
            "t.h:1:8: type 'S': field 'p' has a length that uses 'n', which is not an integer",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected, "{text}");
    }
}

#[test]
fn all_ways_to_declare_are_understood() {
    let text = "
        typedef unsigned long int word;
        enum { N = 2, M = N * 3 };
        typedef struct { word w[N][M]; const char *const *names GRIDLOOM_LENGTH(3); } inner;
        struct GRIDLOOM_PACKED S {
            inner i; struct { int a; } unnamed; enum { A, B = -1 } e; int (*rows)[N]; int *cells[N];
            char *one GRIDLOOM_ONE; GRIDLOOM_ARRAY(inner *) many; signed char c; struct S *self, **again;
        };
    ";
    let schema = parse(text, "t.h").unwrap().schema("S").unwrap();
    let printed = schema.to_string();
    for part in [
        "unsigned long w[2][6];",
        "char **names GRIDLOOM_LENGTH(3);",
        "struct S_1 unnamed;",
        "int (*rows)[2];",
        "int *cells[2];",
        "char *one GRIDLOOM_ONE;",
        "GRIDLOOM_ARRAY(struct inner *) many;",
        "int8_t c;",
        "struct S **again;",
        "enum S_2 { A = 0, B = -1 };",
        "struct GRIDLOOM_PACKED S {",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    assert_eq!(parse(&printed, "again.h").unwrap().schema("S").unwrap(), schema);
}
