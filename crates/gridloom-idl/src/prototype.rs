//! The call of a function in C or Fortran: which arguments follow the handle, in which order and of which types. The
//! GridRPC library reads its arguments by the same rules.
//!
//! All arguments are passed in the order of the description. Scratch memory is allocated by the server, so the argument passed
//! for it (NULL, as a rule) is ignored. Sizes that callers in Python leave out are passed, too: they define the extents of an
//! array in C's memory.

use crate::c_text::c_type;
use crate::signature::{BaseType, Callback, Mode, Param, Signature};
use gridloom_base::{Dtype, Order};

/// How a program in C passes an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CArgument {
    /// A number, by value.
    Value(Dtype),
    Address,
}

impl Param {
    /// How a program in C passes it.
    ///
    /// # Errors
    /// A description of it, if C cannot pass it.
    pub fn c_argument_kind(&self) -> Result<CArgument, &'static str> {
        match self.base {
            BaseType::Bytes => Err("bytes"),
            BaseType::Number(Dtype::Float16) if !self.is_array && self.mode == Mode::In => Err("a float16 by value"),
            BaseType::Number(dtype) if !self.is_array && self.mode == Mode::In => Ok(CArgument::Value(dtype)),
            BaseType::Number(_) | BaseType::Text | BaseType::String | BaseType::File | BaseType::Stream => {
                Ok(CArgument::Address)
            }
        }
    }
}

impl Signature {
    /// Returns `grpc_call(&handle, int n, const double *x /* [n] */, double *sum /* out */)`, or, for a method,
    /// `grpc_invoke_np(&object, "add", …)`. `method` is the method's name without its class.
    ///
    /// # Errors
    /// If a program in C cannot call it: the argument that it cannot pass.
    pub fn c_prototype(&self, method: Option<&str>) -> Result<String, String> {
        let (call, mut arguments) = match method {
            Some(method) => ("grpc_invoke_np", vec!["&object".to_string(), format!("\"{method}\"")]),
            None => ("grpc_call", vec!["&handle".to_string()]),
        };
        for param in &self.params {
            param.c_argument_kind().map_err(|what| self.cannot_pass(param, what))?;
            arguments.push(self.c_argument(param));
        }
        arguments.extend(self.callbacks.iter().map(|callback| self.c_callback(callback)));
        Ok(format!("{call}({})", arguments.join(", ")))
    }

    /// The error that a program in C cannot pass an argument, described by `what`.
    pub fn cannot_pass(&self, param: &Param, what: &str) -> String {
        format!("{}: argument '{}' is {what}, which C programs cannot pass yet", self.name, param.name)
    }

    /// `const double *x /* [n] */`.
    fn c_argument(&self, param: &Param) -> String {
        let BaseType::Number(dtype) = param.base else { return self.c_text(param) };
        let kind = c_type(dtype, false);
        let name = &param.name;
        if let Ok(CArgument::Value(_)) = param.c_argument_kind() {
            return format!("{kind} {name}");
        }
        let mut notes = Vec::new();
        if param.is_array {
            let turned = if param.memory_order() == Order::F && param.dims.len() > 1 { " by columns" } else { "" };
            notes.extend(Some(self.extents_text(param) + turned).filter(|extents| !extents.is_empty()));
        }
        notes.extend(direction(param.mode).map(str::to_string));
        let declared = match param.mode {
            Mode::In => format!("const {kind} *{name}"),
            Mode::VarOut => {
                notes.push(OURS_TO_FREE.to_string());
                format!("{kind} **{name}")
            }
            Mode::Out | Mode::InOut | Mode::Work => format!("{kind} *{name}"),
        };
        noted(&declared, &notes)
    }

    /// An argument that is not a number: a text, the path of a file, or a file; or an array of those.
    fn c_text(&self, param: &Param) -> String {
        let name = &param.name;
        let mut notes: Vec<String> = Vec::new();
        let (kind, is_const) = match param.base {
            BaseType::File => {
                notes.push(if param.is_array { "paths of files" } else { "path of a file" }.to_string());
                ("char *", true)
            }
            BaseType::Stream => ("FILE *", false),
            _ => ("char *", !param.is_output()),
        };
        if param.is_array {
            notes.push(self.extents_text(param));
        }
        notes.extend(direction(param.mode).map(str::to_string));
        let is_string_set = param.is_output() && !matches!(param.base, BaseType::File | BaseType::Stream);
        if is_string_set {
            notes.push(OURS_TO_FREE.to_string());
        }
        let star = if param.is_array || is_string_set { "*" } else { "" };
        noted(&format!("{}{kind}{star}{name}", if is_const { "const " } else { "" }), &notes)
    }

    /// `void (*tell)(const int *at /* [1] */)`.
    fn c_callback(&self, callback: &Callback) -> String {
        let taken: Vec<String> = callback.params.iter().map(|param| self.c_argument(param)).collect();
        let taken = if taken.is_empty() { "void".to_string() } else { taken.join(", ") };
        format!("void (*{})({taken})", callback.name)
    }
}

fn direction(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::In => None,
        Mode::Work => Some("scratch: NULL"),
        Mode::Out | Mode::VarOut => Some("out"),
        Mode::InOut => Some("in and out"),
    }
}

fn noted(declared: &str, notes: &[String]) -> String {
    if notes.is_empty() { declared.to_string() } else { format!("{declared} /* {} */", notes.join(", ")) }
}

/// Note for memory that the library allocates for the program.
const OURS_TO_FREE: &str = "free it";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    /// The text between the handle and the end.
    fn arguments(text: &str) -> String {
        let prototype = parse(text, "t.idl").unwrap()[0].signature.c_prototype(None).unwrap();
        let arguments = prototype.strip_prefix("grpc_call(&handle").and_then(|rest| rest.strip_suffix(')'));
        arguments.unwrap().trim_start_matches(", ").to_string()
    }

    #[test]
    fn arguments_stand_in_the_order_of_the_description() {
        let text = "Define f(OUT double x[n], IN int n, WORK double w[n], IN double a[n][2*n], INOUT float *s) \
                    Calls f(n, a, w, x, s);";
        assert_eq!(
            arguments(text),
            "double *x /* [n], out */, int n, double *w /* [n], scratch: NULL */, const double *a /* [n][2*n] */, \
             float *s /* in and out */"
        );
        assert_eq!(arguments("Define f() Calls f();"), "");
    }

    #[test]
    fn each_type_is_that_of_c() {
        let text = "Define f(IN char a, IN long b, IN unsigned int c, IN float d, IN dcomplex e, IN bool g, \
                    IN long double h, OUT scomplex *i, IN float16 k[1]) Calls f(a, b, c, d, e, g, h, i, k);";
        assert_eq!(
            arguments(text),
            "char a, long b, unsigned int c, float d, double _Complex e, _Bool g, long double h, \
             float _Complex *i /* out */, const _Float16 *k /* [1] */"
        );
    }

    #[test]
    fn texts_and_files_are_passed_by_their_address() {
        let text = "Define f(IN string s, OUT string t, INOUT string u, IN filename p, OUT filename q) \
                    Calls f(s, t, u, p, q);";
        assert_eq!(
            arguments(text),
            "const char *s, char **t /* out, free it */, char **u /* in and out, free it */, \
             const char *p /* path of a file */, const char *q /* path of a file, out */"
        );
    }

    #[test]
    fn arrays_report_their_slices_and_which_arrays_the_function_allocates() {
        let text = "Define f(IN int n, IN double x[n : 0, n, 2], VAROUT int y[m], OUT int *m) \
                    Shrink \"yes\" Calls f(n, x, y, m);";
        assert_eq!(
            arguments(text),
            "int n, const double *x /* [n : 0, n, 2] */, int **y /* [m], out, free it */, int *m /* out */"
        );
    }

    #[test]
    fn callbacks_come_last() {
        let text = "Define f(IN int n, tell(IN int at[1], OUT double go[n]), stop()) Calls f(n, tell, stop);";
        assert_eq!(
            arguments(text),
            "int n, void (*tell)(const int *at /* [1] */, double *go /* [n], out */), void (*stop)(void)"
        );
    }

    #[test]
    fn only_what_fortran_has_by_columns_is_so_for_c() {
        let fortran = "Define f(IN int n, IN double a[n][n], IN double x[n]) Calls \"FORTRAN\" f(n, a, x);";
        assert_eq!(arguments(fortran), "int n, const double *a /* [n][n] by columns */, const double *x /* [n] */");
        let turned = "SUBROUTINE f(IN int n, IN double a[n][n]) LANGUAGE = \"FORTRAN\"";
        assert_eq!(arguments(turned), "int n, const double *a /* [n][n] */");
    }

    #[test]
    fn types_that_c_cannot_pass_are_reported() {
        let text = "Define f(IN float16 x, IN int n) Calls f(x, n);";
        let mut signature = parse(text, "t.idl").unwrap().remove(0).signature;
        assert!(signature.c_prototype(None).unwrap_err().contains("t/f: argument 'x' is a float16 by value"));
        signature.params[0].base = BaseType::Bytes;
        assert!(signature.c_prototype(None).unwrap_err().contains("argument 'x' is bytes"));
        // A size that Python infers is passed in its place.
        signature.params[0].base = BaseType::Text;
        signature.params[1].hidden = true;
        assert_eq!(signature.c_prototype(None).unwrap(), "grpc_call(&handle, const char *x, int n)");
    }
}
