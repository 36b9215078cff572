//! The native call of a definition: `Calls "C" info = fn(n, 2*n, 1.0, (long) n, 'N', "upper", a);`
//!
//! An argument that is a parameter's name is passed as that parameter. Any other expression is passed as the type of its
//! cast. Without a cast, it is a `double` if it contains a real constant or parameter, else an `int`. A character is a
//! `char`, a string a `char *`. Fortran receives all of them by pointer. Calls of C++ functions are compiled, like inline
//! bodies.

use super::cursor::{Parser, SourceLanguage};
use super::lexer::{IdlError, Position, Token};
use crate::c_text::{CText, StubCode, is_not_c};
use crate::evaluation::Use;
use crate::expr::Expr;
use crate::scalar::can_be_returned;
use crate::signature::{BaseType, Body, CallArgument, Language, Mode, Param};
use crate::type_words::{is_type_word, type_from_words, type_name};
use gridloom_base::Dtype;
use gridloom_base::limits::PARAMETERS_MAX;

/// How a definition is run.
pub(crate) enum BodyKind {
    /// A symbol of a library.
    Symbol(Body),
    /// A generated function that is compiled.
    Stub { is_cpp: bool, code: StubCode },
}

impl Parser<'_> {
    pub(crate) fn body(
        &mut self,
        default: Option<SourceLanguage>,
        params: &[Param],
        names: &[String],
    ) -> Result<BodyKind, IdlError> {
        let (token, place) = self.next()?;
        match &token {
            Token::Name(word) if word == "Calls" => self.calls(default, params, names),
            // As in Ninf-G, a body is C unless it is C++: `Language "FORTRAN"` describes the functions that it calls.
            Token::Mark("{") => {
                let code = StubCode::Body(self.c_text(place)?);
                Ok(BodyKind::Stub { is_cpp: default == Some(SourceLanguage::Cpp), code })
            }
            other => Err(self.expected("an option (such as 'CalcOrder'), 'Calls' or a body in braces", other, place)),
        }
    }

    fn calls(
        &mut self,
        default: Option<SourceLanguage>,
        params: &[Param],
        names: &[String],
    ) -> Result<BodyKind, IdlError> {
        let has_language = matches!(self.peek()?.0, Token::Text(_));
        let language = if has_language { self.language()? } else { default.unwrap_or(SourceLanguage::C) };
        let (mut symbol, mut symbol_place) = self.name("the name of the function to call")?;
        let mut result = None;
        if self.take_mark("=")? {
            result = Some(self.result(&symbol, symbol_place, params, names)?);
            (symbol, symbol_place) = self.name("the name of the function to call")?;
        }
        let args = self.call_arguments(params, names)?;
        self.mark(";")?;
        for (index, param) in params.iter().enumerate() {
            let passed = args.contains(&CallArgument::Param(index)) || result.is_some_and(|(_, at)| at == index);
            if !passed && param.mode != Mode::In {
                let (mode, name) = (param.mode, &param.name);
                let message = format!("{mode} parameter '{name}' is not passed to {symbol}; add it to the arguments");
                return Err(self.error(symbol_place, message));
            }
        }
        let is_passed = |index: usize| args.contains(&CallArgument::Callback(index));
        if let Some(unpassed) = (0..self.callbacks.len()).find(|index| !is_passed(*index)) {
            let name = &self.callbacks[unpassed].name;
            let message = format!("callback '{name}' is not passed to {symbol}; add it to the arguments");
            return Err(self.error(symbol_place, message));
        }
        self.check_fresh(language == SourceLanguage::Fortran, params, symbol_place)?;
        let language = match language {
            SourceLanguage::C => Language::C,
            SourceLanguage::Fortran => Language::Fortran,
            SourceLanguage::Cpp => {
                let result = result.map(|(_, index)| index);
                return self.calls_cpp(symbol, symbol_place, args, result);
            }
        };
        let symbol = if language == Language::Fortran { self.fortran_symbol(&symbol) } else { symbol };
        Ok(BodyKind::Symbol(Body::Native { language, symbol, args, result }))
    }

    /// Rejects parameters that a Fortran function would allocate: they are returned through a pointer to a pointer,
    /// which Fortran does not have.
    pub(crate) fn check_fresh(&self, is_fortran: bool, params: &[Param], place: Position) -> Result<(), IdlError> {
        let has_pointers =
            |param: &&Param| param.mode == Mode::VarOut || param.is_list() || param.base == BaseType::Stream;
        match params.iter().find(|param| is_fortran && has_pointers(param)) {
            None => Ok(()),
            Some(Param { name, mode, .. }) => {
                let message = format!(
                    "{mode} parameter '{name}' needs a function that is called as \"C\": it is passed by a pointer to pointers"
                );
                Err(self.error(place, message))
            }
        }
    }

    fn calls_cpp(
        &self,
        name: String,
        place: Position,
        args: Vec<CallArgument>,
        result: Option<usize>,
    ) -> Result<BodyKind, IdlError> {
        if args.iter().any(|arg| matches!(arg, CallArgument::Value { expr, .. } if is_not_c(expr))) {
            let message =
                "a C++ call cannot pass powers or functions: write a product, or an inline body, `{ fn(pow(n, 2)); }`";
            return Err(self.error(place, message.to_string()));
        }
        let function = CText { line: place.line, column: place.column, text: name };
        Ok(BodyKind::Stub { is_cpp: true, code: StubCode::Call { is_fortran: false, function, args, result } })
    }

    /// Returns the `OUT` scalar that receives the returned value.
    fn result(
        &self,
        name: &str,
        place: Position,
        params: &[Param],
        names: &[String],
    ) -> Result<(Dtype, usize), IdlError> {
        let Some(index) = names.iter().position(|known| known == name) else {
            return Err(self.unknown_name(name, place, names));
        };
        match &params[index] {
            Param { mode: Mode::Out, base: BaseType::Number(dtype), is_array: false, .. }
                if can_be_returned(*dtype) =>
            {
                Ok((*dtype, index))
            }
            param => {
                let what = if param.is_array { "array" } else { "scalar" };
                let (mode, kind) = (param.mode, type_name(param.base));
                let message = format!(
                    "the result goes to an OUT scalar that is a number, such as `OUT int *{name}`; \
                     '{name}' is an {mode} {what} of type {kind}"
                );
                Err(self.error(place, message))
            }
        }
    }

    fn call_arguments(&mut self, params: &[Param], names: &[String]) -> Result<Vec<CallArgument>, IdlError> {
        let mut args = Vec::new();
        self.mark("(")?;
        if self.take_mark(")")? {
            return Ok(args);
        }
        loop {
            let place = self.peek()?.1;
            args.push(self.call_argument(params, names)?);
            if args.len() > PARAMETERS_MAX {
                return Err(self.error(place, format!("a call has at most {PARAMETERS_MAX} arguments")));
            }
            match self.next()? {
                (Token::Mark(","), _) => {}
                (Token::Mark(")"), _) => return Ok(args),
                (other, place) => return Err(self.expected("an operator, ',' or ')'", &other, place)),
            }
        }
    }

    fn call_argument(&mut self, params: &[Param], names: &[String]) -> Result<CallArgument, IdlError> {
        let (token, place) = self.peek()?;
        match token {
            Token::Text(text) => {
                self.next()?;
                return Ok(CallArgument::Text(text));
            }
            Token::Character(character) => {
                self.next()?;
                return Ok(CallArgument::Value { dtype: Dtype::Int8, expr: Expr::Number(f64::from(character)) });
            }
            Token::Mark("(") if matches!(self.peek_second()?, Token::Name(word) if is_type_word(&word)) => {
                let dtype = self.cast()?;
                let (_, expr) = self.call_expression(params, names)?;
                return Ok(CallArgument::Value { dtype, expr });
            }
            _ => {}
        }
        if let (Token::Name(name), Token::Mark("," | ")")) = (&token, self.peek_second()?) {
            self.next()?;
            let param = names.iter().position(|known| known == name).map(CallArgument::Param);
            let callback = || self.callbacks.iter().position(|known| known.name == *name).map(CallArgument::Callback);
            return param.or_else(callback).ok_or_else(|| self.unknown_name(name, place, names));
        }
        let (real, expr) = self.call_expression(params, names)?;
        let dtype = if real { Dtype::Float64 } else { Dtype::Int32 };
        Ok(CallArgument::Value { dtype, expr })
    }

    fn call_expression(&mut self, params: &[Param], names: &[String]) -> Result<(bool, Expr), IdlError> {
        let parsed = self.expression()?;
        let expr = self.indexed(parsed.expr.clone(), names)?;
        self.check_expression(&expr, &parsed, params, names, Use::Work)?;
        Ok((parsed.real || !expr.is_integral(params), expr))
    }

    /// Parses `(type)`, with its opening parenthesis next.
    fn cast(&mut self) -> Result<Dtype, IdlError> {
        let place = self.mark("(")?;
        let mut words = Vec::new();
        while let (Token::Name(word), _) = self.peek()? {
            self.next()?;
            words.push(word);
        }
        self.mark(")")?;
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        match type_from_words(&texts) {
            Some(BaseType::Number(dtype))
                if dtype.is_integer() || matches!(dtype, Dtype::Float32 | Dtype::Float64 | Dtype::Bool) =>
            {
                Ok(dtype)
            }
            _ => {
                let message =
                    format!("expected a cast to an integer type, float or double, got '({})'", texts.join(" "));
                Err(self.error(place, message))
            }
        }
    }
}
