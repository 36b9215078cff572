//! Typed messages: the message with which a node of the Pastry overlay network welcomes another with rows of its routing
//! table, as measured in GRAS's report. 84 bytes on i386 without rows, and 196 bytes per row.
//!
//! Measured in the same round for comparison: a copy of the same bytes, and the same values with serde_json.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use gridloom_layout::{Abi, Graph, MemoryAt, MemoryLayout, Receiver, Value, parse};

use crate::stats::Samples;
use crate::{Figure, ROUNDS};

const DECLARATION: &str = "
    enum { COLUMNS = 16, ROUTES = 3, LEAVES = 16 };
    struct Row { int which_row; int row[COLUMNS][ROUTES]; };
    struct Welcome {
        int id, row_count; double time_sent;
        struct Row *rows GRIDLOOM_LENGTH(row_count);
        int leaves[LEAVES];
    };
";
const ROWS: [usize; 4] = [0, 10, 100, 1000];
const BASE: u64 = 0x10_0000;

/// The figures, three for each number of rows.
pub fn figures() -> Vec<Figure> {
    ROWS.into_iter().flat_map(with_rows).collect()
}

/// The memory of a program on that machine that contains a welcome message, and the address of its struct.
fn memory(machine: &str, rows: usize) -> (MemoryLayout, Vec<u8>, u64) {
    let schema = Arc::new(parse(DECLARATION, "pastry.h").expect("it is right").schema("Welcome").expect("declared"));
    let abi = Abi::from_name(machine).expect("known");
    let form = MemoryLayout::new(schema.clone(), abi).expect("small");
    let message = form.encode_values(&Graph::tree(values(rows))).expect("they fit");
    let mut receiver = Receiver::new(schema, abi).expect("small");
    let incoming = receiver.open(&message).expect("right");
    let mut memory = vec![0; incoming.size_bytes()];
    let root = incoming.place(&mut memory, BASE).expect("it fits");
    (form, memory, root)
}

fn values(rows: usize) -> Value {
    let numbers = |count: usize, from: usize| {
        Value::List((0..count).map(|n| Value::Integer((n * 7919 + from) as i128)).collect())
    };
    let row = |n: usize| {
        let cells = Value::List((0..16).map(|column| numbers(3, n * 48 + column)).collect());
        Value::Struct(vec![("which_row".into(), Value::Integer(n as i128)), ("row".into(), cells)])
    };
    Value::Struct(vec![
        ("id".into(), Value::Integer(77)),
        ("time_sent".into(), Value::Float(12.5)),
        ("rows".into(), Value::List((0..rows).map(row).collect())),
        ("leaves".into(), numbers(16, 3)),
    ])
}

/// The lines of `bench/pastry/run.py`: microseconds to write a message here, and to read one into new memory that was
/// written here, or by a machine with the other byte order or another word size.
pub fn print_frames() {
    for rows in ROWS {
        let (native, own_memory, root) = memory("x86-64", rows);
        let source = MemoryAt { base: BASE, bytes: &own_memory };
        let repeats = 20_000 / (rows + 10) + 20;
        let print = |what: &str, seconds: f64| println!("gridloom-memory {what} {rows} {:.4}", seconds * 1e6);
        print("encode", time(repeats, || drop(black_box(native.encode(black_box(&source), root).expect("right")))));
        for machine in ["x86-64", "ppc64", "ppc", "i386"] {
            let (form, memory, root) = memory(machine, rows);
            let message = form.encode(&MemoryAt { base: BASE, bytes: &memory }, root).expect("right");
            let mut receiver = Receiver::new(native.schema().clone(), *native.abi()).expect("small");
            let seconds = time(repeats, || {
                let incoming = receiver.open(black_box(&message)).expect("right");
                let mut place = vec![0; incoming.size_bytes()];
                black_box(incoming.place(&mut place, BASE).expect("it fits"));
                black_box(place);
            });
            let what = if machine == "x86-64" { "decode".to_owned() } else { format!("decode:{machine}") };
            print(&what, seconds);
        }
    }
}

fn with_rows(rows: usize) -> Vec<Figure> {
    let (native, own_memory, root) = memory("x86-64", rows);
    let (foreign, foreign_memory, foreign_root) = memory("ppc", rows);
    let source = MemoryAt { base: BASE, bytes: &own_memory };
    let message = native.encode(&source, root).expect("right");
    let other = MemoryAt { base: BASE, bytes: &foreign_memory };
    let foreign_message = foreign.encode(&other, foreign_root).expect("right");
    let mut receiver = Receiver::new(native.schema().clone(), *native.abi()).expect("small");
    let mut place = vec![0u8; own_memory.len()];
    let value = as_json(rows);
    let text = serde_json::to_vec(&value).expect("plain");
    let repeats = 200_000 / (rows + 10);
    let mut samples: [Vec<f64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        let [encode, decode, convert, copy, to_json, from_json] = &mut samples;
        copy.push(time(repeats, || black_box(&mut place).copy_from_slice(black_box(&own_memory))));
        encode.push(time(repeats, || {
            black_box(native.encode(black_box(&source), root).expect("right"));
        }));
        let mut decoded = |message: &[u8]| {
            time(repeats, || {
                let incoming = receiver.open(black_box(message)).expect("right");
                black_box(incoming.place(black_box(&mut place), BASE).expect("it fits"));
            })
        };
        decode.push(decoded(&message));
        convert.push(decoded(&foreign_message));
        let fewer = repeats / 20;
        to_json.push(time(fewer, || {
            black_box(serde_json::to_vec(black_box(&value)).expect("plain"));
        }));
        from_json.push(time(fewer, || {
            black_box(serde_json::from_slice::<Welcome>(black_box(&text)).expect("just written"));
        }));
    }
    let [encode, decode, convert, copy, to_json, from_json] = &samples;
    let bytes = own_memory.len();
    let figure = |what: &str, ours: &[f64], json: &[f64]| {
        let median = |samples: &[f64]| Samples::new(samples.to_vec()).median() * 1e6;
        Figure {
            name: format!("{rows} rows ({bytes} bytes) {what}, us").leak(),
            ours: format!("{:.3} (json {:.2})", median(ours), median(json)),
            limit: format!("{:.3} (memcpy)", median(copy)),
            ratios: ours.iter().zip(copy).map(|(ours, copy)| ours / copy).collect(),
            aim: "",
        }
    };
    vec![
        figure("encode", encode, to_json),
        figure("decode, same machine", decode, from_json),
        figure("decode, from ppc", convert, from_json),
    ]
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Row {
    which_row: i32,
    row: [[i32; 3]; 16],
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Welcome {
    id: i32,
    time_sent: f64,
    rows: Vec<Row>,
    leaves: [i32; 16],
}

fn as_json(rows: usize) -> Welcome {
    let numbers = |n: usize| (n * 7919 % 1_000_000) as i32;
    let row =
        |n: usize| Row { which_row: n as i32, row: std::array::from_fn(|i| [numbers(n + i), numbers(i), numbers(n)]) };
    let leaves = std::array::from_fn(numbers);
    Welcome { id: 77, time_sent: 12.5, rows: (0..rows).map(row).collect(), leaves }
}

/// Seconds of one run.
fn time(repeats: usize, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..repeats).for_each(|_| run());
    start.elapsed().as_secs_f64() / repeats as f64
}
