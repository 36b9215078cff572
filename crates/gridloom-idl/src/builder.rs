//! Signatures built by a program, for example by the Python interface from the annotations of a function.
//!
//! Extents are expressions in text. A bare name in an expression that is not a parameter becomes a hidden size: an
//! `int64` input that is inferred from the arrays. Hidden sizes follow the declared inputs, in order of first use.

use crate::method::check_function_name;
use crate::parse::lexer::{IdlError, Lexer, Token};
use crate::parse::{parse_expression, parse_name};
use crate::signature::{ArrayOrder, BaseType, Mode, Param, Signature};
use crate::uses::{Retention, SharedUse, UseKind};
use gridloom_base::Dtype;

/// Builds a [`Signature`] step by step; mistakes are reported by [`SignatureBuilder::build`].
#[derive(Clone, Debug)]
pub struct SignatureBuilder {
    name: String,
    inputs: Vec<Declared>,
    outputs: Vec<Declared>,
    work: Option<String>,
    /// Kind of use, name, size, and how it is kept.
    uses: Vec<(UseKind, String, String, Retention)>,
    /// Result and its likely size.
    likely: Vec<(String, String)>,
    about: String,
}

#[derive(Clone, Debug)]
struct Declared {
    param: Param,
    dims: Vec<String>,
}

impl SignatureBuilder {
    /// Starts a function `module/function` without parameters.
    pub fn new(name: &str) -> SignatureBuilder {
        let (inputs, outputs) = (Vec::new(), Vec::new());
        let (uses, likely) = (Vec::new(), Vec::new());
        SignatureBuilder { name: name.to_string(), inputs, outputs, work: None, uses, likely, about: String::new() }
    }

    /// Adds an `IN` parameter: an array with the extents `dims` (an empty slice: 0 dimensions), or a scalar if `dims` is `None`.
    pub fn input(mut self, name: &str, base: BaseType, dims: Option<&[&str]>, order: ArrayOrder) -> SignatureBuilder {
        self.inputs.push(declared(name, Mode::In, base, dims, order));
        self
    }

    /// Adds an `INOUT` parameter.
    pub fn inout(mut self, name: &str, base: BaseType, dims: Option<&[&str]>, order: ArrayOrder) -> SignatureBuilder {
        self.inputs.push(declared(name, Mode::InOut, base, dims, order));
        self
    }

    /// Adds an `OUT` parameter. Outputs follow all inputs.
    pub fn output(mut self, name: &str, base: BaseType, dims: Option<&[&str]>, order: ArrayOrder) -> SignatureBuilder {
        self.outputs.push(declared(name, Mode::Out, base, dims, order));
        self
    }

    /// Sets the work in floating-point operations, as an expression over scalar inputs and sizes.
    pub fn work(mut self, expression: &str) -> SignatureBuilder {
        self.work = Some(expression.to_string());
        self
    }

    /// Declares shared data that the function gets or puts. The size in bytes is an expression, as an extent is. The name may
    /// contain expressions and string inputs in braces: `part/{i}`.
    pub fn uses(self, does: UseKind, name: &str, size_bytes: &str) -> SignatureBuilder {
        self.uses_kept(does, name, size_bytes, Retention::default())
    }

    /// Same as `uses`, for data that the function puts. `kept` specifies how servers keep them.
    pub fn uses_kept(mut self, does: UseKind, name: &str, size_bytes: &str, kept: Retention) -> SignatureBuilder {
        self.uses.push((does, name.to_string(), size_bytes.to_string(), kept));
        self
    }

    /// Sets the likely size in bytes of a result that is a text, bytes or a file: an expression like the work.
    pub fn likely(mut self, output: &str, size_bytes: &str) -> SignatureBuilder {
        self.likely.push((output.to_string(), size_bytes.to_string()));
        self
    }

    /// Sets the one-line description.
    pub fn about(mut self, text: &str) -> SignatureBuilder {
        self.about = text.to_string();
        self
    }

    /// Returns the signature.
    ///
    /// # Errors
    /// If an expression or the signature is invalid. The error's file is the name of the function, and its column is the
    /// position in the expression.
    pub fn build(self) -> Result<Signature, IdlError> {
        let SignatureBuilder { name, inputs, outputs, work, uses, likely, about } = self;
        let fail = |message: String| IdlError { file: name.clone(), line: 1, column: 1, message };
        check_function_name(&name).map_err(fail)?;
        let declared: Vec<&str> = inputs.iter().chain(&outputs).map(|one| one.param.name.as_str()).collect();
        let mut hidden: Vec<String> = Vec::new();
        for dim in inputs.iter().chain(&outputs).flat_map(|one| &one.dims) {
            for found in names_in(dim) {
                if !declared.contains(&found.as_str()) && !hidden.contains(&found) {
                    hidden.push(found);
                }
            }
        }
        let hidden_params = hidden.iter().map(|size| {
            let mut param = Param::scalar(size, Mode::In, BaseType::Number(Dtype::Int64));
            param.hidden = true;
            Declared { param, dims: Vec::new() }
        });
        let all: Vec<Declared> = inputs.iter().cloned().chain(hidden_params).chain(outputs.iter().cloned()).collect();
        let names: Vec<&str> = all.iter().map(|one| one.param.name.as_str()).collect();
        let expression = |what: &str, text: &str| {
            if text.contains("//") {
                let why = "'//' begins a comment; '/' divides, and the quotient of two integers is an integer";
                return Err(fail(format!("{what}: '{text}': {why}")));
            }
            parse_expression(text, &names).map_err(|error| IdlError {
                file: name.clone(),
                message: format!("{what}: '{text}': {}", error.message),
                ..error
            })
        };
        let mut params = Vec::with_capacity(all.len());
        for one in &all {
            let mut param = one.param.clone();
            for dim in &one.dims {
                param.dims.push(expression(&format!("extent of '{}'", param.name), dim)?);
            }
            params.push(param);
        }
        for (output, size_bytes) in likely {
            let size = expression(&format!("likely size of '{output}'"), &size_bytes)?;
            match params.iter_mut().find(|param| param.name == output && param.is_output()) {
                Some(param) => param.likely_bytes = Some(size),
                None => return Err(fail(format!("likely size of '{output}': there is no result of that name"))),
            }
        }
        let work = work.map(|text| expression("work", &text)).transpose()?;
        let declared = uses.into_iter().map(|(does, shared, size_bytes, kept)| {
            let size_bytes = expression(&format!("size of {shared:?}"), &size_bytes)?;
            let wrong = |why| fail(format!("{} {shared:?}: {why}", does.word()));
            Ok(SharedUse {
                kind: does,
                name: parse_name(&shared, &params).map_err(wrong)?,
                size_bytes,
                retention: kept,
            })
        });
        let uses = declared.collect::<Result<_, _>>()?;
        let signature = Signature { name: name.clone(), params, callbacks: Vec::new(), work, uses, about };
        signature.check().map_err(fail)?;
        Ok(signature)
    }
}

fn declared(name: &str, mode: Mode, base: BaseType, dims: Option<&[&str]>, order: ArrayOrder) -> Declared {
    let texts = dims.unwrap_or_default().iter().map(|dim| (*dim).to_string()).collect();
    let mut param = Param::scalar(name, mode, base);
    param.is_array = dims.is_some();
    param.order = if dims.is_some() { order } else { ArrayOrder::Any };
    Declared { param, dims: texts }
}

/// Returns the names in an expression, in order. A text that is not an expression is rejected later, by the parser.
fn names_in(text: &str) -> Vec<String> {
    let mut lexer = Lexer::new(text);
    let mut names = Vec::new();
    while let Ok((token, _)) = lexer.next() {
        match token {
            Token::Name(name) => names.push(name),
            Token::End => break,
            _ => {}
        }
    }
    names
}
