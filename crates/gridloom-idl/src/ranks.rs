//! Bodies on several ranks of MPI (`Backend "MPI"`). The compiled function writes its call to a file, starts the ranks with
//! the server's `mpirun`, and reads the results. On the ranks, a second compiled function receives the call from the first rank.
//!
//! Scalars and strings are the same on every rank. An array's content is on the first rank; the others have NULL, memory of that
//! size (`allocate`, and scratch memory), or the content (`broadcast`). An array of strings or of paths is an array of pointers,
//! all NULL where only memory is allocated.

use std::fmt::Write as _;

use crate::expr::Expr;
use crate::signature::{BaseType, Mode, Param, Signature};
use gridloom_base::Dtype;

/// The share of an array that ranks other than the first receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RankShare {
    #[default]
    Nothing,
    Memory,
    Content,
}

/// The C that all such functions share.
pub(crate) const PRELUDE: &str = concat!("#line 1 \"ranks.h\"\n", include_str!("../prelude/ranks.h"));

/// Returns why a function cannot run on several ranks, with the remedy. `is_ours` is true for expressions that C does not have.
pub(crate) fn refused(signature: &Signature, is_ours: fn(&Expr) -> bool) -> Option<String> {
    if let Some(callback) = signature.callbacks.first() {
        return Some(format!(
            "callback '{}' cannot be passed to several ranks; leave it or Backend out",
            callback.name
        ));
    }
    signature.params.iter().find_map(|param| {
        let name = &param.name;
        let fits = match param.base {
            BaseType::Number(_) => param.mode != Mode::VarOut,
            BaseType::String | BaseType::File => true,
            _ => false,
        };
        if !fits {
            let kind = "numbers, strings, names of files, and arrays of them that are not VAROUT";
            return Some(format!("'{name}' cannot be passed to several ranks, which take {kind}"));
        }
        let is_known = |expr: &Expr| !is_ours(expr) && uses(expr, &|index| is_size(&signature.params[index]));
        let fits = sizes(param).into_iter().all(is_known);
        (!fits).then(|| {
            format!("on several ranks the size of '{name}' is one of IN scalars, without powers and functions")
        })
    })
}

/// Names and declarations used in the generated functions.
pub(crate) struct Style<'a> {
    /// The function's symbol.
    pub(crate) symbol: &'a str,
    /// The symbol of its body.
    pub(crate) body: &'a str,
    /// The text before a function that is found by its symbol.
    pub(crate) head: &'a str,
    pub(crate) c_type: &'a dyn Fn(Dtype) -> &'static str,
    /// Returns the declaration of a parameter.
    pub(crate) declared: &'a dyn Fn(&Param) -> String,
}

/// How a parameter is passed to the ranks.
#[derive(PartialEq, Eq)]
enum Passing {
    Value,
    /// A string that is only read, or a path.
    Text,
    /// A string that the function sets, by pointer.
    SetText,
    /// A scalar by pointer, or an array.
    Memory,
    /// An array of strings or of paths.
    Texts,
}

/// Appends the two functions of one that runs on several ranks.
pub(crate) fn push_functions(source: &mut String, signature: &Signature, style: &Style, on_ranks: &[RankShare]) {
    let params = &signature.params;
    push_sizes(source, params, style.symbol);
    push_rank(source, params, style, on_ranks);
    push_server(source, params, style);
}

/// Appends, for each array, a function that returns the number of its elements.
fn push_sizes(source: &mut String, params: &[Param], symbol: &str) {
    let values: Vec<&Param> = params.iter().filter(|param| is_size(param)).collect();
    let taken: Vec<String> = values.iter().map(|param| format!("{} {}", wide(param), param.name)).collect();
    let taken = if taken.is_empty() { "void".to_string() } else { taken.join(", ") };
    let unused: String = values.iter().map(|param| format!("(void){}; ", param.name)).collect();
    for param in params.iter().filter(|param| param.is_array) {
        let extents: Vec<String> =
            sizes(param).iter().map(|expr| format!("(size_t) ({})", expr.display(params))).collect();
        let (name, extents) = (&param.name, extents.join(" * "));
        let _ = writeln!(source, "static size_t {symbol}_size_{name}({taken}) {{ {unused}return {extents}; }}");
    }
}

fn bytes(param: &Param, params: &[Param], style: &Style) -> String {
    let BaseType::Number(dtype) = param.base else { return "0".to_string() };
    let kind = (style.c_type)(dtype);
    match param.is_array {
        true => format!("sizeof({kind}) * {}", count(param, params, style)),
        false => format!("sizeof({kind})"),
    }
}

/// Returns the C expression for the number of elements of an array.
fn count(param: &Param, params: &[Param], style: &Style) -> String {
    let given: Vec<&str> = params.iter().filter(|param| is_size(param)).map(|param| param.name.as_str()).collect();
    format!("{}_size_{}({})", style.symbol, param.name, given.join(", "))
}

/// The parameters, with those that sizes depend on first.
fn ordered(params: &[Param]) -> impl Iterator<Item = (usize, &Param)> {
    let of = |is_memory: bool| {
        let is_of = move |param: &Param| !matches!(passing(param), Passing::Value | Passing::Text) == is_memory;
        params.iter().enumerate().filter(move |(_, param)| is_of(param))
    };
    of(false).chain(of(true))
}

fn push_rank(source: &mut String, params: &[Param], style: &Style, on_ranks: &[RankShare]) {
    let Style { symbol, body, head, declared, .. } = style;
    let _ = writeln!(source, "{head}\nvoid {symbol}_rank(const char *gridloom_path)\n{{");
    for param in params {
        let _ = writeln!(source, "{};", declared(param));
    }
    source.push_str("FILE *gridloom_file = gridloom_rank_begin(gridloom_path);\n");
    for (index, param) in ordered(params) {
        let name = &param.name;
        let _ = match passing(param) {
            Passing::Text => writeln!(source, "{name} = gridloom_rank_text(gridloom_file);"),
            Passing::Value => writeln!(source, "gridloom_rank_scalar(gridloom_file, &{name}, sizeof {name});"),
            Passing::SetText => {
                let old = if is_read(param) { "gridloom_rank_text(gridloom_file)" } else { "NULL" };
                writeln!(source, "char *gridloom_set_{name} = {old};\n{name} = &gridloom_set_{name};")
            }
            Passing::Texts => {
                let (on, count) = (on_ranks[index], count(param, params, style));
                let is_everywhere = i32::from(on != RankShare::Nothing);
                let (is_read, is_shared) = (i32::from(is_read(param)), i32::from(on == RankShare::Content));
                writeln!(
                    source,
                    "{name} = gridloom_rank_texts(gridloom_file, {count}, {is_read}, {is_everywhere}, {is_shared});"
                )
            }
            Passing::Memory => {
                let on = if param.is_array { on_ranks[index] } else { RankShare::Content };
                let everywhere = i32::from(on != RankShare::Nothing || param.mode == Mode::Work);
                let (read, shared) = (i32::from(is_read(param)), i32::from(on == RankShare::Content));
                let bytes = bytes(param, params, style);
                let declared = declared(param);
                let kind = declared.strip_suffix(name.as_str()).unwrap_or(&declared);
                writeln!(
                    source,
                    "{name} = ({kind})gridloom_rank_array(gridloom_file, {bytes}, {read}, {everywhere}, {shared});"
                )
            }
        };
    }
    let all: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    let _ = writeln!(source, "{body}({});", all.join(", "));
    source.push_str("gridloom_file = gridloom_rank_results(gridloom_file, gridloom_path);\n");
    for param in params.iter().filter(|param| is_written(param)) {
        let name = &param.name;
        let _ = match passing(param) {
            Passing::SetText => writeln!(source, "gridloom_rank_write_text(gridloom_file, *{name});"),
            Passing::Texts => {
                let count = count(param, params, style);
                writeln!(source, "gridloom_rank_write_texts(gridloom_file, {name}, {count});")
            }
            _ => writeln!(source, "gridloom_rank_write(gridloom_file, {name}, {});", bytes(param, params, style)),
        };
    }
    source.push_str("gridloom_rank_end(gridloom_file);\n}\n");
}

fn push_server(source: &mut String, params: &[Param], style: &Style) {
    let Style { symbol, head, declared, .. } = style;
    let taken: Vec<String> = params.iter().map(declared).collect();
    let taken = if taken.is_empty() { "void".to_string() } else { taken.join(", ") };
    let _ = writeln!(source, "{head}\nvoid {symbol}({taken})\n{{\nchar gridloom_path[PATH_MAX];");
    source.push_str("FILE *gridloom_file = gridloom_write(gridloom_path);\n");
    for (_, param) in ordered(params) {
        let name = &param.name;
        let _ = match passing(param) {
            Passing::Text => writeln!(source, "gridloom_put_text(gridloom_file, {name});"),
            Passing::Value => writeln!(source, "gridloom_put(gridloom_file, &{name}, sizeof {name});"),
            Passing::SetText if is_read(param) => writeln!(source, "gridloom_put_text(gridloom_file, *{name});"),
            Passing::Texts if is_read(param) => {
                writeln!(source, "gridloom_put_texts(gridloom_file, {name}, {});", count(param, params, style))
            }
            Passing::Memory if is_read(param) => {
                writeln!(source, "gridloom_put(gridloom_file, {name}, {});", bytes(param, params, style))
            }
            Passing::Memory | Passing::SetText | Passing::Texts => writeln!(source, "(void){name};"),
        };
    }
    let _ = writeln!(
        source,
        "gridloom_file = gridloom_run(gridloom_file, gridloom_path, \"{symbol}_rank\", (void *){symbol}_rank);"
    );
    for param in params.iter().filter(|param| is_written(param)) {
        let name = &param.name;
        let _ = match passing(param) {
            Passing::SetText => writeln!(source, "gridloom_take_text(gridloom_file, {name});"),
            Passing::Texts => {
                let count = count(param, params, style);
                writeln!(source, "gridloom_take_texts(gridloom_file, {name}, {count});")
            }
            _ => writeln!(source, "gridloom_take(gridloom_file, {name}, {});", bytes(param, params, style)),
        };
    }
    source.push_str("fclose(gridloom_file);\n}\n");
}

fn passing(param: &Param) -> Passing {
    match param.base {
        BaseType::Number(_) if param.mode == Mode::In && !param.is_array => Passing::Value,
        BaseType::Number(_) => Passing::Memory,
        _ if param.is_array => Passing::Texts,
        BaseType::String if param.is_output() => Passing::SetText,
        _ => Passing::Text,
    }
}

/// True if the call contains the parameter's value. A path is an input even if its file is a result.
fn is_read(param: &Param) -> bool {
    matches!(param.mode, Mode::In | Mode::InOut) || param.base == BaseType::File
}

fn is_written(param: &Param) -> bool {
    matches!(param.mode, Mode::Out | Mode::InOut) && param.base != BaseType::File
}

/// True if sizes may depend on it.
fn is_size(param: &Param) -> bool {
    let is_real = |dtype: Dtype| dtype.is_integer() || matches!(dtype, Dtype::Bool | Dtype::Float32 | Dtype::Float64);
    passing(param) == Passing::Value && matches!(param.base, BaseType::Number(dtype) if is_real(dtype))
}

/// The type in which sizes are computed, so that they do not overflow.
fn wide(param: &Param) -> &'static str {
    match param.base {
        BaseType::Number(dtype) if dtype.is_integer() => "long long",
        _ => "double",
    }
}

/// The whole extents of an array.
fn sizes(param: &Param) -> Vec<&Expr> {
    match &param.slices {
        Some(slices) => slices.iter().map(|slice| &slice.size).collect(),
        None => param.dims.iter().collect(),
    }
}

fn uses(expr: &Expr, fits: &dyn Fn(usize) -> bool) -> bool {
    match expr {
        Expr::Number(_) => true,
        Expr::Param(index) => fits(*index),
        Expr::Unary(_, operand) => uses(operand, fits),
        Expr::Binary(_, left, right) => uses(left, fits) && uses(right, fits),
        Expr::Conditional(condition, then, otherwise) => {
            uses(condition, fits) && uses(then, fits) && uses(otherwise, fits)
        }
    }
}
