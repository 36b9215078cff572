//! Tests of binding: accepted calls, inferred values, and the text of every error.

use crate::bind::{ActualArgument, BoundCall};
use crate::parse::parse;
use crate::scalar::{Scalar, scalar_value};
use crate::signature::{ArrayOrder, BaseType, Signature};
use crate::{BindError, SignatureBuilder};
use gridloom_base::{ByteOrder, Dtype, Meta, Order};

fn signature(text: &str) -> Signature {
    parse(&format!("Module linalg; {text}"), "t.idl").unwrap().remove(0).signature
}

fn dgemm() -> Signature {
    signature(
        "Define dgemm(IN int m, IN int n, IN int k, IN double a[m][k], IN double b[k][n], OUT double c[m][n]) \
         CalcOrder 2*m*n*k Calls f(m, n, k, a, b, c);",
    )
}

fn axpy() -> Signature {
    signature("Define axpy(IN int n, IN float s, IN double x[n], INOUT double y[n]) Calls f(n, s, x, y);")
}

fn array(shape: &[u64]) -> ActualArgument {
    ActualArgument { meta: Meta::array(Dtype::Float64, shape), inline: None }
}

fn fortran(shape: &[u64]) -> ActualArgument {
    let (dtype, byte_order, order, shape) = (Dtype::Float64, ByteOrder::NATIVE, Order::F, shape.to_vec());
    ActualArgument { meta: Meta::Array { dtype, byte_order, order, shape }, inline: None }
}

fn number(value: Scalar, dtype: Dtype) -> ActualArgument {
    ActualArgument { meta: Meta::scalar(dtype), inline: Some(value.write(dtype).unwrap()) }
}

fn int(value: i128) -> ActualArgument {
    number(Scalar::Integer(value), Dtype::Int64)
}

fn real(value: f64) -> ActualArgument {
    number(Scalar::Real(value), Dtype::Float64)
}

fn remote(dtype: Dtype) -> ActualArgument {
    ActualArgument { meta: Meta::scalar(dtype), inline: None }
}

fn named(name: &str, actual: ActualArgument) -> (String, ActualArgument) {
    (name.to_string(), actual)
}

fn refusal(result: Result<BoundCall, BindError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn sizes_follow_from_the_arrays() {
    let bound = dgemm().bind(&[array(&[2, 3]), array(&[3, 4])], &[]).unwrap();
    assert_eq!(scalar_value(&bound.scalars, 2), Some(Scalar::Integer(3)));
    assert_eq!(bound.scalars[0].as_ref().unwrap().0, Meta::scalar(Dtype::Int32));
    assert_eq!(bound.outputs, [(5, Meta::array(Dtype::Float64, &[2, 4]))]);
    assert_eq!(bound.work_flops, Some(48.0));
    assert_eq!(bound.actual_of, [None, None, None, Some(0), Some(1)]);
}

#[test]
fn sizes_may_be_given_as_gridrpc_does() {
    let bound = dgemm().bind(&[int(2), int(4), int(3), array(&[2, 3]), array(&[3, 4])], &[]).unwrap();
    assert_eq!(bound.actual_of, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
    assert_eq!(
        refusal(dgemm().bind(&[int(2), int(5), int(3), array(&[2, 3]), array(&[3, 4])], &[])),
        "linalg/dgemm: argument 'b' has shape [3, 4], expected [k, n] = [3, 5] (n = 5 as given)"
    );
}

fn letter(text: &str) -> ActualArgument {
    ActualArgument { meta: Meta::Text { size_bytes: text.len() as u64 }, inline: Some(text.as_bytes().to_vec()) }
}

#[test]
fn sizes_follow_through_conditionals_on_letters() {
    let gemv = signature(
        "Define gemv(IN char trans, IN int m, IN int n, IN double a[trans == 78 ? m : n][trans == 78 ? n : m], \
         IN double x[n]) Calls f(trans, m, n, a, x);",
    );
    let size = |bound: &BoundCall, index| scalar_value(&bound.scalars, index);
    let plain = gemv.bind(&[letter("N"), array(&[2, 3]), array(&[3])], &[]).unwrap();
    assert_eq!(size(&plain, 0), Some(Scalar::Integer(78)));
    assert_eq!((size(&plain, 1), size(&plain, 2)), (Some(Scalar::Integer(2)), Some(Scalar::Integer(3))));
    let turned = gemv.bind(&[letter("T"), array(&[3, 2]), array(&[3])], &[]).unwrap();
    assert_eq!((size(&turned, 1), size(&turned, 2)), (Some(Scalar::Integer(2)), Some(Scalar::Integer(3))));
    let wrong = refusal(gemv.bind(&[letter("T"), array(&[2, 3]), array(&[3])], &[]));
    assert!(wrong.contains("argument 'x' has shape [3], expected [n] = [2] (n = 2 from argument 'a')"), "{wrong}");
    for text in ["", "NT", "\u{e9}"] {
        let wrong = refusal(gemv.bind(&[letter(text), array(&[2, 3]), array(&[3])], &[]));
        assert!(wrong.contains("a text of one ASCII letter represents its number"), "{wrong}");
    }
}

#[test]
fn arguments_may_be_named() {
    let bound = axpy().bind(&[real(0.5)], &[named("y", array(&[3])), named("x", array(&[3]))]).unwrap();
    assert_eq!(bound.actual_of, [None, Some(0), Some(2), Some(1)]);
    assert_eq!(bound.outputs, [(3, Meta::array(Dtype::Float64, &[3]))]);
    let sized = axpy().bind(&[real(0.5), array(&[3]), array(&[3])], &[named("n", int(3))]).unwrap();
    assert_eq!(sized.actual_of, [Some(3), Some(0), Some(1), Some(2)]);
}

#[test]
fn a_wrong_extent_names_where_the_size_is_from() {
    assert_eq!(
        refusal(dgemm().bind(&[array(&[2, 3]), array(&[4, 5])], &[])),
        "linalg/dgemm: argument 'b' has shape [4, 5], expected [k, n] = [3, n] (k = 3 from argument 'a')"
    );
    let square = signature("Define sq(IN int n, IN double a[n][n]) Calls f(n, a);");
    assert_eq!(
        refusal(square.bind(&[array(&[3, 4])], &[])),
        "linalg/sq: argument 'a' has shape [3, 4], expected [n, n] = [3, 3] (n = 3 from argument 'a')"
    );
    let fixed = signature("Define fixed(IN double a[3]) Calls f(a);");
    assert_eq!(refusal(fixed.bind(&[array(&[4])], &[])), "linalg/fixed: argument 'a' has shape [4], expected [3]");
}

#[test]
fn the_number_of_dimensions_counts() {
    assert_eq!(
        refusal(dgemm().bind(&[array(&[6]), array(&[3, 4])], &[])),
        "linalg/dgemm: argument 'a' has shape [6], expected [m, k] of 2 dimensions"
    );
}

#[test]
fn a_wrong_count_shows_the_signature() {
    let shown = "the function is linalg/axpy(s: float32, x, y: float64[n]; n: int32) -> y: float64[n]";
    assert_eq!(
        refusal(axpy().bind(&vec![real(0.5); 5], &[])),
        format!("linalg/axpy: 5 arguments given by position, expected 3, or 4 with the sizes; {shown}")
    );
    assert_eq!(refusal(axpy().bind(&[real(0.5)], &[])), format!("linalg/axpy: missing arguments 'x', 'y'; {shown}"));
    assert_eq!(
        refusal(axpy().bind(&[real(0.5)], &[named("xx", array(&[3]))])),
        format!("linalg/axpy: unknown argument 'xx'; did you mean 'x'?; {shown}")
    );
    assert_eq!(
        refusal(axpy().bind(&[real(0.5)], &[named("s", real(0.5))])),
        "linalg/axpy: argument 's' is given twice"
    );
}

#[test]
fn kinds_and_element_types_must_fit() {
    let mut floats = array(&[2, 3]);
    floats.meta = Meta::array(Dtype::Float32, &[2, 3]);
    assert_eq!(
        refusal(dgemm().bind(&[floats, array(&[3, 4])], &[])),
        "linalg/dgemm: argument 'a' is an array of float32, expected an array of float64; \
         convert it with .astype(numpy.float64)"
    );
    assert_eq!(
        refusal(axpy().bind(&[array(&[3]), array(&[3]), array(&[3])], &[])),
        "linalg/axpy: argument 's' is an array of float64, expected a float32 number"
    );
    let text = ActualArgument { meta: Meta::Text { size_bytes: 1 }, inline: Some(b"x".to_vec()) };
    assert_eq!(
        refusal(axpy().bind(&[text, array(&[3]), array(&[3])], &[])),
        "linalg/axpy: argument 's' is a string, expected a float32 number"
    );
    let truth = number(Scalar::Bool(true), Dtype::Bool);
    assert_eq!(
        refusal(axpy().bind(&[truth, array(&[3]), array(&[3])], &[])),
        "linalg/axpy: argument 's' is a bool number, expected a float32 number"
    );
}

#[test]
fn scalars_convert_only_exactly() {
    let scale = |actual| axpy().bind(&[actual, array(&[1]), array(&[1])], &[]);
    let bound = scale(int(3)).unwrap();
    assert_eq!(bound.scalars[1], Some((Meta::scalar(Dtype::Float32), 3f32.to_ne_bytes().to_vec())));
    assert_eq!(
        refusal(scale(real(1e40))),
        "linalg/axpy: argument 's' is 1e40 (float64), which is not exactly a value of type float32; \
         round it with numpy.float32(...)"
    );
    let sized = |n| axpy().bind(&[n, real(1.0), array(&[2]), array(&[2])], &[]);
    assert!(sized(int(2)).is_ok());
    assert_eq!(
        refusal(sized(real(2.5))),
        "linalg/axpy: argument 'n' is 2.5 (float64), which is not exactly a value of type int32"
    );
}

#[test]
fn inline_scalars_become_native() {
    let other = if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
    let mut bytes = 2f32.to_ne_bytes().to_vec();
    bytes.reverse();
    let swapped =
        ActualArgument { meta: Meta::Scalar { dtype: Dtype::Float32, byte_order: other }, inline: Some(bytes) };
    let bound = axpy().bind(&[swapped, array(&[1]), array(&[1])], &[]).unwrap();
    assert_eq!(bound.scalars[1], Some((Meta::scalar(Dtype::Float32), 2f32.to_ne_bytes().to_vec())));
}

#[test]
fn memory_order_is_free_and_results_have_the_functions() {
    let order = |bound: BoundCall| match bound.outputs[0].1 {
        Meta::Array { order, .. } => order,
        _ => panic!("{:?}", bound.outputs),
    };
    let mut columns = dgemm();
    columns.params.iter_mut().for_each(|param| param.order = ArrayOrder::F);
    for given in [[array(&[2, 3]), fortran(&[3, 4])], [fortran(&[2, 3]), array(&[3, 4])]] {
        assert_eq!(order(dgemm().bind(&given, &[]).unwrap()), Order::C);
        assert_eq!(order(columns.bind(&given, &[]).unwrap()), Order::F);
    }
}

#[test]
fn a_remote_size_is_requested() {
    let fill = signature("Define fill(IN int n, IN double s, OUT double y[n]) Calls f(n, s, y);");
    assert_eq!(
        fill.bind(&[remote(Dtype::Int32), remote(Dtype::Float64)], &[]),
        Err(BindError::NeedsValue { function: "linalg/fill".into(), param: "n".into() })
    );
    let bound = fill.bind(&[int(2), remote(Dtype::Float64)], &[]).unwrap();
    assert_eq!((bound.scalars[1].is_none(), bound.actual_of), (true, vec![Some(0), Some(1)]));
    let unlike = fill.bind(&[int(2), remote(Dtype::Float32)], &[]);
    assert!(matches!(unlike, Err(BindError::NeedsValue { param, .. }) if param == "s"));
}

#[test]
fn extents_and_work_without_a_value_are_named() {
    let diff = signature("Define diff(IN int n, IN double x[n], OUT double y[n-1]) CalcOrder n-2 Calls f(n, x, y);");
    assert_eq!(
        refusal(diff.bind(&[array(&[0])], &[])),
        "linalg/diff: extent 1 of 'y': expression 'n-1' is -1, expected a size of 0 or more"
    );
    assert_eq!(
        refusal(diff.bind(&[array(&[1])], &[])),
        "linalg/diff: work (CalcOrder): expression 'n-2' is -1, expected a finite number, 0 or more"
    );
    let huge = signature("Define huge(IN long n, OUT double y[n][n]) Calls f(n, y);");
    assert!(refusal(huge.bind(&[int(1 << 40)], &[])).contains("array 'y' of shape [n, n]: float64["));
    assert!(refusal(axpy().bind(&[real(1.0), array(&[1 << 40]), array(&[1 << 40])], &[])).contains("fits int32"));
}

#[test]
fn wrong_descriptions_are_refused() {
    let short = ActualArgument { meta: Meta::scalar(Dtype::Float32), inline: Some(vec![0]) };
    assert_eq!(
        refusal(axpy().bind(&[short, array(&[3]), array(&[3])], &[])),
        "linalg/axpy: argument 's' is described wrongly: 1 bytes given for float32, which has 4"
    );
}

fn double() -> BaseType {
    BaseType::Number(Dtype::Float64)
}

#[test]
fn built_signatures_hide_their_sizes() {
    let built = SignatureBuilder::new("stats/lag")
        .input("x", double(), Some(&["n", "p"]), ArrayOrder::Any)
        .input("lag", BaseType::Number(Dtype::Int64), None, ArrayOrder::Any)
        .output("y", double(), Some(&["n-lag", "p"]), ArrayOrder::Any)
        .work("n*p")
        .about("differences")
        .build()
        .unwrap();
    assert_eq!(built.to_string(), "stats/lag(x: float64[n, p], lag: int64; n, p: int64) -> y: float64[n-lag, p]");
    let bound = built.bind(&[fortran(&[5, 3]), int(2)], &[]).unwrap();
    assert_eq!(bound.outputs, [(4, Meta::array(Dtype::Float64, &[3, 3]))]);
    assert_eq!((bound.work_flops, bound.actual_of), (Some(15.0), vec![Some(0), Some(1), None, None]));
}

#[test]
fn sizes_that_follow_from_nothing_are_refused() {
    let lost = SignatureBuilder::new("m/f").output("y", double(), Some(&["n"]), ArrayOrder::Any).build().unwrap_err();
    assert_eq!(
        lost.to_string(),
        "m/f:1:1: size 'n' does not follow from the arguments: no input array has it as an extent of its own; \
         declare 'n' as an input"
    );
    let wrong = SignatureBuilder::new("m/f").input("x", double(), Some(&["n+"]), ArrayOrder::Any).build().unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "m/f:1:3: extent of 'x': 'n+': expected a number, a parameter or '(', got the end of the text"
    );
}

#[test]
fn arrays_of_no_dimension_are_built() {
    let built = SignatureBuilder::new("m/f").input("x", double(), Some(&[]), ArrayOrder::Any).build().unwrap();
    assert!(built.bind(&[array(&[])], &[]).is_ok());
    assert!(built.bind(&[array(&[1])], &[]).is_err());
}

#[test]
fn strings_and_files_are_text_or_bytes() {
    let function = signature("Define f(IN string s, IN filename f, OUT filename g, OUT string t) Calls f(s, f, g, t);");
    let text = |text: &[u8]| ActualArgument {
        meta: Meta::Text { size_bytes: text.len() as u64 },
        inline: Some(text.to_vec()),
    };
    let bytes = |bytes: &[u8]| ActualArgument {
        meta: Meta::Bytes { size_bytes: bytes.len() as u64 },
        inline: Some(bytes.to_vec()),
    };
    let bind = |s: ActualArgument, f: ActualArgument| function.bind(&[s, f], &[]);
    let bound = bind(bytes(b"\xff"), bytes(b"a\0b")).unwrap();
    let (none, empty) = (Meta::Bytes { size_bytes: 0 }, Meta::Text { size_bytes: 0 });
    assert_eq!(bound.outputs, [(2, none), (3, empty)]);
    assert!(bind(text(b"x"), text(b"")).is_ok(), "an empty text is no file");
    let refused = refusal(bind(text(b"x"), text(b"path")));
    assert_eq!(refused, "linalg/f: argument 'f' is a string, expected the content of a file (bytes)");
    let refused = refusal(bind(text(b"a\0b"), bytes(b"")));
    assert!(refused.contains("argument 's': its byte 2 is zero, where a C string ends"), "{refused}");
}

#[test]
fn a_result_of_unknown_size_has_a_likely_one() {
    let built = |size: &str| {
        let builder = SignatureBuilder::new("m/f").input("query", BaseType::File, None, ArrayOrder::Any);
        let builder = builder.input("times", BaseType::Number(Dtype::Int64), None, ArrayOrder::Any);
        builder
            .output("out", BaseType::Bytes, None, ArrayOrder::Any)
            .work("query*log2(query)")
            .likely("out", size)
            .build()
    };
    let query = |size_bytes| ActualArgument { meta: Meta::Bytes { size_bytes }, inline: None };
    let bound = built("query*times/2").unwrap().bind(&[query(1024), int(3)], &[]).unwrap();
    assert_eq!(bound.outputs, [(2, Meta::Bytes { size_bytes: 1536 })]);
    assert_eq!(bound.work_flops, Some(10_240.0));
    // The file may be made later: its likely size counts.
    assert_eq!(built("0*times").unwrap().bind(&[query(0), int(3)], &[]).unwrap().work_flops, Some(0.0));
    let error = built("times").unwrap().bind(&[query(1), int(-3)], &[]).unwrap_err().to_string();
    assert!(
        error.contains("likely size of 'out': expression 'times' is -3, expected a finite number, 0 or more"),
        "{error}"
    );
    assert_ne!(built("times").unwrap().hash(), built("2*times").unwrap().hash());
    let number = SignatureBuilder::new("m/f").output("n", BaseType::Number(Dtype::Int64), None, ArrayOrder::Any);
    assert!(number.likely("n", "3").build().unwrap_err().message.contains("known from its type"));
    assert!(
        SignatureBuilder::new("m/f").likely("n", "3").build().unwrap_err().message.contains("no result of that name")
    );
}
