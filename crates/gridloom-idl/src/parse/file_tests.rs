//! Tests of whole files: inline bodies, classes, GridSolve's routines, and a test that no change of a valid file makes the
//! parser panic.

use proptest::prelude::*;

use crate::parse::{parse, parse_file};
use crate::signature::{ArrayOrder, Body, CallArgument, Definition, Language};
use gridloom_base::Dtype;

/// A file that uses the whole language.
const WHOLE: &str = include_str!("../../tests/fixtures/whole.idl");

#[test]
fn the_whole_language_is_read() {
    let file = parse_file(WHOLE, "t.idl").unwrap();
    assert_eq!((file.definitions.len(), file.build.stubs.len(), file.libraries.len()), (7, 2, 3));
    assert_eq!(file.build.required, ["a.o", "b.o"]);
    let class = &file.classes[0];
    assert_eq!((class.name.as_str(), class.about.as_str(), class.stubs.len()), ("linalg/counter", "counts", 3));
    assert_eq!(class.state.as_ref().unwrap().text, " long total; ");
    let methods: Vec<String> = class.methods.iter().map(|method| method.signature.to_string()).collect();
    let add = "linalg/counter.add(n: int32) -> sum: int64";
    let [made, ended] = ["linalg/counter._initialize() -> ()", "linalg/counter._finalize() -> ()"];
    assert_eq!(methods, [made, add, "linalg/counter.other(n: int32) -> ()", ended]);
    for definition in &file.definitions {
        assert_eq!(&one(&definition.to_string()), definition);
    }
}

fn one(source: &str) -> Definition {
    let mut all = parse(source, "t.idl").unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn refusal(source: &str) -> String {
    parse(source, "linalg.idl").unwrap_err().to_string()
}

#[test]
fn bodies_are_compiled_functions_of_all_parameters() {
    let text = "Module m; #of functions\n#define N 3\nGlobals { static int calls; }\n\
                Define f(IN int n, OUT double x[N*n], OUT int *r) \"d\" CalcOrder n { *r = n; goto ng_stub_end; }\n\
                Define g(OUT int *r) Language \"C++\" { *r = calls; }";
    let file = parse_file(text, "t.idl").unwrap();
    let [f, g] = &file.definitions[..] else { panic!() };
    assert_eq!(f.signature.to_string(), "m/f(n: int32) -> (x: float64[3*n], r: int32)");
    let Body::Native { language: Language::C, symbol, args, result: None } = &f.body else { panic!() };
    assert!(symbol.starts_with("gridloom_f_") && *args == [0, 1, 2].map(CallArgument::Param), "{symbol}");
    assert_eq!(one(&f.to_string()), *f, "it prints as a call of its symbol");
    assert_ne!(f.body, g.body);
    let build = file.build;
    assert!(build.has_globals && build.is_cpp(&build.stubs));
    let texts: Vec<(usize, usize, &str)> = build.texts.iter().map(|t| (t.line, t.column, t.text.as_str())).collect();
    assert_eq!(texts, [(2, 1, "#define N 3"), (3, 10, " static int calls; ")]);
    let stubs: Vec<_> = build.stubs.iter().map(|stub| (stub.definition, stub.line, stub.is_cpp)).collect();
    assert_eq!(stubs, [(0, 4, false), (1, 5, true)]);
}

const DGESV_ROUTINE: &str = r#"# GridSolve's way
SUBROUTINE dgesv(IN int n, IN int nrhs, INOUT double A[lda][n], IN int lda, # rows, columns
                 OUT int ipiv[n], INOUT double B[ldb][nrhs], IN int ldb, OUT int info)
  "solve A X = B by LU with row exchanges"
  LANGUAGE = "FORTRAN"   MAJOR = "COLUMN"   LIBS = "-llapack -lblas"
  COMPLEXITY = "0.667*pow((double)n, 3.0) + 2*n^2*nrhs"
"#;

#[test]
fn routines_are_read() {
    let file = parse_file(DGESV_ROUTINE, "solve.idl").unwrap();
    assert_eq!(file.libraries, ["-llapack -lblas"]);
    let definition = &file.definitions[0];
    assert_eq!(
        definition.signature.to_string(),
        "solve/dgesv(A: float64[lda, n] in Fortran order, B: float64[ldb, nrhs] in Fortran order; \
         n, nrhs, lda, ldb: int32) -> (A: float64[lda, n] in Fortran order, ipiv: int32[n], \
         B: float64[ldb, nrhs] in Fortran order, info: int32)"
    );
    let work = definition.signature.work.as_ref().unwrap().display(&definition.signature.params).to_string();
    assert_eq!(work, "0.667*n^3+2*n^2*nrhs");
    let Body::Native { language: Language::Fortran, symbol, args, result: None } = &definition.body else { panic!() };
    assert_eq!((symbol.as_str(), args.len()), ("dgesv_", 8));
}

#[test]
fn values_of_functions_are_results() {
    let text =
        "FUNCTION unsigned int find(IN int n, IN double x[n], OUT int at) SYMBOL = \"find_1\" COMPLEXITY=12*sqrt(n);";
    let definition = one(text);
    let shown = "t/find(x: float64[n]; n: int32) -> (at: int32, find: uint32)";
    assert_eq!(definition.signature.to_string(), shown);
    let Body::Native { language: Language::C, symbol, args, result } = &definition.body else { panic!() };
    assert_eq!((symbol.as_str(), args.len(), *result), ("find_1", 3, Some((Dtype::Uint32, 3))));
    assert_eq!(
        one("FUNCTION void F() LANGUAGE=\"FORTRAN\"").to_string().lines().last(),
        Some("Calls \"FORTRAN\" f_();")
    );
}

#[test]
fn what_a_definition_refers_to_and_is_not_there_prints_as_its_number() {
    let mut definition = one("Define f(OUT int *r) Calls r = g(r);");
    let Body::Native { args, result, .. } = &mut definition.body else { panic!() };
    (args[0], *result) = (CallArgument::Param(7), Some((Dtype::Int32, 8)));
    assert!(definition.to_string().ends_with("Calls \"C\" #8 = g(#7);\n"), "{definition}");
}

#[test]
fn symbols_that_are_no_names_read_back() {
    for text in [
        "SUBROUTINE f(IN int n, OUT int m) SYMBOL = \"f.cold-1\"",
        "SUBROUTINE f(IN int n) LANGUAGE = \"FORTRAN\" SYMBOL = \"1f\"",
        "FUNCTION int f(IN int n, IN double a[n][n]) SYMBOL = \"f*\"",
    ] {
        let definition = one(text);
        assert_eq!(one(&definition.to_string()), definition, "{definition}");
    }
    assert!(refusal("FortranFormat \"1%s\";").contains("expected one %s"));
    assert!(refusal(&format!("SUBROUTINE f() SYMBOL = \"{}\"", "f".repeat(300))).contains("of at most"));
}

#[test]
fn major_says_how_arrays_lie_whatever_the_language() {
    for (settings, order) in [
        ("", ArrayOrder::C),
        ("MAJOR = \"column\"", ArrayOrder::Transposed),
        ("LANGUAGE = \"FORTRAN\"", ArrayOrder::Transposed),
        ("LANGUAGE = \"FORTRAN\" MAJOR = \"ROW\"", ArrayOrder::C),
    ] {
        let text = format!("FUNCTION int f(IN int n, INOUT float a[n][n]) \"d\" {settings} COMPLEXITY = \"n\"");
        let definition = one(&text);
        assert_eq!(definition.signature.params[1].order, order, "{settings}");
        assert_eq!(one(&definition.to_string()), definition, "{definition}");
    }
}

#[test]
fn wrong_classes_name_place_and_remedy() {
    for (text, message) in [
        ("DefClass c { }", "1:10: class 'c' has no method to call; write a DefMethod"),
        ("DefClass c { DefMethod _finalize() { } }", "has no method to call"),
        ("DefClass c {\n DefMethod f() { } DefMethod f() { } }", "2:30: 'linalg/c.f' was already defined at 2:12"),
        ("DefClass c { DefState { } DefState { } }", "1:27: a second 'DefState'"),
        (
            "DefClass c { DefMethod _initialize(IN int n) { } }",
            "'_initialize' runs automatically, so it has no parameters",
        ),
        ("DefClass c CalcOrder 1 { DefMethod f() { } }", "'CalcOrder' belongs to a method"),
        ("DefClass c { DefMethod f() { }", "1:12: this '{' has no closing '}'"),
        ("DefClass c { Define f() { } }", "expected 'DefState', 'DefMethod' or '}', got 'Define'"),
    ] {
        let refused = refusal(text);
        assert!(refused.contains(message), "{text}: {refused}");
    }
}

#[test]
fn wrong_routines_name_place_and_remedy() {
    for (text, message) in [
        ("SUBROUTINE f() MAJOR = \"UP\"", "1:24: expected \"ROW\" or \"COLUMN\", got \"UP\""),
        ("SUBROUTINE f() MAJR = \"ROW\"", "did you mean 'MAJOR'?"),
        ("SUBROUTINE f() LANGUAGE = \"C++\"", "if it is extern \"C\""),
        ("SUBROUTINE f(IN int n)\n COMPLEXITY = \"n * k\"", "2:20: unknown name 'k'; the parameters are: n"),
        ("SUBROUTINE f(IN int n) COMPLEXITY = \"ln(n)\"", "unknown function 'ln'; expressions have pow"),
        ("SUBROUTINE f(IN int n) COMPLEXITY = \"min(n)\"", "expected ',', got ')'"),
        ("Define f(IN int n, IN double x[log2(n)]) Calls f(n, x);", "log2() does not return exact integers"),
        ("Define f(IN int n, IN double x[ld(n)]) Calls f(n, x);", "unknown function 'ld'"),
        ("SUBROUTINE f(IN int n) COMPLEXITY = \"n n\"", "1:40: expected an operator or the end"),
        ("FUNCTION f()", "1:10: expected the type of the function's value, a number's, got ''"),
        ("FUNCTION string f()", "got 'string'; a SUBROUTINE has no value"),
        ("FUNCTION float16 f()", "got 'float16'"),
        ("SUBROUTINE f(IN int n) MOVEABLE", "got 'MOVEABLE'"),
        ("FUNCTION int f(OUT int f)", "rename the parameter"),
        ("SUBROUTINE f() LIBS = \"a\" LIBS = \"b\" MAJOR=\"ROW\" MAJOR=\"ROW\"", "a second 'MAJOR'; leave one out"),
    ] {
        let refused = refusal(text);
        assert!(refused.contains(message), "{text}: {refused}");
    }
}

#[test]
fn problems_are_read_as_routines_are() {
    let text = "PROBLEM solve Fortran ROUTINE DGESV(IN int N, IN int NRHS, INOUT double A[LDA][N], IN int LDA, \
                OUT int IPIV[N], INOUT double B[LDB][NRHS], IN int LDB, OUT int INFO)\n\"From LAPACK -\n\n solves\"\n\
                LIBS = \"/opt/liblapack.a\n /opt/libblas.a\" MOVEABLE\n\
                PROBLEM norm C FUNCTION double norm2(IN int n, IN double x[n])";
    let file = parse_file(text, "t.idl").unwrap();
    assert_eq!(file.libraries, ["/opt/liblapack.a\n /opt/libblas.a"]);
    let [solve, norm] = &file.definitions[..] else { panic!() };
    let routine = "SUBROUTINE solve(IN int N, IN int NRHS, INOUT double A[LDA][N], IN int LDA, OUT int IPIV[N], \
                   INOUT double B[LDB][NRHS], IN int LDB, OUT int INFO) \"From LAPACK - solves\" \
                   LANGUAGE = \"FORTRAN\" SYMBOL = \"dgesv_\"";
    assert_eq!(solve, &one(routine));
    assert_eq!(norm, &one("FUNCTION double norm(IN int n, IN double x[n]) SYMBOL = \"norm2\""));
}

#[test]
fn wrong_problems_name_place_and_remedy() {
    for (text, message) in [
        ("PROBLEM p ROUTINE f()", "1:11: expected the routine's language, C or FORTRAN, after the problem's name, got"),
        ("PROBLEM p \"C\" ROUTINE f()", "expected the routine's language, C or FORTRAN"),
        ("PROBLEM p C SUBROUTINE f()", "1:13: expected 'ROUTINE' after the language, got 'SUBROUTINE'"),
        (
            "PROBLEM p C ROUTINE f(IN double A<n, m, nnz>)",
            "1:34: sparse matrices such as `A<…>` are not supported: pass",
        ),
        ("PROBLEM p C ROUTINE f() LANGUAGE = \"C\"", "a second 'LANGUAGE'"),
        ("PROBLEM p C ROUTINE f() \"a\nb", "1:25: this string has no closing \""),
        ("PROBLEM p C ROUTINE f()\nDefine f() \"a\nb\" Calls f();", "has no closing \" on its line"),
        ("PROBLEM p C ROUTINE f() MOVABLE = 1", "unknown setting 'MOVABLE'"),
        ("PROBLEM p C ROUTINE f()\nPROBLEM p C ROUTINE g()", "2:9: 'linalg/p' was already defined at 1:9"),
    ] {
        let refused = refusal(text);
        assert!(refused.contains(message), "{text}: {refused}");
    }
}

#[test]
fn numbers_of_all_kinds_can_be_returned() {
    for kind in ["char", "unsigned long", "bool", "float", "long double", "scomplex", "dcomplex"] {
        let definition = one(&format!("Define f(OUT {kind} *r) Calls r = g();"));
        let Body::Native { result: Some((_, 0)), .. } = definition.body else { panic!("{kind}") };
    }
    assert!(refusal("Define f(OUT float16 *r) Calls r = g();").contains("that is a number, such as"));
}

proptest! {
    #[test]
    fn no_change_of_a_right_file_makes_the_parser_panic(edits in proptest::collection::vec((any::<u16>(), any::<u16>(), 0u8..4), 1..6)) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for (at, from, kind) in edits {
            let (at, from) = (usize::from(at) % bytes.len(), usize::from(from) % bytes.len());
            let piece = bytes[from..(from + 20).min(bytes.len())].to_vec();
            match kind {
                0 => bytes[at] = from as u8,
                1 => drop(bytes.drain(at..(at + from % 20).min(bytes.len()))),
                2 => bytes.truncate(at.max(1)),
                _ => drop(bytes.splice(at..at, piece)),
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(file) = parse_file(&text, "t.idl") {
            file.build.c_source(&file.definitions, "t.idl");
            file.classes.iter().for_each(|class| drop(file.build.class_source(class, "t.idl")));
            for definition in file.definitions {
                prop_assert_eq!(definition.signature.check(), Ok(()));
                prop_assert_eq!(&one(&definition.to_string()), &definition);
            }
        }
    }
}
