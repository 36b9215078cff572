//! Tests of the parser and of printing: accepted texts, rejected texts with their errors, and that nothing panics.

use proptest::prelude::*;

use crate::expr::{BinaryOp, Expr, UnaryOp};
use crate::parse::{parse, parse_expression, parse_file};
use crate::signature::{ArrayOrder, BaseType, Body, CallArgument, Definition, Language, Mode, Param};
use gridloom_base::Dtype;

const DGEMM: &str = r#"Module linalg;
Define dgemm(IN int m, IN int n, IN int k, IN double a[m][k], IN double b[k][n], OUT double c[m][n])
"c := a b, row-major"
CalcOrder 2*m*n*k
Calls "C" cblas_dgemm(101, 111, 111, m, n, k, 1.0, a, k, b, n, 0.0, c, n);
"#;

const DGEMM_RM: &str = r#"/* Ninf style 1: matrix product with leading dimensions */
Module linear;
Define dgemm_rm(IN int m, IN int n, IN int k, IN double alpha,
                IN double a[m][k], IN double b[k][n],
                IN double beta, INOUT double c[m][n])
"c := alpha*a*b + beta*c, row-major, no transposes"
Required "gemm_wrap.o" CalcOrder 2*m*n*k
Calls "C" gemm_wrap(m, n, k, alpha, a, b, beta, c);
"#;

const DGESV: &str = r#"Module linalg;
FortranFormat "%s_"; Library "liblapack.so.3";
Define dgesv(IN int n, IN int nrhs, INOUT double a[n][n], OUT int ipiv[n], INOUT double b[n][nrhs], WORK double w[4*n],
             OUT int *info)
CalcOrder 2*n^3/3 + 2*n^2*nrhs
Calls "FORTRAN" dgesv(n, nrhs, a, n, ipiv, b, n, w, 'N', "U", (long) n+1, (double) n, -1.5, info);
"#;

fn one(source: &str) -> Definition {
    let mut all = parse(source, "t.idl").unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn refusal(source: &str) -> String {
    parse(source, "linalg.idl").unwrap_err().to_string()
}

/// The error of one parameter list, without its position.
fn refused_params(params: &str) -> String {
    let text = refusal(&format!("Define f({params}) Calls f(1);"));
    text.splitn(4, ':').nth(3).unwrap().trim().to_string()
}

#[test]
fn dgemm_is_read() {
    let Definition { signature, body } = one(DGEMM);
    assert_eq!(signature.name, "linalg/dgemm");
    assert_eq!(signature.about, "c := a b, row-major");
    assert_eq!(signature.params.len(), 6);
    assert_eq!(signature.params[3].dims, [Expr::Param(0), Expr::Param(2)]);
    assert!(signature.params[3..].iter().all(|param| param.is_array && param.order == ArrayOrder::C));
    let Body::Native { language: Language::C, symbol, args, result: None } = body else { panic!("{body:?}") };
    assert_eq!((symbol.as_str(), args.len()), ("cblas_dgemm", 14));
    assert_eq!(args[0], CallArgument::Value { dtype: Dtype::Int32, expr: Expr::Number(101.0) });
    assert_eq!(args[6], CallArgument::Value { dtype: Dtype::Float64, expr: Expr::Number(1.0) });
    assert_eq!(args[7], CallArgument::Param(3));
}

#[test]
fn signatures_print_on_one_line() {
    assert_eq!(
        one(DGEMM).signature.to_string(),
        "linalg/dgemm(a: float64[m, k], b: float64[k, n]; m, n, k: int32) -> c: float64[m, n]"
    );
    assert_eq!(
        one(DGESV).signature.to_string(),
        "linalg/dgesv(a: float64[n, n] in Fortran order, b: float64[n, nrhs] in Fortran order; n, nrhs: int32) -> \
         (a: float64[n, n] in Fortran order, ipiv: int32[n], b: float64[n, nrhs] in Fortran order, info: int32)"
    );
    assert_eq!(one("Define f(IN string s) Calls f(s);").signature.to_string(), "t/f(s: string) -> ()");
    let files = one("Define f(IN filename a, INOUT filename b, OUT filename c, OUT string s) Calls f(a, b, c, s);");
    assert_eq!(files.signature.to_string(), "t/f(a, b: file) -> (b, c: file, s: string)");
    assert_eq!(one(&files.to_string()).signature.params, files.signature.params);
}

#[test]
fn definitions_read_back_as_printed() {
    for source in [DGEMM, DGEMM_RM, DGESV] {
        let definition = one(source);
        let printed = definition.to_string();
        assert_eq!(one(&printed), definition, "{printed}");
    }
}

#[test]
fn fortran_gets_its_symbol_and_order() {
    let Definition { signature, body } = one(DGESV);
    assert!(signature.params.iter().all(|param| !param.is_array || param.order == ArrayOrder::F));
    let Body::Native { symbol, args, .. } = body else { panic!() };
    assert_eq!(symbol, "dgesv_");
    assert_eq!(args[8], CallArgument::Value { dtype: Dtype::Int8, expr: Expr::Number(78.0) });
    assert_eq!(args[9], CallArgument::Text("U".into()));
    assert!(matches!(&args[10], CallArgument::Value { dtype: Dtype::Int64, expr: Expr::Binary(..) }));
    assert_eq!(args[11], CallArgument::Value { dtype: Dtype::Float64, expr: Expr::Param(0) });
    let upper = one("FortranFormat \"_%l\"; Define f(IN int n) Language \"FORTRAN\" Calls Sub(n);");
    assert!(matches!(upper.body, Body::Native { symbol, language: Language::Fortran, .. } if symbol == "_SUB"));
}

#[test]
fn file_settings_are_recorded() {
    let text = "Library \"a.so\"; Compiler \"cc\"; Linker \"ld\"; CompileOptions \"-g\"; CompileOptions \"-O3\";\n\
                FortranStringConvention last; Define f() Required \"a.o b.o\" Shrink \"YES\" Calls f();";
    let file = parse_file(text, "t.idl").unwrap();
    assert_eq!(file.libraries, ["a.so"]);
    let build = file.build;
    assert_eq!((build.compiler.as_deref(), build.linker.as_deref()), (Some("cc"), Some("ld")));
    assert_eq!((build.options, build.required), (vec!["-g".into(), "-O3".into()], vec!["a.o b.o".to_string()]));
    assert!(build.stubs.is_empty() && !build.has_globals);
}

#[test]
fn types_have_the_names_of_c_and_of_numpy() {
    let base = |words: &str| one(&format!("Define f({words} IN x) Calls f(x);")).signature.params[0].base;
    for (words, dtype) in [
        ("unsigned long long int", Dtype::Uint64),
        ("short", Dtype::Int16),
        ("unsigned", Dtype::Uint32),
        ("long", Dtype::Int64),
        ("signed char", Dtype::Int8),
        ("long double", Dtype::LongDouble),
        ("scomplex", Dtype::Complex64),
        ("uint16", Dtype::Uint16),
        ("float16", Dtype::Float16),
        ("bool", Dtype::Bool),
    ] {
        assert_eq!(base(words), BaseType::Number(dtype), "{words}");
    }
}

#[test]
fn a_result_goes_to_an_out_scalar() {
    let body = one("Define f(IN int n, OUT int *info) Calls \"C\" info = g(n, 2*n-1);").body;
    let Body::Native { symbol, args, result, .. } = body else { panic!() };
    assert_eq!((symbol.as_str(), args.len(), result), ("g", 2, Some((Dtype::Int32, 1))));
    let wrong = refusal("Define f(IN int n) Calls n = g(n);");
    assert!(wrong.ends_with("such as `OUT int *n`; 'n' is an IN scalar of type int"), "{wrong}");
}

#[test]
fn names_have_their_module() {
    let names = |source: &str| -> Vec<String> {
        parse(source, "lib/my.idl").unwrap().into_iter().map(|one| one.signature.name).collect()
    };
    assert_eq!(names("Define f() Calls f(); Module m; Define f() Calls f();"), ["my/f", "m/f"]);
    let twice = refusal("Define f() Calls f();\nDefine f() Calls f();");
    assert_eq!(twice, "linalg.idl:2:8: 'linalg/f' was already defined at 1:8; rename one");
    let nameless = parse("Define f() Calls f();", "").unwrap_err().to_string();
    assert_eq!(nameless, ":1:8: the file name '' gives no module name; write `Module name;` before this");
}

#[test]
fn errors_have_their_place_and_remedy() {
    assert_eq!(
        refusal("Module m;\n\nDefine f(IN int n;"),
        "linalg.idl:3:18: expected ',' or ')' after a parameter, got ';'"
    );
    assert_eq!(refusal("Define f(IN int n)\n{ g(n); "), "linalg.idl:2:1: this '{' has no closing '}'");
    assert_eq!(
        refusal("Define f(IN int n, OUT int a[n]) Calls f(n);"),
        "linalg.idl:1:40: OUT parameter 'a' is not passed to f; add it to the arguments"
    );
    assert_eq!(
        refusal("Define f(IN int n) Calls f(n, q);"),
        "linalg.idl:1:31: unknown name 'q'; the parameters are: n"
    );
    assert!(refusal("Defin f()").ends_with("'Define' or 'SUBROUTINE', got 'Defin'; did you mean 'Define'?"));
    assert!(refusal("Define f() Backend \"BLACS\" Calls f();").contains("Backend \"BLACS\" is not supported"));
    assert!(
        refusal("Define f(IN int n, OUT filepointer *s) Backend \"MPI\" { }")
            .contains("'s' cannot be passed to several")
    );
    assert!(refusal("Define f(IN int n, IN int x[n^2]) Backend \"MPI\" { }").contains("the size of 'x'"));
    assert!(refusal("Define f(IN int n, go(IN int x[n])) Backend \"MPI\" { }").contains("callback 'go'"));
    assert!(refusal("Define f(IN int n) Backend \"MPI\" Calls \"FORTRAN\" f(n^2);").contains("without powers"));
    assert!(refusal("DefClass c { DefMethod m() Backend \"MPI\" { } }").contains("an object is one process"));
    assert!(refusal("Define f() Shrink \"maybe\" Calls f();").contains("expected \"yes\" or \"no\""));
    assert!(refusal("Define f() Language \"Ada\" Calls f();").contains("\"C++\" or \"FORTRAN\", got \"Ada\""));
    assert!(refusal("Define f(IN int n) Calls \"C++\" f(n^2);").contains("cannot pass powers"));
    assert!(refusal("Define f(IN int n) Calls \"C++\" f(1 + min(n, 2));").contains("cannot pass powers"));
    let fresh = "SUBROUTINE f(VAROUT double x[n], OUT int n) LANGUAGE = \"FORTRAN\"";
    assert!(refusal(fresh).contains("VAROUT parameter 'x' needs"));
    assert!(refusal("FortranStringConvention justAfter;").contains("passes them last"));
    assert!(refusal("Compiler \"a\"; Compiler \"b\";").starts_with("linalg.idl:1:15: a second 'Compiler'"));
    assert_eq!(
        parse_file("#include <a.h>\nDefine f(OUT int *r) { *r = A; }", "t.idl").unwrap().build.texts[0].text,
        "#include <a.h>"
    );
    assert!(refusal("\n#ifdef A\n").starts_with("linalg.idl:2:1: conditions of the C preprocessor"));
    assert!(refusal("Define f(\n#define N 1\n)").starts_with("linalg.idl:2:1: directives of the C preprocessor"));
    assert!(refusal("FortranFormat \"x\";").contains("expected one %s"));
    assert!(refusal("Define f() Calls f((string) 1);").contains("expected a cast to an integer type"));
}

#[test]
fn wrong_parameters_name_the_remedy() {
    for (params, message) in [
        ("OUT int x", "a scalar that the function sets is passed by pointer: write `OUT int *x`"),
        ("OUT filepointer f", "a file that the function sets is passed by pointer: write `OUT filepointer *f`"),
        ("WORK filename f", "scratch space is an array of numbers: write `WORK char f[n]`"),
        ("IN filename f, IN int x[f]", "parameter 'f' is a filename, and expressions use only numbers"),
        ("WORK double w", "scratch space needs a size: write `WORK double w[n]`"),
        ("IN double *x[3]", "arrays of pointers are not supported; write `IN double x[…]`"),
        ("int x", "expected the mode of 'x': write IN, OUT, INOUT, VAROUT or WORK before it"),
        ("IN int x, IN int x", "parameter 'x' is declared twice; rename one"),
        ("IN OUT int x", "a parameter has one mode; leave the second out"),
        ("IN double a[k]", "unknown name 'k'; the parameters are: a"),
        ("IN double x, IN int a[x]", "parameter 'x' is float64, and sizes use only integers"),
        ("OUT int *n, IN int a[n]", "parameter 'n' is OUT, and expressions use only IN scalars, known before the call"),
        ("IN int a[2], IN int b[a]", "parameter 'a' is an array, and expressions use only IN scalars"),
        ("IN int a[1.5]", "the constant 1.5 is not an exact integer, and sizes are whole numbers"),
        ("IN int n, IN int a[n : 2, k]", "unknown name 'k'; the parameters are: n, a"),
        (
            "IN int n, IN int a[n**2]",
            "expected a number, a parameter or '(' (a power is written with '^', such as n^2), got '*'",
        ),
        ("IN int a[9 : 2, 3, 1, 1]", "expected an operator or ']', got ','"),
        ("IN double x, IN int a[9 : x]", "parameter 'x' is float64, and sizes use only integers"),
        ("WORK int a[9 : 3]", "a WORK array has no slices; write `a[size]`"),
        (
            "VAROUT int a",
            "VAROUT is an array of numbers whose size the function sets: write `VAROUT double a[count]` with `OUT int *count`",
        ),
        ("VAROUT int a[n], OUT double *n", "parameter 'n' is float64, and sizes use only integers"),
        (
            "progress(IN int p)",
            "a callback takes whole arrays of numbers or strings that are IN, OUT or INOUT: write `IN int *p` for one number",
        ),
        ("p(IN int x[1]), IN int n", "parameter 'n' comes after callback 'p'; put it before"),
        ("IN int p, p(IN int x[1])", "parameter 'p' is declared twice; rename one"),
        ("p(IN int x[1], OUT int x[1])", "parameter 'x' is declared twice; rename one"),
        ("p(IN int x[n])", "unknown name 'n'; the parameters are: none"),
        (
            "p(WORK int x[1])",
            "a callback takes whole arrays of numbers or strings that are IN, OUT or INOUT: write `IN int *x` for one number",
        ),
    ] {
        assert_eq!(refused_params(params), message);
    }
    assert!(refused_params("IN unsigned double x").starts_with("unknown type 'unsigned double'; types are char"));
    assert!(refused_params("IN quad x").starts_with("unknown type 'quad'"));
}

#[test]
fn what_has_one_element_is_written_by_a_star_or_empty_brackets() {
    let definition =
        one("Define f(IN int n, OUT double x[], IN int *i, INOUT string s[], IN string *t, tell(OUT int *at)) \
                          Calls f(n, x, i, s, t, tell);");
    assert_eq!(
        definition.signature.to_string(),
        "t/f(n: int32, i: int32[1], s, t: string[1]) -> (x: float64[1], s: string[1]), calling tell(at: int32[1])"
    );
    assert_eq!(one(&definition.to_string()), definition, "{definition}");
}

#[test]
fn strings_and_files_stand_in_arrays() {
    let text = "Define f(IN int n, IN string names[n], OUT string more[n][2], IN filename in[n], OUT filename out[n], \
                IN filepointer from, OUT filepointer *to, tell(IN string what[n])) \
                Calls f(n, names, more, in, out, from, to, tell);";
    let definition = one(text);
    assert_eq!(
        definition.signature.to_string(),
        "t/f(names: string[n], in: file[n], from: file; n: int32) -> (more: string[n, 2], out: file[n], to: file[1]), \
         calling tell(what: string[n])"
    );
    assert_eq!(one(&definition.to_string()), definition, "{definition}");
    let fortran = refusal("Define f(IN int n, IN string s[n]) Calls \"FORTRAN\" f(n, s);");
    assert!(fortran.contains("IN parameter 's' needs a function that is called as \"C\""), "{fortran}");
}

#[test]
fn the_words_of_older_descriptions_are_read() {
    let plain = one("Define f(IN int n, IN double x[n], OUT double y[n]) Calls f(n, x, y);");
    let older = one("Define f(mode_in int n, mode_in double x[n], mode_out double y[n]) Calls f(n, x, y);");
    let ranks =
        one("Define f(IN broadcast int n, IN broadcast double x[n], OUT allocate double y[n]) Calls f(n, x, y);");
    assert_eq!((&older, &ranks), (&plain, &plain));
    assert_eq!(
        one("Define f(IN int broadcast) Calls f(broadcast);").signature.to_string(),
        "t/f(broadcast: int32) -> ()"
    );
}

#[test]
fn slices_and_arrays_of_unknown_size_read_back_as_printed() {
    for (parameters, passed) in [
        ("IN int n, IN int k, INOUT double x[n : 2, n - 1, k][n : 0, n][n : k]", "x"),
        ("OUT long *m, VAROUT float x[2 * m][3]", "m, x"),
    ] {
        for shrink in ["", "Shrink \"yes\" ", "Shrink \"no\" "] {
            let definition = one(&format!("Define f({parameters}) {shrink}Calls f({passed});"));
            assert_eq!(one(&definition.to_string()), definition, "{definition}");
        }
    }
    let late = one("Define f(IN int n, VAROUT float x[n * m], OUT int *m) Calls f(n, x, m);").signature;
    assert_eq!(late.to_string(), "t/f(n: int32) -> (x: float32[n*m], m: int32)");
    let fortran = refusal("Define f(OUT int *m, VAROUT float x[m]) Calls \"FORTRAN\" f(m, x);");
    assert!(fortran.contains("VAROUT parameter 'x' needs a function that is called as \"C\""), "{fortran}");
}

#[test]
fn callbacks_come_last_and_read_back_as_printed() {
    let text =
        "Define f(IN int n, OUT int *x, step(IN double a[n][2], INOUT int b[1]), done()) Calls f(n, done, step, x);";
    let definition = one(text);
    assert_eq!(one(&definition.to_string()), definition, "{definition}");
    assert_eq!(
        definition.signature.to_string(),
        "t/f(n: int32) -> x: int32, calling step(a: float64[n, 2], b: int32[1]), done()"
    );
    assert!(refusal("Define f(IN int n, p(IN int x[1])) Calls f(n);").contains("callback 'p' is not passed to f"));
    let mut other = definition.signature.clone();
    other.callbacks[0].params[1].mode = Mode::Out;
    assert_ne!(other.hash(), definition.signature.hash());
    let many: Vec<String> = (0..33).map(|at| format!("p{at}()")).collect();
    assert!(refused_params(&many.join(", ")).starts_with("more than 32 callbacks"));
}

#[test]
fn limits_hold() {
    let many: Vec<String> = (0..129).map(|at| format!("IN int x{at}")).collect();
    assert!(refused_params(&many.join(", ")).starts_with("more than 128 parameters"));
    assert!(refused_params(&format!("IN int {}", "x".repeat(256))).starts_with("a name of 256 bytes"));
    assert!(refused_params(&format!("IN int x{}", "[1]".repeat(65))).contains("more than 64 dimensions"));
    let deep = |text: String| parse_expression(&text, &[]).unwrap_err().message;
    for opening in ["(", "-", "1?1:", "2^", "1+", "(1+"] {
        assert!(deep(opening.repeat(100_000)).contains("nested deeper than 64"), "{opening}");
    }
    assert!(deep(vec!["1"; 100_000].join("+")).contains("nested deeper than 64"));
    assert!(refusal(&format!("Define f({})", "IN int x[1 ".repeat(10))).contains("operator or ']'"));
}

fn expressions() -> impl Strategy<Value = Expr> {
    let number = prop_oneof![(0u32..1000).prop_map(f64::from), 0.0..1e300f64, Just(9_007_199_254_740_992.0)];
    let leaf = prop_oneof![number.prop_map(Expr::Number), (0usize..3).prop_map(Expr::Param)];
    let unary = proptest::sample::select(vec![
        UnaryOp::Negate,
        UnaryOp::Not,
        UnaryOp::Sqrt,
        UnaryOp::Log,
        UnaryOp::Log2,
        UnaryOp::Log10,
    ]);
    let binary = proptest::sample::select(vec![
        BinaryOp::Add,
        BinaryOp::Subtract,
        BinaryOp::Multiply,
        BinaryOp::Divide,
        BinaryOp::Remainder,
        BinaryOp::Power,
        BinaryOp::Less,
        BinaryOp::LessEqual,
        BinaryOp::Greater,
        BinaryOp::GreaterEqual,
        BinaryOp::Equal,
        BinaryOp::NotEqual,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Min,
        BinaryOp::Max,
    ]);
    leaf.prop_recursive(8, 64, 3, move |inner| {
        let (a, b, c) = (inner.clone(), inner.clone(), inner.clone());
        prop_oneof![
            (unary.clone(), inner.clone()).prop_map(|(op, x)| Expr::Unary(op, Box::new(x))),
            (binary.clone(), inner.clone(), inner).prop_map(|(op, x, y)| Expr::Binary(op, Box::new(x), Box::new(y))),
            (a, b, c).prop_map(|(x, y, z)| Expr::Conditional(Box::new(x), Box::new(y), Box::new(z))),
        ]
    })
}

/// Words of the language in random order, which get further into the parser than bytes do.
fn soup() -> impl Strategy<Value = String> {
    let words = vec![
        "Define",
        "Module",
        "f",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        ":",
        "?",
        "=",
        "*",
        "^",
        "+",
        "-",
        "!",
        "<",
        "IN",
        "OUT",
        "INOUT",
        "WORK",
        "g(",
        "VAROUT",
        "Shrink \"yes\"",
        "int",
        "double",
        "long",
        "unsigned",
        "string",
        "filename",
        "n",
        "x",
        "1",
        "2.5",
        "1e9",
        "\"C\"",
        "\"FORTRAN\"",
        "'N'",
        "Calls",
        "CalcOrder",
        "Language",
        "Required",
        "Library",
        "FortranFormat",
        "Globals",
        "DefClass",
        "DefState",
        "DefMethod",
        "SUBROUTINE",
        "FUNCTION",
        "LANGUAGE",
        "MAJOR",
        "COMPLEXITY",
        "\"COLUMN\"",
        "\"n^2\"",
        "\"C++\"",
        "\n#define n 2",
        "pow(",
        "log2(",
        "max(",
        "PROBLEM f Fortran ROUTINE",
        "MOVEABLE",
        "/*",
        "*/",
        "//",
        "#",
        "\n",
        "Define f(IN int n, IN double x[n]",
        ") Calls f(",
        "(long)",
    ];
    proptest::collection::vec(proptest::sample::select(words), 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn expressions_read_back_as_printed(expr in expressions()) {
        let params = ["m", "n", "k"].map(|name| Param::scalar(name, Mode::In, BaseType::Number(Dtype::Int32)));
        let printed = expr.display(&params).to_string();
        prop_assert_eq!(parse_expression(&printed, &["m", "n", "k"]).unwrap(), expr, "{}", printed);
    }

    #[test]
    fn expressions_survive_the_wire(expr in expressions()) {
        let bytes = postcard::to_stdvec(&expr).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Expr>(&bytes).unwrap(), expr);
    }

    #[test]
    fn expressions_of_any_kind_are_evaluated_without_panic(expr in expressions(), values: [i64; 3]) {
        let _ = expr.evaluate_extent(&[], &|index| Some(i128::from(values[index])));
        let _ = expr.evaluate_real(&[], &|index| Some(values[index] as f64));
        let _ = expr.value_bytes(Dtype::Int32, &[], &[]);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&text, "t.idl");
        let _ = parse(&String::from_utf8_lossy(&bytes), "t.idl");
        let _ = parse_expression(&text, &["n"]);
    }

    #[test]
    fn no_soup_of_words_makes_the_parser_panic(text in soup()) {
        if let Ok(all) = parse(&text, "t.idl") {
            for definition in all {
                prop_assert_eq!(definition.signature.check(), Ok(()));
                prop_assert_eq!(&one(&definition.to_string()), &definition);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_signature_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(signature) = postcard::from_bytes::<crate::Signature>(&bytes) {
            let _ = (signature.check(), signature.hash(), signature.to_string());
        }
    }
}
