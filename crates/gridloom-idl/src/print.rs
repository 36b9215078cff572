//! Signatures as one line for people, and definitions as text of the language.

use std::fmt;

use crate::expr::Expr;
use crate::names::is_name;
use crate::signature::{ArrayOrder, BaseType, Body, CallArgument, Definition, Language, Param, Signature};
use crate::slice::Slice;
use crate::type_words::type_name;
use crate::uses::Retention;
use crate::values::AllowedValues;
use gridloom_base::{Dtype, EscapedBytes, Method, Order};

/// `linalg/dgemm(a: float64[m, k], b: float64[k, n]; m, n, k: int32) -> c: float64[m, n]`: positional parameters, then
/// those that are inferred and may be given by name, then the results.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inferable = self.grouped(&self.inferable());
        let semicolon = if inferable.is_empty() { "" } else { "; " };
        write!(f, "{}({}{semicolon}{inferable}) -> ", self.name, self.grouped(&self.positional()))?;
        let outputs: Vec<usize> = (0..self.params.len()).filter(|index| self.params[*index].is_output()).collect();
        match outputs.len() {
            1 => f.write_str(&self.grouped(&outputs))?,
            _ => write!(f, "({})", self.grouped(&outputs))?,
        }
        for (at, callback) in self.callbacks.iter().enumerate() {
            let params: Vec<String> =
                callback.params.iter().map(|param| format!("{}: {}", param.name, self.described(param))).collect();
            write!(f, "{} {}({})", if at == 0 { ", calling" } else { "," }, callback.name, params.join(", "))?;
        }
        Ok(())
    }
}

impl Signature {
    /// `m, n: int32, x: float64[n]`.
    fn grouped(&self, indices: &[usize]) -> String {
        let mut text = String::new();
        for (at, index) in indices.iter().enumerate() {
            let described = self.described(&self.params[*index]);
            text.push_str(if at == 0 { "" } else { ", " });
            text.push_str(&self.params[*index].name);
            let next = indices.get(at + 1).map(|next| self.described(&self.params[*next]));
            if next.as_ref() != Some(&described) {
                text.push_str(": ");
                text.push_str(&described);
            }
        }
        text
    }

    /// `float64[m, k]`.
    fn described(&self, param: &Param) -> String {
        let base = match param.base {
            BaseType::Number(dtype) => dtype.name(),
            BaseType::Text | BaseType::String => "string",
            BaseType::Bytes => "bytes",
            BaseType::File | BaseType::Stream => "file",
        };
        if !param.is_array {
            return base.to_string();
        }
        if param.slices.is_some() {
            return base.to_string() + &self.extents_text(param);
        }
        let dims: Vec<String> = param.dims.iter().map(|dim| dim.display(&self.params).to_string()).collect();
        let order = if param.order.in_memory() == Some(Order::F) && dims.len() > 1 { " in Fortran order" } else { "" };
        format!("{base}[{}]{order}", dims.join(", "))
    }

    fn declaration(&self, param: &Param) -> String {
        let mut text = format!("{} {} ", param.mode, type_name(param.base));
        if param.is_output() && !param.is_array && matches!(param.base, BaseType::Number(_)) {
            text.push('*');
        }
        text.push_str(&param.name);
        text.push_str(&self.extents_text(param));
        if let Some(values) = &param.values {
            text.push_str(if param.is_array { " each in " } else { " values in " });
            text.push_str(&match values {
                AllowedValues::Characters(letters) => quoted(letters),
                AllowedValues::Range(first, last) => {
                    format!("{}..{}", first.display(&self.params), last.display(&self.params))
                }
            });
        }
        text
    }

    /// `[m][k]`, or `[n : 0, n, step]`.
    pub(crate) fn extents_text(&self, param: &Param) -> String {
        match &param.slices {
            None => param.dims.iter().map(|dim| format!("[{}]", dim.display(&self.params))).collect(),
            Some(slices) => slices.iter().map(|slice| self.sliced(slice)).collect(),
        }
    }

    fn sliced(&self, slice: &Slice) -> String {
        let [size, start, end, step] = slice.expressions().map(|expr| expr.display(&self.params).to_string());
        if slice.is_whole() { format!("[{size}]") } else { format!("[{size} : {start}, {end}, {step}]") }
    }
}

/// Text of the language that defines the same function, if the body is native; a comment replaces a Python body. Texts of
/// several definitions can be concatenated.
impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signature = &self.signature;
        let (module, function) = signature.name.split_once('/').unwrap_or(("", &signature.name));
        writeln!(f, "Module {module};")?;
        let mut params: Vec<String> = signature.params.iter().map(|param| signature.declaration(param)).collect();
        for callback in &signature.callbacks {
            let inner: Vec<String> = callback.params.iter().map(|param| signature.declaration(param)).collect();
            params.push(format!("{}({})", callback.name, inner.join(", ")));
        }
        if let Some(routine) = routine_text(self, &params) {
            return f.write_str(&routine);
        }
        if matches!(&self.body, Body::Native { language: Language::Fortran, .. }) {
            // The symbol is stored in its formatted form.
            writeln!(f, "FortranFormat \"%s\";")?;
        }
        writeln!(f, "Define {function}({})", params.join(", "))?;
        if !signature.about.is_empty() {
            writeln!(f, "{}", quoted(&signature.about))?;
        }
        if signature.params.iter().any(|param| param.slices.is_some()) {
            writeln!(f, "Shrink \"yes\"")?;
        }
        if let Some(work) = &signature.work {
            writeln!(f, "CalcOrder {}", work.display(&signature.params))?;
        }
        for used in &signature.uses {
            let (name, size_bytes) = (quoted(&signature.pattern(used)), used.size_bytes.display(&signature.params));
            write!(f, "{}({name}, {size_bytes}", used.kind.word())?;
            let Retention { replicas, is_durable, method } = used.retention;
            if replicas != 1 {
                write!(f, ", replicas {replicas}")?;
            }
            if method != Method::Auto {
                write!(f, ", method {method}")?;
            }
            writeln!(f, "{})", if is_durable { ", durable" } else { "" })?;
        }
        match &self.body {
            Body::Native { language, symbol, args, result } => {
                let language = match language {
                    Language::C => "C",
                    Language::Fortran => "FORTRAN",
                };
                write!(f, "Calls \"{language}\" ")?;
                if let Some((_, index)) = result {
                    let name =
                        signature.params.get(*index).map_or_else(|| format!("#{index}"), |param| param.name.clone());
                    write!(f, "{name} = ")?;
                }
                let args: Vec<String> = args.iter().map(|arg| argument(arg, signature)).collect();
                writeln!(f, "{symbol}({});", args.join(", "))
            }
            Body::Python { module, function } => {
                writeln!(f, "/* Python: {function} of {} */", EscapedBytes::of(module))
            }
            Body::Program { command, .. } => {
                let words: Vec<String> = command.iter().map(|word| EscapedBytes::of(&word).to_string()).collect();
                writeln!(f, "/* program: {} */", words.join(" "))
            }
        }
    }
}

/// Returns the definition as a routine, if it cannot be written otherwise: for arrays that `Calls` has in another order, and for
/// symbols that are not names.
fn routine_text(definition: &Definition, declared: &[String]) -> Option<String> {
    let signature = &definition.signature;
    let Body::Native { language, symbol, result, .. } = &definition.body else { return None };
    let order = signature.params.iter().find(|param| param.is_array).map(|param| param.order);
    let is_usual = matches!(
        (language, order),
        (_, None) | (Language::C, Some(ArrayOrder::C)) | (Language::Fortran, Some(ArrayOrder::F))
    );
    if is_usual && is_name(symbol) {
        return None;
    }
    let order = order.unwrap_or(language.array_order());
    let (head, passed) = match result {
        None => ("SUBROUTINE".to_string(), declared),
        Some((dtype, index)) => (format!("FUNCTION {}", type_name(BaseType::Number(*dtype))), declared.get(..*index)?),
    };
    let function = signature.name.rsplit('/').next().unwrap_or_default();
    let language = if *language == Language::C { "C" } else { "FORTRAN" };
    let major = if order == ArrayOrder::C { "ROW" } else { "COLUMN" };
    let mut text = format!("{head} {function}({})\n", passed.join(", "));
    if !signature.about.is_empty() {
        text.push_str(&format!("{}\n", quoted(&signature.about)));
    }
    text.push_str(&format!("LANGUAGE = \"{language}\" MAJOR = \"{major}\" SYMBOL = {}\n", quoted(symbol)));
    if let Some(work) = &signature.work {
        text.push_str(&format!("COMPLEXITY = \"{}\"\n", work.display(&signature.params)));
    }
    Some(text)
}

fn argument(arg: &CallArgument, signature: &Signature) -> String {
    let params = &signature.params;
    match arg {
        CallArgument::Callback(index) => {
            signature.callbacks.get(*index).map_or_else(|| format!("#{index}"), |callback| callback.name.clone())
        }
        CallArgument::Param(index) => {
            params.get(*index).map_or_else(|| format!("#{index}"), |param| param.name.clone())
        }
        CallArgument::Text(text) => quoted(text),
        CallArgument::Value { dtype: Dtype::Int8, expr: Expr::Number(code) }
            if (32.0..127.0).contains(code) && code.fract() == 0.0 =>
        {
            let character = char::from(*code as u8);
            let escape = if matches!(character, '\'' | '\\') { "\\" } else { "" };
            format!("'{escape}{character}'")
        }
        CallArgument::Value { dtype: Dtype::Float64, expr: Expr::Number(number) } => format!("{number:?}"),
        CallArgument::Value { dtype: Dtype::Int32, expr }
            if expr.is_integral(params) && !matches!(expr, Expr::Param(_)) =>
        {
            expr.display(params).to_string()
        }
        CallArgument::Value { dtype, expr } => {
            format!("({}) ({})", type_name(BaseType::Number(*dtype)), expr.display(params))
        }
    }
}

/// Quotes a text, as the language and C read it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\\' => quoted.extend(['\\', character]),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
