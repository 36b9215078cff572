//! The C text of a file, and the build settings of its library. The inline bodies form one C source, in which the compiler
//! reports mistakes by the file's own lines and columns.
//!
//! Parameters are C variables as in Ninf-G. An `IN` scalar is passed by value, everything else by pointer.
//! Arrays of any number of dimensions are flat, and complex numbers have parts `.r` and `.i`. `goto ng_stub_end` leaves a
//! body. A body that uses the variable `error` without declaring it gets one, as in Ninf-G 4. One C++ function makes
//! the whole source C++. A class is a separate source, in which its state is stored in variables, since each object is
//! a process.

use std::fmt::Write as _;

use crate::c_words::uses_variable;
use crate::expr::{BinaryOp, Expr};
use crate::fortran::FortranCall;
use crate::print::quoted;
use crate::ranks::{self, RankShare};
use crate::signature::{BaseType, CallArgument, Callback, Definition, Mode, Param, Signature};
use gridloom_base::Dtype;

/// C text and its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CText {
    /// Line of its first character, from 1.
    pub line: usize,
    /// Column of its first character, from 1.
    pub column: usize,
    pub text: String,
}

/// The build settings of a file's library.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Build {
    /// `Compiler`, a command.
    pub compiler: Option<String>,
    /// `Linker`, a command.
    pub linker: Option<String>,
    /// `CompileOptions`, in order.
    pub options: Vec<String>,
    /// Object files and archives named by `Required`.
    pub required: Vec<String>,
    /// `Globals` and `#define` lines of the file, in order.
    pub texts: Vec<CText>,
    /// True if there are `Globals`, which may define functions.
    pub has_globals: bool,
    /// Functions to compile.
    pub stubs: Vec<Stub>,
}

/// A function that is compiled for a definition.
#[derive(Clone, PartialEq, Debug)]
pub struct Stub {
    /// The definition's index.
    pub definition: usize,
    /// Line of its name.
    pub line: usize,
    /// True if it is C++.
    pub is_cpp: bool,
    /// Its code.
    pub code: StubCode,
    /// What ranks other than the first receive of each parameter, if it runs on several.
    pub on_ranks: Option<Vec<RankShare>>,
}

/// A class: methods that share variables, of which each object has its own copy.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// `module/class`.
    pub name: String,
    /// One line of description, may be empty.
    pub about: String,
    /// Its variables (`DefState`).
    pub state: Option<CText>,
    /// Its methods, named `module/class.method`. `_initialize` and `_finalize` run automatically.
    pub methods: Vec<Definition>,
    /// The methods to compile.
    pub stubs: Vec<Stub>,
}

/// The code of a compiled function.
#[derive(Clone, PartialEq, Debug)]
pub enum StubCode {
    /// Runs the file's C text.
    Body(CText),
    /// Calls a function: in C++, one that `Globals` declare; in Fortran, a symbol.
    Call {
        is_fortran: bool,
        /// Its name and position.
        function: CText,
        args: Vec<CallArgument>,
        /// The parameter that receives its value.
        result: Option<usize>,
    },
}

impl Build {
    /// True if the source with these functions is C++: one of them is, or the compiler's name ends in `++`.
    pub fn is_cpp(&self, stubs: &[Stub]) -> bool {
        let compiler = self.compiler.as_deref().and_then(|command| shlex::split(command)?.into_iter().next());
        stubs.iter().any(|stub| stub.is_cpp) || compiler.is_some_and(|program| program.ends_with("++"))
    }

    /// True if one of these functions runs on several ranks.
    pub fn is_on_ranks(stubs: &[Stub]) -> bool {
        stubs.iter().any(|stub| stub.on_ranks.is_some())
    }

    /// Returns the source of the file's functions. `file` names the description in the compiler's messages.
    pub fn c_source(&self, definitions: &[Definition], file: &str) -> String {
        self.source(None, &self.stubs, definitions, file)
    }

    pub fn class_source(&self, class: &Class, file: &str) -> String {
        self.source(class.state.as_ref(), &class.stubs, &class.methods, file)
    }

    fn source(&self, state: Option<&CText>, stubs: &[Stub], definitions: &[Definition], file: &str) -> String {
        let file = quoted(file);
        let is_cpp = self.is_cpp(stubs);
        let mut source = String::from("/* Made by gridloom from an interface description; changes are lost. */\n");
        let is_on_ranks = Build::is_on_ranks(stubs);
        if is_on_ranks {
            // It includes everything that the other feature macros select.
            source.push_str("#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n");
        }
        // A macro such as _GNU_SOURCE must be defined before the first header.
        let chooses_features = !is_on_ranks && self.texts.iter().chain(state).any(|text| text.text.contains("_SOURCE"));
        if !chooses_features {
            source.push_str(PRELUDE);
        }
        if is_on_ranks {
            source.push_str(ranks::PRELUDE);
        }
        for text in self.texts.iter().chain(state) {
            push_text(&mut source, text, &file, "", "");
        }
        if chooses_features {
            source.push_str(PRELUDE);
        }
        source.push_str(OWN_TYPE_CHECKS);
        for stub in stubs {
            let signature = &definitions[stub.definition].signature;
            push_stub(&mut source, stub, signature, &Style { file: &file, is_cpp });
        }
        source
    }
}

/// The form in which the functions of a file are written.
struct Style<'a> {
    /// The file's name, as a C string.
    file: &'a str,
    is_cpp: bool,
}

/// The variable for the error code in the stubs that Ninf-G 4 generated. Bodies use it, such as Ninf-G's example of
/// cancellation.
pub const STUB_VARIABLE: &str = "error";

/// The macro that removes this variable from bodies: the same name in the file, or in a header that it includes, takes
/// precedence.
pub const OWN_STUB_VARIABLE: &str = "GRIDLOOM_OWN_ERROR";

/// Declarations that bodies may rely on: the headers that Ninf-G's own header includes, its complex numbers, the check for
/// cancellation of the call, and shared data. Its own header may be included, too, and so may those of [`HEADERS`].
const PRELUDE: &str = concat!(
    "#line 1 \"grpc_executable.h\"\n",
    include_str!("../include/grpc_executable.h"),
    // The worker sets the pointer when it loads the library (`gridloom-net/src/worker/queries.rs`).
    "#ifdef __cplusplus\nextern \"C\" {\n#endif\n__attribute__((weak)) int (*gridloom_is_canceled_np)(void) = 0;\n",
    "__attribute__((weak)) int grpc_is_canceled_np(grpc_error_t *error)\n",
    "{ if (error != NULL) *error = GRPC_NO_ERROR; return gridloom_is_canceled_np != 0 ? gridloom_is_canceled_np() : 0; }\n",
    "#ifdef __cplusplus\n}\n#endif\n",
    "#line 1 \"grpc_shared.h\"\n",
    include_str!("../include/grpc_shared.h"),
    "#line 1 \"omst.h\"\n",
    include_str!("../include/omst.h"),
    "#line 1 \"functions.h\"\n",
    include_str!("../prelude/functions.h"),
);

/// Types of the prelude that a file may define itself, each with the macro that removes the prelude's definition.
pub const YIELDED_TYPES: [(&str, &str); 2] =
    [("scomplex", "GRIDLOOM_OWN_SCOMPLEX"), ("dcomplex", "GRIDLOOM_OWN_DCOMPLEX")];

/// The names under which the compiler knows the parts of a source that are not from the file.
pub const OWN_SOURCES: [&str; 6] =
    ["grpc_executable.h", "grpc_shared.h", "omst.h", "functions.h", "ranks.h", BEHIND_DECLARATIONS];

/// The last of these names. It separates the file's declarations from its functions.
pub const BEHIND_DECLARATIONS: &str = "own_types.h";

/// Checks that the file's own definitions of these types have the size of the values that callers send.
const OWN_TYPE_CHECKS: &str = concat!(
    "#line 1 \"own_types.h\"\n",
    "#ifdef GRIDLOOM_OWN_SCOMPLEX\n",
    "typedef char gridloom_scomplex_is_two_floats[sizeof(scomplex) == 2 * sizeof(float) ? 1 : -1];\n",
    "#endif\n#ifdef GRIDLOOM_OWN_DCOMPLEX\n",
    "typedef char gridloom_dcomplex_is_two_doubles[sizeof(dcomplex) == 2 * sizeof(double) ? 1 : -1];\n",
    "#endif\n",
);

/// The headers of remote bodies, with their names.
pub const HEADERS: [(&str, &str); 3] = [
    ("grpc_executable.h", include_str!("../include/grpc_executable.h")),
    ("grpc_shared.h", include_str!("../include/grpc_shared.h")),
    ("omst.h", include_str!("../include/omst.h")),
];

fn push_stub(source: &mut String, stub: &Stub, signature: &Signature, style: &Style) {
    let Style { file, is_cpp } = *style;
    let c_type: fn(Dtype, bool) -> &'static str = match stub.code {
        StubCode::Body(_) => body_type,
        StubCode::Call { .. } => c_type,
    };
    let declared = |param: &Param| declaration(param, |dtype| c_type(dtype, is_cpp));
    let mut params: Vec<String> = signature.params.iter().map(declared).collect();
    for Callback { name, params: taken } in &signature.callbacks {
        let taken: Vec<String> = taken.iter().map(declared).collect();
        params.push(format!("void (*{name})({})", taken.join(", ")));
    }
    let params = if params.is_empty() { "void".to_string() } else { params.join(", ") };
    let linkage = if is_cpp { "extern \"C\" " } else { "" };
    let symbol = stub_symbol(signature);
    let _ = writeln!(source, "\n#line {} {file}", stub.line);
    let head = format!("{linkage}__attribute__((visibility(\"default\")))");
    let body = format!("{symbol}_body");
    let dtype_name = |dtype| c_type(dtype, is_cpp);
    let fortran = match &stub.code {
        StubCode::Call { is_fortran: true, function, args, result } => Some(FortranCall {
            caller: &symbol,
            symbol: &function.text,
            args,
            result: *result,
            signature,
            c_type: &dtype_name,
        }),
        _ => None,
    };
    if let Some(call) = &fortran {
        call.push_prototype(source, if is_cpp { linkage } else { "extern" });
    }
    let _ = match stub.on_ranks {
        None => writeln!(source, "{head}\nvoid {symbol}({params})\n{{"),
        Some(_) => writeln!(source, "static void {body}({params})\n{{"),
    };
    match &stub.code {
        StubCode::Body(text) => {
            if has_stub_variable(&text.text, signature) {
                let _ = writeln!(
                    source,
                    "#if !defined({OWN_STUB_VARIABLE}) && !defined({STUB_VARIABLE})\n\
                     __attribute__((unused)) grpc_error_t {STUB_VARIABLE} = GRPC_NO_ERROR;\n#endif"
                );
            }
            push_text(source, text, file, "{", "\n}");
        }
        StubCode::Call { function, args, result, .. } => {
            if let Some(call) = &fortran {
                call.push_call(source);
            } else {
                let args: Vec<String> = args.iter().map(|arg| argument(arg, signature, is_cpp)).collect();
                let value = result.map_or(String::new(), |index| format!("*{} = ", signature.params[index].name));
                push_text(source, function, file, &value, &format!("({});", args.join(", ")));
            }
        }
    }
    let Some(on_ranks) = &stub.on_ranks else {
        source.push_str("goto ng_stub_end;\nng_stub_end:;\n}\n");
        return;
    };
    source.push_str("goto ng_stub_end;\ngoto ng_stub_mpi_end;\nng_stub_end:;\nng_stub_mpi_end:;\n}\n");
    let style = ranks::Style { symbol: &symbol, body: &body, head: &head, c_type: &dtype_name, declared: &declared };
    ranks::push_functions(source, signature, &style, on_ranks);
}

/// True if a body gets the variable of Ninf-G 4, provided that the file does not define the name. A body that does not
/// use the variable does not get it, so that it can call the function `error` of the C library.
fn has_stub_variable(body: &str, signature: &Signature) -> bool {
    let params = signature.params.iter().map(|param| &param.name);
    let mut names = params.chain(signature.callbacks.iter().map(|callback| &callback.name));
    names.all(|name| name != STUB_VARIABLE) && uses_variable(body, STUB_VARIABLE)
}

/// The symbol of a definition's compiled function. It changes with the signature: a library built for another signature
/// does not have it.
pub fn stub_symbol(signature: &Signature) -> String {
    let function = signature.name.rsplit('/').next().unwrap_or_default();
    let plain: String = function.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("gridloom_{plain}_{:016x}", signature.hash())
}

/// Appends the text at its line and column, as the compiler counts them, with `before` and `behind` around it.
fn push_text(source: &mut String, text: &CText, file: &str, before: &str, behind: &str) {
    let blank = " ".repeat((text.column - 1).saturating_sub(before.chars().count()));
    let _ = writeln!(source, "#line {} {file}\n{blank}{before}{}{behind}", text.line, text.text);
}

fn declaration(param: &Param, c_type: impl Fn(Dtype) -> &'static str) -> String {
    let name = &param.name;
    match param.base {
        BaseType::Number(dtype) if param.mode == Mode::In && !param.is_array => format!("{} {name}", c_type(dtype)),
        BaseType::Number(dtype) if param.mode == Mode::VarOut => format!("{} **{name}", c_type(dtype)),
        BaseType::Number(dtype) => format!("{} *{name}", c_type(dtype)),
        BaseType::String if param.is_output() => format!("char **{name}"),
        BaseType::Stream if param.is_array => format!("FILE **{name}"),
        BaseType::Stream => format!("FILE *{name}"),
        _ if param.is_array => format!("char **{name}"),
        _ => format!("char *{name}"),
    }
}

/// The type in an inline body: complex numbers are those of Ninf-G.
fn body_type(dtype: Dtype, is_cpp: bool) -> &'static str {
    match dtype {
        Dtype::Complex64 => "scomplex",
        Dtype::Complex128 => "dcomplex",
        other => c_type(other, is_cpp),
    }
}

/// The C type with the words of the file: `char` and `long` are kept.
pub(crate) fn c_type(dtype: Dtype, is_cpp: bool) -> &'static str {
    match dtype {
        Dtype::Bool if is_cpp => "bool",
        Dtype::Bool => "_Bool",
        Dtype::Int8 => "char",
        Dtype::Int16 => "short",
        Dtype::Int32 => "int",
        Dtype::Int64 => "long",
        Dtype::Uint8 => "unsigned char",
        Dtype::Uint16 => "unsigned short",
        Dtype::Uint32 => "unsigned int",
        Dtype::Uint64 => "unsigned long",
        Dtype::Float16 => "_Float16",
        Dtype::Float32 => "float",
        Dtype::Float64 => "double",
        Dtype::LongDouble => "long double",
        Dtype::Complex64 => "float _Complex",
        Dtype::Complex128 => "double _Complex",
        Dtype::ComplexLongDouble => "long double _Complex",
    }
}

fn argument(arg: &CallArgument, signature: &Signature, is_cpp: bool) -> String {
    let params = &signature.params;
    match arg {
        CallArgument::Callback(index) => signature.callbacks[*index].name.clone(),
        CallArgument::Param(index) => params[*index].name.clone(),
        CallArgument::Text(text) => quoted(text),
        CallArgument::Value { dtype, expr } => format!("({}) ({})", c_type(*dtype, is_cpp), expr.display(params)),
    }
}

/// True if C has no such expression: powers are our own, and functions are not declared there.
pub(crate) fn is_not_c(expr: &Expr) -> bool {
    match expr {
        Expr::Number(_) | Expr::Param(_) => false,
        Expr::Unary(op, operand) => op.function().is_some() || is_not_c(operand),
        Expr::Binary(op, left, right) => {
            *op == BinaryOp::Power || op.function().is_some() || is_not_c(left) || is_not_c(right)
        }
        Expr::Conditional(condition, then, otherwise) => is_not_c(condition) || is_not_c(then) || is_not_c(otherwise),
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::parse_file;

    #[test]
    fn text_keeps_its_line_and_column() {
        let file = "Module m;\nGlobals { int calls; }\nDefine f(IN int n, OUT double *r, WORK double w[n][n])\n  { *r = n; }\n";
        let parsed = parse_file(file, "a \"b\".idl").unwrap();
        let source = parsed.build.c_source(&parsed.definitions, "a \"b\".idl");
        let (globals, stub) = source.rsplit_once("\n\n").unwrap();
        assert!(
            globals.contains("#include <stdio.h>")
                && globals.contains("#line 2 \"a \\\"b\\\".idl\"\n          int calls; \n"),
            "{globals}"
        );
        let symbol = super::stub_symbol(&parsed.definitions[0].signature);
        let head = format!("void {symbol}(int n, double *r, double *w)\n{{\n");
        assert!(
            stub.contains(&format!("{head}#line 4 \"a \\\"b\\\".idl\"\n  {{ *r = n; \n}}\ngoto ng_stub_end;")),
            "{stub}"
        );
    }

    #[test]
    fn what_the_function_allocates_is_set_by_pointer() {
        let text = "Define f(IN int n, VAROUT double x[m], OUT int *m, OUT string s, IN filename p, \
                    tell(IN int at[1], IN double so_far[n])) { *m = 0; }";
        let file = parse_file(text, "f.idl").unwrap();
        let source = file.build.c_source(&file.definitions, "f.idl");
        assert!(
            source.contains("(int n, double **x, int *m, char **s, char *p, void (*tell)(int *at, double *so_far))"),
            "{source}"
        );
    }

    #[test]
    fn a_class_is_a_source_with_its_state() {
        let file =
            "Globals { int g; }\nDefClass c {\n  DefState { int n = 5; }\n  DefMethod get(OUT int *r) { *r = n; }\n}";
        let parsed = parse_file(file, "t.idl").unwrap();
        let source = parsed.build.class_source(&parsed.classes[0], "t.idl");
        let state = "int g; \n#line 3 \"t.idl\"\n             int n = 5; \n";
        assert!(source.contains(state) && source.contains("gridloom_c_get_"), "{source}");
        assert!(!parsed.build.c_source(&parsed.definitions, "t.idl").contains("int n = 5"));
    }

    #[test]
    fn a_cpp_function_is_called_by_a_compiled_one() {
        let file = "Define f(IN int n, OUT int *r) Calls \"C++\" r = ns(n, 2*n, 1.5, \"a\");";
        let parsed = parse_file(file, "t.idl").unwrap();
        let source = parsed.build.c_source(&parsed.definitions, "t.idl");
        assert!(parsed.build.is_cpp(&parsed.build.stubs) && source.contains("extern \"C\" "), "{source}");
        assert!(source.contains("*r = ns(n, (int) (2*n), (double) (1.5), \"a\");"), "{source}");
    }

    fn source(text: &str) -> String {
        let file = parse_file(text, "t.idl").unwrap();
        file.build.c_source(&file.definitions, "t.idl")
    }

    #[test]
    fn bodies_of_ninf_g_4_have_its_variable() {
        let variable = "__attribute__((unused)) grpc_error_t error = GRPC_NO_ERROR;";
        let cancel = "Define cancel() { while (!grpc_is_canceled_np(&error)) sleep(1); }";
        assert!(source(cancel).contains(variable));
        for text in [
            "Define f() { int error; grpc_is_canceled_np(&error); }",
            "Define f() { char *error = dlerror(); puts(error); }",
            "Define f() { error(1, 0, \"none\"); }",
            "Define f(IN int error, OUT int *r) { *r = error; }",
            "Define f(OUT int *r, error()) { go(error); }",
        ] {
            assert!(!source(text).contains(variable), "{text}");
        }
    }

    #[test]
    fn the_language_of_called_functions_does_not_change_that_of_a_body() {
        let text = "Define f(IN int n, OUT double x[n]) Language \"Fortran\" { f_(&n, x); }";
        assert!(source(text).contains("(int n, double *x)\n{\n#line"), "{}", source(text));
    }

    #[test]
    fn fortran_is_called_on_ranks_by_its_symbol() {
        let text = "FortranFormat \"%s__\";\nDefine f(IN int n, IN string s, INOUT string t, IN double a[n][n], OUT int *r) Backend \"MPI\"\n\
                    Calls \"FORTRAN\" r = sub(n, s, a, 'N', \"up\", t, 2*n);";
        let source = source(text);
        let prototype = "_calls(void *, void *, void *, void *, void *, void *, void *, size_t, size_t, size_t) __asm__(\"sub__\");";
        assert!(source.contains("extern int gridloom_f_") && source.contains(prototype), "{source}");
        let length = "(s == NULL ? 0 : strlen(s))";
        let call = format!(
            "_calls((void *) &n, (void *) (s == NULL ? \"\" : s), (void *) a, (void *) &gridloom_value_3, (void *) \"up\", \
             (void *) gridloom_text_5, (void *) &gridloom_value_6, {length}, 2, gridloom_length_5);\n\
             gridloom_fortran_set(t, gridloom_text_5, gridloom_length_5);\n"
        );
        assert!(source.contains("*r = gridloom_f_") && source.contains(&call), "{source}");
        assert!(source.contains("char gridloom_value_3 = (char) (78);\n"), "{source}");
        assert!(source.contains("int gridloom_value_6 = (int) (2*n);\n"), "{source}");
    }
}
