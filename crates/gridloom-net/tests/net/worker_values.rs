//! Values pass through worker processes unchanged: every kind, every location, every memory order.

use crate::common::*;
use gridloom_base::{ByteOrder, Dtype, Meta, Order, TaskError};
use gridloom_core::graph::Task;
use gridloom_idl::expr::{BinaryOp, Expr};
use gridloom_idl::{ArrayOrder, CallArgument, Callback, Definition, Language, Mode, Param};
use gridloom_net::payload::Payload;

const N: Expr = Expr::Param(0);

fn definitions() -> Vec<Definition> {
    use Dtype::*;
    use Mode::{In, InOut, Out, Work};
    let all = [
        Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float32, Float64, LongDouble, Complex64,
        Complex128,
    ];
    let mut each: Vec<Param> = all.iter().map(|dtype| scalar(dtype.name(), In, *dtype)).collect();
    each.push(scalar("out", Out, Float64));
    let returned = |symbol: &str, ins: Vec<Param>, dtype| {
        let args = (0..ins.len()).map(CallArgument::Param).collect();
        let at = ins.len();
        native_with(
            symbol,
            ins.into_iter().chain([scalar("out", Out, dtype)]).collect(),
            args,
            Some((dtype, at)),
            Language::C,
        )
    };
    let twice = Expr::Binary(BinaryOp::Multiply, Box::new(Expr::Number(2.0)), Box::new(N));
    let square = || vec![N, N];
    vec![
        native("null_call", vec![]),
        native("print", vec![]),
        native("add", vec![scalar("a", In, Float64), scalar("b", In, Float64), scalar("sum", Out, Float64)]),
        returned("add_returned", vec![scalar("a", In, Float64), scalar("b", In, Float64)], Float64),
        returned("half", vec![scalar("a", In, Float32)], Float32),
        returned("negate8", vec![scalar("a", In, Int8)], Int8),
        returned("conjugate", vec![scalar("z", In, Complex128)], Complex128),
        returned("conjugate_single", vec![scalar("z", In, Complex64)], Complex64),
        returned("widened", vec![scalar("x", In, Float64)], LongDouble),
        returned("narrowed", vec![scalar("x", In, LongDouble)], Float64),
        native("each_kind", each),
        native(
            "axpy",
            vec![
                scalar("n", In, Int64),
                scalar("a", In, Float64),
                array("x", In, Float64, vec![N]),
                array("y", InOut, Float64, vec![N]),
            ],
        ),
        native("fill", vec![scalar("n", In, Int64), scalar("value", In, Float64), array("out", Out, Float64, vec![N])]),
        native("first_only", vec![scalar("n", In, Int64), array("out", Out, Float64, vec![N])]),
        native("sum", vec![scalar("n", In, Int64), array("x", In, Float64, vec![N]), scalar("out", Out, Float64)]),
        native(
            "copy",
            vec![scalar("n", In, Int64), array("x", In, Float64, vec![N]), array("y", Out, Float64, vec![N])],
        ),
        native(
            "dgemm_naive",
            vec![
                scalar("n", In, Int64),
                array("a", In, Float64, square()),
                array("b", In, Float64, square()),
                array("c", Out, Float64, square()),
            ],
        ),
        asking(),
        native("upper", vec![text("in", In), text("out", Out)]),
        native("upper_in_place", vec![text("text", InOut)]),
        native("another", vec![text("text", InOut), scalar("which", In, Int32)]),
        native(
            "change_file",
            vec![
                file("in", In),
                file("both", InOut),
                file("out", Out),
                scalar("how", In, Int32),
                scalar("had", Out, Int32),
            ],
        ),
        native_with(
            "with_work",
            vec![
                scalar("n", In, Int64),
                array("x", In, Float64, vec![N]),
                array("work", Work, Float64, vec![twice.clone()]),
                scalar("out", Out, Float64),
            ],
            vec![
                CallArgument::Param(0),
                CallArgument::Param(1),
                CallArgument::Param(2),
                CallArgument::Value { dtype: Int32, expr: twice },
                CallArgument::Text("N".into()),
                CallArgument::Param(3),
            ],
            None,
            Language::C,
        ),
        native_with(
            "fortran_",
            vec![
                scalar("n", In, Int32),
                scalar("m", In, Int32),
                Param { order: ArrayOrder::F, ..array("a", In, Float64, vec![N, Expr::Param(1)]) },
                text("name", In),
                scalar("element", Out, Float64),
                text("out", Out),
            ],
            (0..6).map(CallArgument::Param).collect(),
            None,
            Language::Fortran,
        ),
    ]
}

/// Returns the definition of a function that calls the program back with a number, and an array that the program changes.
fn asking() -> Definition {
    let one = |extent| vec![Expr::Number(extent)];
    let params =
        vec![array("round", Mode::In, Dtype::Int32, one(1.0)), array("said", Mode::InOut, Dtype::Float64, one(2.0))];
    let args = vec![CallArgument::Param(0), CallArgument::Callback(0), CallArgument::Param(1)];
    let own = vec![scalar("times", Mode::In, Dtype::Int32), scalar("sum", Mode::Out, Dtype::Float64)];
    let mut definition = native_with("ask", own, args, None, Language::C);
    definition.signature.callbacks = vec![Callback { name: "program".into(), params }];
    definition
}

fn bench() -> Bench {
    Bench::new(1, 4, definitions())
}

fn float64(values: &[f64], shape: &[u64], byte_order: ByteOrder, order: Order) -> (Meta, Vec<u8>) {
    let big = byte_order == ByteOrder::Big;
    let bytes = values.iter().flat_map(|value| if big { value.to_be_bytes() } else { value.to_le_bytes() }).collect();
    (Meta::Array { dtype: Dtype::Float64, byte_order, order, shape: shape.to_vec() }, bytes)
}

#[test]
fn scalars_of_every_kind_arrive_by_value() {
    let mut bench = bench();
    let inline = |dtype, bytes: &[u8]| Arg::Inline(Meta::scalar(dtype), bytes.to_vec());
    let long_double = [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f, 0, 0, 0, 0, 0, 0]; // 1 on x86
    let is_x86 = cfg!(target_arch = "x86_64");
    let args = vec![
        inline(Dtype::Bool, &[1]),
        inline(Dtype::Int8, &(-2i8).to_ne_bytes()),
        inline(Dtype::Int16, &(-3i16).to_ne_bytes()),
        inline(Dtype::Int32, &(-4i32).to_ne_bytes()),
        inline(Dtype::Int64, &(-5i64).to_ne_bytes()),
        inline(Dtype::Uint8, &6u8.to_ne_bytes()),
        inline(Dtype::Uint16, &7u16.to_ne_bytes()),
        inline(Dtype::Uint32, &8u32.to_ne_bytes()),
        inline(Dtype::Uint64, &9u64.to_ne_bytes()),
        inline(Dtype::Float32, &0.5f32.to_ne_bytes()),
        inline(Dtype::Float64, &0.25f64.to_ne_bytes()),
        inline(Dtype::LongDouble, if is_x86 { &long_double } else { &[0; 16] }),
        inline(Dtype::Complex64, &[1f32.to_ne_bytes(), 2f32.to_ne_bytes()].concat()),
        inline(Dtype::Complex128, &[3f64.to_ne_bytes(), 4f64.to_ne_bytes()].concat()),
    ];
    let out = bench.call("each_kind", args, vec![out_scalar(Dtype::Float64)]).unwrap();
    let expected = 1.0 - 2.0 - 3.0 - 4.0 - 5.0 + 6.0 + 7.0 + 8.0 + 9.0 + 0.75 + f64::from(u8::from(is_x86)) + 43210.0;
    assert_eq!(doubles(&out[0]), [expected]);
}

#[test]
fn values_are_returned_as_results() {
    let mut bench = bench();
    let out = bench.call("add_returned", vec![number(2.0), number(3.0)], vec![out_scalar(Dtype::Float64)]).unwrap();
    assert_eq!(doubles(&out[0]), [5.0]);
    let half = Arg::Inline(Meta::scalar(Dtype::Float32), 3f32.to_ne_bytes().to_vec());
    assert_eq!(bench.call("half", vec![half], vec![out_scalar(Dtype::Float32)]).unwrap()[0], 1.5f32.to_ne_bytes());
    let eight = Arg::Inline(Meta::scalar(Dtype::Int8), vec![5]);
    assert_eq!(bench.call("negate8", vec![eight], vec![out_scalar(Dtype::Int8)]).unwrap()[0], (-5i8).to_ne_bytes());
    let z = Arg::Inline(Meta::scalar(Dtype::Complex128), bytes_of(&[1.0, 2.0]));
    assert_eq!(
        doubles(&bench.call("conjugate", vec![z], vec![out_scalar(Dtype::Complex128)]).unwrap()[0]),
        [1.0, -2.0]
    );
    let halves = |re: f32, im: f32| [re.to_ne_bytes(), im.to_ne_bytes()].concat();
    let single = Arg::Inline(Meta::scalar(Dtype::Complex64), halves(3.0, 4.0));
    let out = bench.call("conjugate_single", vec![single], vec![out_scalar(Dtype::Complex64)]).unwrap();
    assert_eq!(out[0], halves(3.0, -4.0));
    // Whatever the format of a long double is here, one function's result is accepted by another.
    let widened = bench.call("widened", vec![number(2.5)], vec![out_scalar(Dtype::LongDouble)]).unwrap().remove(0);
    let long = Arg::Inline(Meta::scalar(Dtype::LongDouble), widened);
    assert_eq!(doubles(&bench.call("narrowed", vec![long], vec![out_scalar(Dtype::Float64)]).unwrap()[0]), [2.5]);
}

#[test]
fn arrays_pass_in_frames_and_in_shared_memory() {
    let mut bench = bench();
    for n in [0usize, 1, 100, 4096, 4097, 50_000] {
        let values: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let x = bench.put_doubles(&values);
        let out = bench.call("copy", vec![count(n as i64), x], vec![Meta::array(Dtype::Float64, &[n as u64])]).unwrap();
        assert_eq!(doubles(&out[0]), values, "{n}");
    }
}

#[test]
fn what_a_function_leaves_unwritten_is_zero() {
    let mut bench = bench();
    for n in [3usize, 100, 50_000] {
        let meta = || vec![Meta::array(Dtype::Float64, &[n as u64])];
        let secret = bench.start("fill", vec![count(n as i64), number(7.0)], meta());
        let made = bench.wait(&secret).unwrap();
        // Its memory is free for the next call, in the worker that already has it mapped.
        assert!(bench.store.remove(&made[0].0));
        let free = bench.store.pool().kept_bytes();
        let mut expected = vec![0.0; n];
        expected[0] = 1.0;
        assert_eq!(doubles(&bench.call("first_only", vec![count(n as i64)], meta()).unwrap()[0]), expected, "{n}");
        assert_eq!(free > 0, n == 50_000, "only this one is in shared memory");
        assert!(bench.store.pool().kept_bytes() < free || free == 0, "the call got the memory of the one before");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_before_anything_reads_or_writes_by_them() {
    let mut bench = bench();
    let out = |n: u64| vec![Meta::array(Dtype::Float64, &[n])];
    for held in [2usize, 20_000] {
        let x = || vec![1.0; held];
        let said = held as i64 + 1_000_000_000;
        let refusal = |outcome: Result<Vec<Vec<u8>>, TaskError>| match outcome {
            Err(TaskError::Refused { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        let args = vec![count(said), bench.put_doubles(&x())];
        let why = refusal(bench.call("sum", args, vec![out_scalar(Dtype::Float64)]));
        assert!(why.contains(&format!("'x' has shape [{held}], expected [n] = [{said}] (n = {said}")), "{why}");
        let args = vec![count(held as i64), bench.put_doubles(&x())];
        let why = refusal(bench.call("copy", args, out(held as u64 - 1)));
        assert!(why.contains(&format!("'y' has shape [{}], expected [n] = [{held}]", held - 1)), "{why}");
        let args = vec![count(-1), bench.put_doubles(&x())];
        let why = refusal(bench.call("sum", args, vec![out_scalar(Dtype::Float64)]));
        assert!(why.contains("extent 1 of 'x'"), "{why}");
    }
    let square = || vec![Meta::array(Dtype::Float64, &[2, 2])];
    let flat = vec![count(2), bench.put_doubles(&[1.0; 4]), bench.put_doubles(&[1.0; 5])];
    let error = bench.call("dgemm_naive", flat, square()).unwrap_err();
    assert!(error.to_string().contains("[n, n] of 2 dimensions"), "{error}");
    // An array with the same number of elements, in whatever shape, is read as it is stored in memory.
    let flat = vec![count(2), bench.put_doubles(&[1.0, 2.0, 3.0, 4.0]), bench.put_doubles(&[1.0, 0.0, 0.0, 1.0])];
    let product = bench.call("dgemm_naive", flat, square()).unwrap();
    assert_eq!(doubles(&product[0]), [1.0, 2.0, 3.0, 4.0]);
    // The worker keeps running.
    assert_eq!(bench.jobs.worker_pids().len(), 1);
    let x = bench.put_doubles(&[1.0, 2.0]);
    assert_eq!(doubles(&bench.call("sum", vec![count(2), x], vec![out_scalar(Dtype::Float64)]).unwrap()[0]), [3.0]);
}

#[test]
fn nan_payloads_keep_their_bits() {
    let mut bench = bench();
    let bits = [0x7ff8_dead_beef_0001u64, 0xfff0_0000_0000_0001, 0x7ff4_0000_0000_1234];
    for repeat in [1, 3000] {
        let raw: Vec<u8> = bits.iter().flat_map(|bits| bits.to_ne_bytes()).collect::<Vec<_>>().repeat(repeat);
        let n = bits.len() * repeat;
        let x = bench.put(Meta::array(Dtype::Float64, &[n as u64]), &raw);
        let out = bench.call("copy", vec![count(n as i64), x], vec![Meta::array(Dtype::Float64, &[n as u64])]).unwrap();
        assert_eq!(out[0], raw);
    }
}

#[test]
fn the_other_byte_order_is_made_right_by_the_receiver() {
    let mut bench = bench();
    let other = if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
    for n in [3usize, 10_000] {
        let values: Vec<f64> = (0..n).map(|i| i as f64 + 0.5).collect();
        let (meta, bytes) = float64(&values, &[n as u64], other, Order::C);
        let x = bench.put(meta.clone(), &bytes);
        let task = bench.start("copy", vec![count(n as i64), x], vec![meta]);
        let made = bench.wait(&task).unwrap();
        assert_eq!(made[0].1, Meta::array(Dtype::Float64, &[n as u64]), "results are in this machine's order");
        assert_eq!(doubles(bench.store.get(&made[0].0).unwrap().1.bytes()), values);
    }
    let n = if other == ByteOrder::Big { 2i64.to_be_bytes() } else { 2i64.to_le_bytes() };
    let n = Arg::Inline(Meta::Scalar { dtype: Dtype::Int64, byte_order: other }, n.to_vec());
    let x = bench.put_doubles(&[1.0, 2.0]);
    assert_eq!(doubles(&bench.call("sum", vec![n, x], vec![out_scalar(Dtype::Float64)]).unwrap()[0]), [3.0]);
}

#[test]
fn the_other_memory_order_is_turned() {
    let mut bench = bench();
    for n in [2usize, 80] {
        let square: Vec<f64> = (0..n * n).map(|i| i as f64).collect();
        let identity: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i % (n + 1) == 0))).collect();
        let shape = [n as u64, n as u64];
        let columns: Vec<f64> = (0..n * n).map(|i| square[i % n * n + i / n]).collect();
        let (meta, bytes) = float64(&columns, &shape, ByteOrder::NATIVE, Order::F);
        let a = bench.put(meta.clone(), &bytes);
        let (rows, bytes) = float64(&identity, &shape, ByteOrder::NATIVE, Order::C);
        let b = bench.put(rows.clone(), &bytes);
        let task = bench.start("dgemm_naive", vec![count(n as i64), a, b], vec![meta]);
        let made = bench.wait(&task).unwrap();
        assert_eq!(made[0].1, rows);
        assert_eq!(doubles(bench.store.get(&made[0].0).unwrap().1.bytes()), square);
    }
}

#[test]
fn an_update_in_place_keeps_the_old_version() {
    let mut bench = bench();
    for n in [2usize, 20_000] {
        let (x, old) = (vec![1.0; n], vec![5.0; n]);
        let (x, y) = (bench.put_doubles(&x), bench.put_doubles(&old));
        let Arg::Datum(y_datum) = y else { unreachable!() };
        let meta = Meta::array(Dtype::Float64, &[n as u64]);
        let out = bench.call("axpy", vec![count(n as i64), number(2.0), x, y], vec![meta]).unwrap();
        assert_eq!(doubles(&out[0]), vec![7.0; n]);
        assert_eq!(doubles(bench.store.get(&y_datum).unwrap().1.bytes()), old);
    }
}

#[test]
fn text_goes_in_and_out() {
    let mut bench = bench();
    let empty = Meta::Text { size_bytes: 0 };
    for input in ["", "gridloom", "größe"] {
        let out = bench.call("upper", vec![string(input)], vec![empty.clone()]).unwrap();
        assert_eq!(out[0], input.to_ascii_uppercase().as_bytes());
        let out = bench.call("upper_in_place", vec![string(input)], vec![empty.clone()]).unwrap();
        assert_eq!(out[0], input.to_ascii_uppercase().as_bytes());
    }
    // A result too long for a frame is sent in a file.
    let long = "x".repeat(60_000);
    let long = bench.put(Meta::Text { size_bytes: 60_000 }, long.as_bytes());
    let task = bench.start("upper", vec![long], vec![empty]);
    let made = bench.wait(&task).unwrap();
    let payload = bench.store.get(&made[0].0).unwrap().1;
    assert!(matches!(payload, Payload::Segment { .. }) && payload.bytes().iter().all(|byte| *byte == b'X'));
    assert_eq!(payload.size_bytes(), 60_000);
}

#[test]
fn a_string_may_be_replaced_and_of_any_bytes() {
    let mut bench = bench();
    let empty = Meta::Text { size_bytes: 0 };
    let mut made =
        |which| bench.call_described("another", vec![string("old"), small(which)], vec![empty.clone()]).unwrap();
    assert_eq!(made(0), [(Meta::Bytes { size_bytes: 0 }, vec![])], "NULL");
    assert_eq!(made(1), [(Meta::Text { size_bytes: 3 }, b"new".to_vec())]);
    assert_eq!(made(2), [(Meta::Bytes { size_bytes: 2 }, vec![0xff, 0xfe])]);
}

#[test]
fn a_function_calls_its_program_back() {
    let mut bench = bench();
    bench.answer = |call| {
        let (meta, said) = call.values[1].clone();
        let round = i32::from_ne_bytes(call.values[0].1[..].try_into().unwrap());
        Ok(vec![(meta, bytes_of(&doubles(&said).iter().map(|x| x + f64::from(round)).collect::<Vec<f64>>()))])
    };
    let outs = vec![out_scalar(Dtype::Float64)];
    // Other calls queue behind it, and are not mixed up with the replies.
    let first = bench.start("ask", vec![small(4)], outs.clone());
    let second = bench.start("add", vec![number(1.0), number(2.0)], outs.clone());
    let sum = |bench: &mut Bench, task: &Task| {
        let datum = bench.wait(task).unwrap()[0].0;
        doubles(bench.store.get(&datum).unwrap().1.bytes())[0]
    };
    assert_eq!(sum(&mut bench, &first), 3.0 + 5.0 + 9.0 + 15.0);
    assert_eq!(sum(&mut bench, &second), 3.0);
    assert_eq!(bench.called.len(), 4);
    assert!(bench.called.iter().all(|call| call.task == first.id && call.callback == 0));
}

#[test]
fn a_callback_that_fails_fails_its_call_and_is_not_called_again() {
    let mut bench = bench();
    bench.answer = |_| Err("no such luck".into());
    let error = bench.call("ask", vec![small(4)], vec![out_scalar(Dtype::Float64)]).unwrap_err().to_string();
    assert!(error.contains("callback 'program' failed: no such luck"), "{error}");
    assert_eq!(bench.called.len(), 1);
    bench.answer = |_| Ok(vec![(Meta::array(Dtype::Float64, &[1]), vec![0; 8])]);
    let error = bench.call("ask", vec![small(1)], vec![out_scalar(Dtype::Float64)]).unwrap_err().to_string();
    assert!(error.contains("the callback returned float64[1], expected float64[2]"), "{error}");
}

#[test]
fn files_go_in_and_out() {
    let mut bench = bench();
    let large = vec![b'x'; 100_000];
    let given = |bytes: &[u8]| Arg::Inline(Meta::Bytes { size_bytes: bytes.len() as u64 }, bytes.to_vec());
    let outs = vec![Meta::Bytes { size_bytes: 0 }, Meta::Bytes { size_bytes: 0 }, out_scalar(Dtype::Int32)];
    let mut call = |input: Arg, how| {
        let args = vec![input, given(b"both"), small(how)];
        bench.call_described("change_file", args, outs.clone())
    };
    let file = |bytes: &[u8]| (Meta::Bytes { size_bytes: bytes.len() as u64 }, bytes.to_vec());
    let none = (Meta::Text { size_bytes: 0 }, vec![]);
    let had = |had: i32| (out_scalar(Dtype::Int32), had.to_ne_bytes().to_vec());
    assert_eq!(call(given(b"text"), 0).unwrap(), [file(b"both"), file(b"text"), had(1)]);
    assert_eq!(call(given(&large), 0).unwrap(), [file(b"both"), file(&large), had(1)]);
    assert_eq!(call(given(b""), 1).unwrap(), [file(b"both+"), none.clone(), had(1)]);
    assert_eq!(call(string(""), 2).unwrap(), [file(b"both"), none, had(0)]);
    let error = call(given(b""), 3).unwrap_err().to_string();
    assert!(error.contains("2-out") && error.contains("cannot be read"), "{error}");
    let scratch = format!("gridloom-{}-", std::process::id());
    let left = std::fs::read_dir(std::env::temp_dir())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&scratch));
    assert_eq!(left.count(), 0, "a call's folder goes with it");
}

#[test]
fn work_space_constants_and_expressions_are_passed() {
    let mut bench = bench();
    let x = bench.put_doubles(&[1.0, 2.0, 4.0]);
    assert_eq!(
        doubles(&bench.call("with_work", vec![count(3), x], vec![out_scalar(Dtype::Float64)]).unwrap()[0]),
        [7.0]
    );
}

#[test]
fn fortran_gets_pointers_columns_and_string_lengths() {
    let mut bench = bench();
    let (meta, bytes) = float64(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], ByteOrder::NATIVE, Order::C);
    let a = bench.put(meta, &bytes);
    let outs = vec![out_scalar(Dtype::Float64), Meta::Text { size_bytes: 0 }];
    let out = bench.call("fortran_", vec![small(2), small(3), a, string("name")], outs).unwrap();
    assert_eq!(doubles(&out[0]), [4.0]);
    assert_eq!(out[1], b"name");
}

#[test]
fn a_wrong_type_is_refused_before_native_code_sees_it() {
    let mut bench = bench();
    let error = bench.call("add", vec![small(1), number(2.0)], vec![out_scalar(Dtype::Float64)]).unwrap_err();
    assert!(matches!(&error, TaskError::Refused { server, .. } if server == "bench"), "{error}");
    assert!(error.to_string().contains("'a' is an int32 number, expected a float64 number"), "{error}");
    let error = bench.call("add", vec![number(2.0)], vec![out_scalar(Dtype::Float64)]).unwrap_err();
    assert!(matches!(error, TaskError::Refused { .. }), "{error}");
}
